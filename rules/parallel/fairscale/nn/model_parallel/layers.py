# fairscale's layers: a bare tensor comes back, the column layer gathers unless told otherwise, the row layer cuts its input unless told.
import torch
import torch.nn as nn
import torch.nn.functional as F
from _shardwright import layout, note, region, tp
from torch.nn.parameter import Parameter


def _share(layer, size, what):
    if size % tp() != 0:
        note("SW112", f"{what} = {size} cannot be divided over {tp()} model-parallel ranks", layer)
    return size // tp()


class ColumnParallelLinear(nn.Module):
    def __init__(self, in_features, out_features, bias=True, gather_output=True, init_method=None, stride=1, keep_master_weight_for_test=False):
        super().__init__()
        self.in_features, self.out_features, self.gather_output = in_features, out_features, gather_output
        self.output_size_per_partition = _share(self, out_features, "out_features")
        self.weight = Parameter(torch.empty(self.output_size_per_partition, in_features))
        layout(self.weight, 0, stride)
        if bias:
            self.bias = Parameter(torch.empty(self.output_size_per_partition))
            layout(self.bias, 0, stride)
        else:
            self.register_parameter("bias", None)

    def forward(self, input_):
        y = F.linear(region("copy_to", region("column_input", input_)), self.weight, self.bias)
        return region("gather", y, -1) if self.gather_output else y


class RowParallelLinear(nn.Module):
    def __init__(self, in_features, out_features, bias=True, input_is_parallel=False, init_method=None, stride=1, keep_master_weight_for_test=False):
        super().__init__()
        self.in_features, self.out_features, self.input_is_parallel = in_features, out_features, input_is_parallel
        self.input_size_per_partition = _share(self, in_features, "in_features")
        self.weight = Parameter(torch.empty(out_features, self.input_size_per_partition))
        layout(self.weight, 1, stride)
        if bias:
            self.bias = Parameter(torch.empty(out_features))
        else:
            self.register_parameter("bias", None)

    def forward(self, input_):
        x = region("row_input" if self.input_is_parallel else "scatter", input_, -1, self.in_features)
        y = region("reduce_from", F.linear(x, self.weight))
        return y + self.bias if self.bias is not None else y


class ParallelEmbedding(nn.Module):
    def __init__(self, num_embeddings, embedding_dim, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False,
                 init_method=None, keep_master_weight_for_test=False):
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.weight = Parameter(torch.empty(num_embeddings, _share(self, embedding_dim, "embedding_dim")))

    def forward(self, input_):
        return region("gather", F.embedding(region("copy_to", input_), self.weight), -1)


class VocabParallelEmbedding(nn.Module):
    def __init__(self, num_embeddings, embedding_dim, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False, init_method=None):
        super().__init__()
        self.weight = Parameter(torch.empty(_share(self, num_embeddings, "num_embeddings"), embedding_dim))

    def forward(self, input_):
        return region("reduce_from", region("vocab", F.embedding(input_, self.weight)))
