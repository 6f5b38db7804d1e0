def repeat(value, times=None):
    if times is not None:
        for _ in range(times):
            yield value
    else:
        while True:
            yield value


def count(start=0, step=1):
    n = start
    while True:
        yield n
        n += step


def cycle(iterable):
    saved = list(iterable)
    while saved:
        for x in saved:
            yield x


class chain:
    def __init__(self, *iterables):
        self._it = _chain(iterables)

    def __iter__(self):
        return self._it

    def __next__(self):
        return next(self._it)

    @classmethod
    def from_iterable(cls, iterables):
        return _chain(iterables)


def _chain(iterables):
    for it in iterables:
        for x in it:
            yield x


def islice(iterable, *args):
    s = slice(*args)
    start, stop, step = s.start or 0, s.stop, s.step or 1
    i = 0
    want = start
    if stop is not None and want >= stop:
        return
    for x in iterable:
        if i == want:
            yield x
            want += step
        i += 1
        if stop is not None and (i >= stop or want >= stop):
            return


def product(*iterables, repeat=1):
    pools = [tuple(it) for it in iterables] * repeat
    result = [()]
    for pool in pools:
        result = [x + (y,) for x in result for y in pool]
    for r in result:
        yield r


def accumulate(iterable, func=None, *, initial=None):
    total = initial
    started = initial is not None
    if started:
        yield total
    for x in iterable:
        if not started:
            total, started = x, True
        else:
            total = func(total, x) if func is not None else total + x
        yield total


def zip_longest(*iterables, fillvalue=None):
    lists = [list(it) for it in iterables]
    for i in range(max([len(l) for l in lists]) if lists else 0):
        yield tuple([l[i] if i < len(l) else fillvalue for l in lists])


def starmap(func, iterable):
    for args in iterable:
        yield func(*args)


def takewhile(pred, iterable):
    for x in iterable:
        if not pred(x):
            return
        yield x


def dropwhile(pred, iterable):
    dropping = True
    for x in iterable:
        if dropping and pred(x):
            continue
        dropping = False
        yield x


def filterfalse(pred, iterable):
    for x in iterable:
        if not (pred(x) if pred is not None else x):
            yield x


def compress(data, selectors):
    for d, s in zip(data, selectors):
        if s:
            yield d


def pairwise(iterable):
    items = list(iterable)
    for i in range(len(items) - 1):
        yield (items[i], items[i + 1])


def batched(iterable, n):
    items = list(iterable)
    for i in range(0, len(items), n):
        yield tuple(items[i:i + n])


def tee(iterable, n=2):
    items = list(iterable)
    return tuple([iter(items) for _ in range(n)])


def groupby(iterable, key=None):
    group, current, started = [], None, False
    for x in iterable:
        k = key(x) if key is not None else x
        if started and k == current:
            group.append(x)
            continue
        if started:
            yield current, iter(group)
        group, current, started = [x], k, True
    if started:
        yield current, iter(group)


def combinations(iterable, r):
    items = tuple(iterable)

    def pick(start, k):
        if k == 0:
            return [()]
        return [(items[i],) + rest for i in range(start, len(items)) for rest in pick(i + 1, k - 1)]

    for c in pick(0, r):
        yield c


def permutations(iterable, r=None):
    items = tuple(iterable)
    r = len(items) if r is None else r

    def pick(used, k):
        if k == 0:
            return [()]
        return [(items[i],) + rest for i in range(len(items)) if i not in used for rest in pick(used + (i,), k - 1)]

    for p in pick((), r):
        yield p
