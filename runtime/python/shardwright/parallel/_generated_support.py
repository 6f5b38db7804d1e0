"""What generated code needs beside the layers, in plain Python."""
from __future__ import annotations

from .regions import reduce_from_tensor_model_parallel_region


def row_parallel_module(module, *args, **kwargs):
    """A built-in layer (nn.ConvTranspose2d, nn.Bilinear, a subclass of nn.Linear, …) whose parameters were cut in place on the
    dimension that it contracts: run without its bias, summed over tp, then the bias is added once.

    The bias runs along the last dimension for linears, along the channels (dimension -1 - spatial dimensions) for convolutions."""
    bias = module.bias
    if bias is None:
        return reduce_from_tensor_model_parallel_region(module(*args, **kwargs))
    parameters = module._parameters
    parameters["bias"] = None
    try:
        y = module(*args, **kwargs)
    finally:
        parameters["bias"] = bias
    y = reduce_from_tensor_model_parallel_region(y)
    spatial = len(getattr(module, "kernel_size", ()))
    return y + bias.view(-1, *[1] * spatial)
