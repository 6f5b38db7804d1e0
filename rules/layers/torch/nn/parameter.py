import torch


class UninitializedParameter(Parameter):
    pass


class UninitializedBuffer(torch.Tensor):
    pass


def Buffer(data=None, *, persistent=True):
    return data


def is_lazy(x):
    return False
