#include "shardwright/comm.h"

#include <mutex>

namespace shardwright::runtime {
namespace {

std::mutex counter_mutex;
std::map<std::string, std::int64_t>& counters() {
  static std::map<std::string, std::int64_t> map;
  return map;
}

/// What c10d backends take: contiguous, complex as real, bool as uint8.
at::Tensor wire_view(const at::Tensor& x) {
  at::Tensor t = x.is_complex() ? at::view_as_real(x.resolve_conj()) : x;
  if (t.scalar_type() == at::kBool) t = t.to(at::kByte);
  return t.contiguous();
}

at::Tensor from_wire(const at::Tensor& t, const at::Tensor& like) {
  if (like.is_complex()) return at::view_as_complex(t);
  return like.scalar_type() == at::kBool ? t.to(at::kBool) : t;
}

PendingReduce start(const at::Tensor& x, const Group& group, const std::string& tag, bool in_place, c10d::ReduceOp op) {
  PendingReduce pending;
  at::Tensor buffer = wire_view(x);
  if (!in_place && buffer.is_alias_of(x)) buffer = buffer.clone();
  pending.buffer = buffer;
  pending.result = from_wire(buffer, x);
  count_payload(tag, static_cast<std::int64_t>(buffer.nbytes()));
  c10d::AllreduceOptions options;
  options.reduceOp = std::move(op);
  std::vector<at::Tensor> tensors{buffer};
  pending.work = group->allreduce(tensors, options);
  return pending;
}

}  // namespace

int group_size(const Group& group) { return group ? group->getSize() : 1; }
int group_rank(const Group& group) { return group ? group->getRank() : 0; }

at::Tensor PendingReduce::finish() {
  if (work) work->wait();
  return result;
}

PendingReduce start_all_reduce(const at::Tensor& x, const Group& group, const std::string& tag, bool in_place) {
  return start(x, group, tag, in_place, c10d::ReduceOp::SUM);
}

at::Tensor all_reduce(const at::Tensor& x, const Group& group, const std::string& tag) {
  if (group_size(group) == 1) return x;
  return start(x, group, tag, false, c10d::ReduceOp::SUM).finish();
}

at::Tensor all_reduce_max(const at::Tensor& x, const Group& group, const std::string& tag) {
  if (group_size(group) == 1) return x;
  return start(x, group, tag, false, c10d::ReduceOp::MAX).finish();
}

at::Tensor slice_of(const at::Tensor& x, std::int64_t dim, std::int64_t outer, std::int64_t sharded, std::int64_t rank,
                    std::int64_t parts) {
  dim = at::maybe_wrap_dim(dim, x.dim());
  const std::int64_t size = x.size(dim);
  if (sharded == 0 && outer > 0) sharded = size / outer;
  TORCH_CHECK(outer > 0 && sharded > 0 && size % (outer * sharded) == 0, "dimension ", dim, " of size ", size, " is no product of (", outer,
              ", ", sharded, ", …): shape ", x.sizes());
  TORCH_CHECK(sharded % parts == 0, "dimension ", dim, " of shape ", x.sizes(), ": its factor ", sharded, " cannot be divided over ", parts,
              " tensor-parallel ranks");
  if (outer == 1) return x.narrow(dim, rank * (size / parts), size / parts);
  const std::int64_t piece = size / outer / parts;
  auto cut = x.unflatten(dim, {outer, parts, piece}).select(dim + 1, rank);
  return cut.flatten(dim, dim + 1);
}

at::Tensor all_gather(const at::Tensor& x, std::int64_t dim, std::int64_t outer, const Group& group, const std::string& tag) {
  const int parts = group_size(group);
  if (parts == 1) return x;
  dim = at::maybe_wrap_dim(dim, x.dim());
  TORCH_CHECK(outer > 0 && x.size(dim) % outer == 0, "gather: local dimension ", dim, " of shape ", x.sizes(),
              " is not divisible by the outer factor ", outer);
  at::Tensor mine = wire_view(x);
  std::vector<std::vector<at::Tensor>> received(1);
  for (int i = 0; i < parts; ++i) received[0].push_back(at::empty_like(mine));
  std::vector<at::Tensor> sent{mine};
  count_payload(tag, static_cast<std::int64_t>(mine.nbytes()));
  group->allgather(received, sent)->wait();
  std::vector<at::Tensor> pieces;
  for (auto& piece : received[0]) {
    at::Tensor t = from_wire(piece, x);
    pieces.push_back(outer == 1 ? t : t.unflatten(dim, {outer, x.size(dim) / outer}));
  }
  at::Tensor full = at::cat(pieces, outer == 1 ? dim : dim + 1);
  return outer == 1 ? full : full.flatten(dim, dim + 1);
}

at::Tensor reduce_scatter(const at::Tensor& x, std::int64_t dim, const Group& group, const std::string& tag) {
  const int parts = group_size(group);
  if (parts == 1) return x;
  dim = at::maybe_wrap_dim(dim, x.dim());
  TORCH_CHECK(x.size(dim) % parts == 0, "dimension ", dim, " of shape ", x.sizes(), " cannot be divided over ", parts,
              " tensor-parallel ranks");
  // c10d divides the first dimension.
  at::Tensor whole = wire_view(x.movedim(dim, 0));
  std::vector<std::int64_t> shape = whole.sizes().vec();
  shape[0] /= parts;
  at::Tensor mine = at::empty(shape, whole.options());
  count_payload(tag, static_cast<std::int64_t>(whole.nbytes()));
  group->_reduce_scatter_base(mine, whole, c10d::ReduceScatterOptions())->wait();
  return from_wire(mine, x).movedim(0, dim).contiguous();
}

void count_payload(const std::string& tag, std::int64_t bytes) {
  std::lock_guard<std::mutex> lock(counter_mutex);
  counters()[tag] += bytes;
}

std::map<std::string, std::int64_t> payload_bytes() {
  std::lock_guard<std::mutex> lock(counter_mutex);
  return counters();
}

void reset_payload_bytes() {
  std::lock_guard<std::mutex> lock(counter_mutex);
  counters().clear();
}

}  // namespace shardwright::runtime
