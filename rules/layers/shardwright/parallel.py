# The runtime's layers as the abstract interpreter sees them: sizes on one of TP ranks, collectives as what they do to shapes.
# Used when generated code is analysed again; runtime/python/shardwright/parallel is the real thing, and its names are these.
import functools

import torch
import torch.nn as nn
import torch.nn.functional as F
from _shardwright import layout, mark, note, rank as tp_rank, region, result, tp as tp_size


def _local(size, what="dimension"):
    if size % tp_size() != 0:
        raise ValueError(f"{what} of size {size} cannot be divided over {tp_size()} ranks")
    return size // tp_size()


def copy_to_tensor_model_parallel_region(x):
    return region("copy_to", x)


def reduce_from_tensor_model_parallel_region(x):
    return region("reduce_from", x)


def gather_from_tensor_model_parallel_region(x, dim=-1, sizes=None):
    return region("gather", x, dim)


def scatter_to_tensor_model_parallel_region(x, dim=-1, sizes=None):
    return local_slice(x, dim, sizes=sizes)


def local_slice(x, dim, factors=None, sizes=None):
    return _cut(region("scatter", x, dim, x.shape[dim]), dim, factors, sizes)


def _cut(tensor, dim, factors, segments):
    """How the blocks of a dimension lie: `factors` whole outer blocks, or segments."""
    if segments is not None or isinstance(factors, (tuple, list)):
        return layout(tensor, dim, 0)
    return layout(tensor, dim, factors) if factors is not None else tensor


def local_sizes(sizes, dim):
    out = list(sizes)
    out[dim] = _local(out[dim])
    return tuple(out)


def row_parallel(function, *args, **kwargs):
    if isinstance(function, functools.partial):
        return row_parallel(function.func, *function.args, *args, **{**function.keywords, **kwargs})
    for added, product in ((torch.addmm, torch.mm), (torch.baddbmm, torch.bmm), (torch.addmv, torch.mv)):
        if function is added:  # the bias comes first; its factors change no size
            bias, a, b = args
            return region("reduce_from", product(a, b)) + bias
    return _row_parallel(function, *args, **kwargs)


def _row_parallel(function, x, weight, bias=None, *args, **kwargs):
    y = region("reduce_from", function(x, weight, None, *args, **kwargs))
    if bias is None:
        return y
    if function is not F.linear and y.dim() > 1:
        bias = bias.reshape(-1, *([1] * (weight.dim() - 2)))
    return y + bias


def row_parallel_module(module, *args, **kwargs):
    bias = module.bias
    if bias is None:
        return region("reduce_from", module(*args, **kwargs))
    module._parameters["bias"] = None
    y = region("reduce_from", module(*args, **kwargs))
    module._parameters["bias"] = bias
    spatial = module.weight.dim() - 2
    return y + bias.view(-1, *[1] * spatial)


def vocab_parallel(function, *args, **kwargs):
    return region("reduce_from", region("vocab", function(*args, **kwargs)))


def sharded_random(function, *args, **kwargs):
    note("rng", "enter")
    out = function(*args, **kwargs)
    note("rng", "leave")
    return out


def keep_slices(module):
    return module


class whole_parameters:  # sizes are local from the start here
    def __enter__(self):
        return self

    def __exit__(self, *error):
        return False


class built_as:
    def __init__(self, original, cls):
        self.original, self.cls = original, cls

    def __enter__(self):
        original, cls = self.original, self.cls
        original.__new__ = staticmethod(lambda called, *args, **kwargs: cls(*args, **kwargs) if called is original else object.__new__(called))
        return self

    def __exit__(self, *error):
        return False


def sum_gradients_over_tp(target):
    for parameter in target.parameters() if isinstance(target, nn.Module) else [target]:
        mark(parameter, "sum_gradients_over_tp")
    return target


def rebind(callee, cls):
    import functools
    if cls is callee or not isinstance(callee, functools.partial):
        return cls
    return functools.partial(cls, *callee.args, **callee.keywords)


def shard_parameter(tensor, dim, factors=None, segments=None):
    local = region("scatter", tensor, dim, tensor.shape[dim])
    if isinstance(tensor, nn.Parameter):
        local = nn.Parameter(local)
    elif isinstance(tensor, nn.Buffer):
        local = nn.Buffer(local, persistent=tensor.persistent)
    return _cut(local, dim, factors, segments)


