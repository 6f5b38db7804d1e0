#!/usr/bin/env python3
"""Runs everything that gives a figure and writes docs/measured.md: measure.py --binary BIN --corpus DIR [--parts PART…]

Parts: models (run_models.py --all: hours on few cores; a table that is newer than the program, out/table.md, is taken over), oracle,
tree, payload, stages (Pangu at its published size beside the obvious hand cut), bench. A part that is not run keeps the section that
docs/measured.md has, with its date. faults, alarms, lint, fuzz: lint on mutated programs, on code that runs right, its speed, 100,000 damaged inputs (--runs). megatron: generated stages in Megatron-Core's schedule. Exit code 1 where a part fails; what failed is written down too.
"""
import argparse
import datetime
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "bench"))
import analysis  # noqa: E402

OUT = ROOT / "docs" / "measured.md"
PARTS = ["models", "oracle", "tree", "payload", "stages", "bench", "faults", "alarms", "lint", "fuzz", "megatron", "onescience"]
TITLES = {
    "models": "Original and generated program",
    "oracle": "Axes and stages beside the prototype's",
    "tree": "Trees beside PyTorch's modules",
    "payload": "Predicted and counted payload",
    "stages": "Stages of Pangu-Weather at its published size",
    "bench": "Speed and memory of the analysis",
    "faults": "Lint: single faults in correct programs",
    "alarms": "Lint: code that runs right",
    "lint": "Lint: speed beside ruff's",
    "fuzz": "Lint: damaged and hostile input",
    "megatron": "Target megatron in Megatron-Core's own schedule",
    "onescience": "Target onescience: stages of the library's models, Megatron-Core's layers",
}


