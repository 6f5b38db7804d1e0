def _abstract(*methods):
    def check(value):
        for m in methods:
            if not hasattr(value, m):
                return False
        return True
    return check


class _Abstract:
    def __class_getitem__(cls, item):
        return cls


class Hashable(_Abstract):
    @staticmethod
    def __abstract_check__(v):
        return not isinstance(v, (list, dict, set))


class Callable(_Abstract):
    __abstract_check__ = staticmethod(lambda v: callable(v))


class Sized(_Abstract):
    __abstract_check__ = staticmethod(_abstract("__len__"))


class Container(_Abstract):
    __abstract_check__ = staticmethod(lambda v: isinstance(v, (list, tuple, dict, set, frozenset, str, bytes, range)) or hasattr(v, "__contains__"))


class Iterable(_Abstract):
    __abstract_check__ = staticmethod(lambda v: isinstance(v, (list, tuple, dict, set, frozenset, str, bytes, range)) or hasattr(v, "__iter__"))


class Iterator(Iterable):
    __abstract_check__ = staticmethod(lambda v: hasattr(v, "__next__"))


class Generator(Iterator):
    pass


class Reversible(Iterable):
    pass


class Collection(Iterable):
    __abstract_check__ = staticmethod(lambda v: isinstance(v, (list, tuple, dict, set, frozenset, str, bytes, range)) or (hasattr(v, "__iter__") and hasattr(v, "__len__") and hasattr(v, "__contains__")))


class Sequence(Reversible):
    __abstract_check__ = staticmethod(lambda v: isinstance(v, (list, tuple, str, bytes, range)))


class MutableSequence(Sequence):
    __abstract_check__ = staticmethod(lambda v: isinstance(v, list))


class Set(Collection):
    __abstract_check__ = staticmethod(lambda v: isinstance(v, (set, frozenset)))


class MutableSet(Set):
    __abstract_check__ = staticmethod(lambda v: isinstance(v, set))


class Mapping(Collection):
    __abstract_check__ = staticmethod(lambda v: isinstance(v, dict))

    def get(self, key, default=None):
        try:
            return self[key]
        except KeyError:
            return default

    def __contains__(self, key):
        try:
            self[key]
        except KeyError:
            return False
        return True

    def keys(self):
        return [k for k in self]

    def items(self):
        return [(k, self[k]) for k in self]

    def values(self):
        return [self[k] for k in self]


class MutableMapping(Mapping):
    def update(self, other=(), **kwargs):
        for k, v in dict(other, **kwargs).items():
            self[k] = v

    def pop(self, key, *default):
        if key in self:
            value = self[key]
            del self[key]
            return value
        if default:
            return default[0]
        raise KeyError(key)

    def setdefault(self, key, default=None):
        if key not in self:
            self[key] = default
        return self[key]


class KeysView(_Abstract):
    pass


class ValuesView(_Abstract):
    pass


class ItemsView(_Abstract):
    pass


class MappingView(_Abstract):
    pass


class ByteString(_Abstract):
    pass


class Awaitable(_Abstract):
    pass


class Coroutine(_Abstract):
    pass


class AsyncIterable(_Abstract):
    pass


class AsyncIterator(_Abstract):
    pass


class AsyncGenerator(_Abstract):
    pass


class Buffer(_Abstract):
    pass
