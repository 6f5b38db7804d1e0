import torch
from torch import nn

from onescience.modules.attention.oneattention import OneAttention
from onescience.modules.mlp.onemlp import OneMlp
from onescience.utils.windows import band_mask, join_windows, split_windows


class DropPath(nn.Module):
    def __init__(self, rate):
        super().__init__()
        self.rate = rate

    def forward(self, x):
        if self.rate == 0.0 or not self.training:
            return x
        keep = torch.rand(x.shape[0], 1, 1, dtype=x.dtype, device=x.device) >= self.rate
        return x * keep / (1 - self.rate)


class WindTransformerBlock(nn.Module):
    def __init__(self, dim, resolution, num_heads, window, shifted=False, drop_path=0.0, mlp_ratio=2.0):
        super().__init__()
        self.resolution = resolution
        self.window = window
        self.norm1 = nn.LayerNorm(dim)
        self.attn = OneAttention(style="WindAttention2D", dim=dim, window=window, num_heads=num_heads)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = OneMlp(style="WindMlp", dim=dim, hidden=int(dim * mlp_ratio))
        self.drop_path = DropPath(drop_path) if drop_path > 0.0 else nn.Identity()
        # Bands of latitude that must not see each other.
        self.register_buffer("mask", band_mask(resolution, window) if shifted else None)

    def forward(self, x):
        H, W = self.resolution
        B, N, C = x.shape
        shortcut = x
        windows = split_windows(self.norm1(x).view(B, H, W, C), self.window)  # B, windows, tokens, C
        windows = self.attn(windows, mask=self.mask)
        x = shortcut + self.drop_path(join_windows(windows, self.window, H, W).view(B, N, C))
        x = x + self.drop_path(self.mlp(self.norm2(x)))
        return x