def shard_module(module, **parameters):
    for name, how in parameters.items():
        owner = module
        path = name.replace("__", ".").split(".")
        for step in path[:-1]:
            owner = getattr(owner, step)
        tensor = getattr(owner, path[-1], None)
        if tensor is None or tp_size() == 1:
            continue
        dim = how if isinstance(how, int) else how["dim"] if isinstance(how, dict) else how[0]
        dim = dim % tensor.dim()
        full = tensor.shape[dim]
        outer = None if isinstance(how, (int, dict)) or len(how) < 2 else how[1]
        setattr(owner, path[-1], shard_parameter(tensor, dim, outer))
        _fix_sizes(owner, path[-1], dim, full)
    return module


def _fix_sizes(module, name, dim, full):
    if name == "weight" and isinstance(module, (nn.LayerNorm, nn.RMSNorm)):
        shape = list(module.normalized_shape)
        shape[dim] = full // tp_size()
        module.normalized_shape = tuple(shape)
    elif name == "weight" and getattr(module, "groups", 1) > 1 and dim == 0:
        module.groups = module.groups // tp_size()
        module.in_channels, module.out_channels = module.in_channels // tp_size(), module.out_channels // tp_size()
    elif name == "weight" and isinstance(module, nn.GroupNorm):
        module.num_channels, module.num_groups = full // tp_size(), module.num_groups // tp_size()


class Absent(nn.Module):
    def __init__(self, *args, **kwargs):
        super().__init__()

    def forward(self, *args, **kwargs):
        return args[0] if args else None

    def load_state_dict(self, state_dict, strict=True, assign=False):
        if strict and len(state_dict):
            raise RuntimeError("Error(s) in loading state_dict for Absent: unexpected keys")


def stands_for(original):
    return original


def drop_unused(module, keep_prefixes):
    keep = list(keep_prefixes)

    def inside(name):
        for k in keep:
            if k == "" or name == k or name.startswith(k + "."):
                return True
        return False

    def leads_to(name):
        for k in keep:
            if k.startswith(name + "."):
                return True
        return False

    def visit(owner, prefix):
        for name in [n for n, _ in owner.named_parameters(recurse=False)] + [n for n, _ in owner.named_buffers(recurse=False)]:
            if not inside(prefix + name):
                setattr(owner, name, None)
        for name, child in list(owner.named_children()):
            if inside(prefix + name):
                continue
            if leads_to(prefix + name) or isinstance(child, (torch.nn.ModuleList, torch.nn.ModuleDict)):
                visit(child, prefix + name + ".")
            else:
                setattr(owner, name, Absent())

    visit(module, "")
    return module


def attributes_only(module, names):
    for name in names:
        path = name.split(".")
        owner = module
        for step in path[:-1]:
            owner = getattr(owner, step)
        found = getattr(owner, path[-1])
        if not isinstance(found, nn.Module):
            _describe(owner, path[-1])
            continue
        tensors = []
        for each in list(found.modules()):
            for leaf in [n for n, _ in each.named_parameters(recurse=False)] + [n for n, _ in each.named_buffers(recurse=False)]:
                _describe(each, leaf)
                tensors.append(getattr(each, leaf))
        found.parameters = lambda recurse=True, tensors=tensors: iter(tensors)
    return module


def _describe(owner, name):
    tensor = getattr(owner, name)
    delattr(owner, name)
    setattr(owner, name, torch.empty(tensor.shape, dtype=tensor.dtype))


class ColumnParallelLinear(nn.Linear):
    def __init__(self, in_features, out_features, bias=True, *, stride=1, segments=None, gather_output=False, disable_grad_reduce=False,
                 return_bias=True, config=None, init_method=None, device=None, dtype=None):
        super().__init__(in_features, _local(out_features, "out_features"), bias)
        self.out_features = out_features
        self.gather_output, self.return_bias, self.disable_grad_reduce = gather_output, return_bias, disable_grad_reduce
        for parameter in self.parameters():
            layout(parameter, 0, stride if segments is None else 0)

    def forward(self, x):
        x = region("column_input", x)
        if not self.disable_grad_reduce:
            x = region("copy_to", x)
        y = F.linear(x, self.weight, self.bias)
        if self.gather_output:
            y = gather_from_tensor_model_parallel_region(y)
        return result(y, None) if self.return_bias else y


