#!/usr/bin/env python3
"""Bytes handed to c10d beside those that `plan` predicts: check_payload.py --binary BIN --corpus DIR [--only ID…] [--grid 2x1…]

Models are converted and one optimizer step runs in float64 (`verify --json`); every rank's counters must be what plan.yaml's
collectives say for its stage, tag by tag, exactly. The plan counts at the traced types: floating-point payload is counted twice as
long in float64, integer tensors at a cut as they are. The tag `header` (shapes agreed on before the first micro-batch) is a constant
of the runtime and not predicted. For a GPT the activation tags must equal the reference count: one all-reduce forward and one
backward for every attention and every MLP, of batch × sequence × width elements; for the vocabulary one forward after the look-up,
one backward before the head, and the gather of the logits. Every model of models.yaml at the grids among 2x1, 1x2 and 2x2 that it
has there. Prints `N passed, N failed` (one grid of one model
each); exit code 1 on a failure.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "equivalence"))
import run_models  # noqa: E402

GRIDS = ["2x1", "1x2", "2x2"]
FLOATS = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2}
NOT_PREDICTED = {"header"}


def prediction(plan, pp_rank):
    """{tag: bytes in float64} of a rank in stage pp_rank."""
    micro, out = plan["micro_batches"], {}
    whole = {}  # bytes a step of integer tensors at the cuts, by sending stage: these do not grow
    for s in plan["stages"]:
        if s.get("cut"):
            whole[s["stage"]] = micro * sum(x["bytes"] for x in s["cut"]["sends"] if x["dtype"] not in FLOATS)
    for c in plan["collectives"]:
        if c["stage"] not in ("all", -1, pp_rank):
            continue
        size = c["bytes"]
        if c["tag"] == "boundary":
            fixed = whole.get(pp_rank, 0) if c["site"] == f"stage {pp_rank} to {pp_rank + 1}" else 0
            size = (size - fixed) * 2 + fixed
        elif c["tag"] != "norm":  # that one is float64 in every run
            size *= 2
        out[c["tag"]] = out.get(c["tag"], 0) + size
    return out


def reference(plan, job, pp_rank):
    """{tag: bytes} for a GPT with a vocabulary: half of the pairs that the stage holds, the look-up on the first, the head on the last."""
    a = job["args"]
    shape, vocabulary = job["inputs"]["ids"].split("<")
    batch, length = (int(x) for x in shape.split("[")[1].split("]")[0].split(","))
    pp, tp = plan["grid"]["pp"], plan["grid"]["tp"]
    if a["depth"] % pp:
        raise ValueError("the reference count needs stages of whole layers")
    if tp == 1:
        return {"activation_forward": 0, "activation_backward": 0}
    tokens = plan["micro_batches"] * batch * length * 8
    pairs = 2 * (a["depth"] // pp) * tokens * a["width"]
    last = pp_rank == pp - 1
    return {"activation_forward": pairs + (tokens * a["width"] if pp_rank == 0 else 0) + (tokens * int(vocabulary) // tp if last else 0),
            "activation_backward": pairs + (tokens * a["width"] if last else 0)}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--binary", required=True)
    p.add_argument("--corpus", required=True)
    p.add_argument("--only", nargs="*")
    p.add_argument("--grid", nargs="*")
    p.add_argument("--json", help="write the figures here")
    a = p.parse_args()
    models = yaml.safe_load((ROOT / "tests/equivalence/models.yaml").read_text())
    spec = {e["id"]: e for e in models["models"] if "variant" not in e}
    passed = failed = 0
    figures = {}

    def say(name, wrong, text):
        nonlocal passed, failed
        passed, failed = passed + (not wrong), failed + bool(wrong)
        for w in wrong:
            print(f"FAILED  {name}: {w}", flush=True)
        if not wrong:
            print(f"same    {name}: {text}", flush=True)

    with tempfile.TemporaryDirectory() as out:
        out = Path(out)
        by_world = {}
        for ident in a.only or spec:
            job = run_models.jobs_of(spec[ident], a.corpus, out)
            has = run_models.grids_of(models, spec[ident], True)
            for grid in a.grid or GRIDS:
                tp, pp = (int(x) for x in grid.split("x"))
                if not a.grid and [tp, pp] not in has:
                    continue
                name, folder = f"{ident} {grid}", out / f"{ident}-{grid}"
                run = subprocess.run([a.binary, "convert", str(job), "--tp", str(tp), "--pp", str(pp), "-o", str(folder), "-q"], capture_output=True, text=True, timeout=300)
                if run.returncode:
                    say(name, [f"convert ends with {run.returncode}: {run.stderr.strip()[-400:]}"], "")
                    continue
                by_world.setdefault(tp * pp, []).append((name, ident, folder, job))
        env = dict(os.environ, OMP_NUM_THREADS="1", PYTHONPATH=str(ROOT / "runtime/python") + os.pathsep + os.environ.get("PYTHONPATH", ""))
        for group in by_world.values():
            command = [sys.executable, "-m", "shardwright.verify", "--json", "--steps", "1", "--dtype", "f64", *[str(folder) for _, _, folder, _ in group]]
            run = subprocess.run(command, capture_output=True, text=True, env=env)
            try:
                reports = json.loads(run.stdout)
            except json.JSONDecodeError:
                reports = []
            reports = reports if isinstance(reports, list) else [reports]
            if len(reports) != len(group):
                for name, *_ in group:
                    say(name, [f"verify gave {len(reports)} reports for {len(group)} models and ends with {run.returncode}: {run.stderr.strip()[-400:]}"], "")
                continue
            for (name, ident, folder, job), report in zip(group, reports):
                plan = yaml.safe_load((folder / "plan.yaml").read_text())
                wrong, counted = [], {}
                if report.get("error") or "payload_bytes" not in report:
                    say(name, [report.get("error") or "no payload in the report"], "")
                    continue
                if report["micro_batches"] != plan["micro_batches"]:
                    wrong.append(f"verify ran {report['micro_batches']} micro-batches, the plan is for {plan['micro_batches']}")
                for r in report["payload_bytes"]:
                    got = {k: v for k, v in r.items() if k not in ("rank", "tp", "pp", "dp") and k not in NOT_PREDICTED}
                    want = prediction(plan, r["pp"])
                    for tag in sorted(got.keys() | want.keys()):
                        if got.get(tag, 0) != want.get(tag, 0):
                            wrong.append(f"rank {r['rank']} (stage {r['pp']}), {tag}: counted {got.get(tag, 0)} bytes, predicted {want.get(tag, 0):.0f}")
                        counted[tag] = counted.get(tag, 0) + got.get(tag, 0)
                    if ident == "gpt_tied":
                        expected = reference(plan, yaml.safe_load(Path(job).read_text()), r["pp"])
                        for tag, value in expected.items():
                            if got.get(tag, 0) != value:
                                wrong.append(f"rank {r['rank']} (stage {r['pp']}), {tag}: counted {got.get(tag, 0)} bytes, the reference count is {value}")
                figures[name] = {"bytes": counted, "wrong": wrong}
                say(name, wrong, ", ".join(f"{k} {v}" for k, v in sorted(counted.items())) + " bytes over all ranks")
    if a.json:
        Path(a.json).write_text(json.dumps(figures, indent=1) + "\n")
    print(f"\n{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
