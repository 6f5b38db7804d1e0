// Regions and layer functions with their backward passes.
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "shardwright/layers.h"

namespace shardwright::runtime {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

const std::string kForward = "activation_forward";
const std::string kBackward = "activation_backward";

void keep(AutogradContext* ctx, const Group& group) { ctx->saved_data["group"] = c10::IValue::make_capsule(group); }
Group kept(AutogradContext* ctx) {
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
  static variable_list backward(AutogradContext*, variable_list grads) { return {grads[0], at::Tensor()}; }
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
    return {all_gather(grads[0], ctx->saved_data["dim"].toInt(), ctx->saved_data["outer"].toInt(), kept(ctx), kBackward), none, none,
            none, none};
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
    return {slice_of(grads[0], ctx->saved_data["dim"].toInt(), ctx->saved_data["outer"].toInt(), 0, group_rank(group),
                     group_size(group))
                .contiguous(),
            none, none, none};
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
