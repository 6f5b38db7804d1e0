"""ParallelMultiheadAttention: torch.nn.MultiheadAttention with its heads divided over tp. Same constructor, call and results;
parameters have the same names, cut on the heads."""
from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F

from . import _C
from .layers import RowParallelLinear, init_uniform, make_local_parameter
from .device_mesh import built_tp_rank as tp_rank
from .device_mesh import built_tp_size as tp_size
from .device_mesh import tp_group
from .random import get_rng_tracker
from .shards import ShardSpec


class ParallelMultiheadAttention(nn.Module):
    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=True, add_bias_kv=False, add_zero_attn=False, kdim=None, vdim=None,
                 batch_first=False, device=None, dtype=None, *, config=None):
        super().__init__()
        if embed_dim % num_heads:
            raise ValueError(f"embed_dim {embed_dim} is not divisible by num_heads {num_heads}")
        if num_heads % tp_size():
            raise ValueError(f"num_heads {num_heads} cannot be divided over {tp_size()} tensor-parallel ranks")
        self.embed_dim, self.num_heads, self.dropout = embed_dim, num_heads, dropout
        self.kdim, self.vdim = kdim if kdim is not None else embed_dim, vdim if vdim is not None else embed_dim
        self.batch_first, self.add_zero_attn = batch_first, add_zero_attn
        self.head_dim = embed_dim // num_heads
        self._packed = self.kdim == embed_dim and self.vdim == embed_dim
        make = dict(device=device, dtype=dtype)
        one = ShardSpec.of(embed_dim, 0)
        if self._packed:
            self.in_proj_weight = make_local_parameter((3 * embed_dim, embed_dim), ShardSpec.of(3 * embed_dim, 0, 3), **make)
            for name in ("q_proj_weight", "k_proj_weight", "v_proj_weight"):
                self.register_parameter(name, None)
        else:
            self.q_proj_weight = make_local_parameter((embed_dim, embed_dim), one, **make)
            self.k_proj_weight = make_local_parameter((embed_dim, self.kdim), one, **make)
            self.v_proj_weight = make_local_parameter((embed_dim, self.vdim), one, **make)
            self.register_parameter("in_proj_weight", None)
        self.in_proj_bias = make_local_parameter((3 * embed_dim,), ShardSpec.of(3 * embed_dim, 0, 3), **make) if bias else None
        self.out_proj = RowParallelLinear(embed_dim, embed_dim, bias, return_bias=False, **make)
        self.bias_k = self.bias_v = None
        if add_bias_kv:
            last = ShardSpec.of(embed_dim, 2)
            self.bias_k = make_local_parameter((1, 1, embed_dim), last, **make)
            self.bias_v = make_local_parameter((1, 1, embed_dim), last, **make)
        self._reset_parameters()

    @property
    def num_heads_per_rank(self):
        return self.num_heads // tp_size()

    @property
    def _qkv_same_embed_dim(self):
        # torch's fused inference kernels read this and then use the weights directly, which are local here.
        return self._packed and tp_size() == 1

    def _reset_parameters(self):
        with get_rng_tracker().fork(), torch.no_grad():
            for w in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
                if w is not None:   # Xavier with the fans of the full shape
                    bound = math.sqrt(6.0 / (w.shape[0] * tp_size() + w.shape[1]))
                    w.uniform_(-bound, bound)
            for b in (self.bias_k, self.bias_v):
                if b is not None:
                    b.normal_(std=math.sqrt(2.0 / (self.embed_dim + 1)))
        if self.in_proj_bias is not None:
            nn.init.zeros_(self.in_proj_bias)
            nn.init.zeros_(self.out_proj.bias)
        init_uniform(self.out_proj.weight, self.embed_dim)

    def _project(self, query, key, value):
        """Local q, k, v: (length, batch, heads per rank * head_dim)."""
        group = tp_group()
        width = self.num_heads_per_rank * self.head_dim
        bq, bk, bv = self.in_proj_bias.chunk(3) if self.in_proj_bias is not None else (None, None, None)
        entered: list[tuple[torch.Tensor, torch.Tensor]] = []

        def enter(x):   # one copy-to-region for each different tensor
            for original, copied in entered:
                if original is x:
                    return copied
            entered.append((x, _C.copy_to(x, group)))
            return entered[-1][1]

        q_in, k_in, v_in = enter(query), enter(key), enter(value)
        if self._packed and query is key and key is value:
            return F.linear(q_in, self.in_proj_weight, self.in_proj_bias).split(width, dim=-1)
        if self._packed:
            wq, wk, wv = self.in_proj_weight.chunk(3)
            if key is value:
                bias = self.in_proj_bias[width:] if self.in_proj_bias is not None else None
                return (F.linear(q_in, wq, bq), *F.linear(k_in, self.in_proj_weight[width:], bias).split(width, dim=-1))
        else:
            wq, wk, wv = self.q_proj_weight, self.k_proj_weight, self.v_proj_weight
        return F.linear(q_in, wq, bq), F.linear(k_in, wk, bk), F.linear(v_in, wv, bv)

    def _local_mask(self, mask, batch):
        """attn_mask as (1 or batch, 1 or local heads, L, S). A mask of every head may come whole or as this rank's heads."""
        if mask.dim() == 3 and tp_size() > 1 and mask.shape[0] == batch * self.num_heads_per_rank:
            return mask.view(batch, self.num_heads_per_rank, *mask.shape[1:])
        if mask.requires_grad:   # every rank's heads add to its gradient
            mask = _C.copy_to(mask, tp_group())
        if mask.dim() == 2:
            return mask.unsqueeze(0).unsqueeze(0)
        if mask.dim() != 3 or mask.shape[0] != batch * self.num_heads:
            raise RuntimeError(f"attn_mask must be (L, S) or ({batch * self.num_heads}, L, S), got {tuple(mask.shape)}")
        full = mask.view(batch, self.num_heads, *mask.shape[1:])
        return _C.local_slice(full, 1, 1, 0, tp_group())

    def forward(self, query, key, value, key_padding_mask=None, need_weights=True, attn_mask=None, average_attn_weights=True,
                is_causal=False):
        if is_causal and attn_mask is None:
            raise RuntimeError("Need attn_mask if specifying the is_causal hint.")
        batched = query.dim() == 3
        if not batched:
            same_kv, same_qk = key is value, query is key
            query = query.unsqueeze(1)
            key = query if same_qk else key.unsqueeze(1)
            value = key if same_kv else value.unsqueeze(1)
            if key_padding_mask is not None:
                key_padding_mask = key_padding_mask.unsqueeze(0)
        elif self.batch_first:
            same_kv, same_qk = key is value, query is key
            query = query.transpose(0, 1)
            key = query if same_qk else key.transpose(0, 1)
            value = key if same_kv else value.transpose(0, 1)
        length, batch, _ = query.shape
        q, k, v = self._project(query, key, value)
        if key_padding_mask is not None and key_padding_mask.requires_grad:
            key_padding_mask = _C.copy_to(key_padding_mask, tp_group())
        heads, width = self.num_heads_per_rank, self.head_dim
        if self.bias_k is not None:
            k = torch.cat([k, self.bias_k.expand(1, batch, -1)])
            v = torch.cat([v, self.bias_v.expand(1, batch, -1)])
        if self.add_zero_attn:
            k = torch.cat([k, k.new_zeros(1, batch, k.shape[2])])
            v = torch.cat([v, v.new_zeros(1, batch, v.shape[2])])
        source = k.shape[0]
        extra = source - key.shape[0]
        # (batch, heads, length, head_dim)
        q = q.reshape(length, batch * heads, width).transpose(0, 1).view(batch, heads, length, width)
        k = k.reshape(source, batch * heads, width).transpose(0, 1).view(batch, heads, source, width)
        v = v.reshape(source, batch * heads, width).transpose(0, 1).view(batch, heads, source, width)

        mask = None
        causal_only = is_causal and key_padding_mask is None and not need_weights
        if attn_mask is not None and not causal_only:
            mask = self._local_mask(_additive(attn_mask, q.dtype), batch)
            mask = F.pad(mask, (0, extra)) if extra else mask
        if key_padding_mask is not None:
            padding = _additive(key_padding_mask, q.dtype).view(batch, 1, 1, -1)
            padding = F.pad(padding, (0, extra)) if extra else padding
            mask = padding if mask is None else mask + padding

        drop = self.dropout if self.training else 0.0
        if need_weights:
            scores = (q * math.sqrt(1.0 / width)) @ k.transpose(-2, -1)
            if mask is not None:
                scores = scores + mask
            weights = scores.softmax(-1)
            if drop > 0:
                with get_rng_tracker().fork(dim=1):
                    weights = F.dropout(weights, drop)
            attended = weights @ v
        else:
            weights = None
            with get_rng_tracker().fork(dim=1) if drop > 0 else _nothing():
                attended = F.scaled_dot_product_attention(q, k, v, mask, drop, causal_only)
        out = self.out_proj(attended.permute(2, 0, 1, 3).reshape(length, batch, heads * width))
        if weights is not None:
            if average_attn_weights:
                weights = _C.reduce_from(weights.sum(1) / self.num_heads, tp_group()) if tp_size() > 1 else weights.mean(1)
            else:
                weights = _C.gather_from(weights, 1, 1, tp_group())
        if not batched:
            return out.squeeze(1), weights.squeeze(0) if weights is not None else None
        return (out.transpose(0, 1) if self.batch_first else out), weights

    def extra_repr(self):
        return f"embed_dim={self.embed_dim}, num_heads={self.num_heads} (local {self.num_heads_per_rank}), rank {tp_rank()} of {tp_size()}"


class _nothing:
    def __enter__(self):
        return None

    def __exit__(self, *_):
        return False


def _additive(mask, dtype):
    if mask.dtype == torch.bool:
        return torch.zeros_like(mask, dtype=dtype).masked_fill_(mask, float("-inf"))
    return mask if not mask.is_floating_point() or mask.dtype == dtype else mask.to(dtype)
