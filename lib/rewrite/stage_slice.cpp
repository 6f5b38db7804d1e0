#include "rewrite/stage_slice.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "program/visit.h"
#include "python/identifiers.h"

namespace shardwright::rewrite::stage {

const FunctionIndex& Context::index(const Function* f) const {
  auto& p = indices_[f];
  if (!p) p = std::make_unique<FunctionIndex>(*f);
  return *p;
}
const Layout& Context::layout(const Function* f) const {
  auto& p = layouts_[f];
  if (!p) p = std::make_unique<Layout>(sources, *f);
  return *p;
}

std::string fresh_name(const Context& c, FrameId f, const std::string& wish, const std::set<std::string>& taken) {
  const Function& fn = *c.trace.frame(f).function;
  program::NameSet used;
  program::names_read(fn.body, used);
  program::names_written(fn.body, used);
  for (const auto& p : fn.parameters) used.add(p.name);
  auto free = [&](const std::string& n) { return !used.contains(n) && !taken.count(n); };
  if (python::is_identifier(wish) && free(wish)) return wish;
  const std::string stem = python::is_identifier(wish) && wish.size() > 1 ? wish + "_" : "h";
  for (int i = 0;; ++i)
    if (free(stem + std::to_string(i))) return stem + std::to_string(i);
}

std::vector<Slot> CutView::carried(std::size_t level) const {
  std::vector<Slot> out;
  if (level >= levels.size()) return out;
  const Boundary& b = levels[level];
  if (b.at == At::Inner) {
    const auto inner = carried(level + 1);
    for (std::size_t i = 0; i < inner.size(); ++i) {
      const std::string name = i < b.inner_names.size() ? b.inner_names[i] : inner[i].name;
      out.push_back({name, name, name, inner[i].tensor});
    }
  }
  for (const Slot& s : b.own) out.push_back(s);
  return out;
}

bool replaced_behind(const Boundary& b, const Expr* e) {
  for (const Temp& t : b.temps)
    if (t.expr == e) return true;
  switch (b.at) {
    case At::Inner:
      for (const auto& a : b.call->args)
        if (a.value == e) return true;
      return false;
    case At::AfterCall: return e == b.call;
    case At::Container: return !b.call->args.empty() && e == b.call->args[0].value;
    default: return false;
  }
}

// ---- view ------------------------------------------------------------------------------------------------------------------

namespace {

/// "attn" of self.attn, block of block; "" when there is none.
std::string callee_name(const Expr* e) {
  while (e &&
         (e->kind == ExprKind::Subscript || e->kind == ExprKind::Starred ||
          (e->kind == ExprKind::Attribute && e->kids[0]->kind == ExprKind::Call)))
    e = e->kids[0];
  if (!e || e->kind != ExprKind::Call) return "";
  const Expr* f = e->kids[0];
  while (f->kind == ExprKind::Subscript) f = f->kids[0];
  if (f->kind == ExprKind::Attribute || f->kind == ExprKind::Name) return f->text;
  return "";
}

void expand(const Expr* e, std::vector<const Expr*>& out) {
  if (e->kind == ExprKind::Starred) e = e->kids[0];
  if (e->kind == ExprKind::Tuple || e->kind == ExprKind::List) {
    for (const Expr* k : e->kids) expand(k, out);
    return;
  }
  out.push_back(e);
}

/// Must a sub-expression that ran before the cut be kept in a variable (true), or can it be written behind the cut again?
bool needs_temp(const Context& c, const Boundary& b, const Expr* e) {
  const bool calls = c.facts.calls_inside(b.frame, b.step, e);
  const auto ops = c.facts.ops_inside(b.frame, b.step, e);
  if (!calls && ops.empty()) return false;
  const auto v = c.facts.value(b.frame, e, b.step);
  if (v && !c.facts.flows(*v)) return false;
  if (calls) return true;
  // A view or an elementwise operation on one tensor costs nothing again, and sends no more.
  std::vector<Read> names;
  reads(e, names);
  std::set<TensorId> from;
  for (const auto& r : names) {
    const int w = c.facts.version(b.frame, r.name, c.trace.step(b.step).begin);
    if (w < 0) continue;
    for (const TensorId t : model::tensors_of(c.trace.var_writes[static_cast<std::size_t>(w)].value))
      if (c.facts.flows(t)) from.insert(t);
  }
  double flops = 0;
  for (const OpId o : ops) {
    flops += c.trace.op(o).flops;
    if (!c.trace.op(o).random.empty()) return true;
  }
  if (from.size() != 1 || !v || v->kind != Binding::Tensor) return true;
  const auto n = model::numel(c.trace.tensor(*from.begin())), m = model::numel(c.trace.tensor(v->tensor));
  return n > m || flops > 4.0 * static_cast<double>(m);
}

void find_temps(const Context& c, Boundary& b, std::string& error) {
  const FunctionIndex& index = c.index(b.frame);
  const Stmt* s = b.chain.back();
  if (s->kind != StmtKind::Expression && s->kind != StmtKind::Assign && s->kind != StmtKind::AnnAssign && s->kind != StmtKind::AugAssign &&
      s->kind != StmtKind::Return) {
    error = "it lies in the head of a compound statement";
    return;
  }
  if (!b.call || index.statement(b.call) != s) {
    error = "its call is not written in the statement";
    return;
  }
  std::vector<const Expr*> before;
  if (b.at == At::BeforeCall)
    for (const Expr* k : in_evaluation_order(b.call)) expand(k, before);
  for (const Expr *e = b.call, *p = index.parent(e); p; e = p, p = index.parent(p)) {
    switch (p->kind) {
      case ExprKind::ListComp:
      case ExprKind::SetComp:
      case ExprKind::DictComp:
      case ExprKind::GeneratorExp: error = "it lies inside a comprehension"; return;
      case ExprKind::Lambda: error = "it lies inside a lambda"; return;
      case ExprKind::Await:
      case ExprKind::Yield:
      case ExprKind::YieldFrom: error = "it lies inside a generator"; return;
      case ExprKind::Walrus: error = "it lies inside `:=`"; return;
      default: break;
    }
    std::vector<const Expr*> here;
    for (const Expr* k : in_evaluation_order(p)) {
      if (k == e) break;
      expand(k, here);
    }
    if ((p->kind == ExprKind::BoolOp || p->kind == ExprKind::Conditional) && !here.empty()) {
      for (const Expr* k : here)
        if (c.facts.calls_inside(b.frame, b.step, k) || !c.facts.ops_inside(b.frame, b.step, k).empty()) {
          error = "it lies behind a condition inside an expression";
          return;
        }
      continue;
    }
    before.insert(before.begin(), here.begin(), here.end());
  }
  std::set<std::string> taken;
  for (const Expr* e : before) {
    if (!needs_temp(c, b, e)) continue;
    const std::string callee = callee_name(e);
    Temp t{e, fresh_name(c, b.frame, callee.empty() ? "h" : callee + "_out", taken)};
    taken.insert(t.name);
    b.temps.push_back(std::move(t));
  }
  if (b.at == At::AfterCall || b.at == At::Container) {
    if (s->kind == StmtKind::Assign && s->value == b.call && s->targets.size() == 1 && s->targets[0]->kind == ExprKind::Name) {
      b.value_name = s->targets[0]->text;
      b.value_is_target = true;
    } else {
      const std::string callee = callee_name(b.call);
      b.value_name = fresh_name(c, b.frame, callee.empty() ? "h" : callee + "_out", taken);
    }
  }
}

std::string described(const Context& c, const Function* f) {
  return "`" + (f ? f->name : std::string("?")) + "`" + (f ? " (" + c.sources.describe(f->def_range) + ")" : "");
}

}  // namespace

CutView view(const Context& c, const pipeline::Cut& cut, std::string& error) {
  CutView v;
  v.cut = cut;
  const Trace& t = c.trace;
  if (cut.path.empty()) {
    error = "it lies outside of the forward";
    return v;
  }
  for (std::size_t i = 0; i < cut.path.size(); ++i) {
    const auto& l = cut.path[i];
    Boundary b;
    b.level = static_cast<int>(i);
    b.frame = l.frame;
    b.step = l.step;
    const auto& f = t.frame(l.frame);
    if (!f.function || f.function->name == "<lambda>") {
      error = "it lies inside a lambda";
      return v;
    }
    if (f.self < 0 || !f.function->owner) {
      error = "it lies inside the function " + described(c, f.function) + ", which is no method of a module";
      return v;
    }
    if (f.function->is_generator || f.function->is_async) {
      error = "it lies inside the generator " + described(c, f.function);
      return v;
    }
    if (f.via_partial) {
      error = described(c, f.function) + " is called through functools.partial";
      return v;
    }
    if (l.step < 0) {
      error = "its place in " + described(c, f.function) + " is not known";
      return v;
    }
    const auto& step = t.step(l.step);
    b.chain = c.index(l.frame).chain(step.stmt);
    if (b.chain.empty() || !c.index(l.frame).place(step.stmt)) {
      error = "its statement is not in " + described(c, f.function);
      return v;
    }
    for (const Stmt* s : b.chain) {
      int n = 0;
      for (const auto& it : step.iters)
        if (it.loop == s) n = it.index;
      b.iteration.push_back(n);
      if (s == b.chain.back()) break;
      if (s->kind == StmtKind::While) {
        error = "it lies inside a while loop (" + c.sources.describe(s->range) + ")";
        return v;
      }
      if (s->kind == StmtKind::Try) {
        error = "it lies inside a try statement (" + c.sources.describe(s->range) + ")";
        return v;
      }
      if (s->kind == StmtKind::Match) {
        error = "it lies inside a match statement (" + c.sources.describe(s->range) + ")";
        return v;
      }
    }
    if (i + 1 < cut.path.size()) {
      b.at = At::Inner;
      b.inner = cut.path[i + 1].frame;
      b.call = l.call;
      FrameId p = t.frame(b.inner).parent;
      b.through_container = p != l.frame;
      for (; p >= 0 && p != l.frame; p = t.frame(p).parent) {
        const auto& x = t.frame(p);
        const bool container = x.function && x.function->owner && x.function->owner->name == "Sequential";
        if (!x.builtin || !container) {
          error =
              "it lies inside " + described(c, t.frame(b.inner).function) + ", which the built-in " + described(c, x.function) + " calls";
          return v;
        }
      }
    } else {
      switch (cut.kind) {
        case pipeline::CutKind::BeforeStep: b.at = At::Statement; break;
        case pipeline::CutKind::BeforeCall:
          b.at = At::BeforeCall;
          b.call = cut.before_call;
          break;
        case pipeline::CutKind::AfterCall:
          b.at = At::AfterCall;
          b.call = cut.after_call;
          break;
        case pipeline::CutKind::BetweenChildren:
          b.at = At::Container;
          for (const FrameId x : c.facts.frame(b.frame).callees)
            if (t.frame(x).begin < cut.clock && cut.clock < t.frame(x).end) b.call = t.frame(x).call;
          if (b.call && b.call->args.size() != 1) {
            error = "the container is called with other than one argument";
            return v;
          }
          break;
        case pipeline::CutKind::InsideBuiltin: error = "it lies inside a built-in layer"; return v;
      }
    }
    if (b.at == At::BeforeCall || b.at == At::AfterCall)
      for (const FrameId x : c.facts.frame(b.frame).callees) {  // reduce(f, items, x) runs f once an item
        const auto& other = t.frame(x);
        if (other.call != b.call || other.step != b.step) continue;
        if (b.at == At::AfterCall ? other.begin >= cut.clock : other.begin < cut.clock) {
          error = "it lies inside a call that runs a function several times (" + c.sources.describe(b.call->range) + ")";
          return v;
        }
      }
    if (b.at != At::Statement) {
      find_temps(c, b, error);
      if (!error.empty()) return v;
    }
    v.levels.push_back(std::move(b));
  }
  return v;
}

// ---- pieces ----------------------------------------------------------------------------------------------------------------

namespace {

class Cutter {
 public:
  Cutter(const Context& c, FrameId f, const Boundary* lo, const Boundary* hi, std::string& error)
      : c_(c), frame_(f), lo_(lo), hi_(hi), error_(error) {
    from_ = lo ? lo->cut->clock : c.trace.frame(f).begin;
    to_ = hi ? hi->cut->clock : std::numeric_limits<Clock>::max();
  }

