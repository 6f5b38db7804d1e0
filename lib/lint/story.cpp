// Words and places of findings.
#include <algorithm>

#include "lint/placement.h"

namespace shardwright::lint {

using support::Severity;

support::Range Propagator::range_of(const Op& op) const { return op.site ? op.site->range : support::Range{}; }

std::string Propagator::shape_text(TensorId t, bool of_whole) {
  const Placement& p = place(t);
  std::string out = "[";
  for (std::size_t d = 0; d < p.dims.size(); ++d)
    out += (d ? ", " : "") + std::to_string(of_whole ? whole(p, d) : trace_->tensor(t).shape[d]);
  return out + "]";
}

std::string Propagator::describe(TensorId t) {
  const Placement p = place(t);
  const std::string dtype(model::short_name(trace_->tensor(t).dtype));
  if (!p.known) return dtype + " " + shape_text(t) + ": how it lies on the ranks cannot be told";
  if (p.partial >= 0) return dtype + " " + shape_text(t) + ": a partial sum, one term a rank";
  if (!any_sharded(p))
    return dtype + " " + shape_text(t) + ": whole on every rank" + (p.entered ? ", its gradient summed over the ranks" : "");
  std::string dims;
  for (std::size_t d = 0; d < p.dims.size(); ++d)
    if (sharded(p, d)) dims += (dims.empty() ? "" : ", ") + std::to_string(d);
  std::string by;
  if (p.since >= 0 && parallel_layer(trace_->op(p.since).module)) by = ", by " + layer_name(trace_->op(p.since).module);
  return dtype + " " + shape_text(t) + " of " + shape_text(t, true) + ": sharded over tensor parallel in dimension " + dims + by;
}

std::vector<support::Note> Propagator::origin(const Placement& p) {
  if (p.since < 0) return {};
  const Op& op = trace_->op(p.since);
  std::string by = parallel_layer(op.module) ? " by " + layer_name(op.module) : "";
  return {{range_of(op), "the value became sharded here" + by}};
}

std::string Propagator::layer_name(ModuleId m) const {
  if (m < 0) return "the layer";
  const auto& module = trace_->module(m);
  std::string kind = last_part(module.type);
  for (auto w = trace_->attr_writes.rbegin(); w != trace_->attr_writes.rend(); ++w)
    if (w->kind == model::AttrWrite::Child && w->value.module == m) return w->name + " (" + kind + ")";
  return kind;
}

std::string Propagator::name_of(TensorId t) const {
  for (auto w = trace_->attr_writes.rbegin(); w != trace_->attr_writes.rend(); ++w)
    if ((w->kind == model::AttrWrite::Parameter || w->kind == model::AttrWrite::Buffer) && w->value.tensor == t) return w->name;
  for (auto w = trace_->var_writes.rbegin(); w != trace_->var_writes.rend(); ++w)
    if (w->value.kind == model::Binding::Tensor && w->value.tensor == t && w->frame >= 0 && !trace_->frame(w->frame).builtin)
      return w->name;
  const auto& x = trace_->tensor(t);
  if (!x.name.empty()) return x.name;
  // What a table was read from.
  if (x.producer >= 0 && !x.from_input && !trace_->op(x.producer).inputs.empty()) return name_of(trace_->op(x.producer).inputs[0].tensor);
  return "the value";
}

/// A layer of rules/parallel (or of our runtime): a built-in class that torch does not have.
bool Propagator::parallel_layer(ModuleId m) const {
  if (m < 0) return false;
  const auto& module = trace_->module(m);
  return module.builtin && module.type.rfind("torch.", 0) != 0;
}

support::Range Propagator::argument(ModuleId m, const char* name, std::string* text) const {
  if (m < 0) return {};
  const auto& module = trace_->module(m);
  for (std::size_t i = 0; i < module.ctor_args.size() && i < module.ctor_exprs.size(); ++i)
    if (module.ctor_args[i].first == name && module.ctor_exprs[i]) {
      if (text) *text = std::string(sources_.text(module.ctor_exprs[i]->range));
      return module.ctor_exprs[i]->range;
    }
  return module.construct_call ? module.construct_call->range : support::Range{};
}

void Propagator::pair_used(const eval::LayerResultObj& pair, const eval::Site& used) {
  const eval::Site& site = used.expr ? used : pair.site;
  if (!site.expr || site.frame < 0) return;
  std::vector<support::Note> notes;
  std::optional<support::Fix> fix;
  if (pair.site.expr && pair.site.frame >= 0 && pair.site.expr->kind == program::ExprKind::Call) {
    notes.push_back({pair.site.expr->range, layer_name(pair.layer) + " returns (output, bias)"});
    const auto r = pair.site.expr->range;
    // Only where the call is the layer's own, not that of a container or a module around it.
    if (pair.own_call) fix = support::Fix{"safe", {{{r.file, r.end, r.end}, "[0]"}}};
  }
  support::Range where = site.expr->range;
  if (pair.site.expr && where.contains(pair.site.expr->range)) where = pair.site.expr->range;
  findings_.add(
      Severity::Error, "SW103", where,
      "the pair (output, bias) that " + layer_name(pair.layer) + " returns is used as a tensor; take its first element: layer(x)[0]", notes,
      fix);
}

void Propagator::noticed(const std::string& code, const std::string& text, const std::vector<TensorId>& tensors, const eval::Site& site,
                         ModuleId module) {
  if (code == "rng") {
    rng_depth_ += text == "enter" ? 1 : -1;
    return;
  }
  if (code == "dropout") {
    if (!tensors.empty()) random(tensors[0], site);
    return;
  }
  if (code == "default_group") {
    // Where the libraries' groups are at hand, the ranks may be more than one tensor-parallel group; in a run without others it is right.
    if (tensors.empty() || !site.expr || !place(tensors[0]).known || place(tensors[0]).partial < 0) return;
    if (std::none_of(trace_->modules.begin(), trace_->modules.end(), [&](const auto& m) { return parallel_layer(m.id); })) return;
    findings_.add(Severity::Info, "SW115", site.expr->range,
                  text +
                      " names no group, so all ranks take part: with data or pipeline parallelism other batches' and other stages' values "
                      "are summed too; give group=get_tensor_model_parallel_group()",
                  {});
    return;
  }
  if (code.rfind("SW", 0) != 0) return;
  support::Range where = site.expr ? site.expr->range : support::Range{};
  if (module >= 0 && trace_->module(module).construct_call) where = trace_->module(module).construct_call->range;
  findings_.add(Severity::Error, code, where, text);
}

void Propagator::report_whole_needed(const Op& op) {
  static const std::set<std::string> norms{"layer_norm", "rms_norm", "normalize", "softmax",       "log_softmax",   "cumsum",
                                           "cumprod",    "topk",     "sort",      "instance_norm", "cross_entropy", "nll_loss"};
  const std::string name = last_part(op.name);
  if (!norms.count(name) || op.inputs.empty()) return;
  const TensorId x = op.inputs[0].tensor;
  const Placement p = place(x);
  const bool statistics = name.find("norm") != std::string::npos;
  findings_.add(Severity::Error, "SW105", range_of(op),
                name + " over a sharded dimension: " + shape_text(x) + " of " + shape_text(x, true) +
                    (statistics ? "; each rank's statistics cover 1/tp of it" : "; each rank sees its own part only") +
                    ": gather first, or combine over the tensor-parallel group",
                origin(p));
}

}  // namespace shardwright::lint
