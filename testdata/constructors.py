"""Constructors as people write them: on one line, through a base class by its name, of a registry's classes, layers set as they are made."""
import torch.nn as nn


class Registry:
    def __init__(self):
        self.entries = {}

    def register(self, name=None):
        def enter(cls):
            self.entries[name or cls.__name__] = cls
            return cls

        return enter

    def build(self, config):
        config = dict(config)
        return self.entries[config.pop("type")](**config)


BLOCKS = Registry()


@BLOCKS.register()
class Mlp(nn.Module):
    def __init__(self, width): super().__init__(); self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(self.up(x).relu())


@BLOCKS.register("gated")
class Gated(nn.Module):
    def __init__(self, width, times=4):
        super().__init__()
        self.up, self.gate = nn.Linear(width, times * width), nn.Linear(width, times * width)
        self.down = nn.Linear(times * width, width)

    def forward(self, x):
        return x + self.down(self.up(x) * self.gate(x).sigmoid())


class Chain(nn.Module):
    """Its children in their order, whatever they are called."""

    def __init__(self, width):
        super().__init__()
        self.first = Mlp(width)
        self.norm = nn.LayerNorm(width)
        self.second = Mlp(width)
        self.third = Mlp(width)

    def forward(self, x):
        for name, module in self.named_children():
            x = module(x)
        return x


class Tower(nn.Module):
    def __init__(self, width, kinds):
        super().__init__()
        self.blocks = nn.ModuleList([BLOCKS.build({"type": kind, "width": width}) for kind in kinds])
        self.layers = nn.ModuleList()
        for i in range(len(kinds)):
            layer = Mlp(width)
            nn.init.constant_(layer.up.bias, i)
            self.layers.append(layer)
            self.layers[-1].down.weight.data.div_(i + 1)
        for i in range(2): self.layers.append(Mlp(width)); nn.init.constant_(self.layers[-1].up.bias, -i)
        for layer in self.layers: layer.up.weight.data *= 2; nn.init.zeros_(layer.down.bias)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        for layer in self.layers:
            x = layer(x)
        return x


class Constructors(Tower):
    def __init__(self, width=16, kinds=("Mlp", "gated", "Mlp", "gated")):
        Tower.__init__(self, width, kinds); self.chain = Chain(width); self.out = nn.Linear(width, width)
        for name in ("first", "third"): nn.init.ones_(getattr(self.chain, name).down.bias)
        self.parameter_count = sum(p.numel() for p in self.parameters())

    def forward(self, x):
        return self.out(self.chain(super().forward(x)))
