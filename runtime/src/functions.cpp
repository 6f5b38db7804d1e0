// Regions and layer functions with their backward passes.
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <limits>

#include "shardwright/layers.h"

namespace shardwright::runtime {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

const std::string kForward = "activation_forward";
const std::string kBackward = "activation_backward";

/// What a collective does is not recorded: a gradient of this gradient would lack a part, silently.
void once_only() {
  TORCH_CHECK(
      !c10::GradMode::is_enabled(),
      "a gradient that is to be differentiated again (create_graph=True) passes through a tensor-parallel region, which has a first "
      "derivative only: keep the layers that it passes whole (# shardwright: replicate)");
}

void keep(AutogradContext* ctx, const Group& group) { ctx->saved_data["group"] = c10::IValue::make_capsule(group); }
Group kept(AutogradContext* ctx) {
  once_only();
  return c10::static_intrusive_pointer_cast<c10d::ProcessGroup>(ctx->saved_data["group"].toCapsule());
}

struct CopyTo : Function<CopyTo> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const Group& group, const std::string& tag) {
    keep(ctx, group);
    ctx->saved_data["tag"] = tag;
    return x.detach();  // the same memory, and not a view for autograd: what follows may work in place, as on the original
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    if (!grads[0].defined()) return {at::Tensor(), at::Tensor(), at::Tensor()};
    return {all_reduce(grads[0], kept(ctx), ctx->saved_data["tag"].toStringRef()), at::Tensor(), at::Tensor()};
  }
};

struct Received : Function<Received> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) { return x.detach(); }
  static variable_list backward(AutogradContext*, variable_list grads) { return {grads[0]}; }
};

struct ReduceFrom : Function<ReduceFrom> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& x, const Group& group) { return all_reduce(x, group, kForward); }
  static variable_list backward(AutogradContext*, variable_list grads) {
    once_only();
    return {grads[0], at::Tensor()};
  }
};

struct ScatterTo : Function<ScatterTo> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, std::int64_t dim, std::int64_t outer, std::int64_t sharded,
                            const Group& group) {
    keep(ctx, group);
    ctx->saved_data["dim"] = dim;
    ctx->saved_data["outer"] = outer;
    return slice_of(x, dim, outer, sharded, group_rank(group), group_size(group)).clone();
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    at::Tensor none;
    if (!grads[0].defined()) return {none, none, none, none, none};
    return {all_gather(grads[0], ctx->saved_data["dim"].toInt(), ctx->saved_data["outer"].toInt(), kept(ctx), kBackward), none, none, none,
            none};
  }
};

struct GatherFrom : Function<GatherFrom> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, std::int64_t dim, std::int64_t outer, const Group& group) {
    keep(ctx, group);
    ctx->saved_data["dim"] = dim;
    ctx->saved_data["outer"] = outer;
    return all_gather(x, dim, outer, group, kForward);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    at::Tensor none;
    if (!grads[0].defined()) return {none, none, none, none};
    Group group = kept(ctx);
    return {slice_of(grads[0], ctx->saved_data["dim"].toInt(), ctx->saved_data["outer"].toInt(), 0, group_rank(group), group_size(group))
                .contiguous(),
            none, none, none};
  }
};

struct GatherSequence : Function<GatherSequence> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, std::int64_t dim, const Group& group) {
    keep(ctx, group);
    ctx->saved_data["dim"] = dim;
    return all_gather(x, dim, 1, group, kForward);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    at::Tensor none;
    if (!grads[0].defined()) return {none, none, none};
    return {reduce_scatter(grads[0], ctx->saved_data["dim"].toInt(), kept(ctx), kBackward), none, none};
  }
};

struct ReduceScatterSequence : Function<ReduceScatterSequence> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, std::int64_t dim, const Group& group) {
    keep(ctx, group);
    ctx->saved_data["dim"] = dim;
    return reduce_scatter(x, dim, group, kForward);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    at::Tensor none;
    if (!grads[0].defined()) return {none, none, none};
    return {all_gather(grads[0], ctx->saved_data["dim"].toInt(), 1, kept(ctx), kBackward), none, none};
  }
};

