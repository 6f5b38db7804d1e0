"""Column- and row-parallel linears, vocabulary-parallel embedding. Constructors take the full sizes; parameters are local.

Layers return `(output, bias)` as Megatron's do (`bias` only with `skip_bias_add`), or the bare tensor with
`return_bias=False`. Any input rank.
"""
from __future__ import annotations

import math

import torch
from torch import nn

from . import _C
from .device_mesh import built_tp_rank as tp_rank
from .device_mesh import built_tp_size as tp_size
from .device_mesh import tp_group
from .random import get_rng_tracker
from .shards import ShardSpec, mark


def make_local_parameter(shape, spec, device=None, dtype=None):
    """An uninitialised local parameter for a tensor of full `shape` cut as `spec` says."""
    local = list(shape)
    local[spec.dim] = spec.local_size()
    return mark(nn.Parameter(torch.empty(local, device=device, dtype=dtype)), spec)


def init_uniform(parameter, fan_in, sharded=True):
    """PyTorch's default for linears and convolutions, with the fan-in of the full shape; a sharded parameter draws from this
    rank's own stream."""
    bound = 1 / math.sqrt(fan_in) if fan_in > 0 else 0
    if sharded:
        with get_rng_tracker().fork():
            nn.init.uniform_(parameter, -bound, bound)
    else:
        nn.init.uniform_(parameter, -bound, bound)


class _Result:
    """How a layer hands out its result: (out, bias) or bare."""
    return_bias = True
    skip_bias_add = False
    keeps_full_sizes = True   # in_features and out_features stay the original's

    def _result(self, out):
        if not self.return_bias:
            return out
        return out, (self.bias if self.skip_bias_add else None)


class ColumnParallelLinear(_Result, nn.Linear):
    """y = x W^T + b with W's rows divided over tp: weight (out // tp, in).

    `stride=3`: the rows are (3, heads, head_dim) cut on the heads. `segments=[rows, (rows, factors), …]`: a concatenation of
    parts, each cut by itself (factors: outer, or (outer, sharded)). `disable_grad_reduce=True`: the caller has passed the
    input through copy_to_tensor_model_parallel_region, which several layers can share.
    `gather_output=True` returns the full output on every rank. `groups=n`: the rows are n groups; with more ranks than groups several
    ranks hold the same one, and its gradient is summed over them (key and value heads of grouped-query attention).
    `sequence_parallel=True`: the input is this rank's part of dimension `sequence_dim`; it is gathered."""

    def __init__(self, in_features, out_features, bias=True, *, stride=1, segments=None, groups=0, gather_output=False,
                 disable_grad_reduce=False, sequence_parallel=False, sequence_dim=0, skip_bias_add=False, return_bias=True, config=None, init_method=None, device=None,
                 dtype=None):
        nn.Module.__init__(self)
        self.in_features, self.out_features = in_features, out_features
        self.spec = ShardSpec.of(out_features, 0, (stride, groups) if groups else stride if stride != 1 else None, segments, groups)
        self.sequence_parallel, self.sequence_dim = sequence_parallel, sequence_dim
        self.out_features_per_partition = self.spec.local_size()
        self.gather_output, self.disable_grad_reduce = gather_output, disable_grad_reduce
        self.skip_bias_add, self.return_bias = skip_bias_add, return_bias
        if gather_output and groups and tp_size() > groups:
            raise ValueError(f"gather_output=True and {groups} groups on {tp_size()} ranks: groups would be gathered more than once")
        if gather_output and len(self.spec.segments) > 1:
            raise ValueError("gather_output=True and segments: gather the parts one by one after splitting the output")
        self.weight = make_local_parameter((out_features, in_features), self.spec, device, dtype)
        self.bias = make_local_parameter((out_features,), self.spec, device, dtype) if bias else None
        self._init_method = init_method
        self.reset_parameters()

    def reset_parameters(self):
        if self._init_method is not None:
            with get_rng_tracker().fork():
                self._init_method(self.weight)
        else:
            init_uniform(self.weight, self.in_features)
        if self.bias is not None:
            init_uniform(self.bias, self.in_features)

    def forward(self, x):
        if x.shape[-1] != self.in_features:
            raise ValueError(f"ColumnParallelLinear({self.in_features}, {self.out_features}) got an input of shape {tuple(x.shape)}: "
                             f"it takes the full last dimension {self.in_features} on every rank")
        bias = None if self.skip_bias_add else self.bias
        if self.sequence_parallel:   # its gradient is summed and divided
            x = _C.gather_sequence(x, self.sequence_dim, tp_group())
        y = _C.column_linear(x, self.weight, bias, tp_group(), not (self.disable_grad_reduce or self.sequence_parallel))
        if self.gather_output:
            y = _C.gather_from(y, -1, self.spec.stride, tp_group())
        return self._result(y)

    def extra_repr(self):
        return (f"in_features={self.in_features}, out_features={self.out_features} (local {self.out_features_per_partition}), "
                f"bias={self.bias is not None}, stride={self.spec.stride}, gather_output={self.gather_output}")


