#!/usr/bin/env python3
"""Converts the models of models.yaml on their grids and verifies them in a few shared launches.

usage: run_models.py --binary BIN --corpus DIR [--all] [--only ID…] [--out DIR] [--table FILE]

A conversion that fails, a file that is rewritten by a second run, or a difference is a failure. Exit code 1 if there is any.
"""
import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "cases"))


def jobs_of(entry, corpus, out):
    """Path of the job file of one entry."""
    if entry["source"] == "testdata":
        return ROOT / "testdata" / (entry["id"] + ".yaml")
    if entry["source"] == "corpus":
        subprocess.run([sys.executable, ROOT / "tests/corpus/make_jobs.py", ROOT / "tests/corpus/corpus.yaml", ROOT / "tests/corpus/run_corpus.py", corpus,
                        out / "jobs", entry["id"]], check=True, stdout=subprocess.DEVNULL)
        return out / "jobs" / entry["id"] / "job.yaml"
    path = out / "jobs" / (entry["id"] + "-" + entry.get("variant", "") + ".yaml")
    import make_job
    make_job.main(ROOT / "tests/cases" / entry["id"], path, *(["--without", entry["without"]] if entry.get("without") else []))
    return path


def grids_of(spec, entry, everything):
    which = "all" if everything else "ci"
    return entry.get(which, spec["defaults"].get(entry["source"], {}).get(which, []))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--binary", required=True)
    p.add_argument("--corpus", required=True)
    p.add_argument("--all", action="store_true")
    p.add_argument("--only", nargs="*")
    p.add_argument("--grid", nargs="*", help="2x1 …: only these grids")
    p.add_argument("--out", default=str(ROOT / "out" / "equivalence"))
    p.add_argument("--table", help="write the results as a Markdown table")
    p.add_argument("--no-verify", action="store_true")
    a = p.parse_args()
    out = Path(a.out)
    out.mkdir(parents=True, exist_ok=True)
    spec = yaml.safe_load((ROOT / "tests/equivalence/models.yaml").read_text())
    converted, failures, rows = [], [], []
    for entry in spec["models"]:
        if a.only and entry["id"] not in a.only:
            continue
        grids = grids_of(spec, entry, a.all)
        if not grids:
            continue
        job = jobs_of(entry, a.corpus, out)
        for grid in grids:
            tp, pp, dp = (list(grid) + [1])[:3]
            if a.grid and f"{tp}x{pp}" not in a.grid and f"{tp}x{pp}x{dp}" not in a.grid:
                continue
            name = entry["id"] + ("-" + entry["variant"] if entry.get("variant") else "") + f"-{tp}x{pp}x{dp}"
            folder = out / name
            command = [a.binary, "convert", str(job), "--tp", str(tp), "--pp", str(pp), "--dp", str(dp), "--force", "-o", str(folder), "--json"]
            began = time.time()
            run = subprocess.run(command, capture_output=True, text=True, timeout=120)
            if run.returncode != 0:
                failures.append(f"{name}: convert ends with {run.returncode}: {run.stderr.strip()[:600]}")
                print(f"FAILED  {failures[-1]}", flush=True)
                continue
            result = json.loads(run.stdout)
            again = subprocess.run([a.binary, "convert", str(job), "--tp", str(tp), "--pp", str(pp), "--dp", str(dp), "-o", str(folder), "--json"], capture_output=True, text=True, timeout=120)
            if again.returncode != 0 or json.loads(again.stdout)["written"]:
                failures.append(f"{name}: a second run is not quiet: {again.stderr.strip()[:300] or json.loads(again.stdout)['written']}")
            for f in folder.rglob("*.py"):
                try:
                    compile(f.read_text(), str(f), "exec")
                except SyntaxError as e:
                    failures.append(f"{name}: {f}: {e}")
            print(f"converted {name}: {len(result['files'])} files, {len(result['fallbacks'])} fallbacks, {time.time() - began:.2f} s", flush=True)
            converted.append((name, folder, tp * pp * dp))
    if converted and not a.no_verify:
        # One launch a job kind would waste start-up: small worlds share one, the largest another.
        env = dict(os.environ, OMP_NUM_THREADS="1", PYTHONPATH=str(ROOT / "runtime/python") + os.pathsep + os.environ.get("PYTHONPATH", ""))
        for world in sorted({w for _, _, w in converted}):
            group = [(n, f) for n, f, w in converted if w == world]
            command = [sys.executable, "-m", "shardwright.verify", "--json", *[str(f) for _, f in group]]
            run = subprocess.run(command, capture_output=True, text=True, env=env)
            try:
                reports = json.loads(run.stdout)
            except json.JSONDecodeError:
                failures.append(f"verify of {[n for n, _ in group]} ends with {run.returncode}: {run.stderr.strip()[-1500:]}")
                print("FAILED ", failures[-1], flush=True)
                continue
            reports = reports if isinstance(reports, list) else [reports]
            if len(reports) != len(group):
                failures.append(f"verify gave {len(reports)} reports for {len(group)} models: {run.stderr.strip()[-500:]}")
            for (name, _), r in zip(group, reports):
                if r.get("same"):
                    worst = max((v for v in r["max_rel"].values() if isinstance(v, (int, float))), default=0)
                    print(f"same    {name}: {r['compared']}, worst {worst:.1e}, split {r.get('split_fraction', 0):.2f}", flush=True)
                    rows.append((name, r["compared"], worst, r.get("split_fraction", 0), r.get("seconds", 0)))
                else:
                    failures.append(f"{name}: {r.get('error') or 'differs, first at ' + str(r.get('first_difference')) + ' ' + str(r.get('different', ''))[:400]}")
                    print("FAILED ", failures[-1], flush=True)
    if a.table:
        lines = ["| model, tp x pp x dp | outputs | gradients | parameters | worst relative difference | split |", "| --- | --- | --- | --- | --- | --- |"]
        for name, c, worst, split, _ in rows:
            lines.append(f"| {name} | {c.get('outputs')} | {c.get('gradients')} | {c.get('parameters')} | {worst:.1e} | {split:.2f} |")
        Path(a.table).write_text("\n".join(lines) + "\n")
    print(f"\n{len(rows)} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
