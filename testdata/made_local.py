"""Sizes that constructors hand to layers, a rank's own on every rank; a parameter beside divided ones whose gradient is summed."""
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.to_qkv = nn.Sequential(nn.Linear(dim, 3 * dim, bias=False), nn.Unflatten(-1, (3, heads, dim // heads)))
        self.temperature = nn.Parameter(torch.ones(heads, 1, 1))
        self.mix = nn.Parameter(torch.tensor([0.5, 0.5]))  # every head reads it
        self.weight = nn.Parameter(torch.empty(dim, dim).uniform_(-0.2, 0.2))
        self.to_out = nn.Linear(dim, dim)

    def forward(self, x):
        q, k, v = self.to_qkv(x).permute(2, 0, 3, 1, 4)
        v = self.mix[0] * v + self.mix[1] * (x @ self.weight).view_as(v.transpose(1, 2)).transpose(1, 2)
        y = (q @ k.transpose(-1, -2) * self.temperature).softmax(-1) @ v
        return self.to_out(y.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, dim, heads, index):
        super().__init__()
        self.attn = Attention(dim, heads) if index != 1 else None
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        if self.attn is not None:
            x = x + self.attn(x)
        return x + self.down(torch.relu(self.up(x)).square())


class MadeLocal(nn.Module):
    def __init__(self, dim=16, heads=4, depth=3):
        super().__init__()
        self.blocks = nn.ModuleList([Block(dim, heads, i) for i in range(depth)])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x
