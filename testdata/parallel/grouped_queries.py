"""Grouped-query attention with rotary embedding and per-head norms, and a gated MLP: one copy-to-region for all layers of one input."""
import torch
from megatron.core.parallel_state import get_tensor_model_parallel_world_size
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear, VocabParallelEmbedding
from megatron.core.tensor_parallel.mappings import copy_to_tensor_model_parallel_region, gather_from_tensor_model_parallel_region
from torch import nn
from torch.nn import functional as F


class RMSNorm(nn.Module):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class HeadNorm(nn.Module):
    """A norm of every head by itself: one weight for all heads, so its gradient is summed over the ranks."""

    def __init__(self, head_dim, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(head_dim))
        self.eps = eps

    def forward(self, x):
        weight = copy_to_tensor_model_parallel_region(self.weight)
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * weight


def rotate(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


class GroupedAttention(nn.Module):
    def __init__(self, config, dim, num_heads, num_kv_heads):
        super().__init__()
        tp = get_tensor_model_parallel_world_size()
        self.head_dim = dim // num_heads
        self.heads = num_heads // tp
        self.kv_heads = num_kv_heads // tp
        self.q_proj = ColumnParallelLinear(dim, num_heads * self.head_dim, config=config, init_method=config.init_method, bias=False, gather_output=False, disable_grad_reduce=True)
        self.k_proj = ColumnParallelLinear(dim, num_kv_heads * self.head_dim, config=config, init_method=config.init_method, bias=False, gather_output=False, disable_grad_reduce=True)
        self.v_proj = ColumnParallelLinear(dim, num_kv_heads * self.head_dim, config=config, init_method=config.init_method, bias=False, gather_output=False, disable_grad_reduce=True)
        self.o_proj = RowParallelLinear(num_heads * self.head_dim, dim, config=config, init_method=config.init_method, bias=False, input_is_parallel=True, skip_bias_add=False)
        self.q_norm = HeadNorm(self.head_dim)
        self.k_norm = HeadNorm(self.head_dim)

    def forward(self, x):
        b, t, _ = x.shape
        entered = copy_to_tensor_model_parallel_region(x)
        q, _ = self.q_proj(entered)
        k, _ = self.k_proj(entered)
        v, _ = self.v_proj(entered)
        q = self.q_norm(q.view(b, t, self.heads, self.head_dim)).transpose(1, 2)
        k = self.k_norm(k.view(b, t, self.kv_heads, self.head_dim)).transpose(1, 2)
        v = v.view(b, t, self.kv_heads, self.head_dim).transpose(1, 2)
        angle = torch.arange(t, dtype=x.dtype, device=x.device)[:, None] * torch.linspace(1.0, 0.1, self.head_dim // 2, dtype=x.dtype, device=x.device)
        q, k = rotate(q, angle.cos(), angle.sin()), rotate(k, angle.cos(), angle.sin())
        k = k.repeat_interleave(self.heads // self.kv_heads, dim=1)
        v = v.repeat_interleave(self.heads // self.kv_heads, dim=1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = y.transpose(1, 2).reshape(b, t, self.heads * self.head_dim)
        return self.o_proj(y)[0]


class GatedMLP(nn.Module):
    def __init__(self, config, dim, hidden):
        super().__init__()
        self.gate_proj = ColumnParallelLinear(dim, hidden, config=config, init_method=config.init_method, bias=False, gather_output=False, disable_grad_reduce=True)
        self.up_proj = ColumnParallelLinear(dim, hidden, config=config, init_method=config.init_method, bias=False, gather_output=False, disable_grad_reduce=True)
        self.down_proj = RowParallelLinear(hidden, dim, config=config, init_method=config.init_method, bias=False, input_is_parallel=True, skip_bias_add=False)

    def forward(self, x):
        x = copy_to_tensor_model_parallel_region(x)
        return self.down_proj(F.silu(self.gate_proj(x)[0]) * self.up_proj(x)[0])[0]


class Layer(nn.Module):
    def __init__(self, config, dim, num_heads, num_kv_heads, hidden):
        super().__init__()
        self.norm1, self.norm2 = RMSNorm(dim), RMSNorm(dim)
        self.attention = GroupedAttention(config, dim, num_heads, num_kv_heads)
        self.feed_forward = GatedMLP(config, dim, hidden)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.feed_forward(self.norm2(x))


class LanguageModel(nn.Module):
    def __init__(self, config, vocab_size=24, dim=16, num_layers=2, num_heads=4, num_kv_heads=2, hidden=24):
        super().__init__()
        self.embed_tokens = VocabParallelEmbedding(vocab_size, dim, init_method=config.init_method, config=config)
        self.layers = nn.ModuleList([Layer(config, dim, num_heads, num_kv_heads, hidden) for _ in range(num_layers)])
        self.norm = RMSNorm(dim)
        self.lm_head = ColumnParallelLinear(dim, vocab_size, config=config, init_method=config.init_method, bias=False, gather_output=False)

    def forward(self, input_ids):
        x = self.embed_tokens(input_ids)
        for layer in self.layers:
            x = layer(x)
        logits, _ = self.lm_head(self.norm(x))
        return gather_from_tensor_model_parallel_region(logits)
