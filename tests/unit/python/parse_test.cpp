#include "python/parse.h"

#include <catch2/catch.hpp>

#include "program/print.h"
#include "program/visit.h"

using namespace shardwright;
using namespace shardwright::program;

namespace {

struct Parsed {
  support::SourceManager sm;
  Arena arena;
  support::Diagnostics diagnostics;
  Module* module;
  explicit Parsed(std::string text) { module = python::parse(sm, sm.add("t.py", std::move(text), "t"), arena, diagnostics); }
  std::string_view text(const Range& r) const { return sm.text(r); }
  const Expr* value() const { return module->body.at(0)->value; }
};

// The one expression of a source, printed.
std::string expr(const std::string& source) {
  Parsed p(source + "\n");
  if (!p.module->syntax_errors.empty()) return "syntax error";
  return print(p.value());
}

std::string stmts(const std::string& source) {
  Parsed p(source);
  REQUIRE(p.module->syntax_errors.empty());
  return print(*p.module);
}

}  // namespace

TEST_CASE("literals") {
  CHECK(expr("1_000") == "(Int 1000)");
  CHECK(expr("0xFF_ff") == "(Int 65535)");
  CHECK(expr("0o17") == "(Int 15)");
  CHECK(expr("0b1_01") == "(Int 5)");
  CHECK(expr("9223372036854775807") == "(Int 9223372036854775807)");
  CHECK(expr("9_223_372_036_854_775_808") == "(Int 9223372036854775808)");
  CHECK(expr("1e-5") == "(Float 1.0000000000000001e-05)");
  CHECK(expr("1_0.5E1_0") == "(Float 105000000000)");
  CHECK(expr(".5") == "(Float 0.5)");
  CHECK(expr("1e999") == "(Float inf)");
  CHECK(expr("2j") == "(Imaginary 2)");
  CHECK(expr("'a' \"b\"") == "(String \"ab\")");
  CHECK(expr(R"('\n\x41\u00e9\101\q\\')") == "(String \"\\nAéA\\\\q\\\\\")");
  CHECK(expr(R"(r'\n')") == "(String \"\\\\n\")");
  CHECK(expr(R"(b'\xff' b'a')") ==
        "(Bytes \"\xff"
        "a\")");
  CHECK(expr("'''a\r\nb'''") == "(String \"a\\nb\")");
  CHECK(expr("'a\\\nb'") == "(String \"ab\")");
  CHECK(expr("(None, True, False, ...)") == "(Tuple (None) (True) (False) (Ellipsis))");
}

TEST_CASE("f-strings") {
  CHECK(expr("f'a{x}b'") == "(FString (String \"a\") (FormattedValue (Name x)) (String \"b\"))");
  CHECK(expr("f'{{{x!r:>{w}.3}}}'") ==
        "(FString (String \"{\") (FormattedValue \"!r:>{w}.3\" (Name x) (FormattedValue (Name w))) (String \"}\"))");
  CHECK(expr("f'{x=}'") == "(FString (String \"x=\") (FormattedValue \"!r\" (Name x)))");
  CHECK(expr("f'{x = :.2f}'") == "(FString (String \"x = \") (FormattedValue \":.2f\" (Name x)))");
  CHECK(expr("'a' f'{x}' 'b' rf'\\d{y}'") ==
        "(FString (String \"a\") (FormattedValue (Name x)) (String \"b\\\\d\") (FormattedValue (Name y)))");
  CHECK(expr("f'{f\"{x}\"}'") == "(FString (FormattedValue (FString (FormattedValue (Name x)))))");
  CHECK(expr("f'{x[\"k\"]} {a if b else c}'") ==
        "(FString (FormattedValue (Subscript (Name x) (String \"k\"))) (String \" \") (FormattedValue (Conditional (Name a) (Name b) (Name "
        "c))))");
  CHECK(expr("f'  lead {x}  tail\\t'") == "(FString (String \"  lead \") (FormattedValue (Name x)) (String \"  tail\\x09\"))");
  CHECK(expr("f'{{}}'") == "(FString (String \"{}\"))");
}