class Part:
    """One command, its figures and its text."""

    def __init__(self, a, out):
        self.a, self.out = a, Path(out)

    def call(self, *command, figures=None, corpus=True):
        command = [sys.executable, *map(str, command), "--binary", self.a.binary, *(["--corpus", self.a.corpus] if corpus else [])]
        if figures:
            command += ["--json", str(figures)]
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        print(run.stdout, run.stderr[-2000:], sep="", flush=True)
        return run

    def lines(self, run, *beginnings):
        """The last line, and those that begin so."""
        last = [x for x in run.stdout.strip().splitlines() if re.fullmatch(r"\d+ passed, \d+ failed", x)]
        failed = [f"- {x}" for x in run.stdout.splitlines() if x.startswith(beginnings or "FAILED")]
        return [f"Result: {last[-1] if last else 'no result, exit code ' + str(run.returncode)}.", "", *failed, *([""] if failed else [])]

    def models(self):
        table = ROOT / "out" / "table.md"
        if table.exists() and table.stat().st_mtime > os.path.getmtime(self.a.binary):
            when = datetime.datetime.fromtimestamp(table.stat().st_mtime).strftime("%Y-%m-%d %H:%M")
            return "run_models.py --all --table out/table.md", True, [f"Table of {when}.", "", *table.read_text().splitlines()]
        table.parent.mkdir(exist_ok=True)
        run = self.call("tests/equivalence/run_models.py", "--all", "--table", table)
        return "tests/equivalence/run_models.py --all", run.returncode == 0, [*self.lines(run), *(table.read_text().splitlines() if table.exists() else [])]

    def oracle(self):
        path = self.out / "oracle.json"
        run = self.call("tests/oracle/check.py", figures=path)
        rows = ["| model | axes (prototype's) | chosen | explained differences | slowest stage / mean, pp 2: best, chosen (prototype's) | pp 4 |", "| --- | --- | --- | --- | --- | --- |"]
        for ident, f in (json.loads(path.read_text()) if path.exists() else {}).items():
            cuts = [(lambda c: f"{c['optimum']:.4f}, {c['chosen']:.4f} ({c['theirs']})" if c else "failed")(f["cuts"].get(pp)) for pp in ("2", "4")]
            rows.append(f"| {ident} | {f.get('axes', 'failed')} ({f.get('theirs', '-')}) | {f.get('chosen', '-')} | {f.get('explained', '-')} | {cuts[0]} | {cuts[1]} |")
        return "tests/oracle/check.py", run.returncode == 0, [*self.lines(run), *rows]

    def tree(self):
        path = self.out / "tree.json"
        run = self.call("tests/corpus/check_tree.py", figures=path)
        rows = ["| model | modules with the same counts | parameters |", "| --- | --- | --- |"]
        for ident, f in (json.loads(path.read_text()) if path.exists() else {}).items():
            rows.append(f"| {ident} | {f['modules']}{' and differences' if f['wrong'] else ''} | {f['parameters']} |")
        return "tests/corpus/check_tree.py", run.returncode == 0, [*self.lines(run), *rows]

    def payload(self):
        path = self.out / "payload.json"
        run = self.call("tests/equivalence/check_payload.py", *(["--only", *self.a.payload] if self.a.payload else []), figures=path)
        rows = ["| model, tp x pp | bytes a step in float64, all ranks, by tag | as predicted |", "| --- | --- | --- |"]
        for name, f in (json.loads(path.read_text()) if path.exists() else {}).items():
            rows.append(f"| {name} | {', '.join(f'{k} {v}' for k, v in sorted(f['bytes'].items()))} | {'no' if f['wrong'] else 'yes'} |")
        return "tests/equivalence/check_payload.py" + (" --only " + " ".join(self.a.payload) if self.a.payload else ""), run.returncode == 0, [*self.lines(run), *rows]

    def script(self, *command):
        """A script that writes its own table."""
        path = self.out / "table.md"
        run = subprocess.run([sys.executable, *map(str, command), "--binary", self.a.binary, "--table", str(path)], cwd=ROOT, capture_output=True, text=True)
        print(run.stdout[-6000:], run.stderr[-2000:], sep="", flush=True)
        return run, path.read_text().splitlines() if path.exists() else [f"No result, exit code {run.returncode}."]

    def faults(self):
        run, table = self.script("tests/lint/mutations/run.py")
        missed = [f"- {x}" for x in run.stdout.splitlines() if x.startswith(("missed: ", "false alarm: ", "fix: "))]
        return "tests/lint/mutations/run.py", run.returncode == 0, [*table, "", *(["What was not found, or found wrongly:", "", *missed] if missed else [])]

    def alarms(self):
        extra = ["--packages", self.a.packages] if self.a.packages else []
        run, table = self.script("tests/lint/false_alarms.py", "--corpus", self.a.corpus, "--all", *extra)
        return "tests/lint/false_alarms.py --all", run.returncode == 0, [*table, *(f"- {x}" for x in run.stdout.splitlines() if x.startswith(("FALSE ALARM", "not converted")))]

    def lint(self):
        path = self.out / "lint.json"
        extra = [x for flag, value in (("--packages", self.a.packages), ("--ruff", self.a.ruff)) if value for x in (flag, value)]
        run = self.call("tests/bench/lint.py", *extra, figures=path)
        rows = ["| tree | lint s | ruff s | ratio | bound | kept | peak MB |", "| --- | --- | --- | --- | --- | --- | --- |"]
        measured = json.loads(path.read_text()) if path.exists() else {"trees": {}, "editor_ms": {}}
        for name, f in measured["trees"].items():
            rows.append(f"| {name}{', %d of 20 faults found' % f['faults_found'] if 'faults_found' in f else ''} | {f['lint_s']:.3f} | {f['ruff_s']:.3f} | {f['ratio']:.2f} | {f['bound']} | {'yes' if f['kept'] else 'no'} | {f['peak_mb']:.0f} |")
        if typed := measured["editor_ms"]:
            slowest = max(typed, key=typed.get)
            rows += ["", f"One edited file in the language server, from a typed character to the findings: {sorted(typed.values())[len(typed) // 2]:.1f} ms (median of {len(typed)} files), slowest {slowest} {typed[slowest]:.1f} ms; bound 50 ms."]
        return "tests/bench/lint.py", run.returncode == 0, rows

    def fuzz(self):
        command = ["tests/fuzz/run_fuzz.py", "--tool", str(Path(self.a.binary).with_name("fuzz_lint")), "--runs", str(self.a.runs), "--jobs", str(self.a.jobs)]
        run = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True)
        print(run.stdout[-3000:], run.stderr[-2000:], sep="", flush=True)
        said = [f"- {x}" for x in (run.stdout + run.stderr).splitlines() if x.startswith("fuzz: ")]
        return f"tests/fuzz/run_fuzz.py --runs {self.a.runs} --jobs {self.a.jobs}", run.returncode == 0, said or [f"No result, exit code {run.returncode}."]

    def megatron(self):
        path = self.out / "megatron.json"
        packages = ["--packages", self.a.packages] if self.a.packages else []
        run = self.call("tests/onescience/check_megatron.py", *packages, figures=path, corpus=False)
        rows = ["| model, tp x pp | outputs | loss | gradients compared (sharded) | largest difference | norm |", "| --- | --- | --- | --- | --- | --- |"]
        for f in json.loads(path.read_text()) if path.exists() else []:
            rows.append(f"| {f['name']}, {f['grid'][0]} x {f['grid'][1]} | {f['outputs']:.1e} | {f['loss']:.1e} | {f['compared']} ({f['sharded']}) | {f['gradients']:.1e} | {f['norm']:.1e} |")
        said = [f"- {x}" for x in run.stdout.splitlines() if x.startswith(("FAILED", "refused"))]
        return "tests/onescience/check_megatron.py", run.returncode == 0, [*rows, *([""] if said else []), *said]

    def onescience(self):
        path = self.out / "onescience.json"
        packages = ["--packages", self.a.packages] if self.a.packages else []
        run = self.call("tests/onescience/check_stages.py", *packages, figures=path)
        rows = ["| model, tp x pp | outputs | gradients compared (sharded) | largest difference | stays whole |", "| --- | --- | --- | --- | --- |"]
        for f in json.loads(path.read_text()) if path.exists() else []:
            if "error" not in f:
                rows.append(f"| {f['name'].split(' ')[0]}, {f['tp']} x {f['pp']} | {f['outputs']:.1e} | {f['compared']} ({f['sharded']}) | {f['gradients']:.1e} | {f['fallbacks']} |")
        said = [f"- {x}" for x in run.stdout.splitlines() if x.startswith("FAILED")]
        return "tests/onescience/check_stages.py", run.returncode == 0, [*rows, *([""] if said else []), *said]

    def stages(self):
        job = analysis.pangu(self.a.corpus, self.out)
        said = []
        for command in (["plan", job, "--tp", "1", "--pp", "4", "--json"], ["tree", job, "--json"]):
            run = subprocess.run([self.a.binary, *map(str, command)], capture_output=True, text=True)
            if run.returncode:
                return "shardwright plan", False, [f"- FAILED {command[0]}: {run.stderr.strip()[-300:]}"]
            said.append(json.loads(run.stdout))
        plan, tree = said
        flops = {c["name"]: c["flops"] for c in tree["children"]}
        hand = [["patchembed2d", "patchembed3d", "layer1"], ["downsample", "layer2"], ["layer3"], ["upsample", "layer4", "patchrecovery2d", "patchrecovery3d"]]
        costs = {"planned": [s["flops"] for s in plan["stages"]], "one layer group a stage (2 + 6 + 6 + 2 blocks)": [sum(flops[m] for m in group) for group in hand]}
        rows = ["| cut | FLOPs forward by stage | slowest / mean | slowest / fastest |", "| --- | --- | --- | --- |"]
        for name, c in costs.items():
            rows.append(f"| {name} | {', '.join(f'{x:.3g}' for x in c)} | {max(c) * len(c) / sum(c):.3f} | {max(c) / min(c):.2f} |")
        where = [f"Stage {s['stage']} ends {s['cut']['at']}." for s in plan["stages"] if s["cut"]]
        return "shardwright plan JOB --pp 4 --json; shardwright tree JOB --json (Pangu(), x f32[1,72,721,1440])", True, [*rows, "", " ".join(where)]

    def bench(self):
        command = [sys.executable, "tests/bench/analysis.py", "--binary", self.a.binary, "--corpus", self.a.corpus, "--json", "--rounds", str(self.a.rounds)]
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        print(run.stderr[-2000:], flush=True)
        try:
            d = json.loads(run.stdout)
        except json.JSONDecodeError:
            return "tools/bench analysis", False, [f"- FAILED: {run.stderr.strip()[-400:]}"]
        return f"tools/bench analysis --rounds {self.a.rounds}", run.returncode == 0, bench_lines(d)