/// Cross entropy over logits whose last dimension is divided: four numbers a token cross (the largest logit, the sum of the exponentials,
/// the target's logit, and for label smoothing the sum of all), never the logits.
struct VocabCrossEntropy : Function<VocabCrossEntropy> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& logits, const at::Tensor& targets, std::int64_t words, double smoothing,
                            std::int64_t ignored, const Group& group) {
    const std::int64_t local = logits.size(-1), first = local * group_rank(group);
    const auto type = logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    at::Tensor x = logits.to(type, false, true);
    const std::int64_t mine = std::max<std::int64_t>(0, std::min(local, words - first));  // the rest is padding
    if (mine < local) x.narrow(-1, mine, local - mine).fill_(-std::numeric_limits<double>::infinity());
    at::Tensor largest = all_reduce_max(std::get<0>(x.max(-1)), group, kForward);
    x.sub_(largest.unsqueeze(-1));
    at::Tensor at = targets - first;
    const at::Tensor elsewhere = (at < 0).logical_or(at >= mine);
    at = at.masked_fill(elsewhere, 0);
    const at::Tensor target_logit = x.gather(-1, at.unsqueeze(-1)).squeeze(-1).masked_fill(elsewhere, 0);
    const at::Tensor spread = smoothing > 0 && mine > 0 ? x.narrow(-1, 0, mine).sum(-1) : at::zeros_like(target_logit);
    x.exp_();
    const at::Tensor sums = all_reduce(at::stack({x.sum(-1), target_logit, spread}), group, kForward);
    const at::Tensor log_sum = sums[0].log();
    const double share = smoothing / static_cast<double>(words);
    at::Tensor loss = log_sum - (1 - smoothing) * sums[1] - share * sums[2];
    const at::Tensor kept_rows = targets != ignored;
    loss = loss.masked_fill(kept_rows.logical_not(), 0);
    x.div_(sums[0].unsqueeze(-1));  // the softmax
    keep(ctx, group);
    ctx->save_for_backward({x, at, elsewhere, kept_rows});
    ctx->saved_data["smoothing"] = smoothing;
    ctx->saved_data["share"] = share;
    ctx->saved_data["mine"] = mine;
    ctx->saved_data["type"] = static_cast<std::int64_t>(logits.scalar_type());
    return loss;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    at::Tensor none;
    if (!grads[0].defined()) return {none, none, none, none, none, none};
    const auto saved = ctx->get_saved_variables();
    const double smoothing = ctx->saved_data["smoothing"].toDouble(), share = ctx->saved_data["share"].toDouble();
    at::Tensor g = saved[0].clone();
    const at::Tensor hit = saved[2].logical_not().to(g.scalar_type()).mul(-(1 - smoothing));
    g.scatter_add_(-1, saved[1].unsqueeze(-1), hit.unsqueeze(-1));
    const std::int64_t mine = ctx->saved_data["mine"].toInt();
    if (share > 0 && mine > 0) g.narrow(-1, 0, mine).sub_(share);
    g.mul_((grads[0] * saved[3]).unsqueeze(-1));
    return {g.to(static_cast<at::ScalarType>(ctx->saved_data["type"].toInt())), none, none, none, none, none};
  }
};

/// A linear layer whose input gradient is summed over the group while the weight gradient is computed.
struct ColumnLinear : Function<ColumnLinear> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                            const Group& group) {
    keep(ctx, group);
    ctx->saved_data["bias"] = bias.has_value();
    ctx->save_for_backward({x, weight});
    return at::linear(x, weight, bias);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    at::Tensor none, grad_x, grad_w, grad_b;
    if (!grads[0].defined()) return {none, none, none, none};
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1];
    const bool is_complex = weight.is_complex();
    std::optional<PendingReduce> pending;
    if (ctx->needs_input_grad(0)) {
      grad_x = at::matmul(grads[0], is_complex ? weight.conj() : weight);
      pending = start_all_reduce(grad_x, kept(ctx), kBackward, grad_x.is_contiguous() && !grad_x.is_conj());
    }
    const at::Tensor rows = grads[0].reshape({-1, grads[0].size(-1)});
    if (ctx->needs_input_grad(1)) {
      const at::Tensor input = x.reshape({-1, x.size(-1)});
      grad_w = at::mm(rows.t(), is_complex ? input.conj() : input);
    }
    if (ctx->saved_data["bias"].toBool() && ctx->needs_input_grad(2)) grad_b = rows.sum(0);
    if (pending) grad_x = pending->finish();
    return {grad_x, grad_w, grad_b, none};
  }
};

