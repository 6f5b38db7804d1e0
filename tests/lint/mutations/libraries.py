"""The parallel libraries that the programs import, on simulated ranks: Megatron-Core's layers and mappings (and the fork's names for
them), torch.distributed's collectives, and our runtime with its C++ part answered here."""
import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from pathlib import Path

import ranks
import torch
from ranks import TRACKER, WORLD
from torch import nn

ROOT = Path(__file__).resolve().parents[3]
FORK = "onescience.distributed.megatron"


class Group:
    """The tensor-parallel group: the only one here."""

    def size(self):
        return WORLD.size

    def rank(self):
        return WORLD.rank


GROUP = Group()


def mark(parameter, parallel, dim, stride):
    parameter.tensor_model_parallel, parameter.partition_dim, parameter.partition_stride = parallel, dim, stride


def _share(size):
    if size % WORLD.size:
        raise ValueError(f"{size} is not divisible by {WORLD.size}")
    return size // WORLD.size


class _TwoOrThree(torch.autograd.Function):
    """Megatron's backward takes two or three dimensions."""

    @staticmethod
    def forward(ctx, x):
        ctx.dims = x.dim()
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        if ctx.dims > 3:
            raise RuntimeError("t() expects a tensor with <= 2 dimensions")
        return gradient


def _parameter(shape, dim, stride):
    p = nn.Parameter(torch.empty(shape))
    mark(p, True, dim, stride)
    return p


class ColumnParallelLinear(nn.Module):
    def __init__(self, input_size, output_size, *, config, init_method, bias=True, gather_output=False, stride=1, skip_bias_add=False, disable_grad_reduce=False, tp_group=None):
        super().__init__()
        assert config.params_dtype and callable(init_method)
        self.input_size, self.output_size, self.gather_output = input_size, output_size, gather_output
        self.skip_bias_add, self.disable_grad_reduce = skip_bias_add, disable_grad_reduce
        self.output_size_per_partition = _share(output_size)
        self.weight = _parameter((self.output_size_per_partition, input_size), 0, stride)
        self.bias = _parameter((self.output_size_per_partition,), 0, stride) if bias else None

    def forward(self, x):
        x = _TwoOrThree.apply(x if self.disable_grad_reduce else ranks.copy_to(x))
        y = nn.functional.linear(x, self.weight, None if self.skip_bias_add else self.bias)
        return ranks.gather_from(y) if self.gather_output else y, self.bias if self.skip_bias_add else None


class RowParallelLinear(nn.Module):
    def __init__(self, input_size, output_size, *, config, init_method, bias, input_is_parallel, skip_bias_add, stride=1, tp_group=None):
        super().__init__()
        assert config.params_dtype and callable(init_method)
        self.input_size, self.output_size = input_size, output_size
        self.input_is_parallel, self.skip_bias_add = input_is_parallel, skip_bias_add
        self.input_size_per_partition = _share(input_size)
        self.weight = _parameter((output_size, self.input_size_per_partition), 1, stride)
        self.bias = nn.Parameter(torch.empty(output_size)) if bias else None

    def forward(self, x):
        x = _TwoOrThree.apply(x if self.input_is_parallel else ranks.scatter_to(x))
        y = ranks.reduce_from(nn.functional.linear(x, self.weight))
        return y if self.skip_bias_add or self.bias is None else y + self.bias, self.bias if self.skip_bias_add else None


class VocabParallelEmbedding(nn.Module):
    def __init__(self, num_embeddings, embedding_dim, *, init_method, config, reduce_scatter_embeddings=False, tp_group=None):
        super().__init__()
        assert config.params_dtype and callable(init_method)
        self.weight = _parameter((_share(num_embeddings), embedding_dim), 0, 1)

    def forward(self, ids):
        return ranks.vocab_embedding(ids, self.weight)


CONFIG = types.SimpleNamespace(params_dtype=torch.float64, init_method=nn.init.normal_, output_layer_init_method=nn.init.normal_, sequence_parallel=False,
                               tensor_model_parallel_size=WORLD.size, pipeline_model_parallel_size=1, hidden_dropout=0.0)


def divide(a, b):
    if a % b:
        raise ValueError(f"{a} is not divisible by {b}")
    return a // b


def _all_gather_list(parts, x, group=None, **_):
    for part, got in zip(parts, WORLD.exchange(x.detach().clone())):
        part.copy_(got)


def _all_reduce(x, op=None, group=None, **_):
    with torch.no_grad():
        x.copy_(WORLD.all_reduce(x, maximum=op == torch.distributed.ReduceOp.MAX))


def _module(name, **names):
    module = types.ModuleType(name)
    module.__path__ = []
    module.__dict__.update(names)
    return module


