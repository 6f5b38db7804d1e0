"""How a parameter is cut over tp, and the marks that say so.

A dimension is a product (outer, sharded, inner) cut on the middle factor, or a concatenation of segments each of which is
such a product. Nothing here depends on the tp size until a slice is taken.
"""
from __future__ import annotations

import contextlib
import dataclasses
import functools

import torch
from torch import nn

from .device_mesh import built_tp_rank as tp_rank
from .device_mesh import built_tp_size as tp_size


@dataclasses.dataclass(frozen=True)
class ShardSpec:
    """`segments`: ((size, outer, sharded), …) along `dim`; sharded 0 means size / outer."""
    dim: int
    segments: tuple[tuple[int, int, int], ...]
    groups: int = 0   # as many slices at most: with more ranks several hold the same one

    def _share(self, tp, rank=0):
        """(slices, this rank's)."""
        if not self.groups or tp <= self.groups:
            return tp, rank
        if tp % self.groups:
            raise ValueError(f"{tp} tensor-parallel ranks are no multiple of the {self.groups} groups")
        return self.groups, rank // (tp // self.groups)

    def replicas(self, tp, rank):
        """Ranks that hold the same slice as `rank`."""
        parts, mine = self._share(tp, rank)
        return list(range(mine * (tp // parts), (mine + 1) * (tp // parts)))

    @staticmethod
    def of(size, dim, factors=None, segments=None, groups=0):
        """`factors`: None, an int (outer), (outer, sharded) or (outer, sharded, inner). `segments`: (size, factors) pairs or
        plain sizes, along `dim`."""
        if segments is None:
            return ShardSpec(dim, ((size, *_pair(factors)),), groups)
        parts = tuple((s, 1, 0) if isinstance(s, int) else (int(s[0]), *_pair(s[1] if len(s) > 1 else None)) for s in segments)
        if sum(p[0] for p in parts) != size:
            raise ValueError(f"segments {[p[0] for p in parts]} do not add up to the dimension's size {size}")
        return ShardSpec(dim, parts, groups)

    @property
    def full_size(self):
        """Of the dimension, over all ranks."""
        return sum(size for size, _, _ in self.segments)

    @property
    def stride(self):
        return self.segments[0][1]

    def blocks(self):
        """The consecutive blocks of the dimension that are each divided over the ranks: what decides the cut."""
        return [size // outer for size, outer, _ in self.segments for _ in range(outer)]

    def local_size(self, tp=None):
        tp, total = self._share(tp_size() if tp is None else tp)[0], 0
        for size, outer, sharded in self.segments:
            factor = sharded or size // outer
            if size % (outer * factor) or factor % tp:
                raise ValueError(f"a dimension of {size} = {outer} x {factor} x {size // (outer * factor) if factor else '?'} "
                                 f"cannot be divided over {tp} tensor-parallel ranks: its factor {factor} is not divisible")
            total += size // tp
        return total

    def cut(self, full, rank=None, tp=None):
        """This rank's slice of a full tensor (a copy)."""
        tp = tp_size() if tp is None else tp
        rank = tp_rank() if rank is None else rank
        self.local_size(tp)
        tp, rank = self._share(tp, rank)
        pieces, at = [], 0
        for size, outer, _ in self.segments:
            piece = full.narrow(self.dim, at, size).unflatten(self.dim, (outer, tp, size // outer // tp))
            pieces.append(piece.select(self.dim % full.dim() + 1, rank).flatten(self.dim % full.dim(), self.dim % full.dim() + 1))
            at += size
        return (pieces[0] if len(pieces) == 1 else torch.cat(pieces, self.dim)).clone(memory_format=torch.contiguous_format)


def _pair(factors):
    if factors is None:
        return 1, 0
    if isinstance(factors, int):
        return factors, 0
    return int(factors[0]), int(factors[1]) if len(factors) > 1 and factors[1] else 0


def mark(param, spec):
    """Sets the marks that clipping, the optimizer and saving read (Megatron's names), and the layout itself."""
    param.tensor_model_parallel = tp_size() > 1
    param.partition_dim = spec.dim
    param.partition_stride = spec.stride
    param.shard = spec
    if spec.groups and tp_size() > spec.groups:
        param.replicas = spec.replicas(tp_size(), tp_rank())
    return param


def shard_parameter(tensor, dim, factors=None, segments=None):
    """The local slice of a full parameter (or buffer), marked. A Parameter stays a Parameter with its requires_grad."""
    dim = dim % tensor.dim()
    spec = ShardSpec.of(tensor.shape[dim], dim, factors, segments)
    local = spec.cut(tensor.detach())
    if isinstance(tensor, nn.Parameter):
        local = nn.Parameter(local, requires_grad=tensor.requires_grad)
    elif getattr(tensor, "_is_buffer", False):   # nn.Buffer: setting it on a module makes a buffer of it
        local = nn.Buffer(local, persistent=tensor.persistent)
    return mark(local, spec)


# Attributes of torch.nn modules that repeat a size: (parameter, its dimension) -> names to set to the local size.
_SIZE_ATTRIBUTES = [
    (nn.Linear, {("weight", 0): ["out_features"], ("weight", 1): ["in_features"]}),
    (nn.Bilinear, {("weight", 0): ["out_features"], ("weight", 1): ["in1_features"], ("weight", 2): ["in2_features"]}),
    (nn.modules.conv._ConvTransposeNd, {("weight", 0): ["in_channels"], ("weight", 1): ["out_channels"]}),
    (nn.modules.conv._ConvNd, {("weight", 0): ["out_channels"], ("weight", 1): ["in_channels"]}),
    (nn.Embedding, {("weight", 0): ["num_embeddings"], ("weight", 1): ["embedding_dim"]}),
    (nn.GroupNorm, {("weight", 0): ["num_channels"]}),
    (nn.modules.batchnorm._NormBase, {("weight", 0): ["num_features"], ("running_mean", 0): ["num_features"]}),
    (nn.PReLU, {("weight", 0): ["num_parameters"]}),
]


def _fix_sizes(module, name, dim, full, local):
    if isinstance(module, (nn.LayerNorm, nn.RMSNorm)) and name == "weight":
        shape = list(module.normalized_shape)
        shape[dim] = local
        module.normalized_shape = tuple(shape)
    for kind, attributes in _SIZE_ATTRIBUTES:
        if not isinstance(module, kind):
            continue
        for attribute in attributes.get((name, dim), []):
            if getattr(module, attribute) == full:
                setattr(module, attribute, local)
        if isinstance(module, nn.modules.conv._ConvNd) and name == "weight" and module.groups > 1:
            # Cutting the channels of a grouped convolution cuts its groups: both channel counts follow.
            parts = full // local
            module.groups //= parts
            other = "out_channels" if module.transposed else "in_channels"
            if dim == 0:
                setattr(module, other, getattr(module, other) // parts)
        if isinstance(module, nn.GroupNorm) and name == "weight":
            if module.num_groups % (full // local):
                raise ValueError(f"GroupNorm with {module.num_groups} groups cannot be divided over {full // local} tensor-parallel ranks")
            module.num_groups //= full // local
        return


def shard_module(module, **parameters):
    """Cuts parameters and buffers of a built module in place: shard_module(norm, weight=(0, None), bias=0). Values are a
    dimension, (dim, factors) or {"dim": …, "factors": …, "segments": …}. Sizes that the module repeats as attributes
    (out_features, normalized_shape, groups, …) become local. Returns the module."""
    for name, how in parameters.items():
        owner = module
        *path, leaf = name.replace("__", ".").split(".")
        for step in path:
            owner = getattr(owner, step)
        tensor = getattr(owner, leaf, None)
        if tensor is None:
            continue
        how = {"dim": how} if isinstance(how, int) else how if isinstance(how, dict) else dict(zip(("dim", "factors"), how))
        dim = how["dim"] % tensor.dim()
        local = shard_parameter(tensor, dim, how.get("factors"), how.get("segments"))
        if leaf in owner._parameters:
            owner._parameters[leaf] = local
        elif leaf in owner._buffers:
            owner._buffers[leaf] = local
        else:
            setattr(owner, leaf, local)
        if local.shape[dim] != tensor.shape[dim]:
            _fix_sizes(owner, leaf, dim, tensor.shape[dim], local.shape[dim])
    return module


def keep_slices(module):
    """After `with whole_parameters(): module = …`: every marked parameter and buffer becomes this rank's slice. Returns the module."""
    if tp_size() == 1:
        return module
    sizes = {}   # {id of what was cut: the full size of the divided dimension}
    for owner in module.modules():
        for table in (owner._parameters, owner._buffers):
            for name, tensor in table.items():
                spec = getattr(tensor, "shard", None)
                if spec is None:
                    continue
                if id(tensor) not in sizes:
                    if tensor.shape[spec.dim] != spec.full_size:   # made outside the block: a slice already
                        continue
                    sizes[id(tensor)] = spec.full_size
                    # The same object: it may be tied, in a list of the model's own, bound in a functools.partial.
                    tensor.data = spec.cut(tensor.detach())
                    mark(tensor, spec)
                if not getattr(owner, "keeps_full_sizes", False):
                    _fix_sizes(owner, name, spec.dim % tensor.dim(), spec.full_size, tensor.shape[spec.dim])
        if hasattr(owner, "in_features_per_partition"):
            owner.in_features_per_partition = owner.spec.local_size()
    return module


def sum_gradients_over_tp(target):
    """Marks replicated parameters whose gradient is partial on every rank: it is summed over tp once a step, before clipping.
    Takes a parameter or a module (all its parameters that are not sharded); returns it."""
    parameters = target.parameters() if isinstance(target, nn.Module) else [target]
    for p in parameters:
        if not getattr(p, "tensor_model_parallel", False) and getattr(p, "shard", None) is None:
            p.sum_gradient_over_tp = True
    return target


class Absent(nn.Module):
    """Stands where another pipeline stage holds a submodule, so that names and indices stay the original's. Returns its first
    argument."""

    def __init__(self, *_, **__):
        super().__init__()

    def forward(self, *args, **kwargs):
        return args[0] if args else next(iter(kwargs.values()), None)


def stands_for(original):
    """`__class__ = stands_for(original)` in a generated class: `isinstance(x, original)` holds for its objects, as it does for those of the
    class that it was made of. (Besides an object's type Python asks its `__class__`.)"""
    return property(lambda self: original)


def drop_unused(module, keep_prefixes):
    """Replaces submodules outside of `keep_prefixes` (names of modules or parameters; `"name."` is a module without what it
    holds) by Absent and deletes parameters and buffers outside of them; of lists and dicts of modules the elements. Returns the module."""
    keep = list(keep_prefixes)

    def inside(name):
        return any(k == "" or name == k or name.startswith(k + ".") for k in keep)

    def leads_to(name):
        return any(k.startswith(name + ".") for k in keep)

    def visit(owner, prefix):
        for table in (owner._parameters, owner._buffers):
            for name in list(table):
                if not inside(prefix + name):
                    # Absent names read as None, so code that only tests for them still runs.
                    table[name] = None
        for name, child in list(owner._modules.items()):
            if child is None or inside(prefix + name):
                continue
            if leads_to(prefix + name) or isinstance(child, (torch.nn.ModuleList, torch.nn.ModuleDict)):   # code asks for its length
                visit(child, prefix + name + ".")
            else:
                owner._modules[name] = Absent()

    visit(module, "")
    return module


def _stand_in(tensor):
    """The type, shape and device of a tensor, in one element's memory. Whoever computes with it gets NaN."""
    one = torch.full((), float("nan") if tensor.is_floating_point() or tensor.is_complex() else 0, dtype=tensor.dtype, device=tensor.device)
    one = one.expand(tensor.shape)
    return nn.Parameter(one, requires_grad=tensor.requires_grad) if isinstance(tensor, nn.Parameter) else one


def _describe(owner, names):
    """Parameters and buffers of a module become plain attributes that tell what they were."""
    described = owner.__dict__.setdefault("_described", {})
    for name in names:
        tensor = owner._parameters.pop(name, None) if name in owner._parameters else owner._buffers.pop(name, None)
        object.__setattr__(owner, name, tensor if tensor is None else _stand_in(tensor))
        if tensor is not None:
            described[name] = isinstance(tensor, nn.Parameter)

    def apply(function, recurse=True):
        for name in described:
            tensor = owner.__dict__[name]
            moved = function(tensor.detach().as_strided((), ())).expand(tensor.shape)
            object.__setattr__(owner, name, nn.Parameter(moved, requires_grad=tensor.requires_grad) if described[name] else moved)
        return type(owner)._apply(owner, function, recurse)

    object.__setattr__(owner, "_apply", apply)


def attributes_only(module, names):
    """What this pipeline stage has for its attributes, methods, types and sizes only (`self.embed.patch_size`, `self.conv1.weight.dtype`):
    `names` are submodules, or parameters, that other stages compute with. Their parameters and buffers are no longer any, neither
    for an optimizer nor for a checkpoint, but still say their (local) shape, type and device. Returns the module."""
    for name in names:
        *path, leaf = name.split(".")
        owner = module
        for step in path:
            owner = getattr(owner, step)
        if leaf not in owner._modules:
            _describe(owner, [leaf])
            continue
        described = owner._modules[leaf]
        for each in described.modules():   # its tensors may be another's, too, which stay as they are
            for table in (each._parameters, each._buffers):
                table.update({n: _same(t) for n, t in table.items() if t is not None})
        for each in keep_slices(described).modules():
            _describe(each, [*each._parameters, *each._buffers])
            object.__setattr__(each, "parameters", functools.partial(_described_parameters, each))
    return module


def _same(tensor):
    """Another object with the same memory and marks."""
    same = tensor.detach()
    if isinstance(tensor, nn.Parameter):
        same = nn.Parameter(same, requires_grad=tensor.requires_grad)
    same.__dict__.update(tensor.__dict__)
    return same


def _described_parameters(module, recurse=True):
    for each in module.modules() if recurse else [module]:
        yield from (getattr(each, name) for name, parameter in each.__dict__.get("_described", {}).items() if parameter)


@contextlib.contextmanager
def built_as(original, cls):
    """While it lasts, whatever builds an `original` (a factory, a class method, a registry) gets a `cls` made of the same arguments."""
    own = original.__dict__.get("__new__")

    def new(called, *args, **kwargs):
        return cls(*args, **kwargs) if called is original else object.__new__(called)

    original.__new__ = staticmethod(new)
    try:
        yield
    finally:   # not deleted: CPython would then refuse arguments to the constructor
        original.__new__ = own if own is not None else staticmethod(lambda called, *args, **kwargs: object.__new__(called))
