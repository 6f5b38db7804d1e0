// How a stage gets, at its beginning, the values that its part of the frames needs. See stage_provide.h.
#include "rewrite/stage_provide.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "program/visit.h"

namespace shardwright::rewrite::stage {

ArgumentAt argument(const Trace& t, FrameId f, const std::string& param) {
  ArgumentAt a;
  const Function& fn = *t.frame(f).function;
  const Expr* call = t.frame(f).call;
  std::size_t n = fn.parameters.size();
  for (std::size_t i = 0; i < fn.parameters.size(); ++i)
    if (fn.parameters[i].name == param) n = i;
  if (n == fn.parameters.size() || !call) return a;
  if (fn.parameters[n].kind == program::Parameter::VarArgs || fn.parameters[n].kind == program::Parameter::VarKeywords) {
    a.variadic = true;
    return a;
  }
  std::size_t at = 1;  // self
  for (const auto& arg : call->args) {
    if (arg.double_star) {
      a.unclear = true;
      continue;
    }
    if (arg.star) {
      a.unclear = true;
      at = 1000;
      continue;
    }
    if (!arg.keyword.empty()) {
      if (arg.keyword == param) return {arg.value, param};
      continue;
    }
    if (at == n) return {arg.value, ""};
    ++at;
  }
  return a;
}

bool is_iterator(const Binding& b) {
  if (b.kind != Binding::Other) return false;
  for (const char* s : {"iter", "generator", "zip", "enumerate", "map", "filter", "reversed"})
    if (b.text.find(s) != std::string::npos && b.text.rfind("unknown", 0) != 0) return true;
  return false;
}

Resolver::Resolver(const Context& c, StageSlice& stage, CutView& lo, CutView* hi)
    : c_(c), stage_(stage), lo_(lo), hi_(hi), clock_(lo.cut.clock) {
  for (const auto& r : lo.cut.recompute) recompute_.insert(r.tensor);
  state_.resize(lo.levels.size());
}

void Resolver::run(const std::function<std::set<std::string>(FrameId)>& live_out) {
  const std::size_t n = lo_.levels.size();
  live_.resize(n);
  for (auto& b : lo_.levels) {
    b.own.clear();
    b.inner_names.clear();
    b.passed.clear();
    b.kept_defaults.clear();
  }
  for (std::size_t l = n; l-- > 0;) {
    const FrameSlice& f = stage_.frames.at(lo_.levels[l].frame);
    live_[l] = live_in(c_, f.frame, f.pieces, live_out(f.frame), stage_.from, stage_.to, f.lo, f.hi);
  }
  for (std::size_t l = n; l-- > 0;) tensors(l);
  for (std::size_t l = n; l-- > 0;) others(l);
  for (std::size_t l = n; l-- > 0;) headers(l, stage_.frames.at(lo_.levels[l].frame).pieces);
  if (!error_.empty()) {
    stage_.error = error_;
    return;
  }
  finish();
}

bool Resolver::is_self(std::size_t l, const std::string& name) const {
  const auto& p = c_.trace.frame(frame(l)).function->parameters;
  return !p.empty() && p[0].name == name;
}

void Resolver::fail(const std::string& why) {
  if (error_.empty()) error_ = why;
}

std::vector<std::string> Resolver::ordered(std::size_t l) const {
  std::vector<std::pair<Clock, std::string>> v;
  for (const auto& n : live_[l]) {
    const int w = current(l, n);
    const auto it = c_.facts.frame(frame(l)).by_name.find(n);
    v.emplace_back(w < 0 ? clock_ : write(it->second.front()).clock, n);
  }
  std::sort(v.begin(), v.end());
  std::vector<std::string> out;
  for (auto& x : v) out.push_back(x.second);
  return out;
}

void Resolver::input(const std::string& name, int w) {
  auto& v = state_[0].inputs;
  if (std::find(v.begin(), v.end(), name) == v.end()) v.push_back(name);
  state_[0].top[name] = w;
}

/// `obj["y"] = x` before the cut, where obj is what the model is given: a later stage's own is as the caller made it.
bool Resolver::changed_input(const std::string& name, int w) const {
  const auto kind = write(w).value.kind;
  if (kind == Binding::Tensor || kind == Binding::None) return false;
  bool changed = false;
  const auto is = [&](const Expr* e) {
    const Expr* root = program::root_name(e);
    return e->kind != ExprKind::Name && root && root->text == name;
  };
  program::walk(c_.trace.frame(frame(0)).function->body, [&](const Stmt* s) {
    bool writes = false;
    for (const Expr* t : s->targets) writes = writes || is(t);
    if (s->kind == StmtKind::Expression && s->value && s->value->kind == ExprKind::Call && is(s->value->kids[0])) {
      static const std::set<std::string> kChanges{"update", "pop",    "popitem", "setdefault", "clear",
                                                  "append", "extend", "insert",  "remove"};
      writes = kChanges.count(s->value->kids[0]->text) != 0;
    }
    changed = changed || (writes && c_.facts.step_at(frame(0), s, c_.trace.forward_begin, clock_) >= 0);
    return !changed && s->kind != StmtKind::FunctionDef && s->kind != StmtKind::ClassDef;
  });
  return changed;
}

bool Resolver::provide(std::size_t l, int w, bool more_inputs) {
  const std::string& name = write(w).name;
  if (is_self(l, name) && c_.facts.at_entry(w)) return true;
  const auto held = state_[l].top.find(name);
  if (held != state_[l].top.end()) {
    if (held->second == w || (held->second == -1 && w == current(l, name))) return true;
    return false;
  }
  if (state_[l].by_statement.count(w)) return true;
  if (depth_ > 60) return false;
  struct Depth {
    int& d;
    explicit Depth(int& x) : d(x) { ++d; }
    ~Depth() { --d; }
  } depth(depth_);
  const Binding& v = write(w).value;
  if (is_iterator(v)) return false;
  if (c_.facts.at_entry(w)) {
    if (l == 0) {
      if (c_.facts.flows(v) && !more_inputs) return false;
      // `x` is bound anew before the cut and what it is then crosses: the input has to be read before that is unpacked (early).
      if (c_.facts.flows(v) && current(0, name) != w && live_[0].count(name)) return false;
      if (changed_input(name, w)) return false;
      input(name, w);
      return true;
    }
    if (attempt([&] { return pass(l, name, w, more_inputs); })) return true;
  }
  if (c_.facts.flows(v)) return false;
  if (!c_.facts.at_entry(w) && attempt([&] { return by_statement(l, w, more_inputs, false); })) return true;
  return false;
}

bool Resolver::pass(std::size_t l, const std::string& name, int w, bool more_inputs) {
  const ArgumentAt a = argument(c_.trace, frame(l), name);
  if (a.variadic) return false;
  if (!a.expr) {
    if (a.unclear) return false;
    state_[l].defaults.push_back(name);
    state_[l].top[name] = w;
    return true;
  }
  if (at(l - 1).through_container) return false;
  const FrameId outer = frame(l - 1);
  if (c_.facts.calls_inside(outer, at(l - 1).step, a.expr)) {
    // Allowed when it makes nothing that flows.
    const auto v = c_.facts.value(outer, a.expr, at(l - 1).step);
    if (!v || c_.facts.flows(*v)) return false;
  }
  std::vector<Read> names;
  reads(a.expr, names);
  for (const auto& r : names) {
    if (is_temp(l - 1, r.name)) continue;
    const int ow = current(l - 1, r.name);
    if (ow < 0) {
      // A loop target is bound by the header that is written again.
      continue;
    }
    if (header_target(l - 1, r.name)) continue;
    if (!provide(l - 1, ow, more_inputs)) return false;
  }
  state_[l].passed.push_back({name, a.expr, a.keyword});
  state_[l].top[name] = w;
  return true;
}

bool Resolver::header_target(std::size_t l, const std::string& name) const {
  const Boundary& b = at(l);
  const int w = current(l, name);
  for (std::size_t i = 0; i + 1 < b.chain.size(); ++i) {
    if (b.chain[i]->kind != StmtKind::For && b.chain[i]->kind != StmtKind::With) continue;
    const auto targets = own_writes(b.chain[i]);
    if (std::find(targets.begin(), targets.end(), name) == targets.end()) continue;
    return w >= 0 && write(w).step >= 0 && c_.trace.step(write(w).step).stmt == b.chain[i];
  }
  return false;
}

/// `w = self.window[:n]` behind `self.window = self.window.to(x)`: here the attribute is as the constructor left it.
bool Resolver::reads_what_forward_set(std::size_t l, const Stmt* unit, Clock before) const {
  const auto& t = c_.trace;
  const auto [a, b] = c_.facts.attr_writes_between(t.forward_begin, before);
  for (std::size_t i = a; i < b; ++i) {
    const auto& w = t.attr_writes[i];
    if (w.owner < 0 || w.owner != t.frame(frame(l)).self || w.value.kind == Binding::None) continue;
    if (w.frame >= 0 && t.frame(w.frame).builtin) continue;
    bool found = false;
    program::for_each_expr(unit, [&](const Expr* top) {
      program::walk(top, [&](const Expr* e) {
        found = found || (e->kind == ExprKind::Attribute && e->text == w.name);
        return !found;
      });
    });
    if (found) return true;
  }
  return false;
}

bool Resolver::by_statement(std::size_t l, int w, bool more_inputs, bool flows_allowed) {
  const model::VarWrite& vw = write(w);
  if (vw.step < 0) return false;
  const auto& step = c_.trace.step(vw.step);
  const Boundary& b = at(l);
  const FunctionIndex& index = c_.index(frame(l));
  const auto chain = index.chain(step.stmt);
  // The part of its ancestors that the boundary shares, in the same iteration.
  std::size_t shared = 0;
  while (shared < chain.size() && shared + 1 < b.chain.size() && chain[shared] == b.chain[shared]) {
    if (chain[shared]->kind == StmtKind::For) {
      int i = 0;
      for (const auto& it : step.iters)
        if (it.loop == chain[shared]) i = it.index;
      if (i != b.iteration[shared]) return false;
    }
    ++shared;
  }
  if (shared == chain.size()) return false;  // a target of a header around the boundary
  const auto* place = index.place(chain[shared]);
  const auto* here = index.place(b.chain[shared]);
  if (!place || !here || place->block != here->block || place->index > here->index) return false;
  if (place->index == here->index) return false;
  // Conditions on the way are kept with the statement; another compound statement is kept as a whole.
  const Stmt* unit = step.stmt;
  std::size_t unit_at = chain.size() - 1;
  for (std::size_t i = shared; i + 1 < chain.size(); ++i)
    if (chain[i]->kind != StmtKind::If) {
      unit = chain[i];
      unit_at = i;
      break;
    }
  const StepId unit_step = unit == step.stmt ? vw.step : c_.facts.step_at(frame(l), unit, step.begin, step.end);
  if (unit_step < 0) return false;
  const auto& us = c_.trace.step(unit_step);
  if (!flows_allowed && !c_.facts.repeatable(us.begin, us.end)) return false;
  if (reads_what_forward_set(l, unit, us.begin)) return false;
  // Everything it reads, as it was then.
  std::vector<Read> need;
  if (unit == step.stmt && unit->body.empty()) {
    need = own_reads(unit);
  } else {
    if (unit->kind == StmtKind::FunctionDef || unit->kind == StmtKind::ClassDef) {
      need = own_reads(unit);
    } else {
      const std::vector<Piece> p{{.kind = Piece::Whole, .stmt = unit}};
      for (const auto& n : live_in(c_, frame(l), p, {}, us.begin, us.end, nullptr, nullptr)) need.push_back({n, nullptr});
    }
  }
  state_[l].keep.insert(unit);
  state_[l].by_statement.insert(w);
  if (unit == step.stmt && unit->kind == StmtKind::AugAssign) need.push_back({vw.name, nullptr});
  for (const auto& r : need)
    if (!read(l, unit, r, us.begin, more_inputs)) return false;
  // What else it binds must not be held by something else.
  for (const int other : c_.facts.frame(frame(l)).writes) {
    const auto& ow = write(other);
    if (ow.clock < us.begin || ow.clock >= us.end || other == w) continue;
    if (state_[l].top.count(ow.name) && !is_self(l, ow.name)) return false;
    state_[l].by_statement.insert(other);
  }
  if (state_[l].top.count(vw.name)) return false;
  stage_.recomputed.emplace_back(us.begin, us.end);
  for (std::size_t i = unit_at; i-- > shared;) {
    const Stmt* s = chain[i];
    if (s->kind != StmtKind::If) continue;
    const StepId is = c_.facts.step_at(frame(l), s, step.begin, step.end);
    if (is < 0) return false;
    state_[l].keep.insert(s);
    for (const auto& r : own_reads(s))
      if (!read(l, s, r, c_.trace.step(is).begin, more_inputs)) return false;
    // The branches that were not taken define the variable as well: kept, with what can be had.
    const Stmt* into = chain[i + 1];
    std::function<void(const Block&)> others_of = [&](const Block& blk) {
      for (const Stmt* k : blk) {
        if (k == into) continue;
        const auto wr = all_writes(k);
        if (std::find(wr.begin(), wr.end(), vw.name) == wr.end()) continue;
        state_[l].keep.insert(k);
        if (k->body.empty())
          for (const auto& r : own_reads(k)) attempt([&] { return read(l, k, r, c_.trace.step(is).begin, false); });
        if (k->kind == StmtKind::If) {
          for (const auto& r : own_reads(k)) attempt([&] { return read(l, k, r, c_.trace.step(is).begin, false); });
          others_of(k->body);
          others_of(k->orelse);
        }
      }
    };
    const Block* taken = index.place(into)->block;
    for (const Block* blk : {static_cast<const Block*>(&s->body), static_cast<const Block*>(&s->orelse)})
      if (blk != taken) others_of(*blk);
  }
  return true;
}

bool Resolver::early(std::size_t l, int w, bool flows_allowed) {
  if (l != 0 || write(w).step < 0) return false;
  if (state_[0].by_statement.count(w)) return true;
  const auto& step = c_.trace.step(write(w).step);
  const Stmt* s = step.stmt;
  if (!s->body.empty() || (s->kind != StmtKind::Assign && s->kind != StmtKind::AnnAssign)) return false;
  const auto* place = c_.index(frame(0)).place(s);
  if (!place || place->parent || !at(0).chain.front() || place->index >= c_.index(frame(0)).place(at(0).chain.front())->index) return false;
  if (!flows_allowed && !c_.facts.repeatable(step.begin, step.end)) return false;
  for (const auto& r : own_reads(s)) {
    const int rw = c_.facts.version(frame(0), r.name, step.begin);
    if (rw < 0 || is_self(0, r.name)) continue;
    if (c_.facts.at_entry(rw)) {
      auto& v = state_[0].inputs;
      if (std::find(v.begin(), v.end(), r.name) == v.end()) v.push_back(r.name);
      continue;
    }
    if (!early(0, rw, false)) return false;  // what it reads is an input, or no tensor that flows: never the model's work again
  }
  auto& e = state_[0].early;
  if (std::find(e.begin(), e.end(), s) == e.end()) e.push_back(s);
  for (const int other : c_.facts.frame(frame(0)).writes)
    if (write(other).clock >= step.begin && write(other).clock < step.end) state_[0].by_statement.insert(other);
  stage_.recomputed.emplace_back(step.begin, step.end);
  return true;
}

bool Resolver::read(std::size_t l, const Stmt* unit, const Read& r, Clock when, bool more_inputs) {
  const int w = c_.facts.version(frame(l), r.name, when);
  if (w < 0 || is_self(l, r.name)) return true;
  if (header_target(l, r.name)) return true;
  if (provide(l, w, more_inputs)) return true;
  const auto kind = write(w).value.kind;
  if (w == current(l, r.name) && (kind == Binding::Int || kind == Binding::Float || kind == Binding::Bool) && depth_ < 40) {
    struct Depth {
      int& d;
      explicit Depth(int& x) : d(x) { ++d; }
      ~Depth() { --d; }
    } depth(depth_);
    if (scalar(l, r.name, w)) return true;
  }
  // Tensors that cross under this very version are provided; others only by what is asked of them.
  if (write(w).value.kind != Binding::Tensor || !r.expr) return false;
  auto e = metadata(l, r.expr, write(w).value.tensor);
  if (!e) e = stand_in(l, r.expr, write(w).value.tensor, when);
  if (!e) return false;
  if (e->text != c_.text(e->range)) state_[l].edits[unit].push_back(*e);
  return true;
}

void Resolver::others(std::size_t l) {
  if (!error_.empty()) return;
  for (const auto& name : ordered(l)) {
    const int w = current(l, name);
    if (w < 0 || is_self(l, name) || is_temp(l, name)) continue;
    if (header_target(l, name)) continue;
    if (state_[l].top.count(name)) continue;
    if (!scalar(l, name, w)) {
      const auto v = write(w).value;
      std::string made;
      if (write(w).step >= 0) {
        const Range r = c_.trace.step(write(w).step).stmt->range;
        std::string line = c_.text(r);
        line = line.substr(0, line.find('\n'));
        if (line.size() > 60) line = line.substr(0, 57) + "...";
        made = " (made by `" + line + "`, " + c_.sources.describe(r) + ")";
      }
      fail("variable `" + name + "`" + made + " can neither be sent nor computed again");
      return;
    }
  }
}

bool Resolver::scalar(std::size_t l, const std::string& name, int w) {
  if (attempt([&] { return provide(l, w, false); })) return true;
  const auto v = c_.facts.contents(frame(l), name, clock_);
  if (!v) return attempt([&] { return provide(l, w, true); });
  // A kept statement that binds the name again would come after the line.
  for (const int k : state_[l].by_statement)
    if (write(k).name == name) return false;
  auto line = [&](const std::string& text) {
    state_[l].lines.emplace_back(name, text);
    state_[l].top[name] = w;
    return true;
  };
  const bool number = v->kind == Binding::Int || v->kind == Binding::Float || v->kind == Binding::Bool;
  if (number && v->sym && !c_.facts.dims.constant(v->sym)) {
    if (const auto t = size_text(l, v->sym)) return line(*t);
    if (attempt([&] { return provide(l, w, true); }) || attempt([&] { return early(l, w, false); })) return true;
    // Independent of the batch, but made of something that is gone: as it was when the model was converted.
    if (c_.facts.dims.fixed(v->sym))
      if (const auto t = literal(*v)) return line(*t);
    return false;
  }
  if (const auto t = literal(*v)) {
    // A value that an input decides is read from the input rather than frozen.
    if (attempt([&] { return provide(l, w, true); })) return true;
    return line(*t);
  }
  if (v->kind == Binding::Sequence || v->kind == Binding::Mapping) {
    if (!c_.facts.flows(*v)) {
      std::function<std::optional<std::string>(const Binding&)> text = [&](const Binding& b) -> std::optional<std::string> {
        if (b.kind == Binding::Mapping && b.text == "dict" && b.keys.empty()) {
          std::vector<std::string> items;
          for (const auto& [key, value] : b.items) {
            Binding k;
            k.kind = Binding::Str;
            k.text = key;
            const auto name = literal(k), t = text(value);
            if (!name || !t) return std::nullopt;
            items.push_back(*name + ": " + *t);
          }
          return fmt::format("{{{}}}", fmt::join(items, ", "));
        }
        if (b.kind != Binding::Sequence) return plain(l, b);
        if (b.text != "tuple" && b.text != "list") return std::nullopt;
        std::vector<std::string> items;
        for (const auto& x : b.items) {
          auto t = text(x.second);
          if (!t) return std::nullopt;
          items.push_back(*t);
        }
        if (b.text == "list") return fmt::format("[{}]", fmt::join(items, ", "));
        return fmt::format("({}{})", fmt::join(items, ", "), items.size() == 1 ? "," : "");
      };
      if (const auto t = text(*v)) return line(*t);
    }
  }
  if (attempt([&] { return provide(l, w, true); })) return true;
  // A constant tensor that cannot be made again here: sent.
  if (v->kind == Binding::Tensor && c_.trace.tensor(v->tensor).origin == model::Origin::Result && carry_value(l, name, name, *v)) {
    state_[l].top[name] = w;
    return true;
  }
  return false;
}

void Resolver::headers(std::size_t l, std::vector<Piece>& pieces) {
  for (Piece& p : pieces) {
    if (!error_.empty()) return;
    if (p.on_path && p.stmt) {
      const StepId s = c_.facts.step_at(frame(l), p.stmt, 0, clock_);
      const Clock when = s >= 0 ? last_entry(l, p.stmt) : clock_;
      if (p.kind == Piece::If) {
        if (p.header)
          p.header = attempt([&] {
            for (const auto& r : own_reads(p.stmt))
              if (!header_read(l, p.stmt, r, when)) return false;
            return true;
          });
      } else {
        for (const auto& r : own_reads(p.stmt))
          if (!header_read(l, p.stmt, r, when)) {
            fail("`" + r.name + "`, which the loop or block at " + c_.sources.describe(p.stmt->range) +
                 " reads when it is entered, has changed since");
            return;
          }
      }
    }
    headers(l, p.body);
  }
}

Clock Resolver::last_entry(std::size_t l, const Stmt* s) const {
  Clock when = clock_;
  const auto it = c_.facts.frame(frame(l)).by_stmt.find(s);
  if (it != c_.facts.frame(frame(l)).by_stmt.end())
    for (const StepId i : it->second)
      if (c_.trace.step(i).begin < clock_) when = c_.trace.step(i).begin;
  return when;
}

bool Resolver::header_read(std::size_t l, const Stmt* s, const Read& r, Clock when) {
  const int w = c_.facts.version(frame(l), r.name, when);
  if (w < 0 || is_self(l, r.name)) return true;
  if (header_target(l, r.name) && current(l, r.name) == w) return true;
  if (w == current(l, r.name)) {
    if (state_[l].top.count(r.name) || state_[l].by_statement.count(w)) return true;
    const auto v = c_.facts.contents(frame(l), r.name, clock_);
    if (v && c_.facts.flows(*v)) return false;
    return scalar(l, r.name, w);
  }
  if (read(l, s, r, when, false)) return true;
  return false;
}

bool Resolver::name_free(std::size_t l, const std::string& name) const {
  if (state_[l].top.count(name) || live_[l].count(name)) return false;
  if (is_self(l, name)) return false;
  const Boundary& b = at(l);
  for (std::size_t i = 0; i + 1 < b.chain.size(); ++i) {
    const auto targets = own_writes(b.chain[i]);
    if (std::find(targets.begin(), targets.end(), name) != targets.end()) return false;
    if (std::find_if(targets.begin(), targets.end(), [&](const auto& x) { return x == name; }) != targets.end()) return false;
  }
  for (const Stmt* s : state_[l].keep) {
    const auto wr = all_writes(s);
    if (std::find(wr.begin(), wr.end(), name) != wr.end()) return false;
  }
  // A global that the function reads under this name.
  const Function& f = *c_.trace.frame(frame(l)).function;
  if (std::find(f.locals.begin(), f.locals.end(), name) == f.locals.end()) {
    program::NameSet used;
    program::names_read(f.body, used);
    if (used.contains(name)) return false;
  }
  return !is_temp(l, name);
}

void Resolver::finish() {
  const std::size_t n = lo_.levels.size();
  for (std::size_t l = n; l-- > 0;) {
    Boundary& b = lo_.levels[l];
    b.own = state_[l].own;
    if (l + 1 < n) {
      b.passed = state_[l + 1].passed;
      b.kept_defaults = state_[l + 1].defaults;
      std::set<std::string> taken;
      for (const Slot& s : b.own) taken.insert(s.name);
      for (const Slot& s : lo_.carried(l + 1)) {
        std::string name = s.name;
        if (!name_free(l, name) || taken.count(name)) {
          std::set<std::string> t = taken;
          for (const auto& [k, v] : state_[l].top) t.insert(k);
          name = fresh_name(c_, b.frame, "h", t);
        }
        taken.insert(name);
        b.inner_names.push_back(name);
      }
    }
    FrameSlice& f = stage_.frames.at(b.frame);
    f.provided = state_[l];
    // In the order of the parameters.
    const Function& fn = *c_.trace.frame(b.frame).function;
    if (l == 0) {
      std::vector<std::string> sorted;
      for (const auto& p : fn.parameters)
        if (std::find(f.provided.inputs.begin(), f.provided.inputs.end(), p.name) != f.provided.inputs.end()) sorted.push_back(p.name);
      f.provided.inputs = sorted;
    }
  }
  if (n > 1 && lo_.levels[n - 2].through_container)
    for (std::size_t l = 1; l < n; ++l)
      if (lo_.levels[l - 1].through_container && !state_[l].passed.empty())
        stage_.error = "arguments cannot be handed through the container";
}

namespace {

/// Takes out pieces that come to nothing: the cut lies before a call, and nothing of the statement is needed before it.
void prune(std::vector<Piece>& pieces, const Boundary& hi) {
  std::erase_if(pieces, [&](Piece& p) {
    switch (p.kind) {
      case Piece::Near: return hi.temps.empty() && (hi.at == At::BeforeCall || (hi.at == At::Inner && hi.inner_names.empty()));
      case Piece::Loop:
      case Piece::With:
        if (p.body.empty()) return false;
        prune(p.body, hi);
        return p.body.empty();
      case Piece::If: prune(p.body, hi); return p.body.empty() && !p.guard_other;
      default: return false;
    }
  });
}

}  // namespace

StageSlice analyse(const Context& c, int stage, CutView* lo, CutView* hi) {
  StageSlice s;
  s.stage = stage;
  s.from = lo ? lo->cut.clock : c.trace.forward_begin;
  s.to = hi ? hi->cut.clock : std::numeric_limits<Clock>::max();
  for (CutView* v : {lo, hi}) {
    if (!v) continue;
    for (Boundary& b : v->levels) {
      b.cut = &v->cut;
      // An inner frame of which nothing is needed does not begin before the cut.
      if (v == hi && b.level > 0 && hi->carried(static_cast<std::size_t>(b.level)).empty() && !s.frames.count(b.frame)) break;
      FrameSlice& f = s.frames[b.frame];
      f.frame = b.frame;
      (v == lo ? f.lo : f.hi) = &b;
    }
  }
  for (auto& [id, f] : s.frames) {
    f.pieces = pieces(c, id, f.lo, f.hi, s.error);
    if (!s.error.empty()) return s;
    if (f.hi) prune(f.pieces, *f.hi);
  }
  if (lo) {
    auto live_out = [&](FrameId id) {
      std::set<std::string> out;
      const FrameSlice& f = s.frames.at(id);
      if (f.hi)
        for (const Slot& x : f.hi->own) out.insert(x.base);
      return out;
    };
    Resolver(c, s, *lo, hi).run(live_out);
  }
  return s;
}

}  // namespace shardwright::rewrite::stage
