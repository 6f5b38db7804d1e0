#!/usr/bin/env python3
"""`shardwright tree` beside the model that PyTorch builds: check_tree.py --binary BIN --corpus DIR [ID…]

For every module: its parameters, and its own ones, as `named_parameters` counts them (a tied one once, where it is met first); every
module of the one is in the other; the parameters of `plan`'s axes have the shapes that they have in PyTorch. One process builds all
models. Prints `N passed, N failed` (a model is one); exit code 1 on a failure.
"""
import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import traceback
import warnings
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "oracle"))
import check  # noqa: E402
import compare_oracle  # noqa: E402


def modules(node, out):
    """{fqn: (parameters, own parameters)} of a tree's JSON. The same module under two names is one there: the first wins."""
    out.setdefault(node["fqn"], (node["parameters"], node["own_parameters"]))
    for child in node["children"]:
        modules(child, out)
    return out


def compare(model, tree, plan):
    """Texts of what differs; how many modules and parameter elements were compared."""
    wrong = []
    ours = modules(tree, {})
    theirs = {name: (sum(p.numel() for p in m.parameters()), sum(p.numel() for p in m.parameters(recurse=False))) for name, m in model.named_modules()}
    compared = 0
    for name, (total, own) in theirs.items():
        if name not in ours:
            wrong.append(f"module {name} is not in the tree")
            continue
        compared += 1
        if ours[name] != (total, own):
            wrong.append(f"{name or 'the model'}: {ours[name][0]} parameters, {ours[name][1]} own; PyTorch counts {total} and {own}")
    wrong += [f"module {name} is not in PyTorch's model" for name in ours if name not in theirs and name not in {n for n, _ in model.named_modules(remove_duplicate=False)}]
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters(remove_duplicate=False)}
    for axis in plan["sharding"]["axes"]:
        for name, dims in axis["parameters"].items():
            if shapes.get(name) != tuple(compare_oracle.size(d) for d in dims):
                wrong.append(f"parameter {name} has the shape {[compare_oracle.size(d) for d in dims]} here, {shapes.get(name)} in PyTorch")
    wrong += [f"parameter {name} is left over in the plan and not in PyTorch's model" for name in plan["sharding"]["left"] if name not in shapes]
    known = set(plan["sharding"]["left"]) | {n for axis in plan["sharding"]["axes"] for n in axis["parameters"]}
    wrong += [f"parameter {name} is not in the plan" for name, _ in model.named_parameters() if name not in known]
    return wrong, compared, theirs[""][0]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--binary", required=True)
    p.add_argument("--corpus", required=True)
    p.add_argument("--json", help="write the figures here")
    p.add_argument("ids", nargs="*")
    a = p.parse_args()
    warnings.filterwarnings("ignore")
    sys.path.insert(0, os.path.abspath(a.corpus))
    spec = importlib.util.spec_from_file_location("run_corpus", HERE / "run_corpus.py")
    runner = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(runner)
    entries = {e["id"]: e for e in yaml.safe_load((HERE / "corpus.yaml").read_text())}
    # Models that replace packages by stubs come last: the others want the real ones.
    ids = sorted(a.ids or check.REQUIRED, key=lambda i: bool(entries[i].get("bare") or entries[i].get("stubs") or entries[i].get("stubs_first")))
    passed = failed = 0
    figures = {}
    with tempfile.TemporaryDirectory() as out:
        for ident, job in check.jobs(ids, a.corpus, out).items():
            said = []
            for command in (["tree", str(job), "--json"], ["plan", str(job), "--tp", "2", "--json"]):
                run = subprocess.run([a.binary, *command], capture_output=True, text=True, timeout=300)
                said.append(json.loads(run.stdout) if run.returncode == 0 else f"{command[0]} ends with {run.returncode}: {run.stderr.strip()[-300:]}")
            wrong, compared, total = [x for x in said if isinstance(x, str)], 0, 0
            if not wrong:
                try:
                    wrong, compared, total = compare(runner.build(entries[ident])[0], *said)
                except (Exception, SystemExit) as e:  # a model that PyTorch does not build here is a failure with its reason
                    traceback.print_exc()
                    wrong = [f"PyTorch's model: {type(e).__name__}: {e}"]
            figures[ident] = {"modules": compared, "parameters": total, "wrong": wrong}
            failed, passed = failed + bool(wrong), passed + (not wrong)
            for w in wrong[:10]:
                print(f"FAILED  {ident}: {w}")
            if len(wrong) > 10:
                print(f"FAILED  {ident}: {len(wrong) - 10} more")
            if not wrong:
                print(f"same    {ident}: {compared} modules, {total} parameters", flush=True)
    if a.json:
        Path(a.json).write_text(json.dumps(figures, indent=1) + "\n")
    print(f"\n{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
