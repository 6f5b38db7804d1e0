#include "rewrite/stage_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace shardwright::rewrite::stage {

using model::Op;
using model::Prim;

// ---- dimensions ----------------------------------------------------------------------------------------------------------

Dims::Dims(const Trace& t) : trace_(t) {
  int n = 0;
  for (const auto& x : t.tensors) {
    offset_.push_back(n);
    n += static_cast<int>(x.shape.size());
  }
  up_.resize(static_cast<std::size_t>(n));
  for (int i = 0; i < n; ++i) up_[static_cast<std::size_t>(i)] = i;
  for (const auto& x : t.tensors) size_.insert(size_.end(), x.shape.begin(), x.shape.end());
  constant_.assign(static_cast<std::size_t>(n), 0);
  input_.assign(static_cast<std::size_t>(n), 0);
  for (const Op& op : t.ops) {
    std::unordered_map<int, int> first;
    auto label = [&](TensorId x, const std::vector<std::vector<int>>& ls, std::size_t i) {
      if (i >= ls.size() || x < 0) return;
      for (std::size_t d = 0; d < ls[i].size() && d < t.tensor(x).shape.size(); ++d) {
        if (ls[i][d] < 0) continue;
        const int here = id(x, static_cast<int>(d));
        auto [it, fresh] = first.emplace(ls[i][d], here);
        if (!fresh) join(it->second, here);
      }
    };
    auto whole = [&](TensorId a, TensorId b, int except) {
      if (a < 0 || b < 0 || t.tensor(a).shape.size() != t.tensor(b).shape.size()) return;
      for (int d = 0; d < static_cast<int>(t.tensor(a).shape.size()); ++d)
        if (d != except) join(id(a, d), id(b, d));
    };
    switch (op.prim) {
      case Prim::Labelled:
        for (std::size_t i = 0; i < op.inputs.size(); ++i) label(op.inputs[i].tensor, op.in, i);
        for (std::size_t i = 0; i < op.outputs.size(); ++i) label(op.outputs[i], op.out, i);
        break;
      case Prim::Reshape: reshape(op); break;
      case Prim::Split:
      case Prim::Concat:
        for (const auto& in : op.inputs)
          for (const TensorId out : op.outputs) whole(in.tensor, out, op.dim);
        if (op.prim == Prim::Concat && op.outputs.size() == 1) {
          Made m;
          bool fits = true;
          for (const auto& in : op.inputs) {
            fits &= in.tensor >= 0 && op.dim >= 0 && op.dim < static_cast<int>(t.tensor(in.tensor).shape.size());
            if (fits) m.parts.push_back(id(in.tensor, op.dim));
          }
          if (fits && op.dim < static_cast<int>(t.tensor(op.outputs[0]).shape.size())) made_[id(op.outputs[0], op.dim)] = m;
        }
        break;
      default: break;
    }
    // Sizes that were written: a dimension of one tensor, or a constant.
    for (const auto& a : op.size_args) {
      if (op.outputs.empty() || (a.role != model::SizeArg::Dim && a.role != model::SizeArg::Shape)) continue;
      const TensorId out = op.outputs[0];
      for (std::size_t i = 0; i < a.values.size(); ++i) {
        const int d = a.dim + static_cast<int>(i);
        if (a.values[i] < 0 || d < 0 || d >= static_cast<int>(t.tensor(out).shape.size())) continue;
        const Sym* s = i < a.syms.size() ? a.syms[i] : nullptr;
        if (!s) constant_[static_cast<std::size_t>(id(out, d))] = a.values[i] != 1;
        else if (s->kind == Sym::Dim && s->tensor >= 0 && s->dim >= 0) join(id(out, d), id(s->tensor, s->dim));
        else made_[id(out, d)] = {Made::Written, {}, s};
      }
    }
  }
  for (const auto& x : t.tensors)
    for (std::size_t d = 0; d < x.shape.size(); ++d) {
      const auto i = static_cast<std::size_t>(id(x.id, static_cast<int>(d)));
      if (x.origin == model::Origin::Input) input_[i] = 1;
      // A parameter's dimension of size 1 is broadcast: it fixes nothing.
      if ((x.origin == model::Origin::Parameter || x.origin == model::Origin::Buffer) && x.shape[d] != 1) constant_[i] = 1;
    }
  std::vector<char> c(constant_.size(), 0);
  for (int i = 0; i < n; ++i)
    if (constant_[static_cast<std::size_t>(i)]) c[static_cast<std::size_t>(find(i))] = 1;
  constant_ = c;
  std::map<int, Made> made;
  for (const auto& [i, m] : made_) made.emplace(find(i), m);
  made_ = made;
}

