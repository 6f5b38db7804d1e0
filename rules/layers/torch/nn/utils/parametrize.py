import torch
from torch import nn


class ParametrizationList(nn.ModuleList):
    """Where the tensor that is trained lives: module.parametrizations.weight.original."""


def is_parametrized(module, tensor_name=None):
    lists = getattr(module, "parametrizations", None)
    return lists is not None and (tensor_name is None or tensor_name in lists)


def _recompute(module, name, compute):
    """The tensor is made anew at every call of the module, before its forward."""
    forward = module.forward

    def with_new_tensor(*args, **kwargs):
        setattr(module, name, compute())
        return forward(*args, **kwargs)

    setattr(module, name, compute())
    module.forward = with_new_tensor


def _take_out(module, name):
    tensor = getattr(module, name)
    delattr(module, name)
    return tensor


def _lists(module):
    if getattr(module, "parametrizations", None) is None:
        module.parametrizations = nn.ModuleDict()
    return module.parametrizations


def register_parametrization(module, tensor_name, parametrization, *, unsafe=False):
    if is_parametrized(module, tensor_name):
        module.parametrizations[tensor_name].append(parametrization)
        return module
    if hasattr(parametrization, "right_inverse"):
        module.forward = lambda *a, **k: torch._unknown("a parametrised module with a right_inverse of its own")
        return module
    tensor = _take_out(module, tensor_name)
    every = ParametrizationList([parametrization])
    if isinstance(tensor, nn.Parameter):
        every.original = tensor
    else:
        every.register_buffer("original", tensor)
    _lists(module)[tensor_name] = every

    def compute():
        value = every.original
        for step in every:
            value = step(value)
        return value

    _recompute(module, tensor_name, compute)
    return module


def remove_parametrizations(module, tensor_name, leave_parametrized=True):
    module.forward = lambda *a, **k: torch._unknown("a module whose parametrisation was removed")
    return module
