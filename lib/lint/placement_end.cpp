/// What only the whole run shows: parameters whose gradient nobody sums, shares without a mark, collectives for nothing.
#include <algorithm>
#include <set>

#include "lint/placement.h"

namespace shardwright::lint {

using model::Origin;
using model::Prim;
using support::Severity;

namespace {
std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }
}  // namespace

/// torch's layers start with a scale from their fan-in, which here is a share of the whole's.
void Propagator::shard_fan_in() {
  for (const auto& m : trace_->modules) {
    if (!m.builtin || !m.construct_call || (m.type != "torch.nn.Linear" && m.type.rfind("torch.nn.Conv", 0) != 0) || m.construct_frame < 0)
      continue;
    const model::Frame& f = trace_->frame(m.construct_frame);
    if (!f.function || f.builtin) continue;
    const auto* owner = f.function->owner;
    const auto text = sources_.text(owner ? owner->range : f.function->range);
    if (text.find("init.") != std::string_view::npos || text.find("init_weights") != std::string_view::npos ||
        text.find("init_(") != std::string_view::npos || text.find("reset_parameters") != std::string_view::npos ||
        text.find("_init(") != std::string_view::npos)
      continue;
    for (const auto& w : trace_->attr_writes)
      if (w.owner == m.id && w.name == "weight" && w.kind == model::AttrWrite::Parameter && w.value.tensor >= 0) {
        const Placement& p = place(w.value.tensor);
        if (p.dims.size() < 2 || !sharded(p, 1)) continue;
        findings_.add(Severity::Warning, "SW123", m.construct_call->range,
                      "torch's initialisation takes the fan-in of this rank's share (" +
                          std::to_string(trace_->tensor(w.value.tensor).shape[1]) + " of " + std::to_string(whole(p, 1)) +
                          "): the scale grows with sqrt(tp); initialise from the whole's shape, or use RowParallelLinear",
                      {});
      }
  }
}

/// A bias that a layer hands out beside its output (skip_bias_add) and that nobody adds.
void Propagator::returned(const model::Binding& result) {
  std::set<TensorId> used;
  for (TensorId t : model::tensors_of(result)) used.insert(t);
  for (const Op& op : trace_->ops)
    if (!at_rest(op))
      for (const auto& o : op.inputs) used.insert(o.tensor);
  for (const auto& call : trace_->calls) {
    if (call.module < 0 || call.end <= 0 || !parallel_layer(call.module)) continue;
    const auto& made = call.result.items;  // (output, bias)
    if (made.size() != 2 || made[1].second.kind != model::Binding::Tensor) continue;
    const TensorId bias = made[1].second.tensor;
    const auto kept = [&](const model::AttrWrite& w) { return w.value.tensor == bias && w.owner != call.module; };
    if (used.count(bias) || trace_->escaped.count(bias) || !call.call ||
        std::any_of(trace_->attr_writes.begin(), trace_->attr_writes.end(), kept))
      continue;
    findings_.add(Severity::Warning, "SW124", call.call->range,
                  layer_name(call.module) +
                      " hands its bias out beside the output (skip_bias_add), and nothing adds it: the layer computes "
                      "without a bias and the parameter gets no gradient",
                  {{argument(call.module, "skip_bias_add"), "asked for here"}});
    used.insert(bias);
  }
}

/// A column layer gathers and a row layer cuts what it gathered: two collectives for nothing.
void Propagator::needless_gathers() {
  std::vector<int> uses(trace_->tensors.size(), 0);
  for (const Op& op : trace_->ops)
    for (const auto& o : op.inputs) ++uses[index(o.tensor)];
  for (const Op& op : trace_->ops) {
    if (op.name != "shardwright.scatter" || !parallel_layer(op.module) || at_rest(op)) continue;
    TensorId t = op.inputs[0].tensor;
    if (!place(t).known) continue;
    for (int i = 0; i < 16 && trace_->tensor(t).producer >= 0 && uses[index(t)] == 1; ++i) {
      const Op& by = trace_->op(trace_->tensor(t).producer);
      if (by.name == "shardwright.gather" && parallel_layer(by.module)) {
        std::string gather, parallel;
        const auto a = argument(by.module, "gather_output", &gather), b = argument(op.module, "input_is_parallel", &parallel);
        std::optional<support::Fix> fix;
        if (gather == "True" && parallel == "False") fix = support::Fix{"review", {{a, "False"}, {b, "True"}}};
        findings_.add(Severity::Warning, "SW104", a,
                      layer_name(by.module) + " gathers its output only for " + layer_name(op.module) +
                          " to cut it again: gather_output=False and input_is_parallel=True save both collectives",
                      {{b, "cut again by this layer"}}, fix);
      }
      if (by.prim != Prim::Labelled || by.inputs.size() != 1 || by.in.empty() || by.out.empty() || by.in[0] != by.out[0]) break;
      t = by.inputs[0].tensor;
    }
  }
}

