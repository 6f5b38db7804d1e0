# What LibTorch and the C++ standard library have and Python spells otherwise: lib/cxx/clang lowers to these names (`_cxx.…`).
import copy as _copy
import math

import torch
from torch import nn


# ---- modules ---------------------------------------------------------------------------------------------------------------------

class Module(nn.Module):
    """torch::nn::Module: members are what they are; what is registered is registered under the name given for it."""

    def __init__(self, *name):
        super().__init__()

    def __setattr__(self, name, value):
        if isinstance(value, nn.Module):
            if self._modules.get(name) is value:
                return
            object.__setattr__(self, name, value)
        elif isinstance(value, torch.Tensor):
            if self._parameters.get(name) is value or self._buffers.get(name) is value:
                return
            object.__setattr__(self, name, value)
        elif name in self._parameters or name in self._buffers or name in self._modules:
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    def register_module(self, name, module):
        self.add_module(name, module)
        return module

    def register_parameter(self, name, tensor, requires_grad=True):
        parameter = tensor if isinstance(tensor, nn.Parameter) or tensor is None else nn.Parameter(tensor, requires_grad)
        super().register_parameter(name, parameter)
        return parameter

    def register_buffer(self, name, tensor):
        super().register_buffer(name, tensor)
        return tensor

    def unregister_module(self, name):
        del self._modules[name]


class Sequential(nn.Sequential):
    def __init__(self, *modules):
        if len(modules) == 1 and isinstance(modules[0], (list, tuple)) and not isinstance(modules[0], nn.Module):
            modules = modules[0]
        super().__init__()
        for m in modules:
            push_back(self, m)


def Functional(function, *bound):
    return _Functional(function, bound)


class _Functional(nn.Module):
    def __init__(self, function, bound):
        super().__init__()
        self.function = function
        self.bound = bound

    def forward(self, *args):
        return self.function(*args, *self.bound)


def ModuleList(*modules):
    if len(modules) == 1 and isinstance(modules[0], (list, tuple)):
        return nn.ModuleList(modules[0])
    return nn.ModuleList(list(modules))


def ModuleDict(*entries):
    made = nn.ModuleDict()
    for pairs in entries:
        for pair in mapping(pairs).items():
            made[pair[0]] = pair[1]
    return made


def ParameterList(*items):
    return nn.ParameterList(list(items))


def ParameterDict(*items):
    return nn.ParameterDict(mapping(items[0]) if items else {})


def push_back(container, *what):
    if len(what) == 2:
        container.add_module(what[0], what[1])
        return
    item = what[0]
    if isinstance(item, tuple):
        container.add_module(item[0], item[1])
        return
    if not isinstance(item, nn.Module) and callable(item):
        item = _Functional(item, ())
    container.add_module(str(len(container)), item)


def module_extend(container, more):
    for m in (more.values() if isinstance(more, nn.ModuleDict) else more):
        push_back(container, m)


def module_insert(container, key, module=None):
    if isinstance(container, nn.ModuleList):
        container.insert(key, module)
    else:
        container[key] = module


def module_update(container, more):
    for pair in mapping(more).items():
        container[pair[0]] = pair[1]


def module_contains(container, key):
    return key in container


def module_items(container):
    return list(container.items())


def module_keys(container):
    return list(container.keys())


def module_values(container):
    return list(container.values())


def module_size(container):
    return len(container)


def module_is_empty(container):
    return len(container) == 0


def listed_parameters(module, recurse=True):
    return list(module.parameters(recurse))


def listed_buffers(module, recurse=True):
    return list(module.buffers(recurse))


def listed_children(module):
    return list(module.children())


def listed_modules(module, include_self=True):
    return list(module.modules())[0 if include_self else 1:]


def listed_named_parameters(module, recurse=True):
    return list(module.named_parameters())


def listed_named_buffers(module, recurse=True):
    return list(module.named_buffers())


def listed_named_children(module):
    return list(module.named_children())


