// The table of logical axes: which parameters each cuts, whether it may be sharded, and what sharding it costs.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "sharding/infer.h"
#include "sharding/sharding.h"

namespace shardwright::sharding {

struct AxisTable {
  std::vector<Axis> axes;
  std::vector<Factored> tensors;                ///< by TensorId
  std::vector<std::vector<int>> of_tensor;      ///< by TensorId: axes it carries, each once
  std::vector<std::vector<int>> contracted;     ///< by OpId: axes the operation sums over
  std::vector<std::vector<int>> touched;        ///< by OpId: axes of its operands and results
  std::vector<std::vector<model::OpId>> ops;    ///< by axis: operations that touch it, in order
  std::vector<std::vector<TensorId>> carriers;  ///< by axis: tensors that carry it
  std::vector<char> unknown_only;               ///< by axis: illegal, and only because an operation was not understood
  std::vector<char> divisibility_only;          ///< by axis: illegal, and only because tp does not divide it
  std::set<model::OpId> gathered;               ///< output heads: their results are put together again where they are made
  bool carries(TensorId t, int axis) const;
  bool contracts(model::OpId op, int axis) const;
  /// Is the result of `op` made of slices on `axis` and gathered at once?
  bool gathers(const model::Op& op, int axis) const;
};

/// Infers and tabulates, output heads included: a linear of vocabulary size whose result is needed whole is cut all the same, and
/// its result gathered, where its weight is a table that is looked up or nothing but the head's.
AxisTable build_table(const model::Trace&, const Options&);

/// Makes an axis illegal unless `other`, the table of a trace at another batch size, has it too, legal.
void require_agreement(AxisTable&, const AxisTable& other);

/// True where an operand that does not carry `axis` gets a partial gradient when the operation runs on local slices.
bool is_entry(const model::Trace&, const AxisTable&, const model::Op&, std::size_t operand, int axis);

/// A sum over a dimension that no result has: a product with a matrix.
bool contracts_something(const model::Op&);

/// fnmatch-like: `*` any characters, `?` one.
bool matches(const std::string& pattern, const std::string& text);

}  // namespace shardwright::sharding
