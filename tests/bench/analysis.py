#!/usr/bin/env python3
"""Speed and memory of the analysis, as ratios in one run: analysis.py --binary BIN --corpus DIR [--json] [--rounds N]

All commands run in turns, so that what else the machine does hits them alike. Times are CPU time (user + system) of the process, which
other load disturbs least, and elapsed time beside it; of every command the median and the spread (lowest … highest). `import torch` is
the yardstick. Bounds: `tree` and `convert` of Pangu at its published size (into a folder, and into
the library with its training directory, 4 stages × tp 2) below 1/5 of it, start-up below 10 ms, below 200 MB, a GPT of
96 layers at most 10 × one of 12. Exit code 1 where one is not kept.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def once(command):
    """(CPU seconds, elapsed seconds, peak MB) of one process."""
    began = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    said = child.stderr.read()
    _, status, used = os.wait4(child.pid, 0)
    elapsed = time.perf_counter() - began
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} ends with {child.returncode}: {said.strip()[-500:]}")
    return used.ru_utime + used.ru_stime, elapsed, used.ru_maxrss / 1024


def pangu(corpus, out):
    """Job of Pangu as it was published: the constructor's defaults."""
    subprocess.run([sys.executable, ROOT / "tests/corpus/make_jobs.py", ROOT / "tests/corpus/corpus.yaml", ROOT / "tests/corpus/run_corpus.py", corpus, out, "os3-pangu"], check=True, stdout=subprocess.DEVNULL)
    path = Path(out) / "os3-pangu" / "job.yaml"
    job = yaml.safe_load(path.read_text())
    job["build"], job["inputs"] = "Pangu()", {"x": "f32[1,72,721,1440]"}
    path.write_text(yaml.safe_dump(job, sort_keys=False))
    return path


def library(corpus, out, job):
    """A fresh copy of the library's repository with a training script for Pangu, and the job that names it: what --target onescience
    writes into."""
    folder = Path(out) / "library"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(Path(corpus) / "onescience", folder / "onescience", ignore=shutil.ignore_patterns("__pycache__", "*.so", "datapipes", "utils"))
    shutil.copytree(ROOT / "testdata/weather_project/examples/earth/wind", folder / "examples/earth/pangu")
    script = folder / "examples/earth/pangu/train.py"
    script.write_text(script.read_text().replace("onescience.models.wind import Wind", "onescience.models.pangu.pangu import Pangu").replace("model = Wind(", "model = Pangu("))
    there = yaml.safe_load(job.read_text())
    there["python_path"] = [str(folder), *there["python_path"]]
    there["train"] = {"script": str(script)}
    there.pop("verify", None)  # its files lie beside the other job
    (folder / "job.yaml").write_text(yaml.safe_dump(there, sort_keys=False))
    return folder