int Dims::atom(const std::string& key) const {
  const auto [it, fresh] = atoms_.emplace(key, -1 - static_cast<int>(atoms_.size()));
  (void)fresh;
  return it->second;
}

namespace {
Dims::Poly number(double v) {
  Dims::Poly p;
  if (v != 0) p[{}] = v;
  return p;
}
Dims::Poly add(Dims::Poly a, const Dims::Poly& b, double sign) {
  for (const auto& [k, v] : b) {
    a[k] += sign * v;
    if (a[k] == 0) a.erase(k);
  }
  return a;
}
Dims::Poly times(const Dims::Poly& a, const Dims::Poly& b) {
  Dims::Poly out;
  for (const auto& [ka, va] : a)
    for (const auto& [kb, vb] : b) {
      std::vector<int> k = ka;
      k.insert(k.end(), kb.begin(), kb.end());
      std::sort(k.begin(), k.end());
      out[k] += va * vb;
      if (out[k] == 0) out.erase(k);
    }
  return out;
}
std::string text(const Dims::Poly& p) {
  std::string s;
  for (const auto& [k, v] : p) s += fmt::format("{}*[{}] ", v, fmt::join(k, ","));
  return s;
}
}  // namespace

const Dims::Poly& Dims::poly_of(int cls) const {
  if (const auto it = polys_.find(cls); it != polys_.end()) return it->second;
  const auto i = static_cast<std::size_t>(cls);
  if (constant_[i]) return polys_[cls] = number(static_cast<double>(size_[i]));
  polys_[cls] = Poly{{{cls}, 1.0}};  // also what a cycle finds
  const auto m = made_.find(cls);
  if (m == made_.end()) return polys_[cls];
  Poly p;
  if (m->second.how == Made::Written) {
    p = poly(m->second.sym);
  } else if (m->second.how == Made::Sum) {
    for (const int part : m->second.parts) p = add(p, poly_of(find(part)), 1);
  } else {
    p = number(1);
    for (const int part : m->second.parts) p = times(p, poly_of(find(part)));
  }
  return polys_[cls] = p;
}

const Dims::Poly& Dims::poly(TensorId t, int d) const { return poly_of(find(id(t, d))); }

Dims::Poly Dims::poly(const Sym* s) const {
  if (!s) return {};
  switch (s->kind) {
    case Sym::Const: return number(s->value);
    case Sym::Dim: return s->tensor >= 0 && s->dim >= 0 ? poly(s->tensor, s->dim) : Poly{{{atom(fmt::format("{}", fmt::ptr(s)))}, 1.0}};
    case Sym::Add: return add(poly(s->a), poly(s->b), 1);
    case Sym::Sub: return add(poly(s->a), poly(s->b), -1);
    case Sym::Neg: return add({}, poly(s->a), -1);
    case Sym::Mul: return times(poly(s->a), poly(s->b));
    default: break;
  }
  const Poly a = poly(s->a), b = poly(s->b);
  if ((s->kind == Sym::FloorDiv || s->kind == Sym::TrueDiv) && constant(b) && !b.empty()) {
    const double by = b.begin()->second;
    bool exact = true;
    Poly p = a;
    for (auto& [k, v] : p) {
      v /= by;
      exact &= v == std::floor(v);
    }
    if (exact) return p;
  }
  if (constant(a) && constant(b)) return number(s->value);
  return Poly{{{atom(fmt::format("{}({})({})", static_cast<int>(s->kind), text(a), text(b)))}, 1.0}};
}

