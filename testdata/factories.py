"""Class methods that build, a base class beside what is derived from it, an activation in common, options handed through."""
from dataclasses import dataclass

import torch
import torch.nn as nn


@dataclass
class Config:
    width: int = 32
    depth: int = 4
    multiple: int = 4


class Mixer(nn.Module):
    """Used itself, and inherited by one that only computes otherwise."""

    def __init__(self, width, hidden, activation=nn.GELU()):
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)
        self.activation = activation

    @classmethod
    def from_config(cls, config):
        return cls(config.width, config.width * config.multiple)

    def forward(self, x):
        return self.down(self.activation(self.up(x)))


class Bounded(Mixer):
    def forward(self, x):
        return self.down(torch.tanh(self.up(x)))


class Spare(Mixer):
    """Built, and never run: it stays as it was."""


class Scan(nn.Module):
    """A layer's weights used by themselves; the bias is given a dimension."""

    def __init__(self, width, rank):
        super().__init__()
        self.narrow = nn.Linear(width, rank)
        self.wide = nn.Linear(rank, 2 * width)
        self.out = nn.Linear(2 * width, width)

    def forward(self, x):
        t = self.narrow(x).transpose(1, 2)
        t = self.wide.weight @ t + self.wide.bias[..., None]
        return self.out(torch.sigmoid(t).transpose(1, 2))


class Block(nn.Module):
    def __init__(self, mixer, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mixer = mixer

    @classmethod
    def build(cls, config, index):
        kind = Bounded if index % 2 else Mixer
        return cls(mixer=kind.from_config(config), width=config.width)

    def forward(self, x, scale=1.0, **options):
        return x + scale * self.mixer(self.norm(x))


class Stack(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.blocks = nn.ModuleList([Block.build(config, i) for i in range(config.depth)])

    def forward(self, x, **options):
        for block in self.blocks:
            x = block(x, **options)
        return x


class Start(nn.Module):
    """How the weights begin, for modules of this file."""

    def start(self, module):
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.02)
            nn.init.zeros_(module.bias)
        if isinstance(module, Mixer) and type(self).__module__ == Start.__module__:
            nn.init.constant_(module.down.bias, 0.3)


class Factories(Start):
    def __init__(self, config):
        super().__init__()
        self.first = nn.Linear(8, config.width)
        self.spare = Spare.from_config(config)
        self.scan = Scan(config.width, 8)
        self.stack = Stack(config)
        self.out = nn.Linear(config.width, 4)
        self.apply(self.start)

    def forward(self, x, **options):
        x = self.first(x)
        x = x + self.scan(x)
        options.pop("scale", None)
        return self.out(self.stack(x, scale=0.5, **options))
