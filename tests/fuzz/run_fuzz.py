#!/usr/bin/env python3
"""Runs the fuzz target on a small corpus: the lint examples, testdata and the cases.

usage: run_fuzz.py --tool build/bin/fuzz_lint [--runs 500] [--seed S]      without --seed one of the day, printed
"""
import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--tool", required=True)
    p.add_argument("--runs", type=int, default=500)
    p.add_argument("--seed", type=int)
    a = p.parse_args()
    seed = a.seed if a.seed is not None else int(time.strftime("%Y%m%d"))
    with tempfile.TemporaryDirectory() as tmp:
        for path in sorted((ROOT / "rules/lint").glob("*.yaml")):
            for value in (yaml.safe_load(path.read_text(encoding="utf-8"))[k] for k in ("wrong", "right")):
                for i, text in enumerate(value.values() if isinstance(value, dict) else [value]):
                    (Path(tmp) / f"{path.stem}_{len(text)}_{i}.py").write_text(text, encoding="utf-8")
        print(f"fuzz: seed {seed}", flush=True)
        return subprocess.run([a.tool, "--runs", str(a.runs), "--seed", str(seed), tmp, ROOT / "testdata", ROOT / "tests/cases"]).returncode


if __name__ == "__main__":
    sys.exit(main())
