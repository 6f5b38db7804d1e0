class _Missing:
    def __repr__(self):
        return "<MISSING>"


MISSING = _Missing()
KW_ONLY = "KW_ONLY"


class InitVar:
    def __init__(self, type=None):
        self.type = type


class FrozenInstanceError(AttributeError):
    pass


class Field:
    def __init__(self, default=MISSING, default_factory=MISSING, init=True, repr=True, hash=None, compare=True, metadata=None, kw_only=False):
        self.name = None
        self.type = None
        self.default = default
        self.default_factory = default_factory
        self.init = init
        self.repr = repr
        self.compare = compare
        self.metadata = metadata if metadata is not None else {}
        self.kw_only = kw_only
        self.kind = "field"


def field(*, default=MISSING, default_factory=MISSING, init=True, repr=True, hash=None, compare=True, metadata=None, kw_only=MISSING):
    return Field(default, default_factory, init, repr, hash, compare, metadata, kw_only)


def _make_init(cls, fields):
    positional = [f for f in fields if f.init and not f.kw_only]
    names = [f.name for f in fields if f.init]
    has_post = hasattr(cls, "__post_init__")
    seen_default = None
    for f in positional:
        if f.default is not MISSING or f.default_factory is not MISSING:
            seen_default = f.name
        elif seen_default is not None:
            raise TypeError(f"non-default argument '{f.name}' follows default argument")

    def __init__(self, *args, **kwargs):
        if len(args) > len(positional):
            raise TypeError(f"{cls.__name__}.__init__() takes {len(positional) + 1} positional arguments but {len(args) + 1} were given")
        values = {}
        for f, v in zip(positional, args):
            values[f.name] = v
        for k, v in kwargs.items():
            if k not in names:
                raise TypeError(f"{cls.__name__}.__init__() got an unexpected keyword argument '{k}'")
            if k in values:
                raise TypeError(f"{cls.__name__}.__init__() got multiple values for argument '{k}'")
            values[k] = v
        missing = [f.name for f in fields if f.init and f.name not in values and f.default is MISSING and f.default_factory is MISSING]
        if missing:
            quoted = " and ".join([repr(n) for n in missing]) if len(missing) < 3 else ", ".join([repr(n) for n in missing[:-1]]) + ", and " + repr(missing[-1])
            raise TypeError(f"{cls.__name__}.__init__() missing {len(missing)} required positional argument{'s' if len(missing) > 1 else ''}: {quoted}")
        initvars = []
        for f in fields:
            if f.name in values:
                v = values[f.name]
            elif f.default is not MISSING:
                v = f.default
            elif f.default_factory is not MISSING:
                v = f.default_factory()
            else:
                continue
            if f.kind == "initvar":
                initvars.append(v)
            else:
                object.__setattr__(self, f.name, v) if cls.__dataclass_params__.frozen else setattr(self, f.name, v)
        if has_post:
            self.__post_init__(*initvars)

    return __init__


class _Params:
    def __init__(self, init, repr, eq, order, unsafe_hash, frozen, match_args, kw_only, slots):
        self.init, self.repr, self.eq, self.order = init, repr, eq, order
        self.unsafe_hash, self.frozen = unsafe_hash, frozen
        self.match_args, self.kw_only, self.slots, self.weakref_slot = match_args, kw_only, slots, False


