"""Attention computed by an object that is no module, layers found in registries that statements fill."""
import torch.nn as nn
import torch.nn.functional as F

ACTIVATIONS = {}
MIXERS = {}

for _name, _class in (("gelu", nn.GELU), ("relu", nn.ReLU)):
    ACTIVATIONS[_name] = _class


def enter(name, layer):
    MIXERS[name] = layer


class Plain:
    """How a layer computes its attention."""

    def __init__(self, scale=1.0):
        self.scale = scale

    def heads_of(self, layer, x):
        return x.view(x.shape[0], -1, layer.heads, x.shape[-1] // layer.heads).transpose(1, 2)

    def __call__(self, layer, x, context=None):
        context = x if context is None else context
        q, k, v = layer.to_q(x), layer.to_k(context), layer.to_v(context)
        size = k.shape[-1] // layer.heads
        q = q.view(x.shape[0], -1, layer.heads, size).transpose(1, 2)
        out = F.scaled_dot_product_attention(q, self.heads_of(layer, k), self.heads_of(layer, v)) * self.scale
        out = out.transpose(1, 2).reshape(x.shape[0], -1, layer.heads * size)
        return layer.to_out[1](layer.to_out[0](out))


class Attention(nn.Module):
    def __init__(self, width, heads, processor=None):
        super().__init__()
        self.heads = heads
        self.to_q = nn.Linear(width, width, bias=False)
        self.to_k = nn.Linear(width, width, bias=False)
        self.to_v = nn.Linear(width, width, bias=False)
        self.to_out = nn.ModuleList([nn.Linear(width, width), nn.Dropout(0.0)])
        self.set_processor(processor or Plain())

    def set_processor(self, processor):
        self.processor = processor

    def forward(self, x, **more):
        return self.processor(self, x, **more)


class Gate(nn.Module):
    def __init__(self, width, activation):
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.gate = nn.Linear(width, 4 * width)
        self.activation = ACTIVATIONS[activation]()
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        return self.down(self.activation(self.gate(x)) * self.up(x))


class Perceptron(nn.Module):
    def __init__(self, width, activation):
        super().__init__()
        self.first = nn.Linear(width, 4 * width)
        self.activation = ACTIVATIONS[activation]()
        self.second = nn.Linear(4 * width, width)

    def forward(self, x):
        return self.second(self.activation(self.first(x)))


enter("perceptron", Perceptron)
for _mixer in [Gate]:
    MIXERS[_mixer.__name__.lower()] = _mixer


class Block(nn.Module):
    def __init__(self, width, heads, mixer):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mixer = MIXERS[mixer](width, "gelu")

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mixer(self.norm2(x))


class Processors(nn.Module):
    def __init__(self, width=32, heads=4, depth=4):
        super().__init__()
        self.blocks = nn.ModuleList([Block(width, heads, "perceptron" if i % 2 else "gate") for i in range(depth)])
        self.out = nn.Linear(width, 8)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.out(x)
