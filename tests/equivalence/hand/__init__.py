"""Writes the hand-made generated folder, whole or with a fault in it."""
import os

import yaml

HERE = os.path.dirname(os.path.abspath(__file__))


def params(stages, depth=4):
    """params.yaml of the model at 1 or 2 stages."""
    first, last = [0], [stages - 1]
    tensors = {
        "wte.weight": {"dims": "v c", "shard": "v", "stage": first, "tied": ["head.weight"]},
        "wpe.weight": {"shard": None, "stage": first},
        "norm.weight": {"shard": None, "stage": last},
        "norm.bias": {"shard": None, "stage": last},
        "head.weight": {"from": "wte.weight", "dims": "v c", "shard": "v", "stage": last},
        "scale": {"kind": "buffer", "shard": None, "stage": last},
    }
    heads = {"q": 3, "h": 4}
    for i in range(depth):
        at = {"stage": [i * stages // depth]}
        block = {
            "norm1.weight": {"shard": None}, "norm1.bias": {"shard": None}, "norm2.weight": {"shard": None}, "norm2.bias": {"shard": None},
            "attn.qkv.weight": {"dims": "(q h d) c", "sizes": heads, "shard": "h"},
            "attn.qkv.bias": {"dims": "(q h d)", "sizes": heads, "shard": "h"},
            "attn.q_norm.weight": {"shard": None, "grad_sum": "tp"}, "attn.q_norm.bias": {"shard": None, "grad_sum": "tp"},
            "attn.bias_table": {"dims": "h t s", "sizes": {"h": 4}, "shard": "h"},
            "attn.proj.weight": {"dims": "o (h d)", "sizes": {"h": 4}, "shard": "h"}, "attn.proj.bias": {"shard": None},
            "mlp.fc1.weight": {"dims": "f c", "shard": "f"}, "mlp.fc1.bias": {"dims": "f", "shard": "f"},
            "mlp.fc2.weight": {"dims": "c f", "shard": "f"}, "mlp.fc2.bias": {"shard": None},
        }
        tensors.update({f"blocks.{i}.{k}": {**v, **at} for k, v in block.items()})
    return {"version": 1, "stages": stages, "tensors": tensors}


def write(folder, stages, edits=(), params_edit=None, job_edit=None):
    """The generated folder. `edits`: (file, old text, new text); each old text must be there."""
    package = os.path.join(folder, "gpt_parallel")
    os.makedirs(package, exist_ok=True)
    text = {}
    for name, source in (("__init__.py", "init"), ("modules.py", "modules"), ("stages.py", f"stages{stages}")):
        with open(os.path.join(HERE, f"{source}.py.txt")) as f:
            text[name] = f.read()
    for name, old, new in edits:
        assert old in text[name], f"{old!r} is not in {name}"
        text[name] = text[name].replace(old, new)
    for name, value in text.items():
        with open(os.path.join(package, name), "w") as f:
            f.write(value)
    table = params(stages)
    if params_edit:
        params_edit(table["tensors"])
    job = {"model": "original:GPT", "python_path": [HERE], "build": "GPT(vocab=32, depth=4)",
           "inputs": {"idx": "i64[2?,8]<32", "keep": "f32[2?,8]~rand"}, "mode": "train", "seed": 3}
    if job_edit:
        job_edit(job)
    plan = {"package": "gpt_parallel", "grid": {"tp": 2, "pp": stages, "dp": 1}, "micro_batches": 4, "job": job}
    for name, value in (("params.yaml", table), ("plan.yaml", plan)):
        with open(os.path.join(folder, name), "w") as f:
            yaml.safe_dump(value, f, sort_keys=False)
    return folder
