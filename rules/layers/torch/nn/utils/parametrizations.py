import torch
from torch import nn
from torch.nn.utils.parametrize import ParametrizationList, _lists, _recompute, _take_out


def _norm_shape(tensor, dim):
    shape = [1] * tensor.dim()
    if dim is None or dim == -1:
        return []
    shape[dim] = tensor.shape[dim]
    return shape


def weight_norm(module, name="weight", dim=0):
    tensor = _take_out(module, name)
    every = ParametrizationList([nn.Module()])
    every.original0 = nn.Parameter(torch.empty(_norm_shape(tensor, dim)))
    every.original1 = nn.Parameter(torch.empty(tensor.shape))
    _lists(module)[name] = every
    # The weight as a whole: the norm over the other dimensions joins all its entries.
    _recompute(module, name, lambda: torch._opaque("weight_norm", tensor.shape, tensor.dtype, every.original0, every.original1))
    return module


def spectral_norm(module, name="weight", n_power_iterations=1, eps=1e-12, dim=None):
    tensor = _take_out(module, name)
    if dim is None:
        dim = 1 if isinstance(module, (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)) else 0
    step = nn.Module()
    if tensor.dim() > 1:
        step.register_buffer("_u", torch.empty(tensor.shape[dim]))
        step.register_buffer("_v", torch.empty(tensor.numel() // tensor.shape[dim]))
    every = ParametrizationList([step])
    every.original = tensor
    _lists(module)[name] = every
    state = [step._u, step._v] if tensor.dim() > 1 else []
    _recompute(module, name, lambda: torch._opaque("spectral_norm", tensor.shape, tensor.dtype, every.original, *state))
    return module


def orthogonal(module, name="weight", orthogonal_map=None, *, use_trivialization=True):
    module.forward = lambda *a, **k: torch._unknown("a module with an orthogonal parametrisation")
    return module
