// The call-chain tree: every module with its class, place, parameters, FLOPs, kind and TP role, in the order in which the forward
// calls them. `tree` prints it, `plan --report` shows it.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "model/trace.h"
#include "plan/plan.h"
#include "rules/rules.h"
#include "sharding/sharding.h"
#include "support/source.h"

namespace shardwright::report {

struct Node {
  model::ModuleId module = -1;
  std::string name;  ///< in its parent: "blocks", "0"; the class for the root
  std::string fqn;
  std::string type;  ///< qualified class
  std::string file;  ///< of the class, as shown to people; "" for layers of torch
  int line = 0;
  std::int64_t own_parameters = 0;  ///< elements registered by the module itself
  std::int64_t parameters = 0;      ///< with everything below, shared ones once
  std::int64_t buffers = 0;         ///< elements of buffers, with everything below
  double flops = 0;                 ///< of one forward, with everything below
  int calls = 0;                    ///< how often its forward runs
  std::string kind;                 ///< rules/kinds.yaml
  std::string role;                 ///< under a placement: column, row, sharded, …
  std::string shared_with;          ///< the FQN under which the module was registered first; children are shown there
  std::vector<int> stages;          ///< pipeline stages that hold it (with a partition)
  std::vector<Node> children;
};

struct TreeOptions {
  const rules::Database* rules = nullptr;          ///< for kinds
  const sharding::Result* placement = nullptr;     ///< for roles
  const pipeline::Partition* partition = nullptr;  ///< for stages
};

Node tree(const model::Trace&, const support::SourceManager&, const TreeOptions& = {});

/// Siblings that differ in their number only: "0–11 (12×)", "0, 2, 4 (3×)". Children are those of the first.
struct Folded {
  const Node* node = nullptr;
  std::string label;  ///< "0–11"
  int count = 1;
  std::vector<Folded> children;
};
Folded fold(const Node&);

struct TextOptions {
  bool color = false;
  int depth = 1000;       ///< levels to show
  bool unfolded = false;  ///< every sibling on its own line
};

std::string to_text(const Node&, const TextOptions& = {});
nlohmann::json to_json(const Node&);
std::string to_mermaid(const Node&, int depth = 1000);
std::string to_dot(const Node&, int depth = 1000);

/// "64.2 M", "1.2 k", "512".
std::string human_count(double);

}  // namespace shardwright::report
