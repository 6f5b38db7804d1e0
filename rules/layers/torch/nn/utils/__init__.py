import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, rnn


def weight_norm(module, name="weight", dim=0):
    tensor = parametrize._take_out(module, name)
    module.register_parameter(name + "_g", nn.Parameter(torch.empty(parametrizations._norm_shape(tensor, dim))))
    module.register_parameter(name + "_v", nn.Parameter(torch.empty(tensor.shape)))
    parametrize._recompute(module, name, lambda: torch._opaque("weight_norm", tensor.shape, tensor.dtype, getattr(module, name + "_g"), getattr(module, name + "_v")))
    return module


def spectral_norm(module, name="weight", n_power_iterations=1, eps=1e-12, dim=None):
    tensor = parametrize._take_out(module, name)
    if dim is None:
        dim = 1 if isinstance(module, (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)) else 0
    module.register_parameter(name + "_orig", tensor)
    module.register_buffer(name + "_u", torch.empty(tensor.shape[dim]))
    module.register_buffer(name + "_v", torch.empty(tensor.numel() // tensor.shape[dim]))
    parametrize._recompute(module, name, lambda: torch._opaque("spectral_norm", tensor.shape, tensor.dtype, tensor, getattr(module, name + "_u"), getattr(module, name + "_v")))
    return module


def _removed(module, name="weight"):
    module.forward = lambda *a, **k: torch._unknown("a module whose weight_norm or spectral_norm was removed")
    return module


remove_weight_norm = remove_spectral_norm = _removed


def clip_grad_norm_(parameters, max_norm, *args, **kwargs):
    return torch.zeros(())


def clip_grad_value_(parameters, value, *args, **kwargs):
    return None


def parameters_to_vector(parameters):
    return torch.cat([p.view(-1) for p in parameters])


def vector_to_parameters(vec, parameters):
    return None


def skip_init(cls, *args, **kwargs):
    return cls(*args, **kwargs)


def fuse_conv_bn_eval(conv, bn, transpose=False):
    return conv
