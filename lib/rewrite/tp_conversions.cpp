// Conversions between placements: where they can be written, which readers share one copy, and their text.
//
// A conversion is asked for at an operand or a result of an operation. Its place, in this order: the operand's expression;
// when the operation runs inside a built-in layer, the argument of the call through which the tensor came in (all readers in
// there must want the same); else the expression that produced the tensor (all its readers must want the same).
#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "rewrite/tp_context.h"
#include "sharding/infer.h"

namespace shardwright::rewrite::tp {

namespace {

const char* kCopy = "copy_to_tensor_model_parallel_region";
const char* kReduce = "reduce_from_tensor_model_parallel_region";
const char* kGather = "gather_from_tensor_model_parallel_region";

struct Place {
  FrameId frame = -1;
  const Expr* expr = nullptr;
  explicit operator bool() const { return expr != nullptr; }
};

/// Does some need of this kind cover the operand?
bool wanted(const std::vector<Need>& needs, OpId op, int operand, Conversion::Kind kind, int axis) {
  return std::any_of(needs.begin(), needs.end(), [&](const Need& n) {
    return n.c.op == op && n.c.operand == operand && !n.c.on_output && n.c.kind == kind && n.c.axis == axis;
  });
}

/// How many operands want this conversion of the tensor.
std::size_t wants(const Context& ctx, const std::vector<Need>& needs, TensorId t, const Conversion& c) {
  return static_cast<std::size_t>(std::count_if(needs.begin(), needs.end(), [&](const Need& n) {
    return n.c.kind == c.kind && n.c.axis == c.axis && !n.c.on_output &&
        ctx.trace.op(n.c.op).inputs[static_cast<std::size_t>(n.c.operand)].tensor == t;
  }));
}

/// The target of `x += y` cannot be wrapped.
bool is_target(const Index& index, const Expr* e) {
  const auto* info = index.info(e);
  if (!info || info->parent || !info->stmt) return false;
  return info->stmt->kind == StmtKind::AugAssign && !info->stmt->targets.empty() && info->stmt->targets[0] == e;
}

/// The statement when the operation is that of an augmented assignment. Its site is the right-hand side, not its result.
const Stmt* augmented(const Context& ctx, const Op& op) {
  for (const auto& i : op.inputs)
    if (i.expr && is_target(ctx.index, i.expr)) return ctx.index.info(i.expr)->stmt;
  return nullptr;
}

/// The built-in frame that the user frame of `op` called and in which `op` runs.
const model::Frame* outer_builtin(const Context& ctx, const Op& op) {
  FrameId f = ctx.index.frame_at(op.clock);
  const model::Frame* best = nullptr;
  while (f >= 0 && f != op.frame) {
    const auto& fr = ctx.trace.frame(f);
    if (fr.builtin) best = &fr;
    f = fr.parent;
  }
  return best;
}

/// Do all operations that read `t` in [begin, end] want the conversion? One whose results nobody asks a gradient of does not
/// mind a copy; a result of the model does.
bool all_readers(const Context& ctx, const std::vector<Need>& needs, TensorId t, model::Clock begin, model::Clock end,
                 const Conversion& c) {
  if (end == 0)
    for (TensorId o : model::tensors_of(ctx.trace.output))
      if (o == t) return false;
  for (const auto& u : ctx.index.uses(t)) {
    const auto& op = ctx.trace.op(u.op);
    if (op.clock < begin || (end != 0 && op.clock > end)) continue;
    bool graded = std::any_of(op.outputs.begin(), op.outputs.end(), [&](TensorId o) { return ctx.trace.tensor(o).requires_grad; });
    if (c.kind == Conversion::CopyTo && !graded) continue;
    if (!wanted(needs, u.op, u.operand, c.kind, c.axis)) return false;
  }
  return true;
}

/// Is the value of the operation's expression its result? Not when one expression records several operations and this is not the last.
bool is_result(const Context& ctx, const Op& op) {
  if (op.outputs.size() != 1 || augmented(ctx, op)) return false;
  for (const auto& u : ctx.index.uses(op.outputs[0])) {
    const Op& next = ctx.trace.op(u.op);
    if (next.site == op.site && next.frame == op.frame && !next.inputs[static_cast<std::size_t>(u.operand)].expr) return false;
  }
  return true;
}

/// Does every tensor that comes out of this expression, in any iteration, have only readers that want the conversion?
bool uniform(const Context& ctx, const std::vector<Need>& needs, const Place& p, const Conversion& c) {
  bool ok = true;
  auto check = [&](TensorId t) { ok = ok && (ctx.index.uses(t).empty() || all_readers(ctx, needs, t, 0, 0, c)); };
  for (const auto& op : ctx.trace.ops)
    if (op.site == p.expr && op.frame == p.frame && ctx.index.direct(op))
      for (TensorId t : op.outputs) check(t);
  for (const auto& call : ctx.trace.calls)
    if (call.call == p.expr && call.caller == p.frame && call.result.kind == Binding::Tensor) check(call.result.tensor);
  return ok;
}

/// The expression whose value is the tensor, as far outwards as it is passed on unchanged: the call of the module that returns it.
Place producing_place(const Context& ctx, TensorId t) {
  const auto& tensor = ctx.trace.tensor(t);
  if (tensor.producer < 0) return {};
  const Op& op = ctx.trace.op(tensor.producer);
  Place p;
  if (ctx.index.direct(op)) {
    if (is_result(ctx, op) && ctx.editable(op.frame, op.site)) p = {op.frame, op.site};
  } else if (const auto* g = outer_builtin(ctx, op)) {
    // The built-in code's last operation gives its result.
    bool last = true;
    ctx.index.ops_between(op.clock + 1, g->end, [&](const Op&) { last = false; });
    if (last && op.outputs.size() == 1 && g->call && ctx.editable(g->parent, g->call)) p = {g->parent, g->call};
  }
  for (const auto& c : ctx.trace.calls) {
    bool around = c.begin <= op.clock && (c.end == 0 || op.clock <= c.end);
    if (!around || c.result.kind != Binding::Tensor || c.result.tensor != t || !ctx.editable(c.caller, c.call)) continue;
    // Readers inside the call see the tensor before the wrap.
    bool inside = false;
    for (const auto& u : ctx.index.uses(t)) inside = inside || ctx.trace.op(u.op).clock <= c.end;
    if (inside) continue;
    bool outwards = !p || ctx.trace.frame(c.caller).begin <= ctx.trace.frame(p.frame).begin;
    if (outwards) p = {c.caller, c.call};
  }
  return p;
}

Place operand_place(const Context& ctx, const std::vector<Need>& needs, const Conversion& c) {
  const Op& op = ctx.trace.op(c.op);
  const auto& operand = op.inputs[static_cast<std::size_t>(c.operand)];
  TensorId t = operand.tensor;
  if (ctx.index.direct(op)) {
    if (operand.expr && ctx.editable(op.frame, operand.expr) && !is_target(ctx.index, operand.expr)) return {op.frame, operand.expr};
  } else if (const auto* g = outer_builtin(ctx, op)) {
    const Expr* e = ctx.index.argument_with(*g, t);
    if (!e && op.module >= 0) {
      int call = ctx.index.call_at(op.module, op.clock);
      const auto* mc = call >= 0 ? &ctx.trace.calls[static_cast<std::size_t>(call)] : nullptr;
      if (mc && mc->caller == op.frame && mc->call && mc->call->kind == ExprKind::Call) {
        std::size_t position = 0;
        for (const auto& a : mc->call->args) {
          if (a.star || a.double_star || !a.keyword.empty()) break;
          if (position < mc->arguments.size() && mc->arguments[position].kind == Binding::Tensor && mc->arguments[position].tensor == t)
            e = a.value;
          ++position;
        }
      }
    }
    if (e && ctx.editable(g->parent, e) && all_readers(ctx, needs, t, g->begin, g->end, c)) return {g->parent, e};
  }
  // Only for the single reader in the region: several are dealt with together (share_copies).
  if (wants(ctx, needs, t, c) != 1 || !all_readers(ctx, needs, t, 0, 0, c)) return {};
  Place p = producing_place(ctx, t);
  return p && uniform(ctx, needs, p, c) ? p : Place{};
}

Place output_place(const Context& ctx, const Conversion& c) {
  const Op& op = ctx.trace.op(c.op);
  if (ctx.index.direct(op)) {
    if (is_result(ctx, op) && ctx.editable(op.frame, op.site)) return {op.frame, op.site};
    return {};
  }
  TensorId t = op.outputs[static_cast<std::size_t>(c.operand)];
  for (const auto& call : ctx.trace.calls)
    if (call.begin <= op.clock && (call.end == 0 || op.clock <= call.end) && call.result.kind == Binding::Tensor &&
        call.result.tensor == t && ctx.editable(call.caller, call.call) && call.caller == op.frame)
      return {call.caller, call.call};
  const auto* g = outer_builtin(ctx, op);
  if (!g || op.outputs.size() != 1) return {};
  bool last = true;
  ctx.index.ops_between(op.clock + 1, g->end, [&](const Op&) { last = false; });
  if (last && ctx.editable(g->parent, g->call)) return {g->parent, g->call};
  return {};
}

bool begins_line(const Context& ctx, const Stmt* s) {
  const auto& text = ctx.sources.file(s->range.file).text;
  for (std::uint32_t i = s->range.begin; i > 0 && text[i - 1] != '\n'; --i)
    if (text[i - 1] != ' ' && text[i - 1] != '\t') return false;
  return text.compare(s->range.begin, 4, "elif") != 0;
}

/// The statement before which something can be written that all `uses` see, and nothing else between can change.
const Stmt* common_statement(const Context& ctx, const std::vector<const Expr*>& uses) {
  std::vector<std::vector<const Stmt*>> chains;  // outermost first
  for (const Expr* e : uses) {
    std::vector<const Stmt*> chain;
    const auto* info = ctx.index.info(e);
    for (const Stmt* s = info ? info->stmt : nullptr; s;) {
      chain.push_back(s);
      const auto* si = ctx.index.info(s);
      s = si ? si->parent : nullptr;
    }
    std::reverse(chain.begin(), chain.end());
    chains.push_back(chain);
  }
  const Function* fn = ctx.index.info(uses.front())->function;
  for (const Expr* e : uses)
    if (ctx.index.info(e)->function != fn) return nullptr;
  // Deepest block that holds a statement of every chain.
  const Stmt* best = nullptr;
  for (std::size_t depth = 0;; ++depth) {
    const std::vector<Stmt*>* block = nullptr;
    const Stmt* first = nullptr;
    bool same_block = true;
    for (const auto& c : chains) {
      if (depth >= c.size()) return best;
      const auto* b = ctx.index.info(c[depth])->block;
      if (block && b != block) same_block = false;
      block = b;
      if (!first || c[depth]->range.begin < first->range.begin) first = c[depth];
    }
    if (!same_block) return best;
    if (begins_line(ctx, first)) best = first;
    for (const auto& c : chains)
      if (c[depth] != chains.front()[depth]) return best;
  }
}

std::string fresh_name(const Function* f, const std::string& base) {
  std::string name = base + "_tp";
  while (std::find(f->locals.begin(), f->locals.end(), name) != f->locals.end()) name += "_";
  return name;
}

}  // namespace

void share_copies(Context& ctx, Layers& layers, std::vector<Need>& needs) {
  struct Member {
    Need* need;
    const Expr* expr;
    ModuleId layer;  // column layer that would copy by itself; -1
  };
  using GroupKey = std::tuple<FrameId, std::string, TensorId, int>;
  std::map<GroupKey, std::vector<Member>> groups;
  std::map<std::pair<TensorId, int>, std::vector<Member>> by_tensor;
  for (auto& n : needs) {
    if (n.done || n.c.kind != Conversion::CopyTo || n.c.on_output) continue;
    ModuleId layer = layers.column_input(n.c);
    if (layer >= 0 && layers.of(layer).by_statement) continue;  // it copies by itself
    if (layer < 0 && layers.absorbing(ctx.trace.op(n.c.op)) >= 0 &&
        layers.of(layers.absorbing(ctx.trace.op(n.c.op))).form == LayerPlan::Attention)
      continue;
    TensorId t = ctx.trace.op(n.c.op).inputs[static_cast<std::size_t>(n.c.operand)].tensor;
    Place p = operand_place(ctx, needs, n.c);
    by_tensor[{t, n.c.axis}].push_back({&n, p.expr, layer});
    if (!p || p.expr->kind != ExprKind::Name || ctx.trace.frame(p.frame).function->name == "<lambda>") continue;
    const auto* info = ctx.index.info(p.expr);
    const auto* var = ctx.index.variable(p.frame, p.expr->text, ctx.trace.op(n.c.op).clock);
    if (!info || info->function != ctx.trace.frame(p.frame).function || !var || var->value.tensor != t) continue;
    groups[{p.frame, p.expr->text, t, n.c.axis}].push_back({&n, p.expr, layer});
  }
  // A layer's calls, and those of everything built with it, are all served by shared copies or none is.
  auto settle = [&](auto& table) {
    for (bool changed = true; changed;) {
      changed = false;
      std::map<ModuleId, int> served;
      for (auto& [key, members] : table)
        for (auto& m : members)
          if (m.layer >= 0) served[m.layer]++;
      std::map<ModuleId, int> asked;
      for (auto& n : needs)
        if (ModuleId l = layers.column_input(n.c); l >= 0) asked[l]++;
      std::set<ModuleId> unfit;
      for (const auto& [l, count] : asked)
        if (served[l] != count)
          for (ModuleId o : layers.together(l)) unfit.insert(o);
      for (auto& [key, members] : table) {
        auto before = members.size();
        members.erase(std::remove_if(members.begin(), members.end(), [&](const Member& m) { return m.layer >= 0 && unfit.count(m.layer); }),
                      members.end());
        if (members.size() == 1) members.clear();
        std::set<const Expr*> distinct;
        for (auto& m : members) distinct.insert(m.expr);
        if (distinct.size() == 1 && members.front().layer >= 0) members.clear();
        changed = changed || members.size() != before;
      }
    }
  };
  // 1. Readers of one variable in one frame: x_tp = copy(x) before the first.
  for (auto& [key, members] : groups) {
    auto all = by_tensor[{std::get<2>(key), std::get<3>(key)}].size();
    std::vector<const Expr*> uses;
    for (auto& m : members) uses.push_back(m.expr);
    const Stmt* at = members.size() > 1 ? common_statement(ctx, uses) : nullptr;
    const auto& [frame, name, t, axis] = key;
    // The variable must hold the tensor from the inserted statement on.
    bool steady = at != nullptr;
    if (at) {
      model::Clock first = 0, last = 0;
      for (const auto& s : ctx.trace.steps)
        if (s.frame == frame && s.stmt == at) {
          for (auto& m : members) {
            auto clock = ctx.trace.op(m.need->c.op).clock;
            if (s.begin <= clock) first = std::max(first, s.begin), last = std::max(last, clock);
          }
        }
      for (auto& m : members) {
        const auto* var = ctx.index.variable(frame, name, first ? first : ctx.trace.op(m.need->c.op).clock);
        steady = steady && var && var->value.tensor == t;
      }
      for (int w : ctx.index.writes(frame, name)) {
        auto clock = ctx.trace.var_writes[static_cast<std::size_t>(w)].clock;
        if (clock > first && clock <= last && ctx.trace.var_writes[static_cast<std::size_t>(w)].value.tensor != t) steady = false;
      }
    }
    // Other readers elsewhere: where all want it, one copy at the tensor's making serves them together.
    bool better = false;
    if (all > members.size() && !members.empty()) {
      const Conversion& c = members.front().need->c;
      Place p = all == wants(ctx, needs, t, c) && all_readers(ctx, needs, t, 0, 0, c) ? producing_place(ctx, t) : Place{};
      better = p && uniform(ctx, needs, p, c);
    }
    if (!steady || better) members.clear();
  }
  settle(groups);
  for (auto& [key, members] : groups) {
    if (members.empty()) continue;
    const auto& [frame, name, t, axis] = key;
    std::vector<const Expr*> uses;
    for (auto& m : members) uses.push_back(m.expr);
    const Stmt* at = common_statement(ctx, uses);
    std::string fresh = fresh_name(ctx.trace.frame(frame).function, name);
    std::string why = fmt::format("{} enters the region of {}: its gradient is summed over tp once for {} readers", name,
                                  ctx.axis_name(axis), members.size());
    Verdict v;
    v.kind = Verdict::InsertBefore;
    v.frame = frame;
    v.range = at->range;
    v.text = fmt::format("{} = {}({})", fresh, kCopy, name);
    v.imports = {kCopy};
    v.axis = axis;
    v.why = why;
    if (!ctx.decide(uses.front(), Purpose::Statement, v)) continue;
    for (auto& m : members) {
      Verdict use;
      use.kind = Verdict::Replace;
      use.frame = frame;
      use.range = m.expr->range;
      use.text = fresh;
      use.axis = axis;
      use.why = why;
      ctx.decide(m.expr, Purpose::Callee, use);
      m.need->done = true;
      m.need->copy = fmt::format("{} in {}", fresh, frame);
      if (m.layer >= 0) layers.of(m.layer).shared_input = true;
    }
  }
  // 2. Several readers, all of them in the region, at different places: one copy where the tensor is made.
  for (auto& [key, members] : by_tensor) {
    members.erase(std::remove_if(members.begin(), members.end(), [](const Member& m) { return m.need->done; }), members.end());
    bool several = members.size() > 1 && members.size() == wants(ctx, needs, key.first, members.front().need->c);
    if (!several || !all_readers(ctx, needs, key.first, 0, 0, members.front().need->c) || !producing_place(ctx, key.first) ||
        !uniform(ctx, needs, producing_place(ctx, key.first), members.front().need->c))
      members.clear();
  }
  settle(by_tensor);
  for (auto& [key, members] : by_tensor) {
    if (members.empty()) continue;
    Place p = producing_place(ctx, key.first);
    if (!ctx.wrap(p.frame, p.expr, Purpose::Copy, std::string(kCopy) + "(", ")", {kCopy}, key.second,
                  fmt::format("everything that reads this is in the region of {}: one sum of its gradient for {} readers",
                              ctx.axis_name(key.second), members.size())))
      continue;
    for (auto& m : members) {
      m.need->done = true;
      m.need->copy = "made";
      if (m.layer >= 0) layers.of(m.layer).shared_input = true;
    }
  }
}

/// A conversion of the variable of `x += y`: a statement before it (operand) or after it (result). False: not such a place.
bool rebind(Context& ctx, const Op& op, const Conversion& c, const std::string& prefix, const std::string& suffix,
            std::vector<std::string> imports, std::string why) {
  const Stmt* s = augmented(ctx, op);
  if (!s || s->targets[0]->kind != ExprKind::Name || !ctx.editable(op.frame, s->targets[0])) return false;
  if (!c.on_output && op.inputs[static_cast<std::size_t>(c.operand)].expr != s->targets[0]) return false;
  if (!begins_line(ctx, s)) return false;
  const std::string& name = s->targets[0]->text;
  Verdict v;
  v.kind = c.on_output ? Verdict::InsertAfter : Verdict::InsertBefore;
  v.frame = op.frame;
  v.range = s->range;
  v.text = name + " = " + prefix + name + suffix;
  if (c.on_output) {
    auto line = ctx.sources.line_at(s->range.file, s->range.begin);
    v.text = "\n" + std::string(line.substr(0, line.find_first_not_of(" \t"))) + v.text;
  }
  v.imports = std::move(imports);
  v.axis = c.axis;
  v.why = std::move(why);
  return ctx.decide(s->targets[0], Purpose::Statement, v);
}

void emit_conversions(Context& ctx, Layers& layers, std::vector<Need>& needs) {
  auto cannot = [&](const Conversion& c, const char* what) {
    const Op& op = ctx.trace.op(c.op);
    ctx.refuse(c.axis, op.site ? op.site->range : Range{},
               fmt::format("{} {} of {} has no place in the source where it can be written", what,
                           c.on_output ? "the result" : "an operand", op.name));
  };
  for (auto& n : needs) {
    if (n.done) continue;
    const Conversion& c = n.c;
    const Op& op = ctx.trace.op(c.op);
    Place p = c.on_output ? output_place(ctx, c) : operand_place(ctx, needs, c);
    Purpose purpose = c.on_output ? Purpose::Output : Purpose::Operand;
    std::string axis = ctx.axis_name(c.axis);
    bool ok = true;
    switch (c.kind) {
      case Conversion::CopyTo:
        n.copy = fmt::format("{} in {}", static_cast<const void*>(p ? p.expr : op.site), op.frame);
        if (!p) {
          ok = rebind(ctx, op, c, std::string(kCopy) + "(", ")", {kCopy},
                      fmt::format("meets tensors that carry {}: its gradient is summed over tp", axis));
          if (!ok) cannot(c, "the sum of gradients for");
          break;
        }
        ok = ctx.wrap(p.frame, p.expr, purpose, std::string(kCopy) + "(", ")", {kCopy}, c.axis,
                      fmt::format("meets tensors that carry {}: its gradient is summed over tp", axis));
        break;
      case Conversion::ReduceFrom: {
        std::string why = fmt::format("contracts {}: partial results are added up", axis);
        if (sharding::is_lookup(op) && ctx.target.typed && !ctx.index.direct(op)) {  // the call of the table's module
          const int at = op.module < 0 ? -1 : ctx.index.call_at(op.module, op.clock);
          const auto* call = at < 0 ? nullptr : &ctx.trace.calls[static_cast<std::size_t>(at)];
          if (!call || !call->call || call->call->kind != ExprKind::Call || !ctx.editable(call->caller, call->call) ||
              !ctx.hand_over(call->caller, call->call, "vocab_parallel", c.axis, why))
            cannot(c, "the sum over the rows of the table of");
          break;
        }
        if (sharding::is_lookup(op)) {
          if (!ctx.index.direct(op) || !op.site || op.site->kind != ExprKind::Call || !ctx.editable(op.frame, op.site) ||
              !ctx.hand_over(op.frame, op.site, "vocab_parallel", c.axis, why))
            cannot(c, "the sum over the rows of the table of");
          break;
        }
        bool bias = std::any_of(op.inputs.begin(), op.inputs.end(), [](const auto& o) { return o.is_bias && o.tensor >= 0; });
        if (bias && c.on_output && !c.mean) {
          // The bias must be added after the sum.
          bool direct = ctx.index.direct(op);
          const Expr* call = direct ? op.site : (p ? p.expr : nullptr);
          FrameId frame = direct ? op.frame : p.frame;
          if (!direct && call) {
            // Only a layer that is called itself can be run without its bias.
            bool layer = std::any_of(ctx.trace.calls.begin(), ctx.trace.calls.end(),
                                     [&](const auto& mc) { return mc.module == op.module && mc.call == call && mc.caller == frame; });
            const Expr* callee = call->kids[0];
            if (!layer || (callee->kind == ExprKind::Attribute && (callee->text == "forward" || callee->text == "__call__")))
              call = nullptr;
          }
          if (!call || call->kind != ExprKind::Call || !ctx.editable(frame, call) ||
              !ctx.hand_over(frame, call, direct ? "row_parallel" : "row_parallel_module", c.axis, why + ", the bias once after that"))
            cannot(c, "the sum over tp, before the bias, of");
          break;
        }
        if (!p) {
          ok = !c.mean && rebind(ctx, op, c, std::string(kReduce) + "(", ")", {kReduce}, why);
          if (!ok) cannot(c, "the sum over tp of");
          break;
        }
        if (c.mean)
          ok = ctx.wrap(p.frame, p.expr, purpose, std::string("(") + kReduce + "(", ") / tp_size())", {kReduce, "tp_size"}, c.axis,
                        why + "; a mean over the whole axis");
        else ok = ctx.wrap(p.frame, p.expr, purpose, std::string(kReduce) + "(", ")", {kReduce}, c.axis, why);
        break;
      }
      case Conversion::Slice:
      case Conversion::Gather: {
        TensorId t = c.tensor >= 0 ? c.tensor
            : c.on_output          ? op.outputs[static_cast<std::size_t>(c.operand)]
                                   : op.inputs[static_cast<std::size_t>(c.operand)].tensor;
        bool gather = c.kind == Conversion::Gather;
        Layout l = ctx.layout(t, c.dim, c.axis);
        if (gather) l = {}, l.dim = c.dim;  // a whole dimension of the result, which is full everywhere else
        if (!l.expressible || !l.segments.empty()) {
          ctx.refuse(c.axis,
                     p             ? p.expr->range
                         : op.site ? op.site->range
                                   : Range{},
                     fmt::format("{} lies in a concatenation here, which {} cannot express", axis, gather ? "a gather" : "a slice"));
          break;
        }
        std::string f = gather ? kGather : "local_slice";
        if (!p) {
          ok = rebind(ctx, op, c, f + "(", l.as_sizes() + ")", {f}, fmt::format("this rank's part of {}", axis));
          if (!ok) cannot(c, gather ? "the gathering of" : "the local slice of");
          break;
        }
        ok = ctx.wrap(p.frame, p.expr, purpose, f + "(", l.as_sizes() + ")", {f}, c.axis,
                      gather ? fmt::format("whole again along {}", axis) : fmt::format("this rank's part of {}", axis));
        break;
      }
    }
    n.done = ok;
  }
  // The same places met again, in loops of a frame, by operations that want nothing.
  std::set<std::pair<FrameId, const Expr*>> operands, outputs;
  for (const auto& n : needs) {
    const Op& op = ctx.trace.op(n.c.op);
    if (op.site && layers.absorbing(op) < 0) (n.c.on_output ? outputs : operands).insert({op.frame, op.site});
  }
  // Calls of built-in layers: several layers may be called at one place (for layer in self.layers).
  for (const auto& call : ctx.trace.calls) {
    if (!call.call || call.call->kind != ExprKind::Call || !ctx.editable(call.caller, call.call) || call.module < 0 ||
        !ctx.trace.module(call.module).builtin)
      continue;
    std::pair<FrameId, const Expr*> site{call.caller, call.call};
    if (!operands.count(site) && !outputs.count(site)) continue;
    bool in = false, out = false;
    for (const auto& n : needs) {
      const Op& op = ctx.trace.op(n.c.op);
      if (op.clock < call.begin || (call.end != 0 && op.clock > call.end) || layers.absorbing(op) >= 0) continue;
      (n.c.on_output ? out : in) = true;
    }
    if (!in)
      for (const auto& a : call.call->args) ctx.keep(call.caller, a.value, a.value->outer, Purpose::Operand);
    if (!out) {
      ctx.keep(call.caller, call.call, call.call->outer, Purpose::Output);
      ctx.keep(call.caller, call.call, call.call->kids[0]->outer, Purpose::Callee);
    }
  }
  for (const auto& op : ctx.trace.ops) {
    if (!op.site || !ctx.index.direct(op)) continue;
    if (operands.count({op.frame, op.site})) {
      for (std::size_t i = 0; i < op.inputs.size(); ++i) {
        const Expr* e = op.inputs[i].expr;
        bool any = std::any_of(needs.begin(), needs.end(),
                               [&](const Need& n) { return n.c.op == op.id && !n.c.on_output && n.c.operand == static_cast<int>(i); });
        if (!e || any || !ctx.editable(op.frame, e)) continue;
        ctx.keep(op.frame, e, e->outer, Purpose::Operand);
        if (e->kind == ExprKind::Name) ctx.keep(op.frame, e, e->range, Purpose::Callee);
      }
    }
    if (!outputs.count({op.frame, op.site})) continue;
    bool any = std::any_of(needs.begin(), needs.end(), [&](const Need& n) { return n.c.op == op.id && n.c.on_output; });
    if (!any && is_result(ctx, op)) ctx.keep(op.frame, op.site, op.site->outer, Purpose::Output);
  }
}

}  // namespace shardwright::rewrite::tp
