"""Grouped-query attention with its heads divided over tp, also where there are fewer key and value heads than ranks."""
from __future__ import annotations

from torch import nn
from torch.nn import functional as F

from . import _C
from .device_mesh import built_tp_size as tp_size
from .device_mesh import tp_group
from .layers import ColumnParallelLinear, RowParallelLinear
from .random import get_rng_tracker


class ParallelGroupedQueryAttention(nn.Module):
    """Self-attention: x (batch, length, embed_dim) -> the same. `num_kv_heads` key and value heads, each for num_heads / num_kv_heads query
    heads. With more ranks than key and value heads, ranks that share one hold the same slices and sum their gradients."""

    def __init__(self, embed_dim, num_heads, num_kv_heads, head_dim=None, bias=True, dropout=0.0, causal=False, device=None, dtype=None, *, config=None):
        super().__init__()
        if num_heads % num_kv_heads:
            raise ValueError(f"num_heads {num_heads} is no multiple of num_kv_heads {num_kv_heads}")
        if num_heads % tp_size():
            raise ValueError(f"num_heads {num_heads} cannot be divided over {tp_size()} tensor-parallel ranks")
        self.head_dim = head_dim or embed_dim // num_heads
        self.num_heads, self.num_kv_heads, self.dropout, self.causal = num_heads, num_kv_heads, dropout, causal
        options = dict(bias=bias, return_bias=False, disable_grad_reduce=True, device=device, dtype=dtype)
        self.q_proj = ColumnParallelLinear(embed_dim, num_heads * self.head_dim, **options)
        self.k_proj = ColumnParallelLinear(embed_dim, num_kv_heads * self.head_dim, groups=num_kv_heads, **options)
        self.v_proj = ColumnParallelLinear(embed_dim, num_kv_heads * self.head_dim, groups=num_kv_heads, **options)
        self.out_proj = RowParallelLinear(num_heads * self.head_dim, embed_dim, bias, return_bias=False, device=device, dtype=dtype)

    def forward(self, x, attn_mask=None):
        x = _C.copy_to(x, tp_group())   # one sum of the gradient for the three
        q, k, v = (p(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        drop = self.dropout if self.training else 0.0
        if drop > 0:
            with get_rng_tracker().fork(dim=1):
                y = F.scaled_dot_product_attention(q, k, v, attn_mask, drop, self.causal, enable_gqa=True)
        else:
            y = F.scaled_dot_product_attention(q, k, v, attn_mask, 0.0, self.causal, enable_gqa=True)
        return self.out_proj(y.transpose(1, 2).flatten(2))
