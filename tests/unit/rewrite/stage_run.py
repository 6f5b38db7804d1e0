"""Runs generated stages against the original model: stage_run.py REPORT.json.

The report holds, for each model, the definitions that the specialiser printed and the stages of one or more partitions. For
each partition the stages are built, loaded from the original's state dict, chained, and compared with the original: outputs
and gradients must be the same to the bit (outputs) and to rounding (gradients, sums may be ordered differently).
"""
import ast
import copy
import functools
import importlib
import importlib.util
import json
import os
import sys
import traceback

import torch
from torch import nn

HERE = os.path.dirname(os.path.abspath(__file__))


def parallel():
    """shardwright.parallel without its extension: the names that slices use."""
    path = os.path.join(HERE, "..", "..", "..", "runtime", "python", "shardwright", "parallel", "shards.py")
    tree = ast.parse(open(path).read())
    space = {"nn": nn, "torch": torch, "functools": functools, "keep_slices": lambda module: module}
    names = ("Absent", "drop_unused", "attributes_only")
    for node in tree.body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name in (*names, "_stand_in", "_describe", "_described_parameters", "_same"):
            exec(compile(ast.Module([node], []), path, "exec"), space)
    return {n: space[n] for n in names}


def load(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


class Received(torch.autograd.Function):
    """What the runtime hands to a stage: no leaf, so that it may be changed in place."""

    @staticmethod
    def forward(ctx, x):
        return x.detach()

    @staticmethod
    def backward(ctx, g):
        return g


def flat(x):
    if torch.is_tensor(x):
        return [x]
    if isinstance(x, dict):
        return [t for v in x.values() for t in flat(v)]
    if isinstance(x, (list, tuple)):
        return [t for v in x for t in flat(v)]
    if hasattr(x, "__dict__"):
        return [t for v in vars(x).values() for t in flat(v)]
    return []


def make_input(spec):
    if "expr" in spec:
        return eval(spec["expr"], {"torch": torch})
    shape, dtype = spec["shape"], getattr(torch, spec["dtype"])
    if dtype == torch.bool:
        return torch.rand(shape) > 0.5
    if not dtype.is_floating_point:
        low, high = spec.get("low", 0), spec.get("high", 0)
        return torch.randint(low, high if high > low else low + 4, shape, dtype=dtype)
    return torch.randn(shape, dtype=dtype)


def loss_of(out):
    total = 0.0
    for i, t in enumerate(flat(out)):
        if t.is_floating_point() and t.requires_grad:
            total = total + (t * torch.linspace(-1, 1, t.numel(), dtype=t.dtype).view(t.shape)).sum() * (i + 1)
    return total


class Model:
    def __init__(self, report):
        self.report = report
        for p in report["python_path"]:
            if p not in sys.path:
                sys.path.insert(0, p)
        if report.get("prepare"):
            exec(open(report["prepare"]).read(), {})
        self.modules = {}
        space = {}
        file, cls = report["model"].rsplit(":", 1)
        module = load(file, report["entry_module"]) if file.endswith(".py") else importlib.import_module(file)
        self.cls = getattr(module, cls)
        space[cls] = self.cls
        for name, target in report.get("imports", []):
            mod, _, attr = target.rpartition(".")
            space[name] = getattr(importlib.import_module(mod), attr)
        space["torch"], space["nn"] = torch, nn
        if report.get("setup"):
            exec(report["setup"], space)
        self.space = space

    def build(self, cls):
        torch.manual_seed(1)
        r = self.report
        space = dict(self.space)
        space[self.report["model"].rsplit(":", 1)[1]] = cls
        if r.get("build"):
            text = r["build"]
            return eval(text, space)
        return cls(**{k: eval(v, space) for k, v in r["args"]})

    def classes(self, definitions):
        names = parallel()
        spaces = []
        for d in definitions:
            ast.parse(d["text"])
            origin = sys.modules.get(d["origin"]) or importlib.import_module(d["origin"])
            space = dict(vars(origin))
            for n in d["runtime"]:
                space[n] = names[n]
            for line in d["imports"]:
                exec(line, space)
            spaces.append(space)
        done = {}

        def make(i, active=()):
            if i in done:
                return done[i]
            d, space = definitions[i], spaces[i]
            for name, ref in d["refs"].items():
                if ref != i and ref not in active:
                    space[name] = make(ref, active + (i,))
            exec(compile(d["text"], f"<{d['name']}>", "exec"), space)
            done[i] = space[d["name"]]
            return done[i]

        return [make(i) for i in range(len(definitions))]


def run_partition(model, part, original, state, inputs, expected, grads, train):
    definitions = part["definitions"]
    classes = model.classes(definitions)
    seen = {}
    stages = []
    for k, s in enumerate(part["stages"]):
        # Child classes are replaced inside the definitions; the build expression may hold some, too.
        stage = model.build(classes[s["root"]])
        stage.train(train)
        own = dict(stage.named_parameters(remove_duplicate=False))
        buffers = dict(stage.named_buffers(remove_duplicate=False))
        with torch.no_grad():
            for name, p in own.items():
                if name not in state:
                    raise AssertionError(f"stage {k} has a parameter {name} that the original lacks")
                if p.shape != state[name].shape:
                    raise AssertionError(f"stage {k}: {name} is {tuple(p.shape)}, the original's is {tuple(state[name].shape)}")
                p.copy_(state[name])
            for name, b in buffers.items():
                if b is not None and name in state:
                    b.copy_(state[name])
        for name, p in own.items():
            seen.setdefault(name, []).append(p)
        stages.append(stage)
    missing = [n for n in dict(original.named_parameters(remove_duplicate=False)) if n not in seen]
    if missing and not part.get("tied_ok"):
        # Another name of a tied parameter may stand for it.
        by_id = {}
        for n, p in original.named_parameters(remove_duplicate=False):
            by_id.setdefault(id(p), []).append(n)
        lost = [n for group in by_id.values() if not any(g in seen for g in group) for n in group]
        if lost:
            raise AssertionError(f"no stage holds {lost}")
    received = None
    pending = []
    for k, (stage, s) in enumerate(zip(stages, part["stages"])):
        given = {n: v for n, v in inputs.items() if n in s["needs_inputs"]}
        if k:
            if len(received) != s["receives"]:
                raise AssertionError(f"stage {k} receives {len(received)} tensors, its interface says {s['receives']}")
            leaves = []
            for t in received:
                t2 = t.detach().clone()
                if t.requires_grad:
                    t2.requires_grad_()
                leaves.append(t2)
            pending.append((received, leaves))
            stage.set_input_tensor(tuple(Received.apply(t) if t.requires_grad else t for t in leaves))
        torch.manual_seed(7 + k)
        out = stage(**given) if k or not model.report.get("positional") else stage(*given.values())
        if k + 1 < len(stages):
            if not isinstance(out, tuple) or not all(torch.is_tensor(t) for t in out):
                raise AssertionError(f"stage {k} returns {type(out).__name__} of {[type(t).__name__ for t in out] if isinstance(out, tuple) else ''}, not a tuple of tensors")
            received = out
    a, b = flat(expected), flat(out)
    if len(a) != len(b):
        raise AssertionError(f"{len(b)} output tensors, expected {len(a)}")
    for x, y in zip(a, b):
        if x.shape != y.shape or x.dtype != y.dtype:
            raise AssertionError(f"output is {tuple(y.shape)} {y.dtype}, expected {tuple(x.shape)} {x.dtype}")
        if not torch.equal(x, y) and not torch.allclose(x, y, rtol=1e-6, atol=1e-7, equal_nan=True):
            raise AssertionError(f"outputs differ by {(x - y).abs().max().item():.3g}")
    loss = loss_of(out)
    if torch.is_tensor(loss) and loss.requires_grad:
        loss.backward()
        for outs, leaves in reversed(pending):
            pairs = [(o, l.grad if l.grad is not None else torch.zeros_like(l)) for o, l in zip(outs, leaves) if o.requires_grad]
            if pairs:
                torch.autograd.backward([o for o, _ in pairs], [g for _, g in pairs])
        by_id = {}
        for n, p in original.named_parameters(remove_duplicate=False):
            by_id.setdefault(id(p), []).append(n)
        for group in by_id.values():
            want = grads.get(group[0])
            have, counted = None, set()
            for n in group:
                for p in seen.get(n, []):
                    if id(p) in counted or p.grad is None:
                        continue
                    counted.add(id(p))
                    have = p.grad if have is None else have + p.grad
            if want is None and have is None:
                continue
            want = torch.zeros_like(have) if want is None else want
            if have is None:
                if want.abs().max() > 0:
                    raise AssertionError(f"{group[0]} has no gradient")
                continue
            if not torch.allclose(want, have, rtol=1e-4, atol=1e-5 * (1 + want.abs().max().item())):
                raise AssertionError(f"gradient of {group[0]} differs by {(want - have).abs().max().item():.3g}")


def main():
    report = json.load(open(sys.argv[1]))
    verbose = len(sys.argv) > 2
    failed = total = 0
    for m in report["models"]:
        try:
            model = Model(m)
            original = model.build(model.cls)
            train = bool(m.get("train"))
            original.train(train)
            torch.manual_seed(3)
            inputs = {n: make_input(s) for n, s in m["inputs"]}
            state = copy.deepcopy(original.state_dict())
            for n, p in original.named_parameters(remove_duplicate=False):
                state.setdefault(n, p.detach().clone())
            # Give everything values that differ, so that a zero initialisation hides nothing.
            with torch.no_grad():
                g = torch.Generator().manual_seed(5)
                for p in original.parameters():
                    if p.is_floating_point():
                        p.add_(torch.randn(p.shape, generator=g) * 0.02)
            state = {n: t.detach().clone() for n, t in original.state_dict().items()}
            for n, p in original.named_parameters(remove_duplicate=False):
                state[n] = p.detach().clone()
            torch.manual_seed(7)
            expected = original(**inputs)
            loss = loss_of(expected)
            grads = {}
            if torch.is_tensor(loss) and loss.requires_grad:
                loss.backward()
                grads = {n: p.grad for n, p in original.named_parameters(remove_duplicate=False)}
        except Exception:
            failed += 1
            print(f"{m['name']}: the original does not run")
            traceback.print_exc()
            continue
        for part in m["partitions"]:
            total += 1
            try:
                run_partition(model, part, original, state, inputs, expected, grads, train)
                if verbose:
                    print(f"{m['name']} {part['name']}: ok")
            except Exception as e:
                failed += 1
                print(f"{m['name']} {part['name']}: {type(e).__name__}: {e}")
                if verbose:
                    traceback.print_exc()
                    for d in part["definitions"]:
                        print(d["text"])
                        print()
    print(f"{total - failed} of {total} partitions run as the original")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