TEST_CASE("operators") {
  CHECK(expr("-x ** 2") == "(Unary \"-\" (Binary \"**\" (Name x) (Int 2)))");
  CHECK(expr("a + b * c @ d") == "(Binary \"+\" (Name a) (Binary \"@\" (Binary \"*\" (Name b) (Name c)) (Name d)))");
  CHECK(expr("a < b <= c not in d is not e") == "(Compare < <= not in is not (Name a) (Name b) (Name c) (Name d) (Name e))");
  CHECK(expr("a not  in b") == "(Compare not in (Name a) (Name b))");
  CHECK(expr("(a < b) < c") == "(Compare < (Compare < (Name a) (Name b)) (Name c))");
  CHECK(expr("a and b and c or not d") == "(BoolOp \"or\" (BoolOp \"and\" (Name a) (Name b) (Name c)) (Unary \"not\" (Name d)))");
  CHECK(expr("a and (b and c)") == "(BoolOp \"and\" (Name a) (BoolOp \"and\" (Name b) (Name c)))");
  CHECK(expr("a if b else c if d else e") == "(Conditional (Name a) (Name b) (Conditional (Name c) (Name d) (Name e)))");
  CHECK(expr("(y := f(x))") == "(Walrus (Name y) (Call (Name f) (Name x)))");
  CHECK(expr("a | b & c ^ d << 1") ==
        "(Binary \"|\" (Name a) (Binary \"^\" (Binary \"&\" (Name b) (Name c)) (Binary \"<<\" (Name d) (Int 1))))");
}

TEST_CASE("calls, subscripts and stars") {
  CHECK(expr("f(a, *b, k=1, **c)") == "(Call (Name f) (Name a) *(Name b) k=(Int 1) **(Name c))");
  CHECK(expr("f(x for x in y)") == "(Call (Name f) (GeneratorExp (Name x) for (Name x) in (Name y)))");
  CHECK(expr("f(*a or b, *c.d(), *[1])") ==
        "(Call (Name f) *(BoolOp \"or\" (Name a) (Name b)) *(Call (Attribute \"d\" (Name c))) *(List (Int 1)))");
  CHECK(expr("x[..., None, 1:-1, ::2, a:]") ==
        "(Subscript (Name x) (Tuple (Ellipsis) (None) (Slice (Int 1) (Unary \"-\" (Int 1)) -) (Slice - - (Int 2)) (Slice (Name a) - -)))");
  CHECK(expr("x[0,]") == "(Subscript (Name x) (Tuple (Int 0)))");
  CHECK(expr("x[*a, 1]") == "(Subscript (Name x) (Tuple (Starred (Name a)) (Int 1)))");
  CHECK(expr("[*a, b]") == "(List (Starred (Name a)) (Name b))");
  CHECK(expr("{**a, 'k': 1, **b}") == "(Dict - (Name a) (String \"k\") (Int 1) - (Name b))");
  CHECK(expr("{1, *s}") == "(Set (Int 1) (Starred (Name s)))");
  CHECK(expr("()") == "(Tuple)");
  CHECK(expr("a, b,") == "(Tuple (Name a) (Name b))");
  CHECK(expr("print(x)(y)") == "(Call (Call (Name print) (Name x)) (Name y))");
  CHECK(expr("print") == "(Name print)");
  CHECK(expr("match(type, print)") == "(Call (Name match) (Name type) (Name print))");
}

TEST_CASE("comprehensions and lambdas") {
  CHECK(expr("[x * y for x in a if x if y for y in b]") ==
        "(ListComp (Binary \"*\" (Name x) (Name y)) for (Name x) in (Name a) if (Name x) if (Name y) for (Name y) in (Name b))");
  CHECK(expr("{k: v for k, v in d.items()}") ==
        "(DictComp (Name k) (Name v) for (Tuple (Name k) (Name v)) in (Call (Attribute \"items\" (Name d))))");
  CHECK(expr("lambda x, *a, y=1, **k: x") == "(Lambda [x *a kw:y=(Int 1) **k] (Name x))");
  CHECK(expr("lambda: (yield)") == "(Lambda [] (Yield))");
  CHECK(expr("lambda x: x if x else y") == "(Lambda [x] (Conditional (Name x) (Name x) (Name y)))");
}

