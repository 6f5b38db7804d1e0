#include "rewrite/class_tests.h"

#include "program/visit.h"

namespace shardwright::rewrite {
namespace {

using program::Expr;
using program::ExprKind;

bool calls(const Expr* e, const char* name, std::size_t arguments) {
  return e->kind == ExprKind::Call && e->kids[0]->kind == ExprKind::Name && e->kids[0]->text == name && e->args.size() == arguments;
}

/// Names of classes in an expression: `nn.Linear`, `(Linear, nn.Conv2d)`.
void names_of(const Expr* e, std::set<std::string>& out) {
  program::walk(e, [&](const Expr* k) {
    if (k->kind == ExprKind::Name || k->kind == ExprKind::Attribute) out.insert(k->text);
    return true;
  });
}

void strings_of(const Expr* e, std::set<std::string>& out) {
  program::walk(e, [&](const Expr* k) {
    if (k->kind == ExprKind::String) out.insert(k->text);
    return true;
  });
}

bool has_attribute(const Expr* e, const char* name) {
  bool found = false;
  program::walk(e, [&](const Expr* k) {
    found = found || (k->kind == ExprKind::Attribute && k->text == name);
    return !found;
  });
  return found;
}

}  // namespace

ClassTests class_tests(const model::Trace& t) {
  ClassTests out;
  std::set<const program::Function*> seen;
  for (const auto& f : t.frames) {
    if (f.builtin || !f.function || !seen.insert(f.function).second) continue;
    bool by_name = false, by_class = false;  // `kind = m.__class__.__name__; if kind == "Linear"`
    program::walk_exprs(f.function->body, [&](const Expr* e) {
      by_name = by_name || (e->kind == ExprKind::Attribute && e->text == "__name__");
      by_class = by_class || (e->kind == ExprKind::Attribute && e->text == "__class__");
      out.module = out.module || (e->kind == ExprKind::Attribute && e->text == "__module__");
      return true;
    });
    program::walk_exprs(f.function->body, [&](const Expr* e) {
      if (calls(e, "isinstance", 2)) names_of(e->args[1].value, out.asked);
      if (e->kind != ExprKind::Compare) return true;
      for (const Expr* side : e->kids) {
        const bool type = calls(side, "type", 1), cls = side->kind == ExprKind::Attribute && side->text == "__class__";
        for (const Expr* other : e->kids) {
          if (other == side) continue;
          if (type || cls) names_of(other, out.exact);
          if (cls) names_of(other, out.asked);
          if (!by_name || (side->kind != ExprKind::Name && !has_attribute(side, "__name__"))) continue;
          strings_of(other, out.exact);
          if (by_class) strings_of(other, out.asked);
        }
      }
      return true;
    });
  }
  return out;
}

}  // namespace shardwright::rewrite
