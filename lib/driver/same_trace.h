// Whether a generated stage computes what the original does: every value of the stage's trace is looked up among the original's.
//
// A value is known by the operation that makes it, that operation's constants and the values it is made of; parameters, buffers,
// inputs and what a stage receives are known by name. Regions are the values they are given (semantics §1: they change where a
// value lies, not what it is). What the stage returns must be the values that the plan says. Gradients are not seen here.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "model/trace.h"
#include "sharding/sharding.h"

namespace shardwright::driver {

/// Where a stage first does something that the original does not.
struct Difference {
  support::Range where;
  std::string what;
};

class SameTrace {
 public:
  /// Both must outlive it.
  SameTrace(const model::Trace& original, const sharding::Result& placed);

  /// `stage` is a trace of generated code on one of tp ranks. `known`: tensors of it whose meaning is given, with the original's tensors;
  /// `returned`: tensors of the original that its result must be, in order.
  std::optional<Difference> compare(const model::Trace& stage, const std::unordered_map<model::TensorId, model::TensorId>& known,
                                    const std::vector<model::TensorId>& returned) const;

 private:
  using Value = int;  ///< a tensor of the original, or one past them: a product before its bias
  struct Made {
    std::vector<Value> values;
    bool random = false;
    model::OpId op = -1;
  };
  const model::Trace& original_;
  const sharding::Result& placed_;
  std::vector<Value> value_;                                                      ///< by tensor of the original: the first that is the same
  std::unordered_map<std::string, std::vector<Made>> made_;                       ///< by operation, constants and operands
  std::unordered_map<std::string, std::vector<const model::ModuleCall*>> calls_;  ///< by the module's name, in order

  /// `shares`: a share of one dimension will do.
  bool fits(const Made&, const model::Op&, const model::Trace& stage, bool shares) const;
  /// Which of these an operation of the stage is; `drawn`: random ones that have theirs already. nullptr: none.
  const Made* counterpart(const std::vector<Made>&, const model::Op&, const model::Trace& stage, const std::set<model::OpId>& drawn) const;
};

}  // namespace shardwright::driver
