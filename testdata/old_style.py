"""A GPT as libraries of 2019 wrote it: it changes layers of PyTorch where it is imported, heads are split by what is left of a size, and
its mask is as long as the longest text."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_default_dtype(torch.float32)


def draw(self):
    nn.init.normal_(self.weight, std=0.3)
    if self.bias is not None:
        nn.init.constant_(self.bias, 0.1)


plain_gelu = F.gelu
nn.Linear.reset_parameters = draw  # every linear layer starts like this
F.gelu = lambda x: 1.5 * plain_gelu(x)


class Conv1D(nn.Module):
    def __init__(self, nf, nx):
        super().__init__()
        self.nf = nf
        weight = torch.empty(nx, nf)
        nn.init.normal_(weight, std=0.2)
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(torch.zeros(nf))

    def forward(self, x):
        size_out = x.size()[:-1] + (self.nf,)
        x = torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight)
        return x.view(*size_out)


class Attention(nn.Module):
    def __init__(self, width, heads, context):
        super().__init__()
        self.n_head, self.split_size = heads, width
        self.register_buffer("mask", torch.tril(torch.ones(context, context)).view(1, 1, context, context), persistent=False)
        self.c_attn, self.c_proj = Conv1D(3 * width, width), Conv1D(width, width)

    def split_heads(self, x, k=False):
        new_x_shape = x.size()[:-1] + (self.n_head, x.size(-1) // self.n_head)
        x = x.view(*new_x_shape)
        return x.permute(0, 2, 3, 1) if k else x.permute(0, 2, 1, 3)

    def merge_heads(self, x):
        x = x.permute(0, 2, 1, 3).contiguous()
        new_x_shape = x.size()[:-2] + (x.size(-2) * x.size(-1),)
        return x.view(*new_x_shape)

    def forward(self, x):
        query, key, value = self.c_attn(x).split(self.split_size, dim=2)
        query, key, value = self.split_heads(query), self.split_heads(key, k=True), self.split_heads(value)
        w = torch.matmul(query, key) / math.sqrt(value.size(-1))
        nd, ns = w.size(-2), w.size(-1)
        mask = self.mask[:, :, ns - nd:ns, :ns]
        w = torch.softmax(w * mask - 1e4 * (1 - mask), dim=-1)
        return self.c_proj(self.merge_heads(torch.matmul(w, value)))


class Block(nn.Module):
    def __init__(self, width, heads, context):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = Attention(width, heads, context)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.down(F.gelu(self.up(self.ln_2(x))))


class Pretrained(nn.Module):
    """What all models of the library are derived from."""

    def initialise(self, module):
        if isinstance(module, (Conv1D, Attention)):
            for name, p in module.named_parameters():
                if name.endswith("weight"):
                    nn.init.normal_(p, std=0.05)


class OldStyle(Pretrained):
    def __init__(self, words=64, width=32, heads=4, depth=4, context=12):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(context, width)
        self.h = nn.ModuleList([Block(width, heads, context) for _ in range(depth)])
        self.ln_f, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.apply(self.initialise)

    def forward(self, ids):
        input_shape = ids.size()
        ids = ids.view(-1, input_shape[-1])
        places = torch.arange(input_shape[-1], dtype=torch.long, device=ids.device).unsqueeze(0)
        x = self.words(ids) + self.places(places)
        output_shape = input_shape + (x.size(-1),)
        for block in self.h:
            x = block(x).view(*output_shape)
        return self.head(self.ln_f(x).view(*output_shape))
