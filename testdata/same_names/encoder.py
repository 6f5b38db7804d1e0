import logging
import torch
from torch import nn
from .util import scale as adjust

logger = logging.getLogger("enc")
WIDTH = 2


def mix(x):
    return x * 2.0


class Mlp(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        logger.debug("block")
        self.mlp = Mlp(d)
        self.norm = nn.LayerNorm(d)

    def forward(self, x):
        x = mix(x) * WIDTH
        return x + adjust(self.mlp(self.norm(x)))


class Encoder(nn.Module):
    def __init__(self, d, n):
        super().__init__()
        self.blocks = nn.ModuleList([Block(d) for _ in range(n)])

    def forward(self, x):
        for b in self.blocks:
            x = mix(b(x))
        return x
