// Writes one record per node, for tests/unit/python/compare_ast.py to compare with CPython's ast. Hidden: it runs only when asked,
// with SHARDWRIGHT_AST_FILES naming a file that lists paths. Output: SHARDWRIGHT_AST_OUT.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <sstream>

#include "program/print.h"
#include "program/visit.h"
#include "python/parse.h"

using namespace shardwright;
using namespace shardwright::program;

namespace {

std::string hex(const std::string& s) {
  std::uint32_t h = 2166136261u;
  for (unsigned char c : s) h = (h ^ c) * 16777619u;
  char out[32];
  std::snprintf(out, sizeof out, "%zu:%08x", s.size(), h);
  return out;
}

struct Writer {
  std::vector<std::string> records;

  void put(const std::string& kind, const Range& r, const std::string& extra, bool placed) {
    char at[40] = "-";
    if (placed) std::snprintf(at, sizeof at, "%08u %u", r.begin, r.end);
    records.push_back(std::string(at) + " " + kind + " " + extra);
  }

  static std::string extra(const Expr* e) {
    switch (e->kind) {
      case ExprKind::Int: return e->text.empty() ? std::to_string(e->integer) : "big";
      case ExprKind::Float:
      case ExprKind::Imaginary: {
        char number[40];
        std::snprintf(number, sizeof number, "%.17g", e->number);
        return number;
      }
      case ExprKind::String:
      case ExprKind::Bytes: return e->text.find("\\N{") == std::string::npos ? hex(e->text) : "named";
      case ExprKind::Compare: {
        std::string s;
        for (const auto& op : e->ops) s += op + ",";
        return s;
      }
      case ExprKind::Call: {
        std::string s;
        for (const Argument& a : e->args) s += a.star ? "*," : a.double_star ? "**," : a.keyword.empty() ? "p," : "";
        for (const Argument& a : e->args)
          if (!a.keyword.empty()) s += a.keyword + "=,";
        return s;
      }
      case ExprKind::Lambda: return parameters(e->function);
      case ExprKind::Tuple:
      case ExprKind::List:
      case ExprKind::Set:
      case ExprKind::Dict:
      case ExprKind::BoolOp:
      case ExprKind::Slice: return std::to_string(e->kids.size()) + e->text;
      case ExprKind::FString: return "";
      case ExprKind::FormattedValue: return e->text.substr(0, e->text[0] == '!' ? 2 : 0);
      default: return e->text;
    }
  }

  static std::string parameters(const Function* f) {
    std::string s;
    static const char* const marks[] = {"", "/", "kw:", "*", "**"};
    for (const Parameter& p : f->parameters) s += marks[p.kind] + p.name + (p.default_value ? "=" : "") + ",";
    return s;
  }

  void expr(const Expr* e, bool placed) {
    if (e->kind == ExprKind::FString) {
      put("FString", e->range, "", placed);
      for (const Expr* k : e->kids)
        if (k->kind == ExprKind::FormattedValue) {
          put("FormattedValue", k->range, extra(k), false);
          for (const Expr* v : k->kids) expr(v, false);
        }
      return;
    }
    if (e->kind == ExprKind::FormattedValue) {
      put("FormattedValue", e->range, extra(e), false);
      for (const Expr* v : e->kids) expr(v, false);
      return;
    }
    put(name(e->kind), e->range, extra(e), placed);
    for_each_child(e, [&](const Expr* k) { expr(k, placed); });
    if (e->kind == ExprKind::Call)
      for (const Argument& a : e->args)
        if (a.star) put("Starred", a.range, "", placed);
  }

  void stmts(const std::vector<Stmt*>& body) {
    for (const Stmt* s : body) stmt(s);
  }

