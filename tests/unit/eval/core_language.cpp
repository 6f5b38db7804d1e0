#include <catch2/catch.hpp>

#include "core_support.h"

using core::files;
using core::run;
using core::World;

TEST_CASE("arithmetic follows Python") {
  CHECK(run("r = [7 // 2, -7 // 2, -7 % 3, 7 % -3, 2 ** 10, 2 ** -1, 7 / 2, 1 << 4, ~5, 6 & 3, 6 | 3, 6 ^ 3]") ==
        "[3, -4, 2, -2, 1024, 0.5, 3.5, 16, -6, 2, 7, 5]");
  CHECK(run("r = [int(3.9), int('12'), float('1e3'), round(2.5), round(3.14159, 2), abs(-3), divmod(7, 3), True + 1]") ==
        "[3, 12, 1000.0, 2, 3.14, 3, (2, 1), 2]");
  CHECK(run("r = 1 / 0") == "!ZeroDivisionError: division by zero");
  CHECK(run("r = [1e-5, 1e16, 0.1, 1.0, 1e22, 123456789.123]") == "[1e-05, 1e+16, 0.1, 1.0, 1e+22, 123456789.123]");
  CHECK(run("r = [1 < 2 < 3, 1 < 3 < 2, 1 == 1.0, 'a' < 'b', (1, 2) < (1, 3), not [], 3 in (1, 2, 3), 4 not in [1]]") ==
        "[True, False, True, True, True, True, True, True]");
}

TEST_CASE("strings and formats") {
  CHECK(run("x = 3.14159\nn = 7\nr = f'{x:.2f}|{n:03d}|{n!r}|{x:>8.1f}|{n:<4}|{n:,}|{12345:,}|{n=}'") ==
        "'3.14|007|7|     3.1|7   |7|12,345|n=7'");
  CHECK(run("w = 6\nr = f'{1:>{w}}|{\"a\":*^5}'") == "'     1|**a**'");
  CHECK(run("r = '%s-%d-%.2f-%5s' % ('a', 3, 1.5, 'x')") == "'a-3-1.50-    x'");
  CHECK(
      run("r = '{}-{1}-{name}-{0[0]}'.format([1, 2], 'b', name='n') if False else '{0}-{1}-{name}-{0[0]}'.format([1, 2], 'b', name='n')") ==
      "'[1, 2]-b-n-1'");
  CHECK(run("r = ['a.b.c'.split('.'), ' x '.strip(), 'a,b'.partition(','), '-'.join(['a', 'b']), 'abc'[::-1], 'abc'.replace('b', 'X'), "
            "'AbC'.lower(), 'a b c'.rsplit(' ', 1), 'layer.0.weight'.startswith(('x', 'layer'))]") ==
        "[['a', 'b', 'c'], 'x', ('a', ',', 'b'), 'a-b', 'cba', 'aXc', 'abc', ['a b', 'c'], True]");
}

TEST_CASE("containers") {
  CHECK(run("a = [3, 1, 2]\na.sort(reverse=True)\nb = a + [0]\nb[1:3] = [9]\ndel b[0]\nr = [a, b, a[-1], a[::-1], sorted('cab'), [*a, "
            "*b]]") == "[[3, 2, 1], [9, 0], 1, [1, 2, 3], ['a', 'b', 'c'], [3, 2, 1, 9, 0]]");
  CHECK(run("d = {'a': 1, **{'b': 2}}\nd.update(c=3)\nd.setdefault('d', 4)\nx = d.pop('a')\nr = [d, list(d), d.get('z', 0), x, {**d, 'b': "
            "5}, dict(zip('xy', (1, 2))), d | {'q': 1}]") ==
        "[{'b': 2, 'c': 3, 'd': 4}, ['b', 'c', 'd'], 0, 1, {'b': 5, 'c': 3, 'd': 4}, {'x': 1, 'y': 2}, {'b': 2, 'c': 3, 'd': 4, 'q': 1}]");
  CHECK(run("r = [{1, 2} | {3}, {1, 2} & {2}, len({1, 1}), frozenset([1]), {i % 2 for i in range(4)}]") ==
        "[{1, 2, 3}, {2}, 1, frozenset({1}), {0, 1}]");
  CHECK(run("a, *b, c = range(5)\n(d, e), f = (1, 2), 3\nr = [a, b, c, d, e, f]") == "[0, [1, 2, 3], 4, 1, 2, 3]");
  CHECK(run("a, b = 1, 2, 3\nr = a") == "!ValueError: too many values to unpack (expected 2)");
  CHECK(run("r = [1, 2][5]") == "!IndexError: list index out of range");
  CHECK(run("r = {'a': 1}['b']") == "!KeyError: 'b'");
}

