"""A root whose constructor looks at everything that was built, parts of parts included: every stage builds all of it first."""
import torch
import torch.nn as nn


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class Encoder(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.layers = nn.ModuleList([Layer(width) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class Predictions(nn.Module):
    def __init__(self, width, words):
        super().__init__()
        self.transform = Layer(width)
        self.decoder = nn.Linear(width, words)
        self.bias = nn.Parameter(torch.zeros(words))
        self.decoder.bias = self.bias

    def forward(self, x):
        return self.decoder(self.transform(x))


class Head(nn.Module):
    def __init__(self, width, words):
        super().__init__()
        self.predictions = Predictions(width, words)

    def forward(self, x):
        return self.predictions(x)


class Counted(nn.Module):
    tied = {"head.predictions.decoder.weight": "words.weight"}

    def __init__(self, words=24, width=16, depth=4):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.encoder = Encoder(width, depth)
        self.head = Head(width, words)
        self.finish()

    def finish(self):
        names = dict(self.named_parameters(remove_duplicate=False))
        for target, source in self.tied.items():
            if target not in names or source not in names:
                raise ValueError(f"{target} cannot be {source}: there are {sorted(names)}")
        self.head.predictions.decoder.weight = self.words.weight
        self.scale = 1e3 / sum(p.numel() for p in self.parameters())

    def forward(self, ids):
        return self.head(self.encoder(self.words(ids) * self.scale))
