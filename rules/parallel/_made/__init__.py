# Values that lint makes up where nothing says them: a configuration whose attributes are made on first read (and stay),
# constructor arguments by what their names say. Sizes fit each other: heads * HEAD = DIM, everything divides by the ranks.
from _shardwright import plain_tp as int_tp, tp
import torch.nn as nn

HEAD = 10
_FLAGS_ON = ("use_bias", "add_bias_linear", "qkv_bias", "perform_initialization", "use_cpu_initialization", "bias", "affine", "elementwise_affine")


def heads():
    return 4 * int_tp()


def kv_heads():
    return 2 * int_tp()


def dim():
    return heads() * HEAD


def init_method(tensor, *args, **kwargs):
    return tensor


class Group:
    name = "tp"

    def size(self):
        return tp()

    def rank(self):
        from _shardwright import rank
        return rank()


def norm_layer(*args, **kwargs):
    return nn.LayerNorm(*args, **kwargs)


class Config:
    """Any configuration object."""

    def __init__(self, *args, **kwargs):
        for name in kwargs:
            setattr(self, name, kwargs[name])

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        value = named(name, None)
        if value is None and name in _FLAGS_ON:
            value = True
        elif value is None and name.startswith(("use_", "is_", "enable_", "apply_", "fp16", "bf16", "fp32", "no_", "with_", "do_")):
            value = False
        setattr(self, name, value)
        return value

    def get(self, name, default=None):
        value = named(name, None)
        return default if value is None else value

    def __getitem__(self, name):
        return getattr(self, name)

    def __contains__(self, name):
        return named(name, None) is not None


def named(name, fallback):
    n = name.lower().strip("_")
    words = n.split("_")
    if n in ("tensor_model_parallel_size", "tp_size", "tp", "tensor_parallel_size", "tp_world_size", "world_size", "mp_size", "model_parallel_size"):
        return tp()
    if n in ("pipeline_model_parallel_size", "pp_size", "pp", "context_parallel_size", "cp_size", "expert_model_parallel_size", "virtual_pipeline_model_parallel_size", "dp_size"):
        return 1
    if n in ("tp_rank", "tensor_model_parallel_rank", "rank", "local_rank"):
        from _shardwright import rank
        return rank()
    if "init" in words and ("method" in words or "fn" in words) or n in ("init", "initializer"):
        return init_method
    if n in ("sequence_parallel", "async_tensor_model_parallel_allreduce", "gradient_accumulation_fusion", "defer_embedding_wgrad_compute"):
        return False
    if n in ("config", "cfg", "conf", "args", "opt", "hparams", "megatron_config", "model_config", "transformer_config", "margs", "params"):
        return Config()
    if "group" in words and "groups" not in words and not ("num" in words or "n" in words or "size" in words) or n in ("pg", "process_group", "tp_pg"):
        return Group()
    if "query" in words and "groups" in words:
        return kv_heads()
    if ("kv" in words or "key" in words or "value" in words) and ("heads" in words or "head" in words) and "dim" not in words and "channels" not in words and "size" not in words:
        return kv_heads()
    if n in ("head_dim", "head_size", "dim_head", "kv_channels", "hd", "d_head", "dim_per_head", "head_width", "channels_per_head", "d_k", "d_v", "attention_head_size", "hidden_size_per_attention_head", "size_per_head", "head_channels"):
        return HEAD
    if "heads" in words or n in ("nhead", "nheads", "n_head", "num_head", "h", "nh", "num_attention_heads"):
        return heads()
    if "ratio" in words:
        return 4
    if "vocab" in words or n in ("num_embeddings", "vocab_size", "n_vocab", "padded_vocab_size", "num_tokens"):
        return 24 * int_tp()
    if n in ("hid", "hidden", "ffn", "inner", "inter", "mlp_dim", "hidden_features", "ffn_hidden_size", "ffn_dim", "intermediate_size", "d_ff", "dim_ff", "dim_feedforward", "hidden_dim", "inner_dim", "ff_dim", "mlp_hidden_dim", "d_inner", "d_hidden", "inner_size", "dff", "mlp_hidden", "mid", "mid_features", "expansion_dim", "mlp_size", "hidden_channels"):
        return 3 * dim() if n != "hidden_dim" or fallback != "dim" else dim()
    if n in ("layers", "num_layers", "n_layer", "n_layers", "depth", "num_blocks", "depths", "num_hidden_layers", "n_block", "layer_num"):
        return 2
    if n in ("layer_number", "layer_idx", "layer_id", "block_idx", "idx", "index", "layer_index"):
        return 1
    if "drop" in words or "dropout" in words or n.startswith("drop") or n.endswith("dropout") or "prob" in words:
        return 0.1
    if "eps" in words or "epsilon" in words or n.endswith("eps"):
        return 1e-5
    if "norm" in words and ("layer" in words or "cls" in words or "fn" in words or "func" in words) and "eps" not in words:
        return nn.LayerNorm
    if "act" in words or "activation" in words or "nonlinearity" in words:
        return nn.GELU if "layer" in words or "cls" in words else nn.functional.gelu
    if "seq" in words or "length" in words or "len" in words or "tokens" in words or "positions" in words or "position" in words or n in ("block_size", "context", "max_len", "num_patches", "n_ctx"):
        return 12
    if n in ("window", "win", "ws", "window_size", "patch", "patch_size", "kernel", "kernel_size", "ksize"):
        return 2
    if n in ("stride", "num_groups", "groups"):
        return 1
    if n in ("classes", "num_classes", "n_classes"):
        return 14
    if n in ("experts", "num_experts", "n_experts"):
        return 4
    if n in ("topk", "top_k", "moe_router_topk"):
        return 2
    if n in ("dtype", "params_dtype"):
        import torch
        return torch.float32
    if n in ("dim", "d", "c", "hidden_size", "embed_dim", "embedding_dim", "d_model", "n_embd", "width", "channels", "n_embed", "features", "in_features", "out_features", "in_dim", "out_dim", "input_size", "output_size", "d_in", "d_out", "in_channels", "out_channels", "input_dim", "output_dim", "model_dim", "emb_dim", "n_state", "planes", "inplanes", "inp", "oup", "emb", "size", "hdim", "in_size", "out_size", "nin", "nout", "dims", "dim_in", "dim_out", "cin", "cout", "in_ch", "out_ch", "ch", "n_dim", "embed", "d_embed", "token_dim", "channel", "context_dim", "query_dim", "kv_dim", "q_dim", "kdim", "vdim", "latent_dim", "projection_size", "out", "wid"):
        return dim()
    if words and words[-1] in ("dim", "size", "width", "channels", "features", "dims", "embd", "chans"):
        return dim()
    return fallback


def argument(name):
    value = named(name, None)
    if value is not None:
        return value
    if name.endswith("bias"):
        return True
    return dim()
