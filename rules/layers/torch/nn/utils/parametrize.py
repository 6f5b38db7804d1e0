import torch


def is_parametrized(module, tensor_name=None):
    return False


def register_parametrization(module, tensor_name, parametrization, *, unsafe=False):
    module.forward = lambda *a, **k: torch._unknown("a parametrised module")
    return module


def remove_parametrizations(module, tensor_name, leave_parametrized=True):
    return module