class RowParallelLinear(_Result, nn.Linear):
    """y = sum over tp of (x W^T), + b once, with W's columns divided: weight (out, in // tp), bias full.

    `input_is_parallel=True`: x is sharded on its last dimension as the columns are. `False`: x is full and is sliced first.
    `stride`: the columns are (stride, sharded, inner), cut on the middle. `reduce_output=False`: the result is this rank's part of
    the sum; the caller adds parts of several layers and passes the whole to reduce_from_tensor_model_parallel_region once.
    `sequence_parallel=True`: of the sum each rank keeps its part of dimension `sequence_dim`; the bias's gradient is then a part, too, and
    is summed once a step."""

    def __init__(self, in_features, out_features, bias=True, *, input_is_parallel=True, stride=1, segments=None,
                 skip_bias_add=False, reduce_output=True, return_bias=True, sequence_parallel=False, sequence_dim=0, config=None, init_method=None, device=None, dtype=None):
        nn.Module.__init__(self)
        self.in_features, self.out_features = in_features, out_features
        self.spec = ShardSpec.of(in_features, 1, stride if stride != 1 else None, segments)
        self.in_features_per_partition = self.spec.local_size()
        self.input_is_parallel, self.reduce_output = input_is_parallel, reduce_output
        if bias and not reduce_output and not skip_bias_add:
            raise ValueError("reduce_output=False and a bias: it would be added once a rank; skip_bias_add=True hands it out")
        self.skip_bias_add, self.return_bias = skip_bias_add, return_bias
        if not input_is_parallel and len(self.spec.segments) > 1:
            raise ValueError("input_is_parallel=False and segments: slice the parts of the input one by one")
        self.weight = make_local_parameter((out_features, in_features), self.spec, device, dtype)
        self.bias = nn.Parameter(torch.empty(out_features, device=device, dtype=dtype)) if bias else None
        self.sequence_parallel, self.sequence_dim = sequence_parallel, sequence_dim
        if sequence_parallel and bias:
            self.bias.sum_gradient_over_tp = True
        self._init_method = init_method
        self.reset_parameters()

    def reset_parameters(self):
        if self._init_method is not None:
            with get_rng_tracker().fork():
                self._init_method(self.weight)
        else:
            init_uniform(self.weight, self.in_features)
        if self.bias is not None:
            init_uniform(self.bias, self.in_features, sharded=False)

    def forward(self, x):
        if not self.input_is_parallel:
            if x.shape[-1] != self.in_features:
                raise ValueError(f"RowParallelLinear({self.in_features}, {self.out_features}, input_is_parallel=False) got an input "
                                 f"of shape {tuple(x.shape)}: with False it takes the full last dimension {self.in_features} and "
                                 f"slices it; is the input already sharded?")
            x = _C.scatter_to(x, -1, self.spec.stride, 0, tp_group())
        elif x.shape[-1] != self.in_features_per_partition:
            raise ValueError(f"RowParallelLinear({self.in_features}, {self.out_features}, input_is_parallel=True) got an input of "
                             f"shape {tuple(x.shape)}: with True it takes this rank's part of the last dimension, "
                             f"{self.in_features} / {tp_size()} = {self.in_features_per_partition}; is the input full?")
        bias = None if self.skip_bias_add else self.bias
        if self.sequence_parallel:
            y = _C.reduce_scatter_sequence(nn.functional.linear(x, self.weight), self.sequence_dim, tp_group())
            return self._result(y if bias is None else y + bias)
        return self._result(_C.row_linear(x, self.weight, bias, tp_group()) if self.reduce_output else nn.functional.linear(x, self.weight))

    def extra_repr(self):
        return (f"in_features={self.in_features} (local {self.in_features_per_partition}), out_features={self.out_features}, "
                f"bias={self.bias is not None}, input_is_parallel={self.input_is_parallel}, stride={self.spec.stride}")


class VocabParallelEmbedding(nn.Embedding):
    """A table whose rows are divided over tp, padded to a multiple of tp. Ids outside of this rank's rows give zero; the results
    are summed, so the output is full. `weight` has `padded_num_embeddings // tp` rows."""

    def __init__(self, num_embeddings, embedding_dim, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False,
                 sparse=False, *, padded_num_embeddings=None, config=None, init_method=None, device=None, dtype=None):
        nn.Module.__init__(self)
        if max_norm is not None or scale_grad_by_freq or sparse:
            raise ValueError("VocabParallelEmbedding has no max_norm, scale_grad_by_freq or sparse: they look at the whole table")
        tp = tp_size()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse = None, norm_type, False, False
        self.padding_idx = None if padding_idx is None else padding_idx % num_embeddings
        self.padded_num_embeddings = padded_num_embeddings or -(-num_embeddings // tp) * tp
        self.weight = make_local_parameter((self.padded_num_embeddings, embedding_dim),
                                           ShardSpec.of(self.padded_num_embeddings, 0), device, dtype)
        self._init_method = init_method
        self.reset_parameters()

    def reset_parameters(self):
        with get_rng_tracker().fork(), torch.no_grad():
            (self._init_method or nn.init.normal_)(self.weight)
            first = self.weight.shape[0] * tp_rank()
            if self.padding_idx is not None and first <= self.padding_idx < first + self.weight.shape[0]:
                self.weight[self.padding_idx - first].zero_()

    def forward(self, ids):
        return _C.vocab_embedding(ids, self.weight, -1 if self.padding_idx is None else self.padding_idx, tp_group())

    def extra_repr(self):
        return f"{self.num_embeddings} (local {self.weight.shape[0]}), {self.embedding_dim}"
