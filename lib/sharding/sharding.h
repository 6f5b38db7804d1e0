// Placements: which logical axes a model has (inference by unification of factors over the trace), which of them are split
// over tp, and what that means for every tensor and every operation. Reads the trace only.
#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "model/trace.h"

namespace shardwright::sharding {

using model::OpId;
using model::TensorId;

/// One factor of a dimension: an axis, or a concatenation of segments (each a product of terms).
struct Term {
  int axis = -1;  ///< index into Result::axes; every leaf factor has one
  std::int64_t size = 1;
  std::vector<std::vector<Term>> segments;  ///< non-empty: a concatenation; axis is -1 then
};
using Dim = std::vector<Term>;      ///< a product, outermost first; empty for size 1
using Factored = std::vector<Dim>;  ///< one entry per dimension

/// A leaf factor after unification: one logical axis of the model.
struct Axis {
  int id = -1;
  std::int64_t size = 1;
  std::vector<TensorId> parameters;  ///< parameters and buffers that carry it
  bool legal = false;                ///< may be sharded at this tp
  bool chosen = false;
  bool vocabulary = false;     ///< rows of a table that is looked up, or of an output head that is gathered
  std::string why_not;         ///< first reason when it is not legal
  support::Range where;        ///< place of that reason
  bool divides = true;         ///< false: only tp does not divide it
  bool given_up = false;       ///< could be split as far as the model goes; `why_not` is something of the source, a request or the tp size
  double parameter_bytes = 0;  ///< parameters that carry it (whole, buffers not counted)
  double parameter_elements = 0;
  double flops = 0;
  double forward_elements = 0;  ///< elements all-reduced forward (outputs of contractions over it)
  double entry_elements = 0;    ///< elements all-reduced backward (entries)
  int forward_sites = 0;        ///< how many contractions over it
  int entry_sites = 0;          ///< how many tensors enter
  double activation_bytes = 0;  ///< of the tensors made by operations that carry it
  /// Which slice of which parameter it is, independent of this trace: "name:dimension:outer*size" joined by ';'.
  /// Equal keys in two traces of a model are the same axis; `place` accepts it too.
  std::string key;
};

enum class State : std::uint8_t { I, R, V, P };

/// What must be inserted so that every operation gets states it accepts (semantics §1).
struct Conversion {
  enum Kind : std::uint8_t {
    CopyTo,      ///< I→R before operand `operand` of `op`: identity forward, all-reduce backward
    ReduceFrom,  ///< P→I on output `operand` of `op`: all-reduce forward, identity backward
    Slice,       ///< a full tensor enters as its local slice (constants, fills, buffers not cut): operand, or output when `on_output`
    Gather,      ///< V→I: all-gather forward, split backward
  };
  Kind kind = CopyTo;
  OpId op = -1;
  int operand = 0;  ///< index into Op::inputs, or into Op::outputs when on_output
  bool on_output = false;
  TensorId tensor = -1;
  int dim = -1;  ///< Slice/Gather: dimension that carries the axis
  int axis = -1;
  bool mean = false;  ///< ReduceFrom after a mean over the local part: divide by tp as well
  /// CopyTo: further operands (operation, index into its inputs) that read the same copy: one all-reduce a tensor.
  std::vector<std::pair<OpId, int>> also;
  int copies = 1;     ///< CopyTo: all-reduces that the text needs for it, where its readers cannot share one
  bool fill = false;  ///< Slice of a created tensor whose values are all alike: creating it at the local size is as right
};

struct Fallback {  ///< something that could have been split and was not
  int axis = -1;
  support::Range where;
  std::string module;   ///< FQN of the module that owns the first parameter
  std::string message;  ///< names class, size, tp and the values that work
};

/// What the objective `time` weighs with. Callers fill it from rules/devices; the defaults are one current accelerator's order of
/// magnitude.
struct Device {
  double flops = 200e12;            ///< a second, dense
  double bytes_per_second = 200e9;  ///< all-reduce bandwidth of one rank
  double latency = 10e-6;           ///< seconds a collective
};

struct Options {
  int tp = 1;
  Device profile;
  std::string objective = "split";                              ///< split | time | memory
  std::vector<std::string> keep_replicated;                     ///< FQN patterns pinned by the user or the plan
  std::vector<std::pair<std::string, std::string>> kept_whole;  ///< further FQN patterns, each with the reason
  std::map<std::string, std::string>
      given_up;  ///< keys of axes that could not be written, and why; others of the same parameters can be chosen
  /// Types of layers whose parallel form sums the gradients of its arguments itself: what goes into one is not left partial before it.
  std::set<std::string> copy_arguments;
  /// What is computed of parameters alone is left partial back to those where every use is; else a copy stands where the region is entered.
  bool leave_partial = true;
};

struct Result {
  int tp = 1;
  std::vector<Axis> axes;
  std::vector<Factored> tensors;        ///< by TensorId
  std::vector<State> states;            ///< by TensorId
  std::vector<int> axis_of;             ///< by TensorId: the chosen axis it carries, or -1
  std::vector<Conversion> conversions;  ///< in order of op
  std::vector<TensorId> grad_summed;    ///< replicated parameters whose gradient is summed over tp after backward
  std::vector<Fallback> fallbacks;
  std::vector<Fallback> whole;       ///< matrices that every rank holds whole, and why: by the reason, fallbacks' left out
  std::vector<OpId> sharded_random;  ///< operations that draw random numbers for a sharded tensor: a stream per rank
  std::vector<std::string> errors;   ///< place(): names that no axis answers to

  /// Shape on one rank: every dimension that carries the tensor's chosen axis is divided by tp.
  std::vector<std::int64_t> local_shape(const model::Trace&, TensorId) const;
  /// Dimension of `t` that carries its chosen axis, or -1.
  int sharded_dim(TensorId t) const;
};

/// Infers the axes and chooses. `other`: a second trace of the same model at another batch size (nullptr: skip the check);
/// an axis counts only when both traces agree on it.
Result analyse(const model::Trace&, const Options&, const model::Trace* other = nullptr);

/// Places a given set of axes instead of choosing: replay of a plan. Each is named by the parameters that carry it, or by
/// its one-element {Axis::key}. Where several axes have the same parameters, the one that choosing would prefer is meant.
Result place(const model::Trace&, const Options&, const std::vector<std::vector<std::string>>& chosen_by_parameters);

}  // namespace shardwright::sharding
