# parallel_parts.py.mustache as the abstract interpreter sees it.
import torch.nn as nn
from shardwright.parallel import (Absent, ParallelMultiheadAttention, ShardedDropout, attributes_only, copy_to_tensor_model_parallel_region, drop_unused,
                                  gather_from_tensor_model_parallel_region, local_sizes, local_slice, rebind, reduce_from_tensor_model_parallel_region,
                                  row_parallel, scatter_to_tensor_model_parallel_region, shard_module, shard_parameter,
                                  sharded_random, sum_gradients_over_tp, tp_rank, tp_size)
from {megatron}.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear
from {megatron}.training.arguments import core_transformer_config_from_args


def parallel_config(config=None):
    return core_transformer_config_from_args(None)


def any_rank(layer, x):
    return layer(x.flatten(0, -2))[0].unflatten(0, x.shape[:-1])


class ColumnParallelLinearOutput(ColumnParallelLinear):
    def forward(self, x):
        return any_rank(super().forward, x)


class RowParallelLinearOutput(RowParallelLinear):
    def forward(self, x):
        return any_rank(super().forward, x)


def parallel_layer(module, cls, **options):
    if isinstance(module, nn.Linear):
        if cls is RowParallelLinearOutput:
            options["skip_bias_add"] = False
        return cls(module.in_features, module.out_features, bias=module.bias is not None, config=parallel_config(), init_method=None, **options)
    if isinstance(module, nn.Dropout):
        return cls(module.p, module.inplace)
    return module


def stage_state_dict(module, prefix="", sharded_offsets=()):
    return module.state_dict()


def number_no_layers(stage):
    pass


def mark_tied(stage, is_copy):
    pass


def sum_tied(stage):
    return None


def row_parallel_module(module, *args, **kwargs):
    return module(*args, **kwargs)