TEST_CASE("parentheses are in outer only") {
  Parsed p("y = ((a + b)) * (c, d)\n");
  const Expr* e = p.value();
  CHECK(p.text(e->kids[0]->range) == "a + b");
  CHECK(p.text(e->kids[0]->outer) == "((a + b))");
  CHECK(p.text(e->kids[1]->range) == "(c, d)");
  CHECK(p.text(e->range) == "((a + b)) * (c, d)");
}

TEST_CASE("statements") {
  CHECK(stmts("a = b, *c = d, e\n") == "Assign (Name a) (Tuple (Name b) (Starred (Name c))) (Tuple (Name d) (Name e))\n");
  CHECK(stmts("x: List[int] = []\ny: int\n") ==
        "AnnAssign (Name x) : (Subscript (Name List) (Name int)) (List)\nAnnAssign (Name y) : (Name int)\n");
  CHECK(stmts("x **= 2; y //= 3\n") == "AugAssign (Name x) **= (Int 2)\nAugAssign (Name y) //= (Int 3)\n");
  CHECK(stmts("def f(x: A[int] | B | None): pass\n")
            .find("x:(Binary \"|\" (Binary \"|\" (Subscript (Name A) (Name int)) (Name B)) (None))") != std::string::npos);
  CHECK(stmts("if a:\n  pass\nelif b:\n  pass\nelse:\n  x\n") ==
        "If (Name a)\n  Pass\nelse\n  If (Name b)\n    Pass\n  else\n    Expression (Name x)\n");
  CHECK(stmts("for i, x in enumerate(y):\n  continue\nelse:\n  break\n") ==
        "For (Tuple (Name i) (Name x)) (Call (Name enumerate) (Name y))\n  Continue\nelse\n  Break\n");
  CHECK(stmts("with a as b, c: pass\n") == "With (Name a) as (Name b) (Name c)\n  Pass\n");
  CHECK(stmts("with (a as b, c as (d, e),): pass\n") == "With (Name a) as (Name b) (Name c) as (Tuple (Name d) (Name e))\n  Pass\n");
  CHECK(stmts("with (yield_()): pass\n") == "With (Call (Name yield_))\n  Pass\n");
  CHECK(stmts("try:\n  a\nexcept (B, C) as e:\n  b\nexcept:\n  c\nelse:\n  d\nfinally:\n  f\n") ==
        "Try\n  Expression (Name a)\nexcept (Tuple (Name B) (Name C)) as e\n  Expression (Name b)\nexcept\n  Expression (Name c)\nelse\n"
        "  Expression (Name d)\nfinally\n  Expression (Name f)\n");
  CHECK(stmts("try:\n  a\nexcept* E as e:\n  b\n") == "Try \"*\"\n  Expression (Name a)\nexcept (Name E) as e\n  Expression (Name b)\n");
  CHECK(
      stmts("import a.b, c as d\nfrom . import x\nfrom ..p.q import (y as z, w,)\nfrom m import *\nfrom __future__ import annotations\n") ==
      "Import a.b c as d\nImportFrom . x\nImportFrom ..p.q y as z w\nImportFrom m *\nImportFrom __future__ annotations\n");
  CHECK(stmts("raise A(b) from c\nraise\nassert x, 'm'\ndel a, b[0]\n") ==
        "Raise (Call (Name A) (Name b)) extra (Name c)\nRaise\nAssert (Name x) extra (String \"m\")\nDelete (Name a) (Subscript (Name b) "
        "(Int 0))\n");
  CHECK(stmts("type X = int\n") == "TypeAlias \"X\"\n");
}

