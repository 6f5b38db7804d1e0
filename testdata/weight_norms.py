"""Convolutions whose weights are made anew at every call, by the hooks of torch.nn.utils and by parametrisations."""
import torch
import torch.nn as nn
from torch.nn.utils import parametrizations, parametrize, spectral_norm, weight_norm


class Symmetric(nn.Module):
    def forward(self, weight):
        return weight.triu() + weight.triu(1).transpose(-1, -2)


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = weight_norm(nn.Conv1d(width, 2 * width, 3, padding=1))
        self.second = parametrizations.weight_norm(nn.Conv1d(2 * width, width, 3, padding=1), dim=0)

    def forward(self, x):
        return x + self.second(torch.relu(self.first(x)))


class WeightNorms(nn.Module):
    def __init__(self, width=8, depth=3, hidden=32):
        super().__init__()
        self.enter = spectral_norm(nn.Conv1d(4, width, 1))
        self.blocks = nn.ModuleList(Residual(width) for _ in range(depth))
        self.mix = nn.Linear(width, width)
        parametrize.register_parametrization(self.mix, "weight", Symmetric())
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x):
        x = self.enter(x)
        for block in self.blocks:
            x = block(x)
        x = self.mix(x.transpose(1, 2))
        return x + self.down(torch.relu(self.up(x)))
