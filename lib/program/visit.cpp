#include "program/visit.h"

#include <algorithm>

namespace shardwright::program {

namespace {

void function_heads(const Function* f, const std::function<void(const Expr*)>& visit) {
  for (const Expr* d : f->decorators) visit(d);
  for (const Parameter& p : f->parameters) {
    if (p.annotation) visit(p.annotation);
    if (p.default_value) visit(p.default_value);
  }
  if (f->returns) visit(f->returns);
}

}  // namespace

void for_each_child(const Expr* e, const std::function<void(const Expr*)>& visit) {
  for (const Expr* k : e->kids)
    if (k) visit(k);
  for (const Argument& a : e->args)
    if (a.value) visit(a.value);
  for (const Clause& c : e->clauses) {
    if (c.target) visit(c.target);
    if (c.iterable) visit(c.iterable);
    for (const Expr* i : c.conditions) visit(i);
  }
  if (e->function) {
    function_heads(e->function, visit);
    for (const Stmt* s : e->function->body)
      if (s->value) visit(s->value);
  }
}

void for_each_expr(const Stmt* s, const std::function<void(const Expr*)>& visit) {
  if (s->function) function_heads(s->function, visit);
  if (s->class_def) {
    for (const Expr* d : s->class_def->decorators) visit(d);
    for (const Argument& a : s->class_def->bases)
      if (a.value) visit(a.value);
  }
  for (const WithItem& w : s->items) {
    if (w.value) visit(w.value);
    if (w.target) visit(w.target);
  }
  for (const Expr* t : s->targets) visit(t);
  if (s->annotation) visit(s->annotation);
  if (s->value) visit(s->value);
  if (s->extra) visit(s->extra);
  for (const Handler& h : s->handlers)
    if (h.type) visit(h.type);
  for (const MatchCase& c : s->cases) {
    if (c.pattern) visit(c.pattern);
    if (c.guard) visit(c.guard);
  }
}

void for_each_child(const Stmt* s, const std::function<void(const Stmt*)>& visit) {
  const auto each = [&](const std::vector<Stmt*>& body) {
    for (const Stmt* k : body) visit(k);
  };
  if (s->function) each(s->function->body);
  if (s->class_def) each(s->class_def->body);
  each(s->body);
  for (const Handler& h : s->handlers) each(h.body);
  for (const MatchCase& c : s->cases) each(c.body);
  each(s->orelse);
  each(s->finally);
}

void walk(const Expr* e, const std::function<bool(const Expr*)>& visit) {
  if (!e || !visit(e)) return;
  for_each_child(e, [&](const Expr* k) { walk(k, visit); });
}

namespace {

void walk_one(const Stmt* s, const std::function<bool(const Stmt*)>& visit) {
  if (!visit(s)) return;
  for_each_child(s, [&](const Stmt* k) { walk_one(k, visit); });
}

}  // namespace

void walk(const std::vector<Stmt*>& body, const std::function<bool(const Stmt*)>& visit) {
  for (const Stmt* s : body) walk_one(s, visit);
}

void walk_exprs(const std::vector<Stmt*>& body, const std::function<bool(const Expr*)>& visit) {
  walk(body, [&](const Stmt* s) {
    for_each_expr(s, [&](const Expr* e) { walk(e, visit); });
    return true;
  });
}

bool NameSet::add(const std::string& name) {
  if (!seen_.insert(name).second) return false;
  names_.push_back(name);
  return true;
}

namespace {

// Adds what `inner` has and `hidden` has not.
void add_free(const NameSet& inner, const NameSet& hidden, NameSet& out) {
  for (const std::string& n : inner.names())
    if (!hidden.contains(n)) out.add(n);
}

void function_free(const Function* f, NameSet& out) {
  NameSet inner, locals;
  for (const std::string& n : f->locals) locals.add(n);
  names_read(f->body, inner);
  add_free(inner, locals, out);
}

// A name written to is not read; anything else in a target is: x[i] = v reads x and i.
void target_reads(const Expr* t, NameSet& out) {
  switch (t->kind) {
    case ExprKind::Name: return;
    case ExprKind::Tuple:
    case ExprKind::List:
    case ExprKind::Starred:
      for (const Expr* k : t->kids) target_reads(k, out);
      return;
    default: names_read(t, out);
  }
}

// Values and class names of a pattern are read, captures are not.
void pattern_reads(const Expr* p, NameSet& out) {
  if (!p) return;
  switch (p->kind) {
    case ExprKind::Name: return;
    case ExprKind::Attribute: names_read(p, out); return;
    case ExprKind::Walrus: pattern_reads(p->kids[1], out); return;
    case ExprKind::Call:
      names_read(p->kids[0], out);
      for (const Argument& a : p->args) pattern_reads(a.value, out);
      return;
    default:
      for (const Expr* k : p->kids) pattern_reads(k, out);
  }
}

}  // namespace

void names_read(const Expr* e, NameSet& out) {
  if (!e) return;
  switch (e->kind) {
    case ExprKind::Name: out.add(e->text); return;
    case ExprKind::Walrus: names_read(e->kids[1], out); return;
    case ExprKind::Lambda:
      function_heads(e->function, [&](const Expr* k) { names_read(k, out); });
      function_free(e->function, out);
      return;
    case ExprKind::ListComp:
    case ExprKind::SetComp:
    case ExprKind::GeneratorExp:
    case ExprKind::DictComp: {
      // Each iterable sees the targets of the clauses before it; conditions and elements see all up to theirs.
      NameSet targets;
      for (const Clause& c : e->clauses) {
        NameSet inner;
        names_read(c.iterable, inner);
        add_free(inner, targets, out);
        target_names(c.target, targets);
        NameSet more;
        target_reads(c.target, more);
        for (const Expr* i : c.conditions) names_read(i, more);
        add_free(more, targets, out);
      }
      NameSet inner;
      for (const Expr* k : e->kids) names_read(k, inner);
      add_free(inner, targets, out);
      return;
    }
    default: for_each_child(e, [&](const Expr* k) { names_read(k, out); });
  }
}

void names_read(const Stmt* s, NameSet& out) {
  switch (s->kind) {
    case StmtKind::Assign:
    case StmtKind::AnnAssign:
    case StmtKind::For:
      names_read(s->value, out);
      names_read(s->annotation, out);
      for (const Expr* t : s->targets) target_reads(t, out);
      break;
    case StmtKind::With:
      for (const WithItem& w : s->items) {
        names_read(w.value, out);
        if (w.target) target_reads(w.target, out);
      }
      break;
    case StmtKind::Match:
      names_read(s->value, out);
      for (const MatchCase& c : s->cases) {
        pattern_reads(c.pattern, out);
        names_read(c.guard, out);
      }
      break;
    case StmtKind::FunctionDef:
      for_each_expr(s, [&](const Expr* e) { names_read(e, out); });
      function_free(s->function, out);
      return;
    case StmtKind::ClassDef:
      // A name read in a class body may come from the class or from outside it: it counts.
      for_each_expr(s, [&](const Expr* e) { names_read(e, out); });
      names_read(s->class_def->body, out);
      return;
    default: for_each_expr(s, [&](const Expr* e) { names_read(e, out); });
  }
  for_each_child(s, [&](const Stmt* k) { names_read(k, out); });
}

void names_read(const std::vector<Stmt*>& body, NameSet& out) {
  for (const Stmt* s : body) names_read(s, out);
}

std::string bound_name(const Stmt& import, const ImportName& name) {
  if (!name.asname.empty()) return name.asname;
  return import.kind == StmtKind::Import ? name.name.substr(0, name.name.find('.')) : name.name;
}

void target_names(const Expr* t, NameSet& out) {
  if (!t) return;
  if (t->kind == ExprKind::Name) out.add(t->text);
  else if (t->kind == ExprKind::Tuple || t->kind == ExprKind::List || t->kind == ExprKind::Starred)
    for (const Expr* k : t->kids) target_names(k, out);
}

void pattern_captures(const Expr* p, NameSet& out) {
  if (!p) return;
  switch (p->kind) {
    case ExprKind::Name:
      if (p->text != "_") out.add(p->text);
      return;
    case ExprKind::Attribute: return;
    case ExprKind::Call:
      for (const Argument& a : p->args) pattern_captures(a.value, out);
      return;
    case ExprKind::Dict:
      for (std::size_t i = 1; i < p->kids.size(); i += 2) pattern_captures(p->kids[i], out);
      return;
    default:
      for (const Expr* k : p->kids) pattern_captures(k, out);
  }
}

void names_written(const Expr* e, NameSet& out) {
  walk(e, [&](const Expr* k) {
    if (k->kind == ExprKind::Walrus) target_names(k->kids[0], out);
    return k->kind != ExprKind::Lambda;
  });
}

void names_written(const Stmt* s, NameSet& out) {
  if (s->kind != StmtKind::Match) for_each_expr(s, [&](const Expr* e) { names_written(e, out); });
  switch (s->kind) {
    case StmtKind::Assign:
    case StmtKind::AugAssign:
    case StmtKind::AnnAssign:
    case StmtKind::For:
    case StmtKind::Delete:
      // `x: int` alone declares x without binding it, but makes it local all the same.
      for (const Expr* t : s->targets) target_names(t, out);
      break;
    case StmtKind::With:
      for (const WithItem& w : s->items) target_names(w.target, out);
      break;
    case StmtKind::Import:
      for (const ImportName& i : s->imports) out.add(i.asname.empty() ? i.name.substr(0, i.name.find('.')) : i.asname);
      break;
    case StmtKind::ImportFrom:
      for (const ImportName& i : s->imports)
        if (i.name != "*") out.add(i.asname.empty() ? i.name : i.asname);
      break;
    case StmtKind::Match:
      names_written(s->value, out);
      for (const MatchCase& c : s->cases) {
        pattern_captures(c.pattern, out);
        names_written(c.guard, out);
      }
      break;
    case StmtKind::TypeAlias:
      if (!s->text.empty()) out.add(s->text);
      break;
    case StmtKind::FunctionDef:
    case StmtKind::ClassDef: {
      out.add(s->function ? s->function->name : s->class_def->name);
      // What a nested body declares global or nonlocal is written out here when it runs.
      walk(s->function ? s->function->body : s->class_def->body, [&](const Stmt* k) {
        if (k->kind == StmtKind::Global || k->kind == StmtKind::Nonlocal)
          for (const std::string& n : k->names) out.add(n);
        return true;
      });
      return;
    }
    default: break;
  }
  for (const Handler& h : s->handlers)
    if (!h.name.empty()) out.add(h.name);
  for_each_child(s, [&](const Stmt* k) { names_written(k, out); });
}

void names_written(const std::vector<Stmt*>& body, NameSet& out) {
  for (const Stmt* s : body) names_written(s, out);
}

std::optional<std::vector<std::string>> attribute_path(const Expr* e) {
  std::vector<std::string> path;
  while (e && e->kind == ExprKind::Attribute) {
    path.push_back(e->text);
    e = e->kids[0];
  }
  if (!e || e->kind != ExprKind::Name) return std::nullopt;
  path.push_back(e->text);
  std::reverse(path.begin(), path.end());
  return path;
}

std::optional<std::string> dotted_path(const Expr* e) {
  const auto path = attribute_path(e);
  if (!path) return std::nullopt;
  std::string out;
  for (const std::string& part : *path) out += (out.empty() ? "" : ".") + part;
  return out;
}

const Expr* root_name(const Expr* e) {
  while (e && (e->kind == ExprKind::Attribute || e->kind == ExprKind::Subscript || e->kind == ExprKind::Call)) e = e->kids[0];
  return e && e->kind == ExprKind::Name ? e : nullptr;
}

const Function* method(const ClassDef& c, std::string_view name) {
  for (const Stmt* s : c.body)
    if (s->kind == StmtKind::FunctionDef && s->function->name == name) return s->function;
  return nullptr;
}

std::vector<const Stmt*> enclosing_statements(const std::vector<Stmt*>& body, std::uint32_t offset) {
  std::vector<const Stmt*> path;
  const auto find = [&](const auto& self, const Stmt* s) -> bool {
    if (offset < s->range.begin || offset >= s->range.end) return false;
    path.push_back(s);
    bool done = false;
    for_each_child(s, [&](const Stmt* k) { done = done || self(self, k); });
    return true;
  };
  for (const Stmt* s : body)
    if (find(find, s)) break;
  return path;
}

const Stmt* enclosing_statement(const std::vector<Stmt*>& body, std::uint32_t offset) {
  const auto path = enclosing_statements(body, offset);
  return path.empty() ? nullptr : path.back();
}

const Stmt* enclosing_definition(const std::vector<Stmt*>& body, std::uint32_t offset) {
  const auto path = enclosing_statements(body, offset);
  for (auto it = path.rbegin(); it != path.rend(); ++it)
    if ((*it)->kind == StmtKind::FunctionDef || (*it)->kind == StmtKind::ClassDef) return *it;
  return nullptr;
}

}  // namespace shardwright::program
