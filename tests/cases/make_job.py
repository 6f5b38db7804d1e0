#!/usr/bin/env python3
"""Job files for the convert cases: make_job.py CASE_DIR OUT.yaml [--without NAME]

The model is the module that input.py's sample() builds (default constructor arguments); inputs are named after forward's parameters.
--without leaves out an optional input (it keeps forward's default)."""
import importlib.util
import inspect
import sys
from pathlib import Path

import torch
import yaml

DTYPES = {torch.float32: "f32", torch.float64: "f64", torch.int64: "i64", torch.int32: "i32", torch.bool: "bool"}


def spec_of(t):
    text = f"{DTYPES[t.dtype]}[{','.join(map(str, t.shape))}]"
    if t.dtype in (torch.int64, torch.int32):
        text += f"<{int(t.max()) + 1}"
    return text + ("~rand" if t.dtype == torch.bool else "")


def main(case, out, *options):
    without = {o for o in options if o != "--without"}
    path = Path(case) / "input.py"
    spec = importlib.util.spec_from_file_location("input", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    torch.manual_seed(0)
    built, args, *rest = module.sample()
    names = list(inspect.signature(built.forward).parameters)
    given = dict(zip(names, args), **(rest[0] if rest else {}))
    job = {"model": f"{path.resolve()}:{type(built).__name__}", "inputs": {k: spec_of(v) for k, v in given.items() if k not in without}}
    Path(out).parent.mkdir(parents=True, exist_ok=True)
    Path(out).write_text(yaml.safe_dump(job, sort_keys=False))


if __name__ == "__main__":
    main(*sys.argv[1:])