TEST_CASE("comprehensions and generators") {
  CHECK(run("r = [(i, j) for i in range(3) for j in range(i)]") == "[(1, 0), (2, 0), (2, 1)]");
  CHECK(run("r = {k: v for k, v in zip('ab', range(2))}") == "{'a': 0, 'b': 1}");
  CHECK(run("def g(n):\n  for i in range(n):\n    x = yield i\n    if x: yield x\nr = [list(g(3)), sum(i * i for i in range(4)), next(i "
            "for i in range(9) if i > 3), any(x > 2 for x in [1, 2, 3])]") == "[[0, 1, 2], 14, 4, True]");
  CHECK(run("def inf():\n  n = 0\n  while True:\n    yield n\n    n += 1\ng = inf()\nnext(g)\nr = [next(g), next(g), [x for x, _ in "
            "zip(inf(), range(3))]]") == "[1, 2, [0, 1, 2]]");
  CHECK(run("def a():\n  yield 1\n  return 5\ndef b():\n  x = yield from a()\n  yield x\nr = list(b())") == "[1, 5]");
  CHECK(
      run("def g():\n  try:\n    yield 1\n  except ValueError as e:\n    yield str(e)\nx = g()\nnext(x)\nr = x.throw(ValueError('boo'))") ==
      "'boo'");
  CHECK(run("xs = [1, 2, 3]\nif (n := len(xs)) > 2:\n  r = n") == "3");
}

TEST_CASE("functions and scopes") {
  CHECK(run("def f(a, b=2, *args, c, d=4, **kw): return (a, b, args, c, d, kw)\nr = [f(1, c=3), f(1, 9, 8, 7, c=0, z=1), f(*[1, 2], "
            "**{'c': 3})]") == "[(1, 2, (), 3, 4, {}), (1, 9, (8, 7), 0, 4, {'z': 1}), (1, 2, (), 3, 4, {})]");
  CHECK(run("def f(a, b): pass\nr = f(1)") == "!TypeError: f() missing 1 required positional argument: 'b'");
  CHECK(run("def f(a): pass\nr = f(1, 2)") == "!TypeError: f() takes 1 positional argument but 2 were given");
  CHECK(run("def f(a): pass\nr = f(1, q=2)") == "!TypeError: f() got an unexpected keyword argument 'q'");
  CHECK(run("def counter():\n  n = 0\n  def inc():\n    nonlocal n\n    n += 1\n    return n\n  return inc\nc = counter()\nc()\nr = c()") ==
        "2");
  CHECK(run("total = 0\ndef add():\n  global total\n  total += 5\nadd()\nr = total") == "5");
  CHECK(run("fs = [lambda x, i=i: x + i for i in range(3)]\nr = [f(10) for f in fs]") == "[10, 11, 12]");
  CHECK(run("def deco(k):\n  def wrap(f):\n    def inner(*a): return f(*a) * k\n    return inner\n  return wrap\n@deco(3)\ndef f(x): "
            "return x + 1\nr = f(1)") == "6");
  CHECK(run("def f(n): return f(n + 1)\nr = f(0)") == "!RecursionError: maximum recursion depth exceeded");
  CHECK(run("def f():\n  print(x)\n  x = 1\nr = f()") ==
        "!UnboundLocalError: cannot access local variable 'x' where it is not associated with a value");
  CHECK(run("r = y") == "!NameError: name 'y' is not defined");
}

