// What a target's layers ask beyond those of shardwright.parallel (rules/targets): other names of constructor arguments, arguments
// that must be given, a configuration threaded through all constructors from the root, inputs of few dimensions, results that are
// always a tuple.
#include <fmt/format.h>

#include <algorithm>

#include "rewrite/text_layout.h"
#include "rewrite/tp_context.h"

namespace shardwright::rewrite::tp {

namespace {

/// Positional parameters of torch.nn.Linear.
const char* const kLinear[] = {"in_features", "out_features", "bias", "device", "dtype"};

std::string argument_name(const program::Argument& a, std::size_t position) {
  if (!a.keyword.empty()) return a.keyword;
  return position < std::size(kLinear) ? kLinear[position] : "";
}

std::string filled(std::string text, const std::string& config) {
  if (auto at = text.find("{config}"); at != std::string::npos) text.replace(at, 8, config);
  return text;
}

}  // namespace

// ---- the configuration ---------------------------------------------------------------------------------------------------------

bool Context::thread_config(FrameId frame, int axis, std::string& name) {
  if (auto it = config_.find(frame); it != config_.end()) {
    name = it->second;
    return !name.empty();
  }
  config_[frame] = "";  // a recursive constructor cannot be threaded
  const auto& f = trace.frame(frame);
  if (f.builtin || !f.function || f.function->name == "<lambda>") return false;
  const Function& fn = *f.function;
  const bool taken = std::find(fn.locals.begin(), fn.locals.end(), target.config.parameter) != fn.locals.end();
  name = taken ? target.config.otherwise : target.config.parameter;
  if (frame == trace.module(0).init_frame) {  // a stage's constructor has it
    config_[frame] = name;
    return true;
  }
  // The call that made this frame, in user code that can be edited, with the parameter free to be bound by it.
  if (f.parent < 0 || !f.call || f.via_partial || !editable(f.parent, f.call)) return false;
  for (const auto& p : fn.parameters)
    if (p.name == name) return false;
  // The caller hands on its own **kwargs: what is added to those arrives.
  const auto& caller = trace.frame(f.parent);
  const program::Parameter* passed = nullptr;
  for (const auto& a : f.call->args)
    if (a.double_star && a.value->kind == ExprKind::Name)
      for (const auto& p : caller.function->parameters)
        if (p.kind == program::Parameter::VarKeywords && p.name == a.value->text) passed = &p;
  std::string value;
  FrameId editing = f.parent;
  const Expr* call = f.call;
  if (passed) {
    if (caller.parent < 0 || !caller.call || caller.via_partial || !editable(caller.parent, caller.call)) return false;
    editing = caller.parent;
    call = caller.call;
  }
  std::vector<std::string> imports;
  value = config(editing, axis, imports);
  Verdict v;
  v.kind = Verdict::AppendArgument;
  v.frame = editing;
  v.range = call->range;
  v.text = name + "=" + value;
  if (!call->args.empty()) v.text = line_of_its_own(sources, call->args.back().range) + v.text;
  v.imports = imports;
  v.axis = axis;
  if (!decide(call, Purpose::Config, v)) return false;
  Verdict p;
  p.kind = Verdict::InsertAfter;
  p.frame = frame;
  p.axis = axis;
  const program::Parameter* last = nullptr;
  for (const auto& x : fn.parameters)
    if (x.kind != program::Parameter::VarKeywords) last = &x;
  if (!last) return false;
  p.range = last->range;
  const std::string lead = line_of_its_own(sources, last->range);
  p.text = "," + (lead.empty() ? " " : lead) + name + "=None";
  parameters_.push_back(p);
  config_[frame] = name;
  return true;
}

std::string Context::config(FrameId frame, int axis, std::vector<std::string>& imports) {
  std::string name;
  if (thread_config(frame, axis, name)) return name;
  imports.insert(imports.end(), target.config.elsewhere_imports.begin(), target.config.elsewhere_imports.end());
  return target.config.elsewhere;
}

// ---- constructors ----------------------------------------------------------------------------------------------------------------

bool Layers::has_argument(const Expr* call, const std::string& name) const {
  for (std::size_t i = 0; i < call->args.size(); ++i)
    if (argument_name(call->args[i], i) == name) return true;
  return false;
}

bool Layers::constructible(const LayerPlan& p) const {
  const auto& l = ctx_.target.linear;
  if (!ctx_.target.offers(p.generated_class)) return false;
  if (p.form != LayerPlan::Column && p.form != LayerPlan::Row) return true;
  if (!p.layout.segments.empty() && !l.segments) return false;
  if (l.arguments.empty()) return true;
  const auto& made = ctx_.made(p.module);
  if (made.construct_partial) return false;
  for (std::size_t i = 0; i < made.construct_call->args.size(); ++i) {
    const auto& a = made.construct_call->args[i];
    if (a.star || a.double_star || !l.arguments.count(argument_name(a, i))) return false;
  }
  return true;
}

void Layers::adapt_constructor(LayerPlan& p) {
  const auto& l = ctx_.target.linear;
  if (!p.returns_bias && !l.return_bias)
    if (auto bare = l.bare.find(p.generated_class); bare != l.bare.end()) p.generated_class = bare->second;
  if (p.by_statement) return;  // parallel_layer(…) does the rest
  const auto& made = ctx_.made(p.module);
  const Expr* call = made.construct_call;
  std::string why = p.generated_class + " names its arguments";
  for (std::size_t i = 0; i < call->args.size(); ++i) {
    const auto& a = call->args[i];
    if (a.keyword.empty()) {
      if (l.keyword_only && i >= 2)
        ctx_.wrap(made.construct_frame, a.value, Purpose::Argument, argument_name(a, i) + "=", "", {}, p.axis, why);
      continue;
    }
    auto other = l.keywords.find(a.keyword);
    if (other == l.keywords.end() || other->second == a.keyword) continue;
    Verdict v;
    v.kind = Verdict::Replace;
    v.frame = made.construct_frame;
    v.range = {a.range.file, a.range.begin, a.range.begin + static_cast<std::uint32_t>(a.keyword.size())};
    v.text = other->second;
    v.axis = p.axis;
    v.why = why;
    ctx_.decide(a.value, Purpose::Callee, v);
  }
  std::vector<std::string> imports;
  std::string config;
  for (const auto& [name, value] : p.form == LayerPlan::Column ? l.column : l.row) {
    if (has_argument(call, name)) continue;
    if (config.empty() && value.find("{config}") != std::string::npos) config = ctx_.config(made.construct_frame, p.axis, imports);
    p.arguments += (p.arguments.empty() ? "" : ", ") + name + "=" + filled(value, config);
  }
  for (const auto& i : imports) p.imports.push_back(i);
}

// ---- calls -------------------------------------------------------------------------------------------------------------------------

void Layers::adapt_calls() {
  const auto& l = ctx_.target.linear;
  if (l.max_rank == 0) return;
  struct Ranks {
    std::size_t least = 1000, most = 0;
  };
  std::map<const Expr*, Ranks> ranks;
  auto rank_of = [&](const model::ModuleCall& c) -> std::size_t {
    if (c.arguments.empty() || c.arguments[0].kind != Binding::Tensor) return 0;
    return ctx_.trace.tensor(c.arguments[0].tensor).shape.size();
  };
  for (const auto& c : ctx_.trace.calls) {
    if (c.module < 0 || !of(c.module).returns_bias) continue;
    auto& r = ranks[c.call];
    r.least = std::min(r.least, rank_of(c));
    r.most = std::max(r.most, rank_of(c));
  }
  for (const auto& c : ctx_.trace.calls) {
    if (c.module < 0 || !of(c.module).returns_bias) continue;
    const Ranks& r = ranks[c.call];
    if (r.most <= static_cast<std::size_t>(l.max_rank)) continue;
    high_rank_.insert(c.call);
    const LayerPlan& p = of(c.module);
    std::string why = fmt::format("{} takes at most {} dimensions", p.generated_class, l.max_rank);
    const Expr* x = c.call->args.size() == 1 && c.call->args[0].keyword.empty() && !c.call->args[0].star && !c.call->args[0].double_star
        ? c.call->args[0].value
        : nullptr;
    if (x && x->kind == ExprKind::Name && r.least >= static_cast<std::size_t>(l.max_rank)) {
      ctx_.wrap(c.caller, x, Purpose::Rank, "", fmt::format(".flatten(0, -{})", l.max_rank), {}, p.axis, why);
      ctx_.wrap(c.caller, c.call, Purpose::Unpack, "", fmt::format("[0].unflatten(0, {}.shape[:-{}])", x->text, l.max_rank - 1), {}, p.axis,
                why);
    } else if (!ctx_.hand_over(c.caller, c.call, l.any_rank, p.axis, why)) {
      ctx_.refuse(p.axis, c.call->range, why + ", and this call cannot be edited");
    }
  }
}

}  // namespace shardwright::rewrite::tp
