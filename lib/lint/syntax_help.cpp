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

std::vector<const program::Function*> functions(const program::Module& m, const support::SourceManager& sources,
                                                const std::function<bool(std::string_view)>& worth) {
  std::vector<const program::Function*> out;
  program::walk(m.body, [&](const Stmt* s) {
    if (s->kind != StmtKind::FunctionDef) return true;
    if (!worth(sources.text(s->range))) return false;
    out.push_back(s->function);
    return true;
  });
  return out;
}

const program::ClassDef* class_in(const program::Module& m, const std::string& name) {
  for (const auto* s : m.body)
    if (s->kind == StmtKind::ClassDef && s->class_def->name == name) return s->class_def;
  return nullptr;
}

support::Range name_range(const program::ClassDef& c) {
  return {c.def_range.file, c.def_range.begin, c.def_range.begin + 6 + static_cast<std::uint32_t>(c.name.size())};
}

std::string original_name(const std::string& name) {
  if (const auto at = name.find("Distributed"); at != std::string::npos) return name.substr(0, at) + name.substr(at + 11);
  if (name.starts_with("Parallel") && name.size() > 8) return name.substr(8);
  return {};
}

std::optional<std::size_t> stage_number(const std::string& name) {
  std::size_t end = name.size();
  while (end > 0 && std::isdigit(static_cast<unsigned char>(name[end - 1]))) --end;
  if (end == name.size() || name.size() - end > 4 || end < 7 || name.compare(end - 6, 6, "_stage") != 0) return std::nullopt;
  return std::stoul(name.substr(end));
}

namespace {

/// Letters changed, left out, put in or exchanged with their neighbour (Damerau, 1964).
std::size_t slips(const std::string& a, const std::string& b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i)
    for (std::size_t j = 1; j <= b.size(); ++j) {
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  return d[a.size()][b.size()];
}

}  // namespace

std::optional<std::string> nearest_slip(const std::string& word, const std::set<std::string>& names, bool* alone) {
  std::size_t best = std::max<std::size_t>(1, word.size() / 4), second = best + 1;
  const std::string* near = nullptr;
  for (const auto& n : names) {
    const std::size_t d = slips(word, n);
    if (d <= best && (!near || d < best)) {
      second = near ? best : second;
      best = d;
      near = &n;
    } else if (d < second) {
      second = d;
    }
  }
  if (alone) *alone = best < second;
  return near ? std::optional<std::string>(*near) : std::nullopt;
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
