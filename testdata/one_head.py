"""Attention with as many heads as ranks: a rank's share of every head dimension has size 1 and looks like a dimension that is none."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Biased(nn.Module):
    """A bias table, spread over the batch by repeat."""

    def __init__(self, dim, heads, positions):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.table = nn.Parameter(torch.randn(positions * positions, heads))

    def forward(self, x):
        n, l, c = x.shape
        q, k, v = self.qkv(x).view(n, l, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        bias = self.table.view(l, l, -1).permute(2, 0, 1)[None].repeat(n, 1, 1, 1)
        return x + self.proj(F.scaled_dot_product_attention(q, k, v, attn_mask=bias).transpose(1, 2).flatten(2))


class Merged(nn.Module):
    """Batch and heads in one dimension, and a slope a head."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.slopes = nn.Parameter(torch.randn(heads, 1, 1))

    def forward(self, x):
        n, l, c = x.shape
        q, k, v = self.qkv(x).view(n, l, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).flatten(1, 2)
        far = (self.slopes * torch.arange(l)).repeat(n, 1, 1)
        near = (self.slopes * torch.arange(l))[None].expand(n, -1, -1, -1).flatten(0, 1)
        mixed = ((q @ k.mT + far - near * 0.5).softmax(-1) @ v).view(n, self.heads, l, -1)
        return x + self.proj(mixed.transpose(1, 2).flatten(2))


class OneHead(nn.Module):
    def __init__(self, dim=16, heads=2, positions=6):
        super().__init__()
        self.biased = Biased(dim, heads, positions)
        self.merged = Merged(dim, heads)

    def forward(self, x):
        return self.merged(self.biased(x))
