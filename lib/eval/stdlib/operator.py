def add(a, b): return a + b
def sub(a, b): return a - b
def mul(a, b): return a * b
def truediv(a, b): return a / b
def floordiv(a, b): return a // b
def mod(a, b): return a % b
def pow(a, b): return a ** b
def matmul(a, b): return a @ b
def and_(a, b): return a & b
def or_(a, b): return a | b
def xor(a, b): return a ^ b
def neg(a): return -a
def pos(a): return +a
def not_(a): return not a
def inv(a): return ~a
def lt(a, b): return a < b
def le(a, b): return a <= b
def gt(a, b): return a > b
def ge(a, b): return a >= b
def eq(a, b): return a == b
def ne(a, b): return a != b
def is_(a, b): return a is b
def is_not(a, b): return a is not b
def contains(a, b): return b in a
def getitem(a, b): return a[b]
def truth(a): return bool(a)
def index(a): return a.__index__()
def iadd(a, b): a += b; return a


def setitem(a, b, c):
    a[b] = c


def itemgetter(*items):
    if len(items) == 1:
        item = items[0]
        return lambda x: x[item]
    return lambda x: tuple([x[i] for i in items])


def attrgetter(*names):
    def get(x, name):
        for part in name.split("."):
            x = getattr(x, part)
        return x
    if len(names) == 1:
        return lambda x: get(x, names[0])
    return lambda x: tuple([get(x, n) for n in names])


def methodcaller(name, *args, **kwargs):
    return lambda x: getattr(x, name)(*args, **kwargs)
