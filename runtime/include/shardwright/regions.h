// Conversions between placements as autograd functions (semantics: I invariant, R replicate, V varying, P partial).
//
//   copy_to      I -> R   identity forward, all-reduce backward     (Megatron's f)
//   reduce_from  P -> I   all-reduce forward, identity backward     (Megatron's g)
//   scatter_to   I -> V   slice forward, all-gather backward
//   gather_from  V -> I   all-gather forward, slice backward
//   local_slice  R -> V   slice forward, zero-padded backward; no communication
//   gather_sequence          V -> R   all-gather forward, reduce-scatter backward
//   reduce_scatter_sequence  P -> V   reduce-scatter forward, all-gather backward
//
// `dim` may be a product (outer, sharded, inner): the middle factor is cut.
#pragma once
#include "shardwright/comm.h"

namespace shardwright::runtime {

at::Tensor copy_to(const at::Tensor& x, const Group& group, const std::string& tag);
/// Between a tensor whose gradient goes back to another stage (a leaf) and the stage that reads it: the same memory, but no leaf, so
/// that the stage may work on it in place.
at::Tensor received(const at::Tensor& x);
at::Tensor reduce_from(const at::Tensor& x, const Group& group);
at::Tensor scatter_to(const at::Tensor& x, std::int64_t dim, std::int64_t outer, std::int64_t sharded, const Group& group);
at::Tensor gather_from(const at::Tensor& x, std::int64_t dim, std::int64_t outer, const Group& group);
at::Tensor local_slice(const at::Tensor& x, std::int64_t dim, std::int64_t outer, std::int64_t sharded, const Group& group);

/// For activations that are divided along `dim` (the sequence) outside of the sharded layers.
at::Tensor gather_sequence(const at::Tensor& x, std::int64_t dim, const Group& group);
at::Tensor reduce_scatter_sequence(const at::Tensor& x, std::int64_t dim, const Group& group);

}  // namespace shardwright::runtime