class RowParallelLinear(nn.Linear):
    def __init__(self, in_features, out_features, bias=True, *, input_is_parallel=True, stride=1, segments=None, skip_bias_add=False, reduce_output=True,
                 return_bias=True, config=None, init_method=None, device=None, dtype=None):
        super().__init__(_local(in_features, "in_features"), out_features, bias)
        self.in_features = in_features
        self.input_is_parallel, self.return_bias, self.skip_bias_add, self.reduce_output = input_is_parallel, return_bias, skip_bias_add, reduce_output
        layout(self.weight, 1, stride if segments is None else 0)

    def forward(self, x):
        x = region("row_input" if self.input_is_parallel else "scatter", x, -1, self.in_features)
        y = F.linear(x, self.weight)
        if self.reduce_output:
            y = region("reduce_from", y)
        if self.bias is not None and not self.skip_bias_add:
            y = y + self.bias
        return result(y, self.bias if self.skip_bias_add else None) if self.return_bias else y


class VocabParallelEmbedding(nn.Embedding):
    def __init__(self, num_embeddings, embedding_dim, padding_idx=None, *args, **kwargs):
        super().__init__(_local(num_embeddings, "num_embeddings"), embedding_dim)
        self.num_embeddings, self.padding_idx = num_embeddings, padding_idx

    def forward(self, ids):
        return region("reduce_from", region("vocab", F.embedding(ids, self.weight)))


class ParallelMultiheadAttention(nn.Module):
    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=True, add_bias_kv=False, add_zero_attn=False, kdim=None, vdim=None,
                 batch_first=False, device=None, dtype=None, **kwargs):
        super().__init__()
        self.embed_dim, self.num_heads, self.batch_first = embed_dim, num_heads, batch_first
        self.head_dim = embed_dim // num_heads
        self.kdim = kdim if kdim is not None else embed_dim
        self.vdim = vdim if vdim is not None else embed_dim
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        _local(num_heads, "num_heads")
        local = _local(embed_dim)
        if self._qkv_same_embed_dim:
            self.in_proj_weight = nn.Parameter(torch.empty(3 * local, embed_dim))
            self.register_parameter("q_proj_weight", None)
            self.register_parameter("k_proj_weight", None)
            self.register_parameter("v_proj_weight", None)
        else:
            self.q_proj_weight = nn.Parameter(torch.empty(local, embed_dim))
            self.k_proj_weight = nn.Parameter(torch.empty(local, self.kdim))
            self.v_proj_weight = nn.Parameter(torch.empty(local, self.vdim))
            self.register_parameter("in_proj_weight", None)
        if bias:
            self.in_proj_bias = nn.Parameter(torch.empty(3 * local))
        else:
            self.register_parameter("in_proj_bias", None)
        for packed in (self.in_proj_weight if self._qkv_same_embed_dim else None, self.in_proj_bias):
            if packed is not None:
                layout(packed, 0, 3)
        self.out_proj = RowParallelLinear(embed_dim, embed_dim, bias=bias, return_bias=False)

    def forward(self, query, key, value, key_padding_mask=None, need_weights=True, attn_mask=None, average_attn_weights=True, is_causal=False):
        local = _local(self.embed_dim)
        same, other = query is key, key is value
        query = region("copy_to", query)
        key = query if same else region("copy_to", key)
        value = key if other else region("copy_to", value)
        if self._qkv_same_embed_dim:
            wq, wk, wv = self.in_proj_weight.chunk(3)
        else:
            wq, wk, wv = self.q_proj_weight, self.k_proj_weight, self.v_proj_weight
        bq = self.in_proj_bias[:local] if self.in_proj_bias is not None else None
        q, k, v = F.linear(query, wq, bq), F.linear(key, wk, bq), F.linear(value, wv, bq)
        batched = query.dim() == 3
        if not batched:
            q, k, v = q.unsqueeze(0), k.unsqueeze(0), v.unsqueeze(0)
        elif not self.batch_first:
            q, k, v = q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1)
        b, n, m = q.shape[0], q.shape[1], k.shape[1]
        heads = _local(self.num_heads)
        q = q.reshape(b, n, heads, self.head_dim).transpose(1, 2)
        k = k.reshape(b, m, heads, self.head_dim).transpose(1, 2)
        v = v.reshape(b, m, heads, self.head_dim).transpose(1, 2)
        weights = (q @ k.transpose(-2, -1)).softmax(-1)
        y = self.out_proj((weights @ v).transpose(1, 2).reshape(b, n, local))
        if not batched:
            y = y.squeeze(0)
        elif not self.batch_first:
            y = y.transpose(0, 1)
        if not need_weights:
            return y, None
        weights = region("reduce_from", weights.mean(1)) if average_attn_weights else gather_from_tensor_model_parallel_region(weights, 1)
        return y, weights if batched else weights.squeeze(0)


