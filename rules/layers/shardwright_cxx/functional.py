# torch::nn::functional: torch.nn.functional's functions; options arrive as keyword arguments.
import torch
import torch.nn.functional as F


def pad(x, pad, mode="constant", value=None):
    return F.pad(x, pad, mode, value)


def __getattr__(name):
    found = getattr(F, name, None)
    if found is None:
        return torch._unknown("torch::nn::functional::" + name + " is not described")
    return found
