import logging
import torch
from torch import nn
from .util import scale as adjust, other as extra

logger = logging.getLogger("dec")
WIDTH = 3


def mix(x):
    return x * 0.5


class Mlp(nn.Module):
    """gated"""
    def __init__(self, d):
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(d, 2 * d), nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x):
        return self.down(torch.sigmoid(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        logger.debug("block")
        self.mlp = Mlp(d)
        self.norm = nn.LayerNorm(d)

    def forward(self, x):
        x = mix(x) * WIDTH
        return extra(x) + adjust(self.mlp(self.norm(x)))


class Decoder(nn.Module):
    def __init__(self, d, n):
        super().__init__()
        self.blocks = nn.ModuleList([Block(d) for _ in range(n)])

    def forward(self, x):
        for b in self.blocks:
            x = mix(b(x))
        return x
