TYPE_CHECKING = False


class _Special:
    def __init__(self, name):
        self._name = name

    def __getitem__(self, item):
        return self

    def __or__(self, other):
        return self

    def __ror__(self, other):
        return self

    def __call__(self, *args, **kwargs):
        return self

    def __repr__(self):
        return "typing." + self._name

    def __mro_entries__(self, bases):
        return ()


class Generic:
    def __class_getitem__(cls, item):
        return cls


class Protocol(Generic):
    pass


class Any:
    pass


class NamedTupleMeta(type):
    def __call__(cls, *args, **kwargs):
        if cls is NamedTuple:
            from collections import namedtuple
            return namedtuple(args[0], [f[0] for f in (args[1] if len(args) > 1 else kwargs.items())])
        return type.__call__(cls, *args, **kwargs)


class NamedTuple(tuple, metaclass=NamedTupleMeta):
    def __init_subclass__(cls, **kwargs):
        from collections import _setup_namedtuple
        if hasattr(cls, "_fields"):
            return
        names = list(cls.__dict__.get("__annotations__", {}).keys())
        defaults = {n: cls.__dict__[n] for n in names if n in cls.__dict__}
        _setup_namedtuple(cls, names, defaults)

    def __new__(cls, *args, **kwargs):
        from collections import _bind_fields
        return tuple.__new__(cls, _bind_fields(cls, args, kwargs))


class _DictMeta(type):
    def __call__(cls, *args, **kwargs):
        if cls is TypedDict:
            return dict
        return dict(*args, **kwargs)


class TypedDict(metaclass=_DictMeta):
    def __init_subclass__(cls, **kwargs):
        pass


class SupportsInt(Protocol):
    pass


class SupportsFloat(Protocol):
    pass


class SupportsIndex(Protocol):
    pass


class Text(str):
    pass


List = list
Dict = dict
Set = set
FrozenSet = frozenset
Tuple = tuple
Type = type


def TypeVar(name, *args, **kwargs):
    return _Special(name)


ParamSpec = TypeVar
TypeVarTuple = TypeVar


def NewType(name, tp):
    return tp


def cast(tp, value):
    return value


def overload(f):
    return f


def final(f):
    return f


def override(f):
    return f


def no_type_check(f):
    return f


def runtime_checkable(cls):
    return cls


def dataclass_transform(*args, **kwargs):
    return lambda f: f


def deprecated(*args, **kwargs):
    return lambda f: f


def assert_never(value):
    raise AssertionError("expected code to be unreachable")


def assert_type(value, tp):
    return value


def reveal_type(value):
    return value


def get_origin(tp):
    return None


def get_args(tp):
    return ()


def get_type_hints(obj, *args, **kwargs):
    return dict(getattr(obj, "__annotations__", {}) or {})


def _module_special(name):
    from collections import abc, OrderedDict as od, defaultdict as dd, deque as dq, Counter as ct
    known = {"OrderedDict": od, "DefaultDict": dd, "Deque": dq, "Counter": ct}
    if name in known:
        return known[name]
    if hasattr(abc, name):
        return getattr(abc, name)
    return _Special(name)


def __getattr__(name):
    if name.startswith("_"):
        raise AttributeError(name)
    return _module_special(name)
