#include "rewrite/stage_use.h"

#include <algorithm>
#include <functional>

#include "program/visit.h"

namespace shardwright::rewrite::stage {

Use::Use(const Context& c, const std::vector<StageSlice>& stages) : c_(c), stages_(stages) {
  const Trace& t = c.trace;
  const std::size_t n = stages.size();
  active_.resize(n);
  held_.resize(n);
  divided_.resize(n);
  active_params_.resize(n);
  held_params_.resize(n);
  partial_.resize(n);
  mentions_.resize(n);
  asked_.resize(n);
  way_.resize(n);
  described_.resize(n);
  parents_.resize(t.modules.size());
  for (const auto& m : t.modules) {
    for (const auto& [name, child] : m.children)
      if (child >= 0) parents_[static_cast<std::size_t>(child)].push_back(m.id);
    for (const auto& p : m.params)
      if (p.tensor >= 0) owners_[p.tensor].emplace_back(m.id, p.attr);
  }
  for (std::size_t k = 0; k < n; ++k) activity(static_cast<int>(k));
  for (std::size_t k = 0; k < n; ++k) mention(static_cast<int>(k));
  for (std::size_t k = 0; k < n; ++k) ask(static_cast<int>(k));
  for (std::size_t k = 0; k < n; ++k) hold(static_cast<int>(k));
  for (std::size_t k = 0; k < n; ++k) describe(static_cast<int>(k));
  for (std::size_t k = 0; k < n; ++k) find_partial(static_cast<int>(k));
}

void Use::mark(int k, ModuleId m) {
  if (m < 0 || !active_[static_cast<std::size_t>(k)].insert(m).second) return;
  for (const ModuleId p : parents_[static_cast<std::size_t>(m)]) mark(k, p);
}

/// An activation that several layers have in common (a default argument, `act=nn.GELU()`): it has nothing of its own that would have to
/// be in one stage, so who else has it is not needed where one of them runs it.
bool Use::anyones(ModuleId m) const {
  const auto& mod = c_.trace.module(m);
  return parents_[static_cast<std::size_t>(m)].size() > 1 && mod.params.empty() && mod.children.empty();
}

void Use::mark_called(int k, ModuleId m, FrameId caller) {
  while (caller >= 0 && c_.trace.frame(caller).self < 0) caller = c_.trace.frame(caller).parent;
  const ModuleId by = caller >= 0 ? c_.trace.frame(caller).self : -1;
  if (m < 0 || by < 0 || !anyones(m)) return mark(k, m);
  const auto& all = parents_[static_cast<std::size_t>(m)];
  if (std::find(all.begin(), all.end(), by) == all.end()) return mark(k, m);
  active_[static_cast<std::size_t>(k)].insert(m);
  mark(k, by);
}

bool Use::container(ModuleId m) const {
  const auto& mod = c_.trace.module(m);
  auto is = [](const std::string& s) {
    const std::string last = s.substr(s.rfind('.') + 1);
    return last == "ModuleList" || last == "Sequential" || last == "ModuleDict";
  };
  if (mod.builtin) return is(mod.type);
  if (mod.init_frame >= 0) return false;
  for (const auto* cls : mod.mro)
    for (const auto& b : cls->bases)
      if (b.value && is(c_.text(b.value->range))) return true;
  return false;
}

void Use::activity(int k) {
  const Trace& t = c_.trace;
  const StageSlice& s = stages_[static_cast<std::size_t>(k)];
  std::vector<std::pair<Clock, Clock>> when = s.recomputed;
  when.emplace_back(s.from, s.to);
  auto during = [&](Clock a, Clock b) {
    return std::any_of(when.begin(), when.end(), [&](const auto& w) { return a < w.second && b > w.first; });
  };
  mark(k, 0);
  // What runs over an end of the stage is active when a part of it is printed here, or something inside it is active.
  auto inside = [&](Clock a, Clock b) {
    return std::any_of(when.begin(), when.end(), [&](const auto& w) { return a >= w.first && b <= w.second; });
  };
  for (const auto& call : t.calls)
    if (call.begin >= t.forward_begin && inside(call.begin, call.end)) mark_called(k, call.module, call.caller);
  for (const auto& f : t.frames)
    if (!f.init && f.self >= 0 && f.begin >= t.forward_begin && inside(f.begin, f.end)) mark_called(k, f.self, f.parent);
  for (const auto& [id, f] : s.frames) mark(k, t.frame(id).self);
  for (const auto& op : t.ops) {
    if (op.clock < t.forward_begin || !during(op.clock, op.clock + 1)) continue;
    for (const auto& in : op.inputs) {
      const auto own = owners_.find(in.tensor);
      if (own == owners_.end()) continue;
      const Named* chosen = nullptr;
      for (const Named& o : own->second)
        if (o.first == op.module) chosen = &o;
      if (!chosen && in.expr && op.frame >= 0) {
        const auto& f = t.frame(op.frame);
        const auto path = program::attribute_path(in.expr);
        if (f.self >= 0 && path && path->size() >= 2 && !f.function->parameters.empty() && (*path)[0] == f.function->parameters[0].name) {
          ModuleId at = f.self;
          for (std::size_t i = 1; i + 1 < path->size() && at >= 0; ++i) {
            ModuleId next = -1;
            for (const auto& [name, child] : t.module(at).children)
              if (name == (*path)[i]) next = child;
            at = next;
          }
          for (const Named& o : own->second)
            if (o.first == at && o.second == path->back()) chosen = &o;
        }
      }
      if (!chosen && op.frame >= 0)
        for (const Named& o : own->second)
          if (o.first == t.frame(op.frame).self) chosen = &o;
      if (!chosen) chosen = &own->second.front();
      active_params_[static_cast<std::size_t>(k)].insert(*chosen);
      mark(k, chosen->first);
    }
  }
  tied_by_methods(k);
}

/// Where a method ties two weights that constructors made (`out.weight = self.get_input_embeddings().weight`), a stage that uses the
/// weight by one of its names has all of them: the method finds what it ties, and the weight is there once anyway.
void Use::tied_by_methods(int k) {
  const Trace& t = c_.trace;
  auto& mine = active_params_[static_cast<std::size_t>(k)];
  for (const auto& w : t.attr_writes) {
    if (w.kind != model::AttrWrite::Parameter || w.frame < 0) continue;
    const auto* f = t.frame(w.frame).function;
    const auto own = owners_.find(w.value.tensor);
    if (!f || f->name == "__init__" || own == owners_.end() || own->second.size() < 2) continue;
    if (std::none_of(own->second.begin(), own->second.end(), [&](const Named& o) { return mine.count(o) != 0; })) continue;
    for (const Named& o : own->second) {
      mine.insert(o);
      mark(k, o.first);
    }
  }
}

ModuleId Use::resolve(ModuleId self, const Expr* e, const std::string& self_name, std::vector<std::pair<ModuleId, std::string>>* passed,
                      model::Clock at) const {
  if (e->kind == ExprKind::Name) return e->text == self_name ? self : -1;
  if (e->kind == ExprKind::Attribute) {
    const ModuleId m = resolve(self, e->kids[0], self_name, passed, at);
    if (m < 0) return -1;
    if (passed) passed->emplace_back(m, e->text);
    for (const auto& [name, child] : c_.trace.module(m).children)
      if (name == e->text) return child;
    return -1;
  }
  if (e->kind == ExprKind::Subscript) {
    const ModuleId m = resolve(self, e->kids[0], self_name, passed, at);
    if (m < 0) return -1;
    const auto& kids = c_.trace.module(m).children;
    const Expr* i = e->kids[1];
    std::string key;
    if (i->kind == ExprKind::Int) {
      key = std::to_string(i->integer);
    } else if (i->kind == ExprKind::Unary && i->text == "-" && i->kids[0]->kind == ExprKind::Int) {
      std::set<std::string> there;  // by then
      for (const auto& w : c_.trace.attr_writes)
        if (w.owner == m && w.kind == model::AttrWrite::Child && (at < 0 || w.clock < at)) there.insert(w.name);
      const auto count = at < 0 ? kids.size() : there.size();
      key = std::to_string(static_cast<std::int64_t>(count) - i->kids[0]->integer);
    } else if (i->kind == ExprKind::String) {
      key = i->text;
    } else {
      return -1;
    }
    if (passed) passed->emplace_back(m, key);
    for (const auto& [name, child] : kids)
      if (name == key) return child;
  }
  return -1;
}

void Use::mention_expr(int k, ModuleId self, const std::string& self_name, const Expr* e) {
  auto& m = mentions_[static_cast<std::size_t>(k)];
  program::walk(e, [&](const Expr* x) {
    if (x->kind == ExprKind::Attribute) {
      m.any.insert(x->text);
      std::vector<std::pair<ModuleId, std::string>> passed;
      resolve(self, x, self_name, &passed);
      m.of_module.insert(passed.begin(), passed.end());
    }
    // getattr(self, "norm")
    if (x->kind == ExprKind::Call && x->kids[0]->kind == ExprKind::Name &&
        (x->kids[0]->text == "getattr" || x->kids[0]->text == "hasattr") && x->args.size() >= 2 &&
        x->args[1].value->kind == ExprKind::String) {
      m.any.insert(x->args[1].value->text);
      const ModuleId on = resolve(self, x->args[0].value, self_name);
      if (on >= 0) m.of_module.emplace(on, x->args[1].value->text);
    }
    return true;
  });
}

void Use::mention_pieces(int k, ModuleId self, const std::string& self_name, const std::vector<Piece>& ps, const FrameSlice& f) {
  auto statement = [&](const Stmt* s) {
    program::walk_exprs(Block{const_cast<Stmt*>(s)}, [&](const Expr* e) {
      mention_expr(k, self, self_name, e);
      return false;
    });
  };
  for (const Piece& p : ps) {
    switch (p.kind) {
      case Piece::Whole: statement(p.stmt); break;
      case Piece::Prefix:
        for (const Stmt* s : f.provided.early) statement(s);
        for (const Stmt* s : f.provided.keep) {
          if (s->kind == StmtKind::If) mention_expr(k, self, self_name, s->value);
          else statement(s);
        }
        break;
      case Piece::Far:
      case Piece::FarNear:
      case Piece::Near: {
        // What was or will be evaluated elsewhere does not count.
        if (p.kind == Piece::Far) {
          std::function<void(const Expr*)> deep = [&](const Expr* e) {
            if (!e || replaced_behind(*f.lo, e)) return;
            if (e->kind == ExprKind::Attribute) mention_expr(k, self, self_name, e);
            program::for_each_child(e, deep);
          };
          program::for_each_expr(p.stmt, deep);
        } else {
          std::function<void(const Expr*)> deep = [&](const Expr* e) {
            if (!e || (p.kind == Piece::FarNear && replaced_behind(*f.lo, e))) return;
            if (e->kind == ExprKind::Attribute) mention_expr(k, self, self_name, e);
            program::for_each_child(e, deep);
          };
          for (const Temp& t : f.hi->temps) deep(t.expr);
          if (f.hi->at != At::BeforeCall) deep(f.hi->call);
        }
        break;
      }
      case Piece::Loop:
      case Piece::If:
      case Piece::With:
        program::for_each_expr(p.stmt, [&](const Expr* e) { mention_expr(k, self, self_name, e); });
        mention_pieces(k, self, self_name, p.body, f);
        break;
    }
  }
}

void Use::mention(int k) {
  const Trace& t = c_.trace;
  const StageSlice& s = stages_[static_cast<std::size_t>(k)];
  for (const auto& [id, f] : s.frames) {
    const auto& fr = t.frame(id);
    mention_pieces(k, fr.self, fr.function->parameters.empty() ? "" : fr.function->parameters[0].name, f.pieces, f);
  }
  std::set<std::pair<const Function*, ModuleId>> seen;
  std::vector<std::pair<Clock, Clock>> when = s.recomputed;
  when.emplace_back(s.from, s.to);
  for (const auto& f : t.frames) {
    if (f.init || f.builtin || f.self < 0 || !f.function || f.begin < t.forward_begin || s.frames.count(f.id)) continue;
    if (!std::any_of(when.begin(), when.end(), [&](const auto& w) { return f.begin >= w.first && f.end <= w.second; })) continue;
    if (!seen.emplace(f.function, f.self).second) continue;
    const std::string self = f.function->parameters.empty() ? "" : f.function->parameters[0].name;
    program::walk_exprs(f.function->body, [&](const Expr* e) {
      mention_expr(k, f.self, self, e);
      return false;
    });
  }
}

/// Modules that do nothing in the stage, but whose attributes its code looks at: `self.embed.patch_size`, `self.conv1.weight.dtype`.
void Use::ask(int k) {
  const Trace& t = c_.trace;
  const auto K = static_cast<std::size_t>(k);
  const StageSlice& s = stages_[K];
  std::vector<std::pair<Clock, Clock>> when = s.recomputed;
  when.emplace_back(s.from, s.to);
  std::function<void(ModuleId)> add = [&](ModuleId m) {
    if (m <= 0 || active_[K].count(m) || !asked_[K].insert(m).second) return;
    std::function<void(ModuleId)> up = [&](ModuleId p) {
      if (p < 0 || active_[K].count(p)) return;
      if (!container(p)) return add(p);
      if (way_[K].insert(p).second)
        for (const ModuleId q : parents_[static_cast<std::size_t>(p)]) up(q);
    };
    for (const ModuleId p : parents_[static_cast<std::size_t>(m)]) up(p);
  };
  for (const auto& [clock, m] : t.asked)
    if (std::any_of(when.begin(), when.end(), [&, c = clock](const auto& w) { return c >= w.first && c < w.second; })) add(m);
  // Arguments of an inner forward that are evaluated again behind the cut.
  for (const auto& [id, f] : s.frames)
    for (const Passed& p : f.lo ? f.lo->passed : std::vector<Passed>{}) {
      const auto& fr = t.frame(id);
      std::vector<std::pair<ModuleId, std::string>> passed;
      program::walk(p.expr, [&](const Expr* x) {
        if (x->kind == ExprKind::Attribute)
          resolve(fr.self, x, fr.function->parameters.empty() ? "" : fr.function->parameters[0].name, &passed);
        return true;
      });
      for (const auto& [m, name] : passed) add(m);
    }
}

/// What the stage has but must not have parameters of.
void Use::describe(int k) {
  const Trace& t = c_.trace;
  const auto K = static_cast<std::size_t>(k);
  auto first = [&](ModuleId m) {
    for (std::size_t j = 0; j < active_.size(); ++j)
      if (active_[j].count(m)) return static_cast<int>(j);
    return -1;
  };
  for (const ModuleId m : asked_[K]) {
    // What no stage runs has to be whole somewhere: where what holds it runs first.
    if (first(m) < 0 && first(t.module(m).parent) == k) continue;
    const bool inside = std::any_of(parents_[static_cast<std::size_t>(m)].begin(), parents_[static_cast<std::size_t>(m)].end(),
                                    [&](ModuleId p) { return asked_[K].count(p) != 0; });
    if (!inside && held_[K].count(m)) described_[K].push_back(t.module(m).fqn);
  }
  std::function<bool(ModuleId)> below_asked = [&](ModuleId m) {
    return asked_[K].count(m) != 0 ||
        std::any_of(parents_[static_cast<std::size_t>(m)].begin(), parents_[static_cast<std::size_t>(m)].end(), below_asked);
  };
  for (const ModuleId m : held_[K]) {
    const auto& mod = t.module(m);
    if (below_asked(m)) continue;
    for (const auto& p : mod.params) {
      if (p.buffer || p.tensor < 0 || (!mod.builtin && !held_params_[K].count({m, p.attr}))) continue;
      const auto& names = owners_[p.tensor];
      auto used = [&](std::size_t j) {
        return std::any_of(names.begin(), names.end(), [&](const Named& o) { return active_params_[j].count(o) != 0; });
      };
      bool elsewhere = false;
      for (std::size_t j = 0; j < stages_.size(); ++j) elsewhere |= j != K && used(j);
      if (elsewhere && !used(K)) described_[K].push_back((mod.fqn.empty() ? "" : mod.fqn + ".") + p.attr);
    }
  }
  std::sort(described_[K].begin(), described_[K].end());
}

/// Does stage j use something at or below m that stage k does not?
bool Use::below(ModuleId m, int k, int j) const {
  const auto& a = active_[static_cast<std::size_t>(j)];
  const auto& b = active_[static_cast<std::size_t>(k)];
  if (a.count(m) && !b.count(m)) return true;
  for (const auto& p : c_.trace.module(m).params) {
    const Named n{m, p.attr};
    if (active_params_[static_cast<std::size_t>(j)].count(n) && !active_params_[static_cast<std::size_t>(k)].count(n)) return true;
  }
  for (const auto& [name, child] : c_.trace.module(m).children)
    if (child >= 0 && child != m && below(child, k, j)) return true;
  return false;
}

void Use::hold(int k) {
  const Trace& t = c_.trace;
  const auto K = static_cast<std::size_t>(k);
  const int n = static_cast<int>(stages_.size());
  auto used_somewhere = [&](ModuleId m) {
    for (const auto& a : active_)
      if (a.count(m)) return true;
    return false;
  };
  auto param_somewhere = [&](const Named& p) {
    for (const auto& a : active_params_)
      if (a.count(p)) return true;
    return false;
  };
  auto first_stage = [&](ModuleId m) {
    for (int j = 0; j < n; ++j)
      if (active_[static_cast<std::size_t>(j)].count(m)) return j;
    return 0;
  };
  std::function<void(ModuleId, bool)> visit = [&](ModuleId m, bool whole) {
    if (!held_[K].insert(m).second) return;
    bool divided = false;
    if (!whole)
      for (int j = 0; j < n && !divided; ++j) divided = j != k && below(m, k, j);
    if (divided) divided_[K].insert(m);
    for (const auto& p : t.module(m).params) {
      const Named named{m, p.attr};
      const bool used = active_params_[K].count(named) != 0;
      const bool homeless = !param_somewhere(named) && first_stage(m) == k;
      if (!divided || used || homeless || mentions_[K].of_module.count(named)) held_params_[K].insert(named);
    }
    for (const auto& [name, child] : t.module(m).children) {
      if (child < 0) continue;
      if (!divided || asked_[K].count(child)) visit(child, true);
      else if (active_[K].count(child) || way_[K].count(child)) visit(child, false);
      // Code that stays asks for a container: it is there, with nothing in it.
      else if (container(child) && mentions_[K].of_module.count({m, name}) && used_somewhere(child)) visit(child, false);
      else if (!used_somewhere(child) && first_stage(m) == k) visit(child, true);
    }
  };
  visit(0, false);
}

void Use::find_partial(int k) {
  const Trace& t = c_.trace;
  const auto K = static_cast<std::size_t>(k);
  std::set<ModuleId> set;
  std::function<void(ModuleId)> add = [&](ModuleId m) {
    if (m < 0) return;
    if (!t.module(m).builtin && !set.insert(m).second) return;
    for (const ModuleId p : parents_[static_cast<std::size_t>(m)]) add(p);
  };
  add(0);
  for (const auto& [id, f] : stages_[K].frames) add(t.frame(id).self);
  for (const ModuleId m : divided_[K])
    if (!t.module(m).builtin) add(m);
  // Root first, then as registered.
  std::set<ModuleId> done;
  std::function<void(ModuleId)> order = [&](ModuleId m) {
    if (!done.insert(m).second) return;
    if (set.count(m)) partial_[K].push_back(m);
    for (const auto& [name, child] : t.module(m).children)
      if (child >= 0) order(child);
  };
  order(0);
  for (const ModuleId m : set)
    if (!done.count(m)) partial_[K].push_back(m);
}

}  // namespace shardwright::rewrite::stage