def _process(cls, init=True, repr=True, eq=True, order=False, unsafe_hash=False, frozen=False, match_args=True, kw_only=False, slots=False, weakref_slot=False):
    found = {}
    for base in reversed(cls.__mro__[1:]):
        if "__dataclass_fields__" in base.__dict__:
            for f in base.__dict__["__dataclass_fields__"].values():
                found[f.name] = f
    own_kw_only = kw_only
    for name, annotation in cls.__dict__.get("__annotations__", {}).items():
        text = annotation
        if text == "KW_ONLY" or text == "dataclasses.KW_ONLY":
            own_kw_only = True
            continue
        if text.startswith("ClassVar") or text.startswith("typing.ClassVar") or text.startswith("t.ClassVar"):
            continue
        default = cls.__dict__.get(name, MISSING)
        if isinstance(default, Field):
            f = default
            if f.default is not MISSING:
                setattr(cls, name, f.default)
            elif name in cls.__dict__:
                delattr(cls, name)
        else:
            if isinstance(default, (list, dict, set)):
                raise ValueError(f"mutable default {type(default)} for field {name} is not allowed: use default_factory")
            f = Field(default)
        f.name = name
        f.type = annotation
        if f.kw_only is MISSING or not f.kw_only:
            f.kw_only = own_kw_only
        if text.startswith("InitVar") or text.startswith("dataclasses.InitVar"):
            f.kind = "initvar"
        found[name] = f
    fields_ = list(found.values())
    cls.__dataclass_fields__ = found
    cls.__dataclass_params__ = _Params(init, repr, eq, order, unsafe_hash, frozen, match_args, kw_only, slots)
    cls.__match_args__ = tuple([f.name for f in fields_ if f.init and not f.kw_only])
    if init and "__init__" not in cls.__dict__ or init and cls.__dict__.get("__init__") is None:
        cls.__init__ = _make_init(cls, fields_)
    shown = [f.name for f in fields_ if f.repr and f.kind == "field"]
    if repr and "__repr__" not in cls.__dict__:
        def __repr__(self):
            return type(self).__name__ + "(" + ", ".join([f"{n}={getattr(self, n)!r}" for n in shown]) + ")"
        cls.__repr__ = __repr__
    compared = [f.name for f in fields_ if f.compare and f.kind == "field"]
    if eq and "__eq__" not in cls.__dict__:
        def __eq__(self, other):
            if type(other) is not type(self):
                return NotImplemented
            return all([getattr(self, n) == getattr(other, n) for n in compared])
        cls.__eq__ = __eq__
    if order:
        def __lt__(self, other):
            return tuple([getattr(self, n) for n in compared]) < tuple([getattr(other, n) for n in compared])
        cls.__lt__ = __lt__
    if (frozen or unsafe_hash) and "__hash__" not in cls.__dict__:
        def __hash__(self):
            return hash(tuple([getattr(self, n) for n in compared]))
        cls.__hash__ = __hash__
    if frozen and "__setattr__" not in cls.__dict__:
        def __setattr__(self, name, value):
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        cls.__setattr__ = __setattr__
    return cls


def dataclass(cls=None, **options):
    if cls is None:
        return lambda c: _process(c, **options)
    return _process(cls, **options)


def fields(obj):
    found = getattr(obj, "__dataclass_fields__", None)
    if found is None:
        raise TypeError("must be called with a dataclass type or instance")
    return tuple([f for f in found.values() if f.kind == "field"])


def is_dataclass(obj):
    return hasattr(obj, "__dataclass_fields__")


def _plain(value, factory):
    if hasattr(value, "__dataclass_fields__") and not isinstance(value, type):
        return factory([(f.name, _plain(getattr(value, f.name), factory)) for f in fields(value)])
    if isinstance(value, list):
        return [_plain(v, factory) for v in value]
    if isinstance(value, tuple):
        return tuple([_plain(v, factory) for v in value])
    if isinstance(value, dict):
        return {k: _plain(v, factory) for k, v in value.items()}
    return value


def asdict(obj, *, dict_factory=dict):
    return _plain(obj, dict_factory)


def astuple(obj, *, tuple_factory=tuple):
    return tuple_factory([getattr(obj, f.name) for f in fields(obj)])


def replace(obj, **changes):
    for f in fields(obj):
        if f.init and f.name not in changes:
            changes[f.name] = getattr(obj, f.name)
    return type(obj)(**changes)


def make_dataclass(cls_name, fields, *, bases=(), namespace=None, **options):
    ns = dict(namespace or {})
    ns["__annotations__"] = {}
    for f in fields:
        if isinstance(f, str):
            ns["__annotations__"][f] = ""
        else:
            ns["__annotations__"][f[0]] = ""
            if len(f) > 2:
                ns[f[0]] = f[2]
    return dataclass(type(cls_name, tuple(bases), ns), **options)
