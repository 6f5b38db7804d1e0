from torch.nn.modules.module import Module

import einops


class Rearrange(Module):
    def __init__(self, pattern, **axes_lengths):
        super().__init__()
        self.pattern = pattern
        self.axes_lengths = axes_lengths

    def forward(self, input):
        return einops.rearrange(input, self.pattern, **self.axes_lengths)


class Reduce(Module):
    def __init__(self, pattern, reduction, **axes_lengths):
        super().__init__()
        self.pattern = pattern
        self.reduction = reduction
        self.axes_lengths = axes_lengths

    def forward(self, input):
        return einops.reduce(input, self.pattern, self.reduction, **self.axes_lengths)


class EinMix(Module):
    def forward(self, input):
        import torch
        return torch._unknown("EinMix")
