"""Checkpoints: a folder an iteration, written so that at any moment the previous or the new one loads.

    DIR/latest                              name of the newest complete folder
    DIR/iter_0000100/index.json             grid, iteration, position in the data, what the optimizer needs beside tensors, sizes and checksums
                     params.yaml            how the tensors are cut from the original's (params.py); absent for models without one
                     model-tp00-stage00.safetensors            a rank's slices, under the generated names
                     optimizer-tp00-stage00-dp00.safetensors   "exp_avg/NAME", "exp_avg_sq/NAME", "master/NAME"; with ZeRO flat ranges, in the order of dp
                     rng-00000.safetensors  random states of every rank
                     complete               checksum of index.json

Every rank writes its files into a temporary folder, syncs them and says so in a small file; the first rank waits for all of these, writes the
index and renames the folder. Nothing but files is used, so this can happen in a thread beside training (`save(…, background=True)`).

A checkpoint loads at any other tp x pp x dp, with or without ZeRO: tensors of another grid are put together and cut anew, one at a time.
"""
from __future__ import annotations

import json
import os
import random
import re
import shutil
import threading
import time
import zlib

import torch
import torch.distributed as dist
import yaml

from . import device_mesh as _mesh
from .params import ParamTable, merge_originals, stage_tensors


class CheckpointError(RuntimeError):
    """A checkpoint that is not whole, or does not fit; names the file."""


_NAME = re.compile(r"iter_(\d{7,})(?:-(\d+))?$")


def _checksum(path):
    """CRC-32 of a file: finds what was changed by accident, at the speed of reading."""
    value = 0
    with open(path, "rb") as f:
        while block := f.read(1 << 22):
            value = zlib.crc32(block, value)
    return f"{value:08x}"


