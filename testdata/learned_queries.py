"""Attention whose queries and masks are learned, and heads that are moved into the batch and back."""
import torch
from torch import nn


class HeadsInBatch(nn.Module):
    """Batch and heads share a dimension while scores are computed; the batch is found again by a division."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.head_width = heads, width // heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def merge(self, x):
        both, length, _ = x.shape
        batch = both // self.heads
        x = x.view(batch, self.heads, length, self.head_width).permute(0, 2, 1, 3)
        return x.reshape(batch, length, self.heads * self.head_width)

    def forward(self, x):
        batch, length, _ = x.shape
        parts = self.qkv(x).view(batch, length, self.heads, 3, self.head_width).permute(3, 0, 2, 1, 4)
        q, k, v = (part.reshape(batch * self.heads, length, self.head_width) for part in parts)
        scores = torch.bmm(q, k.transpose(1, 2)) * self.head_width ** -0.5
        return self.out(self.merge(torch.bmm(scores.softmax(-1), v)))


class LearnedQueries(nn.Module):
    def __init__(self, width=16, heads=4, queries=3, depth=2):
        super().__init__()
        self.width, self.heads = width, heads
        self.encoder = nn.ModuleList(HeadsInBatch(width, heads) for _ in range(depth))
        self.query = nn.Parameter(torch.randn(1, queries, width))
        self.mask = nn.Parameter(torch.randn(queries, queries))
        self.pool = nn.MultiheadAttention(width, heads, batch_first=True)
        self.bias = nn.Linear(width, heads * queries)
        self.mix = nn.MultiheadAttention(width, heads, batch_first=True)
        self.again = nn.MultiheadAttention(width, heads, batch_first=True)
        self.head = nn.Linear(width, width)

    def forward(self, x):
        for layer in self.encoder:
            x = x + layer(x)
        query = self.query.expand(x.shape[0], -1, -1)
        x, _ = self.pool(query, x, x)
        batch, queries, _ = x.shape
        # One mask a head, made from the values.
        masks = self.bias(x).view(batch, queries, self.heads, queries).permute(0, 2, 1, 3).reshape(batch * self.heads, queries, queries)
        x = x + self.mix(x, x, x, attn_mask=masks)[0]
        x = x + self.again(x, x + query, x, attn_mask=self.mask * 0.5)[0]
        return self.head(x)
