"""One process of a verification: the reference (runs the originals and compares) or a rank of the grid.

They exchange files in one folder per target: state.pt (start values), clip.json, done.json, rankN.pt, verdict.json, diagN.pt and
result.json. A file appears complete (written aside and renamed). The launcher watches all processes.
"""
from __future__ import annotations

from ._lifeline import die_with_parent

die_with_parent()   # before the imports that take seconds

import faulthandler  # noqa: E402
import json  # noqa: E402
import math  # noqa: E402
import os  # noqa: E402
import re  # noqa: E402
import signal  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
import traceback  # noqa: E402
import warnings  # noqa: E402

import torch  # noqa: E402

from . import compare, diagnose  # noqa: E402
from .job import Job, JobError, read_plan  # noqa: E402
from .program import Generated, Options, Original  # noqa: E402


def _write(path, value):
    torch.save(value, path + ".tmp") if path.endswith(".pt") else _write_json(path + ".tmp", value)
    os.replace(path + ".tmp", path)


def _write_json(path, value):
    with open(path, "w") as f:
        json.dump(value, f)


class _Diagnosis(Exception):
    """A rank could not repeat its forward with hooks; its peers may wait for it."""


def _read(path, unless=None):
    """Waits for a file of another process (raises _Diagnosis when the file `unless` appears). The launcher ends this process when
    that one dies."""
    delay = 0.005
    while not os.path.exists(path):
        if unless and os.path.exists(unless):
            raise _Diagnosis
        time.sleep(delay)
        delay = min(0.1, delay * 1.3)
    if path.endswith(".pt"):
        return torch.load(path, weights_only=False)
    with open(path) as f:
        return json.load(f)


RESTART = 4   # exit code of the reference: this target is done, but its ranks may hang; the launcher starts anew with the next


class _Channel:
    """What a rank learns from the reference while it runs."""

    def __init__(self, folder):
        self.folder = folder

    def clip(self):
        return _read(os.path.join(self.folder, "clip.json"))

    def second(self):
        """Which of the other sizes the original ran at; 0: none."""
        return _read(os.path.join(self.folder, "done.json"))["second"]


