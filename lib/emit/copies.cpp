#include "emit/copies.h"

#include <algorithm>
#include <functional>

#include "emit/assemble.h"
#include "program/visit.h"

namespace shardwright::emit {

using program::Stmt;
using program::StmtKind;

const std::set<std::string>& python_builtins() {
  static const std::set<std::string> names{"ArithmeticError",
                                           "AssertionError",
                                           "AttributeError",
                                           "BaseException",
                                           "DeprecationWarning",
                                           "Ellipsis",
                                           "Exception",
                                           "False",
                                           "FileNotFoundError",
                                           "FutureWarning",
                                           "ImportError",
                                           "IndexError",
                                           "KeyError",
                                           "KeyboardInterrupt",
                                           "LookupError",
                                           "ModuleNotFoundError",
                                           "NameError",
                                           "None",
                                           "NotImplemented",
                                           "NotImplementedError",
                                           "OSError",
                                           "OverflowError",
                                           "RuntimeError",
                                           "RuntimeWarning",
                                           "StopIteration",
                                           "SyntaxError",
                                           "SystemExit",
                                           "True",
                                           "TypeError",
                                           "UserWarning",
                                           "ValueError",
                                           "Warning",
                                           "ZeroDivisionError",
                                           "__build_class__",
                                           "__debug__",
                                           "__doc__",
                                           "__file__",
                                           "__import__",
                                           "__name__",
                                           "__class__",
                                           "abs",
                                           "all",
                                           "any",
                                           "bin",
                                           "bool",
                                           "breakpoint",
                                           "bytearray",
                                           "bytes",
                                           "callable",
                                           "chr",
                                           "classmethod",
                                           "compile",
                                           "complex",
                                           "delattr",
                                           "dict",
                                           "dir",
                                           "divmod",
                                           "enumerate",
                                           "eval",
                                           "exec",
                                           "filter",
                                           "float",
                                           "format",
                                           "frozenset",
                                           "getattr",
                                           "globals",
                                           "hasattr",
                                           "hash",
                                           "hex",
                                           "id",
                                           "input",
                                           "int",
                                           "isinstance",
                                           "issubclass",
                                           "iter",
                                           "len",
                                           "list",
                                           "locals",
                                           "map",
                                           "max",
                                           "memoryview",
                                           "min",
                                           "next",
                                           "object",
                                           "oct",
                                           "open",
                                           "ord",
                                           "pow",
                                           "print",
                                           "property",
                                           "range",
                                           "repr",
                                           "reversed",
                                           "round",
                                           "set",
                                           "setattr",
                                           "slice",
                                           "sorted",
                                           "staticmethod",
                                           "str",
                                           "sum",
                                           "super",
                                           "tuple",
                                           "type",
                                           "vars",
                                           "zip"};
  return names;
}

void Assembler::need_read(Unit& u, const Stmt& s, const program::Module& m, const std::string& but) {
  program::NameSet reads;
  program::names_read(&s, reads);
  for (const auto& n : reads.names())
    if (n != but && !(python_builtins().count(n) && binders(m, n).empty())) need(u, n, m);
}

void Assembler::copy_definition(const program::Module& m, const std::string& name) {
  if (!copied_.emplace(&m, name).second) return;
  // A generated definition that kept the name stands for it.
  for (std::size_t i = 0; i < spec_.definitions.size(); ++i)
    if (spec_.definitions[i].origin == &m && spec_.definitions[i].name == name && path_of_[i] == file_of(m)) return;
  Unit& u = unit(file_of(m), &m);
  for (const Stmt* s : binders(m, name)) {
    std::uint32_t begin = s->range.begin;
    if (s->kind == StmtKind::FunctionDef) begin = s->function->range.begin;
    if (s->kind == StmtKind::ClassDef) begin = s->class_def->range.begin;
    program::NameSet bound;
    program::names_written(s, bound);
    std::string text(sources_.text({s->range.file, begin, s->range.end}));
    u.pieces[name + (is_definition(s) ? "" : "@" + std::to_string(begin))] = {begin, text, -1, {}, comments_of(m, *s, sources_)};
    u.pieces[name];  // so that need() knows it is here
    for (const auto& n : bound.names()) copied_.emplace(&m, n), u.pieces.try_emplace(n);
    need_read(u, *s, m, name);
  }
  copy_patches(u, m, name, name, -1);
  copy_settings(u, m);
  copy_registered(m, name);
}

namespace {
using program::Expr;
using program::ExprKind;

/// Does what happens at `s` change what the variable holds: `X[k] = v`, `X.a = v`, `X.update(…)`, `fill(X)`, `register(v)` of a function
/// that reads X? `reads(f)`: does the function of that name in the module read X?
bool changes(const Stmt* top, const std::string& name, const std::function<bool(const std::string&)>& reads) {
  bool found = false;
  program::walk({const_cast<Stmt*>(top)}, [&](const Stmt* s) {
    if (is_definition(s)) return false;
    if (s->kind == StmtKind::Assign || s->kind == StmtKind::AugAssign || s->kind == StmtKind::Delete)
      for (const Expr* target : s->targets)
        if (target->kind != ExprKind::Name)
          if (const Expr* root = program::root_name(target)) found = found || root->text == name;
    if (s->kind != StmtKind::Expression || !s->value || s->value->kind != ExprKind::Call) return true;
    const Expr* root = program::root_name(s->value);
    found = found || (root && (root->text == name || reads(root->text)));
    for (const auto& a : s->value->args) found = found || (a.value->kind == ExprKind::Name && a.value->text == name);
    return true;
  });
  return found;
}

/// `if __name__ == "__main__":` is not for those who import the module.
bool only_when_run(const Stmt* s) {
  program::NameSet reads;
  if (s->kind == StmtKind::If) program::names_read(s->value, reads);
  return reads.contains("__name__");
}
}  // namespace

/// A variable may be a registry: definitions enter it by a decorator that is, or reads, the variable; statements of the module fill it.
void Assembler::copy_registered(const program::Module& m, const std::string& name) {
  const auto bound = binders(m, name);
  if (bound.empty() || std::any_of(bound.begin(), bound.end(), is_definition)) return;
  const auto reads_it = [&](const std::string& function) {
    program::NameSet reads;
    for (const Stmt* by : binders(m, function))
      if (by->kind == StmtKind::FunctionDef) program::names_read(by, reads);
    return reads.contains(name);
  };
  for (const Stmt* s : m.body) {
    if (!is_definition(s)) {
      if (!only_when_run(s) && changes(s, name, reads_it)) copy_statement(m, s);
      continue;
    }
    for (const Expr* d : s->kind == StmtKind::ClassDef ? s->class_def->decorators : s->function->decorators) {
      const Expr* root = program::root_name(d);
      if (root && (root->text == name || reads_it(root->text)))
        copy_definition(m, s->kind == StmtKind::ClassDef ? s->class_def->name : s->function->name);
    }
  }
}

/// A statement that binds no name anybody asked for, with what it reads.
void Assembler::copy_statement(const program::Module& m, const Stmt* s) {
  Unit& u = unit(file_of(m), &m);
  for (const auto& [key, piece] : u.pieces)
    if (piece.order == s->range.begin && !piece.text.empty()) return;  // it binds a name, too
  program::NameSet bound;
  program::names_written(s, bound);
  for (const auto& n : bound.names()) copied_.emplace(&m, n), u.pieces.try_emplace(n);
  add_statement(u, m, s);
}

void Assembler::add_statement(Unit& u, const program::Module& m, const Stmt* s) {
  const std::string key = "@" + std::to_string(s->range.begin);
  if (u.pieces.count(key)) return;
  u.pieces[key] = {s->range.begin, std::string(sources_.text(s->range)), -1, {}, comments_of(m, *s, sources_)};
  need_read(u, *s, m, "");
}

/// Classes that are found by a value (`REGISTRY[kind](…)`) are named by nothing that is copied: they come with it, and stages import the
/// file that enters them.
void Assembler::copy_by_value() {
  if (in_place()) return;
  std::vector<std::string> stages;
  for (const auto& [path, u] : units_)
    if (std::any_of(spec_.definitions.begin(), spec_.definitions.end(),
                    [&](const auto& d) { return d.stage >= 0 && path == "stage" + std::to_string(d.stage) + ".py"; }))
      stages.push_back(path);
  for (const auto& c : spec_.by_value) {
    if (!options_.copied(*c.module)) continue;
    const std::string path = file_of(*c.module);
    if (unit(path, c.module).pieces[c.name].text.empty()) copy_definition(*c.module, c.name);
    for (const Stmt* s : c.module->body) {  // what enters it into a registry of another module
      program::NameSet reads;
      if (is_definition(s) || only_when_run(s)) continue;
      program::names_read(s, reads);
      if (reads.contains(c.name) && std::any_of(reads.names().begin(), reads.names().end(), [&](const auto& n) {
            const auto& by = binders(*c.module, n);
            return n != c.name && !by.empty() && by.back()->kind == StmtKind::ImportFrom &&
                changes(s, n, [](const auto&) { return false; });
          }))
        copy_statement(*c.module, s);
    }
    std::vector<std::string> reached = stages;
    for (std::size_t i = 0; i < reached.size(); ++i)
      for (const auto& [other, names] : units_[reached[i]].relative)
        if (std::find(reached.begin(), reached.end(), other) == reached.end()) reached.push_back(other);
    if (!c.in_globals && std::find(reached.begin(), reached.end(), path) != reached.end()) continue;
    for (const auto& stage : stages) bind_from(units_[stage], c.name, path, c.name);
  }
}

void Assembler::copy_patches(Unit& u, const program::Module& m, const std::string& original, const std::string& name, int stage) {
  for (const Stmt* s : m.body) {
    if (s->kind != StmtKind::Assign || s->targets.size() != 1 || s->targets[0]->kind != program::ExprKind::Attribute) continue;
    const program::Expr* base = s->targets[0]->kids[0];
    if (base->kind != program::ExprKind::Name || base->text != original) continue;
    const std::string rest(sources_.text({s->range.file, base->range.end, s->range.end}));
    u.pieces[name + "@" + std::to_string(s->range.begin)] = {s->range.begin, name + rest, stage, {}, comments_of(m, *s, sources_)};
    need_read(u, *s, m, original);
  }
}

void Assembler::copy_settings(Unit& u, const program::Module& m) {
  static const std::set<std::string> settings{"set_default_dtype", "set_default_tensor_type", "set_float32_matmul_precision"};
  for (const Stmt* s : m.body) {
    if (s->kind != StmtKind::Expression || !s->value || s->value->kind != program::ExprKind::Call) continue;
    const program::Expr* f = s->value->kids[0];
    if ((f->kind != program::ExprKind::Attribute && f->kind != program::ExprKind::Name) || !settings.count(f->text)) continue;
    add_statement(u, m, s);
  }
}

void Assembler::copy_changes_of_torch() {
  if (units_.empty() || in_place() || !options_.patches) return;
  for (const model::Patch& p : *options_.patches) {
    const program::Module* m = p.inside ? nullptr : loader_.load(p.module);
    if (!m) continue;
    if (!options_.copied(*m)) {  // imported for this, perhaps, and for nothing else
      units_.begin()->second.absolute.insert("import " + p.module);
      continue;
    }
    // Where the names that it reads are copied to: what is kept of the old attribute there is read before.
    program::NameSet reads;
    program::names_read(p.stmt, reads);
    std::string by;
    for (const auto& n : reads.names())
      if (const auto& list = binders(*m, n);
          !list.empty() && list.back()->kind != StmtKind::Import && list.back()->kind != StmtKind::ImportFrom)
        by = n;
    auto in = units_.find(file_of(*m));
    if (in == units_.end() && by.empty())
      in = std::find_if(units_.begin(), units_.end(), [&](const auto& u) { return u.second.origin == m; });
    Unit& first = units_.begin()->second;
    Unit& u = in != units_.end() ? in->second : by.empty() ? first : unit(file_of(*m), m);
    const std::string key = "@" + p.module + std::to_string(p.stmt->range.begin);
    u.pieces[key] = {
        u.origin == m ? p.stmt->range.begin : 0, std::string(sources_.text(p.stmt->range)), -1, {}, comments_of(*m, *p.stmt, sources_)};
    need_read(u, *p.stmt, *m, "");
    if (&u != &first && !by.empty()) need(first, by, *m);  // so that it is imported
  }
}

}  // namespace shardwright::emit