  std::vector<Piece> block(const Block& b, std::size_t depth, const Boundary* lo, const Boundary* hi) {
    std::vector<Piece> out;
    const std::size_t i0 = lo ? place(lo, depth) : 0;
    const std::size_t i1 = hi ? place(hi, depth) : b.size() - 1;
    if (lo) out.push_back({.kind = Piece::Prefix, .block = &b, .upto = i0});
    for (std::size_t i = i0; i <= i1 && i < b.size() && error_.empty(); ++i) {
      const Boundary* l = lo && i == i0 ? lo : nullptr;
      const Boundary* h = hi && i == i1 ? hi : nullptr;
      const bool l_deep = l && depth + 1 < l->chain.size(), h_deep = h && depth + 1 < h->chain.size();
      if (h && !h_deep && h->at == At::Statement) break;
      if (l && !l_deep && l->at == At::Statement) l = nullptr;
      if (l_deep || h_deep) {
        compound(b[i], depth, l_deep ? l : nullptr, h_deep ? h : nullptr, out);
      } else if (l && h) {
        out.push_back({.kind = Piece::FarNear, .stmt = b[i]});
      } else if (l) {
        out.push_back({.kind = Piece::Far, .stmt = b[i]});
      } else if (h) {
        out.push_back({.kind = Piece::Near, .stmt = b[i]});
      } else {
        out.push_back({.kind = Piece::Whole, .stmt = b[i]});
      }
    }
    return out;
  }

