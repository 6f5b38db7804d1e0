"""Three stages written by hand, in the form that Megatron's schedule asks for: a skip that goes past the middle one, rates by depth."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear
from megatron.training import get_args
from megatron.training.arguments import core_transformer_config_from_args


class Block(nn.Module):
    def __init__(self, dim, rate):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, 2 * dim)
        self.down = nn.Linear(2 * dim, dim)
        self.rate = rate

    def forward(self, x):
        return x + (1 - self.rate) * self.down(F.gelu(self.up(self.norm(x))))


class SkipNet(nn.Module):
    def __init__(self, dim=16, depth=6, rate=0.3, classes=5, scale=0.5):
        super().__init__()
        rates = [float(r) for r in torch.linspace(0, rate, depth)]
        self.embed = nn.Linear(dim, dim)
        self.blocks = nn.ModuleList([Block(dim, rates[i]) for i in range(depth)])
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)
        self.scale = scale

    def forward(self, x):
        x = self.embed(x)
        skip = x
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x + self.scale * skip))


class DistributedBlock(nn.Module):
    def __init__(self, dim, rate, config=None):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up = ColumnParallelLinear(dim, 2 * dim, config=config, init_method=config.init_method, gather_output=False)
        self.down = RowParallelLinear(2 * dim, dim, config=config, init_method=config.init_method, bias=True, input_is_parallel=True, skip_bias_add=False)
        self.rate = rate

    def forward(self, x):
        return x + (1 - self.rate) * self.down(F.gelu(self.up(self.norm(x))[0]))[0]


class SkipNet_stage0(nn.Module):
    def __init__(self, dim=16, depth=6, rate=0.3, classes=5, scale=0.5, config=None):
        super().__init__()
        self.config = core_transformer_config_from_args(get_args()) if config is None else config
        self.pre_process = None
        self.share_embeddings_and_output_weights = None
        self.input_tensor = None
        rates = [float(r) for r in torch.linspace(0, rate, depth)]
        self.embed = nn.Linear(dim, dim)
        self.blocks = nn.ModuleList([DistributedBlock(dim, rates[i], config=self.config) for i in range(0, 2)])

    def set_input_tensor(self, input_tensor):
        self.input_tensor = input_tensor

    def state_dict_for_save_checkpoint(self, prefix="", keep_vars=False):
        return self.state_dict(prefix=prefix, keep_vars=keep_vars)

    def forward(self, x):
        x = self.embed(x)
        skip = x
        for block in self.blocks:
            x = block(x)
        return x, skip


class SkipNet_stage1(nn.Module):
    def __init__(self, dim=16, depth=6, rate=0.3, classes=5, scale=0.5, config=None):
        super().__init__()
        self.config = core_transformer_config_from_args(get_args()) if config is None else config
        self.pre_process = None
        self.share_embeddings_and_output_weights = None
        self.input_tensor = None
        rates = [float(r) for r in torch.linspace(0, rate, depth)]
        self.blocks = nn.ModuleList([DistributedBlock(dim, rates[i], config=self.config) for i in range(2, 4)])

    def set_input_tensor(self, input_tensor):
        self.input_tensor = input_tensor

    def state_dict_for_save_checkpoint(self, prefix="", keep_vars=False):
        return self.state_dict(prefix=prefix, keep_vars=keep_vars)

    def forward(self, x=None):
        assert self.input_tensor is not None
        x, skip = self.input_tensor
        for block in self.blocks:
            x = block(x)
        return x, skip


class SkipNet_stage2(nn.Module):
    def __init__(self, dim=16, depth=6, rate=0.3, classes=5, scale=0.5, config=None):
        super().__init__()
        self.config = core_transformer_config_from_args(get_args()) if config is None else config
        self.pre_process = None
        self.share_embeddings_and_output_weights = None
        self.input_tensor = None
        rates = [float(r) for r in torch.linspace(0, rate, depth)]
        self.blocks = nn.ModuleList([DistributedBlock(dim, rates[i], config=self.config) for i in range(4, 6)])
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)
        self.scale = scale

    def set_input_tensor(self, input_tensor):
        self.input_tensor = input_tensor

    def state_dict_for_save_checkpoint(self, prefix="", keep_vars=False):
        return self.state_dict(prefix=prefix, keep_vars=keep_vars)

    def forward(self, x=None):
        assert self.input_tensor is not None
        x, skip = self.input_tensor
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x + self.scale * skip))


def model_provider(pre_process=True, post_process=True):
    stages = [SkipNet_stage0, SkipNet_stage1, SkipNet_stage2]
    return stages[parallel_state.get_pipeline_model_parallel_rank()]()
