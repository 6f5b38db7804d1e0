#!/usr/bin/env python3
"""Converts models of the corpus for the OneScience target, in a copy of the library, lints what was
written, and proves the stages: output, loss and gradients
against the original on tensor-parallel ranks over Gloo, Megatron's layers answered by PyPI's megatron-core.

    check_stages.py --binary BIN --corpus DIR [--packages DIR] [--only ID…] [--pp 4] [--tp 2] [--work DIR]
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
MODELS = {"os3-pangu": [1, 2, 4], "os3-transolver": [1, 2, 4], "os3-transformer": [1, 2, 4], "os-fuxi": [1, 2, 4], "os-fengwu": [1, 2, 4], "os-xihe-local": [1, 2],
          "os-xihe-global": [1]}   # the last two have two blocks and one


def library(corpus, work):
    """A copy of the single-GPU library to convert in."""
    repository = work / "repository"
    if not repository.exists():
        shutil.copytree(Path(corpus) / "onescience", repository / "onescience", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    return repository


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--binary", required=True)
    p.add_argument("--corpus", required=True)
    p.add_argument("--packages", default=str(ROOT / ".cache/megatron"), help="folder with megatron-core")
    p.add_argument("--ci", action="store_true", help="one model")
    p.add_argument("--only", nargs="*")
    p.add_argument("--pp", type=int)
    p.add_argument("--tp", type=int, default=2)
    p.add_argument("--work")
    p.add_argument("--no-run", action="store_true")
    p.add_argument("--json", help="write the figures there")
    a = p.parse_args()
    a.binary = str(Path(a.binary).resolve())   # it is called in other folders
    work = Path(a.work or tempfile.mkdtemp(prefix="shardwright-onescience-"))
    work.mkdir(parents=True, exist_ok=True)
    repository = library(a.corpus, work)
    specs, failures, figures = [], [], []
    ours = {e["id"] for e in yaml.safe_load((HERE / "models.yaml").read_text())}
    for model in a.only or (["os3-transformer"] if a.ci else MODELS):
        source = HERE / "models.yaml" if model in ours else ROOT / "tests/corpus/corpus.yaml"
        subprocess.run([sys.executable, ROOT / "tests/corpus/make_jobs.py", source, ROOT / "tests/corpus/run_corpus.py", a.corpus,
                        work / "jobs", model], check=True, stdout=subprocess.DEVNULL)
        job_file = work / "jobs" / model / "job.yaml"
        job = yaml.safe_load(job_file.read_text())
        job["python_path"] = [str(repository), *job["python_path"]]
        job_file.write_text(yaml.safe_dump(job, sort_keys=False))
        for pp in [a.pp] if a.pp else MODELS.get(model, [2])[-1:] if a.ci else MODELS.get(model, [2]):
            command = [a.binary, "convert", str(job_file), "--tp", str(a.tp), "--pp", str(pp), "--target", "onescience", "-o", str(repository), "--json"]
            run = subprocess.run(command, capture_output=True, text=True)
            if run.returncode:
                failures.append(f"{model} x{pp}: convert: {run.stderr.strip()[:1500]}")
                continue
            report = json.loads(run.stdout)
            again = subprocess.run(command, capture_output=True, text=True)
            if again.returncode or json.loads(again.stdout)["written"]:
                failures.append(f"{model} x{pp}: a second run writes again: {again.stderr[:300]}{again.stdout[:300]}")
            written = [repository / f for f in report["files"] if f.endswith(".py")]
            found = subprocess.run([a.binary, "lint", *written, "--format", "json", "--python-path", a.corpus], capture_output=True, text=True, cwd=repository)
            found = [f for f in json.loads(found.stdout) if f["severity"] != "info"]
            if found:
                failures.append(f"{model} x{pp}: lint finds {found[0]['code']} and {len(found) - 1} more: {found[0]['file']}:{found[0]['line']}: {found[0]['message']}")
            package = [f for f in report["files"] if f.endswith("/__init__.py")][0]
            print(f"converted {model} x{pp}: {len(report['files'])} files, fallbacks {len(report['fallbacks'])}", flush=True)
            for f in report["fallbacks"]:
                print("   ", f["where"], f["module"], f["reason"][:160])
            specs.append({"name": f"{model} x{pp}", "fallbacks": len(report["fallbacks"]), "python_path": [str(repository), a.corpus], "packages": a.packages, "prepare": str(work / "jobs" / model / "prepare.py"),
                          "package": str(Path(package).parent).replace("/", "."), "support": "onescience.distributed.parallel_parts", "model": job["model"],
                          "build": job["build"], "call": job.get("call"), "pp": pp, "params": str(repository / Path(package).parent / ".shardwright" / "params.yaml"),
                          "runtime": str(ROOT / "runtime/python"),
                          "inputs": {k: json.loads(v[v.index("["):v.index("]") + 1]) if v[0] != "=" else v[1:] for k, v in job["inputs"].items()}})
    bare = "\nfor b in ('onescience.distributed', 'onescience.models.cfd_benchmark'):\n    rc.make_bare(b)\n"
    for spec in specs:
        f = Path(spec["prepare"])
        if "onescience.distributed" not in f.read_text():
            f.write_text(f.read_text() + bare)
    if specs and not a.no_run:
        # Models in one process share the library's modules, so each gets a launch: the imports of one must not hide the other's.
        for spec in specs:
            (work / "spec.json").write_text(json.dumps([spec]))
            result = work / "result.json"
            result.unlink(missing_ok=True)
            env = dict(os.environ, OMP_NUM_THREADS="1")
            run = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(a.tp), str(HERE / "stage_worker.py"),
                                  str(work / "spec.json"), str(result)], capture_output=True, text=True, env=env, timeout=900)
            if not result.exists():
                failures.append(f"{spec['name']}: {run.stderr.strip()[-1500:]}")
                continue
            r = json.loads(result.read_text())[0]
            figures.append({**r, "name": spec["name"], "tp": a.tp, "pp": spec["pp"], "fallbacks": spec["fallbacks"]})
            if "error" in r:
                failures.append(f"{spec['name']}: {r['error']}\n{r['trace'][-1500:]}")
            elif max(r["outputs"], r["gradients"]) > BOUND or r["missing"] or not r["sharded"]:
                failures.append(f"{spec['name']}: {r}")
            else:
                print(f"same {spec['name']}: outputs {r['outputs']:.1e}, {r['compared']} gradients {r['gradients']:.1e} ({r['sharded']} sharded)", flush=True)
    if a.json:
        Path(a.json).write_text(json.dumps(figures))
    for f in failures:
        print("FAILED", f)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