/// Several column layers of one value: an all-reduce each in backward, where one would do.
void Propagator::repeated_copies() {
  std::map<TensorId, const Op*> first;
  for (const Op& op : trace_->ops) {
    if (op.name != "shardwright.copy_to" || !parallel_layer(op.module) || at_rest(op)) continue;
    TensorId t = op.inputs[0].tensor;
    if (trace_->tensor(t).producer >= 0 && trace_->op(trace_->tensor(t).producer).name == "shardwright.column_input")
      t = trace_->op(trace_->tensor(t).producer).inputs[0].tensor;
    auto [at, fresh] = first.emplace(t, &op);
    if (fresh || at->second->module == op.module) continue;
    findings_.add(Severity::Info, "SW114", range_of(op),
                  layer_name(op.module) + " and " + layer_name(at->second->module) +
                      " each reduce the gradient of the same input; one copy_to_tensor_model_parallel_region before them and "
                      "disable_grad_reduce=True need one all-reduce",
                  {{range_of(*at->second), "the first one"}});
  }
}

/// A row layer's weight used by itself: the sum over the ranks that the layer does is missing.
void Propagator::bare_weights() {
  std::set<OpId> reduced;
  for (const auto& p : partials_) {
    const Partial* last = &p;
    for (int i = 0; i < 16 && !last->reduced && last->into >= 0; ++i) last = &partials_[index(last->into)];
    if (last->reduced) reduced.insert(p.op);
  }
  for (const auto& p : partials_) {
    if (reduced.count(p.op) || p.op < 0) continue;
    const Op& op = trace_->op(p.op);
    if (at_rest(op)) continue;
    for (const auto& o : op.inputs) {
      if (trace_->tensor(o.tensor).origin != Origin::Parameter) continue;
      if (used_outside(o.tensor, op))
        findings_.add(Severity::Error, "SW119", range_of(op),
                      "the weight of " + layer_name(owner_of(o.tensor)) +
                          " is used outside the layer, past its collective: the result is this rank's part of a sum that nobody adds up",
                      {});
    }
  }
}

/// SW108: a parameter of this rank's size that no mark says to be one: it counts as replicated, in the norm of the gradients, in
/// checkpoints and where all ranks start from one draw.
void Propagator::unmarked_shares() {
  static const std::set<std::string> marks{"tensor_model_parallel", "partition_dim", "is_tensor_parallel", "allreduce"};
  for (const auto& w : trace_->attr_writes) {
    if (w.kind != model::AttrWrite::Parameter || w.value.tensor < 0 || w.owner < 0 || trace_->module(w.owner).builtin || !w.value_expr)
      continue;
    const Placement& p = place(w.value.tensor);
    if (!p.known || !any_sharded(p)) continue;
    const auto set = marks_.find(w.value.tensor);
    if (set != marks_.end() && std::any_of(set->second.begin(), set->second.end(), [&](const auto& m) { return marks.count(m) > 0; }))
      continue;
    const auto file = w.value_expr->range.file;
    const std::string& text = sources_.file(file).text;
    if (text.find("megatron") == std::string::npos || text.find("shardwright") != std::string::npos) continue;
    const auto* cls = trace_->module(w.owner).class_def;
    if (cls && sources_.text(cls->range).find("tensor_model_parallel\"") != std::string_view::npos)
      continue;  // marked by name, on some condition
    findings_.add(Severity::Warning, "SW108", w.value_expr->range,
                  w.name +
                      " holds this rank's share, but nothing marks it: every rank starts with the same part, and the gradient norm and "
                      "checkpoints take it for replicated; set_tensor_model_parallel_attributes(self." +
                      w.name + ", True, dim, 1)",
                  {});
  }
}

void Propagator::end() {
  bare_weights();
  unmarked_shares();
  shard_fan_in();
  needless_gathers();
  repeated_copies();
  static const std::set<std::string> summed{"sequence_parallel",     "sum_gradients_over_tp", "average_gradients_across_tp_domain",
                                            "tensor_model_parallel", "no_gradient",           "partition_dim",
                                            "gradient_is_partial"};
  for (const auto& [t, op] : partial_gradient_) {
    const auto marks = marks_.find(t);
    if (marks != marks_.end() &&
        std::any_of(marks->second.begin(), marks->second.end(), [&](const auto& m) { return summed.count(m) > 0; }))
      continue;
    support::Range where;
    std::string what = "parameter";
    for (const auto& w : trace_->attr_writes)
      if (w.kind == model::AttrWrite::Parameter && w.value.tensor == t) {
        const auto& owner = trace_->module(w.owner);
        where = owner.builtin && owner.construct_call ? owner.construct_call->range : w.value_expr ? w.value_expr->range : support::Range{};
        what = owner.builtin ? last_part(owner.type) + "." + w.name : w.name;
      }
    if (!where.valid()) continue;
    findings_.add(
        Severity::Warning, "SW109", where,
        "replicated parameter " + what +
            " is used on this rank's share only: its gradient is partial and must be summed over the tensor-parallel group before the step",
        {{range_of(trace_->op(op)), "used on a sharded value here"}});
  }
}

}  // namespace shardwright::lint
