"""An encoder-decoder put together by a function: its parts are handed over as objects and copied, every layer from one template."""
import copy
import math

import torch
import torch.nn as nn


def copies(template, count):
    return nn.ModuleList([copy.deepcopy(template) for _ in range(count)])


class Scaled(nn.Module):
    def __init__(self, vocabulary, width):
        super().__init__()
        self.table = nn.Embedding(vocabulary, width)
        self.factor = math.sqrt(width)

    def forward(self, ids):
        return self.table(ids) * self.factor


class Heads(nn.Module):
    """Four projections of one template: three read the inputs, the last one brings the heads together."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.size = width // heads
        self.projections = copies(nn.Linear(width, width), 4)

    def forward(self, queries, keys, values, mask=None):
        batch = queries.size(0)
        q, k, v = [
            project(x).view(batch, -1, self.heads, self.size).transpose(1, 2)
            for project, x in zip(self.projections, (queries, keys, values))
        ]
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.size)
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e9)
        mixed = torch.softmax(scores, dim=-1) @ v
        return self.projections[-1](mixed.transpose(1, 2).reshape(batch, -1, self.heads * self.size))


class Expand(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.widen = nn.Linear(width, hidden)
        self.narrow = nn.Linear(hidden, width)

    def forward(self, x):
        return self.narrow(torch.relu(self.widen(x)))


class Around(nn.Module):
    """Norm before, sum after whatever it is given."""

    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x, inner):
        return x + inner(self.norm(x))


class ReadLayer(nn.Module):
    def __init__(self, width, own, expand):
        super().__init__()
        self.own, self.expand = own, expand
        self.around = copies(Around(width), 2)

    def forward(self, x):
        x = self.around[0](x, lambda y: self.own(y, y, y))
        return self.around[1](x, self.expand)


class WriteLayer(nn.Module):
    def __init__(self, width, own, other, expand):
        super().__init__()
        self.own, self.other, self.expand = own, other, expand
        self.around = copies(Around(width), 3)

    def forward(self, x, memory, mask):
        x = self.around[0](x, lambda y: self.own(y, y, y, mask))
        x = self.around[1](x, lambda y: self.other(y, memory, memory))
        return self.around[2](x, self.expand)


class Reader(nn.Module):
    def __init__(self, layer, depth, width):
        super().__init__()
        self.layers = copies(layer, depth)
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class Writer(nn.Module):
    def __init__(self, layer, depth, width):
        super().__init__()
        self.layers = copies(layer, depth)
        self.norm = nn.LayerNorm(width)

    def forward(self, x, memory, mask):
        for layer in self.layers:
            x = layer(x, memory, mask)
        return self.norm(x)


class Translator(nn.Module):
    def __init__(self, reader, writer, source, target, words):
        super().__init__()
        self.reader, self.writer = reader, writer
        self.source, self.target = source, target
        self.words = words

    def read(self, ids):
        return self.reader(self.source(ids))

    def write(self, memory, ids):
        mask = torch.ones(ids.size(1), ids.size(1), dtype=torch.bool, device=ids.device).tril()
        return self.writer(self.target(ids), memory, mask)

    def forward(self, source, target):
        return self.words(self.write(self.read(source), target))


def translator(vocabulary, depth=2, width=32, hidden=64, heads=4):
    again = copy.deepcopy
    attention = Heads(width, heads)
    expand = Expand(width, hidden)
    model = Translator(
        Reader(ReadLayer(width, again(attention), again(expand)), depth, width),
        Writer(WriteLayer(width, again(attention), again(attention), again(expand)), depth, width),
        nn.Sequential(Scaled(vocabulary, width), nn.Dropout(0.0)),
        nn.Sequential(Scaled(vocabulary, width), nn.Dropout(0.0)),
        nn.Linear(width, vocabulary),
    )
    for p in model.parameters():
        if p.dim() > 1:
            nn.init.xavier_uniform_(p)
    return model
