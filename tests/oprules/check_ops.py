#!/usr/bin/env python3
"""Proves the operation rules against PyTorch.

    check_ops.py --tool BUILD/bin/unit_eval [NAME…] [-v]

For every rule of rules/ops with a `test:` (a call's arguments), the call is traced by our interpreter and run by PyTorch:
shapes and types of the results must be equal. Where the trace is one labelled operation, every dimension that the rule calls
free is then cut in two: the real operation runs on each half (two simulated ranks), the results are joined as the rule says
(concatenated where the label is in the result, summed where it is contracted; a bias only on the first rank) and values and
all gradients must equal those of the whole.
"""
import argparse
import ast
import json
import os
import re
import subprocess
import sys
import tempfile

import torch
import yaml

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DTYPES = {torch.float32: "f32", torch.float64: "f64", torch.int64: "i64", torch.bool: "bool", torch.complex64: "c64", torch.complex128: "c128"}


def rules():
    """(canonical name, test) of every rule."""
    folder = os.path.join(ROOT, "rules", "ops")
    for file in sorted(os.listdir(folder)):
        for rule in yaml.safe_load(open(os.path.join(folder, file))) or []:
            names = rule["op"] if isinstance(rule["op"], list) else [rule["op"]]
            prefixes = rule.get("in", ["torch", "torch.Tensor"])
            tests = rule.get("test", [])
            for name in names:
                full = name if "." in name and "in" not in rule else f"{prefixes[0]}.{name}"
                for test in [tests] if isinstance(tests, str) else tests:
                    yield full, test


def is_tensor(node):
    """An argument that makes a tensor: it becomes an input."""
    return any(isinstance(n, ast.Attribute) and n.attr in ("randn", "rand", "tensor", "zeros", "ones") for n in ast.walk(node))


def split_arguments(text):
    """Source of the call's arguments with tensors replaced by x0, x1…, and the sources of those."""
    call = ast.parse(f"f({text})", mode="eval").body
    inputs = []

    def replace(node):
        if isinstance(node, (ast.List, ast.Tuple)):
            node.elts = [replace(e) for e in node.elts]
            return node
        if is_tensor(node):
            inputs.append(ast.unparse(node))
            return ast.Name(f"x{len(inputs) - 1}", ast.Load())
        return node

    call.args = [replace(a) for a in call.args]
    for k in call.keywords:
        k.value = replace(k.value)
    return ast.unparse(call)[2:-1], inputs


def call_text(name, arguments):
    if name.startswith("torch.Tensor."):
        first, _, rest = arguments.partition(", ")
        return f"{first}.{name[len('torch.Tensor.'):]}({rest})"
    return f"{name}({arguments})"


def flat(x):
    return [x] if isinstance(x, torch.Tensor) else [t for e in x for t in flat(e)]


class Failure(Exception):
    pass


def trace(tool, folder, expression, inputs):
    params = ", ".join(f"x{i}" for i in range(len(inputs)))
    with open(os.path.join(folder, "case.py"), "w") as f:
        f.write(f"import torch\nimport torch.nn as nn\n\n\nclass M(nn.Module):\n    def forward(self, {params}):\n        return {expression}\n")
    job = {"model": "case:M", "python_path": [folder], "build": "M()", "inputs": {f"x{i}": f"{DTYPES[t.dtype]}[{','.join(map(str, t.shape))}]" for i, t in enumerate(inputs)}}
    path, out = os.path.join(folder, "job.yaml"), os.path.join(folder, "trace.json")
    with open(path, "w") as f:
        yaml.safe_dump(job, f, sort_keys=False)
    if os.path.exists(out):
        os.remove(out)
    r = subprocess.run([tool, "[.trace]"], env={**os.environ, "SHARDWRIGHT_JOB": path, "SHARDWRIGHT_OUT": out}, capture_output=True, text=True)
    if not os.path.exists(out):
        raise Failure("no trace: " + (r.stderr or r.stdout)[:600])
    return json.load(open(out))


def tensors_of(binding):
    if isinstance(binding, dict) and "tensor" in binding:
        return [binding["tensor"]]
    if isinstance(binding, dict):
        return [t for v in binding.values() for t in tensors_of(v)]
    if isinstance(binding, list):
        return [t for v in binding for t in tensors_of(v)]
    return []


def run(expression, inputs):
    return flat(eval(expression, {"torch": torch, **{f"x{i}": t for i, t in enumerate(inputs)}}))


def close(a, b):
    return a.shape == b.shape and torch.allclose(a, b, rtol=1e-9, atol=1e-9, equal_nan=True)


