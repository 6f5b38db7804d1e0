"""A U-shaped model of convolutions with attention in the middle and two skips."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class ResidualBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm1 = nn.GroupNorm(4, channels)
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm2 = nn.GroupNorm(4, channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        h = self.conv1(F.silu(self.norm1(x)))
        return x + self.conv2(F.silu(self.norm2(h)))


class SpatialAttention(nn.Module):
    def __init__(self, channels, heads):
        super().__init__()
        self.heads = heads
        self.norm = nn.GroupNorm(4, channels)
        self.to_q = nn.Linear(channels, channels, bias=False)
        self.to_k = nn.Linear(channels, channels, bias=False)
        self.to_v = nn.Linear(channels, channels, bias=False)
        self.to_out = nn.Linear(channels, channels)

    def forward(self, x):
        b, c, h, w = x.shape
        tokens = self.norm(x).flatten(2).transpose(1, 2)
        q, k, v = (f(tokens).view(b, h * w, self.heads, -1).transpose(1, 2) for f in (self.to_q, self.to_k, self.to_v))
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, h * w, c)
        return x + self.to_out(y).transpose(1, 2).reshape(b, c, h, w)


class AttentionUNet(nn.Module):
    def __init__(self, channels=16, heads=4):
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.down1 = ResidualBlock(channels)
        self.pool1 = nn.Conv2d(channels, 2 * channels, 3, stride=2, padding=1)
        self.down2 = ResidualBlock(2 * channels)
        self.pool2 = nn.Conv2d(2 * channels, 4 * channels, 3, stride=2, padding=1)
        self.middle = nn.ModuleList([SpatialAttention(4 * channels, heads), ResidualBlock(4 * channels), SpatialAttention(4 * channels, heads)])
        self.unpool2 = nn.ConvTranspose2d(4 * channels, 2 * channels, 2, stride=2)
        self.up2 = nn.Conv2d(4 * channels, 2 * channels, 3, padding=1)
        self.unpool1 = nn.ConvTranspose2d(2 * channels, channels, 2, stride=2)
        self.up1 = nn.Conv2d(2 * channels, channels, 3, padding=1)
        self.out = nn.Conv2d(channels, 3, 1)

    def forward(self, x):
        skips = []
        x = self.down1(self.stem(x))
        skips.append(x)
        x = self.down2(self.pool1(x))
        skips.append(x)
        x = self.pool2(x)
        for layer in self.middle:
            x = layer(x)
        x = F.silu(self.up2(torch.cat([self.unpool2(x), skips.pop()], dim=1)))
        x = F.silu(self.up1(torch.cat([self.unpool1(x), skips.pop()], dim=1)))
        return self.out(x)
