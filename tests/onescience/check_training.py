#!/usr/bin/env python3
"""The miniature project (testdata/weather_project): its single-GPU script and the generated 4-stage x tp 2 one give the same losses, the
generated run.sh as it was written; the script's checkpoint loads there, and what is saved there loads strictly into the original.
Megatron's layers by PyPI's megatron-core, its trainer by our runtime's.

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


def serial(project, example, packages, data, state, batches):
    """The original's losses on `batches` of the script's loader, with a state dict that loads strictly."""
    import torch
    import shim
    shim.install(packages)   # the registries name the distributed modules, too
    sys.path[:0] = [str(project), str(example)]
    os.environ.update(WIND_DATA=str(data), WIND_DTYPE="f64")
    import numpy as np
    import yaml
    from onescience.models.wind import Wind
    from train import WindDataset
    torch.set_default_dtype(torch.float64)
    cfg = yaml.safe_load((example / "conf/config.yaml").read_text())
    model = Wind(**cfg["model"])
    model.load_state_dict(state, strict=True)
    masks = torch.stack([torch.from_numpy(np.load(data / f"data/{name}_mask.npy")) for name in ("land", "soil", "topography")]).double()
    samples, losses = WindDataset(data / "data/wind.h5", 0, 11), []
    for b in batches:
        x, y = (torch.stack([samples[2 * b + i][k] for i in (0, 1)]).double() for k in (0, 1))
        with torch.no_grad():
            surface, aloft = model(torch.cat([x[:, :4], masks.expand(2, -1, -1, -1), x[:, 4:]], 1))
        losses.append(float(cfg["training"]["surface_weight"] * (surface - y[:, :4]).abs().mean() + (aloft - y[:, 4:]).abs().mean()))
    return losses


def there_and_back(a, work, project, example, generated, env):
    """What is wrong, or None. The script's checkpoint goes through two steps of the generated training, with
    activations computed again, and is saved after each."""
    import torch
    from safetensors.torch import load_file
    run = subprocess.run([a.binary, "convert", str(project / "wind.yaml"), "-o", str(project), "--recompute", "full"], capture_output=True, text=True)
    if run.returncode or "recompute_layers(model, " not in (generated / "train.py").read_text():
        return f"convert --recompute full: {run.stderr}"
    params = project / "onescience/models/wind_distributed_4stage/.shardwright/params.yaml"
    losses = work / "losses.json"
    losses.unlink(missing_ok=True)
    for folder in ("saved", "megatron"):
        shutil.rmtree(work / folder, ignore_errors=True)
    run = subprocess.run(["bash", "run.sh", "--serial-checkpoint", str(example / "wind.pth"), "--train-iters", "2", "--save", str(work / "saved"), "--save-interval", "1"],
                         cwd=generated, capture_output=True, text=True, timeout=900, env=dict(env, SHIM_PARAMS=str(params), SHIM_SAVED=str(work / "megatron")))
    if run.returncode or not losses.exists():
        return f"run.sh: {run.returncode} {run.stderr[-3000:]}"
    got = json.loads(losses.read_text())
    states = [torch.load(example / "wind.pth", weights_only=True)]
    for step in (1, 2):
        file = work / f"after{step}.safetensors"
        run = subprocess.run([a.binary, "reshard", work / "saved" / f"iter_{step:07d}", file, "--params", params, "--from", "2,4", "--to", "1,1"], capture_output=True, text=True)
        if run.returncode:
            return f"reshard: {run.stderr}"
        states.append(load_file(file))
    wanted = [serial(project, example, a.packages, example, state, [i])[0] for i, state in enumerate(states[:2])]
    worst = max(abs(x - y) / y for x, y in zip(got, wanted, strict=True))
    print(f"from the script's checkpoint: losses {got}, the original's with what was loaded and saved differ by {worst:.1e}")
    if worst > BOUND or all(torch.equal(states[0][n], states[1][n]) for n in states[0]):
        return f"losses {got}, with the serial state dicts {wanted}"
    file = work / "megatron.pth"
    run = subprocess.run([sys.executable, "serial_checkpoint.py", work / "megatron", file], cwd=generated, capture_output=True, text=True)
    if run.returncode:
        return f"serial_checkpoint.py: {run.stderr[-2000:]}"
    state = torch.load(file, weights_only=True)
    serial(project, example, a.packages, example, state, [])
    different = [n for n in states[2] if not torch.equal(state[n], states[2][n])]
    if different:
        return f"serial_checkpoint.py: {different[:5]} differ"
    return None


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
    runtime = dict(env, SHIM_LOSSES=str(losses), PYTHONPATH=os.pathsep.join([str(HERE / "site"), str(ROOT / "runtime/python")]))
    run = subprocess.run(["bash", "run.sh"], cwd=generated, capture_output=True, text=True, timeout=900, env=runtime)
    if not losses.exists():
        print("FAILED run.sh:", run.returncode, run.stderr[-3000:])
        return 1
    got = json.loads(losses.read_text())
    if len(got) != len(wanted):
        print(f"FAILED {len(got)} steps, the original makes {len(wanted)}")
        return 1
    worst = max(abs(x - y) / abs(y) for x, y in zip(got, wanted))
    print(f"{len(got)} steps, loss {wanted[0]:.6f} to {wanted[-1]:.6f}, worst relative difference {worst:.1e}")
    if worst > BOUND or wanted[-1] >= wanted[0]:
        print("FAILED")
        return 1
    wrong = there_and_back(a, work, project, example, generated, runtime)
    if wrong:
        print("FAILED checkpoint:", wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
