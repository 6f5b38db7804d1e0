import operator
from collections import OrderedDict

import torch

from torch.nn.modules.module import Module
from torch.nn.parameter import Parameter


class Container(Module):
    def __init__(self, **kwargs):
        super().__init__()
        for key, value in kwargs.items():
            self.add_module(key, value)


class Sequential(Module):
    def __init__(self, *args):
        super().__init__()
        if len(args) == 1 and isinstance(args[0], dict):
            for key, module in args[0].items():
                self.add_module(key, module)
        else:
            for idx, module in enumerate(args):
                self.add_module(str(idx), module)

    def _at(self, idx):
        idx = operator.index(idx)
        n = len(self._modules)
        if idx < -n or idx >= n:
            raise IndexError(f"index {idx} is out of range")
        return list(self._modules.keys())[idx]

    def __getitem__(self, idx):
        if isinstance(idx, slice):
            return self.__class__(OrderedDict(list(self._modules.items())[idx]))
        return self._modules[self._at(idx)]

    def __setitem__(self, idx, module):
        return setattr(self, self._at(idx), module)

    def __delitem__(self, idx):
        keys = list(self._modules.keys())[idx] if isinstance(idx, slice) else [self._at(idx)]
        for key in keys:
            delattr(self, key)
        values = list(self._modules.values())
        for key in list(self._modules.keys()):
            delattr(self, key)
        for i, v in enumerate(values):
            self.add_module(str(i), v)

    def __len__(self):
        return len(self._modules)

    def __add__(self, other):
        return Sequential(*list(self), *list(other))

    def __iadd__(self, other):
        return self.extend(other)

    def __iter__(self):
        return iter(list(self._modules.values()))

    def __contains__(self, module):
        return any(m is module for m in self._modules.values())

    def append(self, module):
        self.add_module(str(len(self)), module)
        return self

    def insert(self, index, module):
        values = list(self._modules.values())
        values.insert(index, module)
        for i, v in enumerate(values):
            self._modules[str(i)] = v
        return self

    def extend(self, sequential):
        for layer in sequential:
            self.append(layer)
        return self

    def pop(self, key):
        v = self[key]
        del self[key]
        return v

    def forward(self, input):
        for module in self._modules.values():
            input = module(input)
        return input


class ModuleList(Module):
    def __init__(self, modules=None):
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def _at(self, idx):
        idx = operator.index(idx)
        n = len(self._modules)
        if idx < -n or idx >= n:
            raise IndexError(f"index {idx} is out of range")
        return str(idx if idx >= 0 else idx + n)

    def __getitem__(self, idx):
        if isinstance(idx, slice):
            return self.__class__(list(self._modules.values())[idx])
        return self._modules[self._at(idx)]

    def __setitem__(self, idx, module):
        return setattr(self, self._at(idx), module)

    def __delitem__(self, idx):
        values = list(self._modules.values())
        del values[idx]
        for key in list(self._modules.keys()):
            delattr(self, key)
        for i, v in enumerate(values):
            self.add_module(str(i), v)

    def __len__(self):
        return len(self._modules)

    def __iter__(self):
        return iter(list(self._modules.values()))

    def __contains__(self, module):
        return any(m is module for m in self._modules.values())

    def __iadd__(self, modules):
        return self.extend(modules)

    def __add__(self, other):
        return ModuleList(list(self) + list(other))

    def insert(self, index, module):
        values = list(self._modules.values())
        values.insert(index, module)
        for i, v in enumerate(values):
            self._modules[str(i)] = v

    def append(self, module):
        self.add_module(str(len(self)), module)
        return self

    def pop(self, key):
        v = self[key]
        del self[key]
        return v

    def extend(self, modules):
        offset = len(self)
        for i, module in enumerate(modules):
            self.add_module(str(offset + i), module)
        return self


class ModuleDict(Module):
    def __init__(self, modules=None):
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key):
        return self._modules[key]

    def __setitem__(self, key, module):
        self.add_module(key, module)

    def __delitem__(self, key):
        del self._modules[key]

    def __len__(self):
        return len(self._modules)

    def __iter__(self):
        return iter(list(self._modules.keys()))

    def __contains__(self, key):
        return key in self._modules

    def clear(self):
        self._modules.clear()

    def pop(self, key):
        v = self[key]
        del self[key]
        return v

    def get(self, key, default=None):
        return self._modules.get(key, default)

    def keys(self):
        return self._modules.keys()

    def items(self):
        return self._modules.items()

    def values(self):
        return self._modules.values()

    def update(self, modules):
        for key, module in (modules.items() if hasattr(modules, "items") else modules):
            self[key] = module


def _parameter(value):
    """Tensors become parameters; anything else is kept as it is."""
    if isinstance(value, torch.Tensor) and not isinstance(value, Parameter):
        return Parameter(value)
    return value


class ParameterList(Module):
    def __init__(self, values=None):
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def __getitem__(self, idx):
        if isinstance(idx, slice):
            return ParameterList([getattr(self, str(i)) for i in range(self._size)[idx]])
        idx = operator.index(idx)
        if idx < 0:
            idx += self._size
        if idx < 0 or idx >= self._size:
            raise IndexError(f"index {idx} is out of range")
        return getattr(self, str(idx))

    def __setitem__(self, idx, param):
        setattr(self, str(idx if idx >= 0 else idx + self._size), param)

    def __len__(self):
        return self._size

    def __iter__(self):
        return iter([self[i] for i in range(self._size)])

    def __iadd__(self, values):
        return self.extend(values)

    def append(self, value):
        self._size += 1
        self[self._size - 1] = _parameter(value)
        return self

    def extend(self, values):
        for v in values:
            self.append(v)
        return self


class ParameterDict(Module):
    def __init__(self, parameters=None):
        super().__init__()
        self._keys = {}
        if parameters is not None:
            self.update(parameters)

    def __getitem__(self, key):
        return getattr(self, str(key))

    def __setitem__(self, key, value):
        self._keys[key] = None
        setattr(self, str(key), _parameter(value))

    def __delitem__(self, key):
        del self._keys[key]
        delattr(self, str(key))

    def __len__(self):
        return len(self._keys)

    def __iter__(self):
        return iter(list(self._keys))

    def __contains__(self, key):
        return key in self._keys

    def get(self, key, default=None):
        return self[key] if key in self else default

    def keys(self):
        return self._keys.keys()

    def items(self):
        return [(k, self[k]) for k in self._keys]

    def values(self):
        return [self[k] for k in self._keys]

    def update(self, parameters):
        for key, value in (parameters.items() if hasattr(parameters, "items") else parameters):
            self[key] = value
