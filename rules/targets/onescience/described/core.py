from . import tensor_parallel
