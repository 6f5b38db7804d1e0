"""Ways of writing a model that are no one's own: a registry, layers cloned with deepcopy, one constructor call for several classes in a loop
without a counter, a named tuple between blocks, a batch in a dict, an output object, weights tied by a method, matrices stored (in, out)."""
import copy
import math
from dataclasses import dataclass
from typing import NamedTuple, Optional

import torch
import torch.nn as nn
import torch.nn.functional as F

FEEDS = {}


def register(name):
    def enter(cls):
        FEEDS[name] = cls
        return cls
    return enter


def clones(module, n):
    return nn.ModuleList([copy.deepcopy(module) for _ in range(n)])


class State(NamedTuple):
    x: torch.Tensor
    mask: torch.Tensor
    depth: int = 0


@dataclass
class Output:
    logits: torch.Tensor
    loss: Optional[torch.Tensor] = None


class Projection(nn.Module):
    """A linear layer whose matrix is stored (in, out)."""

    def __init__(self, wide_in, wide_out):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(wide_in, wide_out))
        self.bias = nn.Parameter(torch.zeros(wide_out))
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, x):
        size = x.size()[:-1] + (self.weight.size(-1),)
        return torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight).view(*size)


@register("plain")
class PlainFeed(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = Projection(width, 4 * width)
        self.down = Projection(4 * width, width)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


@register("gated")
class GatedFeed(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gate, self.up = nn.Linear(width, 2 * width, bias=False), nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.linears = clones(nn.Linear(width, width), 4)

    def forward(self, x, mask):
        b, n, width = x.shape
        # three projections in one statement: a cut may fall between them
        q, k, v = [layer(x).view(b, n, self.heads, -1).transpose(1, 2) for layer in self.linears[:3]]
        scores = (q @ k.transpose(-2, -1) / math.sqrt(width // self.heads)).masked_fill(mask, float("-inf"))
        return self.linears[-1]((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, n, width))


class Block(nn.Module):
    def __init__(self, width, attention, feed):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = copy.deepcopy(attention)
        self.feed = feed

    def forward(self, state):
        x = state.x + self.attention(self.norm1(state.x), state.mask)
        x = x + self.feed(self.norm2(x))
        return State(x, state.mask, state.depth + 1)


class Base(nn.Module):
    def finish(self):
        self.apply(self.start)
        self.tie()

    def start(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)

    def tie(self):
        head = self.output_layer()
        if head is not None:
            head.weight = self.input_layer().weight

    def input_layer(self):
        return self.body.tokens

    def output_layer(self):
        return None


class Body(nn.Module):
    def __init__(self, vocabulary, width, heads, feeds):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        attention = Attention(width, heads)
        self.blocks = nn.ModuleList()
        for name in feeds.split("+"):
            self.blocks.append(Block(width, attention, FEEDS[name](width)))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids):
        n = ids.shape[1]
        state = State(self.tokens(ids), torch.ones(n, n, dtype=torch.bool, device=ids.device).triu(1))
        for block in self.blocks:
            state = block(state)
        return self.norm(state.x)


class Styles(Base):
    def __init__(self, vocabulary=48, width=16, heads=4, feeds="plain+gated+plain+gated", reduction="mean"):
        super().__init__()
        self.body = Body(vocabulary, width, heads, feeds)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.reduction = reduction
        self.finish()

    def output_layer(self):
        return self.head

    def forward(self, batch):
        logits = self.head(self.body(batch["ids"]))
        loss = F.cross_entropy(logits.flatten(0, 1), batch["targets"].flatten(), reduction=self.reduction)
        return Output(logits, loss)
