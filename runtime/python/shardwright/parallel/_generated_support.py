"""What generated code needs beside the layers, in plain Python."""
from __future__ import annotations

import torch
from torch import nn


def parallel_layer(module, cls, **options):
    """A parallel layer in the place of a built one, with this rank's slices of its parameters: where one constructor call in a
    loop builds layers of which only some are divided, these are replaced afterwards.

        self.layers[0] = parallel_layer(self.layers[0], ColumnParallelLinear, gather_output=False, return_bias=False)

    `module` is a linear, a convolution or a dropout. Anything else (Absent on another pipeline stage) is returned as it is."""
    if isinstance(module, nn.Linear):
        made = cls(module.in_features, module.out_features, bias=module.bias is not None, **options)
    elif isinstance(module, nn.modules.conv._ConvNd):
        if module.transposed:
            options["output_padding"] = module.output_padding
        made = cls(module.in_channels, module.out_channels, kernel_size=module.kernel_size, stride=module.stride, padding=module.padding,
                   dilation=module.dilation, groups=module.groups, bias=module.bias is not None, padding_mode=module.padding_mode, **options)
    elif isinstance(module, nn.Dropout):
        return cls(module.p, module.inplace, **options).train(module.training)
    else:
        return module
    made = made.to(module.weight.device, module.weight.dtype)
    with torch.no_grad():
        for name, full in module.named_parameters(recurse=False):
            local = getattr(made, name)
            spec = getattr(local, "shard", None)
            local.copy_(spec.cut(full) if spec is not None else full)
            local.requires_grad_(full.requires_grad)
    return made.train(module.training)
