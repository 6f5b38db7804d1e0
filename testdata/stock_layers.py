"""PyTorch's own transformer classes, as models use them: nn.Transformer, layers in a list, a layer with a method of its own; boolean masks
made of numbers (causal detection asks for their values), embeddings picked by elements of a constant tensor, a product with its weight bound."""
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class GatedLayer(nn.TransformerEncoderLayer):
    """The stock layer with another feed-forward block."""

    def __init__(self, d_model, nhead, **kwargs):
        super().__init__(d_model, nhead, **kwargs)
        self.gate = nn.Linear(d_model, d_model)

    def _ff_block(self, x):
        return super()._ff_block(x) * torch.sigmoid(self.gate(x))


class StockLayers(nn.Module):
    def __init__(self, fields, dim=16, heads=4, hidden=32, dropout=0.1):
        super().__init__()
        self.fields = {name: i for i, name in enumerate(fields)}
        self.embeds = nn.ModuleList([nn.Linear(1, dim) for _ in fields])
        self.gated = nn.ModuleList([GatedLayer(dim, heads, dim_feedforward=hidden, dropout=dropout, batch_first=True, norm_first=True, activation="gelu") for _ in range(2)])
        self.transformer = nn.Transformer(dim, heads, 2, 2, hidden, dropout, activation=F.silu, batch_first=True)
        self.up = nn.Linear(dim, hidden)
        self.rates = nn.Parameter(torch.arange(1.0, 5.0).repeat(hidden, 1))   # every row the same: so are the ranks' slices
        self.project = nn.Linear(hidden, dim)
        self.down = partial(F.linear, weight=self.project.weight, bias=self.project.bias)
        self.head = nn.Linear(dim, len(fields))

    def field_ids(self, names):
        return torch.from_numpy(np.array([self.fields[name] for name in names]))

    def forward(self, x, padding):
        ids = self.field_ids(["t2m", "z500"])
        h = sum(self.embeds[ids[i]](x[..., i:i + 1]) for i in range(len(ids)))
        for layer in self.gated:
            h = layer(h, src_key_padding_mask=padding)
        causal = torch.triu(torch.ones(h.size(1), h.size(1)), diagonal=1).bool()
        h = self.transformer(h, h.flip(1), src_mask=torch.zeros_like(causal), tgt_mask=causal, src_key_padding_mask=padding, memory_key_padding_mask=padding)
        h = h + self.down(F.gelu(self.up(h)) * torch.exp(-self.rates).sum(-1))
        return self.head(h)
