"""Megatron's names answered by this runtime: code generated for a library built on Megatron runs on it, so `verify` needs neither that
library's Megatron nor a GPU.

    answer("some.library.megatron")     # some.library.megatron.core.tensor_parallel.ColumnParallelLinear, …
"""
from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types

import torch

from . import parallel
from .parallel import device_mesh as _mesh
from .parallel import layers, random, regions


def _few_dimensions(x):
    if x.dim() > 3:
        raise ValueError(f"Megatron's parallel linears take 2 or 3 dimensions (their backward fails on more), this input has {x.dim()}")
    return x


class ColumnParallelLinear(layers.ColumnParallelLinear):
    def __init__(self, input_size, output_size, *, config, init_method, bias=True, gather_output=False, stride=1, skip_bias_add=False,
                 disable_grad_reduce=False):
        if config is None:
            raise TypeError("ColumnParallelLinear needs config=: no constructor handed it on")
        super().__init__(input_size, output_size, bias, stride=stride, gather_output=gather_output, skip_bias_add=skip_bias_add,
                         disable_grad_reduce=disable_grad_reduce)

    def forward(self, x):
        return super().forward(_few_dimensions(x))


class RowParallelLinear(layers.RowParallelLinear):
    def __init__(self, input_size, output_size, *, config, init_method, bias, input_is_parallel, skip_bias_add, stride=1):
        if config is None:
            raise TypeError("RowParallelLinear needs config=: no constructor handed it on")
        super().__init__(input_size, output_size, bias, stride=stride, input_is_parallel=input_is_parallel, skip_bias_add=skip_bias_add)

    def forward(self, x):
        return super().forward(_few_dimensions(x))


def _set_attributes(tensor, is_parallel, dim, stride):
    tensor.tensor_model_parallel, tensor.partition_dim, tensor.partition_stride = is_parallel and _mesh.tp_size() > 1, dim, stride


def _config(args):
    config = types.SimpleNamespace(init_method=lambda weight: torch.nn.init.normal_(weight, std=0.02), params_dtype=torch.get_default_dtype(),
                                   tensor_model_parallel_size=_mesh.tp_size())
    return config


_PARALLEL_STATE = {
    "get_tensor_model_parallel_world_size": lambda *_: _mesh.tp_size(),
    "get_tensor_model_parallel_rank": lambda *_: _mesh.tp_rank(),
    "get_tensor_model_parallel_group": lambda *_, **__: _mesh.tp_group(),
    "get_pipeline_model_parallel_rank": lambda *_: _mesh.mesh().pp_rank,
    "get_pipeline_model_parallel_world_size": lambda *_: _mesh.mesh().pp,
    "get_data_parallel_rank": lambda *_, **__: _mesh.mesh().dp_rank,
    "is_pipeline_first_stage": lambda *_, **__: _mesh.mesh().is_first_stage,
    "is_pipeline_last_stage": lambda *_, **__: _mesh.mesh().is_last_stage,
}
_MAPPINGS = {name: getattr(regions, name) for name in ("copy_to_tensor_model_parallel_region", "reduce_from_tensor_model_parallel_region",
                                                       "scatter_to_tensor_model_parallel_region", "gather_from_tensor_model_parallel_region")}
_LAYERS = {"ColumnParallelLinear": ColumnParallelLinear, "RowParallelLinear": RowParallelLinear, "VocabParallelEmbedding": layers.VocabParallelEmbedding,
           "get_cuda_rng_tracker": random.get_rng_tracker, "set_tensor_model_parallel_attributes": _set_attributes, **_MAPPINGS}
_MODULES = {
    "": {},
    "core": {},
    "core.parallel_state": _PARALLEL_STATE,
    "core.mpu": _PARALLEL_STATE,
    "core.tensor_parallel": _LAYERS,
    "core.tensor_parallel.layers": _LAYERS,
    "core.tensor_parallel.mappings": _MAPPINGS,
    "core.tensor_parallel.random": {"model_parallel_cuda_manual_seed": random.manual_seed, "get_cuda_rng_tracker": random.get_rng_tracker},
    "training": {"get_args": lambda: None, "pretrain": parallel.pretrain},
    "training.arguments": {"core_transformer_config_from_args": _config},
}


class _Answers(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, prefix):
        self.prefix = prefix

    def _key(self, full):
        if full == self.prefix:
            return ""
        return full[len(self.prefix) + 1:] if full.startswith(self.prefix + ".") else None

    def find_spec(self, full, path=None, target=None):
        if self._key(full) in _MODULES:
            return importlib.machinery.ModuleSpec(full, self, is_package=True)
        return None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        module.__path__ = []
        module.__dict__.update(_MODULES[self._key(module.__name__)])


def answer(prefix):
    """From now on, modules below `prefix` are these."""
    if not any(isinstance(f, _Answers) and f.prefix == prefix for f in sys.meta_path):
        sys.meta_path.insert(0, _Answers(prefix))
