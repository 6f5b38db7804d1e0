// Gradient norm and clipping for one rank's part of the parameters.
#pragma once
#include <vector>

#include "shardwright/comm.h"

namespace shardwright::runtime {

/// Sum of squares of all elements (float64 scalar on the tensors' device; zero for an empty list).
at::Tensor squared_norm(const std::vector<at::Tensor>& gradients);
/// Multiplies all gradients by min(1, max_norm / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_ does.
void clip_by_norm(const std::vector<at::Tensor>& gradients, double norm, double max_norm);
/// Sums gradients over the group in place, in one flat buffer a dtype.
void all_reduce_coalesced(const std::vector<at::Tensor>& tensors, const Group& group, const std::string& tag);

}  // namespace shardwright::runtime