def gpt(depth, out):
    """Job of testdata's GPT with `depth` layers."""
    job = yaml.safe_load((ROOT / "testdata/gpt_tied.yaml").read_text())
    job["model"] = f"{ROOT / 'testdata' / 'gpt_tied.py'}:{job['model'].split(':')[1]}"
    job["args"]["depth"] = depth
    path = Path(out) / f"gpt{depth}.yaml"
    path.write_text(yaml.safe_dump(job, sort_keys=False))
    return path


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--binary", required=True)
    p.add_argument("--corpus", required=True)
    p.add_argument("--json", action="store_true")
    p.add_argument("--rounds", type=int, default=5)
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as out:
        big, short, deep = pangu(a.corpus, out), gpt(12, out), gpt(96, out)

        def convert(job, *grid):
            shutil.rmtree(Path(out) / "converted", ignore_errors=True)  # a second run would find everything written
            return [a.binary, "convert", str(job), *grid, "-o", str(Path(out) / "converted"), "-q"]

        def whole(*grid):
            folder = library(a.corpus, out, big)
            return [a.binary, "convert", str(folder / "job.yaml"), *grid, "--target", "onescience", "-o", str(folder), "-q"]

        commands = {
            "import torch": lambda: [sys.executable, "-c", "import torch"],
            "tree pangu": lambda: [a.binary, "tree", str(big)],
            "convert pangu 2x1": lambda: convert(big, "--tp", "2"),
            "convert pangu 2x4": lambda: convert(big, "--tp", "2", "--pp", "4"),
            "convert pangu, library": lambda: whole("--tp", "2", "--pp", "4"),
            "convert gpt 12": lambda: convert(short, "--tp", "2", "--pp", "2"),
            "convert gpt 96": lambda: convert(deep, "--tp", "2", "--pp", "2"),
            "start-up": lambda: [a.binary, "--version"],
        }
        whole_there = len(json.loads(subprocess.run([*whole("--tp", "2", "--pp", "4"), "--json"], check=True, stdout=subprocess.PIPE, text=True).stdout)["fallbacks"])
        samples = {name: [] for name in commands}
        for _ in range(a.rounds):
            for name, command in commands.items():
                repeat = 10 if name == "start-up" else 1
                samples[name] += [once(command()) for _ in range(repeat)]
    rows = {}
    for name, s in samples.items():
        cpu, elapsed, memory = zip(*s)
        rows[name] = {"cpu_s": statistics.median(cpu), "cpu_low": min(cpu), "cpu_high": max(cpu), "elapsed_s": statistics.median(elapsed), "elapsed_low": min(elapsed), "elapsed_high": max(elapsed), "peak_mb": max(memory)}

    def over(name, base):
        """Ratio of medians, and the lowest and highest of the ratios round by round."""
        per_round = [x[0] / y[0] for x, y in zip(samples[name], samples[base])]
        return rows[name]["cpu_s"] / rows[base]["cpu_s"], min(per_round), max(per_round)

    results = []
    for name in ("tree pangu", "convert pangu 2x1", "convert pangu 2x4", "convert pangu, library"):
        results.append({"what": f"{name} / import torch, CPU time", "value": over(name, "import torch"), "bound": 0.2})
        results.append({"what": f"{name}, peak MB", "value": (rows[name]["peak_mb"],) * 3, "bound": 200})
    results.append({"what": "convert gpt 96 layers / 12 layers, CPU time", "value": over("convert gpt 96", "convert gpt 12"), "bound": 10})
    results.append({"what": "convert pangu, library: left whole", "value": (whole_there,) * 3, "bound": 0})
    r = rows["start-up"]
    # The lowest elapsed time: what the program itself takes; the median has the other load of the machine in it.
    results.append({"what": "start-up, elapsed ms (lowest, lowest, median)", "value": (r["elapsed_low"] * 1e3, r["elapsed_low"] * 1e3, r["elapsed_s"] * 1e3), "bound": 10})
    for x in results:
        x["kept"] = x["value"][0] <= x["bound"]
    kept = all(x["kept"] for x in results)
    if a.json:
        print(json.dumps({"rounds": a.rounds, "load": os.getloadavg()[0], "times": rows, "results": results, "kept": kept}, indent=1))
    else:
        print(f"{a.rounds} rounds in turns; load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
        for name, x in rows.items():
            print(f"  {name:22} CPU {x['cpu_s']:7.3f} s ({x['cpu_low']:.3f} … {x['cpu_high']:.3f})   elapsed {x['elapsed_s']:7.3f} s ({x['elapsed_low']:.3f} … {x['elapsed_high']:.3f})   peak {x['peak_mb']:.0f} MB")
        print()
        for x in results:
            v = x["value"]
            print(f"  {'kept    ' if x['kept'] else 'NOT KEPT'} {x['what']}: {v[0]:.3g} ({v[1]:.3g} … {v[2]:.3g}), bound {x['bound']:g}")
        print(f"\n{sum(x['kept'] for x in results)} passed, {sum(not x['kept'] for x in results)} failed")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