def _where(error, job):
    """file:line of the innermost frame in the job's code, for messages."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for frame in reversed(frames):
        if job is not None and (frame.filename.startswith(job.folder) or any(frame.filename.startswith(p) for p in job.path)):
            return f"{frame.filename}:{frame.lineno} (in {frame.name})"
    for frame in reversed(frames):
        if not frame.filename.startswith(ours) and "/torch/" not in frame.filename:
            return f"{frame.filename}:{frame.lineno}"
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""


def _other_precision(error, options):
    """What to do where a model that fixes its types meets float64."""
    met = options.dtype == "f64" and re.search(r"double|float64|complex128", str(error), re.IGNORECASE)
    return "\n  the comparison is in float64 and the source fixes other types: --dtype f32 runs it as it is written" if met else ""


def _root(error):
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def run_reference(spec):
    cache = {}
    for k, target in enumerate(spec["targets"]):
        folder, options, began = os.path.join(spec["folder"], str(k)), Options(**target["options"]), time.time()
        job = None
        try:
            job = Job(target["dir"], read_plan(target["dir"]), spec["python_path"])
            key = json.dumps([job.data, job.path, options.micro_batches * options.dp, options.second_micro_batches * options.dp,
                              options.steps, options.dtype, options.with_dropout, options.device], sort_keys=True, default=str)
            job.enter()
            job.namespace()   # what the source changes in PyTorch holds again
            if key not in cache:
                cache.clear()
                original = Original(job, options)
                cache[key] = [original, None]
            original, result = cache[key]
            state = {"state": original.start, "aliases": original.aliases, "promote": original.promote, "shapes": {}}
            if not options.with_dropout:
                _write(os.path.join(folder, "state.pt"), state)
            if result is None:
                result = cache[key][1] = original.run(lambda clip: _write(os.path.join(folder, "clip.json"), clip))
            _write(os.path.join(folder, "clip.json"), original.clip)
            _write(os.path.join(folder, "done.json"), {"second": result["second"]["sizes"] if result["second"] else 0})
            if options.with_dropout:
                _write(os.path.join(folder, "state.pt"), dict(state, shapes=original.shapes))
        except Exception as error:
            cause = _root(error)
            message = str(cause) if isinstance(cause, JobError) else (
                f"the original cannot be run: {type(cause).__name__}: {str(cause).strip()}\n  at {_where(cause, job)}{_other_precision(cause, options)}")
            _write(os.path.join(folder, "error.json"), {"message": message, "rank": None})
            if spec["debug"]:
                traceback.print_exc()
            sys.exit(3)
        world = options.tp * options.pp * options.dp
        ranks = [_read(os.path.join(folder, f"rank{r}.pt")) for r in range(world)]
        report = _compare(job, options, original, result, ranks, folder)
        report.update(dir=target["dir"], seconds=round(time.time() - began, 3))
        _write(os.path.join(folder, "result.json"), report)
        if os.path.exists(os.path.join(folder, "diagnosis-failed.pt")):
            sys.exit(RESTART)
        following = spec["targets"][k + 1] if k + 1 < len(spec["targets"]) else None
        job.leave(keep=_next_path(following, spec))


def _next_path(following, spec):
    if following is None:
        return ()
    try:
        job = Job(following["dir"], read_plan(following["dir"]), spec["python_path"])
        return [p for p in job.path]
    except JobError:
        return ()


def _compare(job, options, original, result, ranks, folder):
    from shardwright.parallel import ParamTable
    table = ParamTable.load(os.path.join(job.folder, "params.yaml"))
    table.set_aliases(original.aliases)
    comparison = compare.Comparison(result, ranks, table, options, original.casts, original.promote)
    comparison.uninitialised = tuple(job.verify.get("reinit") or ())
    rows = comparison.run()
    if comparison.suspects:
        comparison.drawn_otherwise([{n: compare.Moments.of(p) for n, p in job.build_original(job.seed + k).named_parameters()} for k in (1, 2)])
    if any(r.differs for r in rows):
        comparison.loosen(_one_ulp(original))
    different = [r for r in rows if r.differs]
    first, how = None, ""
    _write(os.path.join(folder, "verdict.json"), {"diagnose": bool(different)})
    if different:
        try:
            first, how = _diagnose(job, options, original, table, folder, different)
        except _Diagnosis:
            how = "the generated program could not be run again with hooks"
    table_rows = compare.summary(rows)
    return {
        "same": not different, "grid": {"tp": options.tp, "pp": options.pp, "dp": options.dp},
        "compared": {k: v["compared"] for k, v in table_rows.items()},
        "max_rel": {k: _number(v["worst"]) for k, v in table_rows.items()},
        "first_difference": first, "found_by": how, "split_fraction": round(compare.split_fraction(table, result, job.plan), 6),
        "different": [f"{r.kind}: {r.name}" + (f": {r.note}" if r.note else f": {r.difference:.3g}") for r in different[:50]],
        "table": {k: dict(v, worst=_number(v["worst"])) for k, v in table_rows.items()},
        "bound": comparison.bound, "casts": original.casts, "promoted": original.promote, "micro_batches": options.micro_batches,
        "second_batch_size": "compared" if result["second"] else result["second_error"],
        "payload_bytes": [{"rank": r["rank"], "tp": r["tp"], "pp": r["pp"], "dp": r["dp"], **r["payload"]} for r in ranks],
    }


def _number(x):
    return x if math.isfinite(x) else str(x)


def _one_ulp(original):
    """The reference again from parameters changed by one ulp of the precision that the model computes in."""
    eps = torch.finfo(torch.float32 if original.casts or original.options.dtype == "f32" else torch.float64).eps
    start = {}
    generator = torch.Generator().manual_seed(1)
    names = {n for n, _ in original.model.named_parameters()}
    for name, t in original.start.items():
        if name in names and t.is_floating_point():
            sign = (torch.rand(t.shape, generator=generator) < 0.5).to(t.dtype) * 2 - 1
            start[name] = t * (1 + sign * eps)
        else:
            start[name] = t
    kept, clip = original.start, original.clip
    original.start = start
    original.restore()
    try:
        return original.run()
    finally:
        original.start, original.clip = kept, clip
        original.restore()


def _diagnose(job, options, original, table, folder, different):
    # Forward differences first; tensors that only their gradient reveals otherwise.
    recorder = diagnose.Recorder(original.model)
    original.restore()
    original.pass_over(1, record=False)
    record = recorder.collect()
    stages = {}
    for stage in range(options.pp):
        ranks = [stage * options.dp * options.tp + t for t in range(options.tp)]
        stages[stage] = [_read(os.path.join(folder, f"diag{r}.pt"), os.path.join(folder, "diagnosis-failed.pt")) for r in ranks]
    tolerance = max(1e-8, 10 * max(r.bound for r in different))
    first, how = diagnose.first_difference(record, stages, table, tolerance)
    if first is None:
        gradient = [r for r in different if r.kind == "gradients"] or [r for r in different if r.kind == "parameters"]
        if any(r.kind == "gradients" for r in different):
            # The owner of the differing parameter that is used last: what is wrong on the way back shows there first.
            order = {c["name"]: c["start"] for c in record["calls"]}
            owners = [r.name.split(" ")[0].rpartition(".")[0] for r in gradient]
            first = max(owners, key=lambda n: order.get(n, -1))
            how = "gradient of a parameter"
        elif any(r.kind == "grad_norm" for r in different):
            how = "gradient norm"
        elif any(r.kind in ("initial", "start") for r in different):
            first = next(r.name for r in different if r.kind in ("initial", "start")).split(" ")[0].rpartition(".")[0]
            how = "start values"
        elif gradient:
            first, how = gradient[0].name.split(" ")[0].rpartition(".")[0], "parameter after the steps"
    return first, how


def run_rank(spec, rank):
    import shardwright.parallel as parallel
    from shardwright.parallel import device_mesh as mesh_module
    os.environ["RANK"], os.environ["WORLD_SIZE"] = str(rank), str(spec["world"])
    mesh_module.init_process_group("nccl" if spec["device"] == "cuda" else "gloo", spec["timeout"],
                                   "file://" + os.path.join(spec["folder"], "store"))   # no port that others could take
    for k, target in enumerate(spec["targets"]):
        folder, options = os.path.join(spec["folder"], str(k)), Options(**target["options"])
        job = None
        count = options.tp * options.pp * options.dp
        if rank >= count:
            continue
        m = None
        try:
            plan = read_plan(target["dir"])
            job = Job(target["dir"], plan, spec["python_path"], guest=True)
            job.enter()
            m = parallel.initialize(options.tp, options.pp, options.dp, ranks=list(range(count)))
            reference = _read(os.path.join(folder, "state.pt"))
            generated = Generated(job, options, m, reference)
            result = generated.run(_Channel(folder))
            result.update(rank=rank, tp=m.tp_rank, pp=m.pp_rank, dp=m.dp_rank)
            _write(os.path.join(folder, f"rank{rank}.pt"), result)
            if _read(os.path.join(folder, "verdict.json"))["diagnose"]:
                record = _record(generated, options, m)
                _write(os.path.join(folder, f"diag{rank}.pt" if record else "diagnosis-failed.pt"), record)
        except Exception as error:
            cause = _root(error)
            where = m.where() if m else f"rank {rank}"
            text = str(error) if error is cause else str(error).split(" failed: ")[0] + f" failed: {type(cause).__name__}: {str(cause).strip()}"
            if error is cause:
                text = f"{where}: {type(cause).__name__}: {str(cause).strip()}"
            # A broken connection is the consequence of another rank's error: that one's message counts.
            secondary = any(s in str(cause) for s in ("Connection closed by peer", "Connection reset", "Broken pipe", "Timed out waiting"))
            _write(os.path.join(folder, f"error{rank}.json"), {"message": f"the generated program cannot be run: {text}\n  at {_where(cause, job)}",
                                                              "rank": rank, "secondary": secondary})
            if spec["debug"]:
                traceback.print_exc()
            sys.stderr.flush()
            os._exit(3)   # without waiting for peers
        following = spec["targets"][k + 1] if k + 1 < len(spec["targets"]) else None
        job.leave(keep=_next_path(following, spec))
    parallel.shutdown()


def _record(generated, options, m):
    """The diagnostic pass: the first micro-batch of each data-parallel rank, from the start values, with hooks."""
    generated.stage.zero_grad(set_to_none=True)
    generated.load()
    recorder = diagnose.Recorder(generated.stage)
    try:
        generated.pass_over(1, total=1)
    except Exception:
        traceback.print_exc()
        return None
    return recorder.collect()


def main():
    with open(sys.argv[1]) as f:
        spec = json.load(f)
    warnings.filterwarnings("ignore")
    faulthandler.register(signal.SIGUSR1, all_threads=True)   # the launcher asks where a hanging process stands
    torch.set_num_threads(spec["threads"])
    role = sys.argv[2]
    del sys.argv[1:]   # a model that reads the command line itself finds none, as in the analysis
    if role == "reference":
        run_reference(spec)
    else:
        run_rank(spec, int(role))


if __name__ == "__main__":
    main()
