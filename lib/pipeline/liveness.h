// What later operations need at a point of the forward, and which of it has to be sent. Internal to lib/pipeline.
#pragma once
#include <set>
#include <vector>

#include "pipeline/pipeline.h"

namespace shardwright::pipeline {

/// How a tensor can reach a later stage.
enum class Reach : std::uint8_t {
  Given,       ///< parameter, buffer, attribute made by __init__: every stage that reads it holds it
  Constant,    ///< computed in forward from constants and buffers only
  Parameters,  ///< computed in forward from parameters, no input
  Input,       ///< an input of forward, or a few element-wise operations on inputs
  Flow,        ///< everything else: must be sent
};

class Liveness {
 public:
  Liveness(const model::Trace& t, const Options& o);

  /// Operations of forward that cannot be computed again for nothing; the places between them are what cuts tell apart.
  int place_of(Clock c) const;
  int places() const { return static_cast<int>(flow_ops_.size()) + 1; }
  /// Cost of everything before place `p`.
  double cost_before(int p) const { return cumulative_[static_cast<std::size_t>(p)]; }
  double total() const { return cumulative_.back(); }
  OpId flow_op(int i) const { return flow_ops_[static_cast<std::size_t>(i)]; }

  /// Fills live, inputs_needed, recompute and bytes of `c` from its clock. Call in order of clock (a sweep). The second
  /// variant, when views of one tensor can be sent as that tensor, is put in `merged`; returns whether it exists.
  bool fill(Cut& c, Cut& merged);

  Reach reach(TensorId t) const { return reach_[static_cast<std::size_t>(t)]; }
  /// Operations that a stage with these cuts at its ends runs: what its results need, back to what it receives.
  std::vector<OpId> needed(const Cut* begin, const Cut* end) const;
  Clock born(TensorId t) const;

 private:
  struct Life {
    TensorId tensor;
    Clock born, last;
  };
  void classify();
  void lives();
  bool cheap(const model::Op&) const;
  TensorId view_of(TensorId t) const;
  std::int64_t bytes(TensorId t) const;
  void sweep_to(Clock c);
  bool keep_parameters(TensorId t, Clock c, Recompute& how) const;
  void finish(Cut& c) const;

  const model::Trace& trace_;
  const Options& options_;
  std::vector<Reach> reach_;
  std::vector<double> chain_flops_;                // by tensor: Constant, Parameters, Input
  std::vector<std::vector<TensorId>> chain_from_;  // by tensor: the parameters or inputs it is made from
  std::vector<Clock> first_read_;                  // by tensor: for parameters, the first reader that is not a Parameters chain
  std::vector<Life> lives_;
  std::size_t next_life_ = 0;
  std::set<std::pair<Clock, std::size_t>> active_;  // (last use, index into lives_)
  std::vector<OpId> flow_ops_;
  std::vector<Clock> flow_clocks_;
  std::vector<double> cumulative_;
  std::vector<char> is_output_;
  std::vector<std::vector<OpId>> readers_;
};

}  // namespace shardwright::pipeline
