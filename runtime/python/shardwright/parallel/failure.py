"""What ends a job in order: the first error of all ranks is the one that is told, a rank that hangs is found, numbers that are no numbers
are traced to a module, and ranks that drifted apart are noticed.
"""
from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
import traceback

import torch
import torch.distributed as dist

from . import device_mesh as _mesh

EXIT_FAILED, EXIT_ELSEWHERE = 1, 14


class NotFinite(FloatingPointError):
    """NaN or infinity; names the first module."""


class Desynchronised(RuntimeError):
    """Ranks that must agree do not."""


def _store():
    return dist.distributed_c10d._get_default_store() if dist.is_initialized() else None


def report(error) -> int:
    """Tells what went wrong, once a job: the rank that failed first does, the others only say that they end because of it. Returns the
    exit code. Call in an except block; end the process afterwards with `os._exit` (others may hang in a collective)."""
    m, store, mine = _mesh.mesh(), _store(), f"{_mesh.mesh().where()}: {type(error).__name__}: {error}"
    first, who, told = True, "", ""
    consequence = isinstance(error, RuntimeError) and any(w in str(error) for w in ("Connection closed", "Connection reset", "timed out", "Timed out", "Broken pipe"))
    answer: list[str] = []

    def ask():
        try:
            if consequence:   # most likely another rank's: give it time to say so
                for _ in range(20):
                    if store.check(["shardwright/failed"]):
                        break
                    time.sleep(0.1)
            answer.append(store.compare_set("shardwright/failed", "", f"{m.rank}\n{mine}").decode())
        except Exception:   # the store is gone with the rank that held it
            pass

    if store is not None:   # in a thread: the store may hang with the rank that holds it
        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        asking.join(4)
        if answer:
            who, _, told = answer[0].partition("\n")
            first = who == str(m.rank)
    if first:
        print("".join(traceback.format_exception(error)), file=sys.stderr)
        print(f"shardwright: the job ends: {mine}", file=sys.stderr, flush=True)
        return EXIT_FAILED
    print(f"shardwright: {m.where()} ends because of rank {who}: {told.splitlines()[0] if told else ''}", file=sys.stderr, flush=True)
    return EXIT_ELSEWHERE


@contextlib.contextmanager
def ends_the_job():
    """Any error inside ends this process at once, after `report`. With one process the error goes on as it is."""
    try:
        yield
    except BaseException as error:
        if not dist.is_initialized() or isinstance(error, (KeyboardInterrupt, SystemExit)) and not getattr(error, "code", 1):
            raise
        if isinstance(error, SystemExit):
            print(error.code, file=sys.stderr, flush=True)
            os._exit(error.code if isinstance(error.code, int) else 2)
        code = report(error)
        sys.stdout.flush()
        os._exit(code)


class Watchdog:
    """Ends the process when nothing was heard for `timeout_s`: `alive(what)` at every action. For what c10d's own timeouts do not see (a rank
    that computes for ever, a data loader that waits)."""

    def __init__(self, timeout_s):
        self.timeout_s, self._what, self._last, self._stop = timeout_s, "starting", time.monotonic(), threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="watchdog")
        self._thread.start()

    def alive(self, what):
        self._what, self._last = what, time.monotonic()

    def stop(self):
        self._stop.set()

    def _watch(self):
        while not self._stop.wait(min(1.0, self.timeout_s / 10)):
            if time.monotonic() - self._last > self.timeout_s:
                print(f"shardwright: {_mesh.mesh().where()}: {self._what} did not end within {self.timeout_s:g} s; the job ends", file=sys.stderr, flush=True)
                os._exit(EXIT_FAILED)