TEST_CASE("functions and classes") {
  const std::string source =
      "@dec(1)\n@reg.add\ndef f(a, /, b: int = 1, *args, c, d=2, **kw) -> Tuple[int, ...]:\n"
      "    global g\n    g = x = 1\n    for i in y: pass\n    import os.path\n    def inner(): return x\n"
      "    z = [q for q in w if (m := q)]\n    with o as p: pass\n    try: pass\n    except E as e: pass\n    yield z\n";
  CHECK(stmts(source).rfind(
            "FunctionDef f generator [/a b:(Name int)=(Int 1) *args kw:c kw:d=(Int 2) **kw] -> "
            "(Subscript (Name Tuple) (Tuple (Name int) (Ellipsis))) @(Call (Name dec) (Int 1)) @(Attribute \"add\" (Name reg)) "
            "locals[a b args c d kw x i os inner z m p e]\n",
            0) == 0);
  Parsed p(
      "class A(B, metaclass=M):\n    '''doc'''\n    x = 1\n    if T:\n        async def f(self):\n            await self.g()\n\n# after\ny "
      "= 1\n");
  const Stmt* s = p.module->body.at(0);
  REQUIRE(s->class_def);
  CHECK(s->class_def->bases.at(1).keyword == "metaclass");
  const Function* f = s->class_def->body.at(2)->body.at(0)->function;
  REQUIRE(f);
  CHECK(f->owner == s->class_def);
  CHECK(f->is_async);
  CHECK(f->module == p.module);
  CHECK(p.text(f->body_range) == "await self.g()");
  CHECK(p.text(s->range).substr(p.text(s->range).size() - 8) == "self.g()");
  REQUIRE(p.module->comments.size() == 1);
  CHECK(p.text(p.module->comments[0]) == "# after");
  Parsed d("@a\n@b\nclass C: pass\n");
  CHECK(d.text(d.module->body.at(0)->class_def->range) == "@a\n@b\nclass C: pass");
  CHECK(d.text(d.module->body.at(0)->class_def->def_range) == "class C: pass");
}

TEST_CASE("match statements") {
  const std::string source =
      "def f(c):\n  match c, d:\n    case [1, -2, *rest] if rest: pass\n    case Point(x=0, y=yy) | None: pass\n    case {'k': v, **o}: "
      "pass\n"
      "    case (a, b) as w: pass\n    case m.X | 'lit': pass\n    case _: pass\n";
  const std::string text = stmts(source);
  CHECK(text.find("Match (Tuple (Name c) (Name d))") != std::string::npos);
  CHECK(text.find("case (List (Int 1) (Unary \"-\" (Int 2)) (Starred (Name rest))) if (Name rest)") != std::string::npos);
  CHECK(text.find("case (Binary \"|\" (Call (Name Point) x=(Int 0) y=(Name yy)) (None))") != std::string::npos);
  CHECK(text.find("case (Dict (String \"k\") (Name v) - (Name o))") != std::string::npos);
  CHECK(text.find("case (Walrus (Name w) (Tuple (Name a) (Name b)))") != std::string::npos);
  CHECK(text.find("case (Binary \"|\" (Attribute \"X\" (Name m)) (String \"lit\"))") != std::string::npos);
  CHECK(text.find("case (Name _)") != std::string::npos);
  CHECK(text.find("locals[c rest yy v o a b w]") != std::string::npos);
}

TEST_CASE("offsets are into the bytes as they are") {
  Parsed p("\xEF\xBB\xBFx = 'é'  # ü\r\nif y:\r\n\tz = 1\r\n");
  REQUIRE(p.module->syntax_errors.empty());
  CHECK(p.text(p.module->body.at(0)->range) == "x = 'é'");
  CHECK(p.text(p.module->body.at(1)->body.at(0)->range) == "z = 1");
  CHECK(p.text(p.module->comments.at(0)) == "# ü");
}

