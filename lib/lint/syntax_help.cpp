#include "lint/syntax_help.h"

#include <algorithm>

#include "program/visit.h"

namespace shardwright::lint::syntax {

using program::Expr;
using program::ExprKind;
using program::Stmt;
using program::StmtKind;

bool contains(std::string_view text, std::initializer_list<std::string_view> parts) {
  return std::any_of(parts.begin(), parts.end(), [&](auto p) { return text.find(p) != std::string_view::npos; });
}

bool has_word(std::string_view text, std::string_view word) {
  auto letter = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  for (std::size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    if ((at == 0 || !letter(text[at - 1])) && (end >= text.size() || !letter(text[end]))) return true;
  }
  return false;
}

std::string_view callee(const Expr* call) {
  if (!call || call->kind != ExprKind::Call) return {};
  const Expr* c = call->kids[0];
  return c->kind == ExprKind::Attribute || c->kind == ExprKind::Name ? std::string_view(c->text) : std::string_view();
}

const Expr* argument(const Expr* call, std::string_view keyword, std::size_t position) {
  std::size_t i = 0;
  for (const auto& a : call->args) {
    if (a.keyword == keyword) return a.value;
    if (a.keyword.empty() && !a.star && !a.double_star && i++ == position && position < 99) return a.value;
  }
  return nullptr;
}

void calls_of(const Stmt* s, const std::function<void(const Expr*)>& visit) {
  program::for_each_expr(s, [&](const Expr* e) {
    program::walk(e, [&](const Expr* x) {
      if (x->kind == ExprKind::Call) visit(x);
      return x->kind != ExprKind::Lambda;
    });
  });
}

std::vector<const program::Function*> functions(const program::Module& m) {
  std::vector<const program::Function*> out;
  program::walk(m.body, [&](const Stmt* s) {
    if (s->kind == StmtKind::FunctionDef) out.push_back(s->function);
    return true;
  });
  return out;
}

const program::Function* method(const program::ClassDef& c, std::string_view name) {
  for (const auto* s : c.body)
    if (s->kind == StmtKind::FunctionDef && s->function->name == name) return s->function;
  return nullptr;
}

std::vector<const Expr*> returns(const program::Function& f) {
  std::vector<const Expr*> out;
  program::walk(f.body, [&](const Stmt* s) {
    if (s->kind == StmtKind::Return && s->value) out.push_back(s->value);
    return s->kind != StmtKind::FunctionDef && s->kind != StmtKind::ClassDef;
  });
  return out;
}

std::string_view self_attribute(const Expr* e) {
  if (!e || e->kind != ExprKind::Attribute || e->kids[0]->kind != ExprKind::Name || e->kids[0]->text != "self") return {};
  return e->text;
}

}  // namespace shardwright::lint::syntax
