// Which layers become parallel layers, and what they do by themselves.
#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "rewrite/tp_context.h"
#include "rewrite/variants.h"
#include "sharding/infer.h"

namespace shardwright::rewrite::tp {

namespace {

/// A module's name as its neighbour says it, "qkv" rather than "blocks.3.attn.qkv": the same for every block, so that a plan says it once.
std::string seen_from(const std::string& fqn, const std::string& neighbour) {
  std::size_t common = 0;
  for (std::size_t i = 0; i < std::min(fqn.size(), neighbour.size()) && fqn[i] == neighbour[i]; ++i)
    if (fqn[i] == '.') common = i + 1;
  return fqn.substr(common);
}

std::string base_name(const std::string& qualified) {
  auto dot = qualified.rfind('.');
  return dot == std::string::npos ? qualified : qualified.substr(dot + 1);
}

/// "parallel_multihead_attention" → "ParallelMultiheadAttention"
std::string camel(const std::string& snake) {
  std::string r;
  bool up = true;
  for (char c : snake) {
    if (c == '_') {
      up = true;
      continue;
    }
    r += up ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    up = false;
  }
  return r;
}

std::vector<std::string> words(const std::string& s) {
  std::istringstream in(s);
  std::vector<std::string> r;
  for (std::string w; in >> w;) r.push_back(w);
  return r;
}

const Binding* ctor_arg(const model::Module& m, const std::string& name) {
  for (const auto& [n, b] : m.ctor_args)
    if (n == name) return &b;
  return nullptr;
}

/// Plain dropout draws one number an element, so a stream per rank is all that a sharded input needs.
bool is_plain_dropout(const std::string& type) { return base_name(type) == "Dropout"; }

}  // namespace

Layers::Layers(Context& c) : tests_(class_tests(c.trace)), ctx_(c), plans_(c.trace.modules.size()), carriers_(c.trace.modules.size()) {
  summed_.insert(c.result.grad_summed.begin(), c.result.grad_summed.end());
  for (const auto& m : c.trace.modules) {
    plans_[static_cast<std::size_t>(m.id)].module = m.id;
    for (const auto& p : m.params)
      if (c.axis_of(p.tensor) >= 0) carriers_[static_cast<std::size_t>(m.id)].push_back(&p);
    const auto& made = c.made(m.id);
    if (made.construct_call && c.in_model(m.id)) together_[{made.construct_frame, made.construct_call}].push_back(m.id);
  }
}

const std::vector<ModuleId>& Layers::together(ModuleId m) const {
  static const std::vector<ModuleId> none;
  if (auto it = alone_.find(m); it != alone_.end()) return it->second;
  const auto& mod = ctx_.made(m);
  auto it = together_.find({mod.construct_frame, mod.construct_call});
  return it == together_.end() ? none : it->second;
}

ModuleId Layers::absorbing(const Op& op) const {
  for (ModuleId m = op.module; m >= 0; m = ctx_.trace.module(m).parent) {
    auto form = of(m).form;
    if (form == LayerPlan::Attention || (m == op.module && form != LayerPlan::None && form != LayerPlan::InPlace))
      return ctx_.index.call_at(m, op.clock) >= 0 ? m : -1;
  }
  return -1;
}

ModuleId Layers::column_input(const Conversion& c) const {
  if (c.kind != Conversion::CopyTo || c.on_output) return -1;
  const Op& op = ctx_.trace.op(c.op);
  ModuleId m = absorbing(op);
  if (m < 0 || of(m).form != LayerPlan::Column) return -1;
  const auto& operand = op.inputs[static_cast<std::size_t>(c.operand)];
  for (const auto& p : ctx_.trace.module(m).params)
    if (p.tensor == operand.tensor) return -1;
  return m;
}

bool Layers::missing_arguments(ModuleId id, std::string& text) const {
  const model::Module& m = ctx_.made(id);
  if (!m.construct_partial) return true;
  // The callee is a partial: what it bound has to be said at the call.
  const Function* init = nullptr;
  if (m.class_def)
    for (const Stmt* s : m.class_def->body)
      if (s->function && s->function->name == "__init__") init = s->function;
  for (std::size_t i = 0; i < m.ctor_args.size(); ++i) {
    const auto& [name, value] = m.ctor_args[i];
    const Expr* e = i < m.ctor_exprs.size() ? m.ctor_exprs[i] : nullptr;
    if (e && m.construct_call->range.contains(e->range)) continue;
    std::string literal;
    switch (value.kind) {
      case Binding::None: literal = "None"; break;
      case Binding::Bool: literal = value.integer ? "True" : "False"; break;
      case Binding::Int: literal = std::to_string(value.integer); break;
      case Binding::Float: literal = fmt::format("{}", value.number); break;
      case Binding::Str: literal = "'" + value.text + "'"; break;
      default: return false;
    }
    bool is_default = false;
    if (init)
      for (const auto& p : init->parameters)
        if (p.name == name && p.default_value)
          is_default = ctx_.text(p.default_value) == literal || (value.kind == Binding::Str && p.default_value->text == value.text);
    if (!is_default) text += (text.empty() ? "" : ", ") + name + "=" + literal;
  }
  return true;
}

void Layers::choose(ModuleId id) {
  const auto& m = ctx_.trace.module(id);
  const auto& made = ctx_.made(id);
  const auto& carried = carriers_[static_cast<std::size_t>(id)];
  LayerPlan& p = of(id);
  for (ModuleId up = m.parent; up >= 0; up = ctx_.trace.module(up).parent)
    if (of(up).form == LayerPlan::Attention) return;
  if (carried.empty()) return;
  const model::ParamRef* weight = carried.front();
  for (const auto* r : carried)
    if (r->attr == "weight") weight = r;
  p.axis = ctx_.axis_of(weight->tensor);
  p.layout = ctx_.layout(weight->tensor);
  for (const auto* r : carried) {
    if (ctx_.layout(r->tensor).expressible) continue;
    ctx_.refuse(ctx_.axis_of(r->tensor), made.construct_call ? made.construct_call->range : Range{},
                fmt::format("{}.{}: the shard is a concatenation inside another factor, which has no spelling", m.fqn, r->attr));
  }
  bool by_builtin = false;  // parameters that a built-in base class makes
  for (const auto* r : carried) by_builtin = by_builtin || !made_by_user(id, *r);
  if (!by_builtin) return;
  p.form = LayerPlan::InPlace;
  if (!m.builtin || m.patched) return;                // our classes know nothing of what the source changed in PyTorch's
  if (tests_.exact.count(base_name(m.type))) return;  // `if type(m) == nn.Linear`: it has to be one
  const auto* rule = ctx_.rules.layer(m.type);
  bool editable = ctx_.editable(made.construct_frame, made.construct_call);
  std::string extra;
  if (!rule || !editable || !missing_arguments(id, extra)) return;
  // Consumed by its parameters (F.linear(x, self.qkv.weight)) rather than called: conversions are written there. A table of which
  // rows are looked up can have other readers beside: they find its rows as they are.
  const bool table = std::any_of(ctx_.index.uses(weight->tensor).begin(), ctx_.index.uses(weight->tensor).end(), [&](const Use& u) {
    const Op& op = ctx_.trace.op(u.op);
    return sharding::is_lookup(op) && p.layout.dim == 0 && ctx_.index.within(op.module, id) && ctx_.index.call_at(id, op.clock) >= 0;
  });
  for (const auto& r : m.params)
    for (const auto& use : ctx_.index.uses(r.tensor)) {
      const Op& op = ctx_.trace.op(use.op);
      bool own = ctx_.index.within(op.module, id) && ctx_.index.call_at(id, op.clock) >= 0;
      bool other_layer = !own && op.module >= 0 && ctx_.trace.module(op.module).builtin;  // tied weights: the other layer's business
      if (!own && !other_layer && !table) return;
    }
  if (ctx_.index.calls_of(id).empty()) return;
  if (!rule->replace_with.empty()) {
    if (!ctx_.target.offers(camel(rule->replace_with))) return;
    p.form = LayerPlan::Attention;
    p.generated_class = camel(rule->replace_with);
    return;
  }
  if (weight->attr != "weight") return;
  std::vector<std::string> dims;
  for (const auto& [name, factors] : rule->params)
    if (name == "weight") dims = words(factors);
  std::string letter = static_cast<std::size_t>(p.layout.dim) < dims.size() ? dims[static_cast<std::size_t>(p.layout.dim)] : "";
  std::string spelling;
  for (const auto& [name, factor] : rule->parallel)
    if (factor == letter) spelling = name;
  std::string base = base_name(m.type);
  if (const Binding* groups = ctor_arg(made, "groups"); groups && groups->integer > 1) {
    // The groups are divided: channels in and out are cut alike.
    const Binding* in = ctor_arg(made, "in_channels");
    if (p.layout.dim != 0 || !p.layout.plain() || !ctx_.target.layers.empty()) return;
    p.form = LayerPlan::Depthwise;
    p.generated_class = (in && in->integer == groups->integer ? "DepthwiseParallel" : "GroupParallel") + base;
    return;
  }
  bool conv = base.find("Conv") != std::string::npos;
  if (conv && !p.layout.segments.empty()) return;                   // only linears take segments
  bool has_class = base == "Linear" || base.rfind("Conv", 0) == 0;  // an embedding cut on its width is cut in place
  if (!has_class && spelling != "vocab") return;
  if (ctx_.target.typed && (spelling == "vocab" || !ctx_.untyped(made))) return;
  if (spelling == "column") p.form = LayerPlan::Column, p.generated_class = "ColumnParallel" + base;
  if (spelling == "row") p.form = LayerPlan::Row, p.generated_class = "RowParallel" + base;
  if (spelling == "vocab") p.form = LayerPlan::Vocab, p.generated_class = "VocabParallel" + base;
  if (!constructible(p)) demote(id);
}

void Layers::demote(ModuleId m) {
  LayerPlan& p = of(m);
  p.form = LayerPlan::InPlace;
  p.generated_class.clear();
}

std::pair<ModuleId, std::string> Layers::late_place(ModuleId m) const {
  int registered = 0;
  for (const auto& up : ctx_.trace.modules)
    for (const auto& [name, child] : up.children) registered += child == m;
  if (registered != 1) return {-1, ""};
  // A constructor that made several by copy.deepcopy speaks of all of them: the place is further up.
  std::set<ModuleId> copied;
  for (const auto& other : ctx_.trace.modules)
    if (other.cloned_from >= 0) copied.insert(ctx_.made(other.id).id);
  for (ModuleId up = ctx_.trace.module(m).parent; up >= 0; up = ctx_.trace.module(up).parent) {
    if (ctx_.trace.module(up).builtin || ctx_.made(up).init_frame < 0 || copied.count(ctx_.made(up).id)) continue;
    std::string path = attribute_path(ctx_.trace, up, m);
    return {up, path.empty() || path[0] == '[' ? "self" + path : "self." + path};
  }
  return {-1, ""};
}

std::string Layers::signature(ModuleId m) const {
  const LayerPlan& p = of(m);
  std::string s = fmt::format("{}/{}/{}/", static_cast<int>(p.form), p.generated_class, p.reduce_output);
  if (p.form != LayerPlan::None)
    for (const auto* r : carriers_[static_cast<std::size_t>(m)]) {
      Layout l = ctx_.layout(r->tensor);
      s += r->attr + ":" + l.as_value() + ";";
    }
  return s;
}

bool Layers::harmonise() {
  // Layers built by one call in one frame get one text. Where some differ, the split ones are cut after construction.
  bool changed = false;
  for (const auto& [place, modules] : together_) {
    bool alike = true;
    for (ModuleId m : modules) alike = alike && signature(m) == signature(modules.front());
    if (alike) continue;
    for (ModuleId m : modules) {
      LayerPlan& p = of(m);
      if (p.form == LayerPlan::None || p.by_statement) continue;
      // A parallel layer can take its place afterwards; anything else is cut in place.
      bool replaceable = p.form == LayerPlan::Column || p.form == LayerPlan::Row || p.form == LayerPlan::Depthwise;
      if (!replaceable || late_place(m).first < 0) demote(m);
      p.by_statement = true;
      alone_[m] = {m};
      changed = true;
    }
  }
  return changed;
}

void Layers::perform(std::vector<Need>& needs) {
  for (const auto& m : ctx_.trace.modules) choose(m.id);
  // Dropout modules: all their draws are for sharded tensors (in evaluation nothing is drawn; what they are given tells).
  for (const auto& m : ctx_.trace.modules) {
    const auto& made = ctx_.made(m.id);
    if (!m.builtin || !is_plain_dropout(m.type)) continue;
    if (!ctx_.target.typed && (!ctx_.editable(made.construct_frame, made.construct_call) || made.construct_partial)) continue;
    int yes = 0, no = 0;
    for (int c : ctx_.index.calls_of(m.id)) {
      const auto& call = ctx_.trace.calls[static_cast<std::size_t>(c)];
      if (call.arguments.empty() || call.arguments[0].kind != Binding::Tensor) continue;
      (ctx_.axis_of(call.arguments[0].tensor) >= 0 ? yes : no)++;
    }
    // A rate of 0 that is written there stays 0; one from the configuration need not.
    const Binding* p = ctor_arg(made, "p");
    const Expr* rate = made.construct_call ? argument_for(made.construct_call, "p", 0) : nullptr;
    const bool written = rate && (rate->kind == ExprKind::Int || rate->kind == ExprKind::Float);
    if (written && p && p->kind != Binding::Other && p->number == 0 && p->integer == 0) continue;
    if (yes && !no) dropouts_.insert(m.id);
  }
  for (const auto& [place, modules] : together_) {
    bool all = true, any = false;
    for (ModuleId m : modules) (dropouts_.count(m) ? any : all) = dropouts_.count(m) > 0;
    if (any && !all && !ctx_.target.typed)
      for (ModuleId m : modules) {
        if (!dropouts_.count(m)) continue;
        if (late_place(m).first >= 0) late_dropouts_.insert(m);
        else dropouts_.erase(m);  // written at the calls instead
      }
  }
  // A row layer adds up after every call, a gathering one gathers after every call: else their work is written at the calls.
  auto need_on = [&](const Op& op, Conversion::Kind kind, bool on_output) -> Need* {
    for (auto& n : needs)
      if (n.c.op == op.id && n.c.kind == kind && n.c.on_output == on_output) return &n;
    return nullptr;
  };
  auto each_op = [&](ModuleId m, auto f) {
    TensorId weight = -1;
    for (const auto* r : carriers_[static_cast<std::size_t>(m)])
      if (r->attr == "weight") weight = r->tensor;
    for (const auto& u : ctx_.index.uses(weight)) {
      const Op& op = ctx_.trace.op(u.op);
      if (ctx_.index.within(op.module, m) && ctx_.index.call_at(m, op.clock) >= 0) f(op);
    }
  };
  for (auto& p : plans_) {
    if (p.form == LayerPlan::Row) {
      int sums = 0, ops = 0, slices = 0, later = 0;
      each_op(p.module, [&](const Op& op) {
        ++ops;
        if (Need* n = need_on(op, Conversion::ReduceFrom, true); n && !n->c.mean) ++sums;
        for (TensorId out : op.outputs) later += ctx_.result.states[static_cast<std::size_t>(out)] == sharding::State::P;
        if (Need* n = need_on(op, Conversion::Slice, false); n && op.inputs[static_cast<std::size_t>(n->c.operand)].tensor == n->c.tensor)
          ++slices;
      });
      if ((sums != ops && later != ops) || (slices && slices != ops) || (later && !ctx_.target.linear.reduce_output)) demote(p.module);
      else p.input_is_parallel = slices == 0, p.reduce_output = later == 0;
    } else if (p.form == LayerPlan::Column) {
      int gathers = 0, ops = 0;
      each_op(p.module, [&](const Op& op) {
        ++ops;
        if (need_on(op, Conversion::Gather, true)) ++gathers;
      });
      p.gather_output = ops > 0 && gathers == ops && p.layout.segments.empty();
      if (p.gather_output && ctx_.target.typed) demote(p.module);
    }
  }
  while (harmonise()) {}
  for (auto& n : needs) {
    const Op& op = ctx_.trace.op(n.c.op);
    ModuleId m = absorbing(op);
    if (m < 0) continue;
    const LayerPlan& p = of(m);
    if (p.form == LayerPlan::Attention) {
      n.done = true;
      n.copy = fmt::format("call {}", ctx_.index.call_at(m, op.clock));
    }
    if (p.form == LayerPlan::Row &&
        (n.c.kind == Conversion::ReduceFrom || (n.c.kind == Conversion::Slice && !n.c.on_output && !p.input_is_parallel)))
      n.done = true;
    if (p.form == LayerPlan::Column && p.gather_output && n.c.kind == Conversion::Gather) n.done = true;
    if (p.form == LayerPlan::Vocab && n.c.kind == Conversion::ReduceFrom) n.done = true;
  }
}

void Layers::settle(std::vector<Need>& needs) {
  // Column layers copy their input themselves unless that is written elsewhere for every call of everything built with them.
  std::map<ModuleId, std::vector<Need*>> own;
  for (auto& n : needs)
    if (ModuleId m = column_input(n.c); m >= 0 && !n.done) own[m].push_back(&n);
  for (auto& p : plans_) {
    if (p.form != LayerPlan::Column || p.shared_input) continue;
    bool reads_copied = false;  // some call reads a tensor whose gradient is partial anyway (state R)
    for (ModuleId m : together(p.module))
      for (int c : ctx_.index.calls_of(m)) {
        const auto& call = ctx_.trace.calls[static_cast<std::size_t>(c)];
        ctx_.index.ops_between(call.begin, call.end, [&](const Op& op) {
          if (op.module != m || op.inputs.empty()) return;
          TensorId in = op.inputs[0].tensor;
          if (in < 0 || !ctx_.trace.tensor(in).requires_grad) return;
          bool needed = std::any_of(needs.begin(), needs.end(),
                                    [&](const Need& n) { return n.c.op == op.id && n.c.kind == Conversion::CopyTo && n.c.operand == 0; });
          if (!needed) reads_copied = true;
        });
      }
    if (reads_copied) p.shared_input = true;  // the needs that remain are written at the calls
  }
  for (const auto& [place, modules] : together_) {
    bool any = std::any_of(modules.begin(), modules.end(),
                           [&](ModuleId m) { return of(m).form == LayerPlan::Column && of(m).shared_input && !of(m).by_statement; });
    if (any)
      for (ModuleId m : modules) of(m).shared_input = true;
  }
  for (auto& [m, list] : own)
    if (!of(m).shared_input)
      for (Need* n : list) {
        n->done = true;
        n->copy = fmt::format("call {}", ctx_.index.call_at(m, ctx_.trace.op(n->c.op).clock));
      }
}

bool Layers::called_directly(const model::ModuleCall& call) const {
  if (!call.call || call.call->kind != ExprKind::Call || !ctx_.editable(call.caller, call.call)) return false;
  const auto& frame = ctx_.trace.frame(call.caller);
  const auto& module = ctx_.trace.module(call.module);
  const Expr* callee = call.call->kids[0];
  if (callee->kind == ExprKind::Attribute && (callee->text == "forward" || callee->text == "__call__")) callee = callee->kids[0];
  if (callee->kind == ExprKind::Name) {
    const auto* w = ctx_.index.variable(call.caller, callee->text, call.begin);
    return w && w->value.kind == Binding::Module && w->value.module == call.module;
  }
  if (callee->kind == ExprKind::Attribute) {
    if (callee->text == module.attr) return true;
    for (const auto& w : ctx_.trace.attr_writes)
      if (w.name == callee->text && w.value.kind == Binding::Module && w.value.module == call.module) return true;
    return false;
  }
  if (callee->kind == ExprKind::Subscript) {
    // self.layers[i](x): the container's children are called, nothing else can be meant.
    return frame.function != nullptr;
  }
  return callee->kind == ExprKind::Call && callee->kids[0]->kind == ExprKind::Name && callee->kids[0]->text == "getattr";
}

void Layers::decide_unpacking() {
  std::map<std::pair<FrameId, const Expr*>, std::set<ModuleId>> places;
  for (auto& p : plans_)
    p.returns_bias = !ctx_.target.typed && !p.by_statement &&
        (p.form == LayerPlan::Column || p.form == LayerPlan::Row || p.form == LayerPlan::Depthwise);
  for (const auto& c : ctx_.trace.calls) {
    if (c.module < 0) continue;
    if (of(c.module).returns_bias && !called_directly(c)) of(c.module).returns_bias = false;
    if (c.call) places[{c.caller, c.call}].insert(c.module);
  }
  for (bool changed = true; changed;) {
    changed = false;
    auto lower = [&](const auto& modules) {
      bool all = true;
      for (ModuleId m : modules) all = all && of(m).returns_bias;
      if (all) return;
      for (ModuleId m : modules) {
        changed = changed || of(m).returns_bias;
        of(m).returns_bias = false;
      }
    };
    for (const auto& [place, modules] : places) lower(modules);
    for (const auto& [place, modules] : together_) lower(modules);
  }
  adapt_calls();
  for (const auto& c : ctx_.trace.calls) {
    if (c.module < 0 || !of(c.module).returns_bias) continue;
    if (high_rank_.count(c.call)) continue;  // adapt_calls
    Verdict v;
    v.kind = Verdict::Wrap;
    v.frame = c.caller;
    v.range = c.call->range;
    v.suffix = "[0]";
    v.axis = of(c.module).axis;
    v.why = of(c.module).generated_class + " returns (output, bias)";
    ctx_.decide(c.call, Purpose::Unpack, v);
  }
}

std::string Layers::appended(const LayerPlan& p) const {
  std::string s;
  if (ctx_.target.typed) return s;
  auto add = [&](const std::string& a) { s += (s.empty() ? "" : ", ") + a; };
  if (!p.by_statement) missing_arguments(p.module, s);
  if (!p.arguments.empty()) add(p.arguments);
  if (p.form == LayerPlan::Attention) return s;
  if (p.form == LayerPlan::Column) add(p.gather_output ? "gather_output=True" : "gather_output=False");
  if (p.form == LayerPlan::Row) add(p.input_is_parallel ? "input_is_parallel=True" : "input_is_parallel=False");
  if (p.form == LayerPlan::Row && !p.reduce_output) add("reduce_output=False");
  if (!p.layout.segments.empty()) add("segments=" + p.layout.segment_list());
  else if (p.layout.outer != 1)
    add(fmt::format("{}={}", p.generated_class.find("Conv") != std::string::npos ? "shard_stride" : "stride", p.layout.outer));
  if (p.form == LayerPlan::Column && p.shared_input) add("disable_grad_reduce=True");
  if (!p.returns_bias && ctx_.target.linear.return_bias &&
      (p.form == LayerPlan::Column || p.form == LayerPlan::Row || p.form == LayerPlan::Depthwise))
    add("return_bias=False");
  return s;
}

void Layers::emit_constructor(const LayerPlan& p) {
  const auto& m = ctx_.trace.module(p.module);
  const auto& made = ctx_.made(p.module);
  const Expr* call = made.construct_call;
  std::string why = fmt::format("{}: {}", m.fqn, reason(p));
  if (ctx_.target.typed && p.by_statement)
    return ctx_.refuse(p.axis, call ? call->range : Range{}, m.fqn + " is built together with layers that need another class");
  if (ctx_.target.typed && p.form == LayerPlan::Column && p.shared_input) return;  // on slices, the plain layer does it
  if (p.by_statement) {
    auto [owner, path] = late_place(p.module);
    std::string arguments = appended(p);
    ctx_.out.init_statements.push_back(
        {owner,
         p.module,
         "",
         fmt::format("{0} = parallel_layer({0}, {1}{2}{3})", path, p.generated_class, arguments.empty() ? "" : ", ", arguments),
         {"parallel_layer", p.generated_class},
         p.axis});
    return;
  }
  Verdict callee;
  callee.kind = Verdict::Replace;
  callee.frame = made.construct_frame;
  callee.range = call->kids[0]->outer;
  callee.text = p.generated_class;
  callee.imports = p.imports;
  callee.imports.push_back(p.generated_class);
  callee.axis = p.axis;
  callee.why = why;
  if (!ctx_.decide(call, Purpose::Callee, callee)) return;
  std::string arguments = appended(p);
  if (arguments.empty()) return;
  Verdict v;
  v.kind = Verdict::AppendArgument;
  v.frame = made.construct_frame;
  v.range = call->range;
  v.text = arguments;
  v.axis = p.axis;
  v.why = why;
  ctx_.decide(call, Purpose::Argument, v);
}

void Layers::emit(const std::vector<Need>& needs) {
  decide_unpacking();
  for (auto& p : plans_) {
    if (p.form == LayerPlan::None) continue;
    if (p.form == LayerPlan::Column || p.form == LayerPlan::Row) adapt_constructor(p);
    if (p.form == LayerPlan::InPlace && ctx_.target.typed) continue;
    if (p.form == LayerPlan::InPlace) emit_in_place(p.module);
    else emit_constructor(p);
  }
  if (!ctx_.target.typed)
    for (const auto& m : ctx_.trace.modules) emit_parameters(m.id);
  for (ModuleId d : dropouts_) {
    const auto& m = ctx_.trace.module(d);
    if (ctx_.target.typed && !ctx_.untyped(ctx_.made(d))) {
      sharded_dropout_calls(d);
      continue;
    }
    const auto& made = ctx_.made(d);
    Verdict v;
    v.kind = Verdict::Replace;
    v.frame = made.construct_frame;
    v.range = made.construct_call->kids[0]->outer;
    v.text = "ShardedDropout";
    v.imports = {"ShardedDropout"};
    for (int c : ctx_.index.calls_of(d)) v.axis = ctx_.axis_of(ctx_.trace.calls[static_cast<std::size_t>(c)].arguments[0].tensor);
    v.why = m.fqn + ": each rank draws for its own slice";
    if (late_dropouts_.count(d)) {
      auto [owner, path] = late_place(d);
      ctx_.out.init_statements.push_back(
          {owner, d, "", fmt::format("{0} = parallel_layer({0}, ShardedDropout)", path), {"parallel_layer", "ShardedDropout"}, v.axis});
      continue;
    }
    ctx_.decide(made.construct_call, Purpose::Callee, v);
  }
  // Draws that no ShardedDropout makes: the call is handed to sharded_random.
  for (OpId o : ctx_.result.sharded_random) {
    const Op& op = ctx_.trace.op(o);
    if (dropouts_.count(op.module) || absorbing(op) >= 0) continue;
    // Drawn whole, alike on all ranks, and sliced afterwards: the original's numbers.
    if (std::any_of(needs.begin(), needs.end(),
                    [&](const Need& n) { return n.c.op == o && n.c.kind == Conversion::Slice && n.c.on_output; }))
      continue;
    int axis = op.outputs.empty() ? -1 : ctx_.axis_of(op.outputs[0]);
    // Inside a built-in layer: only when the call is that layer's, else other draws would change with it.
    bool own = ctx_.index.direct(op);
    if (int c = own ? -1 : ctx_.index.call_at(op.module, op.clock); c >= 0) {
      const auto& call = ctx_.trace.calls[static_cast<std::size_t>(c)];
      own = call.caller == op.frame && call.call == op.site;
    }
    bool ok = own && op.site && op.site->kind == ExprKind::Call && ctx_.editable(op.frame, op.site) &&
        ctx_.hand_over(op.frame, op.site, "sharded_random", axis, "random numbers for a sharded tensor: a stream per rank");
    if (!ok)
      ctx_.refuse(axis, op.site ? op.site->range : Range{}, "random numbers for a sharded tensor are drawn where no call can be edited");
  }
  if (!ctx_.target.typed) emit_grad_sums();
  emit_roles();
}

void Layers::sharded_dropout_calls(ModuleId d) {
  for (int c : ctx_.index.calls_of(d)) {
    const auto& call = ctx_.trace.calls[static_cast<std::size_t>(c)];
    const int axis = call.arguments.empty() ? -1 : ctx_.axis_of(call.arguments[0].tensor);
    const bool ok = call.call && call.call->kind == ExprKind::Call && ctx_.editable(call.caller, call.call) &&
        ctx_.hand_over(call.caller, call.call, "sharded_random", axis, ctx_.trace.module(d).fqn + ": each rank draws for its own slice");
    if (!ok)
      ctx_.refuse(axis, call.call ? call.call->range : Range{}, "a dropout on a sharded tensor is called where nothing can be written");
  }
}

std::string Layers::reason(const LayerPlan& p) const {
  const auto& axis = ctx_.result.axes[static_cast<std::size_t>(p.axis)];
  std::string split = p.layout.segments.empty() ? fmt::format("({}, {}*, {})", p.layout.outer, p.layout.axis, p.layout.inner)
                                                : "segments " + p.layout.segment_list();
  switch (p.form) {
    case LayerPlan::Column:
      return fmt::format("output {} split over tp; {}{}", split,
                         p.gather_output ? "gathered after the layer" : "the slices stay local (gather_output=False)",
                         p.shared_input ? "; its input is copied to the region once for all readers" : "");
    case LayerPlan::Row: {
      // input_is_parallel: what state the input is in on its last dimension (design/semantics.md §3).
      std::string from;
      for (int c : ctx_.index.calls_of(p.module)) {
        const auto& call = ctx_.trace.calls[static_cast<std::size_t>(c)];
        if (call.arguments.empty() || call.arguments[0].kind != Binding::Tensor) continue;
        TensorId t = call.arguments[0].tensor;
        for (int hops = 0; hops < 64 && t >= 0 && from.empty(); ++hops) {
          OpId producer = ctx_.trace.tensor(t).producer;
          if (producer < 0) break;
          const Op& op = ctx_.trace.op(producer);
          if (op.module >= 0 && of(op.module).form == LayerPlan::Column)
            from = seen_from(ctx_.trace.module(op.module).fqn, ctx_.trace.module(p.module).fqn);
          t = -1;
          for (const auto& in : op.inputs)
            if (ctx_.axis_of(in.tensor) == p.axis && ctx_.trace.tensor(in.tensor).origin == model::Origin::Result) {
              t = in.tensor;
              break;
            }
        }
        break;
      }
      return fmt::format("input {} split over tp, outputs added up{}; {}", split, p.reduce_output ? "" : " where they meet another layer's",
                         p.input_is_parallel ? fmt::format("its input is sharded on the last dimension already{}: input_is_parallel=True",
                                                           from.empty() ? "" : " (from " + from + ")")
                                             : "its input is whole: input_is_parallel=False");
    }
    case LayerPlan::Depthwise: return fmt::format("one filter a channel: channels {} split with its neighbours", split);
    case LayerPlan::Vocab: return "rows of the table split over tp, results added up";
    case LayerPlan::Attention: return fmt::format("{} heads split over tp inside", axis.size);
    default: return fmt::format("parameters {} cut in place, conversions written where they are used", split);
  }
}

void Layers::emit_roles() {
  std::set<ModuleId> have;
  for (const auto& p : plans_) {
    if (carriers_[static_cast<std::size_t>(p.module)].empty()) continue;
    bool below_attention = false;
    for (ModuleId up = ctx_.trace.module(p.module).parent; up >= 0; up = ctx_.trace.module(up).parent)
      below_attention = below_attention || of(up).form == LayerPlan::Attention;
    static const char* names[] = {"sharded", "column", "row", "sharded", "vocabulary", "sharded", "sharded"};
    std::string role = names[p.form];
    if (p.form == LayerPlan::InPlace) {  // told by which side of the weight is cut
      const auto* rule = ctx_.rules.layer(ctx_.trace.module(p.module).type);
      if (rule)
        for (const auto& [name, factors] : rule->params)
          if (name == "weight")
            for (const auto& [spelling, letter] : rule->parallel) {
              auto w = words(factors);
              if (static_cast<std::size_t>(p.layout.dim) < w.size() && w[static_cast<std::size_t>(p.layout.dim)] == letter &&
                  (spelling == "column" || spelling == "row"))
                role = spelling;
            }
    }
    LayerPlan shown = p;
    if (shown.axis < 0) shown.axis = ctx_.axis_of(carriers_[static_cast<std::size_t>(p.module)].front()->tensor);
    ctx_.out.roles.push_back(
        {p.module, below_attention ? "row" : role, p.generated_class, below_attention ? "part of the attention layer" : reason(shown)});
    have.insert(p.module);
  }
  for (const auto& m : ctx_.trace.modules) {
    std::string names;
    for (const auto& r : m.params)
      if (!r.buffer && summed_.count(r.tensor)) names += (names.empty() ? "" : ", ") + r.attr;
    if (!names.empty() && !have.count(m.id))
      ctx_.out.roles.push_back(
          {m.id, "replicated, gradient summed", "", names + ": meets sharded tensors, so each rank has a part of its gradient"});
  }
}

}  // namespace shardwright::rewrite::tp
