"""A small GPT with what makes plans go wrong: fused qkv, a bias table by head, a norm shared by the heads, a tied embedding, a
skip from the embedding to the end, a schedule over depth, dropout."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Attention(nn.Module):
    def __init__(self, dim, heads, length, drop):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.q_norm = nn.LayerNorm(dim // heads)
        self.bias_table = nn.Parameter(torch.zeros(heads, length, length))
        self.drop = nn.Dropout(drop)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(x).reshape(B, T, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4)
        q = self.q_norm(q)
        scores = q @ k.transpose(-2, -1) * (C // self.heads) ** -0.5 + self.bias_table[:, :T, :T]
        mask = torch.ones(T, T, dtype=torch.bool, device=x.device).tril()
        weights = self.drop(scores.masked_fill(~mask, float("-inf")).softmax(-1))
        return self.proj((weights @ v).transpose(1, 2).reshape(B, T, C))


class Mlp(nn.Module):
    def __init__(self, dim, drop):
        super().__init__()
        self.fc1 = nn.Linear(dim, 4 * dim)
        self.fc2 = nn.Linear(4 * dim, dim)
        self.drop = nn.Dropout(drop)

    def forward(self, x):
        return self.drop(self.fc2(F.gelu(self.fc1(x))))


class Block(nn.Module):
    def __init__(self, dim, heads, length, drop, gain):
        super().__init__()
        self.gain = gain
        self.norm1 = nn.LayerNorm(dim)
        self.attn = Attention(dim, heads, length, drop)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = Mlp(dim, drop)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.gain * self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, vocab=32, dim=16, heads=4, depth=4, length=8, drop=0.1):
        super().__init__()
        self.wte = nn.Embedding(vocab, dim)
        self.wpe = nn.Embedding(length, dim)
        self.drop = nn.Dropout(drop)
        gains = torch.linspace(0.5, 1.0, depth).tolist()
        self.blocks = nn.ModuleList([Block(dim, heads, length, drop, gains[i]) for i in range(depth)])
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)
        self.head.weight = self.wte.weight
        self.register_buffer("scale", torch.ones(dim))

    def forward(self, idx, keep):
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1], device=idx.device))
        x = self.drop(x)
        start = x
        for block in self.blocks:
            x = block(x)
        x = self.norm(x + start) * self.scale
        return self.head(x * keep.unsqueeze(-1))
