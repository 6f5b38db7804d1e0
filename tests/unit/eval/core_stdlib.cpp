#include <catch2/catch.hpp>

#include "core_support.h"

using core::files;
using core::run;
using core::World;

TEST_CASE("dataclasses") {
  CHECK(run(R"(
from dataclasses import dataclass, field, replace, asdict, fields, is_dataclass
from typing import List, Optional
@dataclass
class Base:
    dim: int
    heads: int = 4
    names: List[str] = field(default_factory=list)
@dataclass
class Cfg(Base):
    depth: int = 2
    head: Optional[int] = None
    def __post_init__(self):
        if self.head is None: self.head = self.dim // self.heads
c = Cfg(64, depth=3)
d = replace(c, dim=128)
r = [c, d.dim, d.head, asdict(c), [f.name for f in fields(c)], is_dataclass(c), c == Cfg(64, depth=3)]
)") ==
        "[Cfg(dim=64, heads=4, names=[], depth=3, head=16), 128, 16, {'dim': 64, 'heads': 4, 'names': [], 'depth': 3, 'head': 16}, ['dim', "
        "'heads', 'names', 'depth', 'head'], True, True]");
  CHECK(run("from dataclasses import dataclass\n@dataclass\nclass C:\n  a: int\nr = C()") ==
        "!TypeError: C.__init__() missing 1 required positional argument: 'a'");
  CHECK(run("from dataclasses import dataclass\n@dataclass(frozen=True)\nclass C:\n  a: int = 1\nc = C()\ndef f():\n  c.a = 2\nr = f()") ==
        "!FrozenInstanceError: cannot assign to field 'a'");
}

TEST_CASE("enum") {
  CHECK(run("from enum import Enum, IntEnum, auto\nclass A(Enum):\n  X = 1\n  Y = 'y'\n  def up(self): return self.name.lower()\nclass "
            "B(IntEnum):\n  P = auto()\n  Q = auto()\nclass S(str, Enum):\n  K = 'k'\nr = [A.X.value, A('y').name, A['X'] is A.X, [m.name "
            "for m in A], A.X == A.X, A.X != A.Y, A.Y.up(), B.Q + 1, B.P < B.Q, S.K == 'k', S('k') is S.K, len(A), isinstance(A.X, A), "
            "{A.X: 1}[A.X]]") == "[1, 'Y', True, ['X', 'Y'], True, True, 'y', 3, True, True, True, 2, True, 1]");
  CHECK(run("from enum import Enum\nclass A(Enum):\n  X = 1\nr = A(5)") == "!ValueError: 5 is not a valid A");
}

