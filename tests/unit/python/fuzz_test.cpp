// Broken source must neither crash nor give a tree that leads out of the text. SHARDWRIGHT_FUZZ_SEED and SHARDWRIGHT_FUZZ_ROUNDS
// choose what is tried; a failure prints its seed.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <random>

#include "program/print.h"
#include "program/visit.h"
#include "python/index.h"
#include "python/parse.h"

using namespace shardwright;
using namespace shardwright::program;

namespace {

const char* const kSource = R"py(
import torch.nn as nn, math
from .layers import (Mlp, DropPath as DP)
@register("x", k=[1, 2][0])
class Block(nn.Module, metaclass=M):
    """A block."""
    scale: float = 1e-5 if True else -2_0

    def __init__(self, dim, *args, heads: int = 8, act=lambda x, *y: x + 1, **kw) -> None:
        super().__init__()
        self.a, (self.b, *self.c) = dim // heads, args
        self.n = nn.ModuleList([Mlp(d, **kw) for d in range(3) if d not in (1, 2) for _ in kw])
        s = {"k": 1, **kw}; t = {1, *args}; u = f"a{dim!r:>{heads}}b{{}}" 'c' b''
        while (n := self.f(t)) is not None and not s or u: s += 1; continue
        else: pass
    async def forward(self, x, /, mask=None):
        global G
        try:
            async with self.lock(x) as l, m: yield await x[..., 1:-1, ::2, None]
        except (ValueError, KeyError) as e: raise TypeError(f'{e=}') from e
        except: del x[0], self.a
        finally:
            assert x.shape[0] == 1 < 2 != 3, "no"  # comment
        match x:
            case [1, *r] | Point(x=0) if r: return x @ self.w ** -1 & 3 ^ 5 | 6
            case {"k": v, **rest} as q: pass
            case _: nonlocal_ = 1
)py";

void check(const Expr* e, std::size_t size) {
  REQUIRE(e->range.begin <= e->range.end);
  REQUIRE(e->range.end <= size);
  REQUIRE(e->outer.end <= size);
  switch (e->kind) {
    case ExprKind::Compare: REQUIRE(e->kids.size() == e->ops.size() + 1); break;
    case ExprKind::Conditional: REQUIRE(e->kids.size() == 3); break;
    case ExprKind::Slice: REQUIRE(e->kids.size() == 3); return;
    case ExprKind::Dict:
      REQUIRE(e->kids.size() % 2 == 0);
      for (std::size_t i = 1; i < e->kids.size(); i += 2) REQUIRE(e->kids[i]);
      return;
    case ExprKind::Subscript:
    case ExprKind::Binary:
    case ExprKind::Walrus:
    case ExprKind::DictComp: REQUIRE(e->kids.size() == 2); break;
    case ExprKind::Attribute:
    case ExprKind::Call:
    case ExprKind::Unary:
    case ExprKind::Starred:
    case ExprKind::ListComp: REQUIRE(e->kids.size() == 1); break;
    case ExprKind::Lambda:
      REQUIRE(e->function);
      REQUIRE(e->function->body.size() == 1);
      break;
    default: break;
  }
  for (const Expr* k : e->kids) REQUIRE(k);
  for (const Argument& a : e->args) REQUIRE(a.value);
  for (const Clause& c : e->clauses) {
    REQUIRE(c.target);
    REQUIRE(c.iterable);
  }
}

void try_text(const std::string& text) {
  support::SourceManager sm;
  Arena arena;
  support::Diagnostics diagnostics;
  const Module* m = python::parse(sm, sm.add("fuzz.py", text), arena, diagnostics);
  REQUIRE(m->syntax_errors.empty() == diagnostics.all().empty());
  for (const auto& d : diagnostics.all()) (void)support::render(d, sm);
  walk(m->body, [&](const Stmt* s) {
    REQUIRE(s->range.begin <= s->range.end);
    REQUIRE(s->range.end <= text.size());
    const bool valued = s->kind == StmtKind::Expression || s->kind == StmtKind::Assign || s->kind == StmtKind::AugAssign ||
        s->kind == StmtKind::If || s->kind == StmtKind::For || s->kind == StmtKind::While || s->kind == StmtKind::Assert ||
        s->kind == StmtKind::Match;
    if (valued) REQUIRE(s->value);
    if (s->kind == StmtKind::AugAssign || s->kind == StmtKind::For || s->kind == StmtKind::Assign) REQUIRE(!s->targets.empty());
    if (s->kind == StmtKind::FunctionDef) REQUIRE(s->function);
    if (s->kind == StmtKind::ClassDef) REQUIRE(s->class_def);
    return true;
  });
  walk_exprs(m->body, [&](const Expr* e) {
    check(e, text.size());
    return true;
  });
  (void)print(*m);
  NameSet names;
  names_read(m->body, names);
  names_written(m->body, names);
  (void)python::ModuleIndex(*m);
}

}  // namespace

TEST_CASE("broken source") {
  const char* given = std::getenv("SHARDWRIGHT_FUZZ_SEED");
  const char* rounds = std::getenv("SHARDWRIGHT_FUZZ_ROUNDS");
  const unsigned long first = given ? std::strtoul(given, nullptr, 10) : 1;
  const unsigned long count = rounds ? std::strtoul(rounds, nullptr, 10) : 400;
  const std::string source = kSource;
  static const char* const kPieces[] = {
      "(",    ")",    "[",      "]",      "{",      "}",       ":",      ",",      "=",      "\n",      "\n    ", "\t",     "'",
      "\"",   "'''",  "f'{",    "}'",     "\\",     "#",       "@",      "*",      "**",     "lambda ", "if ",    " else ", " for ",
      " in ", "not ", "async ", "await ", "yield ", "def f(",  "class ", "match ", "case ",  "\r\n",    "\xff",   "1_",     "0x",
      ":=",   "->",   "...",    "`",      ";",      "import ", "from ",  " as ",   "print ", "exec ",   "with ",  "try:\n", "except "};
  for (unsigned long seed = first; seed < first + count; ++seed) {
    INFO("seed " << seed);
    std::mt19937 random(static_cast<std::uint32_t>(seed));
    std::string text = source;
    const unsigned edits = 1 + static_cast<unsigned>(random() % 6);
    for (unsigned i = 0; i < edits && !text.empty(); ++i) {
      const std::size_t at = random() % text.size();
      switch (random() % 4) {
        case 0: text.insert(at, kPieces[random() % (sizeof kPieces / sizeof *kPieces)]); break;
        case 1: text.erase(at, 1 + random() % 20); break;
        case 2: text[at] = static_cast<char>(1 + random() % 255); break;
        default: {
          const std::string part = text.substr(random() % text.size(), random() % 60);
          text.insert(at, part);
        }
      }
    }
    try_text(text);
    if (seed % 10 == 0) try_text(source.substr(0, random() % source.size()));
  }
}
