// The places of a constructor that make modules: what is absent there, which loop counts, what is guarded.
#include <fmt/format.h>

#include <algorithm>

#include "program/visit.h"
#include "rewrite/stage_init.h"
#include "rewrite/text_layout.h"

namespace shardwright::rewrite::stage {

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

}  // namespace shardwright::rewrite::stage
