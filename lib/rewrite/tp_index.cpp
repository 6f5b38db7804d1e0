#include "rewrite/tp_index.h"

#include <algorithm>

namespace shardwright::rewrite::tp {

namespace {
template <class V>
const V& empty() {
  static const V v;
  return v;
}
}  // namespace

Index::Index(const model::Trace& t, const support::SourceManager& s)
    : trace(t), sources(s), uses_(t.tensors.size()), calls_of_(t.modules.size()) {
  for (const auto& f : trace.frames) {
    by_begin_.push_back(f.id);
    if (!f.function) continue;
    frames_of_[f.function].push_back(f.id);
    if (f.function->module && seen_.insert(f.function->module).second) walk_block(f.function->module->body, nullptr, nullptr);
    if (seen_.insert(f.function).second) walk_function(f.function, nullptr, nullptr);
  }
  std::stable_sort(by_begin_.begin(), by_begin_.end(), [&](FrameId a, FrameId b) { return trace.frame(a).begin < trace.frame(b).begin; });
  for (const auto& st : trace.steps) executed_.emplace(st.frame, st.stmt);
  for (const auto& op : trace.ops) {
    by_clock_.push_back(op.id);
    if (op.clock < trace.forward_begin) continue;  // initialisation of parameters
    for (std::size_t i = 0; i < op.inputs.size(); ++i)
      if (op.inputs[i].tensor >= 0) uses_[static_cast<std::size_t>(op.inputs[i].tensor)].push_back({op.id, static_cast<int>(i)});
  }
  std::stable_sort(by_clock_.begin(), by_clock_.end(), [&](OpId a, OpId b) { return trace.op(a).clock < trace.op(b).clock; });
  for (std::size_t i = 0; i < trace.calls.size(); ++i)
    if (trace.calls[i].module >= 0) calls_of_[static_cast<std::size_t>(trace.calls[i].module)].push_back(static_cast<int>(i));
  for (std::size_t i = 0; i < trace.var_writes.size(); ++i)
    writes_[{trace.var_writes[i].frame, trace.var_writes[i].name}].push_back(static_cast<int>(i));
}

void Index::walk_block(const std::vector<Stmt*>& block, const Stmt* parent, const Function* f) {
  for (const Stmt* s : block) walk(s, parent, &block, f);
}

void Index::walk_function(const Function* fn, const Stmt* s, const Function* outer) {
  if (!fn) return;
  for (const Expr* d : fn->decorators) walk(d, nullptr, s, outer);
  for (const auto& p : fn->parameters) {
    walk(p.annotation, nullptr, s, outer);
    walk(p.default_value, nullptr, s, outer);
  }
  seen_.insert(fn);
  walk_block(fn->body, nullptr, fn);
}

void Index::walk(const Stmt* s, const Stmt* parent, const std::vector<Stmt*>* block, const Function* f) {
  if (!s) return;
  stmts_[s] = {parent, block, f};
  for (const Expr* e : s->targets) walk(e, nullptr, s, f);
  walk(s->value, nullptr, s, f);
  walk(s->annotation, nullptr, s, f);
  walk(s->extra, nullptr, s, f);
  for (const auto& i : s->items) {
    walk(i.value, nullptr, s, f);
    walk(i.target, nullptr, s, f);
  }
  walk_block(s->body, s, f);
  walk_block(s->orelse, s, f);
  walk_block(s->finally, s, f);
  for (const auto& h : s->handlers) {
    walk(h.type, nullptr, s, f);
    walk_block(h.body, s, f);
  }
  for (const auto& c : s->cases) {
    walk(c.guard, nullptr, s, f);
    walk_block(c.body, s, f);
  }
  if (s->function) walk_function(s->function, s, f);
  if (s->class_def) {
    for (const Expr* d : s->class_def->decorators) walk(d, nullptr, s, f);
    for (const auto& b : s->class_def->bases) walk(b.value, nullptr, s, f);
    walk_block(s->class_def->body, s, f);
  }
}

void Index::walk(const Expr* e, const Expr* parent, const Stmt* s, const Function* f) {
  if (!e) return;
  exprs_[e] = {parent, s, f};
  if (e->kind == ExprKind::Compare) compares_[{e->range.file, e->range.begin, e->range.end}] = e;
  for (const Expr* k : e->kids) walk(k, e, s, f);
  for (const auto& a : e->args) walk(a.value, e, s, f);
  for (const auto& c : e->clauses) {
    walk(c.target, e, s, f);
    walk(c.iterable, e, s, f);
    for (const Expr* k : c.conditions) walk(k, e, s, f);
  }
  if (e->function) walk_function(e->function, s, f);
}

const ExprInfo* Index::info(const Expr* e) const {
  auto it = exprs_.find(e);
  return it == exprs_.end() ? nullptr : &it->second;
}

const StmtInfo* Index::info(const Stmt* s) const {
  auto it = stmts_.find(s);
  return it == stmts_.end() ? nullptr : &it->second;
}

const Expr* Index::compare_at(Range r) const {
  auto it = compares_.find({r.file, r.begin, r.end});
  return it == compares_.end() ? nullptr : it->second;
}

std::vector<const Expr*> Index::compares_in(Range r) const {
  std::vector<const Expr*> found;
  for (auto it = compares_.lower_bound({r.file, r.begin, 0});
       it != compares_.end() && std::get<0>(it->first) == r.file && std::get<1>(it->first) < r.end; ++it)
    if (r.contains(it->second->range)) found.push_back(it->second);
  return found;
}

bool Index::executed(FrameId frame, const Stmt* stmt) const {
  const auto* fn = trace.frame(frame).function;
  if (!stmt || (fn && fn->name == "<lambda>")) return true;
  return executed_.count({frame, stmt}) > 0;
}

const std::vector<FrameId>& Index::frames_of(const Function* f) const {
  auto it = frames_of_.find(f);
  return it == frames_of_.end() ? empty<std::vector<FrameId>>() : it->second;
}

FrameId Index::frame_at(Clock clock) const {
  auto it = std::upper_bound(by_begin_.begin(), by_begin_.end(), clock, [&](Clock c, FrameId f) { return c < trace.frame(f).begin; });
  if (it == by_begin_.begin()) return -1;
  FrameId f = *std::prev(it);
  while (f >= 0 && trace.frame(f).end != 0 && trace.frame(f).end < clock) f = trace.frame(f).parent;
  return f;
}

bool Index::direct(const model::Op& op) const {
  FrameId f = frame_at(op.clock);
  return f < 0 || f == op.frame || !trace.frame(f).builtin;
}

const std::vector<Use>& Index::uses(TensorId t) const { return t < 0 ? empty<std::vector<Use>>() : uses_[static_cast<std::size_t>(t)]; }

const std::vector<int>& Index::calls_of(ModuleId m) const {
  return m < 0 ? empty<std::vector<int>>() : calls_of_[static_cast<std::size_t>(m)];
}

int Index::call_at(ModuleId m, Clock clock) const {
  for (int c : calls_of(m)) {
    const auto& call = trace.calls[static_cast<std::size_t>(c)];
    if (call.begin <= clock && (call.end == 0 || clock <= call.end)) return c;
  }
  return -1;
}

void Index::ops_between(Clock begin, Clock end, const std::function<void(const model::Op&)>& f) const {
  auto it = std::lower_bound(by_clock_.begin(), by_clock_.end(), begin, [&](OpId o, Clock c) { return trace.op(o).clock < c; });
  for (; it != by_clock_.end() && (end == 0 || trace.op(*it).clock <= end); ++it) f(trace.op(*it));
}

bool Index::within(ModuleId m, ModuleId ancestor) const {
  for (; m >= 0; m = trace.module(m).parent)
    if (m == ancestor) return true;
  return false;
}

const Expr* Index::argument(const model::Frame& callee, const std::string& name) const {
  if (!callee.call || !callee.function || callee.call->kind != ExprKind::Call) return nullptr;
  const auto& params = callee.function->parameters;
  int position = -1;
  for (std::size_t i = 0; i < params.size(); ++i)
    if (params[i].name == name) position = static_cast<int>(i);
  if (position < 0) return nullptr;
  for (const auto& a : callee.call->args)
    if (a.keyword == name) return a.value;
  auto kind = params[static_cast<std::size_t>(position)].kind;
  if (kind != program::Parameter::Positional && kind != program::Parameter::PositionalOnly) return nullptr;
  // A call through a partial or with the function as a value binds its positional arguments elsewhere.
  if (callee.via_partial) return nullptr;
  if ((callee.self >= 0 || callee.object >= 0) && !params.empty() && position > 0 && (params[0].name == "self")) --position;
  int seen = 0;
  for (const auto& a : callee.call->args) {
    if (a.star || a.double_star) return nullptr;
    if (!a.keyword.empty()) continue;
    if (seen++ == position) return a.value;
  }
  return nullptr;
}

const Expr* Index::argument_with(const model::Frame& callee, TensorId t) const {
  if (!callee.function || !callee.call) return nullptr;
  for (const auto& p : callee.function->parameters) {
    const auto& w = writes(callee.id, p.name);
    if (w.empty()) continue;
    const auto& first = trace.var_writes[static_cast<std::size_t>(w.front())];
    if (first.value.kind != model::Binding::Tensor || first.value.tensor != t) continue;
    if (const Expr* e = argument(callee, p.name)) return e;
  }
  return nullptr;
}

const std::vector<int>& Index::writes(FrameId frame, const std::string& name) const {
  auto it = writes_.find({frame, name});
  return it == writes_.end() ? empty<std::vector<int>>() : it->second;
}

const model::VarWrite* Index::variable(FrameId frame, const std::string& name, Clock clock) const {
  const model::VarWrite* best = nullptr;
  for (int i : writes(frame, name)) {
    const auto& w = trace.var_writes[static_cast<std::size_t>(i)];
    if (w.clock <= clock) best = &w;
  }
  return best;
}

std::string dotted(const Expr* e) {
  if (!e) return "";
  if (e->kind == ExprKind::Name) return e->text;
  if (e->kind != ExprKind::Attribute || e->kids.empty()) return "";
  std::string base = dotted(e->kids[0]);
  return base.empty() ? "" : base + "." + e->text;
}

}  // namespace shardwright::rewrite::tp
