#!/usr/bin/env python3
"""The miniature project (testdata/weather_project): its single-GPU script and the generated 4-stage x tp 2 one give the same losses, the
generated run.sh as it was written. Megatron's layers by PyPI's megatron-core, its trainer by our runtime's.

    check_training.py --binary BIN [--packages DIR] [--work DIR]
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BOUND = 1e-10


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--binary", required=True)
    p.add_argument("--packages", default=str(ROOT / ".cache/megatron"), help="folder with megatron-core and h5py")
    p.add_argument("--work")
    a = p.parse_args()
    work = Path(a.work or tempfile.mkdtemp(prefix="shardwright-training-"))
    project = work / "project"
    if project.exists():
        shutil.rmtree(project)
    shutil.copytree(ROOT / "testdata/weather_project", project)
    example = project / "examples/earth/wind"
    env = dict(os.environ, OMP_NUM_THREADS="1", WIND_DTYPE="f64", WIND_DATA=str(example), PYTHON=sys.executable, SHIM_PACKAGES=a.packages)
    plain = dict(env, PYTHONPATH=os.pathsep.join([str(project), a.packages]))
    subprocess.run([sys.executable, "make_data.py"], cwd=example, env=plain, check=True)
    single = subprocess.run([sys.executable, "train.py"], cwd=example, env=plain, check=True, capture_output=True, text=True)
    wanted = [float(x) for x in re.findall(r"loss ([-+.e0-9]+)", single.stderr)]
    run = subprocess.run([a.binary, "convert", str(project / "wind.yaml"), "-o", str(project)], capture_output=True, text=True)
    if run.returncode:
        print("FAILED convert:", run.stderr)
        return 1
    generated = project / "examples/earth/wind_distributed_4stage"
    losses = work / "losses.json"
    losses.unlink(missing_ok=True)
    run = subprocess.run(["bash", "run.sh"], cwd=generated, capture_output=True, text=True, timeout=900,
                         env=dict(env, SHIM_LOSSES=str(losses), PYTHONPATH=os.pathsep.join([str(HERE / "site"), str(ROOT / "runtime/python")])))
    if not losses.exists():
        print("FAILED run.sh:", run.returncode, run.stderr[-3000:])
        return 1
    got = json.loads(losses.read_text())
    if len(got) != len(wanted):
        print(f"FAILED {len(got)} steps, the original makes {len(wanted)}")
        return 1
    worst = max(abs(x - y) / abs(y) for x, y in zip(got, wanted))
    print(f"{len(got)} steps, loss {wanted[0]:.6f} to {wanted[-1]:.6f}, worst relative difference {worst:.1e}")
    return 0 if worst <= BOUND and wanted[-1] < wanted[0] else 1


if __name__ == "__main__":
    sys.exit(main())
