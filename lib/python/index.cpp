#include "python/index.h"

#include <algorithm>

#include "program/visit.h"

namespace shardwright::python {

using program::Expr;
using program::ExprKind;
using program::NameSet;
using program::Stmt;
using program::StmtKind;

namespace {

void fill_root(const Expr* e, NameSet& fills) {
  if (const Expr* root = program::root_name(e)) fills.add(root->text);
}

// NAME[…] = …, NAME.a = …, also inside tuples.
void target_fills(const Expr* t, NameSet& fills) {
  if (t->kind == ExprKind::Tuple || t->kind == ExprKind::List || t->kind == ExprKind::Starred) {
    for (const Expr* k : t->kids) target_fills(k, fills);
  } else if (t->kind == ExprKind::Attribute || t->kind == ExprKind::Subscript) {
    fill_root(t, fills);
  }
}

// A call on its own may change its receiver and its arguments.
void call_fills(const Expr* call, NameSet& fills) {
  fill_root(call->kids[0], fills);
  for (const program::Argument& a : call->args)
    if (a.value) fill_root(a.value, fills);
}

// Names that one statement, blocks included and bodies of definitions apart, fills.
void fills_of(const Stmt* s, NameSet& fills, std::vector<const Stmt*>& stars) {
  switch (s->kind) {
    case StmtKind::Assign:
    case StmtKind::AnnAssign:
    case StmtKind::For:
    case StmtKind::Delete:
      for (const Expr* t : s->targets) target_fills(t, fills);
      break;
    case StmtKind::AugAssign: fill_root(s->targets[0], fills); break;
    case StmtKind::With:
      for (const program::WithItem& w : s->items) {
        if (w.target) target_fills(w.target, fills);
      }
      break;
    case StmtKind::Expression:
      program::walk(s->value, [&](const Expr* e) {
        if (e->kind == ExprKind::Call) call_fills(e, fills);
        return e->kind != ExprKind::Lambda;
      });
      break;
    case StmtKind::FunctionDef:
      for (const Expr* d : s->function->decorators) fill_root(d, fills);
      return;
    case StmtKind::ClassDef: {
      for (const Expr* d : s->class_def->decorators) fill_root(d, fills);
      return;
    }
    case StmtKind::ImportFrom:
      for (const program::ImportName& i : s->imports)
        if (i.name == "*") stars.push_back(s);
      break;
    default: break;
  }
  program::for_each_child(s, [&](const Stmt* k) { fills_of(k, fills, stars); });
}

// The strings of a list or tuple of literals, also added together.
std::optional<std::vector<std::string>> string_list(const Expr* e) {
  std::vector<std::string> out;
  if (!e) return std::nullopt;
  if (e->kind == ExprKind::List || e->kind == ExprKind::Tuple) {
    for (const Expr* k : e->kids) {
      if (k->kind == ExprKind::Starred) {
        const auto inner = string_list(k->kids[0]);
        if (!inner) return std::nullopt;
        out.insert(out.end(), inner->begin(), inner->end());
      } else if (k->kind == ExprKind::String) {
        out.push_back(k->text);
      } else {
        return std::nullopt;
      }
    }
    return out;
  }
  if (e->kind == ExprKind::Binary && e->text == "+") {
    auto left = string_list(e->kids[0]);
    const auto right = string_list(e->kids[1]);
    if (!left || !right) return std::nullopt;
    left->insert(left->end(), right->begin(), right->end());
    return left;
  }
  return std::nullopt;
}

}  // namespace

ModuleIndex::ModuleIndex(const program::Module& module) {
  for (std::uint32_t i = 0; i < module.body.size(); ++i) {
    const Stmt* s = module.body[i];
    NameSet bound, filled;
    std::vector<const Stmt*> stars;
    program::names_written(s, bound);
    fills_of(s, filled, stars);
    for (const Stmt* star : stars) stars_.push_back({star, i});
    for (const std::string& n : bound.names()) {
      std::vector<Definition>& list = by_name_[n];
      if (std::none_of(list.begin(), list.end(), [](const Definition& d) { return d.binds; })) names_.push_back(n);
      // `NAME += …` and `del NAME` bind and fill at once: what NAME was before matters.
      const bool also = filled.contains(n) || s->kind == StmtKind::AugAssign || s->kind == StmtKind::Delete;
      list.push_back({s, i, true, also});
    }
    for (const std::string& n : filled.names())
      if (!bound.contains(n)) by_name_[n].push_back({s, i, false, true});
    if (s->kind == StmtKind::FunctionDef && s->function->name == "__getattr__") getattr_ = s->function;
  }
  // `x = REGISTRY.register(f)`: a method may change its receiver also where its value is used. Only for objects made in this module
  // by an assignment; methods of imported modules and of classes would make everything depend on everything.
  for (std::uint32_t i = 0; i < module.body.size(); ++i) {
    const Stmt* s = module.body[i];
    if ((s->kind != StmtKind::Assign && s->kind != StmtKind::AnnAssign) || !s->value) continue;
    NameSet receivers;
    program::walk(s->value, [&](const Expr* e) {
      if (e->kind == ExprKind::Call && e->kids[0]->kind == ExprKind::Attribute) fill_root(e->kids[0], receivers);
      return e->kind != ExprKind::Lambda;
    });
    for (const std::string& n : receivers.names()) {
      const auto it = by_name_.find(n);
      if (it == by_name_.end()) continue;
      std::vector<Definition>& list = it->second;
      const bool object = std::any_of(list.begin(), list.end(), [](const Definition& d) {
        return d.binds && d.stmt->kind != StmtKind::Import && d.stmt->kind != StmtKind::ImportFrom &&
            d.stmt->kind != StmtKind::FunctionDef && d.stmt->kind != StmtKind::ClassDef && d.stmt->kind != StmtKind::Try &&
            d.stmt->kind != StmtKind::If;
      });
      const auto same = [&](const Definition& d) { return d.stmt == s; };
      if (!object || std::any_of(list.begin(), list.end(), same)) continue;
      const auto at = std::find_if(list.begin(), list.end(), [&](const Definition& d) { return d.order > i; });
      list.insert(at, {s, i, false, true});
    }
  }
  for (std::uint32_t i = 0; i < module.body.size(); ++i) {
    const Stmt* s = module.body[i];
    if (s->kind != StmtKind::Expression || s->value->kind == ExprKind::String) continue;
    NameSet bound, filled;
    std::vector<const Stmt*> stars;
    program::names_written(s, bound);
    fills_of(s, filled, stars);
    const auto ours = [&](const std::string& n) { return binds(n); };
    if (bound.names().empty() && std::none_of(filled.names().begin(), filled.names().end(), ours)) effects_.push_back(s);
  }
  read_all(module);
}

const std::vector<Definition>& ModuleIndex::definitions(const std::string& name) const {
  static const std::vector<Definition> kNone;
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? kNone : it->second;
}

bool ModuleIndex::binds(const std::string& name) const {
  const auto& list = definitions(name);
  return std::any_of(list.begin(), list.end(), [](const Definition& d) { return d.binds; });
}

void ModuleIndex::read_all(const program::Module&) {
  std::optional<std::vector<std::string>> value;
  for (const Definition& d : definitions("__all__")) {
    const Stmt* s = d.stmt;
    if ((s->kind == StmtKind::Assign || s->kind == StmtKind::AnnAssign) && s->targets.size() == 1 &&
        s->targets[0]->kind == ExprKind::Name) {
      value = string_list(s->value);
      if (!value) return;
    } else if (s->kind == StmtKind::AugAssign && s->op == "+" && value) {
      const auto more = string_list(s->value);
      if (!more) return;
      value->insert(value->end(), more->begin(), more->end());
    } else if (s->kind == StmtKind::Expression && s->value->kind == ExprKind::Call && value && s->value->args.size() == 1) {
      const auto path = program::attribute_path(s->value->kids[0]);
      const Expr* arg = s->value->args[0].value;
      if (!path || path->size() != 2 || (*path)[0] != "__all__") return;
      if ((*path)[1] == "append" && arg->kind == ExprKind::String) value->push_back(arg->text);
      else if ((*path)[1] == "remove" && arg->kind == ExprKind::String)
        value->erase(std::remove(value->begin(), value->end(), arg->text), value->end());
      else if ((*path)[1] == "extend") {
        const auto more = string_list(arg);
        if (!more) return;
        value->insert(value->end(), more->begin(), more->end());
      } else return;
    } else {
      return;  // in a block, or in a way we do not read
    }
  }
  all_ = std::move(value);
}

}  // namespace shardwright::python
