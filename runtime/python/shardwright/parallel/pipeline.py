"""Runs a schedule on one rank: forwards, backwards and the transfers between stages.

A stage's contract: stage 0 is called with the model's inputs; a later one finds the tuple that the previous stage returned in
`self.input_tensor` (set through `set_input_tensor`). All but the last return a tuple of tensors (entries may be None); integer
and bool tensors cross without gradient. What crosses is agreed by a header of two integers in front of every message: when
shapes, types or None entries differ from the previous message, their description follows it. So a short last batch or an
evaluation with another batch size needs nothing special.

A tensor that a stage hands on unread (its class says so in `passes = {entry received: entry returned}`) is sent past it, from the
stage that made it straight to the one that reads it, and so is its gradient; the stage between sees None in its place.

Transfers obey the stricter rules of NCCL on every backend: no tags, one order of messages for a pair of ranks, a send and the
receive from the same peer that follows it in one group, contiguous buffers, complex as real, bool as uint8.
"""
from __future__ import annotations

import torch
import torch.distributed as dist

from . import _C, schedules
from . import device_mesh as _mesh

BOUNDARY, HEADER = "boundary", "header"
_DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64, torch.complex128, torch.int8, torch.uint8,
           torch.int16, torch.int32, torch.int64, torch.bool]
_ABSENT, _ELSEWHERE = -1, -2   # None; an entry that travels over another link


class PipelineError(RuntimeError):
    """Something failed in a stage; says where."""


def _describe(tensors):
    """The description that the receiver needs, as integers."""
    flat = [len(tensors)]
    for t in tensors:
        if t is None or t is _ELSEWHERE:
            flat.append(_ABSENT if t is None else _ELSEWHERE)
        else:
            flat += [_DTYPES.index(t.dtype), int(t.requires_grad), t.dim(), *t.shape]
    return flat


def _parse(flat):
    """-> list of None, _ELSEWHERE or (dtype, requires_grad, shape)."""
    out, i = [], 1
    for _ in range(flat[0]):
        if flat[i] in (_ABSENT, _ELSEWHERE):
            out.append(None if flat[i] == _ABSENT else _ELSEWHERE)
            i += 1
        else:
            n = flat[i + 2]
            out.append((_DTYPES[flat[i]], bool(flat[i + 1]), tuple(flat[i + 3:i + 3 + n])))
            i += 3 + n
    return out


def _wire(t):
    t = t.detach()
    if t.is_complex():
        t = torch.view_as_real(t.resolve_conj())
    return (t.to(torch.uint8) if t.dtype == torch.bool else t).contiguous()


def _buffer(dtype, shape, device):
    if dtype.is_complex:
        return torch.empty(*shape, 2, dtype=torch.empty(0, dtype=dtype).real.dtype, device=device)
    return torch.empty(shape, dtype=torch.uint8 if dtype == torch.bool else dtype, device=device)


def _unwire(t, dtype):
    return torch.view_as_complex(t) if dtype.is_complex else t.to(torch.bool) if dtype == torch.bool else t


class _Received(torch.autograd.Function):
    """Between the tensor whose gradient is sent back (a leaf) and the stage: the same memory, but no leaf, so that the stage may
    work on it in place as the original does."""

    @staticmethod
    def forward(ctx, x):
        return x.detach()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class _Message:
    """What goes to a peer: description (None: the previous one holds), which entries are present, payload."""

    def __init__(self, description, mask, payload):
        self.description, self.mask, self.payload = description, mask, payload