TEST_CASE("syntax errors are reported with their place, and the rest is read") {
  Parsed p("x = 1\ndef f(:\n  pass\ny = 2\n");
  CHECK_FALSE(p.module->syntax_errors.empty());
  REQUIRE(p.diagnostics.has_errors());
  CHECK(p.sm.describe(p.diagnostics.all().at(0).range).rfind("t.py:2:", 0) == 0);
  CHECK(p.module->body.at(0)->kind == StmtKind::Assign);
  for (const char* bad : {"print 'x'\n",
                          "exec 'x'\n",
                          "try:\n  a\nexcept A, e:\n  b\n",
                          "x = (1\n",
                          "'unterminated\n",
                          "f(\n",
                          "class\n",
                          "a b\n",
                          "\x01\x02",
                          "if x\n  y\n",
                          "`a`\n",
                          "x = \n",
                          "def\n",
                          "@\n",
                          "match x:\n",
                          "f'{'\n",
                          "f'{x'\n",
                          "import\n",
                          "from . import\n",
                          "x[\n",
                          "lambda\n",
                          "async\n",
                          "{1:}\n",
                          "with\n",
                          "for x\n",
                          "def f(a, (b, c)): pass\n"}) {
    INFO(bad);
    Parsed q(bad);
    CHECK_FALSE(q.module->syntax_errors.empty());
    CHECK(q.diagnostics.has_errors());
    (void)print(*q.module);
  }
  for (const char* good : {"", "\n\n", "# only a comment", "pass", "x = 1 # no newline", "\\\n\nx\n"}) {
    INFO(good);
    Parsed q(good);
    CHECK(q.module->syntax_errors.empty());
  }
}

TEST_CASE("deep nesting is an error, not a crash") {
  const auto repeat = [](const std::string& s, int n) {
    std::string out;
    for (int i = 0; i < n; ++i) out += s;
    return out;
  };
  const int n = 50000;
  for (const std::string& source :
       {"x = " + repeat("(", n) + "1" + repeat(")", n) + "\n", "x = " + repeat("[", n) + repeat("]", n) + "\n",
        "x = " + repeat("-", n) + "1\n", "x = 1" + repeat(" + 1", n) + "\n", "x = a" + repeat(".b()", n) + "\n",
        "x = " + repeat("lambda: ", n) + "1\n", "x = " + repeat("not ", n) + "1\n", repeat("(", n), repeat("f(", n), repeat("{", n)}) {
    Parsed p(source);
    CHECK_FALSE(p.module->syntax_errors.empty());
    (void)print(*p.module);
  }
  std::string nested;
  for (int i = 0; i < 90; ++i) nested += std::string(static_cast<std::size_t>(i), ' ') + "if x:\n";
  Parsed p(nested + std::string(90, ' ') + "pass\n");
  CHECK(p.module->syntax_errors.empty());
  Parsed chain("x = 1" + repeat(" + 1", 500) + "\n");
  CHECK(chain.module->syntax_errors.empty());
}