class ShardedDropout(nn.Module):
    def __init__(self, p=0.5, inplace=False, dim=None, sizes=None):
        super().__init__()
        self.p = p

    def forward(self, x):
        return sharded_random(F.dropout, x, self.p, self.training)


def _parallel_convolution(base, kind):
    class ParallelConvolution(base):
        def __init__(self, in_channels, out_channels, *args, gather_output=False, input_is_parallel=True, disable_grad_reduce=False,
                     return_bias=True, config=None, shard_stride=1, **kwargs):
            self.gather_output, self.return_bias, self.input_is_parallel = gather_output, return_bias, input_is_parallel
            if kind == "group":
                if len(args) > 4:
                    args = args[:4] + (_local(args[4], "groups"),) + args[5:]
                else:
                    kwargs["groups"] = _local(kwargs["groups"], "groups")
            local_in = in_channels if kind == "column" else _local(in_channels, "in_channels")
            local_out = out_channels if kind == "row" else _local(out_channels, "out_channels")
            super().__init__(local_in, local_out, *args, **kwargs)
            self.disable_grad_reduce = disable_grad_reduce
            turned = isinstance(self, nn.modules.conv._ConvTransposeNd)
            layout(self.weight, {"column": int(turned), "row": 1 - int(turned), "group": 0}[kind], shard_stride)
            if self.bias is not None and kind != "row":
                layout(self.bias, 0, shard_stride)

        def forward(self, x, *args, **kwargs):
            if kind == "column" and not self.disable_grad_reduce:
                x = region("copy_to", x)
            elif kind == "row":
                if not self.input_is_parallel:
                    x = region("scatter", x, 1)
                bias, self.bias = self.bias, None
                y = region("reduce_from", super().forward(x, *args, **kwargs))
                self.bias = bias
                if bias is not None:
                    y = y + bias.reshape(-1, *([1] * (self.weight.dim() - 2)))
                return result(y, None) if self.return_bias else y
            y = super().forward(x, *args, **kwargs)
            if kind == "column" and self.gather_output:
                y = region("gather", y, 1)
            return result(y, None) if self.return_bias else y

    return ParallelConvolution


ColumnParallelConv1d = _parallel_convolution(nn.Conv1d, "column")
ColumnParallelConv2d = _parallel_convolution(nn.Conv2d, "column")
ColumnParallelConv3d = _parallel_convolution(nn.Conv3d, "column")
ColumnParallelConvTranspose1d = _parallel_convolution(nn.ConvTranspose1d, "column")
ColumnParallelConvTranspose2d = _parallel_convolution(nn.ConvTranspose2d, "column")
ColumnParallelConvTranspose3d = _parallel_convolution(nn.ConvTranspose3d, "column")
RowParallelConv1d = _parallel_convolution(nn.Conv1d, "row")
RowParallelConv2d = _parallel_convolution(nn.Conv2d, "row")
RowParallelConv3d = _parallel_convolution(nn.Conv3d, "row")
RowParallelConvTranspose1d = _parallel_convolution(nn.ConvTranspose1d, "row")
RowParallelConvTranspose2d = _parallel_convolution(nn.ConvTranspose2d, "row")
RowParallelConvTranspose3d = _parallel_convolution(nn.ConvTranspose3d, "row")
GroupParallelConv1d = DepthwiseParallelConv1d = _parallel_convolution(nn.Conv1d, "group")
GroupParallelConv2d = DepthwiseParallelConv2d = _parallel_convolution(nn.Conv2d, "group")
GroupParallelConv3d = DepthwiseParallelConv3d = _parallel_convolution(nn.Conv3d, "group")


def parallel_layer(module, cls, **options):
    if isinstance(module, nn.Linear):
        return cls(module.in_features, module.out_features, bias=module.bias is not None, **options)
    if isinstance(module, nn.Dropout):
        return cls(module.p, module.inplace)
    if hasattr(module, "kernel_size"):
        return cls(module.in_channels, module.out_channels, kernel_size=module.kernel_size, stride=module.stride, padding=module.padding,
                   dilation=module.dilation, groups=module.groups, bias=module.bias is not None, **options)
    return module
