"""A decoder layer in Megatron's own style: fused q|k|v by heads, grouped in [heads, 3 * head width]."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from megatron.core import parallel_state, tensor_parallel
from megatron.core.utils import divide


class ParallelMLP(nn.Module):
    def __init__(self, config, hidden_size, ffn_hidden_size):
        super().__init__()
        self.dense_h_to_4h = tensor_parallel.ColumnParallelLinear(hidden_size, ffn_hidden_size, config=config, init_method=config.init_method, bias=True, gather_output=False)
        self.dense_4h_to_h = tensor_parallel.RowParallelLinear(ffn_hidden_size, hidden_size, config=config, init_method=config.output_layer_init_method, bias=True, input_is_parallel=True, skip_bias_add=False)

    def forward(self, hidden_states):
        intermediate = self.dense_h_to_4h(hidden_states)[0]
        intermediate = F.gelu(intermediate)
        output = self.dense_4h_to_h(intermediate)[0]
        return output


class ParallelAttention(nn.Module):
    def __init__(self, config, hidden_size, num_attention_heads):
        super().__init__()
        world_size = parallel_state.get_tensor_model_parallel_world_size()
        self.head_width = divide(hidden_size, num_attention_heads)
        self.num_heads_per_rank = divide(num_attention_heads, world_size)
        self.query_key_value = tensor_parallel.ColumnParallelLinear(hidden_size, 3 * hidden_size, config=config, init_method=config.init_method, gather_output=False)
        self.dense = tensor_parallel.RowParallelLinear(hidden_size, hidden_size, config=config, init_method=config.output_layer_init_method, bias=True, input_is_parallel=True, skip_bias_add=False)
        self.attention_dropout = nn.Dropout(0.1)

    def forward(self, hidden_states):
        batch, length, _ = hidden_states.shape
        mixed = self.query_key_value(hidden_states)[0]
        mixed = mixed.view(batch, length, self.num_heads_per_rank, 3 * self.head_width)
        query, key, value = mixed.split(self.head_width, dim=-1)
        query, key, value = query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
        scores = torch.matmul(query, key.transpose(-1, -2)) / math.sqrt(self.head_width)
        causal = torch.ones(length, length, dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(causal, float("-inf"))
        probabilities = F.softmax(scores, dim=-1)
        with tensor_parallel.get_cuda_rng_tracker().fork():
            probabilities = self.attention_dropout(probabilities)
        context = torch.matmul(probabilities, value).transpose(1, 2)
        context = context.reshape(batch, length, self.num_heads_per_rank * self.head_width)
        return self.dense(context)[0]


class ParallelDecoderLayer(nn.Module):
    def __init__(self, config, hidden_size=16, num_attention_heads=4, ffn_hidden_size=32):
        super().__init__()
        self.input_layernorm = nn.LayerNorm(hidden_size)
        self.self_attention = ParallelAttention(config, hidden_size, num_attention_heads)
        self.post_attention_layernorm = nn.LayerNorm(hidden_size)
        self.mlp = ParallelMLP(config, hidden_size, ffn_hidden_size)
        self.hidden_dropout = nn.Dropout(0.1)

    def forward(self, hidden_states):
        attended = self.self_attention(self.input_layernorm(hidden_states))
        hidden_states = hidden_states + self.hidden_dropout(attended)
        return hidden_states + self.hidden_dropout(self.mlp(self.post_attention_layernorm(hidden_states)))
