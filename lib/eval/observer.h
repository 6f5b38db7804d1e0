// Somebody who watches a run while it goes on (lib/lint): told of every recorded operation, and asked what to do when one
// cannot be done because sizes of one rank met sizes of the whole.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "eval/interpreter.h"
#include "model/trace.h"

namespace shardwright::eval {

/// Names of the tensors whose sizes stand for the tensor-parallel size and rank (model::Sym is "the size of a dimension").
inline constexpr const char* tp_size_name = "<tensor-parallel size>";
inline constexpr const char* tp_rank_name = "<tensor-parallel rank>";

/// An operation that raised.
struct Failure {
  std::string name;  ///< canonical
  Site site;
  model::ModuleId module = -1;           ///< innermost module whose forward is running
  std::vector<model::Operand> operands;  ///< every tensor among its arguments, lists opened
  std::vector<model::SizeArg> sizes;     ///< sizes given to view, expand, …
  std::string message;
};

/// The pair that a parallel layer returned, with the call that returned it.
struct LayerResultObj : SeqObj {
  Site site;  ///< the layer's call in user code
  model::ModuleId layer = -1;
  bool own_call = false;  ///< the site calls the layer itself, not something around it
  LayerResultObj(std::vector<Value> v, ClassObj* c) : SeqObj(Kind::Tuple, std::move(v), c) {}
};

class Observer {
 public:
  virtual ~Observer() = default;
  /// Before anything runs: the trace that will be filled.
  virtual void attach(const model::Trace&) {}
  virtual void recorded(const model::Op&) {}
  /// nn.Parameter(from), or parameter.data = from.
  virtual void became(model::TensorId /*parameter*/, model::TensorId /*from*/) {}
  /// A mark set on a tensor: `weight.sequence_parallel = True`, `sum_gradients_over_tp(…)`.
  virtual void marked(model::TensorId, const std::string& /*name*/) {}
  /// A parallel layer's pair was used where a tensor belongs; its first element is taken instead.
  virtual void pair_used(const LayerResultObj&, const Site&) {}
  /// Something that a description noticed: a code, words, the tensors concerned.
  virtual void noticed(const std::string& /*code*/, const std::string& /*text*/, const std::vector<model::TensorId>&, const Site&,
                       model::ModuleId) {}
  /// Shapes that some operands are to have for one more try; empty: raise the error.
  virtual std::map<model::TensorId, std::vector<std::int64_t>> repair(const Failure&) { return {}; }
  /// The second try worked.
  virtual void repaired(const Failure&, const std::vector<model::TensorId>& /*results*/) {}
  /// Is dimension `dim` of the tensor sharded? Descriptions ask (a row layer cuts its input only when it is whole).
  virtual bool sharded(model::TensorId, int /*dim*/) { return false; }
};

}  // namespace shardwright::eval
