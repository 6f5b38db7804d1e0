"""What a model's source changes in PyTorch itself when it is imported: layers and functions that it replaces, the default dtype.

In a rank the original is imported only to draw inputs and start values: its changes are taken off again, so that what the generated
program forgot of them shows. Between two targets everything is put back."""
from __future__ import annotations

import contextlib
import sys
import types

import torch

_MISSING = object()
_UNTOUCHED = ("__annotations__", "__abstractmethods__", "__doc__", "__dict__", "__weakref__")


def _owners():
    """Modules and classes of PyTorch that models are known to patch."""
    found = {id(o): o for o in (torch, torch.nn, torch.nn.functional, torch.nn.init, torch.Tensor, torch.nn.Parameter)}
    for name, module in list(sys.modules.items()):
        if name.startswith("torch.nn.modules.") or name == "torch.nn.modules":
            for value in list(vars(module).values()):
                if isinstance(value, type) and issubclass(value, torch.nn.Module) and value.__module__.startswith("torch."):
                    found[id(value)] = value
    return found.values()


class Snapshot:
    """PyTorch's names as they are now."""

    def __init__(self):
        self.names = [(o, dict(vars(o))) for o in _owners()]
        self.dtype = torch.get_default_dtype()

    def changes(self):
        """[(owner, name, value then, value now)]; submodules that were imported since are no change."""
        out = []
        for owner, before in self.names:
            now = vars(owner)
            for name in {**before, **now}:
                old, new = before.get(name, _MISSING), now.get(name, _MISSING)
                if old is not new and name not in _UNTOUCHED and not isinstance(new, types.ModuleType):
                    out.append((owner, name, old, new))
        return out

    def restore(self):
        put(self.changes(), back=True)
        torch.set_default_dtype(self.dtype)


def put(changes, back=False):
    """Makes the changes, or takes them back."""
    for owner, name, old, new in changes:
        value = old if back else new
        with contextlib.suppress(AttributeError, TypeError):   # a name of an extension type
            if value is _MISSING:
                if name in vars(owner):
                    delattr(owner, name)
            else:
                setattr(owner, name, value)


_of_model: dict[str, list] = {}   # an installed package is imported once a process: what it changed then


@contextlib.contextmanager
def noted(model):
    """Around the import of `model`: remembers what it changes, or makes those changes when it was imported before."""
    before = Snapshot()
    yield
    changes = before.changes()
    if changes:
        _of_model[model] = changes
    else:
        put(_of_model.get(model, []))


@contextlib.contextmanager
def of(model):
    """With the changes that `model` makes, and without them afterwards."""
    before = Snapshot()
    put(_of_model.get(model, []))
    try:
        yield
    finally:
        before.restore()
