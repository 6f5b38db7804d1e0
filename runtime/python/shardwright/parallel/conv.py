"""Channel-parallel convolutions. Constructors are torch.nn's, with the full channel counts; extra arguments are keywords.

Column: output channels divided, weight (out // tp, in, …). Row: input channels divided, partial results summed, bias added
once. Depthwise (and any grouped): groups divided, channels in and out alike, no communication.
"""
from __future__ import annotations

import math

from torch import nn

from . import _C
from .layers import _Result, init_uniform
from .device_mesh import built_tp_size as tp_size
from .device_mesh import tp_group
from .shards import ShardSpec, mark


def _divide(n, what):
    if n % tp_size():
        raise ValueError(f"{what} {n} cannot be divided over {tp_size()} tensor-parallel ranks")
    return n // tp_size()


def _with_groups(args, kwargs, groups):
    if len(args) > 4:
        return (*args[:4], groups, *args[5:]), kwargs
    return args, {**kwargs, "groups": groups}


class _ParallelConv(_Result):
    """Mixin in front of a torch.nn convolution; `_kind` is column, row or grouped."""
    _kind = "column"
    keeps_full_sizes = False   # in_channels, out_channels and groups follow the cut

    def __init__(self, in_channels, out_channels, *args, gather_output=False, input_is_parallel=True, disable_grad_reduce=False,
                 return_bias=True, config=None, shard_stride=1, **kwargs):
        self.full_in_channels, self.full_out_channels = in_channels, out_channels
        groups = kwargs.get("groups", args[4] if len(args) > 4 else 1)
        transposed = isinstance(self, nn.modules.conv._ConvTransposeNd)
        if self._kind == "grouped":
            args, kwargs = _with_groups(args, kwargs, _divide(groups, "groups"))
            local_in, local_out = _divide(in_channels, "in_channels"), _divide(out_channels, "out_channels")
        elif groups != 1:
            raise ValueError(f"{type(self).__name__} with groups={groups}: use GroupParallelConv, which divides the groups")
        elif self._kind == "column":
            local_in, local_out = in_channels, _divide(out_channels, "out_channels")
        else:
            local_in, local_out = _divide(in_channels, "in_channels"), out_channels
        super().__init__(local_in, local_out, *args, **kwargs)
        self.gather_output, self.input_is_parallel = gather_output, input_is_parallel
        self.disable_grad_reduce, self.return_bias, self.shard_stride = disable_grad_reduce, return_bias, shard_stride
        out_dim, in_dim = (1, 0) if transposed else (0, 1)
        dim = {"column": out_dim, "row": in_dim, "grouped": 0}[self._kind]
        stride = shard_stride if shard_stride != 1 else None
        mark(self.weight, ShardSpec.of(self.weight.shape[dim] * tp_size(), dim, stride))
        if self.bias is not None and self._kind != "row":
            mark(self.bias, ShardSpec.of(self.bias.shape[0] * tp_size(), 0, stride))
        if tp_size() > 1:
            self._reset_with_full_fan_in(transposed)

    def _reset_with_full_fan_in(self, transposed):
        # torch takes fan-in from the weight's dimension 1: the full tensor's one is used here, whatever the cut.
        columns = self.weight.shape[1]
        if self._kind == ("column" if transposed else "row"):
            columns *= tp_size()
        fan_in = columns * math.prod(self.weight.shape[2:])
        init_uniform(self.weight, fan_in)
        if self.bias is not None:
            init_uniform(self.bias, fan_in, sharded=self._kind != "row")

    def _without_bias(self, x, output_size=None):
        if not self.transposed:
            return self._conv_forward(x, self.weight, None)
        n = len(self.kernel_size)
        padding = self._output_padding(x, output_size, self.stride, self.padding, self.kernel_size, n, self.dilation)
        return getattr(nn.functional, f"conv_transpose{n}d")(x, self.weight, None, self.stride, self.padding, padding, self.groups,
                                                             self.dilation)

    def forward(self, x, *args, **kwargs):
        if tp_size() == 1 or self._kind == "grouped":
            y = super().forward(x, *args, **kwargs)
        elif self._kind == "column":
            if not self.disable_grad_reduce:
                x = _C.copy_to(x, tp_group())
            y = super().forward(x, *args, **kwargs)
        else:
            if not self.input_is_parallel:
                x = _C.scatter_to(x, -(len(self.kernel_size) + 1), self.shard_stride, 0, tp_group())
            y = _C.reduce_from(self._without_bias(x, *args, **kwargs), tp_group())
            if self.bias is not None:
                y = y + self.bias.view(-1, *[1] * len(self.kernel_size))
        if self.gather_output and self._kind == "column":
            y = _C.gather_from(y, -(len(self.kernel_size) + 1), self.shard_stride, tp_group())
        return y if not self.return_bias else (y, None)


def _make(prefix, kind):
    made = {}
    for base in ("Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"):
        name = prefix + base
        doc = {"column": f"nn.{base} with its output channels divided over tp.",
               "row": f"nn.{base} with its input channels divided over tp; the bias is added once after the sum.",
               "grouped": f"nn.{base} (depthwise or grouped) with its groups divided over tp."}[kind]
        made[name] = type(name, (_ParallelConv, getattr(nn, base)), {"_kind": kind, "__doc__": doc, "__module__": __name__})
    return made


CLASSES = {**_make("ColumnParallel", "column"), **_make("RowParallel", "row"), **_make("GroupParallel", "grouped"),
           **{k.replace("Group", "Depthwise"): v for k, v in _make("GroupParallel", "grouped").items()}}
globals().update(CLASSES)
__all__ = sorted(CLASSES)
