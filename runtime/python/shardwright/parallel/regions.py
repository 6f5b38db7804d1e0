"""Conversions between placements over the tensor-parallel group, with their gradients. Megatron's names where it has them."""
from __future__ import annotations

import functools

import torch

from . import _C
from .device_mesh import tp_group, tp_size

REPLICATED_GRAD = "replicated_grad"


def _product(sizes):
    return (int(sizes[0]), int(sizes[1])) if sizes is not None else (1, 0)


def copy_to_tensor_model_parallel_region(x):
    """I -> R: the same tensor forward, gradient summed over tp. For an activation that enters a sharded region, and for a
    replicated parameter that is used inside one."""
    if not isinstance(x, torch.Tensor):
        return x
    return _C.copy_to(x, tp_group(), REPLICATED_GRAD if isinstance(x, torch.nn.Parameter) else "activation_backward")


def reduce_from_tensor_model_parallel_region(x):
    """P -> I: summed over tp forward, identity backward."""
    return _C.reduce_from(x, tp_group())


def scatter_to_tensor_model_parallel_region(x, dim=-1, sizes=None):
    """I -> V: this rank's slice of an invariant tensor; the gradient is gathered."""
    outer, sharded = _product(sizes)
    return _C.scatter_to(x, dim, outer, sharded, tp_group())


def gather_from_tensor_model_parallel_region(x, dim=-1, sizes=None):
    """V -> I: all slices put together; each rank takes its slice of the gradient. `sizes=(outer, …)`: see local_slice."""
    return _C.gather_from(x, dim, _product(sizes)[0], tp_group())


def scatter_to_sequence_parallel_region(x, dim=0):
    """I -> V along the sequence: this rank's part; the gradient is gathered."""
    return _C.scatter_to(x, dim, 1, 0, tp_group())


def gather_from_sequence_parallel_region(x, tensor_parallel_output_grad=True, dim=0):
    """V -> R along the sequence: all parts put together. The gradient, a part of the sum on every rank, is summed and divided; with
    `tensor_parallel_output_grad=False` what follows is not sharded, every rank has the whole gradient and takes its part."""
    return _C.gather_sequence(x, dim, tp_group()) if tensor_parallel_output_grad else _C.gather_from(x, dim, 1, tp_group())


def reduce_scatter_to_sequence_parallel_region(x, dim=0):
    """P -> V along the sequence: summed over tp, each rank keeps its part; the gradient is gathered."""
    return _C.reduce_scatter_sequence(x, dim, tp_group())


def local_slice(x, dim, sizes=None):
    """R -> V: this rank's slice of a tensor that is the same on all ranks, without communication; the gradient is padded with
    zeros. `sizes=(outer, sharded)`: the dimension is a product (outer, sharded, inner) and is cut on the middle factor."""
    outer, sharded = _product(sizes)
    return _C.local_slice(x, dim, outer, sharded, tp_group())


def row_parallel(function, *args, **kwargs):
    """A contraction (F.linear, F.conv2d, torch.matmul, torch.addmm, …) whose contracted dimension is sharded over tp: called
    without its bias, summed over tp, then the bias is added once."""
    if isinstance(function, functools.partial):   # what it bound are arguments of the call
        return row_parallel(function.func, *function.args, *args, **{**function.keywords, **kwargs})
    name = getattr(function, "__name__", "")
    args = list(args)
    if name in ("addmm", "baddbmm", "addmv"):   # torch.addmm(bias, a, b)
        bias = args.pop(0) if args else kwargs.pop("input")
        beta, alpha = kwargs.pop("beta", 1), kwargs.pop("alpha", 1)
        product = {"addmm": torch.mm, "baddbmm": torch.bmm, "addmv": torch.mv}[name](*args, **kwargs)
        y = reduce_from_tensor_model_parallel_region(product if alpha == 1 else alpha * product)
        return y + (bias if beta == 1 else beta * bias)
    if "bias" in kwargs:
        bias = kwargs.pop("bias")
    else:
        bias = args.pop(2) if len(args) > 2 else None
        args.insert(2, None) if bias is not None else None
    y = reduce_from_tensor_model_parallel_region(function(*args, **kwargs))
    if bias is None:
        return y
    if name.startswith("conv"):
        spatial = (args[1] if len(args) > 1 else kwargs["weight"]).dim() - 2
        bias = bias.view(-1, *[1] * spatial)
    return y + bias


def vocab_parallel(function, input, weight, padding_idx=None, *args, **kwargs):
    """F.embedding with a table whose rows are divided over tp: ids of other ranks' rows give zero, the results are summed."""
    return _C.vocab_embedding(input, weight, -1 if padding_idx is None else padding_idx % (weight.shape[0] * tp_size()), tp_group())


def row_parallel_module(module, *args, **kwargs):
    """Calls a linear layer or convolution whose contracted dimension is sharded over tp (cut in place by shard_module): without
    its bias, summed over tp, then the bias is added once."""
    bias = module.bias
    if bias is None or tp_size() == 1:
        return reduce_from_tensor_model_parallel_region(module(*args, **kwargs))
    module._parameters["bias"] = None
    try:
        y = module(*args, **kwargs)
    finally:
        module._parameters["bias"] = bias
    y = reduce_from_tensor_model_parallel_region(y)
    spatial = len(module.kernel_size) if isinstance(module, torch.nn.modules.conv._ConvNd) else 0
    return y + bias.view(-1, *[1] * spatial)


def rebind(callee, cls):
    """The class that takes the place of another one in a callee: a functools.partial keeps its arguments."""
    if cls is callee or not isinstance(callee, functools.partial):
        return cls
    return functools.partial(cls, *callee.args, **callee.keywords)


def local_sizes(sizes, dim):
    """A size tuple whose entry `dim` is full, with that entry divided by the tp size."""
    out = list(sizes)
    if out[dim] % tp_size():
        raise ValueError(f"size {out[dim]} (entry {dim} of {tuple(sizes)}) cannot be divided over {tp_size()} tensor-parallel ranks")
    out[dim] //= tp_size()
    return tuple(out)