  void stmt(const Stmt* s) {
    std::string extra;
    if (const Function* f = s->function) {
      std::vector<std::string> locals = f->locals;
      std::sort(locals.begin(), locals.end());
      extra = f->name + "(" + parameters(f) + ")" + (f->is_generator ? "gen" : "") + (f->is_async ? "async" : "") +
          (f->owner ? f->owner->name : "") + " [";
      for (const auto& n : locals) extra += n + ",";
      extra += "]";
    } else if (const ClassDef* c = s->class_def) {
      extra = c->name + std::to_string(c->bases.size());
    } else if (s->kind == StmtKind::Import || s->kind == StmtKind::ImportFrom) {
      extra = std::string(static_cast<std::size_t>(s->level), '.') + s->module + ":";
      for (const auto& i : s->imports) extra += i.name + "/" + i.asname + ",";
    } else if (s->kind == StmtKind::Global || s->kind == StmtKind::Nonlocal) {
      for (const auto& n : s->names) extra += n + ",";
    } else if (s->kind == StmtKind::Assign || s->kind == StmtKind::Delete) {
      extra = std::to_string(s->targets.size());
    } else if (s->kind == StmtKind::Try) {
      for (const auto& h : s->handlers) extra += h.name + ",";
      extra += std::to_string(s->body.size()) + "/" + std::to_string(s->orelse.size()) + "/" + std::to_string(s->finally.size());
    } else if (s->kind == StmtKind::With) {
      for (const auto& w : s->items) extra += w.target ? "t" : "n";
    } else if (s->kind == StmtKind::If || s->kind == StmtKind::For || s->kind == StmtKind::While) {
      extra = std::to_string(s->body.size()) + "/" + std::to_string(s->orelse.size());
    } else if (s->kind == StmtKind::AugAssign) {
      extra = s->op;
    }
    put(std::string("S") + name(s->kind),
        s->function        ? s->function->def_range
            : s->class_def ? s->class_def->def_range
                           : s->range,
        extra, true);
    if (s->kind == StmtKind::Match) {
      expr(s->value, true);
      for (const auto& c : s->cases) {
        if (c.guard) expr(c.guard, true);
        stmts(c.body);
      }
      return;
    }
    for_each_expr(s, [&](const Expr* e) { expr(e, true); });
    if (s->class_def)
      for (const Argument& a : s->class_def->bases)
        if (a.star) put("Starred", a.range, "", true);
    for_each_child(s, [&](const Stmt* k) { stmt(k); });
  }
};

}  // namespace

TEST_CASE("ast records", "[.ast]") {
  const char* list = std::getenv("SHARDWRIGHT_AST_FILES");
  const char* where = std::getenv("SHARDWRIGHT_AST_OUT");
  REQUIRE(list);
  REQUIRE(where);
  std::ifstream in(list);
  std::ofstream out(where);
  std::string path;
  double seconds = 0, slowest = 0;
  std::string slowest_path;
  std::size_t lines = 0;
  while (std::getline(in, path)) {
    std::ifstream file(path, std::ios::binary);
    std::string text((std::istreambuf_iterator<char>(file)), {});
    support::SourceManager sm;
    const auto id = sm.add(path, std::move(text));
    Arena arena;
    support::Diagnostics diagnostics;
    const std::clock_t start = std::clock();  // processor time: other work on the machine does not count
    const Module* m = python::parse(sm, id, arena, diagnostics, std::getenv("SHARDWRIGHT_AST_LATER") != nullptr);
    const double took = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    seconds += took;
    if (took > slowest) {
      slowest = took;
      slowest_path = path;
    }
    lines += sm.file(id).line_starts.size();
    Writer w;
    w.stmts(m->body);
    for (const Range& c : m->comments) w.put("Comment", c, "", true);
    for (const Range& e : m->syntax_errors) w.put("SyntaxError", e, "", true);
    out << "FILE " << path << "\n";
    for (const auto& r : w.records) out << r << "\n";
  }
  std::printf("parsed %zu lines in %.3f s: %.0f lines/s; slowest %.3f s: %s\n", lines, seconds, static_cast<double>(lines) / seconds,
              slowest, slowest_path.c_str());
}
