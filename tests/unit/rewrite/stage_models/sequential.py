"""
args: {dim: 8, depth: 4}
inputs: {x: "f32[2,6,8]"}
"""
from collections import OrderedDict

import torch
import torch.nn as nn


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        shortcut = x
        x = self.norm(x)
        x = self.mlp(x)
        return shortcut + x


class Stack(nn.Sequential):
    pass


class Features(nn.Module):
    def __init__(self, dim, depth):
        super().__init__()
        self.embed = nn.Sequential(OrderedDict([("fc", nn.Linear(dim, dim)), ("act", nn.ReLU(inplace=True)), ("fc2", nn.Linear(dim, dim))]))
        self.blocks = nn.Sequential(*[
            Block(
                dim,
            )
            for i in range(depth)])
        self.stack = Stack(Block(dim), Block(dim))
        self.grad_checkpointing = False

    def forward_features(self, x, attn_mask=None, is_causal=False):
        """Embeddings and blocks."""
        x = self.embed(x)

        if attn_mask is not None or is_causal:
            # one by one
            for blk in self.blocks:
                x = blk(x, attn_mask)
        elif self.grad_checkpointing and not torch.jit.is_scripting():
            x = self.checkpointed(x)
        else:
            x = self.blocks(x)
        x = x + self.stack(x)
        return x

    def forward(self, x):
        return self.forward_features(x)


class Model(Features):
    def __init__(self, dim, depth):
        super().__init__(dim, depth)
        self.heads = nn.ModuleDict({"a": nn.Linear(dim, 3), "b": nn.Linear(3, 2)})
        self.fc_norm = nn.LayerNorm(dim)
        self.head_drop = nn.Dropout(0.0)

    def pool(self, x):
        return x.mean(dim=1)

    def forward_head(self, x, pre_logits=False):
        x = self.pool(x)
        x = self.fc_norm(x)
        x = self.head_drop(x)
        return x if pre_logits else self.heads["b"](torch.relu(self.heads["a"](x)))

    def forward(self, x):
        x = self.forward_features(x)
        x = self.forward_head(x)
        return x
