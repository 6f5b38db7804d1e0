# torch:: and at:: functions: most are torch's in Python under the same name, some are torch.nn.functional's.
import torch
import torch.nn.functional as F


def manual_seed(*_):
    return None


def pad(x, pad, mode="constant", value=None):
    return F.pad(x, pad, mode, value)


def upsample_nearest2d(x, size, *scales):
    return F.interpolate(x, size=size)


def one_hot(x, classes=-1):
    return F.one_hot(x, classes)


def cross_entropy_loss(x, target, weight=None, reduction=None, ignore_index=-100, label_smoothing=0.0):
    return F.cross_entropy(x, target, weight, ignore_index=ignore_index, label_smoothing=label_smoothing)


def layer_norm(x, shape, weight=None, bias=None, eps=1e-5, cudnn_enable=True):
    return F.layer_norm(x, shape, weight, bias, eps)


def group_norm(x, groups, weight=None, bias=None, eps=1e-5, cudnn_enabled=True):
    return F.group_norm(x, groups, weight, bias, eps)


def gelu(x, approximate="none"):
    return F.gelu(x, approximate=approximate)


def dropout(x, p, train):
    return F.dropout(x, p, train)


def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    return F.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal)


def embedding(weight, ids, padding_idx=-1, scale_grad_by_freq=False, sparse=False):
    return F.embedding(ids, weight)


def mse_loss(x, target, reduction=None):
    return F.mse_loss(x, target)


def meshgrid(tensors, indexing="ij"):
    return torch.meshgrid(*tensors, indexing=indexing)


def _found(where, name):
    found = getattr(where, name, None)
    return found


def __getattr__(name):
    found = _found(torch, name)
    if found is None:
        found = _found(F, name)
    if found is None:
        return torch._unknown("torch::" + name + " is not described")
    return found