def check_label(op, label, expression, inputs, operand_of, weights, reference, grads):
    """Cuts one label in two; raises Failure where the joined result or a gradient differs."""
    leaves = [t.detach().clone().requires_grad_(t.requires_grad) for t in inputs]
    parts = []
    # Channels that are groups: the number of groups is a size along this label, and local too.
    if len(op["in"]) > 1 and label in op["in"][0] and label in op["in"][1] and label in op["out"][0]:
        expression = re.sub(r"groups=(\d+)", lambda m: f"groups={int(m[1]) // 2}", expression)
    for rank in range(2):
        local = []
        for i, t in enumerate(leaves):
            for k in operand_of.get(i, []):
                labels = op["in"][k]
                if op["inputs"][k].get("bias") and label not in labels and not any(label in o for o in op["out"]) and rank == 1:
                    t = torch.zeros_like(t)
                if label in labels:
                    t = t.chunk(2, labels.index(label))[rank]
            local.append(t)
        parts.append(run(expression, local))
    joined = []
    for o, (a, b) in enumerate(zip(*parts)):
        labels = op["out"][o]
        if label in labels:
            joined.append(torch.cat([a, b], labels.index(label)))
        else:
            joined.append((a + b) / 2 if op.get("mean") else a + b)
    for o, (a, b) in enumerate(zip(joined, reference)):
        if not close(a, b):
            raise Failure(f"output {o} differs when label {label} (size {op['labels'][label]['size']}) is cut: {tuple(a.shape)} against {tuple(b.shape)}")
    loss = sum((a * w).sum() for a, w in zip(joined, weights) if a.is_floating_point() and a.requires_grad)
    if isinstance(loss, torch.Tensor):
        for i, g in enumerate(torch.autograd.grad(loss, [t for t in leaves if t.requires_grad], allow_unused=True)):
            if (g is None) != (grads[i] is None) or (g is not None and not close(g, grads[i])):
                raise Failure(f"gradient of input {i} differs when label {label} is cut")


def check(tool, folder, name, test):
    torch.manual_seed(7)
    arguments, sources = split_arguments(test)
    inputs = [eval(s, {"torch": torch}) for s in sources]
    # Constants (zeros, ones) stand for statistics and the like: nothing is differentiated with respect to them.
    inputs = [t.double().requires_grad_("rand" in s) if t.is_floating_point() else t for t, s in zip(inputs, sources)]
    expression = call_text(name, arguments)
    leaves = [t.detach().clone().requires_grad_(t.requires_grad) for t in inputs]
    reference = run(expression, leaves)
    t = trace(tool, folder, expression, inputs)
    mine = [t["tensors"][i] for i in tensors_of(t["output"])]
    theirs = [(list(r.shape), DTYPES.get(r.dtype, str(r.dtype))) for r in reference]
    got = [(m["shape"], m["dtype"]) for m in mine]
    if got != theirs:
        raise Failure(f"shapes {got}, PyTorch has {theirs}")
    ops = [o for o in t.get("ops", []) if o["clock"] > t["forward_begin"]]
    if len(ops) != 1 or ops[0]["prim"] != "labelled" or ops[0].get("random") or ops[0].get("size_args"):
        return 0
    op = ops[0]
    names = {e["tensor"]: int(x["name"][1:]) for x in t["inputs"] for e in [x["value"]]}
    operand_of = {}
    for k, operand in enumerate(op["inputs"]):
        operand_of.setdefault(names[operand["tensor"]], []).append(k)
    weights = [torch.randn_like(r) if r.is_floating_point() else None for r in reference]
    grads = None
    loss = sum((a * w).sum() for a, w in zip(reference, weights) if a.is_floating_point() and a.requires_grad)
    if isinstance(loss, torch.Tensor):
        grads = torch.autograd.grad(loss, [x for x in leaves if x.requires_grad], allow_unused=True)
    cut = 0
    for label, info in enumerate(op["labels"]):
        if info.get("blocked") is not None or info["size"] % 2 or not any(label in labels for labels in op["in"]):
            continue
        contracted = not any(label in o for o in op["out"])
        if contracted and op["linearity"] == "nonlinear":
            raise Failure(f"label {label} is summed by an operation that is not linear")
        check_label(op, label, expression, inputs, operand_of, weights, reference, grads)
        cut += 1
    return cut


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tool", required=True)
    parser.add_argument("names", nargs="*")
    parser.add_argument("-v", action="store_true")
    args = parser.parse_args()
    bad, done, cuts = [], 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for name, test in rules():
            if args.names and not any(n in name for n in args.names):
                continue
            try:
                n = check(args.tool, folder, name, test)
                cuts += n
                if args.v:
                    print(f"ok   {name}({test}): {n} dimensions cut")
            except Failure as e:
                bad.append(f"{name}({test}): {e}")
            except Exception as e:  # a rule's own test that PyTorch refuses is a fault of the rule
                bad.append(f"{name}({test}): {type(e).__name__}: {e}")
            done += 1
    for line in bad:
        print("FAIL", line)
    print(f"{done} calls, {cuts} dimensions cut on two ranks, {len(bad)} failures")
    return 1 if bad or not done else 0


if __name__ == "__main__":
    sys.exit(main())
