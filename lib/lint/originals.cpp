// Distributed classes against the serial ones whose place they take: defaults, masks, activations and norms; and names that nobody sets.
#include <algorithm>
#include <set>

#include "lint/files.h"
#include "lint/session.h"
#include "lint/syntax_help.h"
#include "program/visit.h"
#include "support/files.h"

namespace shardwright::lint {

using program::ClassDef;
using program::Expr;
using program::ExprKind;
using program::Stmt;
using program::StmtKind;
using support::Severity;
using namespace syntax;

namespace {

/// Statements of a constructor that an attribute's value comes from, as text: its own and those of the local names in it.
std::string making(const program::Function& init, std::string_view attribute, const support::SourceManager& sources) {
  std::set<std::string> names;
  std::string text;
  std::vector<const Stmt*> all;
  program::walk(init.body, [&](const Stmt* s) {
    all.push_back(s);
    return true;
  });
  for (auto s = all.rbegin(); s != all.rend(); ++s) {
    const bool hit = std::any_of((*s)->targets.begin(), (*s)->targets.end(), [&](const Expr* t) {
      return self_attribute(t) == attribute || (t->kind == ExprKind::Name && names.count(t->text));
    });
    if (!hit || !(*s)->value) continue;
    text += std::string(sources.text((*s)->range)) + "\n";
    program::walk((*s)->value, [&](const Expr* e) {
      if (e->kind == ExprKind::Name) names.insert(e->text);
      return true;
    });
    // Branches around it.
    for (const Stmt* i : all)
      if (i->kind == StmtKind::If && i->range.contains((*s)->range)) text += std::string(sources.text(i->value->range)) + "\n";
  }
  return text;
}

}  // namespace

std::optional<Class> Session::class_named(const std::string& name, const program::Module& near) {
  if (name.empty()) return std::nullopt;
  if (const auto* c = class_in(near, name)) return Class{c, &near, false, false};
  // In this tree, else in those beside it: what bears a name of this tree's elsewhere is not what is meant here.
  std::vector<std::string> where, beside;
  for (const auto& path : class_files_(name)) {
    const std::string root = root_of(path, request_.files ? *request_.files : disk()).first;
    if (std::find(tree_.roots.begin(), tree_.roots.end(), root) != tree_.roots.end()) where.push_back(path);
    else if (std::find(tree_.beside.begin(), tree_.beside.end(), root) != tree_.beside.end()) beside.push_back(path);
  }
  if (where.empty()) where = std::move(beside);
  // Of several, the one beside.
  if (where.size() > 1) {
    const std::string folder = support::parent_path(sources_.file(near.file).path);
    std::erase_if(where, [&](const std::string& p) { return support::parent_path(p) != folder; });
  }
  if (where.size() == 1) {
    auto m = loader_->loader().load_file(where[0]);
    if (m && *m)
      if (const auto* c = class_in(**m, name)) return Class{c, *m, false, false};
  }
  if (!where.empty()) return std::nullopt;
  // Imported by a file that was looked at: generated packages name their originals there.
  for (const auto* m : loaded_) {
    const Stmt* from = nullptr;
    if (m->file < 0 || !has_word(sources_.file(m->file).text, name)) continue;
    program::walk(m->body, [&](const Stmt* s) {
      if (s->kind == StmtKind::FunctionDef) return has_word(sources_.text(s->range), name);
      if (s->kind == StmtKind::ImportFrom && s->level == 0)
        for (const auto& i : s->imports)
          if (i.name == name) from = s;
      return true;
    });
    if (!from) continue;
    if (const auto* original = loader_->load(from->module))
      if (const auto* c = class_in(*original, name)) return Class{c, original, false, false};
  }
  return std::nullopt;
}

void Session::originals(const std::vector<Class>& classes) {
  for (const auto& c : classes) {
    if (!c.relevant || stage_number(c.def->name)) continue;
    const auto original = class_named(original_name(c.def->name), *c.module);
    if (!original) continue;
    compare_defaults(*original->def, *c.def);
    Facts serial, distributed;
    if (run_class(*original, &serial, true) && run_class(c, &distributed, true))
      compare_runs(serial, distributed, c.def->name, original->def->name, name_range(*c.def));
  }
}

/// SW208: a parameter of the constructor with another default.
void Session::compare_defaults(const ClassDef& original, const ClassDef& distributed) {
  const auto *a = method(original, "__init__"), *b = method(distributed, "__init__");
  if (!a || !b) return;
  auto plain = [](const Expr* e) {
    return e &&
        (e->kind == ExprKind::Int || e->kind == ExprKind::Float || e->kind == ExprKind::True || e->kind == ExprKind::False ||
         e->kind == ExprKind::String || ((e->kind == ExprKind::Tuple || e->kind == ExprKind::List) && !e->kids.empty()));
  };
  auto value = [&](const Expr* e) {
    std::string t(sources_.text(e->range));
    if (e->kind == ExprKind::Int || e->kind == ExprKind::Float)
      return std::to_string(e->kind == ExprKind::Int ? static_cast<double>(e->integer) : e->number);
    std::erase_if(t, [](char c) { return c == ' ' || c == '(' || c == ')' || c == '[' || c == ']' || c == '\n' || c == '"' || c == '\''; });
    while (!t.empty() && t.back() == ',') t.pop_back();
    return t;
  };
  for (const auto& p : a->parameters)
    for (const auto& q : b->parameters)
      if (p.name == q.name && plain(p.default_value) && plain(q.default_value) && value(p.default_value) != value(q.default_value))
        findings_.add(Severity::Error, "SW208", q.default_value->range,
                      distributed.name + " takes " + q.name + " = " + std::string(sources_.text(q.default_value->range)) + " by default, " +
                          original.name + " takes " + std::string(sources_.text(p.default_value->range)),
                      {{p.default_value->range, "the original's"}});
}

/// SW207: a mask that the original loads or leaves out in some cases, made without these cases.
void Session::compare_masks(const ClassDef& original, const ClassDef& distributed) {
  const auto *a = method(original, "__init__"), *b = method(distributed, "__init__");
  if (!a || !b) return;
  std::set<std::string> masks;
  program::walk(a->body, [&](const Stmt* s) {
    if (s->kind == StmtKind::Assign)
      for (const auto* t : s->targets)
        if (const auto name = self_attribute(t); name.find("mask") != std::string_view::npos) masks.insert(std::string(name));
    return true;
  });
  for (const auto& name : masks) {
    const std::string from = making(*a, name, sources_), to = making(*b, name, sources_);
    if (from.empty() || to.empty()) continue;
    std::string lost;
    for (const char* what : {"load(", "isinstance(", "is None", "is not None"})
      if (from.find(what) != std::string::npos && to.find(what) == std::string::npos) lost = what;
    if (lost.empty()) continue;
    support::Range where, there;
    auto place = [&](const program::Function& f, support::Range& out) {
      program::walk(f.body, [&](const Stmt* s) {
        for (const auto* t : s->targets)
          if (self_attribute(t) == name) out = s->range;
        return true;
      });
    };
    place(*b, where);
    place(*a, there);
    findings_.add(Severity::Error, "SW207", where,
                  name + " is made otherwise than in " + original.name + ": '" + lost + (lost.back() == '(' ? "…)" : "") +
                      "' of the original is missing here, so in some cases this is another mask",
                  {{there, "the original's"}});
  }
}

/// SW117: activations and norms in another order or number.
bool Session::compare_runs(const Facts& original, const Facts& distributed, const std::string& name, const std::string& original_name,
                           support::Range where) {
  if (original.incomplete || distributed.incomplete) return false;
  const auto &a = original.nonlinear, &b = distributed.nonlinear;
  std::size_t i = 0;
  while (i < a.size() && i < b.size() && a[i].name == b[i].name) ++i;
  if (i == a.size() && i == b.size()) return false;
  auto same_but_order = [&] {
    std::multiset<std::string> x, y;
    for (const auto& n : a) x.insert(n.name);
    for (const auto& n : b) y.insert(n.name);
    return x == y;
  };
  if (same_but_order()) return false;  // the two sides of a sum, say
  const support::Range here = i < b.size() ? b[i].where : b.empty() ? where : b.back().where;
  findings_.add(Severity::Warning, "SW117", here.valid() ? here : where,
                name +
                    (i < b.size()    ? " goes on with " + b[i].name
                         : b.empty() ? " has no activation or norm"
                                     : " ends after " + b.back().name) +
                    " here, where " + original_name + (i < a.size() ? " has " + a[i].name : " has nothing more"),
                {{i < a.size() ? a[i].where : support::Range{}, "the original's"}});
  return true;
}

void Session::misspelt(const std::string& error, support::Range at) {
  if (!at.valid()) return;
  auto quoted = [&](std::size_t from) {
    const std::size_t a = error.find('\'', from);
    const std::size_t b = a == std::string::npos ? a : error.find('\'', a + 1);
    return b == std::string::npos ? std::string() : error.substr(a + 1, b - a - 1);
  };
  std::string word, of;
  if (error.starts_with("AttributeError: '")) {
    of = quoted(0);
    if (const auto p = error.find("has no attribute"); p != std::string::npos) word = quoted(p);
  } else if (error.starts_with("NameError: name '")) {
    word = quoted(0);
  }
  if (word.empty() || word.starts_with("__")) return;
  // What there is: attributes that the class sets, or names of the file.
  std::set<std::string> names;
  const program::Module* here = nullptr;
  for (const auto* m : loaded_) {
    if (m->file == at.file) here = m;
    program::walk(m->body, [&](const Stmt* s) {
      if (s->kind == StmtKind::FunctionDef) return false;
      if (s->kind == StmtKind::ClassDef && s->class_def->name == of) {
        for (const auto* k : s->class_def->body) {
          if (k->kind == StmtKind::FunctionDef) names.insert(k->function->name);
          program::walk({const_cast<Stmt*>(k)}, [&](const Stmt* in) {
            for (const auto* t : in->targets) {
              if (const auto n = self_attribute(t); !n.empty()) names.insert(std::string(n));
              if (t->kind == ExprKind::Tuple)
                for (const auto* e : t->kids)
                  if (const auto n = self_attribute(e); !n.empty()) names.insert(std::string(n));
            }
            return true;
          });
        }
      }
      return true;
    });
  }
  if (!here || names.count(word)) return;  // set on another path
  if (of.empty()) {
    program::walk(here->body, [&](const Stmt* s) {
      if (s->kind == StmtKind::FunctionDef)
        names.insert(s->function->locals.begin(), s->function->locals.end()), names.insert(s->function->name);
      if (s->kind == StmtKind::ClassDef) names.insert(s->class_def->name);
      if (s->kind == StmtKind::Import || s->kind == StmtKind::ImportFrom)
        for (const auto& i : s->imports) names.insert(i.asname.empty() ? i.name : i.asname);
      for (const auto* t : s->targets)
        if (t->kind == ExprKind::Name) names.insert(t->text);
      return true;
    });
    if (names.count(word)) return;  // bound somewhere: on another path
  }
  bool alone = false;
  const auto near = nearest_slip(word, names, &alone);
  if (!near) return;
  // The place of the word itself, in the statement that failed.
  support::Range where = at;
  program::walk_exprs(here->body, [&](const Expr* e) {
    if (e->range.begin >= at.begin && e->range.end <= at.end && e->text == word &&
        (e->kind == ExprKind::Attribute || e->kind == ExprKind::Name))
      where = {e->range.file, e->range.end - static_cast<std::uint32_t>(word.size()), e->range.end};
    return true;
  });
  std::optional<support::Fix> fix;
  if (sources_.text(where) == word && alone) fix = support::Fix{"safe", {{where, *near}}};
  findings_.add(Severity::Error, "SW307", where,
                (of.empty() ? "'" + word + "' is not defined" : of + " has no '" + word + "'") + ": did you mean '" + *near + "'?", {},
                fix);
}

}  // namespace shardwright::lint
