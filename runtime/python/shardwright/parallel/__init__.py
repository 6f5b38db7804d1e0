"""Shardwright's runtime for generated models: mesh, regions, layers, random streams, pipeline, optimizer, training.

Processes are started by torchrun; communication is torch.distributed's (NCCL on GPUs, Gloo on CPUs). With one process
everything works without torch.distributed.
"""
import torch as _torch  # noqa: F401  (its libraries must be loaded before the extension)

from ._generated_support import parallel_layer
from .attention import ParallelMultiheadAttention
from .grouped_attention import ParallelGroupedQueryAttention
from .conv import *  # noqa: F401,F403
from .counters import counting, payload_bytes, reset_payload_bytes
from .layers import ColumnParallelLinear, RowParallelLinear, VocabParallelEmbedding
from .device_mesh import (Mesh, MeshError, dp_group, dp_rank, dp_size, initialize, is_first_stage, is_last_stage, mesh, pp_group, pp_rank,
                   pp_size, set_mesh, shutdown, tp_group, tp_rank, tp_size, whole_parameters)
from .loss import vocab_parallel_cross_entropy
from .norms import ParallelLayerNorm, ParallelRMSNorm
from .optimizer import (LossScaler, ParallelOptimizer, adamw, broadcast_tied, finalize_gradients, gradient_norm, sgd)
from .params import ParamsError, ParamTable, annotate, gather_stage, load_stage, merge_originals
from .pipeline import PipelineError, PipelineExecutor
from .recompute import recompute
from .random import ShardedDropout, get_rng_tracker, manual_seed, sharded_random
from .regions import (copy_to_tensor_model_parallel_region, gather_from_sequence_parallel_region,
                      gather_from_tensor_model_parallel_region, local_slice, reduce_scatter_to_sequence_parallel_region,
                      scatter_to_sequence_parallel_region,
                      local_sizes, rebind, reduce_from_tensor_model_parallel_region, row_parallel, row_parallel_module,
                      scatter_to_tensor_model_parallel_region, vocab_parallel)
from .shards import Absent, ShardSpec, attributes_only, built_as, drop_unused, keep_slices, shard_module, shard_parameter, stands_for, sum_gradients_over_tp
from .arguments import get_args
from .data import MicroBatches, SyntheticDataset
from .training import pretrain
