// Collectives on a c10d process group, as the regions and layers use them. One code path for Gloo and NCCL: contiguous
// buffers, complex as a real view, bool as uint8, no tags. A null group (or one of size 1) makes every call a no-op, so the
// same program runs on one device without torch.distributed.
//
// Every call counts the payload bytes it hands to c10d under a tag ("activation_forward", "replicated_grad", …).
#pragma once
#include <ATen/ATen.h>

#include <cstdint>
#include <map>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace shardwright::runtime {

using Group = c10::intrusive_ptr<c10d::ProcessGroup>;
using Work = c10::intrusive_ptr<c10d::Work>;

int group_size(const Group& group);  ///< 1 for a null group
int group_rank(const Group& group);  ///< 0 for a null group

/// An all-reduce under way on `buffer` (its own memory). `finish` returns the sum in the type and shape of the original.
struct PendingReduce {
  at::Tensor buffer;
  at::Tensor result;
  Work work;
  at::Tensor finish();
};

/// Starts summing a private copy of `x` (or `x` itself when `in_place`).
PendingReduce start_all_reduce(const at::Tensor& x, const Group& group, const std::string& tag, bool in_place = false);
at::Tensor all_reduce(const at::Tensor& x, const Group& group, const std::string& tag);
at::Tensor all_reduce_max(const at::Tensor& x, const Group& group, const std::string& tag);

/// This rank's part of a full tensor whose dimension `dim` is a product (outer, sharded, inner): part `rank` of `parts` of the
/// middle factor. `sharded` 0 means the whole dimension (divided by outer). No communication; differentiable.
at::Tensor slice_of(const at::Tensor& x, std::int64_t dim, std::int64_t outer, std::int64_t sharded, std::int64_t rank, std::int64_t parts);
/// The inverse over all ranks of the group. Not differentiable by itself (see regions.h).
at::Tensor all_gather(const at::Tensor& x, std::int64_t dim, std::int64_t outer, const Group& group, const std::string& tag);

/// Sum over the ranks, of which each keeps its part of dimension `dim`.
at::Tensor reduce_scatter(const at::Tensor& x, std::int64_t dim, const Group& group, const std::string& tag);

/// Bytes handed to c10d since the last reset, by tag; counting is always on (one map update a call).
void count_payload(const std::string& tag, std::int64_t bytes);
std::map<std::string, std::int64_t> payload_bytes();
void reset_payload_bytes();

}  // namespace shardwright::runtime
