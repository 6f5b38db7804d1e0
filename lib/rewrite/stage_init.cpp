#include "rewrite/stage_init.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "program/visit.h"
#include "rewrite/text_layout.h"

namespace shardwright::rewrite::stage {

namespace {

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
  leave_bases();
  rounds();
  sites();
  guards();
}

/// A base class is taken as it is where its methods neither make modules or parameters that the stage lacks nor speak of any: a library's
/// base of all models is not copied for the sake of a buffer, which is dropped at the end.
void InitSlice::leave_bases() {
  const auto& m = c_.trace.module(module_);
  const Function* init = m.init_frame >= 0 ? c_.trace.frame(m.init_frame).function : nullptr;
  const auto spoken_of = [&](const Function* f) {
    bool found = false;
    for_statements(f->body, [&](const Stmt* s) { found = found || reads_dropped(f, s, nullptr); });
    return found;
  };
  std::set<const program::ClassDef*> edited{m.class_def};
  std::set<FrameId> buffers, others;  // frames that make what the stage lacks
  for (const auto& w : c_.trace.attr_writes)
    if (unheld(w)) (w.kind == model::AttrWrite::Buffer ? buffers : others).insert(w.frame);
  const auto any = [&](const Function* f, const std::set<FrameId>& of) {
    return std::any_of(frames_.at(f).begin(), frames_.at(f).end(), [&](FrameId id) { return of.count(id) > 0; });
  };
  for (const Function* f : functions_) {
    if (f != init && !any(f, others) && !spoken_of(f)) continue;
    // What calls it has to be looked into as well: `finish` of one base, which ties by a method of another.
    for (const FrameId id : frames_.at(f))
      for (FrameId x = id; x >= 0 && c_.trace.frame(x).self == module_; x = c_.trace.frame(x).parent)
        if (const Function* by = c_.trace.frame(x).function; by && by->owner) edited.insert(by->owner);
  }
  std::erase_if(functions_, [&](const Function* f) {
    if (edited.count(f->owner)) return false;
    narrow_ = narrow_ || any(f, buffers);
    return true;
  });
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

/// Does the statement call methods of ours that do more than make things: `self.finish()` that initialises all and ties two weights? What
/// they make is their own statements' affair.
bool InitSlice::does_more(const Function* f, const Stmt* s) const {
  const Trace& t = c_.trace;
  std::set<const Expr*> followed;  // calls of methods of ours
  std::set<const Function*> called;
  for (const Function* g : functions_)
    for (const FrameId id : frames_.at(g)) {
      followed.insert(t.frame(id).call);
      for (FrameId x = id; x >= 0 && t.frame(x).parent >= 0; x = t.frame(x).parent) {
        const auto& fr = t.frame(x);
        if (t.frame(fr.parent).function != f || t.frame(fr.parent).self != module_ || fr.step < 0) continue;
        for (const Stmt* at : c_.index(fr.parent).chain(t.step(fr.step).stmt))
          if (at == s) called.insert(g);
      }
    }
  bool more = false;
  for (const Function* g : called)
    for_statements(g->body, [&](const Stmt* k) {
      more |= k->kind == StmtKind::Expression && k->value && k->value->kind == ExprKind::Call && !followed.count(k->value);
    });
  return more;
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
        if (does_more(f, s)) return;
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
      if (other > 0 && held > 0) {  // `self.encoder, self.decoder = encoder, decoder`: what the stage lacks goes at the end
        for (const auto* w : writes)
          if (unheld(*w)) changed |= late_.emplace(w->owner, w->name).second;
        narrow_ = true;
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