def bench_lines(d):
    rows = [f"{d['rounds']} rounds in turns, load average {d['load']:.1f} on {os.cpu_count()} cores. Ratios of medians of CPU time; in brackets the lowest and highest.", "", "| figure | value | bound | kept |", "| --- | --- | --- | --- |"]
    for x in d["results"]:
        v = x["value"]
        rows.append(f"| {x['what']} | {v[0]:.3g} ({v[1]:.3g} … {v[2]:.3g}) | {x['bound']:g} | {'yes' if x['kept'] else '**no**'} |")
    rows += ["", "| command | CPU s, median (lowest … highest) | elapsed s | peak MB |", "| --- | --- | --- | --- |"]
    for name, x in d["times"].items():
        rows.append(f"| {name} | {x['cpu_s']:.3f} ({x['cpu_low']:.3f} … {x['cpu_high']:.3f}) | {x['elapsed_s']:.3f} ({x['elapsed_low']:.3f} … {x['elapsed_high']:.3f}) | {x['peak_mb']:.0f} |")
    return rows


def build_of(binary):
    """How the program was built, where its build folder tells: figures of an unoptimised one are no figures of the program."""
    cache = Path(binary).resolve().parent.parent / "CMakeCache.txt"
    if not cache.exists():
        return "build unknown"
    values = dict(re.findall(r"^(CMAKE_\w+):\w+=(.*)$", cache.read_text(), flags=re.M))
    kind = values.get("CMAKE_BUILD_TYPE", "")
    return " ".join(["built as", kind or "no type", values.get("CMAKE_CXX_FLAGS", ""), values.get("CMAKE_CXX_FLAGS_" + kind.upper(), "")]).replace("  ", " ").strip()


