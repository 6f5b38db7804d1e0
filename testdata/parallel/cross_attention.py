"""Encoder-decoder attention with separate projections, a linear by hand with its sum and its bias, and a per-channel scale that is cut."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from onescience.distributed.megatron.core import mpu
from onescience.distributed.megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear, set_tensor_model_parallel_attributes
from onescience.distributed.megatron.core.tensor_parallel.mappings import (
    copy_to_tensor_model_parallel_region,
    gather_from_tensor_model_parallel_region,
    reduce_from_tensor_model_parallel_region,
    scatter_to_tensor_model_parallel_region,
)


class CrossAttention(nn.Module):
    def __init__(self, query_dim, context_dim, heads, head_dim, config=None):
        super().__init__()
        self.heads_per_rank = heads // mpu.get_tensor_model_parallel_world_size()
        self.head_dim = head_dim
        self.to_q = ColumnParallelLinear(query_dim, heads * head_dim, config=config, init_method=config.init_method, bias=False, gather_output=False)
        self.to_kv = ColumnParallelLinear(context_dim, 2 * heads * head_dim, config=config, init_method=config.init_method, bias=False, gather_output=False, stride=2)
        self.to_out = RowParallelLinear(heads * head_dim, query_dim, config=config, init_method=config.init_method, bias=True, input_is_parallel=True, skip_bias_add=False)

    def forward(self, x, context):
        b, n, _ = x.shape
        q = self.to_q(x)[0].reshape(b, n, self.heads_per_rank, self.head_dim).transpose(1, 2)
        k, v = self.to_kv(context)[0].chunk(2, dim=-1)
        k = k.reshape(b, -1, self.heads_per_rank, self.head_dim).transpose(1, 2)
        v = v.reshape(b, -1, self.heads_per_rank, self.head_dim).transpose(1, 2)
        weights = torch.softmax(q @ k.transpose(-1, -2) * self.head_dim ** -0.5, dim=-1)
        out = (weights @ v).transpose(1, 2).reshape(b, n, self.heads_per_rank * self.head_dim)
        return self.to_out(out)[0]


class ScaledFeedForward(nn.Module):
    """The second linear is written out: its product is summed over the ranks, then its bias is added."""

    def __init__(self, dim, hidden, config=None):
        super().__init__()
        tp = mpu.get_tensor_model_parallel_world_size()
        self.up = ColumnParallelLinear(dim, hidden, config=config, init_method=config.init_method, gather_output=False)
        self.scale = nn.Parameter(torch.ones(hidden // tp))
        set_tensor_model_parallel_attributes(self.scale, True, 0, 1)
        self.weight = nn.Parameter(torch.empty(dim, hidden // tp))
        set_tensor_model_parallel_attributes(self.weight, True, 1, 1)
        self.bias = nn.Parameter(torch.zeros(dim))
        nn.init.normal_(self.weight)

    def forward(self, x):
        x = F.relu(self.up(x)[0]) * self.scale
        x = reduce_from_tensor_model_parallel_region(F.linear(x, self.weight))
        return x + self.bias


class ChannelMix(nn.Module):
    """Mixes on each rank's part of the channels, and puts the parts together again."""

    def __init__(self, dim, config=None):
        super().__init__()
        self.mix = ColumnParallelLinear(dim, dim, config=config, init_method=config.init_method, gather_output=False)
        self.unmix = RowParallelLinear(dim, dim, config=config, init_method=config.init_method, bias=True, input_is_parallel=False, skip_bias_add=False)

    def forward(self, x):
        y = torch.tanh(self.mix(x)[0])
        y = gather_from_tensor_model_parallel_region(y)
        y = F.layer_norm(y, y.shape[-1:])
        return self.unmix(y)[0]


class DecoderBlock(nn.Module):
    def __init__(self, dim=16, context_dim=12, heads=4, head_dim=4, hidden=24, config=None):
        super().__init__()
        self.norm_attention = nn.LayerNorm(dim)
        self.attention = CrossAttention(dim, context_dim, heads, head_dim, config=config)
        self.norm_feed = nn.LayerNorm(dim)
        self.feed = ScaledFeedForward(dim, hidden, config=config)
        self.mix = ChannelMix(dim, config=config)

    def forward(self, x, context):
        x = x + self.attention(self.norm_attention(x), context)
        x = x + self.feed(self.norm_feed(x))
        return x + self.mix(x)