 private:
  std::size_t place(const Boundary* b, std::size_t depth) const { return c_.index(frame_).place(b->chain[depth])->index; }
  /// At the first statement of the body at `depth`, before anything?
  bool at_start(const Boundary* b, std::size_t depth) const {
    return depth + 1 == b->chain.size() && b->at == At::Statement && place(b, depth) == 0;
  }

  void compound(const Stmt* s, std::size_t depth, const Boundary* lo, const Boundary* hi, std::vector<Piece>& out) {
    const std::size_t inner = depth + 1;
    auto branch = [&](const Boundary* b) { return c_.index(frame_).place(b->chain[inner])->block; };
    switch (s->kind) {
      case StmtKind::For: {
        for (const Boundary* b : {lo, hi})
          if (b && branch(b) != &s->body) {
            error_ = "it lies in the else branch of a loop";
            return;
          }
        auto piece = [&](int from, int to, const Boundary* l, const Boundary* h) {
          Piece p{.kind = Piece::Loop, .stmt = s, .from = from, .to = to, .sliced = true, .on_path = lo != nullptr};
          p.body = l || h ? block(s->body, inner, l, h) : std::vector<Piece>{};
          if (!l && !h)
            for (const Stmt* k : s->body) p.body.push_back({.kind = Piece::Whole, .stmt = k});
          out.push_back(std::move(p));
        };
        const int n = c_.facts.iterations(frame_, s, c_.trace.frame(frame_).begin, std::numeric_limits<Clock>::max());
        if (lo && hi && lo->iteration[depth] == hi->iteration[depth]) {
          piece(lo->iteration[depth], lo->iteration[depth] + 1, lo, hi);
          return;
        }
        int start = 0;
        if (lo) {
          start = lo->iteration[depth];
          if (!at_start(lo, inner)) {
            piece(start, start + 1, lo, nullptr);
            ++start;
          }
        }
        if (hi) {
          const int end = hi->iteration[depth];
          if (end > start) piece(start, end, nullptr, nullptr);
          if (!at_start(hi, inner)) piece(end, end + 1, nullptr, hi);
        } else if (start < n) {
          piece(start, -1, nullptr, nullptr);
        }
        return;
      }
      case StmtKind::If: {
        Piece p{.kind = Piece::If, .stmt = s, .on_path = lo != nullptr};
        const Block* b = branch(lo ? lo : hi);
        if (lo && hi && branch(lo) != branch(hi)) {
          error_ = "a stage begins and ends in different branches";
          return;
        }
        p.in_orelse = b == &s->orelse;
        p.header = !p.in_orelse;
        p.guard_other = !lo && !constant_condition(s->value) && (p.in_orelse || !s->orelse.empty());
        p.body = block(*b, inner, lo, hi);
        out.push_back(std::move(p));
        return;
      }
      case StmtKind::With: {
        Piece p{.kind = Piece::With, .stmt = s, .on_path = lo != nullptr};
        p.body = block(s->body, inner, lo, hi);
        out.push_back(std::move(p));
        return;
      }
      default: error_ = "it lies inside a statement that cannot be divided (" + c_.sources.describe(s->range) + ")";
    }
  }

