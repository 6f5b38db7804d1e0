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
  const program::Expr* call = nullptr;    ///< outer levels: the call expression that leads inwards; nullptr at the innermost
};

struct Cut {
  Clock clock = 0;                        ///< everything with a smaller clock is before the cut
  std::vector<Level> path;                ///< only user-code frames; a built-in Sequential between two user frames is skipped over
  /// A cut between two children of a built-in container (nn.Sequential called as a whole): the container and the first child after the cut.
  model::ModuleId sequential = -1;
  int child_index = -1;
  std::vector<TensorId> live;             ///< tensors that must be sent, in order of first use in later stages
  std::vector<TensorId> inputs_needed;    ///< inputs of forward that later operations read
  double cost_before = 0;                 ///< FLOPs before the cut
  std::int64_t bytes = 0;                 ///< of `live`
  int depth = 0;                          ///< path.size(): shallow is preferred
  bool between_iterations = false;        ///< at the beginning of a loop iteration, or outside of loops
};

struct Stage {
  double cost = 0;
  std::int64_t parameter_bytes = 0;
  std::vector<model::ModuleId> modules;   ///< modules whose own parameters/buffers or forward are used in it
  std::vector<TensorId> parameters;       ///< parameters and buffers it reads
};

struct Options {
  int stages = 1;
  int max_tensors = 3;                    ///< live tensors allowed to cross
  double preference = 0.03;               ///< among cuts within this share of the optimum, take the one a person would
  /// Asks whether generation can express the cut; cuts refused here are not used. Empty: all.
  bool (*can_emit)(const model::Trace&, const Cut&, void*) = nullptr;
  void* can_emit_data = nullptr;
};

struct Partition {
  std::vector<Cut> cuts;                  ///< stages − 1
  std::vector<Stage> stages;
  double slowest_over_mean = 1;
  double optimum_slowest_over_mean = 1;   ///< without the preference
  int legal_cuts = 0;
  std::vector<std::pair<TensorId, std::vector<int>>> tied;  ///< parameters read by several stages
  std::vector<std::string> warnings;
  std::string error;                      ///< non-empty: there are fewer legal cuts than stages − 1, and why
};

std::vector<Cut> legal_cuts(const model::Trace&, const Options&);
Partition partition(const model::Trace&, const Options&);

/// The bare optimisation, for tests against brute force: positions with cumulative cost and bytes; returns indices of p−1 cuts.
std::vector<int> best_cuts(const std::vector<double>& cost_before, const std::vector<double>& bytes, double total, int p);

}  // namespace shardwright::pipeline
