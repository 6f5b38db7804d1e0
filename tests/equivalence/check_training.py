#!/usr/bin/env python3
"""The generated train.py runs as it is: convert, `bash run.sh` for two iterations, the losses are the same at 1 x 1, 2 x 1 and 2 x 2:
every grid starts from the single-GPU program's values (--init original).

usage: check_training.py --binary BIN
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--binary", required=True)
    a = p.parse_args()
    env = dict(os.environ, PYTHON=sys.executable, OMP_NUM_THREADS="1", PYTHONPATH=str(ROOT / "runtime/python") + os.pathsep + os.environ.get("PYTHONPATH", ""))
    losses = {}
    with tempfile.TemporaryDirectory() as d:
        for tp, pp in ((1, 1), (2, 1), (2, 2)):
            out = f"{d}/gpt_{tp}x{pp}"
            subprocess.run([a.binary, "convert", str(ROOT / "testdata/gpt_tied.yaml"), "--tp", str(tp), "--pp", str(pp), "-q", "-o", out], check=True)
            run = subprocess.run(["bash", f"{out}/run.sh", "--train-iters", "2", "--num-micro-batches", "2"], capture_output=True, text=True, env=env, timeout=600)
            found = re.findall(r"loss ([0-9.e+-]+)", run.stdout)
            if run.returncode != 0 or len(found) != 2:
                print(run.stdout[-2000:], run.stderr[-3000:])
                print(f"run.sh at {tp} x {pp} ends with {run.returncode}\n0 passed, 1 failed")
                return 1
            losses[tp, pp] = [float(x) for x in found]
            print(f"{tp} x {pp}: losses {found}")
    for grid, found in losses.items():   # float32
        if any(abs(a - b) > 1e-5 * abs(a) for a, b in zip(losses[1, 1], found)):
            print(f"{grid}: losses {found}, at 1 x 1 {losses[1, 1]}\n0 passed, 1 failed")
            return 1
    print("1 passed, 0 failed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
