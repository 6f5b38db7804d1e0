// Axis inference: gives every dimension of every tensor its factors and lets each operation of the trace unify, split and
// block them. What remains are the model's logical axes (semantics §2).
#pragma once
#include <set>
#include <vector>

#include "model/trace.h"
#include "sharding/factors.h"

namespace shardwright::sharding {

/// A sum over factors: sharding one of them leaves partial sums in the outputs of `op`.
struct Contraction {
  model::OpId op = -1;
  FactorList factors;
};

struct Inference {
  FactorStore store;
  std::vector<std::vector<FactorList>> tensors;  ///< by TensorId: a product per dimension
  std::vector<Contraction> contractions;
};

/// `gathered`: operations whose result is put together again where it is made (an output head): what they take from their weights'
/// rows ends there, the result has a dimension of its own.
Inference infer(const model::Trace&, const std::set<model::OpId>& gathered = {});

/// A look-up of rows of a table by indices: a product with a one-hot matrix, whose contracted dimension is a vocabulary.
bool is_lookup(const model::Op&);

/// Runs inside the forward of a custom autograd function: its backward is written by hand and not followed.
bool in_custom_function(const model::Op&);

}  // namespace shardwright::sharding