TEST_CASE("classes") {
  CHECK(run(R"(
class A:
    n = 1
    def __init__(self, x): self.x = x
    def f(self): return ('A', self.x)
    @property
    def double(self): return self.x * 2
    @double.setter
    def double(self, v): self.x = v // 2
    @classmethod
    def make(cls, x): return cls(x)
    @staticmethod
    def s(v): return v + 1
class B(A):
    def __init__(self, x):
        super().__init__(x + 1)
        self.y = 0
    def f(self): return ('B',) + super().f()
b = B.make(1)
b.double = 10
r = [b.f(), b.double, B.s(3), B.n, isinstance(b, A), issubclass(B, A), type(b).__name__, hasattr(b, 'q'), getattr(b, 'q', 7), [c.__name__ for c in B.__mro__]]
)") == "[('B', 'A', 5), 10, 4, 1, True, True, 'B', False, 7, ['B', 'A', 'object']]");
  CHECK(run(R"(
class X:
    def f(self): return ['X']
class Y(X):
    def f(self): return ['Y'] + super().f()
class Z(X):
    def f(self): return ['Z'] + super().f()
class W(Y, Z): pass
r = W().f()
)") == "['Y', 'Z', 'X']");
  CHECK(run(R"(
class V:
    def __init__(self, v): self.v = v
    def __add__(self, o): return V(self.v + (o.v if isinstance(o, V) else o))
    __radd__ = __add__
    def __eq__(self, o): return self.v == o.v
    def __getitem__(self, i): return self.v * i
    def __len__(self): return self.v
    def __call__(self, x): return x + self.v
    def __contains__(self, x): return x == self.v
    def __iter__(self): return iter(range(self.v))
    def __bool__(self): return False
    def __enter__(self): return self.v
    def __exit__(self, *a): return True
    def __getattr__(self, n):
        if n == 'magic': return 42
        raise AttributeError(n)
    def __lt__(self, o): return self.v < o.v
v = V(3)
with v as w:
    raise ValueError
r = [(v + 1).v, (1 + v).v, v == V(3), v != V(4), v[2], len(v), v(1), 3 in v, list(v), bool(v), w, v.magic, sorted([V(2), V(1)])[0].v, sum([V(1), V(2)], V(0)).v]
)") == "[4, 4, True, True, 6, 3, 4, True, [0, 1, 2], False, 3, 42, 1, 3]");
  CHECK(run("class A:\n  def __init__(self, dim): pass\nr = A()") ==
        "!TypeError: __init__() missing 1 required positional argument: 'dim'");
  CHECK(run("class A: pass\nr = A(1)") == "!TypeError: A() takes no arguments");
  CHECK(run("class A: pass\nr = A().b") == "!AttributeError: 'A' object has no attribute 'b'");
  CHECK(run("class M(type):\n  def __call__(cls, *a):\n    o = super().__call__(*a)\n    o.tag = cls.__name__\n    return o\nclass "
            "A(metaclass=M):\n  def __init__(self, v): self.v = v\na = A(4)\nr = [a.v, a.tag]") == "[4, 'A']");
  CHECK(run("class Reg:\n  all = []\n  def __init_subclass__(cls, tag=None, **k):\n    Reg.all.append((cls.__name__, tag))\nclass A(Reg, "
            "tag='x'): pass\nr = [Reg.all, A.all]") == "[[('A', 'x')], [('A', 'x')]]");
  CHECK(run("class D:\n  def __set_name__(self, o, n): self.n = n\n  def __get__(self, i, o): return (self.n, i is None)\nclass A:\n  x = "
            "D()\nr = [A.x, A().x]") == "[('x', True), ('x', False)]");
  CHECK(run("class S(dict):\n  def __getattr__(self, k): return self[k]\n  def __setattr__(self, k, v): self[k] = v\ns = S(a=1)\ns.b = "
            "2\nr = [s.a, s['b'], len(s), isinstance(s, dict), s]") == "[1, 2, 2, True, {'a': 1, 'b': 2}]");
  CHECK(run("class T(tuple):\n  def __new__(cls, a, b): return super().__new__(cls, (a, b))\n  def s(self): return sum(self)\nr = [T(1, "
            "2).s(), T(1, 2)[0]]") == "[3, 1]");
  CHECK(run("class L(list):\n  def first(self): return self[0]\nl = L([4, 5])\nl.append(6)\nr = [l.first(), len(l), l]") ==
        "[4, 3, [4, 5, 6]]");
}

TEST_CASE("exceptions") {
  CHECK(run(R"(
log = []
def f(x):
    try:
        if x == 0: raise ValueError('zero')
        if x == 1: return 'one'
        log.append('body')
    except (TypeError, ValueError) as e:
        log.append(str(e))
        return 'caught'
    else:
        log.append('else')
    finally:
        log.append('fin')
    return 'end'
r = [f(0), f(1), f(2), log]
)") == "['caught', 'one', 'end', ['zero', 'fin', 'fin', 'body', 'else', 'fin']]");
  CHECK(run("class E(Exception):\n  def __init__(self, a):\n    super().__init__('got ' + a)\n    self.a = a\ntry:\n  raise E('x')\nexcept "
            "Exception as e:\n  r = [str(e), e.a, type(e).__name__, e.args]") == "['got x', 'x', 'E', ('got x',)]");
  CHECK(run("def f():\n  try:\n    raise KeyError('k')\n  except KeyError:\n    raise\nr = f()") == "!KeyError: 'k'");
  CHECK(run("assert 1 == 2, 'no'\nr = 1") == "1");  // on demand: a statement that binds nothing does not run
  World w(files({{"m.py", "def g():\n  raise RuntimeError('deep')\ndef f():\n  g()\nr = f()\n"}}));
  CHECK(w.get("r") == "!RuntimeError: deep");
  CHECK(w.where == "/src/m.py:2:3");
}

TEST_CASE("match") {
  CHECK(run("def f(x):\n  match x:\n    case 1 | 2: return 'small'\n    case [a, *b]: return (a, b)\n    case {'k': v}: return v\n    case "
            "str(): return 'str'\n    case None: return 'none'\n    case _: return 'other'\nr = [f(1), f([1, 2, 3]), f({'k': 5}), f('s'), "
            "f(None), f(2.5)]") == "['small', (1, [2, 3]), 5, 'str', 'none', 'other']");
}

TEST_CASE("a runaway program stops") {
  World w(files({{"m.py", "def f():\n  while True: pass\nr = f()\n"}}));
  w.in.max_steps = 10000;
  CHECK(w.get("r").substr(0, 7) == "!abort:");
}

TEST_CASE("private names are not what the same string names") {
  CHECK(run("class A:\n  def __init__(self):\n    self.__x = 3\n  def f(self): return [self.__x, hasattr(self, '__x'), getattr(self, "
            "'_A__x')]\nr = A().f()") == "[3, False, 3]");
}