  /// Decided by constructor values alone: no local variable but self.
  bool constant_condition(const Expr* e) const {
    std::vector<Read> names;
    reads(e, names);
    const Function& f = *c_.trace.frame(frame_).function;
    for (const auto& r : names) {
      if (!f.parameters.empty() && r.name == f.parameters[0].name) continue;
      if (std::find(f.locals.begin(), f.locals.end(), r.name) != f.locals.end()) return false;
    }
    return true;
  }

  const Context& c_;
  FrameId frame_;
  const Boundary *lo_, *hi_;
  std::string& error_;
  Clock from_ = 0, to_ = 0;
};

}  // namespace

std::vector<Piece> pieces(const Context& c, FrameId f, const Boundary* lo, const Boundary* hi, std::string& error) {
  return Cutter(c, f, lo, hi, error).block(c.trace.frame(f).function->body, 0, lo, hi);
}

// ---- liveness --------------------------------------------------------------------------------------------------------------

namespace {

using Names = std::set<std::string>;

class Live {
 public:
  Live(const Context& c, FrameId f, Clock from, Clock to, const Boundary* lo, const Boundary* hi)
      : c_(c), frame_(f), from_(from), to_(to), lo_(lo), hi_(hi) {}

  Names pieces(const std::vector<Piece>& p, Names live) {
    for (auto it = p.rbegin(); it != p.rend(); ++it) live = piece(*it, std::move(live));
    return live;
  }

