"""The models of testdata/cxx: class, arguments, inputs, parameters in all, and what is split at tp = 2."""

MODELS = {
    "gpt": {
        "file": "gpt.h", "cls": "GPTImpl", "args": "config=GPTConfig(n_layer=2)", "inputs": ["ids=i64[2,16]<96"], "parameters": 32640,
        "split": {"h.0.attn.c_attn", "h.0.attn.c_proj", "h.0.mlp.c_fc", "h.0.mlp.c_proj", "h.1.attn.c_attn", "h.1.attn.c_proj", "h.1.mlp.c_fc", "h.1.mlp.c_proj", "wte", "lm_head"},
    },
    "vit": {
        "file": "vit.hpp", "cls": "vit::ViT", "args": "image=32, patch=8, dim=32, depth=2, heads=4, classes=10", "inputs": ["images=f32[2,3,32,32]"], "parameters": 32554,
        "split": {f"layer{i}.{n}" for i in (0, 1) for n in ("attention.qkv", "attention.proj", "mlp.0", "mlp.2")},
    },
    "translate": {
        "file": "translate.h", "cls": "TranslatorImpl", "args": "source_words=50, target_words=60", "inputs": ["from=i64[2,9]<50", "to=i64[2,7]<60"], "parameters": 66812,
        "split": {f"{side}.{i}.{n}" for side in ("encoder", "decoder") for i in (0, 1) for n in ("attention.q", "attention.k", "attention.v", "attention.out", "ff.up", "ff.down")}
                 | {f"decoder.{i}.cross.{n}" for i in (0, 1) for n in ("q", "k", "v", "out")} | {"source", "target", "words"},
    },
    "swin": {
        "file": "swin.h", "cls": "swin::StageImpl", "args": "", "inputs": ["x=f32[2,64,32]"], "parameters": 25800,
        "split": {f"blocks.{i}.{n}" for i in (0, 1) for n in ("attention", "attention.qkv", "attention.proj", "mlp.0", "mlp.2")},
    },
    "unet": {
        "file": "unet.h", "cls": "UNetImpl", "args": "in_channels=3, out_channels=2", "inputs": ["x=f32[2,3,32,32]"], "parameters": 482754, "split": None,
    },
}
