"""Masks that forward makes from a table and asks x for its device, type and batch: handed to blocks in an object, used again at the end."""
import math

import numpy as np
import torch
from torch import nn


class Given:
    def __init__(self, x, mask):
        self.x, self.mask = x, mask


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, given):
        x, mask = given.x, getattr(given, "mask", None)
        y = self.down(torch.relu(self.up(x)))
        return x + (y if mask is None else y * mask.flatten(1).unsqueeze(-1))


class Masks(nn.Module):
    def __init__(self, width=16, size=(4, 6)):
        super().__init__()
        self.size = size
        self.embed = nn.Linear(3, width)
        self.sea = np.ones((8, 12))
        self.half = (1, size[0] // 2, size[1] // 2)
        self.blocks = nn.ModuleList(Block(width) for _ in range(4))
        self.out = nn.Linear(width, 1)

    def coarse(self, table, x, h, w):
        table = torch.tensor(table, dtype=torch.float32) if not torch.is_tensor(table) else table
        rows, columns = math.ceil(table.shape[0] / h), math.ceil(table.shape[1] / w)
        small = torch.zeros((h, w))
        for i in range(h):
            for j in range(w):
                part = table[i * rows:(i + 1) * rows, j * columns:(j + 1) * columns]
                small[i, j] = 1.0 if torch.any(part > 0.5) else 0.5
        return small.to(x.device, dtype=x.dtype).unsqueeze(0).repeat(x.shape[0], 1, 1)

    def forward(self, x):
        place = x
        x = self.embed(x)
        table = self.sea
        if table is not None:
            h, w = math.ceil(self.size[0] / 1), math.ceil(self.size[1] / 1)
            mask = self.coarse(table, x, h=h, w=w)
        else:
            mask = None
        x = self.blocks[0](Given(x, mask))
        first = x
        x = x[:, ::4]
        if table is not None:
            _, h, w = self.half
            mask_half = self.coarse(table, x, h=h, w=w)
        else:
            mask_half = None
        given = Given(x, mask_half)
        x = self.blocks[1](given)
        given = Given(x, mask_half)
        x = self.blocks[2](given)
        x = x.repeat(1, 4, 1)
        given = Given(x, mask)
        x = self.blocks[3](given)
        return self.out(x + first) + place.mean(-1, keepdim=True)