int Dims::id(TensorId t, int d) const { return offset_[static_cast<std::size_t>(t)] + d; }

int Dims::find(int a) const {
  while (up_[static_cast<std::size_t>(a)] != a) {
    up_[static_cast<std::size_t>(a)] = up_[static_cast<std::size_t>(up_[static_cast<std::size_t>(a)])];
    a = up_[static_cast<std::size_t>(a)];
  }
  return a;
}

void Dims::join(int a, int b) { up_[static_cast<std::size_t>(find(a))] = find(b); }

void Dims::reshape(const Op& op) {
  if (op.inputs.empty() || op.outputs.empty()) return;
  const TensorId a = op.inputs[0].tensor, b = op.outputs[0];
  if (a < 0 || b < 0) return;
  const auto& x = trace_.tensor(a).shape;
  const auto& y = trace_.tensor(b).shape;
  std::size_t i = 0, j = 0, i0 = 0, j0 = 0;
  std::int64_t p = 1, q = 1;
  // Several dimensions of one side that make one of the other.
  auto merged = [&] {
    auto parts = [&](const std::vector<std::int64_t>& s, TensorId x, std::size_t from, std::size_t to) {
      Made m;
      m.how = Made::Product;
      for (std::size_t k = from; k < to; ++k)
        if (s[k] != 1) m.parts.push_back(id(x, static_cast<int>(k)));
      return m;
    };
    auto alone = [](const std::vector<std::int64_t>& s, std::size_t from, std::size_t to) {
      std::size_t found = to;
      for (std::size_t k = from; k < to; ++k)
        if (s[k] != 1) {
          if (found != to) return to;
          found = k;
        }
      return found;
    };
    const std::size_t ja = alone(y, j0, j), ia = alone(x, i0, i);
    const Made from_in = parts(x, a, i0, i), from_out = parts(y, b, j0, j);
    if (ja != j && from_in.parts.size() > 1) made_.emplace(id(b, static_cast<int>(ja)), from_in);
    else if (ia != i && from_out.parts.size() > 1) made_.emplace(id(a, static_cast<int>(ia)), from_out);
    i0 = i;
    j0 = j;
  };
  // Products from the left; where both stand at the same product and the next sizes agree, the dimension is the same. A size 1
  // has no place of its own.
  while (i < x.size() && j < y.size()) {
    if (p == q && x[i] == y[j]) {
      if (x[i] != 1) join(id(a, static_cast<int>(i)), id(b, static_cast<int>(j)));
      p *= x[i++];
      q *= y[j++];
      i0 = i;
      j0 = j;
    } else if (x[i] == 1 && p == q) {
      ++i;
    } else if (y[j] == 1 && p == q) {
      ++j;
    } else if (p * x[i] <= q * y[j]) {
      p *= x[i++];
      if (p == q * y[j]) q *= y[j++], merged();
    } else {
      q *= y[j++];
      if (q == p * x[i]) p *= x[i++], merged();
    }
  }
}

bool Dims::same(TensorId a, int da, TensorId b, int db) const { return find(id(a, da)) == find(id(b, db)); }
bool Dims::constant(TensorId t, int d) const { return constant_[static_cast<std::size_t>(find(id(t, d)))] != 0; }

bool Dims::constant(const Sym* s) const {
  if (!s || constant(poly(s))) return true;
  switch (s->kind) {
    case Sym::Const: return true;
    case Sym::Dim: return s->tensor >= 0 && s->dim >= 0 && constant(s->tensor, s->dim);
    case Sym::Other: return false;
    default: return constant(s->a) && constant(s->b);
  }
}

void Dims::compare_with(const Trace* other) {
  other_ = other && other->tensors.size() == trace_.tensors.size() && other->ops.size() == trace_.ops.size() ? other : nullptr;
}

