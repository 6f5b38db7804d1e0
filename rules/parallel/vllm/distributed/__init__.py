from _shardwright import region
from megatron.core.parallel_state import get_tensor_model_parallel_rank, get_tensor_model_parallel_world_size
from megatron.core.utils import divide


def tensor_model_parallel_all_reduce(input_):
    return region("reduce_from", input_)


def tensor_model_parallel_all_gather(input_, dim=-1):
    return region("gather", input_, dim)


def get_tp_group():
    from megatron.core.parallel_state import get_tensor_model_parallel_group
    return get_tensor_model_parallel_group()
