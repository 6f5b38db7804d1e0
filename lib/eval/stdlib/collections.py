class OrderedDict(dict):
    pass


class UserDict(dict):
    @property
    def data(self):
        return self


class UserList(list):
    pass


class Counter(dict):
    def __init__(self, iterable=None, **kwargs):
        super().__init__()
        self.update(iterable, **kwargs)

    def __missing__(self, key):
        return 0

    def update(self, iterable=None, **kwargs):
        if iterable is not None:
            if isinstance(iterable, dict):
                for k, n in iterable.items():
                    self[k] = self.get(k, 0) + n
            else:
                for k in iterable:
                    self[k] = self.get(k, 0) + 1
        for k, n in kwargs.items():
            self[k] = self.get(k, 0) + n

    def most_common(self, n=None):
        out = sorted(self.items(), key=lambda kv: kv[1], reverse=True)
        return out if n is None else out[:n]

    def elements(self):
        return [k for k, n in self.items() for _ in range(n)]


class ChainMap(dict):
    def __init__(self, *maps):
        super().__init__()
        self.maps = list(maps)
        for m in reversed(maps):
            self.update(m)


class deque(list):
    def __init__(self, iterable=(), maxlen=None):
        super().__init__(iterable)
        self.maxlen = maxlen
        self._trim(True)

    def _trim(self, left):
        while self.maxlen is not None and len(self) > self.maxlen:
            list.pop(self, 0 if left else -1)

    def append(self, x):
        list.append(self, x)
        self._trim(True)

    def appendleft(self, x):
        list.insert(self, 0, x)
        self._trim(False)

    def popleft(self):
        return list.pop(self, 0)

    def extend(self, xs):
        for x in xs:
            self.append(x)

    def extendleft(self, xs):
        for x in xs:
            self.appendleft(x)

    def rotate(self, n=1):
        for _ in range(n):
            self.appendleft(list.pop(self))


def _bind_fields(cls, args, kwargs):
    names = cls._fields
    if len(args) > len(names):
        raise TypeError(f"{cls.__name__}.__new__() takes {len(names) + 1} positional arguments but {len(args) + 1} were given")
    values = list(args)
    used = list(names[:len(args)])
    for n in names[len(args):]:
        if n in kwargs:
            values.append(kwargs[n])
        elif n in cls._field_defaults:
            values.append(cls._field_defaults[n])
        else:
            raise TypeError(f"{cls.__name__}.__new__() missing 1 required positional argument: '{n}'")
        used.append(n)
    for k in kwargs:
        if k not in names:
            raise TypeError(f"{cls.__name__}.__new__() got an unexpected keyword argument '{k}'")
        if k in names[:len(args)]:
            raise TypeError(f"{cls.__name__}.__new__() got multiple values for argument '{k}'")
    return values


def _item(i):
    return property(lambda self: self[i])


def _setup_namedtuple(cls, names, defaults):
    cls._fields = tuple(names)
    cls._field_defaults = dict(defaults)
    for i, n in enumerate(names):
        setattr(cls, n, _item(i))
    cls._asdict = _asdict
    cls._replace = _replace
    cls._make = classmethod(lambda c, values: c(*values))
    if "__repr__" not in cls.__dict__:
        cls.__repr__ = _repr


def _asdict(self):
    return dict(zip(self._fields, self))


def _replace(self, **changes):
    values = self._asdict()
    values.update(changes)
    return type(self)(**values)


def _repr(self):
    return type(self).__name__ + "(" + ", ".join([f"{n}={v!r}" for n, v in zip(self._fields, self)]) + ")"


def namedtuple(typename, field_names, *, rename=False, defaults=None, module=None):
    if isinstance(field_names, str):
        field_names = field_names.replace(",", " ").split()
    names = list(field_names)

    def __new__(cls, *args, **kwargs):
        return tuple.__new__(cls, _bind_fields(cls, args, kwargs))

    cls = type(typename, (tuple,), {"__new__": __new__})
    defaults = tuple(defaults or ())
    _setup_namedtuple(cls, names, dict(zip(names[len(names) - len(defaults):], defaults)))
    return cls
