# Megatron-Core's layers at the sizes of one rank. Both linears return (output, bias); config and init_method are required.
import torch
import torch.nn as nn
import torch.nn.functional as F
from _shardwright import layout, mark, note, region, result, tp
from torch.nn.parameter import Parameter


class _Missing:
    def __bool__(self):
        return False


_MISSING = _Missing()


def _required(layer, **given):
    for name in given:
        if given[name] is _MISSING:
            note("SW116", f"required keyword {name} of {type(layer).__name__} is missing", layer)


def _share(layer, size, what):
    if size % tp() != 0:
        note("SW112", f"{what} = {size} cannot be divided over {tp()} tensor-parallel ranks", layer)
    return size // tp()


def _sequence_parallel(config):
    return getattr(config, "sequence_parallel", False) is True


def set_tensor_model_parallel_attributes(tensor, is_parallel, dim, stride):
    if is_parallel:
        mark(tensor, "tensor_model_parallel")
        layout(tensor, dim, stride)


def set_defaults_if_not_set_tensor_model_parallel_attributes(tensor):
    return None


def param_is_not_tensor_parallel_duplicate(param):
    return True


def linear_with_grad_accumulation_and_async_allreduce(input, weight, bias, *args, **kwargs):
    return F.linear(region("copy_to", input), weight, bias)


class ColumnParallelLinear(nn.Module):
    def __init__(self, input_size, output_size, *, config=_MISSING, init_method=_MISSING, bias=True, gather_output=False, stride=1,
                 keep_master_weight_for_test=False, skip_bias_add=False, skip_weight_param_allocation=False, embedding_activation_buffer=None,
                 grad_output_buffer=None, is_expert=False, tp_comm_buffer_name=None, disable_grad_reduce=False, tp_group=None, **kwargs):
        super().__init__()
        _required(self, config=config, init_method=init_method)
        self.input_size, self.output_size = input_size, output_size
        self.gather_output, self.skip_bias_add, self.disable_grad_reduce = gather_output, skip_bias_add, disable_grad_reduce
        self.sequence_parallel = _sequence_parallel(config)
        self.config = config
        self.output_size_per_partition = _share(self, output_size, "output_size")
        if skip_weight_param_allocation:
            self.weight = None
        else:
            self.weight = Parameter(torch.empty(self.output_size_per_partition, input_size))
            layout(self.weight, 0, stride)
        if bias:
            self.bias = Parameter(torch.empty(self.output_size_per_partition))
            layout(self.bias, 0, stride)
        else:
            self.register_parameter("bias", None)

    def forward(self, input_, weight=None, runtime_gather_output=None):
        weight = self.weight if weight is None else weight
        bias = self.bias if not self.skip_bias_add else None
        input_ = region("column_input", input_)
        if self.sequence_parallel:
            x = region("sequence_gather", input_, 0)
        elif self.disable_grad_reduce:
            x = input_
        else:
            x = region("copy_to", input_)
        y = F.linear(x, weight, bias)
        gather = self.gather_output if runtime_gather_output is None else runtime_gather_output
        if gather:
            y = region("gather", y, -1)
        return result(y, self.bias if self.skip_bias_add else None)


class RowParallelLinear(nn.Module):
    def __init__(self, input_size, output_size, *, config=_MISSING, init_method=_MISSING, bias=_MISSING, input_is_parallel=_MISSING,
                 skip_bias_add=_MISSING, stride=1, keep_master_weight_for_test=False, is_expert=False, tp_comm_buffer_name=None, tp_group=None, **kwargs):
        super().__init__()
        _required(self, config=config, init_method=init_method, bias=bias, input_is_parallel=input_is_parallel, skip_bias_add=skip_bias_add)
        self.input_size, self.output_size = input_size, output_size
        self.input_is_parallel = True if input_is_parallel is _MISSING else input_is_parallel
        self.skip_bias_add = False if skip_bias_add is _MISSING else skip_bias_add
        self.sequence_parallel = _sequence_parallel(config)
        self.config = config
        self.input_size_per_partition = _share(self, input_size, "input_size")
        self.weight = Parameter(torch.empty(output_size, self.input_size_per_partition))
        layout(self.weight, 1, stride)
        if bias or bias is _MISSING:
            self.bias = Parameter(torch.empty(output_size))
            mark(self.bias, "sequence_parallel")
        else:
            self.register_parameter("bias", None)

    def forward(self, input_):
        x = region("row_input" if self.input_is_parallel else "scatter", input_, -1, self.input_size)
        y = region("reduce_from", F.linear(x, self.weight))
        if self.sequence_parallel:
            y = region("sequence_scatter", y, 0)
        if self.bias is not None and not self.skip_bias_add:
            y = y + self.bias
        return result(y, self.bias if self.skip_bias_add else None)


class VocabParallelEmbedding(nn.Module):
    def __init__(self, num_embeddings, embedding_dim, *, init_method=_MISSING, config=_MISSING, reduce_scatter_embeddings=False, tp_group=None):
        super().__init__()
        _required(self, config=config, init_method=init_method)
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.num_embeddings_per_partition = _share(self, num_embeddings, "num_embeddings")
        self.weight = Parameter(torch.empty(self.num_embeddings_per_partition, embedding_dim))

    def forward(self, input_):
        return region("reduce_from", region("vocab", F.embedding(input_, self.weight)))
