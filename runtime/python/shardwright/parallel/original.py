"""Start values of the single-GPU program: the original is built once a machine from the seed, and every rank takes its slices.

Only so does a pipeline start where the original does: a stage's constructor draws what its own layers need, in another order than
the whole model's. What is built is what plan.yaml's job says, so the original's source must be at hand.
"""
from __future__ import annotations

import os
import socket
import tempfile

import torch
import torch.distributed as dist

from . import device_mesh as _mesh
from .params import load_stage


def first_names(model):
    """{every name of a parameter or buffer: its first name}: tied ones share it."""
    seen, names = {}, {}
    for name, t in [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]:
        names[name] = seen.setdefault(id(t), name)
    return names


def full_state(model):
    """Copies of parameters and buffers under their first names."""
    return {n: t.detach().to("cpu", copy=True) for n, t in [*model.named_parameters(), *model.named_buffers()]}


def _memory_available():
    try:
        with open("/proc/meminfo") as f:
            return next(int(line.split()[1]) * 1024 for line in f if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return float("inf")


def _build(folder, seed, path):
    from shardwright.verify.job import Job, read_plan   # it reads the job; nothing of the comparison is used
    job = Job(folder, read_plan(folder), guest=True)
    job.seed = seed
    job.enter()
    with torch.random.fork_rng(devices=[]):
        model = job.build_original()
    torch.save({"state": full_state(model), "aliases": first_names(model)}, path)


def start_from_original(stages, table, folder, seed):
    """Gives this rank's stages ({number: module}, or the one module) the values that the original has after `torch.manual_seed(seed)` and
    its construction. `folder`: the generated one. Every rank of a model calls. Returns None, or on every rank the reason why the stages
    were left as they are."""
    m = _mesh.mesh()
    stages = stages if isinstance(stages, dict) else {m.pp_rank: stages}
    group = m.model_group
    if group is None:
        return None

    def gather(value):
        out = [None] * dist.get_world_size(group)
        dist.all_gather_object(out, value, group)
        return out

    own = sum(p.nbytes * (m.tp if getattr(p, "tensor_model_parallel", False) else 1) for stage in stages.values() for p in stage.parameters()) / m.tp
    said = gather((socket.gethostname(), own, _memory_available()))
    hosts, whole = [h for h, _, _ in said], sum(b for _, b, _ in said)
    me, leader = dist.get_rank(group), hosts.index(socket.gethostname())
    if 2 * whole > min(a for _, _, a in said):
        return f"the whole model takes {whole / 2**30:.1f} GiB twice, more than there is on some machine"
    path = error = None
    if me == leader:
        path = os.path.join(tempfile.gettempdir(), f"shardwright-start-{os.getpid()}.pt")
        try:
            _build(folder, seed, path)
        except Exception as e:   # whatever the original's code does
            error = f"{type(e).__name__}: {e}"
    answers = gather((path, error))
    try:
        errors = [e for _, e in answers if e]
        if errors:
            return errors[0]
        saved = torch.load(answers[leader][0], map_location="cpu", mmap=True, weights_only=True)
        table.set_aliases(saved["aliases"])
        for number, stage in stages.items():
            load_stage(stage, table, number, saved["state"])
        del saved
    finally:
        gather(None)   # until all have read
        if path and os.path.exists(path):
            os.remove(path)
    return None
