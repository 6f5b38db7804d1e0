"""One tensor-parallel rank: builds all stages of a generated model, chains them, compares output, loss and gradients with the original's.

    torch.distributed.run … stage_worker.py SPEC.json RESULT.json
"""
import importlib
import json
import os
import sys
import types
import zlib

import torch
import torch.distributed as dist
import yaml

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import shim  # noqa: E402


def tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for v in value for t in tensors(v)] if isinstance(value, (list, tuple)) else []


def loss_of(output):
    """Tells permuted outputs apart."""
    total = 0
    for t in tensors(output):
        ramp = torch.linspace(0.5, 1.5, t.numel(), dtype=t.dtype).reshape(t.shape)
        total = total + (ramp * (t + 0.5 * t * t)).mean()
    return total


def perturb(model):
    with torch.no_grad():
        for name, p in model.named_parameters():
            g = torch.Generator().manual_seed(zlib.crc32(name.encode()))
            p.add_(0.02 * torch.randn(p.shape, generator=g, dtype=torch.float64))


def relative(a, b, floor):
    return float((a - b).abs().max() / max(float(b.abs().max()), floor))


def compare(spec):
    sys.path[:0] = spec["python_path"]
    shim.install(spec["packages"])
    if spec.get("prepare"):
        exec(compile(open(spec["prepare"]).read(), spec["prepare"], "exec"), {"__name__": "prepare", "SPEC": spec})
    tp = dist.get_world_size()
    config = shim.STATE["config"]
    package = importlib.import_module(spec["package"])
    parts = importlib.import_module(spec["support"])
    module, _, name = spec["model"].rpartition(":")
    names = {"torch": torch, "NS": types.SimpleNamespace, **vars(importlib.import_module(module))}
    torch.manual_seed(0)
    original = eval(spec["build"], names).eval()
    perturb(original)
    if spec.get("train"):
        original.train()
    inputs = {}
    for key, shape in spec["inputs"].items():
        inputs[key] = torch.randn(shape, generator=torch.Generator().manual_seed(zlib.crc32(key.encode()))) if isinstance(shape, list) else eval(shape, names)

    def call(model):
        return eval(spec["call"], dict(names, model=model, **inputs)) if spec.get("call") else model(*inputs.values())

    wanted = call(original)
    loss_of(wanted).backward()

    stages = [package.build_stage(k, config).eval() for k in range(spec["pp"])]
    state = original.state_dict(keep_vars=False)
    whole = {n: t for n, t in list(original.named_buffers())}
    for stage in stages:
        parts.load_serial_state_dict(stage, {**whole, **state})
        for hook in ("pre_process", "share_embeddings_and_output_weights", "set_input_tensor", "state_dict_for_save_checkpoint", "sharded_state_dict"):
            assert hasattr(stage, hook), hook
        assert stage.config is config
    crossing, output = None, None
    for k, stage in enumerate(stages):
        if k:
            stage.set_input_tensor(list(crossing))
        output = call(stage) if k == 0 else stage(**{n: inputs[n] for n in stage.needs_inputs}) if stage.needs_inputs else stage(None)
        if k + 1 < len(stages):
            assert isinstance(output, tuple), "a stage that is not the last returns a tuple"
            crossing = output
    loss_of(output).backward()

    result = {"outputs": 0.0, "gradients": 0.0, "compared": 0, "worst": "", "sharded": 0, "missing": []}
    pairs = list(zip(tensors(output), tensors(wanted)))
    assert len(pairs) == len(tensors(wanted)) == len(tensors(output))
    result["outputs"] = max(relative(a, b, 1e-30) for a, b in pairs)
    table = yaml.safe_load(open(spec["params"]))["tensors"]
    sys.path.append(spec["runtime"])
    from shardwright.parallel.params import Entry
    reference = dict(original.named_parameters())
    floor = 1e-6 * max(float(p.grad.abs().max()) for p in reference.values() if p.grad is not None)
    seen = set()
    for stage in stages:
        for name, p in stage.named_parameters():
            entry = Entry.read(name, table[name])
            seen.add(name)
            full = reference[name].grad
            if (full is None) != (p.grad is None):
                result["missing"].append(name)
                continue
            if full is None:
                continue
            local = entry.slice(full, dist.get_rank(), tp)
            result["sharded"] += entry.shard is not None
            assert entry.shard is None or getattr(p, "tensor_model_parallel", False), name + " is sharded and not marked"
            difference = relative(p.grad, local, floor)
            result["compared"] += 1
            if difference > result["gradients"] or difference != difference:
                result["gradients"], result["worst"] = difference, name
    result["missing"] += [n for n in reference if n not in seen]
    # A checkpoint's keys: fused parameters in parts.
    sharded = stages[0].sharded_state_dict(prefix="model.")
    result["checkpoint_entries"] = len(sharded)
    return result


def main():
    spec_file, result_file = sys.argv[1:3]
    shim.install(json.load(open(spec_file))[0]["packages"])
    shim.start(int(os.environ["WORLD_SIZE"]))
    results = []
    for spec in json.load(open(spec_file)):
        try:
            result = compare(spec)
        except Exception as error:  # noqa: BLE001
            import traceback
            result = {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()}
        results.append(result)
        everyone = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, result)
        if "error" in result:
            break
        result["outputs"] = max(r.get("outputs", 9e9) for r in everyone)
        result["gradients"] = max(r.get("gradients", 9e9) for r in everyone)
    if dist.get_rank() == 0:
        json.dump(results, open(result_file, "w"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
