#include "rewrite/stage_init.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "program/visit.h"
#include "rewrite/text_layout.h"

namespace shardwright::rewrite::stage {

namespace {

void for_statements(const Block& b, const std::function<void(const Stmt*)>& visit) {
  program::walk(b, [&](const Stmt* s) {
    visit(s);
    return s->kind != StmtKind::FunctionDef && s->kind != StmtKind::ClassDef;
  });
}

/// `name.append(…)`, `name[i] = …`, `name.x = …`, `name += …`: changes what the name holds and does nothing else.
bool fills(const Stmt* s, const std::string& name) {
  static const std::set<std::string> methods{"append", "extend", "insert", "add_module", "register_module", "update"};
  auto is = [&](const Expr* e) { return e->kind == ExprKind::Name && e->text == name; };
  if (s->kind == StmtKind::Expression && s->value && s->value->kind == ExprKind::Call) {
    const Expr* f = s->value->kids[0];
    return f->kind == ExprKind::Attribute && is(f->kids[0]) && methods.count(f->text) != 0;
  }
  if (s->kind == StmtKind::AugAssign) return is(s->targets[0]);
  if (s->kind != StmtKind::Assign || s->targets.size() != 1) return false;
  const Expr* to = s->targets[0];
  return (to->kind == ExprKind::Subscript || to->kind == ExprKind::Attribute) && is(to->kids[0]);
}

bool simple(const Stmt* s) {
  return s->kind == StmtKind::Assign || s->kind == StmtKind::AnnAssign || s->kind == StmtKind::AugAssign ||
      s->kind == StmtKind::Expression || s->kind == StmtKind::Delete || s->kind == StmtKind::Assert;
}

/// `nn.ModuleList()`, `nn.ModuleList([])`.
bool empty_container(const Expr* call) {
  static const std::set<std::string> names{"ModuleList", "ModuleDict", "Sequential"};
  if (call->kind != ExprKind::Call || !names.count(call->kids[0]->text)) return false;
  return call->args.empty() ||
      (call->args.size() == 1 && call->args[0].value && call->args[0].value->kids.empty() &&
       (call->args[0].value->kind == ExprKind::List || call->args[0].value->kind == ExprKind::Dict));
}

/// `super().__init__(…)`, `Base.__init__(self, …)`: never left out; what it makes is made by statements of the other constructor.
bool calls_constructor(const Stmt* s) {
  return s->kind == StmtKind::Expression && s->value && s->value->kind == ExprKind::Call &&
      s->value->kids[0]->kind == ExprKind::Attribute && s->value->kids[0]->text == "__init__";
}

}  // namespace

InitSlice::InitSlice(const Context& c, const Use& use, int stage, ModuleId m) : c_(c), use_(use), stage_(stage), module_(m) {
  collect();
  if (!use_.divided(stage, m)) {
    sites();
    return;
  }
  if (whole()) {
    sites();
    narrow_ = module_ == 0;  // not before the root's constructor has done with what is built
    return;
  }
  rounds();
  sites();
  guards();
}

void InitSlice::collect() {
  const Trace& t = c_.trace;
  for (const auto& f : t.frames) {
    if (!f.init || f.builtin || f.self != module_ || !f.function || !f.function->owner) continue;
    if (std::find(functions_.begin(), functions_.end(), f.function) == functions_.end()) functions_.push_back(f.function);
    frames_[f.function].push_back(f.id);
  }
}

/// Not called by a statement that was dropped.
bool InitSlice::live_frame(FrameId f) const {
  const Trace& t = c_.trace;
  for (FrameId x = f; x >= 0; x = t.frame(x).parent) {
    const auto& fr = t.frame(x);
    if (fr.self != module_ || fr.step < 0 || fr.parent < 0 || t.frame(fr.parent).self != module_) break;
    for (const Stmt* s : c_.index(fr.parent).chain(t.step(fr.step).stmt))
      if (drop_.count(s)) return false;
  }
  return true;
}

bool InitSlice::unheld(const model::AttrWrite& w) const {
  if (late_.count({w.owner, w.name})) return false;
  switch (w.kind) {
    case model::AttrWrite::Child: {
      // Replaced later (`self.head = nn.Sequential(*self.head)`): what the name holds in the end decides.
      ModuleId m = w.value.module;
      if (m > 0 && use_.nowhere(m) && w.owner >= 0) {
        const auto& kids = c_.trace.module(w.owner).children;
        const auto at = std::find_if(kids.begin(), kids.end(), [&](const auto& k) { return k.first == w.name; });
        m = at == kids.end() ? -1 : at->second;
      }
      return m >= 0 && !use_.holds(stage_, m);
    }
    case model::AttrWrite::Parameter:
    case model::AttrWrite::Buffer: return use_.holds(stage_, w.owner) ? !use_.holds(stage_, Named{w.owner, w.name}) : true;
    default: return false;
  }
}

/// When a statement ran: a list that the constructor fills has another last element each time.
std::vector<model::Clock> InitSlice::times_of(const Function* f, const Stmt* s) const {
  std::vector<model::Clock> out;
  for (const FrameId id : frames_.at(f))
    if (const auto it = c_.facts.frame(id).by_stmt.find(s); it != c_.facts.frame(id).by_stmt.end())
      for (const StepId step : it->second) out.push_back(c_.trace.step(step).begin);
  if (out.empty()) out.push_back(-1);
  return out;
}

bool InitSlice::reads_dropped(const Function* f, const Stmt* s, std::vector<std::pair<ModuleId, std::string>>* which) const {
  bool found = false;
  const auto times = times_of(f, s);
  auto expr = [&](const Expr* top) {
    program::walk(top, [&](const Expr* e) {
      if (e->kind != ExprKind::Attribute && e->kind != ExprKind::Subscript) return true;
      std::vector<std::pair<ModuleId, std::string>> passed;
      for (const model::Clock at : times) use_.resolve(module_, e, self_name(f), &passed, at);
      for (const auto& [m, attr] : passed) {
        if (late_.count({m, attr})) continue;
        for (const auto& [name, child] : c_.trace.module(m).children)
          if (name == attr && child >= 0 && !use_.holds(stage_, child)) {
            found = true;
            if (which) which->emplace_back(m, attr);
          }
        for (const auto& p : c_.trace.module(m).params)
          if (p.attr == attr && p.tensor >= 0 && !use_.holds(stage_, Named{m, attr})) {
            found = true;
            if (which) which->emplace_back(m, attr);
          }
      }
      return true;
    });
  };
  for (const Expr* e : s->targets) {
    // The target `self.x` itself is written, not read; what leads to it is read.
    if (e->kind == ExprKind::Attribute || e->kind == ExprKind::Subscript) expr(e->kids[0]);
    else if (e->kind == ExprKind::Tuple)
      for (const Expr* k : e->kids)
        if (k->kind == ExprKind::Attribute) expr(k->kids[0]);
  }
  if (s->value) expr(s->value);
  if (s->extra) expr(s->extra);
  // A local whose statements are all gone.
  for (const auto& r : own_reads(s)) {
    int here = 0, gone = 0;
    for_statements(f->body, [&](const Stmt* k) {
      const auto w = own_writes(k);
      if (k == s || std::find(w.begin(), w.end(), r.name) == w.end()) return;
      ++here;
      gone += drop_.count(k) != 0;
    });
    found |= here > 0 && here == gone;
  }
  return found;
}

/// May the statement change, as an initialisation does, parameters or modules that the stage holds? `for p in (self.a, self.b): init(p)`
/// does where one of the two is held.
bool InitSlice::touches_held(const Function* f, const Stmt* s) const {
  bool found = false;
  std::vector<model::Clock> times;
  const auto held = [&](const Expr* top) {
    program::walk(top, [&](const Expr* e) {
      if (e->kind != ExprKind::Attribute && e->kind != ExprKind::Subscript) return true;
      std::vector<std::pair<ModuleId, std::string>> passed;
      for (const model::Clock at : times) use_.resolve(module_, e, self_name(f), &passed, at);
      for (const auto& [m, attr] : passed) {
        for (const auto& [name, child] : c_.trace.module(m).children)
          found |= name == attr && child >= 0 && !use_.container(child) && use_.holds(stage_, child);
        for (const auto& p : c_.trace.module(m).params) found |= p.attr == attr && p.tensor >= 0 && use_.holds(stage_, Named{m, attr});
      }
      return true;
    });
  };
  const auto calls = [&](const Expr* top) {
    program::walk(top, [&](const Expr* e) {
      if (e->kind == ExprKind::Call) held(e);
      return true;
    });
  };
  program::walk(Block{const_cast<Stmt*>(s)}, [&](const Stmt* k) {
    times = times_of(f, k);
    if (k->kind == StmtKind::Assign || k->kind == StmtKind::AnnAssign) {
      // What is only read cannot change: `n = self.a.width + self.b.width`.
      if (k->value) calls(k->value);
    } else if (k->kind == StmtKind::For || k->kind == StmtKind::Expression || k->kind == StmtKind::AugAssign) {
      if (k->value) held(k->value);
      for (const Expr* to : k->targets) held(to);
    }
    return true;
  });
  return found;
}

/// Does code that stays need something that the statement binds?
bool InitSlice::needed_later(const Function* f, const Stmt* s) const {
  std::set<const Stmt*> seen;
  return needed_later(f, s, seen);
}

bool InitSlice::needed_later(const Function* f, const Stmt* s, std::set<const Stmt*>& seen) const {
  if (!seen.insert(s).second) return false;
  const Trace& t = c_.trace;
  // Plain attributes.
  for (const FrameId id : frames_.at(f)) {
    const auto it = c_.facts.frame(id).by_stmt.find(s);
    if (it == c_.facts.frame(id).by_stmt.end()) continue;
    for (const StepId step : it->second) {
      const auto& st = t.step(step);
      const auto [wa, wb] = c_.facts.attr_writes_between(st.begin, st.end);
      for (std::size_t wi = wa; wi < wb; ++wi) {
        const auto& w = t.attr_writes[wi];
        if (w.kind == model::AttrWrite::Plain) {
          // What a constructor sets on its own object is read through that object.
          if (w.owner != module_ && !(w.frame >= 0 && t.frame(w.frame).self == module_)) continue;
          if (use_.mentions(stage_).any.count(w.name)) return true;
          for (const Function* g : functions_) {
            bool read = false;
            for_statements(g->body, [&](const Stmt* k) {
              if (k == s || drop_.count(k)) return;
              program::for_each_expr(k, [&](const Expr* e) {
                program::walk(e, [&](const Expr* x) {
                  const bool target = std::find(k->targets.begin(), k->targets.end(), x) != k->targets.end();
                  read |= x->kind == ExprKind::Attribute && x->text == w.name && !target;
                  return true;
                });
              });
            });
            if (read) return true;
          }
        } else if (!unheld(w)) {
          return true;
        }
      }
    }
  }
  // Local names; a statement that only makes something nobody needs does not count.
  for (const auto& name : own_writes(s)) {
    bool read = false;
    for_statements(f->body, [&](const Stmt* k) {
      if (read || k == s || drop_.count(k)) return;
      bool reads_it = false;
      for (const auto& r : own_reads(k)) reads_it |= r.name == name;
      if (reads_it) read = !(k->kind == StmtKind::Assign || k->kind == StmtKind::AnnAssign) || needed_later(f, k, seen);
    });
    if (read) return true;
  }
  return false;
}

bool InitSlice::round() {
  const Trace& t = c_.trace;
  bool changed = false;
  for (const Function* f : functions_) {
    for_statements(f->body, [&](const Stmt* s) {
      if (drop_.count(s)) return;
      for (const Stmt* up : c_.index(f).chain(s))
        if (drop_.count(up)) return;
      if (s->kind == StmtKind::For || s->kind == StmtKind::If || s->kind == StmtKind::With) {
        // A condition or a loop over something that is not there goes when nothing inside is needed.
        std::vector<std::pair<ModuleId, std::string>> which;
        if (!reads_dropped(f, s, &which)) return;
        bool needed = touches_held(f, s);
        program::walk(Block{const_cast<Stmt*>(s)}, [&](const Stmt* k) {
          if (k != s && simple(k)) needed |= needed_later(f, k);
          if (k->kind == StmtKind::Return || k->kind == StmtKind::Raise) needed |= s->kind != StmtKind::For;
          return true;
        });
        if (!needed) {
          drop_.insert(s);
          changed = true;
        } else {
          for (const auto& x : which) changed |= late_.insert(x).second;
          narrow_ = true;
        }
        return;
      }
      if (!simple(s) || calls_constructor(s)) return;
      // What it makes for modules.
      int held = 0, other = 0, ran = 0;
      bool plain = false;
      std::vector<const model::AttrWrite*> writes;
      for (const FrameId id : frames_.at(f)) {
        if (!live_frame(id)) continue;
        const auto it = c_.facts.frame(id).by_stmt.find(s);
        if (it == c_.facts.frame(id).by_stmt.end()) continue;
        for (const StepId step : it->second) {
          ++ran;
          const auto& st = t.step(step);
          const auto [wa, wb] = c_.facts.attr_writes_between(st.begin, st.end);
          for (std::size_t wi = wa; wi < wb; ++wi) {
            const auto& w = t.attr_writes[wi];
            // Only what happens to this module, or through it to others; what a constructor does inside is its own affair.
            if (w.owner != module_ && !(w.frame >= 0 && t.frame(w.frame).self == module_)) continue;
            if (w.kind == model::AttrWrite::Plain) {
              plain = true;
              continue;
            }
            writes.push_back(&w);
            (unheld(w) ? other : held)++;
          }
        }
      }
      if (ran == 0) {
        // In a branch that the job's arguments do not take: what it makes goes where no code that stays has its name.
        if (s->kind != StmtKind::Assign || s->targets.size() != 1 || !s->value || s->value->kind != ExprKind::Call) return;
        const Expr* to = s->targets[0];
        if (to->kind != ExprKind::Attribute || to->kids[0]->kind != ExprKind::Name || to->kids[0]->text != self_name(f)) return;
        const std::string name = to->text;
        bool read = use_.mentions(stage_).any.count(name) != 0;
        std::set<const Expr*> made;  // by this branch, or by the other ones
        for (const Function* other : functions_)
          for_statements(other->body, [&](const Stmt* k) {
            if (k->kind == StmtKind::Assign) made.insert(k->targets.begin(), k->targets.end());
          });
        for (const Function* other : functions_)
          program::walk_exprs(other->body, [&](const Expr* e) {
            read |= e->kind == ExprKind::Attribute && e->text == name && !made.count(e);
            return true;
          });
        if (!read) {
          drop_.insert(s);
          changed = true;
        }
        return;
      }
      std::vector<std::pair<ModuleId, std::string>> which;
      const bool reads = reads_dropped(f, s, &which);
      if (other > 0 && held == 0 && !plain) {
        // Code that stays asks for the attribute: it must be there.
        bool mentioned = false, parameter = false;
        for (const auto* w : writes) {
          mentioned |= use_.mentions(stage_).of_module.count({w->owner, w->name}) != 0;
          parameter |= w->kind != model::AttrWrite::Child;
        }
        if (mentioned && s->value && empty_container(s->value)) return;  // it may be asked for its length or values
        if (mentioned && !parameter && s->kind == StmtKind::Assign && s->value && s->targets.size() == 1 &&
            s->targets[0]->kind == ExprKind::Attribute) {
          if (absent_.emplace(s, f).second) changed = true;
          return;
        }
        if (!mentioned && !needed_later(f, s)) {
          drop_.insert(s);
          changed = true;
          return;
        }
        for (const auto* w : writes) changed |= late_.emplace(w->owner, w->name).second;
        narrow_ = true;
        return;
      }
      if (other > 0 && held == 0) {  // `self.table, self.width = table, width`: the one without the other cannot be written
        for (const auto* w : writes) changed |= late_.emplace(w->owner, w->name).second;
        narrow_ = true;
        return;
      }
      if (!reads) return;
      if (held == 0 && !needed_later(f, s) && !touches_held(f, s)) {
        drop_.insert(s);
        changed = true;
        return;
      }
      // Ties a held parameter to a dropped one: it simply stays itself.
      bool tie = s->kind == StmtKind::Assign && s->value && s->value->kind == ExprKind::Attribute && held > 0;
      for (const auto* w : writes) tie &= w->kind == model::AttrWrite::Parameter && w->owner != module_;
      if (tie) {
        drop_.insert(s);
        changed = true;
        return;
      }
      for (const auto& x : which) changed |= late_.insert(x).second;
      narrow_ = true;
    });
  }
  return changed;
}

/// Are there modules in `m` that this stage does not hold and that no statement of ours leaves out: copies, and what other functions made?
bool InitSlice::made_elsewhere(ModuleId m) const {
  for (const auto& [name, child] : c_.trace.module(m).children) {
    if (child < 0) continue;
    if (use_.holds(stage_, child)) {
      if (use_.divided(stage_, child) && use_.container(child) && made_elsewhere(child)) return true;
      continue;
    }
    const auto& mod = c_.trace.module(child);
    const auto& maker = mod.cloned_from >= 0 ? c_.trace.module(mod.cloned_from) : mod;
    const Function* f = maker.construct_frame >= 0 ? c_.trace.frame(maker.construct_frame).function : nullptr;
    if (m != module_ && (mod.cloned_from >= 0 || std::find(functions_.begin(), functions_.end(), f) == functions_.end())) return true;
  }
  return false;
}

void InitSlice::rounds() {
  narrow_ = narrow_ || made_elsewhere(module_);
  for (int i = 0; i < 500; ++i) {
    const std::size_t built = late_.size();
    if (!round()) break;
    if (late_.size() == built) continue;
    // A thing that is built after all brings back the statements that make it, and those that change it.
    drop_.clear();
    absent_.clear();
  }
  // Locals that only dropped statements read go, too, when making them does nothing else.
  for (bool again = true; again;) {
    again = false;
    for (const Function* f : functions_)
      for_statements(f->body, [&](const Stmt* s) {
        if (s->kind != StmtKind::Assign || drop_.count(s) || s->targets.size() != 1 || s->targets[0]->kind != ExprKind::Name) return;
        const std::string& name = s->targets[0]->text;
        bool read_by_dropped = false, read_by_kept = false;
        std::vector<const Stmt*> with{s};  // and what only fills it: layers.append(…)
        for_statements(f->body, [&](const Stmt* k) {
          if (k == s) return;
          bool gone = false;
          for (const Stmt* up : c_.index(f).chain(k)) gone |= drop_.count(up) != 0;
          if (!gone && fills(k, name)) return with.push_back(k);
          for (const auto& r : own_reads(k))
            if (r.name == name) (gone ? read_by_dropped : read_by_kept) = true;
          if (k->kind == StmtKind::FunctionDef) {
            program::NameSet n;
            program::names_read(k, n);
            read_by_kept |= n.contains(name);
          }
        });
        if (!read_by_dropped || read_by_kept) return;
        bool effects = false;
        for (const FrameId id : frames_.at(f))
          for (const Stmt* made : with) {
            const auto it = c_.facts.frame(id).by_stmt.find(made);
            if (it == c_.facts.frame(id).by_stmt.end()) continue;
            for (const StepId step : it->second) {
              const auto [wa, wb] = c_.facts.attr_writes_between(c_.trace.step(step).begin, c_.trace.step(step).end);
              for (std::size_t wi = wa; wi < wb; ++wi) {
                const auto& w = c_.trace.attr_writes[wi];
                effects |= !(w.owner >= 0 && !use_.holds(stage_, w.owner) && w.owner != module_);
              }
            }
          }
        if (effects) return;
        drop_.insert(with.begin(), with.end());
        again = true;
      });
  }
}

// ---- constructor calls that make held and other objects --------------------------------------------------------------------

bool InitSlice::container_call(const Expr* call) const {
  for (const auto& m : c_.trace.modules)
    if (m.construct_call == call && use_.container(m.id)) return true;
  const Expr* f = call->kids[0];
  static const std::set<std::string> names{"ModuleList", "Sequential",      "ModuleDict", "OrderedDict", "dict",
                                           "list",       "tuple",           "append",     "extend",      "insert",
                                           "add_module", "register_module", "setattr",    "update"};
  return (f->kind == ExprKind::Name || f->kind == ExprKind::Attribute) && names.count(f->text) != 0;
}

std::string InitSlice::condition(const std::set<int>& held, int total, const std::string& var) const {
  const int a = *held.begin(), b = *held.rbegin() + 1;
  if (static_cast<int>(held.size()) == b - a) {
    if (b == total && a > 0) return fmt::format("{} >= {}", var, a);  // and what a deeper model has: the loop in forward is open, too
    if (b - a == 1) return fmt::format("{} == {}", var, a);
    if (a == 0) return fmt::format("{} < {}", var, b);
    return fmt::format("{} <= {} < {}", a, var, b);
  }
  return fmt::format("{} in ({})", var, fmt::join(held, ", "));
}

/// The variable that counts a loop's iterations from 0; the loop's header is changed when it has none.
const InitSlice::Counter* InitSlice::counter_for(const Function* f, const void* loop, int clause) {
  if (auto it = counters_.find(loop); it != counters_.end()) return it->second.name.empty() ? nullptr : &it->second;
  Counter& c = counters_[loop];
  const Expr *target = nullptr, *iterable = nullptr;
  program::NameSet inside;
  for_statements(f->body, [&](const Stmt* s) {
    if (s == loop && s->kind == StmtKind::For) {
      target = s->targets[0];
      iterable = s->value;
      program::names_written(s->body, inside);
    }
    program::walk_exprs(Block{const_cast<Stmt*>(s)}, [&](const Expr* e) {
      if (e == loop && clause < static_cast<int>(e->clauses.size())) {
        // Later clauses repeat an iteration; conditions skip some.
        if (e->clauses.size() == 1 && e->clauses[0].conditions.empty()) {
          target = e->clauses[0].target;
          iterable = e->clauses[0].iterable;
        }
      }
      return true;
    });
  });
  if (!target || !iterable) return nullptr;
  const bool call = iterable->kind == ExprKind::Call && iterable->kids[0]->kind == ExprKind::Name;
  const bool range = call && iterable->kids[0]->text == "range" && iterable->args.size() == 1;
  const bool enumerate = call && iterable->kids[0]->text == "enumerate" && iterable->args.size() == 1 && target->kind == ExprKind::Tuple &&
      target->kids.size() == 2 && target->kids[0]->kind == ExprKind::Name;
  program::NameSet used;
  program::names_read(f->body, used);
  program::names_written(f->body, used);
  for (const auto& p : f->parameters) used.add(p.name);
  auto fresh = [&] {
    for (const char* n : {"i", "j", "k", "index"})
      if (!used.contains(n)) return std::string(n);
    for (int i = 0;; ++i)
      if (!used.contains("i" + std::to_string(i))) return "i" + std::to_string(i);
  };
  // `for _ in range(n)` that does read `_` keeps it.
  bool underscore_read = false;
  program::walk_exprs(f->body, [&](const Expr* e) {
    underscore_read = underscore_read || (e->kind == ExprKind::Name && e->text == "_" && !(e->range == target->range));
    return true;
  });
  if (range && target->kind == ExprKind::Name) {
    if (target->text == "_" && underscore_read && !inside.contains("_")) {
      c.name = target->text;
    } else if (target->text == "_" || inside.contains(target->text)) {
      if (target->text != "_") return nullptr;
      c.name = fresh();
      c.edits.push_back({target->range, c.name});
    } else {
      c.name = target->text;
    }
    return &c;
  }
  if (enumerate && !inside.contains(target->kids[0]->text)) {
    c.name = target->kids[0]->text;
    if (c.name == "_") {
      c.name = fresh();
      c.edits.push_back({target->kids[0]->range, c.name});
    }
    return &c;
  }
  c.name = fresh();
  const bool wrap = target->kind == ExprKind::Tuple && c_.text(target->range)[0] != '(';
  c.edits.push_back({{target->range.file, target->range.begin, target->range.begin}, c.name + ", " + (wrap ? "(" : "")});
  if (wrap) c.edits.push_back({{target->range.file, target->range.end, target->range.end}, ")"});
  const Range it = iterable->kind == ExprKind::GeneratorExp ? iterable->range : iterable->outer;
  c.edits.push_back({{it.file, it.begin, it.begin}, "enumerate("});
  c.edits.push_back({{it.file, it.end, it.end}, ")"});
  return &c;
}

void InitSlice::sites() {
  for (const Function* f : functions_)
    for_statements(f->body, [&](const Stmt* s) {
      for (const Stmt* up : c_.index(f).chain(s))
        if (drop_.count(up) || absent_.count(up)) return;
      const bool target_ok = s->kind != StmtKind::For && s->kind != StmtKind::If && s->kind != StmtKind::While && s->kind != StmtKind::With;
      program::for_each_expr(s, [&](const Expr* e) { visit_sites(f, s, e, target_ok && e == s->value); });
    });
  calls_that_build();
  for (const auto& [s, f] : absent_) {
    edits_[f].push_back({s->value->outer, "Absent()"});
    uses_absent_ = true;
  }
  for (const void* loop : used_counters_)
    for (const Edit& e : counters_[loop].edits)
      for (const Function* f : functions_)
        if (f->range.contains(e.range)) edits_[f].push_back(e);
}

/// A function (a registry's `build(kind)`) is called in a loop, and what it makes in some iterations is held in part: the specialiser picks
/// the function by a counter.
void InitSlice::calls_that_build() {
  const Trace& t = c_.trace;
  for (const ModuleId m : use_.partial(stage_)) {
    if (t.module(m).cloned_from >= 0) continue;
    FrameId called = -1, at = t.module(m).construct_frame;
    while (at >= 0 && t.frame(at).self != module_) {
      if (t.frame(at).self >= 0 || t.frame(at).builtin) break;
      called = at;
      at = t.frame(at).parent;
    }
    if (called < 0 || at < 0 || t.frame(at).self != module_ || !live_frame(at) || !t.frame(called).call) continue;
    const auto& iters = t.frame(called).iters;
    if (iters.empty() || !frames_.count(t.frame(at).function)) continue;
    const auto& last = iters.back();
    if (counter_for(t.frame(at).function, last.loop, last.clause)) used_counters_.insert(last.loop);
  }
}

void InitSlice::visit_sites(const Function* f, const Stmt* s, const Expr* e, bool ok) {
  if (!e || e->kind == ExprKind::Lambda) return;
  if (e->kind == ExprKind::Call) {
    site(f, e, ok);
    const bool inner = ok && container_call(e);
    visit_sites(f, s, e->kids[0], false);
    for (const auto& a : e->args) visit_sites(f, s, a.value, inner || (container_call(e) && s->kind == StmtKind::Expression));
    return;
  }
  const bool transparent = e->kind == ExprKind::List || e->kind == ExprKind::Tuple || e->kind == ExprKind::Starred ||
      e->kind == ExprKind::ListComp || e->kind == ExprKind::GeneratorExp || e->kind == ExprKind::Dict || e->kind == ExprKind::Conditional ||
      e->kind == ExprKind::DictComp || e->kind == ExprKind::Binary;
  program::for_each_child(e, [&](const Expr* k) { visit_sites(f, s, k, ok && transparent); });
}

void InitSlice::site(const Function* f, const Expr* e, bool ok) {
  const Trace& t = c_.trace;
  struct Made {
    ModuleId m;
    bool held;
    bool partial;
    int index;
  };
  std::vector<Made> made;
  const void* loop = nullptr;
  int clause = 0;
  bool one_loop = true;
  for (const auto& m : t.modules) {
    if (m.construct_call != e || m.construct_frame < 0 || m.cloned_from >= 0) continue;
    const auto& frames = frames_.at(f);
    if (std::find(frames.begin(), frames.end(), m.construct_frame) == frames.end() || !live_frame(m.construct_frame)) continue;
    // Registered nowhere (a prototype that is copied): as it is.
    if (m.id != 0 && m.parent < 0) return;
    // Inside something that is not built either.
    ModuleId up = m.parent;
    bool outer_gone = false;
    while (up >= 0 && up != module_) {
      if (t.module(up).construct_frame == m.construct_frame && !use_.holds(stage_, up) && t.module(up).construct_call &&
          t.module(up).construct_call->range.contains(e->range) && t.module(up).construct_call != e)
        outer_gone = true;
      up = t.module(up).parent;
    }
    if (outer_gone) continue;
    Made x{m.id, use_.holds(stage_, m.id) || late_.count({m.parent, m.attr}) != 0, false, 0};
    x.partial = std::find(use_.partial(stage_).begin(), use_.partial(stage_).end(), m.id) != use_.partial(stage_).end();
    if (m.construct_iters.empty()) {
      one_loop = false;
    } else {
      const auto& last = m.construct_iters.back();
      if (loop && loop != last.loop) one_loop = false;
      loop = last.loop;
      clause = last.clause;
      x.index = last.index;
    }
    made.push_back(x);
  }
  if (made.empty()) return;
  std::set<int> held, other, whole, partial;
  for (const Made& x : made) {
    (x.held ? held : other).insert(x.index);
    if (x.held) (x.partial ? partial : whole).insert(x.index);
  }
  // The specialiser picks the class by a counter where some objects are held in part.
  if (one_loop && loop && !partial.empty() && (partial.size() > 1 || !whole.empty()))
    if (counter_for(f, loop, clause)) used_counters_.insert(loop);
  if (other.empty() || empty_container(e)) return;  // filled later: what is put in may be absent, it may not
  if (!ok || this->whole()) {
    narrow_ = true;
    return;
  }
  if (held.empty()) {
    edits_[f].push_back({e->outer, "Absent()"});
    uses_absent_ = true;
    return;
  }
  bool both = false;
  for (const int i : held) both |= other.count(i) != 0;
  const Counter* counter = one_loop && loop && !both ? counter_for(f, loop, clause) : nullptr;
  if (!counter) {
    narrow_ = true;
    return;
  }
  used_counters_.insert(loop);
  int n = 0;
  for (const Made& x : made) n = std::max(n, x.index + 1);
  const std::string cond = condition(held, n, counter->name);
  // Below a long constructor call the condition gets a line of its own.
  const std::string source = c_.text(e->range);
  std::string glue = " ";
  const bool in_brackets = c_.index(f).parent(e) != nullptr;
  if (source.find('\n') != std::string::npos && in_brackets) {
    std::size_t col = 0;
    const std::string& file = c_.sources.file(e->range.file).text;
    std::uint32_t at = e->range.begin;
    while (at > 0 && file[at - 1] != '\n') --at;
    while (file[at + col] == ' ' || file[at + col] == '\t') ++col;
    glue = "\n" + std::string(col, ' ');
  }
  edits_[f].push_back({{e->outer.file, e->outer.end, e->outer.end}, glue + "if " + cond + " else Absent()"});
  uses_absent_ = true;
}

// ---- loops over containers with gaps ------------------------------------------------------------------------------------------

void InitSlice::guards() {
  const Trace& t = c_.trace;
  for (const Function* f : functions_)
    for_statements(f->body, [&](const Stmt* s) {
      if (s->kind != StmtKind::For || s->body.empty()) return;
      for (const Stmt* up : c_.index(f).chain(s))
        if (drop_.count(up)) return;
      program::NameSet targets;
      for (const Expr* e : s->targets) program::target_names(e, targets);
      for (const auto& name : targets.names()) {
        bool gaps = false;
        std::set<std::string> missing, stand_in;  // attributes that some object held in part lacks, or has an Absent for
        for (const FrameId id : frames_.at(f)) {
          const auto w = c_.facts.frame(id).by_name.find(name);
          if (w == c_.facts.frame(id).by_name.end()) continue;
          for (const int i : w->second) {
            const auto& vw = t.var_writes[static_cast<std::size_t>(i)];
            if (vw.step < 0 || t.step(vw.step).stmt != s || vw.value.kind != Binding::Module || vw.value.module < 0) continue;
            if (!use_.holds(stage_, vw.value.module)) {
              gaps = true;
            } else if (use_.divided(stage_, vw.value.module)) {
              for (const auto& [attr, child] : t.module(vw.value.module).children)
                if (child >= 0 && !use_.holds(stage_, child)) {
                  missing.insert(attr);
                  if (use_.mentions(stage_).of_module.count({vw.value.module, attr})) stand_in.insert(attr);
                }
              for (const auto& p : t.module(vw.value.module).params)
                if (!use_.holds(stage_, Named{vw.value.module, p.attr})) missing.insert(p.attr);
            }
          }
        }
        bool touched = false;
        std::map<const Stmt*, std::string> by_statement;
        for_statements(s->body, [&](const Stmt* k) {
          program::for_each_expr(k, [&](const Expr* top) {
            program::walk(top, [&](const Expr* e) {
              if (e->kind == ExprKind::Attribute && e->kids[0]->kind == ExprKind::Name && e->kids[0]->text == name) {
                touched = true;
                if (missing.count(e->text) && simple(k)) by_statement[k] = e->text;
              }
              return true;
            });
          });
        });
        if (!touched) continue;
        const std::string step(c_.layout(f).step(), ' ');
        // Where the statements of a block that is guarded begin; each gets a line of its own.
        const auto lines_of = [&](const Block& b, const Stmt* header, bool all) {
          const Suite lines = suite_of(c_.sources, b, &b == &header->body ? header->range.begin : b.front()->range.begin);
          if (lines.on_header || all)
            for (const auto& [range, text] : lines.breaks) edits_[f].push_back({range, text});
          return lines.indent;
        };
        const Stmt* first = s->body.front();
        if (gaps) {
          const std::string in = lines_of(s->body, s, false);
          edits_[f].push_back({{first->range.file, first->range.begin, first->range.begin},
                               "if isinstance(" + name + ", Absent):\n" + in + step + "continue\n" + in});
          uses_absent_ = true;
        }
        for (const auto& [k, attr] : by_statement) {
          std::string test = "hasattr(" + name + ", \"" + attr + "\")";
          if (stand_in.count(attr)) {
            test = "not isinstance(getattr(" + name + ", \"" + attr + "\", Absent()), Absent)";
            uses_absent_ = true;
          }
          const auto* at = c_.index(f).place(k);
          const std::string in = lines_of(*at->block, at->parent, true);
          edits_[f].push_back({{k->range.file, k->range.begin, k->range.begin}, "if " + test + ":\n" + in + step});
        }
      }
    });
}

// ---- what is built whole and narrowed -------------------------------------------------------------------------------------------

void InitSlice::keep_list(ModuleId m, const std::string& prefix, std::vector<std::string>& out) const {
  const auto& mod = c_.trace.module(m);
  for (const auto& p : mod.params)
    if (p.tensor >= 0 && use_.holds(stage_, Named{m, p.attr})) out.push_back(prefix + p.attr);
  for (const auto& [name, child] : mod.children) {
    if (child < 0 || !use_.holds(stage_, child)) continue;
    if (!use_.divided(stage_, child) || (!use_.container(child) && !whole())) {
      out.push_back(prefix + name);
      continue;
    }
    const std::size_t before = out.size();
    keep_list(child, prefix + name + ".", out);
    if (whole() && out.size() == before) out.push_back(prefix + name + ".");  // itself, without what it holds
  }
}

std::vector<std::string> InitSlice::keep_list() const {
  std::vector<std::string> out;
  keep_list(module_, "", out);
  if (whole() && module_ == 0)
    for (const auto& name : use_.described(stage_))
      if (std::none_of(out.begin(), out.end(), [&](const std::string& k) { return name == k || name.rfind(k + ".", 0) == 0; }))
        out.push_back(name);
  return out;
}

std::string InitSlice::counter(const void* loop) const {
  const auto it = counters_.find(loop);
  return it == counters_.end() || !used_counters_.count(loop) ? "" : it->second.name;
}

}  // namespace shardwright::rewrite::stage
