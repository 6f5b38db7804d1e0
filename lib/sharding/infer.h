// Axis inference: gives every dimension of every tensor its factors and lets each operation of the trace unify, split and
// block them. What remains are the model's logical axes (semantics §2).
#pragma once
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

Inference infer(const model::Trace&);

/// Runs inside the forward of a custom autograd function: its backward is written by hand and not followed.
bool in_custom_function(const model::Op&);

}  // namespace shardwright::sharding
