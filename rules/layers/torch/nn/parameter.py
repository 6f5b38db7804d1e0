import torch


class UninitializedParameter(Parameter):
    pass


class UninitializedBuffer(torch.Tensor):
    pass


def is_lazy(x):
    return False
