// Parameters and buffers: cut where they are made, cut in place after construction, or marked for the sum of their gradients.
#include <fmt/format.h>

#include <algorithm>

#include "python/identifiers.h"
#include "rewrite/tp_context.h"

namespace shardwright::rewrite::tp {

namespace {

/// `weight=(0, 3), bias=(0, 3)`; names that are no identifiers go through **{…}.
std::string cut_arguments(const Context& ctx, const std::vector<const model::ParamRef*>& refs) {
  std::string named, other;
  for (const auto* r : refs) {
    std::string value = ctx.layout(r->tensor).as_value();
    if (python::is_identifier(r->attr)) named += ", " + r->attr + "=" + value;
    else other += (other.empty() ? "'" : ", '") + r->attr + "': " + value;
  }
  return named + (other.empty() ? "" : ", **{" + other + "}");
}

bool numeric(const std::string& s) {
  return !s.empty() && std::all_of(s.begin(), s.end(), [](char c) { return std::isdigit(static_cast<unsigned char>(c)); });
}

}  // namespace

std::string attribute_path(const model::Trace& t, ModuleId from, ModuleId to) {
  std::vector<ModuleId> chain;
  for (ModuleId m = to; m != from; m = t.module(m).parent) {
    if (m < 0) return "";
    chain.push_back(m);
  }
  std::string path;
  for (auto it = chain.rbegin(); it != chain.rend(); ++it) {
    const auto& m = t.module(*it);
    if (numeric(m.attr)) path += "[" + m.attr + "]";
    else if (python::is_identifier(m.attr)) path += (path.empty() ? "" : ".") + m.attr;
    else path += "['" + m.attr + "']";
  }
  return path;
}

const model::AttrWrite* Layers::written(ModuleId m, const model::ParamRef& p) const {
  // A copy's parameters are other tensors than those that were written.
  const ModuleId source = ctx_.made(m).id;
  TensorId tensor = p.tensor;
  if (source != m)
    for (const auto& r : ctx_.trace.module(source).params)
      if (r.attr == p.attr) tensor = r.tensor;
  const model::AttrWrite* last = nullptr;
  for (const auto& w : ctx_.trace.attr_writes)
    if (w.owner == source && w.name == p.attr && w.value.kind == Binding::Tensor && w.value.tensor == tensor) last = &w;
  return last;
}

bool Layers::made_by_user(ModuleId m, const model::ParamRef& p) const {
  const auto* w = written(m, p);
  if (!w || w->frame < 0) return !ctx_.trace.module(m).builtin;
  // Assigned from outside to a built-in layer (tied weights): the layer's own making is what counts.
  if (ctx_.trace.module(m).builtin) return false;
  return !ctx_.trace.frame(w->frame).builtin;
}

const Expr* Layers::parameter_expr(const model::AttrWrite* w, const std::string& attr) const {
  if (!w || w->frame < 0) return nullptr;
  if (w->value_expr && ctx_.editable(w->frame, w->value_expr)) return w->value_expr;
  // self.register_buffer("mask", expr), self.register_parameter("w", expr)
  if (w->step < 0) return nullptr;
  const Stmt* s = ctx_.trace.step(w->step).stmt;
  if (!s || s->kind != StmtKind::Expression || !s->value || s->value->kind != ExprKind::Call) return nullptr;
  const Expr* call = s->value;
  const Expr* callee = call->kids[0];
  if (callee->kind != ExprKind::Attribute || (callee->text != "register_buffer" && callee->text != "register_parameter")) return nullptr;
  const Expr* name = nullptr;
  const Expr* value = nullptr;
  int position = 0;
  for (const auto& a : call->args) {
    if (a.star || a.double_star) return nullptr;
    if (a.keyword == "name" || (a.keyword.empty() && position == 0)) name = a.value;
    if (a.keyword == "tensor" || a.keyword == "param" || (a.keyword.empty() && position == 1)) value = a.value;
    if (a.keyword.empty()) ++position;
  }
  bool literal = name && name->kind == ExprKind::String && name->text == attr;
  return literal && value && ctx_.editable(w->frame, value) ? value : nullptr;
}

void Layers::emit_in_place(ModuleId id) {
  const auto& m = ctx_.trace.module(id);
  LayerPlan& p = of(id);
  std::vector<const model::ParamRef*> refs;
  for (const auto* r : carriers_[static_cast<std::size_t>(id)])
    if (!made_by_user(id, *r)) refs.push_back(r);
  if (refs.empty()) return;
  std::string arguments = cut_arguments(ctx_, refs);
  std::string why = fmt::format("{}: {}", m.fqn, reason(p));
  const auto& made = ctx_.made(id);
  if (!p.by_statement && ctx_.editable(made.construct_frame, made.construct_call)) {
    ctx_.wrap(made.construct_frame, made.construct_call, Purpose::Construct, "shard_module(", arguments + ")", {"shard_module"}, p.axis,
              why);
    return;
  }
  for (ModuleId up = m.parent; up >= 0; up = ctx_.trace.module(up).parent) {
    const auto& owner = ctx_.trace.module(up);
    if (owner.builtin || ctx_.made(up).init_frame < 0) continue;
    std::string path = attribute_path(ctx_.trace, up, id);
    ctx_.out.init_statements.push_back({up,
                                        id,
                                        "",
                                        fmt::format("shard_module(self{}{}{})", path.empty() || path[0] == '[' ? "" : ".", path, arguments),
                                        {"shard_module"},
                                        p.axis});
    return;
  }
  ctx_.refuse(p.axis, made.construct_call ? made.construct_call->range : Range{},
              fmt::format("{} is built by code that cannot be edited", m.fqn));
}

void Layers::emit_parameters(ModuleId id) {
  const auto& m = ctx_.trace.module(id);
  std::vector<const model::ParamRef*> late;
  for (const auto* r : carriers_[static_cast<std::size_t>(id)]) {
    if (m.builtin || !made_by_user(id, *r)) continue;
    const auto* w = written(id, *r);
    // Another name of a parameter that is cut where it is made (self.proto = self.head.weight) stays one.
    const bool alias = w && std::any_of(ctx_.trace.attr_writes.begin(), ctx_.trace.attr_writes.end(), [&](const auto& other) {
                         return other.kind == model::AttrWrite::Parameter && other.value.tensor == w->value.tensor &&
                             other.clock < w->clock && (other.owner != w->owner || other.name != w->name);
                       });
    if (alias) continue;
    const Expr* e = parameter_expr(w, r->attr);
    int axis = ctx_.axis_of(r->tensor);
    // Where nothing keeps parameters whole while the model is constructed, they are cut at its end: what initialises them in
    // between draws whole ones, alike on all ranks.
    if (!e || ctx_.target.in_place) {
      late.push_back(r);
      continue;
    }
    std::string why = fmt::format("{}{}{} carries {}", m.fqn, m.fqn.empty() ? "" : ".", r->attr, ctx_.axis_name(axis));
    ctx_.wrap(w->frame, e, Purpose::Construct, "shard_parameter(", ctx_.layout(r->tensor).keywords(true) + ")", {"shard_parameter"}, axis,
              why);
  }
  if (late.empty()) return;
  int axis = ctx_.axis_of(late.front()->tensor);
  if (ctx_.made(id).init_frame < 0)
    ctx_.refuse(axis, Range{}, fmt::format("{}.{} is made by code that cannot be edited", m.fqn, late.front()->attr));
  else
    ctx_.out.init_statements.push_back(
        {id, id, "", fmt::format("shard_module(self{})", cut_arguments(ctx_, late)), {"shard_module"}, axis});
}

void Layers::emit_grad_sums() {
  auto summed = [&](const model::ParamRef& r) { return !r.buffer && summed_.count(r.tensor) > 0; };
  // A parameter that no axis carries: the axis is that of the tensor that it meets.
  auto axis_met = [&](TensorId t) {
    for (const auto& u : ctx_.index.uses(t))
      for (TensorId o : ctx_.trace.op(u.op).outputs)
        if (ctx_.axis_of(o) >= 0) return ctx_.axis_of(o);
    return -1;
  };
  auto wraps_whole = [&](const model::Module& m) {
    bool any = false;
    for (const auto& r : m.params) {
      if (r.buffer || ctx_.axis_of(r.tensor) >= 0) continue;
      if (!summed(r)) return false;
      any = true;
    }
    for (const auto& [name, child] : m.children)
      for (const auto& n : ctx_.trace.modules)
        if (ctx_.index.within(n.id, child))
          for (const auto& r : n.params)
            if (!r.buffer && ctx_.axis_of(r.tensor) < 0 && !summed(r)) return false;
    const auto& made = ctx_.made(m.id);
    return any && ctx_.editable(made.construct_frame, made.construct_call);
  };
  std::set<TensorId> done;
  for (const auto& m : ctx_.trace.modules) {
    bool any = std::any_of(m.params.begin(), m.params.end(), [&](const auto& r) { return summed(r) && !done.count(r.tensor); });
    if (!any) continue;
    // What one call builds gets one text.
    bool whole = wraps_whole(m);
    for (ModuleId o : together(m.id)) whole = whole && wraps_whole(ctx_.trace.module(o));
    for (const auto& r : m.params) {
      if (!summed(r) || !done.insert(r.tensor).second) continue;
      int axis = axis_met(r.tensor);
      std::string why =
          fmt::format("{}.{} meets tensors that carry {}: each rank has a part of its gradient", m.fqn, r.attr, ctx_.axis_name(axis));
      if (whole) {
        ctx_.wrap(ctx_.made(m.id).construct_frame, ctx_.made(m.id).construct_call, Purpose::GradSum, "sum_gradients_over_tp(", ")",
                  {"sum_gradients_over_tp"}, axis,
                  fmt::format("{} meets tensors that carry {}: each rank has a part of its gradient", m.fqn, ctx_.axis_name(axis)));
        continue;
      }
      const auto* w = written(m.id, r);
      const Expr* e = !m.builtin && w && made_by_user(m.id, r) ? parameter_expr(w, r.attr) : nullptr;
      if (e) {
        ctx_.wrap(w->frame, e, Purpose::GradSum, "sum_gradients_over_tp(", ")", {"sum_gradients_over_tp"}, axis, why);
        continue;
      }
      bool placed = false;
      for (ModuleId up = m.id; up >= 0 && !placed; up = ctx_.trace.module(up).parent) {
        const auto& owner = ctx_.trace.module(up);
        if (owner.builtin || ctx_.made(up).init_frame < 0) continue;
        std::string path = attribute_path(ctx_.trace, up, m.id);
        std::string target = python::is_identifier(r.attr)
            ? fmt::format("self{}{}.{}", path.empty() || path[0] == '[' ? "" : ".", path, r.attr)
            : fmt::format("self{}{}[{}]", path.empty() || path[0] == '[' ? "" : ".", path, r.attr);
        ctx_.out.init_statements.push_back(
            {up, m.id, r.attr, fmt::format("sum_gradients_over_tp({})", target), {"sum_gradients_over_tp"}, axis});
        placed = true;
      }
      if (!placed)
        ctx_.refuse(axis, Range{},
                    fmt::format("{}.{} needs the sum of its gradients and is made by code that cannot be edited", m.fqn, r.attr));
    }
  }
}

}  // namespace shardwright::rewrite::tp
