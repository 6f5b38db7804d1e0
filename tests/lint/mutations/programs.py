"""Correct parallel programs, and what one of them computes on simulated ranks: outputs, gradients, and which parameters it has."""
import dataclasses
import importlib
import inspect
import subprocess
import threading
import zlib
from pathlib import Path

import libraries
import torch
import yaml
from ranks import WORLD, Hang

ROOT = Path(__file__).resolve().parents[3]
CONSTRUCTING = threading.Lock()
GENERATED = {"runtime": ["gpt_tied", "swin_block", "parallel_block"], "megatron": ["swin_block"], "onescience": ["unet_attention"]}
INPUTS = {"gpt_tied": {"ids": {"integers": [2, 16], "below": 96}, "targets": {"integers": [2, 16], "below": 96}}, "swin_block": {"image": [1, 3, 32, 32]},
          "unet_attention": {"x": [1, 3, 16, 16]}, "parallel_block": {"x": [2, 6, 12]}}


@dataclasses.dataclass
class Program:
    name: str
    files: dict          # every file, by its path
    mutable: list        # where faults are put
    module: str
    stages: str          # an expression in the module
    inputs: dict
    lint_paths: tuple = (".",)
    python_path: tuple = ()
    draws: bool = True   # dropout is on: what it draws is a function of the rank here


def hand_written(folder=ROOT / "testdata/parallel"):
    for name, how in yaml.safe_load((folder / "programs.yaml").read_text()).items():
        yield Program(name, {f"{name}.py": (folder / f"{name}.py").read_text()}, [f"{name}.py"], name, how["stages"], how["inputs"])


def generated(binary, work):
    """What convert writes for the models of testdata at tp 2 in two stages."""
    for target, models in GENERATED.items():
        for model in models:
            out = Path(work) / f"{model}-{target}"
            done = subprocess.run([binary, "convert", ROOT / f"testdata/{model}.yaml", "--tp", "2", "--pp", "2", "--target", target, "--force", "-o", out], capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"convert {model} for {target}: {done.stderr[-1500:]}")
            files = {str(f.relative_to(out)): f.read_text() for f in sorted(out.rglob("*")) if f.suffix in (".py", ".sh", ".yaml") and "/generated/" not in str(f)}
            package = next(f for f in files if f.endswith("__init__.py") and "build_stage" in files[f])
            package = package[: -len("/__init__.py")]
            # The module files and the stage files; not the helpers, which are written once for every model, nor the training script.
            mutable = [f for f in files if f.endswith(".py") and "def forward(" in files[f] and "parts" not in Path(f).stem]
            yield Program(f"{model}-{target}", files, mutable, package.replace("/", "."), "[build_stage(0, config), build_stage(1, config)]", INPUTS[model], python_path=(str(ROOT / "testdata"),), draws=False)


def programs(binary, work):
    return [*hand_written(), *generated(binary, work)]


# ---- running -------------------------------------------------------------------------------------------------------------------------


def seeded(name):
    return torch.Generator().manual_seed(zlib.crc32(name.encode()))


def make_input(name, spec):
    if isinstance(spec, dict):
        return torch.randint(0, spec["below"], spec["integers"], generator=seeded(name))
    return torch.randn(spec, generator=seeded(name), dtype=torch.float64)


def layout(tensor):
    """(dim, [(size of the whole, outer)]) of a cut parameter; None."""
    if getattr(tensor, "shard", None) is not None:
        return tensor.shard.dim % tensor.dim(), [(size, outer) for size, outer, _ in tensor.shard.segments]
    if getattr(tensor, "tensor_model_parallel", False):
        dim = tensor.partition_dim
        pieces = getattr(tensor, "partition_pieces", None)
        return dim % tensor.dim(), pieces or [(tensor.shape[dim] * WORLD.size, tensor.partition_stride)]
    return None


def cut(whole, how):
    dim, pieces = how
    out, at = [], 0
    for size, outer in pieces:
        out.append(WORLD.slice(whole.narrow(dim, at, size), dim, outer))
        at += size
    return torch.cat(out, dim)


def merge(parts, how):
    dim, pieces = how
    out, at = [], 0
    for size, outer in pieces:
        n = size // WORLD.size
        local = [p.narrow(dim, at, n).unflatten(dim, (outer, -1)) for p in parts]
        out.append(torch.stack(local, dim + 1).flatten(dim, dim + 2))
        at += n
    return torch.cat(out, dim)


def load(module, prefix):
    """Weights by name, each the slice of a whole one that its marks say; unmarked ones as they are in a checkpoint: the first rank's."""
    with torch.no_grad():
        for name, p in module.named_parameters():
            how = layout(p)
            shape = list(p.shape)
            if how:
                shape[how[0]] = sum(size for size, _ in how[1])
            bare = name.split(".")
            whole = 0.4 * torch.randn(shape, generator=seeded(prefix + ".".join(bare)), dtype=torch.float64) + (1.0 if "norm" in name and name.endswith("weight") else 0.0)
            p.copy_(cut(whole, how) if how else whole)


def tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for v in value for t in tensors(v)] if isinstance(value, (list, tuple)) else []


def arguments(stage, first, inputs):
    names = inspect.signature(stage.forward).parameters
    wanted = inputs if first else getattr(stage, "needs_inputs", ())
    given = {n: inputs[n] for n in wanted if n in names and n in inputs}
    return ([], given) if given or not names else ([None], {})


def run_rank(program, module):
    """What one rank computes, as the schedule would: every stage gets detached tensors and gives their gradients back."""
    names = dict(vars(module), config=libraries.CONFIG)
    with CONSTRUCTING:  # constructors meet nobody; our runtime's are not made for threads
        stages = eval(program.stages, names)
    WORLD.exchange(None)   # "whole parameters" is a state of the process
    inputs = {n: make_input(n, s) for n, s in program.inputs.items()}
    sent, received = [], []
    for k, stage in enumerate(stages):
        load(stage, f"{k}.")
        stage.train(program.draws)
        if k:
            got = []
            for t in sent[-1]:
                if t is not None and not t.is_floating_point():
                    raise Hang("an integer tensor crosses")
                got.append(None if t is None else t.detach().clone().requires_grad_(True))
            received.append(got)
            stage.set_input_tensor(list(got))
        args, kwargs = arguments(stage, k == 0, inputs)
        out = stage(*args, **kwargs)
        if k + 1 < len(stages):
            if not isinstance(out, tuple):
                raise RuntimeError("a stage that is not the last returns no tuple")
            sent.append([t if t is None or isinstance(t, torch.Tensor) else bad_crossing(t) for t in out])
        if len(stages) > 1 and hasattr(type(stage), "state_dict_for_save_checkpoint"):
            for hook in ("config", "pre_process", "share_embeddings_and_output_weights", "set_input_tensor"):
                getattr(stage, hook)
    result = {"outputs": [t.detach().clone() for t in tensors(out)], "packed": isinstance(out, tuple)}
    loss = sum((torch.linspace(0.5, 1.5, t.numel(), dtype=t.dtype).reshape(t.shape) * (t + 0.5 * t * t)).mean() for t in tensors(out))
    loss.backward()
    for k in reversed(range(len(sent))):
        pairs = [(s, r.grad) for s, r in zip(sent[k], received[k]) if s is not None]
        for _, g in pairs:
            if g is None:
                raise Hang("a received tensor got no gradient")
        pairs = [(s, g) for s, g in pairs if s.requires_grad]
        torch.autograd.backward([s for s, _ in pairs], [g for _, g in pairs])
    result["gradients"], result["layouts"] = {}, {}
    for k, stage in enumerate(stages):
        for name, p in stage.named_parameters():
            g = p.grad
            if g is not None and getattr(p, "sum_gradient_over_tp", False):
                g = WORLD.all_reduce(g)
            result["gradients"][f"{k}.{name}"] = g
            result["layouts"][f"{k}.{name}"] = layout(p)
    return result


def bad_crossing(value):
    raise Hang(f"{type(value).__name__} crosses")


def run(program, folder):
    """{outputs, gradients} of the whole program, parts of the ranks put together; raises what the program raises."""
    with libraries.imports_from(folder):
        module = importlib.import_module(program.module)
        parts = WORLD.run(lambda rank: run_rank(program, module))
    out = {"outputs": [p["outputs"] for p in parts], "packed": parts[0]["packed"], "gradients": {}}
    for name, how in parts[0]["layouts"].items():
        grads = [p["gradients"][name] for p in parts]
        if any(g is None for g in grads):
            out["gradients"][name] = None
        else:
            out["gradients"][name] = [merge(grads, how)] if how else grads
    return out


def same(a, b, bound=1e-7):
    """Do two results hold the same numbers? With the first difference's name."""
    def close(x, y):
        if x is None or y is None:
            return x is y
        if x.shape != y.shape:
            return False
        return bool((x - y).abs().max() <= bound * max(1e-3, float(y.abs().max()))) if x.numel() else True

    if a["packed"] != b["packed"]:
        return "the result is packed"
    for x, y in zip(a["outputs"], b["outputs"]):
        if len(x) != len(y) or not all(close(s, t) for s, t in zip(x, y)):
            return "outputs"
    if set(a["gradients"]) != set(b["gradients"]):
        return "parameters " + ", ".join(sorted(set(a["gradients"]) ^ set(b["gradients"]))[:3])
    for name, x in a["gradients"].items():
        y = b["gradients"][name]
        if (x is None) != (y is None):
            return f"gradient of {name}"
        if x is not None and not all(close(s, t) for s, t in zip(x * len(y) if len(x) < len(y) else x, y * len(x) if len(y) < len(x) else y)):
            return f"gradient of {name}"
    return ""
