class auto:
    pass


class nonmember:
    def __init__(self, value):
        self.value = value


def member(value):
    return value


class EnumMeta(type):
    def __call__(cls, value, *args, **kwargs):
        members = cls.__dict__.get("_member_map_", None)
        if members is None or args:
            names = args[0] if args else kwargs.get("names")
            return _functional(cls, value, names)
        for m in members.values():
            if m is value:
                return m
        for m in members.values():
            if m._value_ == value and type(m._value_) in (type(value), int, float, bool):
                return m
        missing = cls._missing_(value)
        if missing is not None:
            return missing
        raise ValueError(f"{value!r} is not a valid {cls.__name__}")

    def __iter__(cls):
        unique = []
        for name, m in cls.__dict__["_member_map_"].items():
            if m._name_ == name:
                unique.append(m)
        return iter(unique)

    def __len__(cls):
        return len(cls.__dict__["_member_map_"])

    def __getitem__(cls, name):
        return cls.__dict__["_member_map_"][name]

    def __contains__(cls, value):
        for m in cls.__dict__["_member_map_"].values():
            if m is value or m._value_ == value:
                return True
        return False

    @property
    def __members__(cls):
        return dict(cls.__dict__["_member_map_"])


EnumType = EnumMeta


def _functional(base, name, names):
    if isinstance(names, str):
        names = names.replace(",", " ").split()
    ns = {}
    if isinstance(names, dict):
        ns = dict(names)
    else:
        for i, n in enumerate(names):
            if isinstance(n, str):
                ns[n] = i + 1
            else:
                ns[n[0]] = n[1]
    return type(base)(name, (base,), ns)


def _is_descriptor(v):
    return callable(v) and not isinstance(v, type) and not hasattr(v, "_value_") or isinstance(v, (property, staticmethod, classmethod))


class Enum(metaclass=EnumMeta):
    def __init_subclass__(cls, **kwargs):
        members = {}
        last = []
        ignored = ("_ignore_", "_order_")
        for name, value in list(cls.__dict__.items()):
            if name.startswith("__") or name in ignored or name == "_member_map_":
                continue
            if name.startswith("_") and name.endswith("_"):
                continue
            if isinstance(value, nonmember):
                setattr(cls, name, value.value)
                continue
            if _is_descriptor(value) or isinstance(value, type):
                continue
            if isinstance(value, auto):
                value = cls._generate_next_value_(name, 1, len(members), list(last))
            last.append(value)
            same = None
            for m in members.values():
                if m._value_ == value and type(m._value_) is type(value):
                    same = m
            if same is not None:
                members[name] = same
                setattr(cls, name, same)
                continue
            custom = None
            for k in cls.__mro__:
                if k is object or k is Enum or k is str or k is int or k is float or k is tuple or k is dict or k is list:
                    continue
                if "__new__" in k.__dict__:
                    custom = k.__dict__["__new__"]
                    break
            args = value if isinstance(value, tuple) else (value,)
            if custom is not None:
                m = custom(cls, *args)
            elif issubclass(cls, str):
                m = str.__new__(cls, value)
            elif issubclass(cls, int):
                m = int.__new__(cls, value)
            elif issubclass(cls, float):
                m = float.__new__(cls, value)
            elif issubclass(cls, tuple):
                m = tuple.__new__(cls, value)
            else:
                m = object.__new__(cls)
            if not hasattr(m, "_value_"):
                object.__setattr__(m, "_value_", value)
            object.__setattr__(m, "_name_", name)
            init = cls.__init__
            if init is not object.__init__:
                m.__init__(*args)
            members[name] = m
            setattr(cls, name, m)
        cls._member_map_ = members
        cls._member_names_ = list(members)
        cls._value2member_map_ = {m._value_: m for m in members.values() if isinstance(m._value_, (int, str, float, tuple))}

    def _generate_next_value_(name, start, count, last_values):
        best = 0
        for v in last_values:
            if isinstance(v, int) and v > best:
                best = v
        return best + 1

    @classmethod
    def _missing_(cls, value):
        return None

    @property
    def value(self):
        return self._value_

    @property
    def name(self):
        return self._name_

    def __repr__(self):
        return f"<{type(self).__name__}.{self._name_}: {self._value_!r}>"

    def __str__(self):
        return f"{type(self).__name__}.{self._name_}"

    def __hash__(self):
        return hash(self._name_)

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self


class IntEnum(int, Enum):
    def __str__(self):
        return str(self._value_)

    def __format__(self, spec):
        return format(self._value_, spec)

    def __hash__(self):
        return hash(self._value_)


class StrEnum(str, Enum):
    def _generate_next_value_(name, start, count, last_values):
        return name.lower()

    def __str__(self):
        return self._value_

    def __format__(self, spec):
        return format(self._value_, spec)

    def __hash__(self):
        return hash(self._value_)


class Flag(Enum):
    def _generate_next_value_(name, start, count, last_values):
        return 1 << count

    def __or__(self, other):
        return self._combine(self._value_ | other._value_)

    def __and__(self, other):
        return self._combine(self._value_ & other._value_)

    def _combine(self, bits):
        for m in type(self):
            if m._value_ == bits:
                return m
        m = object.__new__(type(self))
        object.__setattr__(m, "_value_", bits)
        object.__setattr__(m, "_name_", None)
        return m

    def __contains__(self, other):
        return (self._value_ & other._value_) == other._value_

    def __bool__(self):
        return self._value_ != 0


class IntFlag(int, Flag):
    pass


def unique(cls):
    return cls


def global_enum(cls):
    return cls
