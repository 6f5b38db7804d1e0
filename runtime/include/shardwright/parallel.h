// Tensor parallelism for models in C++: what code that `shardwright convert model.h:Class` wrote uses. Header-only above the runtime's
// regions (comm.h, regions.h, layers.h); the counterpart of shardwright.parallel in Python.
//
// Models are constructed with whole parameters, so that every initialisation draws what the original's does. Constructors say with
// shard(…) what a rank holds; parallelize(model) then cuts everything that was marked. With one rank nothing changes.
//
//   shardwright::init_process_group();            // RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT as torchrun sets them
//   GPT model(config);
//   shardwright::parallelize(*model);
//   …  loss.backward();  shardwright::reduce_gradients(*model);  optimizer.step();
#pragma once
#include <torch/torch.h>

#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "shardwright/layers.h"
#include "shardwright/regions.h"

namespace shardwright {

using torch::Tensor;

// ---- the group --------------------------------------------------------------------------------------------------------------------

namespace detail {

/// How a dimension is divided over the ranks: (outer, sharded, inner), or a concatenation of such segments.
struct Shard {
  std::int64_t dim = 0, outer = 1;
  std::vector<std::pair<std::int64_t, std::int64_t>> segments;  ///< (rows, outer)
  std::int64_t full = 0;                                        ///< size of the dimension on one rank
};

struct State {
  runtime::Group group;
  std::map<const void*, Shard> shards;  ///< by TensorImpl
  std::map<const void*, bool> summed;   ///< parameters whose gradients are summed over tp
  std::int64_t draws = 0;
};

inline State& state() {
  static State s;
  return s;
}

inline const void* key(const Tensor& t) { return t.unsafeGetTensorImpl(); }

}  // namespace detail

/// The tensor-parallel group; a null group is one rank.
inline void set_group(runtime::Group group) { detail::state().group = std::move(group); }
inline std::int64_t tp_size() { return runtime::group_size(detail::state().group); }
inline std::int64_t tp_rank() { return runtime::group_rank(detail::state().group); }

// ---- regions ------------------------------------------------------------------------------------------------------------------------

/// A dimension with a factor before the sharded one: {3, 0} is (3, heads, …). 0 means "the rest".
struct Factors {
  std::int64_t outer = 1, sharded = 0;
};

inline Tensor copy_to_tensor_model_parallel_region(const Tensor& x) {
  return runtime::copy_to(x, detail::state().group, "activation_backward");
}
inline Tensor reduce_from_tensor_model_parallel_region(const Tensor& x) { return runtime::reduce_from(x, detail::state().group); }
inline Tensor gather_from_tensor_model_parallel_region(const Tensor& x, std::int64_t dim, Factors f = {}) {
  return runtime::gather_from(x, dim < 0 ? dim + x.dim() : dim, f.outer, detail::state().group);
}
inline Tensor local_slice(const Tensor& x, std::int64_t dim, Factors f = {}) {
  return runtime::local_slice(x, dim < 0 ? dim + x.dim() : dim, f.outer, f.sharded, detail::state().group);
}

/// Sizes whose entry `dim` is full, with that entry divided.
inline std::vector<std::int64_t> local_sizes(torch::IntArrayRef sizes, std::int64_t dim) {
  std::vector<std::int64_t> out = sizes.vec();
  auto& n = out.at(static_cast<std::size_t>(dim));
  TORCH_CHECK(n % tp_size() == 0, "size ", n, " cannot be divided over ", tp_size(), " tensor-parallel ranks");
  n /= tp_size();
  return out;
}

/// Sizes of pieces, each divided.
inline std::vector<std::int64_t> local_pieces(torch::IntArrayRef sizes) {
  std::vector<std::int64_t> out = sizes.vec();
  for (auto& n : out) n /= tp_size();
  return out;
}

// ---- calls --------------------------------------------------------------------------------------------------------------------------

namespace detail {

template <class M>
auto& module_of(M& m) {
  if constexpr (std::is_base_of_v<torch::nn::Module, std::decay_t<M>>) return m;
  else return *m;  // a holder or a shared pointer
}

/// Spatial dimensions of a convolution: its bias lies along the channels.
template <class Impl>
std::int64_t spatial(const Impl& m, const Tensor& y) {
  if constexpr (std::is_base_of_v<torch::nn::LinearImpl, Impl>) return 0;
  else return m.weight.dim() - 2;
}

/// A layer whose contracted dimension is divided: without its bias, summed over the ranks, then the bias once.
template <class Impl, class F>
Tensor reduced(Impl& m, F&& forward) {
  if (!m.bias.defined() || tp_size() == 1) return reduce_from_tensor_model_parallel_region(forward());
  Tensor bias = m.bias;
  m.bias = Tensor();
  Tensor y;
  try {
    y = reduce_from_tensor_model_parallel_region(forward());
  } catch (...) {
    m.bias = bias;
    throw;
  }
  m.bias = bias;
  std::vector<std::int64_t> shape(static_cast<std::size_t>(spatial(m, y)) + 1, 1);
  shape[0] = -1;
  return y + bias.view(shape);
}

}  // namespace detail

/// Calls a linear layer or convolution whose contracted dimension is sharded.
template <class M, class... A>
Tensor row_parallel_module(M& module, A&&... args) {
  auto& m = detail::module_of(module);
  return detail::reduced(m, [&] { return m.forward(std::forward<A>(args)...); });
}

/// torch::linear with a sharded contracted dimension: the bias is added once.
template <class F>
Tensor row_parallel(F&& function, const Tensor& x, const Tensor& weight, const Tensor& bias = {}) {
  Tensor y = reduce_from_tensor_model_parallel_region(function(x, weight));
  return bias.defined() ? y + bias : y;
}

/// An embedding whose table's rows are divided: ids of other ranks' rows give zero, the results are summed.
template <class M>
Tensor vocab_parallel(M& module, const Tensor& ids) {
  auto& m = detail::module_of(module);
  if (tp_size() == 1) return m.forward(ids);
  return runtime::vocab_embedding(ids, m.weight, m.options.padding_idx().value_or(-1), detail::state().group);
}

/// Calls what draws random numbers for a sharded tensor on this rank's own stream.
template <class F, class... A>
auto sharded_random(F&& function, A&&... args) {
  auto call = [&] {
    if constexpr (std::is_invocable_v<F, A...>) return function(std::forward<A>(args)...);
    else return detail::module_of(function).forward(std::forward<A>(args)...);
  };
  if (tp_size() == 1) return call();
  auto generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  const Tensor before = generator.get_state();
  const auto seed = generator.current_seed();
  generator.set_current_seed(seed + 0x9E3779B9ULL * static_cast<std::uint64_t>(tp_rank() + 1) +
                             static_cast<std::uint64_t>(++detail::state().draws));
  struct Restore {
    at::Generator& g;
    const Tensor& s;
    ~Restore() { g.set_state(s); }
  } restore{generator, before};
  return call();
}

// ---- layers for containers that do not name their type -------------------------------------------------------------------------------

/// Output features divided: the input's gradient is summed over the ranks.
class ColumnParallelLinearImpl : public torch::nn::LinearImpl {
 public:
  using torch::nn::LinearImpl::LinearImpl;
  Tensor forward(const Tensor& x) { return torch::nn::LinearImpl::forward(copy_to_tensor_model_parallel_region(x)); }
};
TORCH_MODULE(ColumnParallelLinear);

/// Input features divided: results are summed, the bias is added once.
class RowParallelLinearImpl : public torch::nn::LinearImpl {
 public:
  using torch::nn::LinearImpl::LinearImpl;
  Tensor forward(const Tensor& x) {
    return detail::reduced(static_cast<torch::nn::LinearImpl&>(*this), [&] { return torch::nn::LinearImpl::forward(x); });
  }
};
TORCH_MODULE(RowParallelLinear);

#define SHARDWRIGHT_PARALLEL_CONV(N)                                                                                                 \
  class ColumnParallelConv##N##dImpl : public torch::nn::Conv##N##dImpl {                                                            \
   public:                                                                                                                           \
    using torch::nn::Conv##N##dImpl::Conv##N##dImpl;                                                                                 \
    Tensor forward(const Tensor& x) { return torch::nn::Conv##N##dImpl::forward(copy_to_tensor_model_parallel_region(x)); }          \
  };                                                                                                                                 \
  TORCH_MODULE(ColumnParallelConv##N##d);                                                                                            \
  class RowParallelConv##N##dImpl : public torch::nn::Conv##N##dImpl {                                                               \
   public:                                                                                                                           \
    using torch::nn::Conv##N##dImpl::Conv##N##dImpl;                                                                                 \
    Tensor forward(const Tensor& x) {                                                                                                \
      return detail::reduced(static_cast<torch::nn::Conv##N##dImpl&>(*this), [&] { return torch::nn::Conv##N##dImpl::forward(x); }); \
    }                                                                                                                                \
  };                                                                                                                                 \
  TORCH_MODULE(RowParallelConv##N##d)
SHARDWRIGHT_PARALLEL_CONV(1);
SHARDWRIGHT_PARALLEL_CONV(2);
SHARDWRIGHT_PARALLEL_CONV(3);
#undef SHARDWRIGHT_PARALLEL_CONV

/// Dropout on a sharded tensor: each rank draws its own mask.
class ShardedDropoutImpl : public torch::nn::DropoutImpl {
 public:
  using torch::nn::DropoutImpl::DropoutImpl;
  Tensor forward(Tensor x) {
    return is_training() ? sharded_random([&](const Tensor& y) { return torch::nn::DropoutImpl::forward(y); }, x) : x;
  }
};
TORCH_MODULE(ShardedDropout);

// ---- parameters -----------------------------------------------------------------------------------------------------------------------

/// A parameter or buffer by its dotted name below a module.
inline Tensor find_tensor(torch::nn::Module& module, const std::string& name) {
  for (auto& p : module.named_parameters())
    if (p.key() == name) return p.value();
  for (auto& b : module.named_buffers())
    if (b.key() == name) return b.value();
  TORCH_CHECK(false, "there is no parameter or buffer '", name, "' in ", module.name());
}

inline bool has_tensor(torch::nn::Module& module, const std::string& name) {
  return module.named_parameters().contains(name) || module.named_buffers().contains(name);
}

/// Says that a rank holds its slice of dimension `dim`, whose factor after `outer` is divided. What is not there (a layer without a bias)
/// is skipped.
inline void shard(torch::nn::Module& module, const std::string& name, std::int64_t dim, std::int64_t outer = 1) {
  if (!has_tensor(module, name)) return;
  Tensor t = find_tensor(module, name);
  detail::state().shards[detail::key(t)] = {dim, outer, {}, t.size(dim)};
}

/// The same for a concatenation of segments (rows, outer), each divided by itself.
inline void shard(torch::nn::Module& module, const std::string& name, std::int64_t dim,
                  std::vector<std::pair<std::int64_t, std::int64_t>> segments) {
  if (!has_tensor(module, name)) return;
  Tensor t = find_tensor(module, name);
  detail::state().shards[detail::key(t)] = {dim, 1, std::move(segments), t.size(dim)};
}

/// Says that a parameter is whole on every rank and each rank has a part of its gradient.
inline void sum_gradients_over_tp(torch::nn::Module& module, const std::string& name) {
  if (has_tensor(module, name)) detail::state().summed[detail::key(find_tensor(module, name))] = true;
}

namespace detail {

inline Tensor cut(const Tensor& full, const Shard& s) {
  const std::int64_t n = tp_size(), r = tp_rank();
  auto part = [&](const Tensor& x, std::int64_t outer) { return runtime::slice_of(x, s.dim, outer, 0, r, n); };
  if (s.segments.empty()) return part(full, s.outer).contiguous();
  std::vector<Tensor> parts;
  std::int64_t at = 0;
  for (const auto& [rows, outer] : s.segments) {
    parts.push_back(part(full.narrow(s.dim, at, rows), outer));
    at += rows;
  }
  return torch::cat(parts, s.dim).contiguous();
}

/// The inverse, over all ranks.
inline Tensor join(const Tensor& local, const Shard& s) {
  const auto& group = state().group;
  if (tp_size() == 1) return local;
  if (s.segments.empty()) return runtime::all_gather(local.contiguous(), s.dim, s.outer, group, "state");
  std::vector<Tensor> parts;
  std::int64_t at = 0;
  for (const auto& [rows, outer] : s.segments) {
    const std::int64_t here = rows / tp_size();
    parts.push_back(runtime::all_gather(local.narrow(s.dim, at, here).contiguous(), s.dim, outer, group, "state"));
    at += here;
  }
  return torch::cat(parts, s.dim);
}

/// Sizes that layers repeat in their options become local.
inline void fix_sizes(torch::nn::Module& m) {
  const auto& shards = state().shards;
  auto sharded = [&](const Tensor& t) { return t.defined() && shards.count(key(t)); };
  if (auto* n = m.as<torch::nn::GroupNormImpl>(); n && sharded(n->weight)) {
    n->options.num_groups(n->options.num_groups() / tp_size());
    n->options.num_channels(n->options.num_channels() / tp_size());
  }
  if (auto* n = m.as<torch::nn::LayerNormImpl>(); n && sharded(n->weight)) n->options.normalized_shape(n->weight.sizes().vec());
  auto conv = [&](auto* c) {
    if (c && c->options.groups() > 1 && sharded(c->weight) && shards.at(key(c->weight)).dim == 0) {
      c->options.groups(c->options.groups() / tp_size());
      c->options.in_channels(c->options.in_channels() / tp_size());
      c->options.out_channels(c->options.out_channels() / tp_size());
    }
  };
  conv(m.as<torch::nn::Conv1dImpl>());
  conv(m.as<torch::nn::Conv2dImpl>());
  conv(m.as<torch::nn::Conv3dImpl>());
}

}  // namespace detail

/// Cuts what was marked: every parameter and buffer keeps its handle and holds the rank's slice from here on.
template <class M>
void parallelize(M& model) {
  if (tp_size() == 1) return;
  torch::NoGradGuard no_grad;
  auto& root = detail::module_of(model);
  std::map<const void*, bool> done;
  auto each = [&](Tensor t) {
    auto it = detail::state().shards.find(detail::key(t));
    if (it == detail::state().shards.end() || !done.emplace(detail::key(t), true).second) return;
    TORCH_CHECK(t.size(it->second.dim) == it->second.full, "a parameter was cut twice");
    t.set_data(detail::cut(t.detach(), it->second).clone());
  };
  for (auto& p : root.parameters()) each(p);
  for (auto& b : root.buffers()) each(b);
  for (auto& m : root.modules()) detail::fix_sizes(*m);
}

/// After backward: gradients of replicated parameters that meet sharded tensors are summed over the ranks.
template <class M>
void reduce_gradients(M& model) {
  if (tp_size() == 1) return;
  for (auto& p : detail::module_of(model).parameters())
    if (detail::state().summed.count(detail::key(p)) && p.grad().defined()) {
      torch::NoGradGuard no_grad;
      p.mutable_grad() = runtime::all_reduce(p.grad(), detail::state().group, "replicated_grad");
    }
}

/// A tensor shaped like the parameter (it, its gradient), whole: gathered from the ranks.
inline Tensor full_tensor(const Tensor& parameter, const Tensor& local) {
  auto it = detail::state().shards.find(detail::key(parameter));
  return it == detail::state().shards.end() ? local : detail::join(local, it->second);
}

}  // namespace shardwright
