from _shardwright import region


def copy_to_model_parallel_region(input_):
    return region("copy_to", input_)


def reduce_from_model_parallel_region(input_):
    return region("reduce_from", input_)


def scatter_to_model_parallel_region(input_):
    return region("scatter", input_, -1)


def gather_from_model_parallel_region(input_):
    return region("gather", input_, -1)
