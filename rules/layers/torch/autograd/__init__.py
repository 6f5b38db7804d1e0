import torch
from torch.autograd.function import Function
from torch.autograd import function
from torch import no_grad, enable_grad, set_grad_enabled, inference_mode


class Variable:
    def __new__(cls, data, requires_grad=False, volatile=None):
        return data


def grad(*args, **kwargs):
    torch._differentiated()
    return torch._unknown("torch.autograd.grad inside a model")


def backward(*args, **kwargs):
    torch._differentiated()
    return None
