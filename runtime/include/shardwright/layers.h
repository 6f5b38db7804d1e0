// The functions behind the parallel layers. Weights are local: column (out / tp, in), row (out, in / tp), table (rows / tp, d).
#pragma once
#include <optional>

#include "shardwright/regions.h"

namespace shardwright::runtime {

/// x W^T + b with W's rows local. `reduce_grad`: x is invariant, its gradient is summed over the group; the sum runs while the
/// weight gradient is computed. Otherwise the caller has called copy_to on x.
at::Tensor column_linear(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias, const Group& group,
                         bool reduce_grad);
/// x W^T summed over the group, then + b (once). x is sharded on its last dimension as W's columns are.
at::Tensor row_linear(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias, const Group& group);
/// Rows [rank * local, (rank + 1) * local) of the table are here; ids outside contribute zero, then the sum over the group.
at::Tensor vocab_embedding(const at::Tensor& ids, const at::Tensor& weight, std::int64_t padding_idx, const Group& group);

/// Cross entropy by token of logits whose last dimension is divided over the group. `words`: columns that count, over all ranks (0: all);
/// the others are padding. `ignored`: a target without loss. Computed in float32 (float64 for float64).
at::Tensor vocab_cross_entropy(const at::Tensor& logits, const at::Tensor& targets, std::int64_t words, double smoothing,
                               std::int64_t ignored, const Group& group);

}  // namespace shardwright::runtime
