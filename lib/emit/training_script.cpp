#include "emit/training_script.h"

#include <fmt/format.h>

#include <algorithm>

#include "program/visit.h"
#include "support/text.h"

namespace shardwright::emit {

using program::Expr;
using program::ExprKind;
using program::Stmt;
using program::StmtKind;

Names names_read(const Stmt* s) {
  program::NameSet n;
  program::names_read(s, n);
  return {n.names().begin(), n.names().end()};
}

Names target_names(const Expr* target) {
  program::NameSet n;
  program::target_names(target, n);
  return {n.names().begin(), n.names().end()};
}

namespace {

Names live(const std::vector<Stmt*>& list) {
  Names out;
  for (auto s = list.rbegin(); s != list.rend(); ++s) {
    if ((*s)->kind == StmtKind::Assign || (*s)->kind == StmtKind::AnnAssign)
      for (const auto* t : (*s)->targets)
        for (const auto& n : target_names(t)) out.erase(n);
    out.merge(names_needed(*s));
  }
  return out;
}

}  // namespace

Names names_needed(const Stmt* s) {
  if (s->kind != StmtKind::For && s->kind != StmtKind::With && s->kind != StmtKind::If && s->kind != StmtKind::While &&
      s->kind != StmtKind::Try)
    return names_read(s);
  Names out = live(s->body);
  if (s->kind == StmtKind::For)
    for (const auto& n : target_names(s->targets[0])) out.erase(n);
  for (auto item = s->items.rbegin(); item != s->items.rend(); ++item) {
    if (item->target)
      for (const auto& n : target_names(item->target)) out.erase(n);
    if (item->value) out.merge(names_read(item->value));
  }
  if (s->value) out.merge(names_read(s->value));
  out.merge(live(s->orelse));
  out.merge(live(s->finally));
  for (const auto& h : s->handlers) out.merge(live(h.body));
  return out;
}

Names names_written(const Stmt* s) {
  program::NameSet n;
  program::names_written(s, n);
  return {n.names().begin(), n.names().end()};
}
Names names_read(const Expr* e) {
  program::NameSet n;
  program::names_read(e, n);
  return {n.names().begin(), n.names().end()};
}
const Expr* value_bound(const Stmt* s, const std::string& name) {
  const bool binds = (s->kind == StmtKind::Assign || s->kind == StmtKind::AnnAssign) && s->targets.size() == 1 &&
      s->targets[0]->kind == ExprKind::Name && s->targets[0]->text == name;
  return binds ? s->value : nullptr;
}

bool meets(const Names& a, const Names& b) {
  return std::any_of(a.begin(), a.end(), [&](const auto& x) { return b.count(x) != 0; });
}

const Expr* find_expr(const Stmt* s, const std::function<bool(const Expr*)>& is) {
  const Expr* found = nullptr;
  program::walk_exprs({const_cast<Stmt*>(s)}, [&](const Expr* e) {
    if (!found && is(e)) found = e;
    return !found;
  });
  return found;
}

std::string last_name(const Expr* callee) {
  return callee->kind == ExprKind::Name || callee->kind == ExprKind::Attribute ? callee->text : "";
}

const Expr* call_argument(const Expr* call, const std::string& keyword, int at) {
  int place = 0;
  for (const auto& a : call->args) {
    if (a.star || a.double_star) return nullptr;
    if (a.keyword == keyword) return a.value;
    if (a.keyword.empty() && place++ == at) return a.value;
  }
  return nullptr;
}

const Expr* counting_call(const Stmt* loop) {
  const Expr* r = loop->value;
  if (r->kind == ExprKind::Call && last_name(r->kids[0]) == "tqdm" && !r->args.empty()) r = r->args[0].value;
  const bool counts =
      r->kind == ExprKind::Call && (last_name(r->kids[0]) == "range" || last_name(r->kids[0]) == "trange") && !r->args.empty();
  return counts ? r : nullptr;
}

bool jumps(const Stmt* s) {
  switch (s->kind) {
    case StmtKind::Break:
    case StmtKind::Continue:
    case StmtKind::Return: return true;
    case StmtKind::FunctionDef:
    case StmtKind::ClassDef:
    case StmtKind::For:  // what jumps in there mostly stays there
    case StmtKind::While: return false;
    default: break;
  }
  bool any = false;
  program::for_each_child(s, [&](const Stmt* inner) { any = any || jumps(inner); });
  return any;
}

std::string TrainingScript::line(const support::Range& r) const {
  const std::string file = path();
  return fmt::format("{}:{}", file.substr(file.rfind('/') + 1), sources_.position(r.file, r.begin).line);
}

std::string TrainingScript::shortened(const support::Range& r) const {
  const std::string t = text(r);
  return t.substr(0, std::min<std::size_t>(t.find('\n'), 90)) + (t.find('\n') != std::string::npos || t.size() > 90 ? " …" : "");
}

std::string TrainingScript::lines(const Statements& list) const {
  std::string out;
  for (const auto* s : list) {
    const std::string& file = sources_.file(m_.file).text;
    std::uint32_t begin = s->range.begin;
    if (s->kind == StmtKind::FunctionDef) begin = s->function->range.begin;
    if (s->kind == StmtKind::ClassDef) begin = s->class_def->range.begin;
    std::uint32_t start = begin;
    while (start > 0 && file[start - 1] != '\n') --start;
    const std::string indent = file.substr(start, begin - start);
    std::uint32_t from = start;
    while (from > 0) {  // comments above
      std::uint32_t up = from - 1;
      while (up > 0 && file[up - 1] != '\n') --up;
      if (file.compare(up, indent.size(), indent) != 0 || file[up + indent.size()] != '#') break;
      from = up;
    }
    std::uint32_t end = s->range.end, behind = end;  // with a comment behind it
    while (behind < file.size() && (file[behind] == ' ' || file[behind] == '\t')) ++behind;
    if (behind < file.size() && file[behind] == '#')
      while (end < file.size() && file[end] != '\n') ++end;
    std::string t = file.substr(from, end - from);
    if (indent.find_first_not_of(" \t") != std::string::npos) t = file.substr(begin, s->range.end - begin);  // behind a semicolon
    if (s->kind == StmtKind::AnnAssign && s->value && s->annotation &&
        s->targets[0]->kind == ExprKind::Name)  // no annotation of a global name
      t = file.substr(from, s->targets[0]->range.end - from) + " = " + file.substr(s->value->range.begin, end - s->value->range.begin);
    for (std::size_t at = 0; at < t.size();) {
      std::size_t stop = std::min(t.find('\n', at), t.size());
      std::string l = t.substr(at, stop - at);
      out += (l.rfind(indent, 0) == 0 ? l.substr(indent.size()) : l) + "\n";
      at = stop + 1;
    }
  }
  // The command line is Megatron's, so the script's own arguments have their defaults; every rank has a device of its own, the current one.
  for (const auto& [from, to] : {std::pair<std::string, std::string>{".parse_args()", ".parse_args([])"},
                                 {".parse_known_args()", ".parse_known_args([])"},
                                 {"\"cuda:0\"", "\"cuda\""},
                                 {"'cuda:0'", "'cuda'"}})
    out = support::replaced(std::move(out), from, to);
  return out;
}

const Stmt* TrainingScript::import_of(const std::string& name) const {
  for (const auto* s : m_.body)
    if (s->kind == StmtKind::Import || s->kind == StmtKind::ImportFrom)
      for (const auto& i : s->imports)
        if (program::bound_name(*s, i) == name) return s;
  return nullptr;
}

const Stmt* TrainingScript::definition_of(const std::string& name) const {
  for (const auto* s : m_.body) {
    if (s->kind == StmtKind::FunctionDef && s->function->name == name) return s;
    if (s->kind == StmtKind::ClassDef && s->class_def->name == name) return s;
  }
  return nullptr;
}

bool TrainingScript::main_guard(const Stmt* s) {
  return s->kind == StmtKind::If && s->value && s->value->kind == ExprKind::Compare && !s->value->kids.empty() &&
      s->value->kids[0]->text == "__name__";
}

Names TrainingScript::changed(const Stmt* s) const {
  Names out;
  program::walk({const_cast<Stmt*>(s)}, [&](const Stmt* inner) {
    for (const auto* t : inner->targets)
      program::walk(t, [&](const Expr* e) {
        if (e->kind == ExprKind::Subscript || e->kind == ExprKind::Attribute)
          if (const Expr* root = program::root_name(e)) out.insert(root->text);
        return e->kind == ExprKind::Tuple || e->kind == ExprKind::List || e->kind == ExprKind::Starred;
      });
    if (inner->kind == StmtKind::Expression && inner->value && inner->value->kind == ExprKind::Call) {
      const Expr* callee = inner->value->kids[0];
      const Expr* root = program::root_name(callee);
      // Megatron's samplers count epochs themselves.
      if (callee->kind == ExprKind::Attribute && root && !imported(root->text) && callee->text != "set_epoch") out.insert(root->text);
      if (callee->kind == ExprKind::Name && callee->text == "setattr" && !inner->value->args.empty())
        if (const Expr* object = program::root_name(inner->value->args[0].value)) out.insert(object->text);
    }
    return inner->kind != StmtKind::FunctionDef && inner->kind != StmtKind::ClassDef;
  });
  return out;
}

Names TrainingScript::all_names() const {
  Names out;
  program::walk(m_.body, [&](const Stmt* s) {
    for (const auto& n : names_written(s)) out.insert(n);
    if (s->kind == StmtKind::FunctionDef)
      for (const auto& p : s->function->parameters) out.insert(p.name);
    return true;
  });
  program::walk_exprs(m_.body, [&](const Expr* e) {
    if (e->kind == ExprKind::Name) out.insert(e->text);
    return true;
  });
  return out;
}

}  // namespace shardwright::emit