TEST_CASE("the text of every node reads as the same node") {
  Parsed p(
      "import a.b as c\nfrom .x import (y, z)\n@dec\ndef f(self, x, *a, k=(1 + 2), **kw):\n    '''doc'''\n    q, (w, *e) = (x[1:2, ...], "
      "[i for i in x if (i > 0)])\n"
      "    self.h = self.g(*a, **kw) if (x\n        and k) else -x ** 2\n    return lambda z: {**z, 'a': not z}\nclass K(f):\n    v: int = "
      "3\n    def m(self): yield self\n"
      "with open(f'{f!r:>{3}}') as g, g:\n    x += (yield)\nwhile True:\n    try: pass\n    except E as e: raise X from e\n    finally: "
      "del x[0]\n");
  REQUIRE(p.module->syntax_errors.empty());
  int checked = 0;
  walk_exprs(p.module->body, [&](const Expr* e) {
    if (e->kind == ExprKind::Slice || e->kind == ExprKind::FormattedValue || e->kind == ExprKind::FString) return false;
    if (e->kind == ExprKind::Tuple && !e->kids.empty() && e->kids[0]->kind == ExprKind::Slice) return false;
    Parsed again("(" + std::string(p.text(e->range)) + "\n)\n");
    INFO(p.text(e->range));
    CHECK(again.module->syntax_errors.empty());
    if (e->kind != ExprKind::Starred) CHECK(print(again.value()) == print(e));
    ++checked;
    return true;
  });
  CHECK(checked > 60);
  walk(p.module->body, [&](const Stmt* s) {
    // A statement on its own, with the indentation it had.
    const auto column = p.sm.position(s->range.file, s->range.begin).column - 1;
    std::string text = std::string(p.text(s->range)) + "\n";
    if (column > 0) text = "if 1:\n" + std::string(column, ' ') + text;
    Parsed again(text);
    INFO(text);
    CHECK(again.module->syntax_errors.empty());
    const std::vector<Stmt*>& body = column > 0 ? again.module->body.at(0)->body : again.module->body;
    CHECK(body.size() == 1);
    // An `elif` comes out of its chain: its text has the keyword.
    CHECK(print(body) == print(std::vector<Stmt*>{const_cast<Stmt*>(s)}));
    return true;
  });
}

TEST_CASE("bodies read later are the bodies read at once") {
  const std::string text = R"py(import x  # one


@deco(
    1, {"a": ")"})
def first(a, b: int = 3) -> int:
    """A text with # and a ' in it."""

    # a comment of the body
    if a:
        def inner(): return b
        return (a +
                b)
    total = 'it''s' "d'o'ne"; more = f"{a!r:>{b}} {'}'}"  # trailing
    return total
# at the margin

class K(Base):
    attribute = 1

    async def later(self, *args, **kw):
        nonlocal_name = 1
        async for i in args:
            yield i, nonlocal_name, kw, self.attribute
        # the last line is a comment

    def short(self): pass

    class Inner:
        def method(self):
            """Long enough to be left out, in a class in a class, so that its owner is the inner one."""
            return self

if x:
    def conditional(a_rather_long_parameter_name):
        return a_rather_long_parameter_name + a_rather_long_parameter_name + a_rather_long_parameter_name
last = 1
)py";
  support::SourceManager sm;
  Arena arena;
  support::Diagnostics said;
  const auto file = sm.add("t.py", text, "t");
  const Module* now = python::parse(sm, file, arena, said);
  const Module* later = python::parse(sm, file, arena, said, true);
  const auto find = [](const Module* m, const std::string& name) {
    const Function* out = nullptr;
    walk(m->body, [&](const Stmt* s) {
      if (s->function && s->function->name == name) out = s->function;
      return s->kind == StmtKind::ClassDef || s->kind == StmtKind::If;
    });
    return out;
  };
  REQUIRE(find(later, "first"));
  CHECK(find(later, "first")->later);
  CHECK(find(later, "later")->later);
  CHECK(find(later, "method")->later);
  CHECK_FALSE(find(later, "short")->later);
  CHECK_FALSE(find(later, "conditional")->later);
  for (const char* name : {"first", "later", "method", "conditional"}) {
    const Function *a = find(now, name), *b = find(later, name);
    CHECK(a->range == b->range);
    CHECK(a->def_range == b->def_range);
    CHECK(*a->locals == *b->locals);
    CHECK(bool(a->is_generator) == bool(b->is_generator));
    CHECK(a->body_range == b->body_range);
    CHECK(print(*a->body) == print(*b->body));
    CHECK((a->owner ? a->owner->name : "") == (b->owner ? b->owner->name : ""));
  }
  CHECK(print(*now) == print(*later));
  CHECK(now->comments == later->comments);
  // An error anywhere: everything is read at once.
  const Module* wrong = python::parse(sm, sm.add("w.py", text + "x = = 1\n", "w"), arena, said, true);
  CHECK_FALSE(wrong->syntax_errors.empty());
  CHECK_FALSE(find(wrong, "first")->later);
}
