# Functions of torch.nn.functional that are made of others.
import math

import torch


def glu(input, dim=-1):
    a, b = input.chunk(2, dim)
    return a * b.sigmoid()


def hardswish_(x):
    return hardswish(x)


def silu_(x):
    return silu(x)


def max_unpool2d(*args, **kwargs):
    return torch._unknown("max_unpool2d")


def dropout_(input, p=0.5, training=True):
    return dropout(input, p, training)


def embedding_bag(input, weight, offsets=None, **kwargs):
    if offsets is not None:
        return torch._unknown("embedding_bag with offsets")
    return embedding(input, weight).mean(1)


def log_sigmoid(x):
    return logsigmoid(x)


def softmax_(x, dim):
    return softmax(x, dim)


def pdist(x, p=2.0):
    n = x.shape[0]
    return torch._opaque("torch.nn.functional.pdist", (n * (n - 1) // 2,), x.dtype, x)


def bilinear_(x1, x2, w, b=None):
    return bilinear(x1, x2, w, b)


def triplet_margin_with_distance_loss(anchor, positive, negative, **kwargs):
    return triplet_margin_loss(anchor, positive, negative)


def has_torch_function(*args):
    return False


def _verify_batch_size(size):
    return None


def _canonical_mask(mask, mask_name, other_type, other_name, target_type, check_other=True):
    """A boolean mask as numbers to add."""
    if mask is None:
        return None
    if mask.dtype == torch.bool:
        return torch.zeros_like(mask, dtype=target_type).masked_fill_(mask, float("-inf"))
    return mask


def _none_or_dtype(x):
    return None if x is None else x.dtype


def multi_head_attention_forward(query, key, value, embed_dim_to_check, num_heads, in_proj_weight, in_proj_bias, bias_k, bias_v, add_zero_attn, dropout_p, out_proj_weight, out_proj_bias,
                                 training=True, key_padding_mask=None, need_weights=True, attn_mask=None, use_separate_proj_weight=False, q_proj_weight=None, k_proj_weight=None,
                                 v_proj_weight=None, static_k=None, static_v=None, average_attn_weights=True, is_causal=False):
    batched = query.dim() == 3
    same_kv = key is value
    same_qk = query is key
    if not batched:
        query = query.unsqueeze(1)
        key = query if same_qk else key.unsqueeze(1)
        value = key if same_kv else value.unsqueeze(1)
        if key_padding_mask is not None:
            key_padding_mask = key_padding_mask.unsqueeze(0)
    tgt_len, bsz, embed_dim = query.shape
    if embed_dim != embed_dim_to_check:
        raise AssertionError(f"was expecting embedding dimension of {embed_dim_to_check}, but got {embed_dim}")
    head_dim = embed_dim // num_heads
    key_padding_mask = _canonical_mask(key_padding_mask, "key_padding_mask", None, "attn_mask", query.dtype)
    attn_mask = _canonical_mask(attn_mask, "attn_mask", None, "", query.dtype)
    if use_separate_proj_weight:
        b_q, b_k, b_v = (None, None, None) if in_proj_bias is None else in_proj_bias.chunk(3)
        q = linear(query, q_proj_weight, b_q)
        k = linear(key, k_proj_weight, b_k)
        v = linear(value, v_proj_weight, b_v)
    elif same_kv and same_qk:
        proj = linear(query, in_proj_weight, in_proj_bias)
        q, k, v = proj.chunk(3, -1)
    else:
        w_q, w_k, w_v = in_proj_weight.chunk(3)
        b_q, b_k, b_v = (None, None, None) if in_proj_bias is None else in_proj_bias.chunk(3)
        q = linear(query, w_q, b_q)
        k = linear(key, w_k, b_k)
        v = linear(value, w_v, b_v)
    if bias_k is not None and bias_v is not None:
        k = torch.cat([k, bias_k.repeat(1, bsz, 1)])
        v = torch.cat([v, bias_v.repeat(1, bsz, 1)])
        if attn_mask is not None:
            attn_mask = pad(attn_mask, (0, 1))
        if key_padding_mask is not None:
            key_padding_mask = pad(key_padding_mask, (0, 1))
    src_len = k.shape[0]
    q = q.view(tgt_len, bsz, num_heads, head_dim).permute(1, 2, 0, 3)
    k = k.view(src_len, bsz, num_heads, head_dim).permute(1, 2, 0, 3)
    v = v.view(src_len, bsz, num_heads, head_dim).permute(1, 2, 0, 3)
    if add_zero_attn:
        k = pad(k, (0, 0, 0, 1))
        v = pad(v, (0, 0, 0, 1))
        src_len += 1
        if attn_mask is not None:
            attn_mask = pad(attn_mask, (0, 1))
        if key_padding_mask is not None:
            key_padding_mask = pad(key_padding_mask, (0, 1))
    if attn_mask is not None and attn_mask.dim() == 3:
        attn_mask = attn_mask.view(bsz, num_heads, tgt_len, src_len)
    if key_padding_mask is not None:
        key_padding_mask = key_padding_mask[:, None, None, :]
        attn_mask = key_padding_mask if attn_mask is None else attn_mask + key_padding_mask
    if not training:
        dropout_p = 0.0
    if need_weights:
        scores = torch.matmul(q * math.sqrt(1.0 / float(head_dim)), k.transpose(-2, -1))
        if attn_mask is not None:
            scores = scores + attn_mask
        weights = softmax(scores, dim=-1)
        if dropout_p > 0.0:
            weights = dropout(weights, p=dropout_p)
        out = torch.matmul(weights, v)
    else:
        weights = None
        out = scaled_dot_product_attention(q, k, v, attn_mask, dropout_p, is_causal)
    out = out.permute(2, 0, 1, 3).reshape(tgt_len, bsz, embed_dim)
    out = linear(out, out_proj_weight, out_proj_bias)
    if need_weights and average_attn_weights:
        weights = weights.mean(dim=1)
    if not batched:
        out = out.squeeze(1)
        if need_weights:
            weights = weights.squeeze(0)
    return out, weights
