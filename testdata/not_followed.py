"""A model with a part that no static reading can follow: it must stay replicated, be named, and the rest must be split."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class DataDependentGate(nn.Module):
    """Sorts the channels by their data and mixes the largest: which weights meet which values is decided at run time."""

    def __init__(self, dim):
        super().__init__()
        self.score = nn.Linear(dim, dim)
        self.mix = nn.Linear(dim, dim)

    def forward(self, x):
        score = self.score(x)
        order = torch.argsort(score, dim=-1, descending=True)
        return self.mix(torch.gather(x, -1, order))


class Mlp(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.fc2 = nn.Linear(hidden, dim)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x)))


class PartlyOpaque(nn.Module):
    def __init__(self, dim=16, hidden=32, depth=2):
        super().__init__()
        self.mlps = nn.ModuleList(Mlp(dim, hidden) for _ in range(depth))
        self.gates = nn.ModuleList(DataDependentGate(dim) for _ in range(depth))

    def forward(self, x):
        for mlp, gate in zip(self.mlps, self.gates):
            x = x + mlp(x)
            x = x + gate(x)
        return x