 private:
  bool ran(const Stmt* s) const { return c_.facts.executed(frame_, s, from_, to_); }

  static void remove(Names& live, const std::vector<std::string>& names) {
    for (const auto& n : names) live.erase(n);
  }
  static void add(Names& live, const std::vector<Read>& r) {
    for (const auto& x : r) live.insert(x.name);
  }

  Names piece(const Piece& p, Names live) {
    auto lo_skip = [&](const Expr* e) { return lo_ && replaced_behind(*lo_, e); };
    switch (p.kind) {
      case Piece::Prefix: return live;
      case Piece::Whole: return statement(p.stmt, std::move(live));
      case Piece::Far: {
        if (lo_->value_is_target && lo_->at == At::AfterCall) {
          live.insert(lo_->value_name);
          return live;
        }
        if (p.stmt->kind != StmtKind::AugAssign) remove(live, own_writes(p.stmt));
        add(live, own_reads(p.stmt, lo_skip));
        for (const Temp& t : lo_->temps) live.insert(t.name);
        if (!lo_->value_name.empty()) live.insert(lo_->value_name);
        return live;
      }
      case Piece::Near:
      case Piece::FarNear: {
        for (const Temp& t : hi_->temps) live.erase(t.name);
        live.erase(hi_->value_name);
        for (const auto& n : hi_->inner_names) live.erase(n);
        std::vector<Read> r;
        const auto skip = p.kind == Piece::FarNear ? std::function<bool(const Expr*)>(lo_skip) : std::function<bool(const Expr*)>{};
        for (const Temp& t : hi_->temps) reads(t.expr, r, skip);
        if (hi_->at != At::BeforeCall) reads(hi_->call, r, skip);
        add(live, r);
        if (p.kind == Piece::FarNear) {
          for (const Temp& t : lo_->temps) live.insert(t.name);
          if (!lo_->value_name.empty()) live.insert(lo_->value_name);
        }
        return live;
      }
      case Piece::Loop: {
        const Names out = live;
        Names in = out;
        const bool once = p.sliced && p.to == p.from + 1;
        for (int pass = 0; pass < (once ? 1 : 2); ++pass) {
          Names body = pieces(p.body, in);
          remove(body, own_writes(p.stmt));
          in.insert(body.begin(), body.end());
          if (once) in = body;
        }
        add(in, own_reads(p.stmt));
        return in;
      }
      case Piece::If: {
        live = pieces(p.body, std::move(live));
        if (!p.on_path && (p.header || p.guard_other)) add(live, own_reads(p.stmt));
        return live;
      }
      case Piece::With: {
        live = pieces(p.body, std::move(live));
        remove(live, own_writes(p.stmt));
        add(live, own_reads(p.stmt));
        return live;
      }
    }
    return live;
  }

