"""Ways of writing a model that a pipeline cut has to get on with, a class each: what a later stage asks of modules that it does not run."""
import functools

import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, width, expand=2):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, expand * width)
        self.down = nn.Linear(expand * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Patches(nn.Module):
    def __init__(self, width, patch=4):
        super().__init__()
        self.patch_size = (patch, patch)
        self.proj = nn.Conv2d(3, width, patch, patch)
        self.norm = nn.LayerNorm(width)

    @staticmethod
    def grid(n, side):
        return int(n ** 0.5), side

    def forward(self, x):
        return self.norm(self.proj(x).flatten(2).transpose(1, 2))


class Head(nn.Module):
    """A head whose weight is the word table's and whose bias has two names."""

    def __init__(self, width, words):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.decoder = nn.Linear(width, words)
        self.bias = nn.Parameter(torch.zeros(words))
        self.decoder.bias = self.bias

    def forward(self, x):
        return self.decoder(self.norm(x))


class Described(nn.Module):
    """Behind the cut forward asks the patches for their size, a weight for its type, parameters for their shape and device."""

    def __init__(self, width=16, words=24, depth=4):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.patches = Patches(width)
        self.place = nn.Parameter(torch.zeros(1, 4, width))
        self.blocks = nn.ModuleList([Block(width, 2 + i % 2) for i in range(depth)])
        self.head = Head(width, words)
        self.pixels = nn.Linear(width, 3 * 4 * 4)
        nn.init.trunc_normal_(self.place, std=0.02)
        self.tie_weights()

    def tie_weights(self):
        self.head.decoder.weight = self.words.weight

    @property
    def dtype(self):
        return self.patches.proj.weight.dtype

    def unpatch(self, x):
        side = self.patches.patch_size[0]
        rows, side = self.patches.grid(x.shape[1], side)
        x = x.reshape(x.shape[0], rows, rows, side, side, 3)
        return torch.einsum("nhwpqc->nchpwq", x).reshape(x.shape[0], 3, rows * side, rows * side)

    def forward(self, image, ids):
        x = self.patches(image) + self.place
        x = torch.cat([x, self.words(ids)], 1)
        for block in self.blocks:
            x = block(x)
        x = x.to(self.dtype) * self.blocks[0].up.out_features ** -0.5
        n = self.place.shape[1]
        kept = torch.arange(n, device=next(self.patches.parameters()).device)
        return self.unpatch(self.pixels(x[:, kept])), self.head(x[:, n:])


class Pairs(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = layers

    def forward(self, x):
        for first, second in self.layers:
            x = x + first(x)
            x = x + second(x)
        return x


class Assembled(nn.Module):
    """Layers made by a method, lists filled before a child or a container takes them, a list that a container takes the place of."""

    def __init__(self, width=16, depth=3):
        super().__init__()
        layers = nn.ModuleList([])
        for _ in range(depth - 1):
            fold = nn.Linear(width, width)
            layers.append(nn.ModuleList([Block(width), fold]))
        self.front = Pairs(layers)
        self.layers = nn.ModuleList([])
        for i in range(depth):
            self.layers.append(self.build_layer(width))
        self.head = nn.ModuleList()
        for _ in range(2):
            self.head.append(nn.Linear(width, width))
            self.head.append(nn.GELU())
        self.head = nn.Sequential(*self.head)
        parts = [nn.LayerNorm(width)]
        parts += [nn.Linear(width, 8)]
        parts.append(nn.Tanh())
        self.out = nn.Sequential(*parts)

    def build_layer(self, width):
        return Block(width)

    def forward(self, x):
        x = self.front(x)
        for layer in self.layers:
            x = layer(x)
        return self.out(self.head(x))


def through(function):
    def inner(*args, **kwargs):
        return function(*args, **kwargs)
    return inner


def with_defaults(**defaults):
    """Adds arguments, looks after the call and hands the result back."""
    def decorate(function):
        @functools.wraps(function)
        def inner(self, *args, **kwargs):
            for name, value in defaults.items():
                kwargs.setdefault(name, value)
            try:
                out = function(self, *args, **kwargs)
            finally:
                self.calls = getattr(self, "calls", 0)
            return out
        return inner
    return decorate


class Masked(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.block = Block(width)

    def forward(self, x, scale, mask=None):
        return self.block(x) * scale if mask is None else self.block(x) * mask[..., None]


class Inner(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.words = nn.Embedding(config.words, config.width)
        self.blocks = nn.ModuleList([Masked(config.width) for _ in range(config.depth)])

    @through
    @with_defaults(verbose=False)
    def forward(self, ids, mask, scale=1.0, verbose=True):
        if verbose:
            print(ids.shape)
        x = self.words(ids)
        blocks = [functools.partial(block, mask=mask) for block in self.blocks]
        for block in blocks:
            x = block(x, scale)
        return x


class Config:
    def __init__(self, width=16, words=24, depth=4):
        self.width, self.words, self.depth = width, words, depth


class Handed(nn.Module):
    """Made by a factory; a decorated forward hands **kwargs on; blocks are called through functools.partial."""

    def __init__(self, config, head=nn.Linear, scale=1.0):
        super().__init__()
        self.inner = Inner(config)
        self.head = head(config.width, config.words)
        self.scale = scale

    @classmethod
    def from_config(cls, values, **over):
        return cls(Config(**{**values, **over}), functools.partial(nn.Linear, bias=False), scale=0.5)

    @through
    def forward(self, ids, mask, **kwargs):
        return self.head(self.inner(ids, mask, **kwargs)) * self.scale


def handed(name="small", **over):
    sizes = {"small": dict(width=16), "large": dict(width=32)}
    model = Handed.from_config(sizes[name], **over)
    model.scale = 2.0
    return model


def note(found, level, x):
    """Keeps the last means, and how many there were."""
    found["means"].append(x.mean(-1))
    if len(found["means"]) > 3:
        found["means"].pop(0)
    found["count"] = level + 1


class Collected(nn.Module):
    """Containers that are filled on the way: by keys that are numbers or put together, by a function, inside one another."""

    def __init__(self, width=16, depth=6):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, width)
        self.weights = nn.Buffer(torch.arange(1.0, width + 1) / width, persistent=False)

    def forward(self, x):
        by_level, named, found = {}, {}, {"means": [], "count": 0}
        for i, block in enumerate(self.blocks):
            x = block(x)
            by_level[i] = x
            if i % 2:
                named[f"level{i}"] = x * 0.5
            note(found, i, x)
        skip = by_level[0] + by_level[len(self.blocks) - 2]
        return self.head((x + skip + sum(named.values())) * self.weights), torch.stack(found["means"]) * found["count"]