def listed_named_modules(module, prefix="", include_self=True):
    return list(module.named_modules())[0 if include_self else 1:]


def class_name(module):
    return type(module).__name__


def construct(cls, init, *args):
    """A class with several constructors: `init` is the method that one of them became."""
    made = cls.__new__(cls)
    getattr(made, init)(*args)
    return made


def deepcopy(value):
    return _copy.deepcopy(value)


# ---- options ---------------------------------------------------------------------------------------------------------------------

class Options:
    """An options object that is kept in a variable; written in place they become keyword arguments."""

    def __init__(self, **values):
        self.values = dict(values)

    def __getattr__(self, name):
        def access(*value):
            if not value:
                return self.values[name]
            self.values[name] = value[0]
            return self
        return access


def options_of(options):
    return options.values if isinstance(options, Options) else {}


class TensorOptions:
    def __init__(self, start=None):
        self.values = dict(tensor_options(start))

    def _with(self, key, value):
        made = TensorOptions(self)
        made.values[key] = value
        return made

    def dtype(self, *value):
        return self._with("dtype", value[0]) if value else self.values.get("dtype", torch.float32)

    def device(self, *value):
        return self._with("device", value[0]) if value else self.values.get("device", "cpu")

    def requires_grad(self, *value):
        return self._with("requires_grad", value[0] if value else True)

    def layout(self, *value):
        return self

    def pinned_memory(self, *value):
        return self

    def memory_format(self, *value):
        return self

    def device_index(self, *value):
        return self


def tensor_options(value):
    if value is None:
        return {}
    if isinstance(value, TensorOptions):
        return value.values
    if isinstance(value, torch.dtype):
        return {"dtype": value}
    return {"device": value}


def options_of_tensor(tensor):
    return TensorOptions().dtype(tensor.dtype).device(tensor.device)


# ---- containers of the standard library --------------------------------------------------------------------------------------------

absent = object()


def copy(value):
    return _copy.copy(value)


def fields(struct):
    return tuple(struct.__dict__.values())


def filled(n, value=None):
    return [value for _ in range(n)]


def mapping(pairs):
    return dict(pairs) if not isinstance(pairs, dict) else pairs


def value_or(value, otherwise):
    return otherwise if value is None else value


def put(tensor, key, value):
    tensor[key] = value
    return tensor


class _Iterator:
    def __init__(self, of, at):
        self.of = of
        self.at = at

    def __add__(self, n):
        return _Iterator(self.of, self.at + n)

    def __sub__(self, n):
        return self.at - n.at if isinstance(n, _Iterator) else _Iterator(self.of, self.at - n)


def begin(of):
    return _Iterator(of, 0)


def end(of):
    return _Iterator(of, len(of))


cbegin = begin
cend = end


def rbegin(of):
    return _Iterator(list(reversed(of)), 0)


def rend(of):
    return _Iterator(list(reversed(of)), len(of))


def between(first, last):
    return list(first.of)[first.at:last.at]


def insert(of, where, *what):
    if len(what) == 2:
        of[where.at:where.at] = between(what[0], what[1])
    else:
        of.insert(where.at, what[0])


def erase(of, first, last=None):
    del of[first.at:(first.at + 1 if last is None else last.at)]


def resize(of, n, value=None):
    while len(of) > n:
        of.pop()
    while len(of) < n:
        of.append(value)


def assign(of, n, value=None):
    of[:] = [value for _ in range(n)]


def slice(of, first, n=None):
    return of[first:] if n is None else of[first:first + n]


def drop_front(of, n=1):
    return of[n:]


def drop_back(of, n=1):
    return of[:len(of) - n]


def map_emplace(of, key, *value):
    if isinstance(key, tuple):
        key, value = key[0], (key[1],)
    of.setdefault(key, value[0])


map_try_emplace = map_emplace


def map_insert(of, key, *value):
    if isinstance(key, tuple):
        key, value = key[0], (key[1],)
    of[key] = value[0]


map_insert_or_assign = map_insert