class PipelineExecutor:
    """`run` executes the schedule of this rank's stage once (one training step, or one evaluation)."""

    def __init__(self, stage, mesh=None, schedule="1f1b"):
        self.stage, self.mesh, self.schedule = stage, mesh or _mesh.mesh(), schedule
        self._sent_description: dict[int, list[int]] = {}
        self._received_description: dict[int, list[int]] = {}
        self._works: list[tuple[object, torch.Tensor]] = []
        self._routes = schedules.Routes(self._passes())

    def _passes(self):
        """Every stage's `passes`."""
        m = self.mesh
        if m.pp < 3:
            return [{}] * m.pp   # nothing lies between
        every = [None] * m.pp
        dist.all_gather_object(every, dict(getattr(self.stage, "passes", {})), group=m.pp_group)
        return every

    # ---- one step -------------------------------------------------------------------------------------------------------
    def run(self, micro_batches, forward, schedule=None):
        """`forward(i)` runs the stage on micro-batch i (its input_tensor is set) and returns the boundary tuple, or on the last
        stage the loss (already divided by what it must be divided by; None for evaluation). Returns the last stage's results."""
        m, stages, me = self.mesh, self.mesh.pp, self.mesh.pp_rank
        program = schedules.programs(schedules.make(schedule or self.schedule, stages, micro_batches), self._routes)[me]
        self._inputs, self._outputs, self._arrived, self._ready = {}, {}, {}, {}
        results = []
        for entry in program:
            try:
                if entry[0] == "run":
                    if entry[2] == schedules.FORWARD:
                        self._forward(entry[3], forward, results)
                    else:
                        self._backward(entry[3])
                else:
                    send = entry[2:4] if entry[0] in ("send", "exchange") else None
                    receive = entry[2:4] if entry[0] == "recv" else entry[4:] if entry[0] == "exchange" else None
                    self._transfer(entry[1], send, receive)
            except Exception as error:
                if isinstance(error, PipelineError):
                    raise
                what = {"F": "forward", "B": "backward"}.get(entry[2], "")
                where = f"{what} of micro-batch {entry[3]}" if entry[0] == "run" else (
                    f"{entry[0]} ({what}, micro-batch {entry[3]}) with stage {entry[1]}")
                raise PipelineError(f"{m.where()}: {where} failed: {type(error).__name__}: {error}") from error
        for work, _ in self._works:
            work.wait()
        self._works.clear()
        return results

    def _forward(self, i, forward, results):
        received = self._received(i)
        self.stage.set_input_tensor(None if received is None else tuple(
            _Received.apply(t) if t is not None and t.requires_grad else t for t in received))
        out = forward(i)
        if self.mesh.is_last_stage:
            results.append(out)
            self._outputs[i] = (out,) if isinstance(out, torch.Tensor) else ()
        else:
            out = (out,) if isinstance(out, torch.Tensor) or out is None else tuple(out)
            for k, t in enumerate(out):
                if t is not None and not isinstance(t, torch.Tensor):
                    raise TypeError(f"entry {k} of what stage {self.mesh.pp_rank} returns is {type(t).__name__}: only tensors and "
                                    f"None cross a stage boundary")
            self._outputs[i] = out
            me, routes = self.mesh.pp_rank, self._routes
            self._ready["F", i, me + 1] = [_ELSEWHERE if routes.elsewhere(me, k) else t for k, t in enumerate(out)]
            for target in routes.targets(me):
                self._ready["F", i, target] = [out[k] for k, _ in routes.links[me, target]]
        self._inputs[i] = received

    def _received(self, i):
        """What stage 0 … made for this one, as its input_tensor; None on the first stage."""
        me = self.mesh.pp_rank
        if me == 0:
            return None
        received = self._arrived.pop(("F", i, me - 1))
        for source in self._routes.sources(me):
            for (_, k), t in zip(self._routes.links[source, me], self._arrived.pop(("F", i, source))):
                received[k] = t
        return tuple(received)

    def _backward(self, i):
        outputs, inputs = self._outputs.pop(i), self._inputs.pop(i)
        if self.mesh.is_last_stage:
            pairs = [(t, None) for t in outputs if t.requires_grad]
        else:
            me = self.mesh.pp_rank
            gradients = self._arrived.pop(("B", i, me + 1))
            for target in self._routes.targets(me):
                for (k, _), g in zip(self._routes.links[me, target], self._arrived.pop(("B", i, target))):
                    gradients[k] = g
            pairs = [(t, g) for t, g in zip(outputs, gradients) if t is not None and g is not None and t.requires_grad]
        if pairs:
            torch.autograd.backward([t for t, _ in pairs], [g for _, g in pairs])
        if inputs is not None:
            me = self.mesh.pp_rank
            gradients = [t.grad if t is not None and t.requires_grad else None for t in inputs]
            for source in self._routes.sources(me):
                self._ready["B", i, source] = [gradients[k] for _, k in self._routes.links[source, me]]
            self._ready["B", i, me - 1] = [None if self._routes.elsewhere(me - 1, k) else g for k, g in enumerate(gradients)]

    # ---- transfers ------------------------------------------------------------------------------------------------------
    def _message(self, peer, kind, i):
        tensors = self._ready.pop((kind, i, peer))
        present = [k for k, t in enumerate(tensors) if t is not None and t is not _ELSEWHERE]
        mask = sum(1 << k for k in present)
        payload = [_wire(tensors[k]) for k in present]
        if kind == "B":
            return _Message(None, mask, payload)
        description = _describe(tensors)
        changed = description != self._sent_description.get(peer)
        self._sent_description[peer] = description
        return _Message(description if changed else None, mask, payload)

    def _post(self, peer, sends, receives):
        """One group of transfers with one peer; waits for what is received, keeps what is sent alive until the end."""
        group, rank = self.mesh.pp_group, self.mesh.rank_at(pp=peer)
        if dist.get_backend(group) == "gloo":   # in order by itself, and cheaper one by one
            works = [dist.irecv(t, rank, group) for t in receives]
            self._works += [(dist.isend(t, rank, group), t) for t in sends]
        else:
            operations = [dist.P2POp(dist.isend, t, rank, group) for t in sends]
            operations += [dist.P2POp(dist.irecv, t, rank, group) for t in receives]
            works = dist.batch_isend_irecv(operations) if operations else []
            self._works += [(w, t) for w in works for t in sends[:1]]
        for work in works:
            work.wait()

    def _transfer(self, peer, send, receive):
        device = self.mesh.device
        message = self._message(peer, *send) if send else None
        header_out, header_in = [], []
        if message:
            header_out = [torch.tensor([len(message.description or ()), message.mask], dtype=torch.int64, device=device)]
            _C.count_payload(HEADER, 16 + 8 * len(message.description or ()))
        if receive:
            header_in = [torch.empty(2, dtype=torch.int64, device=device)]
        self._post(peer, header_out, header_in)
        length, mask = header_in[0].tolist() if receive else (0, 0)

        described_out = [torch.tensor(message.description, dtype=torch.int64, device=device)] if message and message.description else []
        described_in = [torch.empty(length, dtype=torch.int64, device=device)] if length else []
        if described_out or described_in:
            self._post(peer, described_out, described_in)
        if described_in:
            self._received_description[peer] = described_in[0].tolist()

        payload_out = message.payload if message else []
        for t in payload_out:
            _C.count_payload(BOUNDARY, t.nbytes)
        buffers, kinds = [], []
        if receive and receive[0] == "F":
            kinds = _parse(self._received_description[peer])
        elif receive:
            made = self._outputs[receive[1]]
            link = self._routes.links.get((self.mesh.pp_rank, peer))
            kinds = [None if t is None else (t.dtype, False, tuple(t.shape)) for t in ([made[k] for k, _ in link] if link else made)]
        for k, kind in enumerate(kinds):
            buffers.append(_buffer(kind[0], kind[2], device) if mask >> k & 1 else None)
        self._post(peer, payload_out, [b for b in buffers if b is not None])
        if receive:
            self._arrived[(*receive, peer)] = [
                None if b is None else _unwire(b, kind[0]).requires_grad_(kind[1]) for b, kind in zip(buffers, kinds)]
