"""
args: {c: 4}
inputs: {x: "f32[2,3,16,16]"}
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Conv(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.conv = nn.Conv2d(a, b, 3, padding=1)
        self.norm = nn.GroupNorm(1, b)

    def forward(self, x):
        return F.gelu(self.norm(self.conv(x)))


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        widths = [c, 2 * c, 4 * c]
        self.stem = Conv(3, c)
        downs, ups = [], []
        for a, b in zip(widths[:-1], widths[1:]):
            downs.append(Conv(a, b))
        for a, b in zip(widths[::-1][:-1], widths[::-1][1:]):
            ups.append(Conv(a + b, b))
        self.downs = nn.ModuleList(downs)
        self.ups = nn.ModuleList(ups)
        self.mid = nn.Sequential(Conv(4 * c, 4 * c), nn.Dropout(0.0), Conv(4 * c, 4 * c))
        self.out = nn.Conv2d(c, 3, 1)

    def forward(self, x):
        skips = []
        x = self.stem(x)
        for down in self.downs:
            skips.append(x)
            x = F.max_pool2d(x, 2)
            x = down(x)
        x = self.mid(x)
        for up in self.ups:
            skip = skips.pop()
            x = F.interpolate(x, scale_factor=2)
            x = up(torch.cat([x, skip], dim=1))
        return self.out(x)
