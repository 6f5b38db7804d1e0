#!/usr/bin/env python3
"""Single faults in correct parallel programs: each mutated program is run on simulated ranks, which decides whether it changes the
numbers, and linted. Faults that change them have to be found with their code; what changes nothing has to stay silent; where lint has
safe fixes for what it found, the program after --fix has to compute the original's numbers again.

    run.py --binary BIN [--limit 30] [--only KIND] [--program NAME] [--table FILE.md] [-v]
"""
import argparse
import collections
import contextlib
import io
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import faults  # noqa: E402
import libraries  # noqa: E402
from programs import ROOT, programs, run, same  # noqa: E402

# They tell of speed, not of numbers: a mutation may earn one and change nothing.
COST = {"SW104", "SW114", "SW210", "SW209", "SW205"}
SHARE = 0.97


def write(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def lint(binary, folder, program, *flags):
    command = [binary, "lint", *flags, "--format", "json", "--tp", "2", *[x for p in program.python_path for x in ("--python-path", p)], *program.lint_paths]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"lint: exit code {done.returncode}: {done.stderr[-500:]}")
    return [f for f in json.loads(done.stdout)] if "--fix" not in flags else []


def computes(program, folder):
    """The program's numbers, or the error that it ends with."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            return run(program, folder), ""
        except Exception as error:  # noqa: BLE001
            return None, f"{type(error).__name__}: {error}"


class Tally:
    def __init__(self, verbose):
        self.by_kind = collections.defaultdict(collections.Counter)
        self.problems = []
        self.verbose = verbose

    def problem(self, text):
        self.problems.append(text)
        if self.verbose:
            print(text, file=sys.stderr, flush=True)

    def total(self, what):
        return sum(c[what] for c in self.by_kind.values())


def judge(a, binary, program, wanted, mutant, tally):
    kind, file, where, files = mutant
    count = tally.by_kind[kind]
    name = f"{program.name} {file} [{kind}] {where}"
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        write(folder, files)
        got, error = computes(program, folder)
        difference = error or same(got, wanted)
        found = [f for f in lint(binary, folder, program) if f["severity"] != "info"]
        codes = {f["code"] for f in found}
        count["mutants"] += 1
        if not difference:
            count["same"] += 1
            loud = [f for f in found if f["severity"] == "error" or f["code"] not in COST]
            if loud:
                count["false"] += 1
                tally.problem(f"false alarm: {name}: " + "; ".join(f"{f['code']} line {f['line']}: {f['message'][:150]}" for f in loud[:3]))
            return
        count["changing"] += 1
        right = faults.FAULTS.get(kind, (None, set()))[1]
        if codes & right:
            count["found"] += 1
        else:
            tally.problem(f"missed: {name}: {difference[:110]}; found {sorted(codes) or 'nothing'}" + (": " + found[0]["message"][:120] if found and a.verbose else ""))
            return
        safe = [f for f in found if f.get("fix") and f["fix"]["applicability"] == "safe" and f["fix"]["edits"]]
        if not safe:
            return
        count["fixable"] += 1
        lint(binary, folder, program, "--fix", "--allow-dirty")
        got, error = computes(program, folder)
        difference = error or same(got, wanted)
        if difference:
            tally.problem(f"fix: {name}: after --fix {difference[:160]}; fixed {sorted({f['code'] for f in safe})}")
        else:
            count["fixed"] += 1


def table(tally, mutated):
    rows = ["| kind of fault | mutations | change the numbers | found with the right code | change nothing | of these with findings | fixed by `--fix`, numbers again the original's |", "| --- | --- | --- | --- | --- | --- | --- |"]
    for kind in [*faults.FAULTS, *faults.NEUTRAL]:
        c = tally.by_kind.get(kind)
        if c:
            rows.append(f"| {kind} | {c['mutants']} | {c['changing']} | {c['found']} | {c['same']} | {c['false']} | {c['fixed']} of {c['fixable']} |")
    rows.append(f"| **all** | {tally.total('mutants')} | {tally.total('changing')} | {tally.total('found')} | {tally.total('same')} | {tally.total('false')} | {tally.total('fixed')} of {tally.total('fixable')} |")
    changing = tally.total("changing") or 1
    head = [f"{tally.total('mutants')} single mutations of {len(tally.by_kind)} kinds in {mutated} programs; {100 * tally.total('found') / changing:.1f} % of those that change the numbers are found with the right code.", ""]
    return "\n".join(head + rows) + "\n"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--binary", required=True)
    p.add_argument("--limit", type=int, help="so many, of as many kinds as there are")
    p.add_argument("--only", nargs="*", help="kinds that contain a word")
    p.add_argument("--program", nargs="*")
    p.add_argument("--table", help="writes the figures there")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("-v", "--verbose", action="store_true")
    a = p.parse_args()
    binary = os.path.abspath(a.binary)
    libraries.install()
    sys.path.append(str(ROOT / "testdata"))
    tally, chosen = Tally(a.verbose), []
    with tempfile.TemporaryDirectory() as work:
        everything = [x for x in programs(binary, work) if not a.program or any(w in x.name for w in a.program)]
        wanted = {}
        for program in everything:
            with tempfile.TemporaryDirectory() as folder:
                write(Path(folder), program.files)
                wanted[program.name], error = computes(program, folder)
                found = [f for f in lint(binary, folder, program) if f["severity"] != "info"]
                if error or found:
                    print(f"FAILED {program.name} as it is: {error} {[(f['code'], f['file'], f['line'], f['message'][:120]) for f in found]}")
                    return 1
            chosen += [(program, m) for m in faults.mutants(program) if not a.only or any(o in m[0] for o in a.only)]
        if a.limit:
            known = set((Path(__file__).parent / "missed.txt").read_text().splitlines())
            chosen = [(p, m) for p, m in chosen if f"{p.name} {m[1]} [{m[0]}] {m[2].partition(': ')[2]}" not in known]
            by_kind = collections.defaultdict(list)
            for c in chosen:
                by_kind[c[1][0]].append(c)
            draw = random.Random(a.seed)
            for c in by_kind.values():
                draw.shuffle(c)
            chosen = [c for i in range(max(map(len, by_kind.values()), default=0)) for k in by_kind.values() for c in k[i:i + 1]][: a.limit]
        for i, (program, mutant) in enumerate(chosen):
            if a.verbose and i % 20 == 0:
                print(f"{i} of {len(chosen)}", file=sys.stderr, flush=True)
            judge(a, binary, program, wanted[program.name], mutant, tally)
    for problem in sorted(tally.problems):
        print(problem)
    print(table(tally, len(everything)))
    if a.table:
        Path(a.table).write_text(table(tally, len(everything)))
    found, changing = tally.total("found"), tally.total("changing")
    bad = tally.total("false") or tally.total("fixed") < tally.total("fixable") or found < SHARE * changing
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
