#!/usr/bin/env python3
"""Runs the fuzz target on a small corpus: the lint examples, testdata and the cases.

usage: run_fuzz.py --tool build/bin/fuzz_lint [--runs 500] [--seed S] [--jobs N]      without --seed one of the day, printed

--jobs: the runs in so many processes, with the seeds S, S + 1, ….
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
    p.add_argument("--jobs", type=int, default=1)
    a = p.parse_args()
    seed = a.seed if a.seed is not None else int(time.strftime("%Y%m%d"))
    with tempfile.TemporaryDirectory() as tmp:
        for path in sorted((ROOT / "rules/lint").glob("*.yaml")):
            for value in (yaml.safe_load(path.read_text(encoding="utf-8"))[k] for k in ("wrong", "right")):
                for i, text in enumerate(value.values() if isinstance(value, dict) else [value]):
                    (Path(tmp) / f"{path.stem}_{len(text)}_{i}.py").write_text(text, encoding="utf-8")
        print(f"fuzz: seed {seed}", flush=True)
        share = [a.runs // a.jobs + (i < a.runs % a.jobs) for i in range(a.jobs)]
        tool = Path(a.tool).resolve()
        running = []
        for i, runs in enumerate(share):
            here = Path(tmp) / f"job{i}"   # where a failure's input is written
            here.mkdir()
            running.append((here, subprocess.Popen([tool, "--runs", str(runs), "--seed", str(seed + i), tmp, ROOT / "testdata", ROOT / "tests/cases"], cwd=here if a.jobs > 1 else None)))
        codes = [child.wait() for _, child in running]
        for (here, _), code in zip(running, codes):
            if code and (here / "fuzz-failure.py").exists():
                (Path.cwd() / f"fuzz-failure-{here.name}.py").write_bytes((here / "fuzz-failure.py").read_bytes())
        return max(codes)


if __name__ == "__main__":
    sys.exit(main())
