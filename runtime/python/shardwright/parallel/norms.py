"""Norms over a dimension that is divided over tp: means are taken over all ranks, weights are local."""
from __future__ import annotations

import torch
from torch import nn

from . import _C
from .device_mesh import built_tp_size as tp_size
from .device_mesh import tp_group
from .layers import make_local_parameter
from .shards import ShardSpec


def _mean(x, full):
    """Over the whole last dimension, the same on all ranks; its gradient is summed, because every rank uses it."""
    group = tp_group()
    return _C.copy_to(_C.reduce_from(x.sum(-1, keepdim=True), group), group) / full


def _precise(x):
    return x if x.dtype == torch.float64 else x.float()


class ParallelLayerNorm(nn.Module):
    """nn.LayerNorm(normalized_shape) over a last dimension of which this rank has its part. Constructor: the full size."""

    def __init__(self, normalized_shape, eps=1e-5, elementwise_affine=True, bias=True, device=None, dtype=None, *, config=None):
        super().__init__()
        size = normalized_shape if isinstance(normalized_shape, int) else normalized_shape[-1]
        if not isinstance(normalized_shape, int) and len(normalized_shape) != 1:
            raise ValueError(f"a parallel norm is over the last dimension alone, not over {tuple(normalized_shape)}")
        spec = ShardSpec.of(size, 0)
        spec.local_size()
        self.normalized_size, self.eps = size, eps
        make = dict(device=device, dtype=dtype)
        self.weight = make_local_parameter((size,), spec, **make) if elementwise_affine else None
        self.bias = make_local_parameter((size,), spec, **make) if elementwise_affine and bias else None
        self.reset_parameters()

    def reset_parameters(self):
        for p, value in ((self.weight, 1.0), (self.bias, 0.0)):
            if p is not None:
                nn.init.constant_(p, value)

    def _check(self, x):
        if x.shape[-1] * tp_size() != self.normalized_size:
            raise ValueError(f"{type(self).__name__}({self.normalized_size}) got an input of shape {tuple(x.shape)}: it takes this rank's part of "
                             f"the last dimension, {self.normalized_size} / {tp_size()}")

    def _scaled(self, y, like):
        y = y.to(like.dtype)
        y = y if self.weight is None else y * self.weight
        return y if self.bias is None else y + self.bias

    def forward(self, x):
        self._check(x)
        y = _precise(x)
        y = y - _mean(y, self.normalized_size)
        return self._scaled(y * torch.rsqrt(_mean(y * y, self.normalized_size) + self.eps), x)

    def extra_repr(self):
        return f"{self.normalized_size} (local {self.normalized_size // tp_size()}), eps={self.eps}"


class ParallelRMSNorm(ParallelLayerNorm):
    """nn.RMSNorm over a divided last dimension."""

    def __init__(self, normalized_shape, eps=None, elementwise_affine=True, device=None, dtype=None, *, config=None):
        super().__init__(normalized_shape, eps, elementwise_affine, False, device, dtype, config=config)

    def forward(self, x):
        self._check(x)
        y = _precise(x)
        eps = torch.finfo(x.dtype).eps if self.eps is None else self.eps
        return self._scaled(y * torch.rsqrt(_mean(y * y, self.normalized_size) + eps), x)
