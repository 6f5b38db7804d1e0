"""Blocks that are copies of one, without a residual between them: neighbours are cut the other way round. The model was trained with
data parallelism, too: what it asks of torch.distributed, a single process answers."""
import copy

import torch
import torch.distributed as dist
from torch import nn


class Quadratic(nn.Module):
    def __init__(self, width, out):
        super().__init__()
        self.left, self.right = nn.Linear(width, out), nn.Linear(width, out)

    def forward(self, x):
        y = self.left(x)
        return torch.sigmoid(y * self.right(x) + y)


def copies(block, count):
    return nn.ModuleList([copy.deepcopy(block) for _ in range(count)])


class Clones(nn.Module):
    def __init__(self, fields=3, width=16, depth=3):
        super().__init__()
        self.first = Quadratic(fields, width)
        self.blocks = copies(Quadratic(width, width), depth)
        self.out = nn.Linear(width, fields)

    def forward(self, x):
        x = self.first(x)
        mean = x.mean(0)
        if dist.is_available() and dist.is_initialized():
            dist.all_reduce(mean)
            mean = mean / dist.get_world_size() + 1
        x = x - mean
        for block in self.blocks:
            x = block(x)
        return self.out(x)