bool Dims::fixed(const Sym* s) const {
  if (!s || s->kind == Sym::Const) return true;
  if (!other_ || s->kind == Sym::Other) return false;
  if (s->kind != Sym::Dim) return fixed(s->a) && fixed(s->b);
  if (s->tensor < 0 || s->dim < 0) return false;
  const auto &a = trace_.tensor(s->tensor).shape, &b = other_->tensor(s->tensor).shape;
  const auto d = static_cast<std::size_t>(s->dim);
  return d < a.size() && d < b.size() && a[d] == b[d];
}

// ---- facts -----------------------------------------------------------------------------------------------------------------

Facts::Facts(const Trace& t) : trace(t), dims(t) {
  frames_.resize(t.frames.size());
  for (std::size_t i = 0; i < t.var_writes.size(); ++i) {
    const auto& w = t.var_writes[i];
    if (w.frame < 0) continue;
    auto& f = frames_[static_cast<std::size_t>(w.frame)];
    f.writes.push_back(static_cast<int>(i));
    f.by_name[w.name].push_back(static_cast<int>(i));
  }
  for (std::size_t i = 0; i < t.content_writes.size(); ++i)
    if (const auto& w = t.content_writes[i]; w.frame >= 0)
      frames_[static_cast<std::size_t>(w.frame)].contents[w.name].push_back(static_cast<int>(i));
  for (const auto& s : t.steps) {
    if (s.frame < 0) continue;
    auto& f = frames_[static_cast<std::size_t>(s.frame)];
    f.steps.push_back(s.id);
    f.by_stmt[s.stmt].push_back(s.id);
  }
  for (const auto& f : t.frames)
    if (f.parent >= 0) frames_[static_cast<std::size_t>(f.parent)].callees.push_back(f.id);
  for (std::size_t i = 0; i < t.calls.size(); ++i)
    if (t.calls[i].caller >= 0) frames_[static_cast<std::size_t>(t.calls[i].caller)].module_calls.push_back(static_cast<int>(i));
  flows_.assign(t.tensors.size(), 0);
  last_use_.assign(t.tensors.size(), -1);
  for (const auto& x : t.tensors)
    flows_[static_cast<std::size_t>(x.id)] =
        x.origin == model::Origin::Input || (x.origin == model::Origin::Result && (x.from_input || x.from_parameter));
  for (const auto& op : t.ops) {
    if (op.frame >= 0) frames_[static_cast<std::size_t>(op.frame)].ops.push_back(op.id);
    bool flow = !op.random.empty();
    for (const auto& in : op.inputs) {
      if (in.tensor < 0) continue;
      last_use_[static_cast<std::size_t>(in.tensor)] = std::max(last_use_[static_cast<std::size_t>(in.tensor)], op.clock);
      if (t.tensor(in.tensor).origin == model::Origin::Result) flow |= flows_[static_cast<std::size_t>(in.tensor)] != 0;
    }
    if (flow && op.clock >= t.forward_begin)
      for (const TensorId o : op.outputs) flows_[static_cast<std::size_t>(o)] = 1;
  }
  for (const TensorId o : model::tensors_of(t.output)) last_use_[static_cast<std::size_t>(o)] = std::numeric_limits<Clock>::max();
}

int Facts::version(FrameId f, const std::string& name, Clock clock) const {
  const auto& names = frame(f).by_name;
  const auto it = names.find(name);
  if (it == names.end()) return -1;
  int found = -1;
  for (const int w : it->second) {
    if (trace.var_writes[static_cast<std::size_t>(w)].clock >= clock) break;
    found = w;
  }
  return found;
}

bool Facts::executed(FrameId f, const Stmt* s, Clock from, Clock to) const { return step_at(f, s, from, to) >= 0; }

StepId Facts::step_at(FrameId f, const Stmt* s, Clock from, Clock to) const {
  const auto it = frame(f).by_stmt.find(s);
  if (it == frame(f).by_stmt.end()) return -1;
  for (const StepId i : it->second) {
    const auto& st = trace.step(i);
    if (st.end > from && st.begin < to) return i;
  }
  return -1;
}

int Facts::iterations(FrameId f, const Stmt* loop, Clock from, Clock to) const {
  int n = 0;
  for (const StepId i : frame(f).steps) {
    const auto& s = trace.step(i);
    if (s.end <= from || s.begin >= to) continue;
    for (const auto& it : s.iters)
      if (it.loop == loop) n = std::max(n, it.index + 1);
  }
  return n;
}

