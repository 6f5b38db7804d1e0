// The plan: the contract between analysis and generation, and the one place where a person overrides anything. A value that is
// written as YAML (stable order, comments), read back strictly, compared, and replayed on a trace of the same source.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "model/trace.h"
#include "pipeline/pipeline.h"
#include "sharding/sharding.h"
#include "support/result.h"
#include "support/source.h"

namespace shardwright::plan {

/// The analysis' own choice, or one that a person wrote down: kept when the plan is made again.
enum class By : std::uint8_t { Auto, Pinned };

struct Grid {
  int tp = 1, pp = 1, dp = 1, micro_batches = 1, virtual_stages = 1;
  std::string schedule = "1f1b";
};

/// What becomes of one attribute (a layer, a parameter) of a class. Instances that differ have an entry each, with `only`.
struct Role {
  std::string type;       ///< class as a person writes it: "EarthAttention3D"; of the module that holds the attribute
  std::string attribute;  ///< "qkv", "bias_table"
  std::string role;       ///< column | row | sharded | replicated, gradient summed
  std::string layer;      ///< generated class, "" when the parameter is cut in place
  std::string reason;
  std::vector<std::string> only;  ///< FQNs of the attribute, when not all instances of the class have this role
  int instances = 1;
};

/// One logical axis that can be split. `key` names it independently of a trace (sharding::Axis::key).
struct Axis {
  std::string key;
  std::int64_t size = 1;
  bool split = false;
  By by = By::Auto;
  std::vector<std::string> parameters;  ///< in order of registration
  double parameter_bytes = 0;
  double forward_bytes = 0;   ///< all-reduced in forward, a micro-batch
  double backward_bytes = 0;  ///< all-reduced in backward, a micro-batch
  std::string why_not;        ///< when it is not split
  bool given_up = false;      ///< not split for a reason of the source, the request or the tp size; verify counts its matrices as not split
};

/// A tensor that crosses a cut.
struct Crossing {
  std::string name;                 ///< variable that holds it, else the operation that made it
  std::vector<std::int64_t> shape;  ///< as traced (whole, one micro-batch)
  std::string dtype;
  std::int64_t bytes = 0;
  bool gradient = true;  ///< a gradient comes back
};

struct Cut {
  std::string at;                ///< in words: "after layer1.blocks.3 (model.py:141)"
  std::vector<std::string> key;  ///< pipeline::key_of
  By by = By::Auto;
  std::vector<Crossing> sends;
  std::vector<std::string> recomputed;  ///< names of values computed again after the cut
  std::vector<std::string> inputs;      ///< inputs of forward that later stages read
  std::int64_t bytes = 0;
};

struct Stage {
  double flops = 0;                  ///< forward, one micro-batch, the whole model (not divided by tp)
  double share = 0;                  ///< of the mean stage
  std::int64_t parameters = 0;       ///< elements on one rank
  double gib = 0;                    ///< parameters + gradients + two Adam moments on one rank
  std::vector<std::string> modules;  ///< outermost modules that lie in it whole or in part
  std::vector<Cut> cut;              ///< where it ends: one entry, none for the last stage
};

/// Payload handed to c10d by one rank in one optimizer step, by site.
struct Collective {
  std::string tag;   ///< as the runtime counts: activation_forward, activation_backward, boundary, replicated_grad, tied, norm, dp
  std::string kind;  ///< all_reduce, send, broadcast
  std::string site;  ///< where: a class and attribute, a cut, a parameter group
  int stage = -1;    ///< −1: all
  double count = 0;  ///< calls in one step
  double bytes = 0;  ///< sum of the payloads of these calls
};

struct Fallback {
  std::string module, where, reason;
};

struct Plan {
  std::string model;    ///< as given on the command line or in the job file
  std::string package;  ///< generated package ("gpt_parallel"); "" before generation
  Grid grid;
  std::string objective = "split", device;
  std::vector<Role> roles;
  std::vector<Axis> axes;
  std::vector<std::pair<std::string, std::int64_t>> tied;  ///< parameter, number of stages that hold it
  std::vector<Stage> stages;
  double slowest_over_mean = 1, optimum_slowest_over_mean = 1;
  int legal_cuts = 0;
  std::vector<Collective> collectives;
  std::vector<Fallback> fallbacks;
  std::vector<std::string> warnings;
  /// The job as YAML text (a mapping at column 0), for verify and for making the plan again; written under the key `job`. "": none.
  std::string job;
};

/// A role that generation decided (rewrite::LayerRole): wins over what the placement alone says.
struct GivenRole {
  model::ModuleId module = -1;
  std::string role, layer, reason;
};

struct Inputs {
  const model::Trace* trace = nullptr;
  const support::SourceManager* sources = nullptr;
  const sharding::Result* placement = nullptr;     ///< nullptr: tp = 1
  const pipeline::Partition* partition = nullptr;  ///< nullptr: pp = 1
  /// By stage: tensors that it receives and returns unread. The runtime sends them past it.
  std::vector<std::vector<model::TensorId>> passes;
  std::string model, objective = "split", device, job;
  Grid grid;
  std::vector<GivenRole> roles;
  const Plan* pins = nullptr;  ///< an earlier plan: its pinned entries stay pinned
};

Plan make(const Inputs&);

std::string to_yaml(const Plan&);
/// Strict: an unknown key, a missing field or a wrong value is an error at its line. The file becomes known to `sm`.
support::Expected<Plan> from_yaml(std::string text, const std::string& path, support::SourceManager& sm);
nlohmann::json to_json(const Plan&);

/// Roles of a plan file that were edited to no effect, a line each with what to edit instead: `made` is what its axes and cuts give.
std::vector<std::string> roles_unread(const Plan& stated, const Plan& made, const model::Trace&);

/// What differs, one readable line each; empty when the plans generate the same code.
std::vector<std::string> compare(const Plan& before, const Plan& after);

// --- replay: a plan on a trace ---

/// For sharding::place: the key of every axis that is split.
std::vector<std::vector<std::string>> split_axes(const Plan&);
/// For sharding::Options::keep_replicated: parameters of axes that are pinned as not split.
std::vector<std::string> kept_whole(const Plan&);
/// The cuts of the plan among the legal ones (or only its pinned cuts). A cut that the source no longer has is an error that names
/// the entry and the cuts most like it.
support::Expected<std::vector<pipeline::Cut>> cuts_of(const Plan&, const model::Trace&, const pipeline::Options&, bool only_pinned = false);
/// Does the plan speak of this source? An axis, parameter or stage that does not fit is an error that names the entry.
support::Expected<bool> fits(const Plan&, const model::Trace&, const sharding::Result&);

/// What the parameters of a module are under a placement: "column", "row", "sharded", "replicated, gradient summed", or "".
std::string role_of(const model::Trace&, const sharding::Result&, model::ModuleId);
/// A built-in layer is named by the user's class that holds it and its path there: ("Attention", "qkv"), ("Mlp", "net.0").
std::pair<std::string, std::string> site_of(const model::Trace&, model::ModuleId);
/// A short name for a tensor: the variable that held it last, else the name of its operation.
std::string name_of(const model::Trace&, model::TensorId);
/// "1.25 GiB", "3.0 MiB", "512 B".
std::string human_bytes(double bytes);
/// "12.3 TFLOP", "1.5 GFLOP", "900 FLOP".
std::string human_flops(double flops);

}  // namespace shardwright::plan
