// Pipeline stages: every legal cut of the traced forward, its live tensors, and the best p stages by dynamic programming.
// Reads the trace only.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "model/trace.h"

namespace shardwright::pipeline {

using model::Clock;
using model::FrameId;
using model::OpId;
using model::StepId;
using model::TensorId;

/// One level of a cut's position, outermost frame first. In the innermost frame the cut lies *before* `step`; in every
/// outer frame `step` is the statement during which the inner frame was running (it contains the call `call`).
struct Level {
  FrameId frame = -1;
  StepId step = -1;
  const program::Expr* call = nullptr;  ///< outer levels: the call expression that leads inwards; nullptr at the innermost
};

/// Where in the source a cut lies. Later layers (rewrite) decide through Options::can_emit which kinds they can express.
enum class CutKind : std::uint8_t {
  BeforeStep,       ///< between two statements: just before path.back().step
  BeforeCall,       ///< inside the expression of path.back().step: the arguments of `before_call` are evaluated, the call has not begun
  AfterCall,        ///< inside the expression of path.back().step: `after_call` has returned, its value is not used yet
  BetweenChildren,  ///< between two children of a built-in Sequential called as a whole: `sequential`, `child_index`
  InsideBuiltin,    ///< between two children of another built-in layer (an encoder of layers): `sequential`, `child_index`
};

/// A tensor that later statements read and that is computed again there instead of being sent.
struct Recompute {
  enum Why : std::uint8_t {
    Constant,    ///< depends on constants and buffers only
    Parameters,  ///< depends on a few parameters only; a copy of them (tied when both sides need them) costs less than sending
    Input,       ///< a few element-wise operations on inputs of forward (a mask)
    View,        ///< a reshape, permutation, slice or piece of the live tensor `from[0]`
  };
  TensorId tensor = -1;
  Why why = Constant;
  std::vector<TensorId> from;  ///< Parameters: the parameters; Input: the inputs; View: the live tensor
};

struct Cut {
  Clock clock = 0;          ///< everything with a smaller clock is before the cut
  std::vector<Level> path;  ///< only user-code frames; a built-in Sequential between two user frames is skipped over
  /// A cut between two children of a built-in container (nn.Sequential called as a whole): the container and the first child after the cut.
  model::ModuleId sequential = -1;
  int child_index = -1;
  std::vector<TensorId> live;           ///< tensors that must be sent, in order of first use in later stages
  std::vector<TensorId> inputs_needed;  ///< inputs of forward that later operations read
  double cost_before = 0;               ///< FLOPs before the cut
  std::int64_t bytes = 0;               ///< of `live`
  int depth = 0;                        ///< path.size(): shallow is preferred
  bool between_iterations = false;      ///< at the beginning of a loop iteration, or outside of loops
  CutKind kind = CutKind::BeforeStep;
  const program::Expr* before_call = nullptr;  ///< BeforeCall: the Call expression
  const program::Expr* after_call = nullptr;   ///< AfterCall: the Call expression
  FrameId callee = -1;                         ///< BeforeCall/AfterCall: frame of the called user function, where there is one
  std::vector<Recompute> recompute;            ///< read later, made earlier, and not sent
  int varying = 0;                             ///< live tensors whose placement is not I (Options::varying)
};

struct Stage {
  double cost = 0;
  std::int64_t parameter_bytes = 0;
  std::vector<model::ModuleId> modules;  ///< modules whose own parameters/buffers or forward are used in it
  std::vector<TensorId> parameters;      ///< parameters and buffers it reads
  std::vector<OpId> ops;                 ///< operations it runs, recomputed ones included, in order
};

struct Options {
  int stages = 1;
  int max_tensors = 3;       ///< live tensors allowed to cross
  double preference = 0.03;  ///< among cuts within this share of the optimum, take the one a person would
  /// Asks whether generation can express the cut; cuts refused here are not used. Empty: all.
  /// May be slow: partition() asks it about cuts that it would choose only; legal_cuts() about all.
  bool (*can_emit)(const model::Trace&, const Cut&, void*) = nullptr;
  void* can_emit_data = nullptr;
  /// By TensorId: true for tensors whose placement over tp is not I (sharded or partial). Empty: all are I.
  std::vector<char> varying;
  /// Whether a stage may compute something again from parameters that an earlier one reads, too: a copy whose gradient is to be summed.
  bool copy_parameters = true;
  /// Cuts that must be among the chosen ones (pins): only the clock is compared, with every cut at the same place.
  std::vector<Clock> required;
  /// What "slow" means, per operation: FLOPs + parameter_weight × bytes of the parameters it reads first
  /// + activation_weight × bytes of the tensors it makes that need a gradient.
  double parameter_weight = 0;
  double activation_weight = 0;
};

struct Partition {
  std::vector<Cut> cuts;  ///< stages − 1
  std::vector<Stage> stages;
  double slowest_over_mean = 1;
  double optimum_slowest_over_mean = 1;                     ///< without the preference
  int legal_cuts = 0;                                       ///< places for a cut, without those that can_emit was asked about and refused
  std::vector<std::pair<TensorId, std::vector<int>>> tied;  ///< parameters read by several stages
  std::vector<std::string> warnings;
  std::string error;  ///< non-empty: there are fewer legal cuts than stages − 1, and why
};

/// Every legal cut, in order of clock; several may lie at the same place (same operations before them).
std::vector<Cut> legal_cuts(const model::Trace&, const Options&);
Partition partition(const model::Trace&, const Options&);

/// The partition that given cuts make (replay of a plan): stages, ties, balance and warnings; nothing is chosen.
Partition partition_at(const model::Trace&, const Options&, std::vector<Cut> cuts);

/// Cost of one operation in FLOPs: Op::flops, 0 for what depends on constants and buffers only.
double cost_of(const model::Trace&, const model::Op&);

/// The bare optimisation, for tests against brute force: positions with cumulative cost and bytes; returns indices of p−1 cuts.
std::vector<int> best_cuts(const std::vector<double>& cost_before, const std::vector<double>& bytes, double total, int p);

}  // namespace shardwright::pipeline