def _sync(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _write(path, text):
    """Replaces a small file at once."""
    temporary = f"{path}.tmp"
    with open(temporary, "w") as f:
        f.write(text)
        f.flush()
        os.fsync(f.fileno())
    os.replace(temporary, path)
    _sync(os.path.dirname(path))


def model_file(tp, stage):
    return f"model-tp{tp:02d}-stage{stage:02d}.safetensors"


def optimizer_file(tp, stage, dp):
    return f"optimizer-tp{tp:02d}-stage{stage:02d}-dp{dp:02d}.safetensors"


def random_state():
    """{name: uint8 tensor} of everything that draws."""
    out = {"torch": torch.get_rng_state()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        out["cuda"] = torch.cuda.get_rng_state()
    rest = {"python": random.getstate()}
    try:
        import numpy
        kind, keys, *others = numpy.random.get_state()
        rest["numpy"] = [kind, keys.tolist(), *others]
    except ImportError:
        pass
    out["rest"] = torch.frombuffer(bytearray(json.dumps(rest).encode()), dtype=torch.uint8)
    return out


def set_random_state(state):
    torch.set_rng_state(state["torch"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
    rest = json.loads(bytes(state["rest"].tolist()))
    version, numbers, gauss = rest["python"]
    random.setstate((version, tuple(numbers), gauss))
    if "numpy" in rest:
        import numpy
        numpy.random.set_state(tuple(rest["numpy"]))


class Snapshot:
    """What this rank writes, copied so that training may go on."""

    def __init__(self, stages, optimizer, table, copy):
        m = _mesh.mesh()
        self.files: dict[str, dict[str, torch.Tensor]] = {}
        self.shapes, self.steps, self.kinds = {}, {}, set()

        def take(t):
            t = t.detach()
            return (t.to("cpu", copy=True) if copy or t.device.type != "cpu" else t).contiguous()

        chunk_of = {}
        for k, (stage, module) in enumerate(sorted(stages.items())):
            chunk_of[k] = stage
            persistent, seen, tensors = set(module.state_dict().keys()), set(), {}
            for name, t, _ in stage_tensors(module):
                if name not in persistent or id(t) in seen:
                    continue
                seen.add(id(t))
                if table is not None:
                    e = table.entry(name, stage)
                    source, shape = table.canonical(e.source), list(e.original_shape(t.shape, m.tp))
                    known = self.shapes.get(source)
                    self.shapes[source] = shape if known is None or e.shape else [max(a, b) for a, b in zip(known, shape)]
                tensors[name] = take(t) if m.dp_rank == 0 else None
            if m.dp_rank == 0:
                self.files[model_file(m.tp_rank, stage)] = tensors
        if optimizer is not None and (optimizer.zero or m.dp_rank == 0):
            several = len(stages) > 1

            def place(name):
                chunk, _, rest = name.partition(".")
                return (chunk_of[int(chunk)], rest) if several else (chunk_of[0], name)

            for key, t in optimizer.tensors().items():
                kind, name = key.split("/", 1)
                stage, name = place(name)
                self.kinds.add(kind)
                self.files.setdefault(optimizer_file(m.tp_rank, stage, m.dp_rank), {})[f"{kind}/{name}"] = take(t)
            numbers = optimizer.numbers()
            self.steps = {place(n)[1]: v for n, v in numbers.pop("steps").items()}
            self.numbers = numbers
        else:
            self.numbers = {}
        self.files[f"rng-{m.rank:05d}.safetensors"] = random_state()

    def write(self, folder, rank):
        from safetensors.torch import save_file
        said = {}
        for name, tensors in self.files.items():
            path = os.path.join(folder, name)
            save_file(tensors, path)
            _sync(path)
            said[name] = {"bytes": os.path.getsize(path), "crc32": _checksum(path)}
        _write(os.path.join(folder, f"rank{rank:05d}.json"), json.dumps(
            {"files": said, "shapes": self.shapes, "steps": self.steps, "kinds": sorted(self.kinds), "numbers": self.numbers}))


class Checkpoints:
    """Checkpoints under one folder. `keep`: how many complete ones stay (0: all). `table`: params.yaml of the model, `params`: its text."""

    def __init__(self, folder, table=None, params=None, keep=0, patience_s=600):
        self.folder, self.table, self.params, self.keep, self.patience_s = folder, table, params, keep, patience_s
        self._thread, self._failure = None, None
        token = [f"{os.getpid():x}{time.time_ns() & 0xffffffff:x}"]
        group = _mesh.process_group(_mesh.mesh().ranks)
        if group is not None:
            dist.broadcast_object_list(token, src=_mesh.mesh().ranks[0], group=group)
        self._token = token[0]

    # ---- saving ----
    def save(self, iteration, stages, optimizer=None, extra=None, background=False):
        """`stages`: {stage number: module} of this rank. `extra`: what else is to be found in the index (numbers, texts)."""
        self.wait()
        m = _mesh.mesh()
        snapshot = Snapshot(stages, optimizer, self.table, background)
        temporary = os.path.join(self.folder, f".saving-{iteration:07d}-{self._token}")
        os.makedirs(temporary, exist_ok=True)
        grid = {"tp": m.tp, "pp": m.pp, "dp": m.dp, "stages": len(m.placement), "zero": bool(optimizer is not None and optimizer.zero)}

        def work():
            try:
                snapshot.write(temporary, m.rank)
                if m.rank == m.ranks[0]:
                    self._finish(iteration, temporary, m.ranks, grid, extra or {})
            except BaseException as error:
                self._failure = error

        if background:
            self._thread = threading.Thread(target=work, name="checkpoint", daemon=False)
            self._thread.start()
        else:
            work()
            self.wait()
            group = _mesh.process_group(m.ranks)
            if group is not None:   # nobody goes on before it is there
                dist.barrier(group=group)

    def wait(self):
        """Until what is being written is complete (on this rank). Raises what went wrong there."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise CheckpointError(f"{self.folder}: saving failed: {type(failure).__name__}: {failure}") from failure

    def _finish(self, iteration, temporary, ranks, grid, extra):
        said, until = {}, time.monotonic() + self.patience_s
        while len(said) < len(ranks):
            for r in ranks:
                path = os.path.join(temporary, f"rank{r:05d}.json")
                if r not in said and os.path.exists(path):
                    said[r] = json.load(open(path))
            if len(said) < len(ranks):
                if time.monotonic() > until:
                    raise CheckpointError(f"rank {next(r for r in ranks if r not in said)} did not finish writing within {self.patience_s} s")
                time.sleep(0.01)
        index = {"version": 1, "iteration": iteration, "grid": grid, "ranks": list(ranks), "files": {}, "shapes": {}, "steps": {}, "kinds": [],
                 "numbers": said[ranks[0]]["numbers"], "extra": extra}
        for r in ranks:
            index["files"].update(said[r]["files"])
            for name, shape in said[r]["shapes"].items():
                index["shapes"][name] = [max(a, b) for a, b in zip(index["shapes"].get(name, shape), shape)]
            index["steps"].update(said[r]["steps"])
            index["kinds"] = sorted(set(index["kinds"]) | set(said[r]["kinds"]))
            os.remove(os.path.join(temporary, f"rank{r:05d}.json"))
        if self.params is not None:
            path = os.path.join(temporary, "params.yaml")
            _write(path, self.params)
            index["files"]["params.yaml"] = {"bytes": os.path.getsize(path), "crc32": _checksum(path)}
        _write(os.path.join(temporary, "index.json"), json.dumps(index, indent=1))
        _write(os.path.join(temporary, "complete"), _checksum(os.path.join(temporary, "index.json")))
        name, k = f"iter_{iteration:07d}", 2
        while os.path.exists(os.path.join(self.folder, name)):   # never over an older one: there would be a moment without either
            name, k = f"iter_{iteration:07d}-{k}", k + 1
        os.rename(temporary, os.path.join(self.folder, name))
        _sync(self.folder)
        _write(os.path.join(self.folder, "latest"), name)
        self._rotate(name)

    def _rotate(self, newest):
        for name in os.listdir(self.folder):
            if name.startswith(".saving-") and not name.endswith(self._token):
                shutil.rmtree(os.path.join(self.folder, name), ignore_errors=True)
        if self.keep > 0:
            names = [n for n in found(self.folder) if n != newest]
            for name in names[max(self.keep - 1, 0):]:
                path = os.path.join(self.folder, name)
                try:   # without its marker it is no checkpoint any more, whatever happens while it is deleted
                    os.remove(os.path.join(path, "complete"))
                except FileNotFoundError:
                    pass
                shutil.rmtree(path, ignore_errors=True)


def found(folder):
    """Names of checkpoint folders, the newest first; `latest` names the first one tried."""
    try:
        names = [n for n in os.listdir(folder) if _NAME.match(n)]
    except FileNotFoundError:
        raise CheckpointError(f"{folder} does not exist") from None
    names.sort(key=lambda n: (int(_NAME.match(n)[1]), int(_NAME.match(n)[2] or 1)), reverse=True)
    try:
        first = open(os.path.join(folder, "latest")).read().strip()
    except FileNotFoundError:
        first = None
    return [first, *(n for n in names if n != first)] if first in names else names


def examine(path, part=0, parts=1):
    """None, or what is wrong with the checkpoint folder `path`. Of the checksums, only every `parts`-th file from `part` on is computed."""
    try:
        marker = open(os.path.join(path, "complete")).read().strip()
    except FileNotFoundError:
        return f"{os.path.join(path, 'complete')} is missing: it was not written to its end"
    index_path = os.path.join(path, "index.json")
    if not os.path.exists(index_path):
        return f"{index_path} is missing"
    if _checksum(index_path) != marker:
        return f"{index_path} is not what was saved (its checksum differs)"
    index = json.load(open(index_path))
    if index.get("version") != 1:
        return f"{index_path}: version {index.get('version')} is not known (1 is)"
    foreign = sorted(set(os.listdir(path)) - set(index["files"]) - {"complete", "index.json"})
    if foreign:
        return f"{os.path.join(path, foreign[0])} does not belong to this checkpoint"
    for k, (name, said) in enumerate(sorted(index["files"].items())):
        file = os.path.join(path, name)
        if not os.path.exists(file):
            return f"{file} is missing"
        if os.path.getsize(file) != said["bytes"]:
            return f"{file} has {os.path.getsize(file)} bytes instead of {said['bytes']}: it is truncated or another file"
        if k % parts == part and _checksum(file) != said["crc32"]:
            return f"{file} is not what was saved (its checksum differs)"
    return None


class Saved:
    """A checkpoint, read. Tensors are read one by one."""

    def __init__(self, path):
        self.path = path
        self.index = json.load(open(os.path.join(path, "index.json")))
        self.grid, self.iteration = self.index["grid"], self.index["iteration"]
        params = os.path.join(path, "params.yaml")
        self.table = ParamTable(yaml.safe_load(open(params)), params) if "params.yaml" in self.index["files"] else None
        self._open = {}

    def file(self, name):
        if name not in self._open:
            from safetensors import safe_open
            self._open[name] = safe_open(os.path.join(self.path, name), framework="pt")
        return self._open[name]

    def local(self, kind, stage, name, tp):
        """A rank's whole tensor, or None. `kind`: "model", or of the optimizer's tensors ("exp_avg", …)."""
        model = self.file(model_file(tp, stage))
        if kind == "model":
            return model.get_tensor(name) if name in model.keys() else None
        files = [optimizer_file(tp, stage, d) for d in range(self.grid["dp"] if self.grid["zero"] else 1)]
        pieces = [self.file(f).get_tensor(f"{kind}/{name}") for f in files if f in self.index["files"] and f"{kind}/{name}" in self.file(f).keys()]
        if not pieces:
            return None
        return torch.cat([p.view(-1) for p in pieces]).view(model.get_slice(name).get_shape()) if self.grid["zero"] else pieces[0]

    def original(self, kind, source):
        """The original's tensor, put together from all ranks; None where it was not saved."""
        if self.table is None:
            raise CheckpointError(f"{self.path} was saved without params.yaml: it loads at its own grid only, tp {self.grid['tp']} x pp {self.grid['pp']}")
        source, parts, rows = self.table.canonical(source), {}, set()
        for e in self.table.entries.values():
            if self.table.canonical(e.source) != source or e.rows in rows:
                continue
            for stage in range(self.grid["stages"]) if e.stages is None else e.stages:
                slices = [self.local(kind, stage, e.name, t) for t in range(self.grid["tp"] if e.shard is not None else 1)]
                if slices[0] is not None:
                    for rank, t in enumerate(slices):
                        parts.setdefault(stage, [{} for _ in range(self.grid["tp"])])[rank][e.name] = t
                    rows.add(e.rows)
                    break
        if not parts:
            return None
        shape = {source: tuple(self.index["shapes"][source])}
        names = {stage: [{n: t for n, t in r.items()} for r in ranks if r] for stage, ranks in parts.items()}
        return merge_originals(self.table, names, shape)[source]

    def fits(self, table):
        """Whether slices of this run are slices of the checkpoint."""
        m = _mesh.mesh()
        same = (self.table is None) == (table is None) and (table is None or self.table.entries == table.entries)
        return same and self.grid["tp"] == m.tp and self.grid["stages"] == len(m.placement)

    def lookup(self, table, stage):
        """(kind, name) -> this rank's tensor for a stage of this run, or None."""
        m = _mesh.mesh()
        fits = self.fits(table)
        if table is None and not fits:
            raise CheckpointError(f"{self.path} was saved at tp {self.grid['tp']} with {self.grid['stages']} stages, this run has tp {m.tp} with "
                                  f"{len(m.placement)}: that needs the layouts (--params params.yaml)")

        def look(kind, name):
            value = self.local(kind, stage, name, m.tp_rank) if fits else None
            if value is None and table is not None and self.table is not None:   # another grid, or a tied tensor saved under its other name
                e = table.entry(name, stage)
                full = self.original(kind, e.source)
                value = None if full is None else e.slice(full, m.tp_rank, m.tp)
            return value
        return look

    def random_state(self):
        name = f"rng-{_mesh.mesh().rank:05d}.safetensors"
        grid, m = self.grid, _mesh.mesh()
        if (grid["tp"], grid["pp"], grid["dp"], grid["stages"]) != (m.tp, m.pp, m.dp, len(m.placement)) or name not in self.index["files"]:
            return None
        return {k: self.file(name).get_tensor(k) for k in self.file(name).keys()}


def open_newest(path, say=print):
    """The newest whole checkpoint under `path` (or `path` itself), the same on all ranks. Broken ones are named, the previous is used."""
    m = _mesh.mesh()
    group = _mesh.process_group(m.ranks)
    if os.path.exists(os.path.join(path, "index.json")) or _NAME.match(os.path.basename(os.path.normpath(path))):
        folder, names, explicit = os.path.dirname(os.path.normpath(path)), [os.path.basename(os.path.normpath(path))], True
    else:
        folder, names, explicit = path, None, False
    if names is None:
        said = [None]
        if m.rank == m.ranks[0]:   # what one rank sees holds for all
            try:
                said = [found(path)]
            except CheckpointError as error:
                said = [str(error)]
        if group is not None:
            dist.broadcast_object_list(said, src=m.ranks[0], group=group)
        if isinstance(said[0], str):
            raise CheckpointError(said[0])
        names = said[0]
    wrong = []
    for name in names:
        mine = examine(os.path.join(folder, name), m.ranks.index(m.rank), len(m.ranks))
        every = [mine]
        if group is not None:
            every = [None] * len(m.ranks)
            dist.all_gather_object(every, mine, group=group)
        problem = next((e for e in every if e), None)
        if problem is None:
            return Saved(os.path.join(folder, name))
        wrong.append(problem)
        if m.rank == m.ranks[0] and not explicit:
            say(f"checkpoint {name} is not used: {problem}", flush=True)
    raise CheckpointError("; ".join(wrong) if wrong else f"{path}: no complete checkpoint there")


def load(saved, stages, optimizer=None, table=None, with_random=True):
    """Fills the stages ({number: module}) and the optimizer. Returns the index."""
    several, chunk_of = len(stages) > 1, dict(enumerate(sorted(stages)))
    looks = {stage: saved.lookup(table, stage) for stage in stages}
    with torch.no_grad():
        for stage, module in stages.items():
            persistent = set(module.state_dict().keys())
            for name, t, is_buffer in stage_tensors(module):
                value = looks[stage]("model", name)
                if value is None:
                    if name in persistent and not is_buffer:
                        raise CheckpointError(f"{saved.path} has no tensor {name} (stage {stage})")
                    continue
                if tuple(value.shape) != tuple(t.shape):
                    raise CheckpointError(f"{saved.path}: {name} has shape {tuple(value.shape)}, the model's is {tuple(t.shape)}")
                t.copy_(value)
    if optimizer is not None:
        def lookup(kind, name):
            chunk, _, rest = name.partition(".")
            return looks[chunk_of[int(chunk)]](kind, rest) if several else looks[chunk_of[0]](kind, name)

        def step_of(name):
            local = name.partition(".")[2] if several else name
            if local in saved.index["steps"]:
                return saved.index["steps"][local]
            if table is None or saved.table is None:
                return None
            stage = chunk_of[int(name.partition(".")[0])] if several else chunk_of[0]
            source = saved.table.canonical(table.entry(local, stage).source)
            return next((v for n, v in saved.index["steps"].items() if n in saved.table.entries and saved.table.canonical(saved.table.entries[n].source) == source), None)

        optimizer.refresh()
        steps = {piece.name: step_of(piece.name) for piece in optimizer.pieces}
        optimizer.load_tensors(lookup, saved.index["kinds"], {**saved.index["numbers"], "steps": {n: s for n, s in steps.items() if s is not None}})
    if with_random:
        state = saved.random_state()
        if state is not None:
            set_random_state(state)
    return saved.index
