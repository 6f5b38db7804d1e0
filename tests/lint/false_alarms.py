#!/usr/bin/env python3
"""Lint on code that runs right: megatron-core from PyPI, what convert writes for every target, the runtime's own package and its
examples, the correct programs of testdata/parallel. No error may come out; warnings are counted by code, with the verdicts of verdicts.yaml.

    false_alarms.py --binary BIN --corpus DIR [--packages DIR] [--table FILE.md] [--all]

--all also converts the models of the corpus (tests/equivalence/models.yaml), else those of testdata.
"""
import argparse
import collections
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TARGETS = ("runtime", "onescience", "megatron")


def lint(binary, paths, python_path=()):
    command = [binary, "lint", "--format", "json", "--tp", "2", *[x for p in python_path for x in ("--python-path", p)], *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{command}: {done.stderr[-800:]}")
    return [f for f in json.loads(done.stdout) if f["severity"] != "info"]


def jobs(a, work):
    """(name, job file, where its originals are)"""
    for job in sorted((ROOT / "testdata").glob("*.yaml")):
        yield job.stem, job, [ROOT / "testdata"]
    if a.all:
        ids = [e["id"] for e in yaml.safe_load((ROOT / "tests/corpus/corpus.yaml").read_text())]
        for ident in ids:
            made = subprocess.run([sys.executable, ROOT / "tests/corpus/make_jobs.py", ROOT / "tests/corpus/corpus.yaml", ROOT / "tests/corpus/run_corpus.py", a.corpus, work / "jobs", ident], capture_output=True, text=True)
            job = work / "jobs" / ident / "job.yaml"
            if made.returncode == 0 and job.exists():
                yield ident, job, yaml.safe_load(job.read_text()).get("python_path", [])


def converted(a, work):
    """(name, folder, where the originals are) of everything that convert writes; what it refuses is named."""
    for name, job, originals in jobs(a, work):
        for target in TARGETS:
            for pp in (1, 2):
                out = work / f"{name}-{target}-{pp}"
                done = subprocess.run([a.binary, "convert", job, "--tp", "2", "--pp", str(pp), "--target", target, "--force", "-o", out], capture_output=True, text=True, timeout=600)
                if done.returncode:
                    print(f"not converted: {name} {target} pp {pp}: {done.stderr.strip().splitlines()[-1][:160] if done.stderr.strip() else done.returncode}")
                    continue
                yield f"{name} for {target}, pp {pp}", out, originals


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--binary", required=True)
    p.add_argument("--corpus", default="")
    p.add_argument("--packages", default=str(ROOT / ".cache/megatron"), help="folder with megatron-core")
    p.add_argument("--table")
    p.add_argument("--all", action="store_true")
    p.add_argument("-v", "--verbose", action="store_true", help="names each warning")
    a = p.parse_args()
    verdicts = yaml.safe_load((HERE / "verdicts.yaml").read_text()) or {}
    errors, counts, sources = [], collections.Counter(), collections.Counter()
    allowed = verdicts.get("errors", {})
    with tempfile.TemporaryDirectory() as work:
        work = Path(work)
        where = [("runtime package", [ROOT / "runtime/python"], []), ("hand-written programs", [ROOT / "testdata/parallel"], []), ("hand-made package of the runtime's tests", [ROOT / "tests/equivalence/hand"], [])]
        if (Path(a.packages) / "megatron").is_dir():
            where.append(("megatron-core", [Path(a.packages) / "megatron"], []))
        else:
            print(f"megatron-core is not in {a.packages}: left out")
        where += [(name, [folder], originals) for name, folder, originals in converted(a, work)]
        for name, paths, python_path in where:
            group = "converted" if " for " in name else name
            sources[group] += 1
            for f in lint(a.binary, paths, python_path):
                counts[f["code"]] += f["severity"] == "warning"
                if a.verbose:
                    print(f"{f['severity']}: {name}: {f['file'].replace(str(work) + '/', '')}:{f['line']}: {f['code']} {f['message'][:240]}", flush=True)
                if f["severity"] == "error" and not any(name.startswith(k) and f["code"] == v["code"] for k, v in allowed.items()):
                    errors.append(f"{name}: {f['file'].replace(str(work) + '/', '')}:{f['line']}: {f['code']} {f['message'][:180]}")
    for e in errors:
        print("FALSE ALARM", e)
    rows = ["Looked at: " + "; ".join(f"{n} {g}" if n > 1 else g for g, n in sources.items()) + f". Errors: {len(errors)}.", ""]
    rows += ["| code | warnings | verdict |", "| --- | --- | --- |"]
    rows += [f"| {c} | {n} | {verdicts.get('warnings', {}).get(c, 'none yet')} |" for c, n in sorted(counts.items(), key=lambda x: -x[1])[:20] if n]
    for name, v in allowed.items():
        rows += ["", f"Not counted, because they are right: {v['code']} in {name}: {v['why']}"]
    text = "\n".join(rows) + "\n"
    print(text)
    if a.table:
        Path(a.table).write_text(text)
    print(f"{len(sources)} passed, 0 failed" if not errors else f"{len(sources) - 1} passed, {len(errors)} failed")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
