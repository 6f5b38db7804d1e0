#!/usr/bin/env python3
"""Converts models of testdata/ for the megatron target and proves them with PyPI's megatron-core as it is: its layers, its 1F1B schedule,
its DistributedDataParallel and finalize_model_grads on Gloo; outputs, loss, every gradient, the norm and what a checkpoint would hold.

    check_megatron.py --binary BIN [--packages DIR] [--ci] [--only MODEL…] [--work DIR]
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BOUND = 1e-9
MODELS = ["gpt_tied", "swin_block", "unet_attention", "styles", "parallel_block", "weight_norms", "same_names", "stock_layers", "learned_queries", "strided", "masks"]
REFUSED = {}
LOCAL_CUT = {"strided", "unet_attention"}   # cut inside of a divided region, whose local shapes are in no plan that this reads: verify runs these at 2 x 2
NOT_SUMMED = "stage.share_embeddings_and_output_weights = None"   # what the proof must find


def convert(a, model, pp, work, failures):
    """A spec for pipeline_worker.py; None when it was not converted."""
    folder = work / f"pp{pp}"
    if not folder.exists():
        shutil.copytree(ROOT / "testdata", folder)
    job_file = folder / f"{model}.yaml"
    run = subprocess.run([a.binary, "convert", str(job_file), "--tp", "2", "--pp", str(pp), "--target", "megatron", "-o", str(folder), "--json"], capture_output=True, text=True)
    if (model, pp) in REFUSED:
        if run.returncode == 0 or REFUSED[model, pp] not in run.stderr:
            failures.append(f"{model} x{pp}: to be refused ({REFUSED[model, pp]}): {run.stderr.strip()[:500]}")
        else:
            print(f"refused {model} x{pp}: {run.stderr.strip()}")
        return None
    if run.returncode:
        failures.append(f"{model} x{pp}: convert: {run.stderr.strip()[:1500]}")
        return None
    report = json.loads(run.stdout)
    for f in report["fallbacks"]:
        print(f"    {model} x{pp} stays replicated:", f["where"].replace(str(folder) + "/", ""), f["module"], f["reason"][:200])
    init = next(f for f in report["files"] if f.endswith("/__init__.py"))
    package, params = str(Path(init).parent).replace("/", "."), folder / Path(init).parent / ".shardwright" / "params.yaml"
    plan = yaml.safe_load((params.parent / "plan.yaml").read_text())
    job = yaml.safe_load(job_file.read_text())
    path, _, name = job["model"].rpartition(":")
    arguments = ", ".join(f"{k}={v!r}" for k, v in job.get("args", {}).items())
    return {"name": model, "packages": a.packages, "runtime": str(ROOT / "runtime/python"), "python_path": [str(folder)], "package": {pp: package}, "params": {pp: str(params)},
            "support": "shardwright_megatron_parts", "model": path.removesuffix(".py").replace("/", ".") + ":" + name, "build": f"{name}({arguments})", "call": job.get("call"), "setup": job.get("setup"),
            "inputs": job["inputs"], "shapes": {pp: [[s["shape"] for s in stage["cut"]["sends"]] if stage.get("cut") else [] for stage in plan["stages"]]},
            "grids": [[2, 1]] if pp == 1 else [[1, 2]] if model in LOCAL_CUT else [[1, 2], [2, 2]], "splits": any(e.get("shard") for e in yaml.safe_load(params.read_text())["tensors"].values())}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--binary", required=True)
    p.add_argument("--packages", default=str(ROOT / ".cache/megatron"), help="folder with megatron-core")
    p.add_argument("--ci", action="store_true", help="two models")
    p.add_argument("--only", nargs="*")
    p.add_argument("--work")
    p.add_argument("--json", help="write the figures there")
    a = p.parse_args()
    work = Path(a.work or tempfile.mkdtemp(prefix="shardwright-megatron-"))
    models = a.only or (["gpt_tied", "swin_block"] if a.ci else MODELS)
    failures, figures = [], []
    for pp in (1, 2):
        specs = [s for s in (convert(a, m, pp, work, failures) for m in models) if s]
        if pp == 2:
            specs += [{**s, "name": s["name"] + ", its tied weights not summed", "break": NOT_SUMMED, "grids": [[2, 2]]} for s in specs if s["name"] == "gpt_tied"]
        if not specs:
            continue
        (work / "specs.json").write_text(json.dumps(specs))
        result = work / f"result{pp}.json"
        for old in (result, Path(f"{result}.failed")):
            old.unlink(missing_ok=True)
        run = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(2 * pp), str(HERE / "pipeline_worker.py"), str(work / "specs.json"), str(result)],
                             capture_output=True, text=True, env=dict(os.environ, OMP_NUM_THREADS="1"), timeout=900)
        if not result.exists():
            failed = Path(f"{result}.failed")
            r = json.loads(failed.read_text()) if failed.exists() else {"name": f"pp {pp}", "grid": "", "error": run.stderr.strip()[-1500:], "trace": ""}
            failures.append(f"{r['name']} {r['grid']}: {r['error']}\n{r['trace'][-2000:]}")
            continue
        by_name = {s["name"]: s for s in specs}
        for r in json.loads(result.read_text()):
            spec = by_name[r["name"]]
            what = f"{r['name']} tp {r['grid'][0]} pp {r['grid'][1]}"
            figures.append(r)
            good = max(r["outputs"], r["loss"], r["gradients"], r["norm"]) <= BOUND and not r["missing"] and not r["saved wrongly"] and (bool(r["sharded"]) or r["grid"][0] == 1 or not spec["splits"])
            if good == ("break" in spec):
                failures.append(f"{what}: {'the fault was not found: ' if good else ''}{r}")
            else:
                print(f"{'found' if 'break' in spec else 'same'} {what}: outputs {r['outputs']:.1e}, loss {r['loss']:.1e}, {r['compared']} gradients {r['gradients']:.1e} ({r['sharded']} sharded), norm {r['norm']:.1e}", flush=True)
    if a.json:
        Path(a.json).write_text(json.dumps(figures))
    for f in failures:
        print("FAILED", f)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
