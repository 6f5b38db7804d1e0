#include "program/print.h"

#include <cstdio>

namespace shardwright::program {

const char* name(ExprKind kind) {
  switch (kind) {
#define CASE(x) \
  case ExprKind::x: return #x
    CASE(Name);
    CASE(None);
    CASE(True);
    CASE(False);
    CASE(Ellipsis);
    CASE(Int);
    CASE(Float);
    CASE(Imaginary);
    CASE(String);
    CASE(Bytes);
    CASE(FString);
    CASE(FormattedValue);
    CASE(Attribute);
    CASE(Subscript);
    CASE(Slice);
    CASE(Call);
    CASE(Unary);
    CASE(Binary);
    CASE(BoolOp);
    CASE(Compare);
    CASE(Conditional);
    CASE(Tuple);
    CASE(List);
    CASE(Set);
    CASE(Dict);
    CASE(Lambda);
    CASE(ListComp);
    CASE(SetComp);
    CASE(GeneratorExp);
    CASE(DictComp);
    CASE(Starred);
    CASE(Walrus);
    CASE(Await);
    CASE(Yield);
    CASE(YieldFrom);
    CASE(Opaque);
#undef CASE
  }
  return "?";
}

const char* name(StmtKind kind) {
  switch (kind) {
#define CASE(x) \
  case StmtKind::x: return #x
    CASE(Expression);
    CASE(Assign);
    CASE(AugAssign);
    CASE(AnnAssign);
    CASE(Return);
    CASE(If);
    CASE(For);
    CASE(While);
    CASE(With);
    CASE(Try);
    CASE(Raise);
    CASE(Assert);
    CASE(Delete);
    CASE(Global);
    CASE(Nonlocal);
    CASE(Pass);
    CASE(Break);
    CASE(Continue);
    CASE(FunctionDef);
    CASE(ClassDef);
    CASE(Import);
    CASE(ImportFrom);
    CASE(Match);
    CASE(TypeAlias);
    CASE(Opaque);
#undef CASE
  }
  return "?";
}

namespace {

std::string quoted(const std::string& s) {
  std::string out = "\"";
  for (char c : s) {
    if (c == '\n') out += "\\n";
    else if (c == '"' || c == '\\') (out += '\\') += c;
    else if (static_cast<unsigned char>(c) < 0x20) {
      char hex[8];
      std::snprintf(hex, sizeof hex, "\\x%02x", static_cast<unsigned>(static_cast<unsigned char>(c)));
      out += hex;
    } else out += c;
  }
  return out + "\"";
}

void put(std::string& out, const Expr* e);

void put(std::string& out, const std::vector<Argument>& args) {
  for (const Argument& a : args) {
    out += ' ';
    if (a.star) out += '*';
    if (a.double_star) out += "**";
    if (!a.keyword.empty()) out += a.keyword + "=";
    put(out, a.value);
  }
}

void put(std::string& out, const std::vector<Parameter>& parameters) {
  out += "[";
  bool first = true;
  for (const Parameter& p : parameters) {
    if (!first) out += ' ';
    first = false;
    static const char* const marks[] = {"", "/", "kw:", "*", "**"};
    out += marks[p.kind] + p.name;
    if (p.annotation) put(out += ':', p.annotation);
    if (p.default_value) put(out += '=', p.default_value);
  }
  out += "]";
}

void put(std::string& out, const Expr* e) {
  if (!e) {
    out += "-";
    return;
  }
  out += "(";
  out += name(e->kind);
  switch (e->kind) {
    case ExprKind::Name: out += " " + e->text; break;
    case ExprKind::Int: out += " " + (e->text.empty() ? std::to_string(e->integer) : e->text); break;
    case ExprKind::Float:
    case ExprKind::Imaginary: {
      char number[40];
      std::snprintf(number, sizeof number, " %.17g", e->number);
      out += number;
      break;
    }
    default:
      if (!e->text.empty()) out += " " + quoted(e->text);
  }
  for (const std::string& op : e->ops) out += " " + op;
  for (const Expr* k : e->kids) put(out += ' ', k);
  put(out, e->args);
  for (const Clause& c : e->clauses) {
    put(out += " for ", c.target);
    put(out += " in ", c.iterable);
    for (const Expr* i : c.conditions) put(out += " if ", i);
  }
  if (e->function) {
    put(out += ' ', e->function->parameters);
    if (!e->function->body.empty()) put(out += ' ', e->function->body[0]->value);
  }
  out += ")";
}

struct Printer {
  std::string out;

  void line(int indent, const std::string& text) { out += std::string(static_cast<std::size_t>(indent) * 2, ' ') + text + "\n"; }

  void suite(int indent, const char* label, const std::vector<Stmt*>& body) {
    if (body.empty()) return;
    if (*label) line(indent, label);
    for (const Stmt* s : body) stmt(indent + (*label ? 1 : 0), s);
  }

  void stmt(int indent, const Stmt* s) {
    std::string head = name(s->kind);
    for (const std::string& n : s->names) head += " " + n;
    for (const Expr* t : s->targets) put(head += ' ', t);
    if (!s->op.empty()) head += " " + s->op + "=";
    if (s->annotation) put(head += " : ", s->annotation);
    if (s->value) put(head += ' ', s->value);
    if (s->extra) put(head += " extra ", s->extra);
    if (s->kind == StmtKind::ImportFrom) head += " " + std::string(static_cast<std::size_t>(s->level), '.') + s->module;
    for (const ImportName& i : s->imports) head += " " + i.name + (i.asname.empty() ? "" : " as " + i.asname);
    for (const WithItem& w : s->items) {
      put(head += ' ', w.value);
      if (w.target) put(head += " as ", w.target);
    }
    if (!s->text.empty()) head += " " + quoted(s->text);
    if (const Function* f = s->function) {
      head += " " + f->name + (f->is_async ? " async" : "") + (f->is_generator ? " generator" : "") + " ";
      put(head, f->parameters);
      if (f->returns) put(head += " -> ", f->returns);
      for (const Expr* d : f->decorators) put(head += " @", d);
      head += " locals[";
      for (std::size_t i = 0; i < f->locals.size(); ++i) head += (i ? " " : "") + f->locals[i];
      head += "]";
      line(indent, head);
      suite(indent + 1, "", f->body);
      return;
    }
    if (const ClassDef* c = s->class_def) {
      head += " " + c->name;
      put(head, c->bases);
      for (const Expr* d : c->decorators) put(head += " @", d);
      line(indent, head);
      suite(indent + 1, "", c->body);
      return;
    }
    line(indent, head);
    suite(indent + 1, "", s->body);
    for (const Handler& h : s->handlers) {
      std::string text = "except";
      if (h.type) put(text += ' ', h.type);
      if (!h.name.empty()) text += " as " + h.name;
      line(indent, text);
      suite(indent + 1, "", h.body);
    }
    for (const MatchCase& m : s->cases) {
      std::string text = "case ";
      put(text, m.pattern);
      if (m.guard) put(text += " if ", m.guard);
      line(indent, text);
      suite(indent + 1, "", m.body);
    }
    suite(indent, "else", s->orelse);
    suite(indent, "finally", s->finally);
  }
};

}  // namespace

std::string print(const Expr* e) {
  std::string out;
  put(out, e);
  return out;
}

std::string print(const std::vector<Stmt*>& body) {
  Printer p;
  for (const Stmt* s : body) p.stmt(0, s);
  return std::move(p.out);
}

std::string print(const Module& module) { return print(module.body); }

}  // namespace shardwright::program