bool Facts::flows(const Binding& b) const {
  for (const TensorId t : model::tensors_of(b))
    if (flows(t)) return true;
  return false;
}

Clock Facts::born(TensorId t) const {
  const auto& x = trace.tensor(t);
  return x.producer >= 0 ? trace.op(x.producer).clock : 0;
}

std::pair<std::size_t, std::size_t> Facts::ops_between(Clock from, Clock to) const {
  auto before = [](const Op& o, Clock c) { return o.clock < c; };
  const auto a = std::lower_bound(trace.ops.begin(), trace.ops.end(), from, before);
  const auto b = std::lower_bound(a, trace.ops.end(), to, before);
  return {static_cast<std::size_t>(a - trace.ops.begin()), static_cast<std::size_t>(b - trace.ops.begin())};
}

std::pair<std::size_t, std::size_t> Facts::attr_writes_between(Clock from, Clock to) const {
  auto before = [](const model::AttrWrite& w, Clock c) { return w.clock < c; };
  const auto a = std::lower_bound(trace.attr_writes.begin(), trace.attr_writes.end(), from, before);
  const auto b = std::lower_bound(a, trace.attr_writes.end(), to, before);
  return {static_cast<std::size_t>(a - trace.attr_writes.begin()), static_cast<std::size_t>(b - trace.attr_writes.begin())};
}

bool Facts::repeatable(Clock from, Clock to) const {
  const auto [a, b] = ops_between(from, to);
  for (std::size_t i = a; i < b; ++i) {
    for (const TensorId o : trace.ops[i].outputs)
      if (flows(o)) return false;
    // An operation in place on something that flows.
    if (!trace.ops[i].random.empty()) return false;
  }
  return true;
}

bool Facts::calls_inside(FrameId f, StepId step, const Expr* e) const {
  const auto& s = trace.step(step);
  for (const FrameId c : frame(f).callees) {
    const auto& x = trace.frame(c);
    if (x.call && !x.builtin && x.begin >= s.begin && x.begin < s.end && e->range.contains(x.call->range)) return true;
  }
  for (const int i : frame(f).module_calls) {
    const auto& c = trace.calls[static_cast<std::size_t>(i)];
    if (c.call && c.begin >= s.begin && c.begin < s.end && e->range.contains(c.call->range)) return true;
  }
  return false;
}

std::vector<OpId> Facts::ops_inside(FrameId f, StepId step, const Expr* e) const {
  std::vector<OpId> out;
  const auto& s = trace.step(step);
  for (const OpId o : frame(f).ops) {
    const Op& op = trace.op(o);
    if (op.clock >= s.begin && op.clock < s.end && op.site && e->range.contains(op.site->range)) out.push_back(o);
  }
  return out;
}

