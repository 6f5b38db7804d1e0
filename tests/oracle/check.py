#!/usr/bin/env python3
"""Axes and stages of `shardwright plan` on the required models against the prototype's: check.py --binary BIN --corpus DIR [ID…]

Axes as compare_oracle.py compares them; a difference must be explained in differences.yaml. Stages: the optimum over our legal cuts
is at most 3 % slower than the prototype's. plan_differences.yaml explains what generation and cutting add, with what has to be seen
in the plan for the explanation to hold. An explanation that no longer applies fails too. No torch. Prints `N passed, N failed`; exit code 1 on a failure.
"""
import argparse
import fnmatch
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE))
import compare_oracle  # noqa: E402

REQUIRED = ["os3-pangu", "buildnanogpt-gpt", "vitpt-simplevit", "timm-vit", "torch-encoder", "timm-mixer", "ditml-dit", "litgpt-gpt", "whisper"]
STAGES = (2, 4)
WORSE = 1.03


def jobs(ids, corpus, out):
    """Job files of corpus models, by id."""
    subprocess.run([sys.executable, ROOT / "tests/corpus/make_jobs.py", ROOT / "tests/corpus/corpus.yaml", ROOT / "tests/corpus/run_corpus.py", corpus, out, *ids],
                   check=True, stdout=subprocess.DEVNULL)
    return {i: Path(out) / i / "job.yaml" for i in ids}


def said(plan):
    """What the plan says of itself: its fallbacks and warnings, as text."""
    return "\n".join([f["reason"] for f in plan["fallbacks"]] + [w if isinstance(w, str) else json.dumps(w) for w in plan["warnings"]])


def axes(expected, plan, explained):
    """Texts of what is wrong, number of explained differences. An explanation with `seen` holds only where the plan says so."""
    found, _ = compare_oracle.compare(expected, plan["sharding"])
    used, wrong = set(), []
    for kind, names, text in found:
        why = next((i for i, e in enumerate(explained) if i not in used and e["kind"] == kind and e.get("seen", "") in said(plan) and any(fnmatch.fnmatch(n, e["parameters"]) for n in names)), None)
        if why is None:
            wrong.append(f"unexplained {kind}: {text}")
        else:
            used.add(why)
    wrong += [f"explanation that no longer applies: {e['kind']} {e['parameters']}" for i, e in enumerate(explained) if i not in used]
    return wrong, len(used)


def stages(expected, plan, explained):
    """Text of what is wrong with the stages of one plan, or None."""
    pp = plan["grid"]["pp"]
    theirs, ours = expected["cuts"][str(pp)]["slowest_over_mean"], plan["balance"]["optimum"]
    worse = not math.isfinite(ours) or ours > theirs * WORSE
    if not worse:
        return f"the explanation for pp {pp} no longer applies: {ours:.4f} is within 3 % of {theirs}" if explained else None
    text = f"pp {pp}: slowest stage over mean {ours:.4f}, the prototype's {theirs} ({plan['balance']['legal_cuts']} and {expected['cuts'][str(pp)]['legal_cuts']} legal cuts)"
    if not explained:
        return text
    if explained["seen"] not in said(plan):
        return f"{text}; explained, but the plan does not say {explained['seen']!r}: {said(plan)[:300]}"
    if ours > explained["at_most"]:
        return f"{text}; explained up to {explained['at_most']}"
    return None


def halves(expected, plan, explained):
    """(matrices that the prototype marks shardable and each rank holds half of, {name: reason} of the others, what is wrong)."""
    matrices = {n for x in expected["axes"] for n, dims in x["parameters"].items() if len(dims) > 1}
    cut = {n for x in plan["sharding"]["axes"] if x["chosen"] for n in x["parameters"]}
    others, used, wrong = {}, set(), []
    for n in sorted(matrices - cut):
        why = next((i for i, e in enumerate(explained) if fnmatch.fnmatch(n, e["parameters"])), None)
        if why is None:
            wrong.append(f"{n} is shardable and whole on every rank")
        else:
            used.add(why)
            others[n] = explained[why]["why"]
    wrong += [f"no longer whole: {e['parameters']}" for i, e in enumerate(explained) if i not in used]
    return len(matrices & cut), others, wrong


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--binary", required=True)
    p.add_argument("--corpus", required=True)
    p.add_argument("--json", help="write the figures here")
    p.add_argument("ids", nargs="*")
    a = p.parse_args()
    ids = a.ids or REQUIRED
    axis_notes = yaml.safe_load((HERE / "differences.yaml").read_text()) or {}
    plan_notes = yaml.safe_load((HERE / "plan_differences.yaml").read_text()) or {}
    passed = failed = 0
    figures = {}
    with tempfile.TemporaryDirectory() as out:
        for ident, job in jobs(ids, a.corpus, out).items():
            expected = json.loads((HERE / "prototype" / "expected" / f"{ident}.json").read_text())
            figures[ident] = row = {"cuts": {}}
            for pp in STAGES:
                run = subprocess.run([a.binary, "plan", str(job), "--tp", "2", "--pp", str(pp), "--json"], capture_output=True, text=True, timeout=300)
                if run.returncode:
                    failed += 1
                    print(f"FAILED  {ident} pp {pp}: plan ends with {run.returncode}: {run.stderr.strip()[-300:]}", flush=True)
                    continue
                plan = json.loads(run.stdout)
                if pp == STAGES[0]:
                    wrong, explained = axes(expected, plan, axis_notes.get(ident, []) + plan_notes.get(ident, {}).get("axes", []))
                    row |= {"axes": len(plan["sharding"]["axes"]), "theirs": len(expected["axes"]), "chosen": sum(x["chosen"] for x in plan["sharding"]["axes"]), "explained": explained, "wrong": wrong}
                    for w in wrong:
                        print(f"FAILED  {ident} axes: {w}")
                    failed, passed = failed + bool(wrong), passed + (not wrong)
                    if not wrong:
                        print(f"same    {ident}: {len(expected['axes'])} axes of the prototype, {explained} explained differences", flush=True)
                    half, others, wrong = halves(expected, plan, plan_notes.get(ident, {}).get("whole", []))
                    row |= {"half": half, "whole": others}
                    for w in wrong:
                        print(f"FAILED  {ident} tp 2: {w}", flush=True)
                    failed, passed = failed + bool(wrong), passed + (not wrong)
                    if not wrong:
                        print(f"halved  {ident}: {half} of {half + len(others)} matrices that the prototype marks shardable" + (f"; whole: {', '.join(others)}" if others else ""), flush=True)
                row["cuts"][pp] = {"optimum": plan["balance"]["optimum"], "chosen": plan["balance"]["slowest_over_mean"], "theirs": expected["cuts"][str(pp)]["slowest_over_mean"]}
                wrong = stages(expected, plan, plan_notes.get(ident, {}).get("stages", {}).get(pp))
                failed, passed = failed + bool(wrong), passed + (not wrong)
                c = row["cuts"][pp]
                print(f"FAILED  {ident} {wrong}" if wrong else f"within  {ident} pp {pp}: slowest stage over mean {c['optimum']:.4f} (chosen {c['chosen']:.4f}), the prototype's {c['theirs']}", flush=True)
    if a.json:
        Path(a.json).write_text(json.dumps(figures, indent=1) + "\n")
    print(f"\n{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
