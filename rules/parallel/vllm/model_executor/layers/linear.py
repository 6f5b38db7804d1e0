# vLLM's layers: inference, (output, bias) comes back, a column layer keeps its output cut and a row layer expects a cut input.
import torch
import torch.nn as nn
import torch.nn.functional as F
from _shardwright import layout, mark, note, region, result, tp
from torch.nn.parameter import Parameter


def _share(layer, size, what):
    if size % tp() != 0:
        note("SW112", f"{what} = {size} cannot be divided over {tp()} tensor-parallel ranks", layer)
    return size // tp()


class ReplicatedLinear(nn.Module):
    def __init__(self, input_size, output_size, bias=True, skip_bias_add=False, params_dtype=None, quant_config=None, prefix="", **kwargs):
        super().__init__()
        self.weight = Parameter(torch.empty(output_size, input_size))
        self.bias = Parameter(torch.empty(output_size)) if bias else None

    def forward(self, x):
        return result(F.linear(x, self.weight, self.bias), None)


class ColumnParallelLinear(nn.Module):
    def __init__(self, input_size, output_size, bias=True, gather_output=False, skip_bias_add=False, params_dtype=None, quant_config=None,
                 output_sizes=None, prefix="", **kwargs):
        super().__init__()
        self.gather_output, self.skip_bias_add = gather_output, skip_bias_add
        self.output_size_per_partition = _share(self, output_size, "output_size")
        self.weight = Parameter(torch.empty(self.output_size_per_partition, input_size))
        mark(self.weight, "no_gradient")
        self.bias = Parameter(torch.empty(self.output_size_per_partition)) if bias else None

    def forward(self, input_):
        y = F.linear(region("copy_to", region("column_input", input_)), self.weight, self.bias)
        if self.gather_output:
            y = region("gather", y, -1)
        return result(y, self.bias if self.skip_bias_add else None)


class MergedColumnParallelLinear(ColumnParallelLinear):
    def __init__(self, input_size, output_sizes, bias=True, gather_output=False, **kwargs):
        super().__init__(input_size, sum(output_sizes), bias, gather_output)
        layout(self.weight, 0, len(output_sizes))
        if self.bias is not None:
            layout(self.bias, 0, len(output_sizes))


class QKVParallelLinear(ColumnParallelLinear):
    def __init__(self, hidden_size, head_size, total_num_heads, total_num_kv_heads=None, bias=True, **kwargs):
        kv = total_num_heads if total_num_kv_heads is None else total_num_kv_heads
        super().__init__(hidden_size, (total_num_heads + 2 * kv) * head_size, bias)
        self.num_heads, self.num_kv_heads = _share(self, total_num_heads, "total_num_heads"), _share(self, kv, "total_num_kv_heads")
        layout(self.weight, 0, 0)
        if self.bias is not None:
            layout(self.bias, 0, 0)


class RowParallelLinear(nn.Module):
    def __init__(self, input_size, output_size, bias=True, input_is_parallel=True, skip_bias_add=False, params_dtype=None, reduce_results=True,
                 quant_config=None, prefix="", **kwargs):
        super().__init__()
        self.input_size, self.input_is_parallel, self.skip_bias_add, self.reduce_results = input_size, input_is_parallel, skip_bias_add, reduce_results
        self.weight = Parameter(torch.empty(output_size, _share(self, input_size, "input_size")))
        self.bias = Parameter(torch.empty(output_size)) if bias else None

    def forward(self, input_):
        x = region("row_input" if self.input_is_parallel else "scatter", input_, -1, self.input_size)
        y = F.linear(x, self.weight)
        if self.reduce_results:
            y = region("reduce_from", y)
            if self.bias is not None and not self.skip_bias_add:
                y = y + self.bias
        return result(y, self.bias if self.skip_bias_add else None)