def map_keys(of):
    return list(of.keys())


def map_values(of):
    return list(of.values())


def map_items(of):
    return list(of.items())


map_pairs = map_items


def string_substr(text, at, n=None):
    return text[at:] if n is None else text[at:at + n]


def string_find(text, what, at=0):
    return text.find(what, at)


def string_starts_with(text, what):
    return text.startswith(what)


def string_ends_with(text, what):
    return text.endswith(what)


def string_compare(text, other):
    return 0 if text == other else 1


def string_append(text, more):
    return text + more


def repeated(n, what):
    return what * n


# ---- functions of the standard library -----------------------------------------------------------------------------------------------

def limit(which, kind):
    if which == "infinity":
        return float("inf")
    if which == "quiet_NaN":
        return float("nan")
    if kind == "float":
        return {"max": 3.4028234663852886e38, "lowest": -3.4028234663852886e38, "min": 1.1754943508222875e-38, "epsilon": 1.1920928955078125e-07}[which]
    if kind == "double":
        return {"max": 1.7976931348623157e308, "lowest": -1.7976931348623157e308, "min": 2.2250738585072014e-308, "epsilon": 2.220446049250313e-16}[which]
    bits = 32 if kind in ("int", "unsigned int") else 64
    return 2 ** (bits - 1) - 1 if which == "max" else -2 ** (bits - 1)


std_sqrt = std_sqrtf = math.sqrt
std_exp = math.exp
std_log = math.log
std_log2 = math.log2
std_log10 = math.log10
std_sin = math.sin
std_cos = math.cos
std_tan = math.tan
std_tanh = math.tanh
std_fabs = math.fabs


def std_atan2(y, x):
    return math.atan2(y, x)


def std_pow(a, b):
    return float(a) ** b


def std_abs(x):
    return abs(x)


def std_floor(x):
    return float(math.floor(x))


def std_ceil(x):
    return float(math.ceil(x))


def std_round(x):
    return float(math.floor(x + 0.5)) if x >= 0 else -float(math.floor(0.5 - x))


std_lround = std_round


def std_fmod(a, b):
    return math.fmod(a, b)


def std_max(a, *b):
    return max(a, *b) if b and not callable(b[0]) else max(a)


def std_min(a, *b):
    return min(a, *b) if b and not callable(b[0]) else min(a)


def std_clamp(x, low, high):
    return min(max(x, low), high)


def std_gcd(a, b):
    return math.gcd(a, b)


def std_lcm(a, b):
    return a * b // math.gcd(a, b)


def std_to_string(x):
    return str(x)


def std_str(*parts):
    return "".join([str(p) for p in parts])


def std_stoi(text):
    return int(text)


def std_accumulate(first, last, start, function=None):
    for x in between(first, last):
        start = start + x if function is None else function(start, x)
    return start


def std_reduce(first, last, start=0, function=None):
    return std_accumulate(first, last, start, function)


def std_multiplies(*_):
    return lambda a, b: a * b


def std_plus(*_):
    return lambda a, b: a + b


def std_reverse(first, last):
    first.of[first.at:last.at] = list(reversed(between(first, last)))


def std_iota(first, last, start):
    for i in range(first.at, last.at):
        first.of[i] = start + i - first.at


def std_fill(first, last, value):
    for i in range(first.at, last.at):
        first.of[i] = value


def std_swap(a, b):
    return torch._unknown("std::swap")


def std_size(of):
    return len(of)


def std_begin(of):
    return begin(of)


def std_end(of):
    return end(of)


def std_apply(function, arguments):
    return function(*arguments)


def std_invoke(function, *arguments):
    return function(*arguments)


def std_bind(function, *arguments):
    return lambda *more: function(*arguments, *more)


def std_tuple_cat(*tuples):
    out = ()
    for t in tuples:
        out = out + tuple(t)
    return out


def __getattr__(name):
    if name.startswith("std_"):
        return torch._unknown("std::" + name[4:] + " is not described")
    raise AttributeError(name)