class FiniteCheck:
    """Names the first module whose output, or whose output's gradient, is not finite. Costs one reduction a module and call."""

    def __init__(self, module, prefix=""):
        self._handles = []
        for name, m in module.named_modules():
            self._handles.append(m.register_forward_hook(lambda m, _, out, name=prefix + name: self._check(m, out, name)))

    @staticmethod
    def _tensors(out):
        if isinstance(out, torch.Tensor):
            yield out
        elif isinstance(out, (tuple, list)):
            for o in out:
                yield from FiniteCheck._tensors(o)
        elif isinstance(out, dict):
            for o in out.values():
                yield from FiniteCheck._tensors(o)

    def _check(self, module, out, name):
        where = f"{_mesh.mesh().where()}: module {name or '(the stage)'} ({type(module).__name__})"
        for t in self._tensors(out):
            if (t.is_floating_point() or t.is_complex()) and not bool(torch.isfinite(t).all()):
                bad = int((~torch.isfinite(t)).sum())
                raise NotFinite(f"{where}: {bad} of {t.numel()} numbers of its output are NaN or infinite")
            if t.requires_grad and t.grad_fn is not None:
                def backward(g, where=where):
                    if not bool(torch.isfinite(g).all()):
                        raise NotFinite(f"{where}: the gradient of its output is not finite")
                t.register_hook(backward)

    def remove(self):
        for h in self._handles:
            h.remove()


def checksums(module):
    """{parameter: (whether tp ranks hold different slices of it, a sum over its bits)}."""
    def total(p):
        bits = p.detach().contiguous().view(-1).view(torch.uint8).to(torch.int64)
        return int((bits * (torch.arange(bits.numel(), device=bits.device) % 251 + 1)).sum())
    return {name: (bool(getattr(p, "tensor_model_parallel", False)), total(p)) for name, p in module.named_parameters()}


def check_synchronised(module, step):
    """Raises Desynchronised where ranks are at different steps, tp ranks differ in replicated parameters, or dp ranks in any; names both
    ranks and the first parameter."""
    m = _mesh.mesh()
    group = _mesh.process_group(m.ranks)
    if group is None:
        return
    every = [None] * len(m.ranks)
    dist.all_gather_object(every, ((m.pp_rank, m.dp_rank, m.tp_rank), step, checksums(module)), group=group)
    where = [f"rank {r} (stage {pp}, tp {tp}, dp {dp})" for r, ((pp, dp, tp), *_) in zip(m.ranks, every)]
    for k, (_, at, _) in enumerate(every):
        if at != every[0][1]:
            raise Desynchronised(f"{where[k]} is at step {at}, {where[0]} at step {every[0][1]}")
    for kind in ("tensor", "data"):
        for k, ((pp, dp, tp), _, mine) in enumerate(every):
            for j, ((pp2, dp2, tp2), _, other) in enumerate(every[:k]):
                alike = pp == pp2 and (dp == dp2 if kind == "tensor" else tp == tp2)
                name = next((n for n, (sharded, total) in mine.items() if (kind == "data" or not sharded) and other.get(n, (0, total))[1] != total), None)
                if alike and name:
                    raise Desynchronised(f"{where[k]} and {where[j]} differ in {name}, which {kind}-parallel ranks hold alike, at step {step}")


class Signals:
    """SIGTERM (and SIGUSR1) ask for a save and an end; `asked()` agrees over all ranks, so that they stop at one iteration."""

    def __init__(self, signals=(signal.SIGTERM,)):
        self._asked = False
        self._previous = {}
        if threading.current_thread() is threading.main_thread():
            for s in signals:
                self._previous[s] = signal.signal(s, self._set)

    def _set(self, *_):
        self._asked = True

    def asked(self):
        m = _mesh.mesh()
        group = _mesh.process_group(m.ranks)
        if group is None:
            return self._asked
        flag = torch.tensor([int(self._asked)], dtype=torch.int64, device=m.device)
        dist.all_reduce(flag, dist.ReduceOp.MAX, group=group)
        return bool(flag.item())

    def restore(self):
        for s, handler in self._previous.items():
            signal.signal(s, handler)
