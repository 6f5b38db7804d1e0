// Which rules speak of a name, as text: for `explain --rule`.
#pragma once
#include <string>
#include <vector>

#include "rules/rules.h"

namespace shardwright::rules {

struct RuleText {
  std::string name;  ///< the name as the rule has it: "torch.nn.functional.softmax"
  std::string file;  ///< "rules/ops/reduce.yaml", or the user's own
  int line = 0;      ///< 1-based
  std::string text;  ///< the rule as written
};

/// Every rule of `name`: a full dotted name ("torch.nn.Linear", "torch.Tensor.view") or its last part ("softmax"); rules of
/// operations, of layers (the YAML entry and the class that describes what it computes), of kinds and devices. Empty when none does.
std::vector<RuleText> rules_of(const Database& db, const std::string& name);

/// The name that a rule has and that is most like `name`, or "".
std::string nearest_rule(const Database& db, const std::string& name);

}  // namespace shardwright::rules