def _megatron():
    """{module name: module}"""
    state = {"get_tensor_model_parallel_world_size": lambda: WORLD.size, "get_tensor_model_parallel_rank": lambda: WORLD.rank,
             "get_tensor_model_parallel_group": lambda *_: GROUP, "get_data_parallel_rank": lambda **_: 0,
             "is_pipeline_first_stage": lambda **_: True, "is_pipeline_last_stage": lambda **_: True,
             "get_pipeline_model_parallel_world_size": lambda: 1, "get_pipeline_model_parallel_rank": lambda: 0}
    mappings = {"copy_to_tensor_model_parallel_region": lambda x, group=None: ranks.copy_to(x), "reduce_from_tensor_model_parallel_region": lambda x, group=None: ranks.reduce_from(x),
                "gather_from_tensor_model_parallel_region": lambda x, group=None: ranks.gather_from(x), "scatter_to_tensor_model_parallel_region": lambda x, group=None: ranks.scatter_to(x)}
    layers = {"ColumnParallelLinear": ColumnParallelLinear, "RowParallelLinear": RowParallelLinear, "VocabParallelEmbedding": VocabParallelEmbedding, "set_tensor_model_parallel_attributes": mark}
    random = {"get_cuda_rng_tracker": lambda: TRACKER, "model_parallel_cuda_manual_seed": lambda seed: None}
    parallel_state = _module("megatron.core.parallel_state", **state)
    return {
        "megatron": _module("megatron"),
        "megatron.core": _module("megatron.core", parallel_state=parallel_state, mpu=parallel_state),
        "megatron.core.parallel_state": parallel_state,
        "megatron.core.utils": _module("megatron.core.utils", divide=divide),
        "megatron.core.tensor_parallel": _module("megatron.core.tensor_parallel", **mappings, **layers, **random),
        "megatron.core.tensor_parallel.layers": _module("megatron.core.tensor_parallel.layers", **layers, **mappings),
        "megatron.core.tensor_parallel.mappings": _module("megatron.core.tensor_parallel.mappings", **mappings),
        "megatron.core.tensor_parallel.random": _module("megatron.core.tensor_parallel.random", **random),
        "megatron.core.tensor_parallel.utils": _module("megatron.core.tensor_parallel.utils", divide=divide),
        "megatron.training": _module("megatron.training", get_args=lambda: types.SimpleNamespace()),
        "megatron.training.arguments": _module("megatron.training.arguments", core_transformer_config_from_args=lambda args: CONFIG),
    }


class _Fork(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """onescience.distributed.megatron.X is megatron.X."""

    def find_spec(self, full, path=None, target=None):
        if full == FORK or full.startswith(FORK + "."):
            return importlib.machinery.ModuleSpec(full, self, is_package=True)

    def create_module(self, spec):
        return importlib.import_module(spec.name[len(FORK) - len("megatron"):])

    def exec_module(self, module):
        pass


def _runtime():
    """Our runtime's Python with its C++ part answered by ranks.py."""
    c = _module("shardwright.parallel._C")
    c.copy_to = lambda x, group, tag="": ranks.copy_to(x)
    c.reduce_from = lambda x, group: ranks.reduce_from(x)
    c.scatter_to = lambda x, dim, outer, sharded, group: ranks.scatter_to(x, dim, outer)
    c.gather_from = lambda x, dim, outer, group: ranks.gather_from(x, dim, outer)
    c.local_slice = lambda x, dim, outer, sharded, group: WORLD.slice(x, dim, outer)
    c.column_linear = lambda x, w, b, group, reduce_grad: nn.functional.linear(ranks.copy_to(x) if reduce_grad else x, w, b)

    def row_linear(x, w, b, group):
        y = ranks.reduce_from(nn.functional.linear(x, w))
        return y if b is None else y + b

    c.row_linear = row_linear
    c.vocab_embedding = lambda ids, w, padding_idx, group: ranks.vocab_embedding(ids, w, padding_idx)
    package = str(ROOT / "runtime/python")
    if package not in sys.path:
        sys.path.append(package)
    sys.modules["shardwright.parallel._C"] = c
    spec = importlib.util.find_spec("shardwright.parallel")
    module = importlib.util.module_from_spec(spec)
    module._C = c   # `from . import _C` reads the attribute
    sys.modules["shardwright.parallel"] = module
    spec.loader.exec_module(module)
    from shardwright.parallel import device_mesh, random

    class Here:
        """One rank's mesh, by the thread that asks."""
        tp, pp, dp, pp_rank, dp_rank, tp_group = WORLD.size, 1, 1, 0, 0, GROUP
        is_first_stage = is_last_stage = True
        tp_rank = property(lambda self: WORLD.rank)

    device_mesh._current = Here()
    random._tracker = TRACKER


def install():
    sys.modules.update(_megatron())
    sys.meta_path.insert(0, _Fork())
    for package in ("onescience", "onescience.distributed"):
        sys.modules.setdefault(package, _module(package))
    distributed = torch.distributed
    distributed.all_reduce, distributed.all_gather = _all_reduce, _all_gather_list
    distributed.get_rank, distributed.get_world_size = lambda group=None: WORLD.rank, lambda group=None: WORLD.size
    distributed.is_initialized = lambda: True
    nn.init.normal_(torch.empty(1))
    _runtime()
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)


@contextlib.contextmanager
def imports_from(folder):
    """Imports of modules in `folder`; they are forgotten afterwards."""
    folder = str(folder)
    sys.path.insert(0, folder)
    importlib.invalidate_caches()
    shells = {}
    if (Path(folder) / "onescience").is_dir():   # the program's own package instead of the empty one
        shells = {name: sys.modules.pop(name) for name in ("onescience", "onescience.distributed") if name in sys.modules}
    before = set(sys.modules)
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        sys.path.remove(folder)
        for name in set(sys.modules) - before:
            if folder in str(getattr(sys.modules[name], "__file__", "") or getattr(sys.modules[name], "__path__", "")):
                del sys.modules[name]
        sys.modules.update(shells)
