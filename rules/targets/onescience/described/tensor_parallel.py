# Megatron's parallel linears as the abstract interpreter sees them: what they take, and what they refuse.
import torch
import torch.nn as nn
import torch.nn.functional as F
from shardwright.parallel import _local, gather_from_tensor_model_parallel_region, local_slice


def _checked(x):
    if x.dim() > 3:
        raise ValueError("a parallel linear takes 2 or 3 dimensions")
    return x


class ColumnParallelLinear(nn.Module):
    def __init__(self, input_size, output_size, *, config, init_method, bias=True, gather_output=False, stride=1, skip_bias_add=False,
                 disable_grad_reduce=False):
        super().__init__()
        if config is None:
            raise ValueError("a parallel linear needs a configuration")
        self.gather_output = gather_output
        self.weight = nn.Parameter(torch.empty(_local(output_size, "output_size"), input_size))
        self.bias = nn.Parameter(torch.empty(_local(output_size, "output_size"))) if bias else None

    def forward(self, x):
        y = F.linear(_checked(x), self.weight, self.bias)
        return (gather_from_tensor_model_parallel_region(y) if self.gather_output else y), None


class RowParallelLinear(nn.Module):
    def __init__(self, input_size, output_size, *, config, init_method, bias, input_is_parallel, skip_bias_add, stride=1):
        super().__init__()
        if config is None:
            raise ValueError("a parallel linear needs a configuration")
        self.input_is_parallel = input_is_parallel
        self.weight = nn.Parameter(torch.empty(output_size, _local(input_size, "input_size")))
        self.bias = nn.Parameter(torch.empty(output_size)) if bias else None

    def forward(self, x):
        if not self.input_is_parallel:
            x = local_slice(x, -1)
        return F.linear(_checked(x), self.weight, self.bias), None
