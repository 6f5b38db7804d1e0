"""A shifted-window stage: a bias table with a head axis, windows, a cyclic shift with its mask, per-depth drop path."""
import torch
import torch.nn as nn


def window_partition(x, size):
    """(batch, height, width, channels) -> (windows, size * size, channels)"""
    batch, height, width, channels = x.shape
    x = x.view(batch, height // size, size, width // size, size, channels)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, size * size, channels)


def window_reverse(windows, size, height, width):
    batch = windows.shape[0] // (height // size * (width // size))
    x = windows.view(batch, height // size, width // size, size, size, -1)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(batch, height, width, -1)


class DropPath(nn.Module):
    def __init__(self, rate=0.0):
        super().__init__()
        self.rate = rate

    def forward(self, x):
        if self.rate == 0.0 or not self.training:
            return x
        keep = 1 - self.rate
        return x * torch.bernoulli(torch.full((x.shape[0],) + (1,) * (x.dim() - 1), keep, device=x.device)) / keep


class WindowAttention(nn.Module):
    def __init__(self, dim, window, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.scale = (dim // num_heads) ** -0.5
        self.bias_table = nn.Parameter(torch.zeros((2 * window - 1) ** 2, num_heads))
        nn.init.trunc_normal_(self.bias_table, std=0.02)
        steps = torch.arange(window)
        grid = torch.stack(torch.meshgrid(steps, steps, indexing="ij")).flatten(1)
        offset = (grid[:, :, None] - grid[:, None, :]).permute(1, 2, 0) + window - 1
        self.register_buffer("index", offset[..., 0] * (2 * window - 1) + offset[..., 1])
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x, mask=None):
        windows, tokens, channels = x.shape
        qkv = self.qkv(x).reshape(windows, tokens, 3, self.num_heads, channels // self.num_heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0] * self.scale, qkv[1], qkv[2]
        attn = q @ k.transpose(-2, -1)
        bias = self.bias_table[self.index.view(-1)].view(tokens, tokens, -1)
        attn = attn + bias.permute(2, 0, 1).unsqueeze(0)
        if mask is not None:
            kinds = mask.shape[0]
            attn = attn.view(windows // kinds, kinds, self.num_heads, tokens, tokens) + mask.unsqueeze(1).unsqueeze(0)
            attn = attn.view(-1, self.num_heads, tokens, tokens)
        attn = attn.softmax(dim=-1)
        return self.proj((attn @ v).transpose(1, 2).reshape(windows, tokens, channels))


class SwinBlock(nn.Module):
    def __init__(self, dim, resolution, num_heads, window=4, shift=0, mlp_ratio=2.0, drop_path=0.0):
        super().__init__()
        self.resolution, self.window, self.shift = resolution, window, shift
        self.norm1 = nn.LayerNorm(dim)
        self.attn = WindowAttention(dim, window, num_heads)
        self.drop_path = DropPath(drop_path) if drop_path > 0.0 else nn.Identity()
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, int(dim * mlp_ratio)), nn.GELU(), nn.Linear(int(dim * mlp_ratio), dim))
        mask = None
        if shift > 0:
            zones = torch.zeros(1, resolution, resolution, 1)
            count = 0
            for rows in (slice(0, -window), slice(-window, -shift), slice(-shift, None)):
                for columns in (slice(0, -window), slice(-window, -shift), slice(-shift, None)):
                    zones[:, rows, columns, :] = count
                    count += 1
            zones = window_partition(zones, window).squeeze(-1)
            mask = (zones.unsqueeze(1) - zones.unsqueeze(2)).ne(0).float() * -100.0
        self.register_buffer("mask", mask)

    def forward(self, x):
        size = self.resolution
        batch, length, channels = x.shape
        shortcut = x
        x = self.norm1(x).view(batch, size, size, channels)
        if self.shift > 0:
            x = torch.roll(x, shifts=(-self.shift, -self.shift), dims=(1, 2))
        windows = self.attn(window_partition(x, self.window), self.mask)
        x = window_reverse(windows, self.window, size, size)
        if self.shift > 0:
            x = torch.roll(x, shifts=(self.shift, self.shift), dims=(1, 2))
        x = shortcut + self.drop_path(x.view(batch, length, channels))
        return x + self.drop_path(self.mlp(self.norm2(x)))


class SwinStage(nn.Module):
    def __init__(self, dim=32, resolution=8, depth=4, num_heads=4, classes=10, drop_path=0.2):
        super().__init__()
        self.embed = nn.Conv2d(3, dim, 4, stride=4)
        # the rates of the whole depth, whatever part of it is built
        rates = [x.item() for x in torch.linspace(0, drop_path, depth)]
        self.blocks = nn.ModuleList(
            SwinBlock(dim, resolution, num_heads, shift=0 if i % 2 == 0 else 2, drop_path=rates[i]) for i in range(depth)
        )
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, image):
        x = self.embed(image).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(dim=1))
