import torch
from torch.nn.utils import parametrizations, parametrize, rnn


def weight_norm(module, name="weight", dim=0):
    torch._enter_custom("weight_norm")
    torch._leave_custom()
    return module


def remove_weight_norm(module, name="weight"):
    return module


def spectral_norm(module, *args, **kwargs):
    return module


def remove_spectral_norm(module, name="weight"):
    return module


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