def stamp(command, binary, when=None):
    when = (when or datetime.datetime.now()).strftime("%Y-%m-%d %H:%M")
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    return f"`{command}`, {when}, commit {commit}, {platform.machine()}, {os.cpu_count()} cores, load average {os.getloadavg()[1]:.1f}; program {build_of(binary)}."


def old_sections():
    """{part: text} of the file as it is."""
    if not OUT.exists():
        return {}
    pieces = re.split(r"^## (.*)$", OUT.read_text(), flags=re.M)
    by_title = dict(zip(pieces[1::2], pieces[2::2]))
    return {part: by_title[title] for part, title in TITLES.items() if title in by_title}


def write(sections):
    head = ["# Measured", "", "Written by `tests/measure.py` (`tools/test --all`); each section has its command and date. Nothing here is estimated; what has not been run says so.", ""]
    for part in PARTS:
        head += [f"## {TITLES[part]}", "", (sections.get(part) or "Not measured yet.").strip(), ""]
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text("\n".join(head))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--binary", required=True)
    p.add_argument("--corpus", required=True)
    p.add_argument("--parts", nargs="*", choices=PARTS, default=PARTS)
    p.add_argument("--payload", nargs="*", help="only these models")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--packages", help="folder with megatron-core, for alarms and lint")
    p.add_argument("--ruff", help="ruff, for lint")
    p.add_argument("--runs", type=int, default=100_000, help="inputs for fuzz")
    p.add_argument("--jobs", type=int, default=2, help="processes for fuzz")
    a = p.parse_args()
    sections, failed = old_sections(), []
    for part in a.parts:
        print(f"==> {TITLES[part]}", flush=True)
        with tempfile.TemporaryDirectory() as out:
            command, good, text = getattr(Part(a, out), part)()
        if not good:
            failed.append(part)
        sections[part] = "\n".join([stamp(command, a.binary), "", *text])
        write(sections)
    print(f"\n{len(a.parts) - len(failed)} passed, {len(failed)} failed" + (f": {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
