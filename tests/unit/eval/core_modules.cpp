#include <catch2/catch.hpp>

#include "core_support.h"

using core::files;
using core::World;

TEST_CASE("modules run on demand, in source order") {
  World w(files({{"m.py", "raise_it = undefined_name\na = [1]\na.append(2)\na += [3]\nb = a\nclass C:\n  x = later\nlater = 5\n"}}));
  CHECK(w.get("b") == "[1, 2, 3]");
  CHECK(w.get("C") == "<class 'm.C'>");
  CHECK(w.get("raise_it") == "!NameError: name 'undefined_name' is not defined");
}

TEST_CASE("imports: packages, relative, star, aliases, cycles, missing") {
  World w(files({
      {"m.py",
       "import pkg.sub.mod as mm\nfrom pkg import helper, CONST as K\nfrom pkg.star import *\nimport pkg.sub\ntry:\n  import not_there\n  "
       "have = True\nexcept ImportError:\n  have = False\ntry:\n  from pkg import not_there2\n  have2 = True\nexcept ImportError:\n  have2 "
       "= False\ntry:\n  from pkg import broken\n  have3 = True\nexcept ImportError:\n  have3 = False\n"
       "r = [mm.VALUE, helper(2), K, star_fn(), pkg.sub.mod.VALUE, have, have2, have3]\n"},
      {"pkg/__init__.py", "from .sub.mod import VALUE as CONST\nfrom .util import helper\n"},
      {"pkg/util.py", "from . import sub\nfrom .sub import mod\ndef helper(x): return x + mod.VALUE\n"},
      {"pkg/sub/__init__.py", ""},
      {"pkg/sub/mod.py", "from ..util import helper\nVALUE = 40\ndef g(): return helper(1)\n"},
      {"pkg/star.py", "__all__ = ['star_fn']\ndef star_fn(): return hidden()\ndef hidden(): return 'star'\n"},
      {"pkg/broken.py", "import surely_missing\nx = 1\n"},
  }));
  CHECK(w.get("r") == "[40, 42, 40, 'star', 40, False, False, False]");
}

TEST_CASE("lazy packages, registries, importlib") {
  World w(files({
      {"m.py",
       "import importlib\nfrom lazy import Thing\nimport reg\nmod = importlib.import_module('lazy.impl')\ncls = getattr(mod, 'Thing')\nr = "
       "[Thing.n, cls is Thing, reg.create('small'), 'small' in reg.ENTRIES, importlib.import_module('.impl', 'lazy').__name__]\n"},
      {"lazy/__init__.py",
       "from typing import TYPE_CHECKING\n_import_structure = {'impl': ['Thing']}\nif TYPE_CHECKING:\n  from .impl import Thing\nelse:\n  "
       "import sys\n  sys.modules[__name__] = _LazyModule(__name__)\n"},
      {"lazy/impl.py", "class Thing:\n  n = 3\n"},
      {"reg.py",
       "ENTRIES = {}\ndef register(f):\n  ENTRIES[f.__name__] = f\n  return f\n@register\ndef small(): return 'small!'\ndef create(name): "
       "return ENTRIES[name]()\n"},
  }));
  CHECK(w.get("r") == "[3, True, 'small!', True, 'lazy.impl']");
}

TEST_CASE("module __getattr__ and __main__ guard") {
  World w(files({{"m.py", "import lz\nr = lz.thing\nif __name__ == '__main__':\n  r = 5\n"},
                 {"lz.py", "def __getattr__(n):\n  if n == 'thing': return n + '!'\n  raise AttributeError(n)\n"}}));
  CHECK(w.get("r") == "'thing!'");
}

TEST_CASE("frames, steps, loops and variable writes are recorded") {
  World w(files({{"m.py",
                  "def g(y):\n  return y + 1\ndef f(n):\n  t = 0\n  for i in range(n):\n    t = g(t)\n  return [g(k) for k in range(2)]\nr "
                  "= f(2)\n"}}));
  CHECK(w.get("r") == "[1, 2]");
  const auto& t = w.trace;
  REQUIRE(t.frames.size() == 5);
  CHECK(t.frames[0].function->name == "f");
  CHECK(t.frames[1].parent == 0);
  CHECK(t.frames[2].iters.size() == 1);
  CHECK(t.frames[2].iters[0].index == 1);
  CHECK(t.frames[4].iters[0].index == 1);
  CHECK(t.frames[1].call->kind == shardwright::program::ExprKind::Call);
  // steps of f: t = 0; for; t = g(t) twice; return
  int of_f = 0;
  for (const auto& s : t.steps) of_f += s.frame == 0;
  CHECK(of_f == 5);
  CHECK(t.steps[1].end_step == 6);  // the loop with its two iterations and the two returns inside g
  bool loop_var = false;
  for (const auto& v : t.var_writes) loop_var |= v.name == "i" && v.value.integer == 1;
  CHECK(loop_var);
  for (const auto& f : t.frames) CHECK(f.begin < f.end);
}