TEST_CASE("functools, itertools, collections, copy, operator") {
  CHECK(run("from functools import partial, reduce, lru_cache, wraps, cached_property\ndef f(a, b, c=0): return (a, b, c)\np = "
            "partial(partial(f, 1), c=5)\n@lru_cache(maxsize=None)\ndef g(x): return x * 2\nclass A:\n  n = 0\n  @cached_property\n  def "
            "v(self):\n    A.n += 1\n    return 7\na = A()\nr = [p(2), p.keywords, reduce(lambda x, y: x * y, [1, 2, 3, 4]), g(3), a.v + "
            "a.v, A.n]") == "[(1, 2, 5), {'c': 5}, 24, 6, 14, 1]");
  CHECK(run("from functools import wraps\ndef d(f):\n  @wraps(f)\n  def w(*a): return f(*a)\n  return w\n@d\ndef name(x): return x\nr = "
            "[name.__name__, name(2), name.__wrapped__(3)]") == "['name', 2, 3]");
  CHECK(run("import itertools as it\nr = [list(it.chain([1], [2, 3])), list(it.islice(it.count(5), 3)), list(it.product([0, 1], 'ab')), "
            "list(it.accumulate([1, 2, 3])), list(it.zip_longest([1], [2, 3])), list(it.repeat(0, 2)), list(it.chain.from_iterable([[1], "
            "[2]])), list(it.combinations([1, 2, 3], 2))]") ==
        "[[1, 2, 3], [5, 6, 7], [(0, 'a'), (0, 'b'), (1, 'a'), (1, 'b')], [1, 3, 6], [(1, 2), (None, 3)], [0, 0], [1, 2], [(1, 2), (1, 3), "
        "(2, 3)]]");
  CHECK(run("from collections import OrderedDict, defaultdict, namedtuple, deque, Counter\nd = defaultdict(list)\nd['a'].append(1)\nP = "
            "namedtuple('P', 'x y', defaults=[9])\np = P(1)\nq = deque([1, 2], maxlen=2)\nq.append(3)\no = OrderedDict([('a', 1)])\no['b'] "
            "= 2\nr = [d, p.x + p.y, p, p._replace(x=3), list(q), Counter('aab').most_common(1), list(o.items()), isinstance(p, tuple)]") ==
        "[{'a': [1]}, 10, P(x=1, y=9), P(x=3, y=9), [2, 3], [('a', 2)], [('a', 1), ('b', 2)], True]");
  CHECK(run("import copy\nclass A:\n  def __init__(self): self.l = [1]\na = A()\nb = copy.deepcopy(a)\nc = copy.copy(a)\nb.l.append(2)\nr "
            "= [a.l, b.l, c.l is a.l]") == "[[1], [1, 2], True]");
  CHECK(run("from typing import NamedTuple, Optional, TypeVar, Generic, Protocol, TYPE_CHECKING, Union\nT = TypeVar('T')\nclass "
            "N(NamedTuple):\n  a: int\n  b: int = 3\nclass G(Generic[T]):\n  def f(self) -> Optional[Union[int, T]]: return 4\nn = N(1)\nr "
            "= [n, n.b, G().f(), TYPE_CHECKING]") == "[N(a=1, b=3), 3, 4, False]");
  CHECK(run("from contextlib import contextmanager, suppress, nullcontext\nlog = []\n@contextmanager\ndef cm(x):\n  log.append('in')\n  "
            "try:\n    yield x\n  finally:\n    log.append('out')\nwith cm(3) as v, nullcontext():\n  log.append(v)\nwith "
            "suppress(KeyError):\n  {}['a']\nr = log") == "['in', 3, 'out']");
  CHECK(run("from abc import ABC, abstractmethod\nfrom collections.abc import Iterable, Sequence\nimport numbers\nclass A(ABC):\n  "
            "@abstractmethod\n  def f(self): ...\nclass B(A):\n  def f(self): return 1\nr = [B().f(), isinstance([1], Iterable), "
            "isinstance(3, Iterable), isinstance((1,), Sequence), isinstance(3, numbers.Number)]") == "[1, True, False, True, True]");
}

TEST_CASE("math, re, os, json, warnings, logging, inspect") {
  CHECK(run("import math\nr = [math.sqrt(16), math.prod([2, 3]), math.ceil(2.1), math.floor(-2.1), math.gcd(12, 18), round(math.log(100, "
            "10), 6), math.inf > 1, math.log2(8)]") == "[4.0, 6, 3, -3, 6, 2.0, True, 3.0]");
  CHECK(run("import re\nm = re.match(r'(?P<a>\\w+)\\.(\\d+)', 'layer.12.x')\nr = [m.group('a'), m.group(2), m.groups(), re.sub(r'\\d+', "
            "'N', 'a1b22'), re.findall(r'\\d', 'a1b2'), re.fullmatch('a', 'ab'), re.split(',', 'a,b')]") ==
        "['layer', '12', ('layer', '12'), 'aNbN', ['1', '2'], None, ['a', 'b']]");
  CHECK(run("import os, sys, json, warnings, logging, inspect\nlogging.getLogger(__name__).info('x')\nwarnings.warn('y')\ndef f(a, b=2): "
            "pass\nr = [os.path.join('a', 'b'), os.environ.get('X', 'd'), sys.version_info >= (3, 8), json.loads('{\"a\": [1, 2.5, "
            "null]}'), json.dumps({'a': 1}), list(inspect.signature(f).parameters), os.path.splitext('a/b.py')]") ==
        "['a/b', 'd', True, {'a': [1, 2.5, None]}, '{\"a\": 1}', ['a', 'b'], ('a/b', '.py')]");
}