std::optional<Binding> Facts::value(FrameId f, const Expr* e, StepId step) const {
  const auto& s = trace.step(step);
  Binding b;
  switch (e->kind) {
    case ExprKind::None: b.kind = Binding::None; return b;
    case ExprKind::True:
    case ExprKind::False:
      b.kind = Binding::Bool;
      b.integer = e->kind == ExprKind::True;
      return b;
    case ExprKind::Int:
      b.kind = Binding::Int;
      b.integer = e->integer;
      return b;
    case ExprKind::Float:
      b.kind = Binding::Float;
      b.number = e->number;
      return b;
    case ExprKind::String:
      b.kind = Binding::Str;
      b.text = e->text;
      return b;
    case ExprKind::Name: return contents(f, e->text, s.begin);
    case ExprKind::Tuple:
    case ExprKind::List: {
      b.kind = Binding::Sequence;
      b.text = e->kind == ExprKind::Tuple ? "tuple" : "list";
      for (const Expr* k : e->kids) {
        auto v = value(f, k, step);
        if (!v) return std::nullopt;
        b.items.emplace_back("", std::move(*v));
      }
      return b;
    }
    case ExprKind::Subscript: {
      const Expr* key = e->kids[1];
      if (const auto base = value(f, e->kids[0], step); base && base->kind == Binding::Sequence) {
        std::int64_t i = 0;
        if (key->kind == ExprKind::Int) i = key->integer;
        else if (key->kind == ExprKind::Unary && key->text == "-" && key->kids[0]->kind == ExprKind::Int) i = -key->kids[0]->integer;
        else return std::nullopt;
        if (i < 0) i += static_cast<std::int64_t>(base->items.size());
        if (i >= 0 && i < static_cast<std::int64_t>(base->items.size())) return base->items[static_cast<std::size_t>(i)].second;
        return std::nullopt;
      }
      break;
    }
    default: break;
  }
  for (const int i : frame(f).module_calls) {
    const auto& c = trace.calls[static_cast<std::size_t>(i)];
    if (c.call == e && c.begin >= s.begin && c.begin < s.end) return c.result;
  }
  for (const OpId o : frame(f).ops) {
    const Op& op = trace.op(o);
    if (op.site == e && op.clock >= s.begin && op.clock < s.end && op.outputs.size() == 1) {
      b.kind = Binding::Tensor;
      b.tensor = op.outputs[0];
      if (s.stmt && s.stmt->kind == StmtKind::AugAssign) break;  // the sum itself has the right-hand side as its site, too
    }
  }
  if (b.kind == Binding::Tensor) return b;
  // The value may have been bound to a name by this very statement.
  if (s.stmt && s.stmt->kind == StmtKind::Assign && s.stmt->value == e && s.stmt->targets.size() == 1 &&
      s.stmt->targets[0]->kind == ExprKind::Name)
    for (const int w : frame(f).writes)
      if (trace.var_writes[static_cast<std::size_t>(w)].step == step) return trace.var_writes[static_cast<std::size_t>(w)].value;
  // A user function's result, when it is returned as a variable.
  for (const FrameId c : frame(f).callees) {
    const auto& x = trace.frame(c);
    if (x.call != e || x.begin < s.begin || x.begin >= s.end || !x.function) continue;
    for (auto it = frame(c).steps.rbegin(); it != frame(c).steps.rend(); ++it) {
      const Stmt* r = trace.step(*it).stmt;
      if (!r || r->kind != StmtKind::Return || !r->value) continue;
      return value(c, r->value, *it);
    }
  }
  return std::nullopt;
}

std::optional<Binding> Facts::contents(FrameId f, const std::string& name, Clock clock) const {
  const int w = version(f, name, clock);
  if (w < 0) return std::nullopt;
  Binding b = trace.var_writes[static_cast<std::size_t>(w)].value;
  if (b.kind != Binding::Sequence && b.kind != Binding::Mapping && b.kind != Binding::Object) return b;
  const auto found = frame(f).contents.find(name);
  if (found == frame(f).contents.end()) return b;
  const Clock from = trace.var_writes[static_cast<std::size_t>(w)].clock;
  for (const int i : found->second) {
    const auto& c = trace.content_writes[static_cast<std::size_t>(i)];
    if (c.clock >= clock) break;
    if (c.clock > from) b = c.value;
  }
  return b;
}

std::string python_string(const std::string& s) {
  std::string out = "\"";
  for (const char c : s) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n') out += "\\n";
    else out += c;
  }
  return out + "\"";
}

std::optional<std::string> literal(const Binding& b) {
  switch (b.kind) {
    case Binding::None: return "None";
    case Binding::Bool: return b.integer ? "True" : "False";
    case Binding::Int: return std::to_string(b.integer);
    case Binding::Float: {
      if (std::isinf(b.number)) return b.number > 0 ? "float(\"inf\")" : "-float(\"inf\")";
      if (std::isnan(b.number)) return "float(\"nan\")";
      std::string s = fmt::format("{}", b.number);
      if (s.find_first_of(".en") == std::string::npos) s += ".0";
      return s;
    }
    case Binding::Str: return python_string(b.text);
    default: return std::nullopt;
  }
}

}  // namespace shardwright::rewrite::stage
