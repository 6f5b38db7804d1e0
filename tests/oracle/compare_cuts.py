#!/usr/bin/env python3
"""Our stages beside the prototype's (expected/ID.json, "cuts"): the slowest stage over the mean must be at most 3 % worse.

    compare_cuts.py graphs --corpus corpus.yaml --runner run_corpus.py --unit build/bin/unit_pipeline [ID…]
        the same graph for both: exported by torch, every operation a statement of its own. Isolates the partition from the interpreter.
    compare_cuts.py plans ID=plan2.json,plan4.json …
        real plans (`shardwright plan … --pp P --json`). The grain differs: the prototype may cut between any two operations, we between
        statements and around calls, where code can be written; so `balance.optimum` is compared, and a worse one is listed with its reason.
"""
import argparse
import importlib.util
import json
import math
import os
import subprocess
import sys
import tempfile
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
EXPECTED = os.path.join(HERE, "prototype", "expected")
VIEWS = {"view", "reshape", "flatten", "unflatten", "transpose", "permute", "unsqueeze", "squeeze", "split", "chunk", "unbind", "slice", "select", "contiguous", "alias", "t", "_unsafe_view", "split_with_sizes"}
HEAVY = {"linear", "mm", "bmm", "addmm", "matmul", "einsum", "scaled_dot_product_attention", "conv1d", "conv2d", "conv3d", "convolution", "softmax", "_softmax", "layer_norm", "native_layer_norm", "sum", "mean", "cumsum", "sort", "_fft_r2c", "_fft_c2r", "_fft_c2c"}


def chain(corpus, runner, ident):
    """The exported graph as tensors and operations, with the prototype's FLOPs."""
    import torch
    import yaml
    warnings.filterwarnings("ignore")
    sys.path.insert(0, os.path.join(HERE, "prototype"))
    import cuts
    spec = importlib.util.spec_from_file_location("rc", runner)
    rc = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(rc)
    entry = [x for x in yaml.safe_load(open(corpus)) if x["id"] == ident][0]
    model, inputs, _ = rc.build(entry)
    keyword = bool(entry.get("kw"))
    ep = torch.export.export(model, () if keyword else tuple(inputs.values()), inputs if keyword else None, strict=False)
    sig = ep.graph_signature
    parameters, buffers = dict(sig.inputs_to_parameters), dict(sig.inputs_to_buffers)
    constants = dict(sig.inputs_to_lifted_tensor_constants)
    tensors, ops, of = [], [], {}

    def tensor(v, origin="result", name=""):
        tensors.append({"shape": [int(d) for d in v.shape], "dtype": str(v.dtype).split(".")[1], "origin": origin, "name": name})
        return len(tensors) - 1

    outputs = []
    for n in ep.graph.nodes:
        v = n.meta.get("val")
        if n.op == "placeholder":
            if isinstance(v, torch.Tensor):
                origin = "parameter" if n.name in parameters else "buffer" if n.name in buffers or n.name in constants else "input"
                of[n] = tensor(v, origin, parameters.get(n.name) or buffers.get(n.name) or n.name)
        elif n.op == "call_function":
            ins = []
            for a in n.all_input_nodes:
                if a in of:
                    ins += of[a] if isinstance(of[a], list) else [of[a]]
            name = str(n.target).split("aten.")[-1].split(".")[0]
            if getattr(n.target, "__name__", "") == "getitem":
                ins = [of[n.args[0]][n.args[1]]] if isinstance(of.get(n.args[0]), list) else ins
                name = "getitem"
            if isinstance(v, torch.Tensor):
                outs = [tensor(v)]
                of[n] = outs[0]
            elif isinstance(v, (list, tuple)):
                outs = [tensor(x) for x in v if isinstance(x, torch.Tensor)]
                of[n] = outs
            else:
                continue
            kind = "view" if name in VIEWS or name == "getitem" else "heavy" if name in HEAVY else "elementwise"
            if "dropout" in name or "rand" in name or "bernoulli" in name:
                kind = "heavy"
            ops.append({"name": name, "inputs": ins, "outputs": outs, "flops": cuts.flops(n), "kind": kind})
        elif n.op == "output":
            torch.fx.node.map_arg(n.args, lambda a: outputs.append(of[a]) if isinstance(of.get(a), int) else None)
    return {"tensors": tensors, "ops": ops, "outputs": outputs}


def expected(ident):
    with open(os.path.join(EXPECTED, ident + ".json")) as f:
        return json.load(f)["cuts"]


def report(ident, p, theirs, ours, optimum, legal, boundaries):
    worse = optimum > theirs["slowest_over_mean"] * 1.03 + 1e-3 or not math.isfinite(optimum)
    chosen = ours > optimum * 1.03 + 1e-3
    shapes = " | ".join(" ".join("x".join(map(str, s)) or "scalar" for s in b) for b in boundaries)
    print(f"{ident:18s} pp{p}  prototype {theirs['slowest_over_mean']:.3f} ({theirs['legal_cuts']} cuts)  ours {ours:.3f}, optimum {optimum:.3f} ({legal} places)  {'WORSE' if worse else 'TOO FAR FROM OPTIMUM' if chosen else 'ok'}  {shapes}")
    return worse or chosen


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("mode", choices=["graphs", "plans", "chain"])
    p.add_argument("what", nargs="*")
    p.add_argument("--corpus")
    p.add_argument("--runner")
    p.add_argument("--unit")
    a = p.parse_intermixed_args()
    if a.mode == "chain":  # one model in a process of its own: packages of the corpus do not share one well
        json.dump(chain(a.corpus, a.runner, a.what[0]), sys.stdout)
        return 0
    bad = 0
    if a.mode == "graphs":
        ids = a.what or sorted(f[:-5] for f in os.listdir(EXPECTED) if f.endswith(".json"))
        for ident in ids:
            made = subprocess.run([sys.executable, __file__, "chain", ident, "--corpus", a.corpus, "--runner", a.runner], capture_output=True, text=True)
            if made.returncode:
                print(f"{ident:18s} not exported here: {made.stderr.strip().splitlines()[-1][:160] if made.stderr.strip() else '?'}")
                bad += 1
                continue
            with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
                f.write(made.stdout[made.stdout.index("{\"tensors\""):])
                f.flush()
                run = subprocess.run([a.unit, "[import]"], env={**os.environ, "SHARDWRIGHT_CHAIN": f.name}, capture_output=True, text=True)
            lines = [x for x in run.stdout.splitlines() if x.startswith("{")]
            if not lines:
                print(f"{ident:18s} no result: {run.stdout[-300:]}{run.stderr[-300:]}")
                bad += 1
                continue
            got = json.loads(lines[0])
            for pp, theirs in expected(ident).items():
                g = got[pp]
                if g["error"]:
                    print(f"{ident:18s} pp{pp}  {g['error']}")
                    bad += 1
                else:
                    bad += report(ident, pp, theirs, g["slowest_over_mean"], g["optimum"], g["legal_cuts"], g["boundaries"])
    else:
        for item in a.what:
            ident, files = item.split("=", 1)
            for name in files.split(","):
                with open(name) as f:
                    plan = json.load(f)
                plan = plan.get("plan", plan)
                pp = str(plan["grid"]["pp"])
                b = plan["balance"]
                shapes = [[x["shape"] for x in s["cut"]["sends"]] for s in plan["stages"] if s["cut"]]
                bad += report(ident, pp, expected(ident)[pp], b["slowest_over_mean"], b["optimum"], b["legal_cuts"], shapes)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