TEST_CASE("argparse: defaults, given lists, namespaces") {
  const std::string parser =
      "import argparse\np = argparse.ArgumentParser()\np.add_argument('data', nargs='?', default='x')\ng = p.add_argument_group('model')\n"
      "g.add_argument('--mlp-dim', default='16', type=int)\ng.add_argument('-d', '--depth', type=int, default=2)\n"
      "p.add_argument('--no-bias', dest='bias', action='store_false')\np.add_argument('--norm', action='store_true')\n"
      "p.add_argument('--widths', nargs='+', type=int, default=[3])\np.add_argument('--drop', action=argparse.BooleanOptionalAction, "
      "default=True)\n"
      "p.add_argument('-v', action='count', default=0)\np.set_defaults(lr=0.5)\n";
  const std::string all = "[a.data, a.mlp_dim, a.depth, a.bias, a.norm, a.widths, a.drop, a.v, a.lr]";
  CHECK(run(parser + "a = p.parse_args()\nr = " + all) == "['x', 16, 2, True, False, [3], True, 0, 0.5]");
  CHECK(run(parser +
            "a, rest = p.parse_known_args(['--other', '-d4', '--mlp-dim=8', '--no-bias', '--norm', '--widths', '1', '2', '--no-drop', "
            "'-vv', '--', 'y'])\nr = " +
            all + " + rest") == "['y', 8, 4, False, True, [1, 2], False, 2, 0.5, '--other']");
  CHECK(run("import argparse\na = argparse.Namespace(n=4, **{'k': 1})\na.z = 2\nr = [vars(a), 'k' in a, 'q' in a, a]") ==
        "[{'n': 4, 'k': 1, 'z': 2}, True, False, Namespace(n=4, k=1, z=2)]");
  CHECK(run("import argparse\np = argparse.ArgumentParser()\np.add_argument('--n', required=True)\nr = p.parse_args().n")
            .find("'--n' is required on the command line") != std::string::npos);
}

TEST_CASE("numpy for schedules") {
  CHECK(run("import numpy as np\nr = [np.linspace(0, 0.2, 3).tolist(), np.arange(4)[1:].tolist(), int(np.prod([2, 3, 4])), (np.array([1, "
            "2]) * 2 + 1).tolist(), np.zeros((2, 2)).shape, float(np.sqrt(4)), np.cumsum([1, 2, 3]).tolist(), np.array([[1, 2], [3, "
            "4]])[1, 0], np.ones(3).sum(), np.array([[1, 2], [3, 4]])[:, 1].tolist()]") ==
        "[[0.0, 0.1, 0.2], [1, 2, 3], 24, [3, 5], (2, 2), 2.0, [1, 3, 6], 3, 3.0, [2, 4]]");
}

TEST_CASE("unknown values spread and never crash") {
  World w(files(
      {{"m.py",
        "import missing_thing\nx = missing_thing.f(3)\ny = x + 1\nif x > 2:\n  z, k = 1, 5\nelse:\n  z, k = 2, 5\nw = [i for i in x]\nr = "
        "[k, [a for a in (1, 2)]]\ndef loop():\n  t = 0\n  for i in x:\n    t = i\n  return t\nu = loop()\nq = x if x else 3\n"}}));
  CHECK(w.get("k") == "5");
  CHECK(w.get("z").find("<unknown") == 0);
  CHECK(w.get("y").find("missing_thing") != std::string::npos);
  CHECK(w.get("w").find("<unknown") == 0);
  CHECK(w.get("u").find("<unknown") == 0);
  CHECK(w.get("q").find("<unknown") == 0);
  CHECK(!w.trace.incomplete.empty());
}
