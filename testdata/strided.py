"""Channels mixed by einsum and by transposes: what is summed over ranks is strided."""
import torch
from torch import nn


class Mix(nn.Module):
    """A mode-wise product, as in Fourier neural operators, between two pointwise layers."""

    def __init__(self, width, modes):
        super().__init__()
        self.up = nn.Parameter(torch.randn(width, 2 * width, modes) / width)
        self.down = nn.Parameter(torch.randn(2 * width, width, modes) / width)

    def forward(self, x):  # (batch, width, modes)
        h = torch.nn.functional.gelu(torch.einsum("bim,iom->bom", x, self.up))
        return torch.einsum("bim,iom->bom", h, self.down)


class Strided(nn.Module):
    def __init__(self, fields=3, width=8, modes=6, depth=3):
        super().__init__()
        self.lift = nn.Linear(fields, width)
        self.mixes = nn.ModuleList(Mix(width, modes) for _ in range(depth))
        self.points = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.out = nn.Linear(width, fields)

    def forward(self, x):  # (batch, modes, fields)
        x = self.lift(x)
        for mix, point in zip(self.mixes, self.points):
            x = x + torch.tanh(mix(x.transpose(1, 2)).transpose(1, 2) + point(x))
        return self.out(x)
