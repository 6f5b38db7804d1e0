import torch
from torch import nn


class WindAttention2D(nn.Module):
    """Attention inside windows, with a bias for every pair of positions and head."""

    def __init__(self, dim, window, num_heads, qkv_bias=True):
        super().__init__()
        self.num_heads = num_heads
        self.scale = (dim // num_heads) ** -0.5
        tokens = window[0] * window[1]
        self.bias_table = nn.Parameter(torch.zeros(tokens * tokens, num_heads))
        nn.init.normal_(self.bias_table, std=0.02)
        self.qkv = nn.Linear(dim, 3 * dim, bias=qkv_bias)
        self.proj = nn.Linear(dim, dim)
        self.softmax = nn.Softmax(dim=-1)

    def forward(self, x, mask=None):
        B, M, N, C = x.shape
        qkv = self.qkv(x).reshape(B, M, N, 3, self.num_heads, C // self.num_heads).permute(3, 0, 1, 4, 2, 5)
        q, k, v = qkv[0], qkv[1], qkv[2]
        attn = (q * self.scale) @ k.transpose(-2, -1)
        attn = attn + self.bias_table.view(N, N, -1).permute(2, 0, 1)
        if mask is not None:
            attn = attn + mask.unsqueeze(1).unsqueeze(0)
        x = (self.softmax(attn) @ v).transpose(2, 3).reshape(B, M, N, C)
        return self.proj(x)
