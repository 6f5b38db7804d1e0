"""Shifted-window attention with a bias table of this rank's heads, marked as Megatron wants it."""
import torch
import torch.nn as nn
from megatron.core import parallel_state
from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear, set_tensor_model_parallel_attributes
from megatron.core.tensor_parallel.random import get_cuda_rng_tracker


def windows_of(x, size):
    b, h, w, c = x.shape
    return x.view(b, h // size, size, w // size, size, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, size * size, c)


def image_of(windows, size, h, w):
    c = windows.shape[-1]
    b = windows.shape[0] // (h // size * w // size)
    return windows.view(b, h // size, w // size, size, size, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)


class WindowAttention(nn.Module):
    def __init__(self, dim, window_size, num_heads, config=None):
        super().__init__()
        self.tp_size = parallel_state.get_tensor_model_parallel_world_size()
        self.dim, self.window_size, self.num_heads = dim, window_size, num_heads
        self.num_heads_per_rank = num_heads // self.tp_size
        self.head_dim = dim // num_heads
        self.scale = self.head_dim ** -0.5
        self.qkv = ColumnParallelLinear(dim, dim * 3, config=config, init_method=config.init_method, gather_output=False, stride=3)
        self.proj = RowParallelLinear(dim, dim, config=config, init_method=config.init_method, bias=True, input_is_parallel=True, skip_bias_add=False)
        self.relative_position_bias_table = nn.Parameter(torch.zeros((2 * window_size - 1) * (2 * window_size - 1), self.num_heads_per_rank))
        set_tensor_model_parallel_attributes(self.relative_position_bias_table, True, 1, 1)
        position = torch.stack(torch.meshgrid([torch.arange(window_size), torch.arange(window_size)], indexing="ij")).flatten(1)
        relative = (position[:, :, None] - position[:, None, :]).permute(1, 2, 0) + window_size - 1
        self.register_buffer("relative_position_index", relative[..., 0] * (2 * window_size - 1) + relative[..., 1])
        self.attn_drop = nn.Dropout(0.1)

    def forward(self, x, mask=None):
        windows, tokens, _ = x.shape
        qkv = self.qkv(x)[0].reshape(windows, tokens, 3, self.num_heads_per_rank, self.head_dim).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        attn = (q * self.scale) @ k.transpose(-2, -1)
        bias = self.relative_position_bias_table[self.relative_position_index.view(-1)].view(tokens, tokens, self.num_heads_per_rank)
        attn = attn + bias.permute(2, 0, 1).unsqueeze(0)
        if mask is not None:
            attn = attn.view(windows // mask.shape[0], mask.shape[0], self.num_heads_per_rank, tokens, tokens) + mask.unsqueeze(1).unsqueeze(0)
            attn = attn.view(-1, self.num_heads_per_rank, tokens, tokens)
        attn = attn.softmax(dim=-1)
        with get_cuda_rng_tracker().fork():
            attn = self.attn_drop(attn)
        x = (attn @ v).transpose(1, 2).reshape(windows, tokens, self.num_heads_per_rank * self.head_dim)
        return self.proj(x)[0]


class Mlp(nn.Module):
    def __init__(self, dim, hidden_dim, config=None):
        super().__init__()
        self.fc1 = ColumnParallelLinear(dim, hidden_dim, config=config, init_method=config.init_method, gather_output=False)
        self.act = nn.GELU()
        self.fc2 = RowParallelLinear(hidden_dim, dim, config=config, init_method=config.init_method, bias=True, input_is_parallel=True, skip_bias_add=False)

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)[0]))[0]


class WindowBlock(nn.Module):
    def __init__(self, dim=16, num_heads=4, window_size=2, shift=1, mlp_ratio=2, config=None):
        super().__init__()
        self.window_size, self.shift = window_size, shift
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = WindowAttention(dim, window_size, num_heads, config=config)
        self.mlp = Mlp(dim, dim * mlp_ratio, config=config)

    def forward(self, x):
        b, h, w, c = x.shape
        shortcut = x
        x = torch.roll(self.norm1(x), (-self.shift, -self.shift), dims=(1, 2))
        x = image_of(self.attn(windows_of(x, self.window_size)), self.window_size, h, w)
        x = shortcut + torch.roll(x, (self.shift, self.shift), dims=(1, 2))
        tokens = self.norm2(x).reshape(b, h * w, c)
        return x + self.mlp(tokens).reshape(b, h, w, c)
