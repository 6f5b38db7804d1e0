from _shardwright import region


def copy_to_tensor_model_parallel_region(input_, group=None):
    return region("copy_to", input_)


def reduce_from_tensor_model_parallel_region(input_, group=None):
    return region("reduce_from", input_)


def gather_from_tensor_model_parallel_region(input_, group=None):
    return region("gather", input_, -1)


def scatter_to_tensor_model_parallel_region(input_, group=None):
    return region("scatter", input_, -1)


def gather_from_sequence_parallel_region(input_, tensor_parallel_output_grad=True, group=None, *args, **kwargs):
    return region("sequence_gather", input_, 0)


def scatter_to_sequence_parallel_region(input_, group=None):
    return region("sequence_scatter", input_, 0)


def reduce_scatter_to_sequence_parallel_region(input_, group=None, *args, **kwargs):
    return region("reduce_from", input_)


# Older names that are still called.
_CopyToModelParallelRegion = _ReduceFromModelParallelRegion = None


def all_gather_last_dim_from_tensor_parallel_region(input_, group=None):
    return region("gather", input_, -1)


def reduce_scatter_last_dim_to_tensor_parallel_region(input_, group=None):
    return region("reduce_scatter", input_, -1)