  Names block(const Block& b, Names live) {
    for (auto it = b.rbegin(); it != b.rend(); ++it) live = statement(*it, std::move(live));
    return live;
  }

  Names statement(const Stmt* s, Names live) {
    if (!ran(s)) return live;
    switch (s->kind) {
      case StmtKind::If: {
        bool any = false;
        Names in;
        for (const Block* b : {&s->body, &s->orelse}) {
          if (!b->empty() && !std::any_of(b->begin(), b->end(), [&](const Stmt* k) { return ran(k); })) continue;
          if (b->empty()) {
            // Did every run of the statement take the body?
            const auto& runs = c_.facts.frame(frame_).by_stmt;
            const auto a = runs.find(s), k = runs.find(s->body.front());
            if (k != runs.end() && a != runs.end() && k->second.size() >= a->second.size()) continue;
          }
          const Names n = block(*b, live);
          in.insert(n.begin(), n.end());
          any = true;
        }
        if (!any) in = live;
        add(in, own_reads(s));
        return in;
      }
      case StmtKind::For:
      case StmtKind::While: {
        Names in = live;
        for (int pass = 0; pass < 2; ++pass) {
          Names body = block(s->body, in);
          remove(body, own_writes(s));
          in.insert(body.begin(), body.end());
        }
        const Names other = block(s->orelse, live);
        in.insert(other.begin(), other.end());
        add(in, own_reads(s));
        return in;
      }
      case StmtKind::With: {
        Names in = block(s->body, std::move(live));
        remove(in, own_writes(s));
        add(in, own_reads(s));
        return in;
      }
      case StmtKind::Try: {
        Names in = block(s->finally, std::move(live));
        in = block(s->orelse, std::move(in));
        for (const auto& h : s->handlers) {
          const Names n = block(h.body, in);
          in.insert(n.begin(), n.end());
        }
        in = block(s->body, std::move(in));
        return in;
      }
      case StmtKind::Match: {
        Names in = live;
        for (const auto& k : s->cases) {
          const Names n = block(k.body, live);
          in.insert(n.begin(), n.end());
        }
        add(in, own_reads(s));
        return in;
      }
      default:
        if (s->kind != StmtKind::AugAssign) remove(live, own_writes(s));
        add(live, own_reads(s));
        return live;
    }
  }

  const Context& c_;
  FrameId frame_;
  Clock from_, to_;
  const Boundary *lo_, *hi_;
};

}  // namespace

std::set<std::string> live_in(const Context& c, FrameId f, const std::vector<Piece>& p, std::set<std::string> out, Clock from, Clock to,
                              const Boundary* lo, const Boundary* hi) {
  return Live(c, f, from, to, lo, hi).pieces(p, std::move(out));
}

}  // namespace shardwright::rewrite::stage
