# Initialisation does not change shapes: every function gives its tensor back.
import math


def calculate_gain(nonlinearity, param=None):
    if nonlinearity == "tanh":
        return 5.0 / 3
    if nonlinearity == "relu":
        return math.sqrt(2.0)
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        return math.sqrt(2.0 / (1 + slope ** 2))
    if nonlinearity == "selu":
        return 3.0 / 4
    return 1


def _calculate_fan_in_and_fan_out(tensor):
    if tensor.dim() < 2:
        raise ValueError("Fan in and fan out can not be computed for tensor with fewer than 2 dimensions")
    field = 1
    for s in tensor.shape[2:]:
        field *= s
    return tensor.shape[1] * field, tensor.shape[0] * field


def _calculate_correct_fan(tensor, mode):
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    return fan_in if mode == "fan_in" else fan_out


def _same(tensor, *args, **kwargs):
    return tensor


uniform_ = normal_ = trunc_normal_ = constant_ = ones_ = zeros_ = eye_ = dirac_ = _same
xavier_uniform_ = xavier_normal_ = kaiming_uniform_ = kaiming_normal_ = orthogonal_ = sparse_ = _same
uniform = normal = constant = eye = dirac = xavier_uniform = xavier_normal = kaiming_uniform = kaiming_normal = orthogonal = sparse = _same
_no_grad_trunc_normal_ = _no_grad_normal_ = _no_grad_uniform_ = _no_grad_fill_ = _same