/// Under autocast the three operands are cast before the function, so that autograd records the casts.
at::Tensor autocast(const at::Tensor& t) {
  const auto device = t.device().type();
  if (!t.is_floating_point() || t.scalar_type() == at::kDouble || !at::autocast::is_autocast_enabled(device)) return t;
  return t.to(at::autocast::get_autocast_dtype(device));
}

}  // namespace

at::Tensor copy_to(const at::Tensor& x, const Group& group, const std::string& tag) {
  return group_size(group) == 1 ? x : CopyTo::apply(x, group, tag);
}

at::Tensor received(const at::Tensor& x) { return x.requires_grad() ? Received::apply(x) : x; }

at::Tensor reduce_from(const at::Tensor& x, const Group& group) { return group_size(group) == 1 ? x : ReduceFrom::apply(x, group); }

at::Tensor scatter_to(const at::Tensor& x, std::int64_t dim, std::int64_t outer, std::int64_t sharded, const Group& group) {
  return group_size(group) == 1 ? x : ScatterTo::apply(x, dim, outer, sharded, group);
}

at::Tensor gather_from(const at::Tensor& x, std::int64_t dim, std::int64_t outer, const Group& group) {
  return group_size(group) == 1 ? x : GatherFrom::apply(x, dim, outer, group);
}

at::Tensor gather_sequence(const at::Tensor& x, std::int64_t dim, const Group& group) {
  return group_size(group) == 1 ? x : GatherSequence::apply(x, dim, group);
}

at::Tensor reduce_scatter_sequence(const at::Tensor& x, std::int64_t dim, const Group& group) {
  return group_size(group) == 1 ? x : ReduceScatterSequence::apply(x, dim, group);
}

at::Tensor vocab_cross_entropy(const at::Tensor& logits, const at::Tensor& targets, std::int64_t words, double smoothing,
                               std::int64_t ignored, const Group& group) {
  TORCH_CHECK(logits.dim() == targets.dim() + 1, "cross entropy over shards: logits of shape ", logits.sizes(), " and targets of shape ",
              targets.sizes());
  const std::int64_t all = logits.size(-1) * group_size(group);
  TORCH_CHECK(words <= all, "cross entropy over shards: ", words, " words, the logits have ", all);
  return VocabCrossEntropy::apply(logits, targets, words > 0 ? words : all, smoothing, ignored, group);
}

at::Tensor local_slice(const at::Tensor& x, std::int64_t dim, std::int64_t outer, std::int64_t sharded, const Group& group) {
  return group_size(group) == 1 ? x : slice_of(x, dim, outer, sharded, group_rank(group), group_size(group));
}

at::Tensor column_linear(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias, const Group& group,
                         bool reduce_grad) {
  if (group_size(group) == 1 || !reduce_grad || !x.requires_grad() || !at::GradMode::is_enabled()) return at::linear(x, weight, bias);
  return ColumnLinear::apply(autocast(x), autocast(weight), bias ? std::optional<at::Tensor>(autocast(*bias)) : bias, group);
}

at::Tensor row_linear(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias, const Group& group) {
  if (group_size(group) == 1) return at::linear(x, weight, bias);
  at::Tensor y = reduce_from(at::linear(x, weight), group);
  return bias ? y + bias->to(y.scalar_type()) : y;
}

at::Tensor vocab_embedding(const at::Tensor& ids, const at::Tensor& weight, std::int64_t padding_idx, const Group& group) {
  if (group_size(group) == 1) return at::embedding(weight, ids, padding_idx);
  const std::int64_t rows = weight.size(0), first = rows * group_rank(group);
  at::Tensor local = ids - first;
  const at::Tensor elsewhere = (local < 0).logical_or(local >= rows);
  local = local.masked_fill(elsewhere, 0);
  const bool pads = padding_idx >= first && padding_idx < first + rows;
  at::Tensor y = at::embedding(weight, local, pads ? padding_idx - first : -1);
  return reduce_from(y.masked_fill(elsewhere.unsqueeze(-1), 0), group);
}

}  // namespace shardwright::runtime
