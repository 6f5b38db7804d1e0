"""Runs a schedule on one rank: forwards, backwards and the transfers between stages.

A stage's contract: stage 0 is called with the model's inputs; a later one finds the tuple that the previous stage returned in
`self.input_tensor` (set through `set_input_tensor`). All but the last return a tuple of tensors (entries may be None); integer
and bool tensors cross without gradient. Shapes may change from one micro-batch to the next (boundary.py).

A rank may hold several stages (interleaved, zb-v): then `stage` is a list of modules, in the order of their stage numbers.

A tensor that a stage hands on unread (its class says so in `passes = {entry received: entry returned}`) is sent past it, from the
stage that made it straight to the one that reads it, and so is its gradient; the stage between sees None in its place.
"""
from __future__ import annotations

import torch
import torch.distributed as dist

from . import _C, schedules
from . import device_mesh as _mesh
from .boundary import ELSEWHERE, Transport, describe, parse, wording
from .split_backward import SplitBackward


class PipelineError(RuntimeError):
    """Something failed in a stage; says where."""


class PipelineExecutor:
    """`run` executes this rank's part of the schedule once (one training step, or one evaluation)."""

    def __init__(self, stage, mesh=None, schedule="1f1b", split_backward=True, before_last=None):
        """`before_last(module)` is called before a stage's last backward action of a step: what that accumulates is the whole gradient."""
        self.before_last = before_last
        self.mesh, self.schedule, self.split_backward = mesh or _mesh.mesh(), schedule, split_backward
        modules = list(stage) if isinstance(stage, (list, tuple, torch.nn.ModuleList)) else [stage]
        m = self.mesh
        self.virtual = schedules.virtual_stages(schedule, len(modules))
        self.placement = schedules.placement_of(schedule, m.pp, self.virtual)
        if self.virtual > 1:
            m.place_stages(self.placement)
        self.modules = dict(zip(schedules.stages_of(m.pp_rank, schedule, m.pp, self.virtual), modules))
        self.stages = len(self.placement)
        self._routes = schedules.Routes(self._passes())
        self._programs: dict[tuple[str, int], list] = {}
        self._transport = Transport(m.pp_group, lambda s: m.rank_at(pp=self.placement[s]), m.device, 4 * self.stages + 8)

    def _passes(self):
        """Every stage's `passes`."""
        m = self.mesh
        if self.stages < 3:
            return [{}] * self.stages   # nothing lies between
        mine = {s: dict(getattr(module, "passes", {})) for s, module in self.modules.items()}
        every = [mine]
        if m.pp > 1:
            every = [None] * m.pp
            dist.all_gather_object(every, mine, group=m.pp_group)
        merged = {s: p for held in every for s, p in held.items()}
        return [merged[s] for s in range(self.stages)]

    def _program(self, name, micro_batches):
        key = (name, micro_batches)
        if key not in self._programs:
            if name == "forward":
                schedule = schedules.make(name, self.mesh.pp, micro_batches, placement=self.placement)
            else:
                schedule = schedules.make(name, self.mesh.pp, micro_batches, self.virtual)
                if schedule.placement != self.placement:
                    raise schedules.ScheduleError(f"the stages were placed for {self.schedule}, {name} places them otherwise")
            self._programs[key] = schedules.programs(schedule, self._routes)[self.mesh.pp_rank]
        return self._programs[key]

    # ---- one step -------------------------------------------------------------------------------------------------------
    def run(self, micro_batches, forward, schedule=None):
        """`forward(i)` (with several stages: `forward(i, module)`) runs the stage on micro-batch i (its input_tensor is set) and returns
        the boundary tuple, or on the last stage the loss (already divided by what it must be divided by; None for evaluation). Returns
        the last stage's results (an empty list where another rank holds it)."""
        if micro_batches < 1:
            raise ValueError(f"a step needs at least one micro-batch, not {micro_batches}")
        program = self._program(schedule or self.schedule, micro_batches)
        last = {item.stage: at for at, (what, item) in enumerate(program) if what == "run"}   # a stage's last action
        self._inputs, self._outputs, self._halves, self._ready = {}, {}, {}, {}
        self._transport.reset()
        results = []
        for at, (what, item) in enumerate(program):
            try:
                if what == "run":
                    if self.before_last is not None and item.kind != schedules.FORWARD and last[item.stage] == at:
                        self.before_last(self.modules[item.stage])
                    self._run(item, forward, results)
                elif what == "send":
                    self._transport.send(item, self._ready.pop(tuple(item)))
                else:
                    self._transport.post(item)
            except Exception as error:
                if isinstance(error, PipelineError):
                    raise
                raise PipelineError(f"{self.mesh.where()}: {self._wording(what, item)} failed: {type(error).__name__}: {error}") from error
        try:
            self._transport.finish()
        except RuntimeError as error:
            raise PipelineError(f"{self.mesh.where()}: {error}") from error
        return results

    def _wording(self, what, item):
        if what == "run":
            kind = {"F": "forward", "B": "backward", "I": "backward to the inputs", "W": "backward to the parameters"}[item.kind]
            text = f"{kind} of micro-batch {item.micro_batch} on stage {item.stage}"
            received = self._inputs.get((item.stage, item.micro_batch))
            if received is not None and item.kind == "F":
                text += f", which received {wording(parse(describe(received)))} from stage {item.stage - 1},"
            return text
        kind = "activations" if item.kind == "F" else "gradients"
        other = f"to stage {item.target}" if what == "send" else f"from stage {item.source}"
        return f"{what} of {kind} (micro-batch {item.micro_batch}) {other}"

    def _run(self, action, forward, results):
        kind, s, i = action
        if kind == schedules.FORWARD:
            self._forward(s, i, forward, results)
        elif kind == schedules.WEIGHT:
            self._halves.pop((s, i)).second()
        else:
            self._backward(s, i, kind == schedules.INPUT)

    # ---- activations and gradients to where they are needed ----
    def _hand_over(self, kind, i, source, target, tensors):
        """To another rank: kept until its send. To a stage of this rank: at once."""
        if self.placement[source] != self.placement[target]:
            self._ready[kind, i, source, target] = tensors
        elif kind == "F":
            # A copy, as over a wire: the receiving stage may work in place on what it gets.
            self._transport.arrived[kind, source, target, i] = [
                None if t is None or t is ELSEWHERE else t.detach().clone().requires_grad_(t.requires_grad) for t in tensors]
        else:
            self._transport.arrived[kind, source, target, i] = [None if t is ELSEWHERE else t for t in tensors]

    def _take(self, kind, i, source, target):
        try:
            return self._transport.take(kind, source, target, i)
        except RuntimeError as error:
            item = schedules.Transfer(kind, i, source, target)
            raise PipelineError(f"{self.mesh.where()}: {self._wording('receive', item)} failed: {type(error).__name__}: {error}") from error

    def _forward(self, s, i, forward, results):
        module, received = self.modules[s], self._received(s, i)
        self.mesh.stage = s
        self._inputs[s, i] = received
        module.set_input_tensor(None if received is None else tuple(None if t is None else _C.received(t) for t in received))
        out = forward(i) if len(self.modules) == 1 else forward(i, module)
        if s + 1 == self.stages:
            results.append(out)
            self._outputs[s, i] = (out,) if isinstance(out, torch.Tensor) else ()
            return
        out = (out,) if isinstance(out, torch.Tensor) or out is None else tuple(out)
        for k, t in enumerate(out):
            if t is not None and not isinstance(t, torch.Tensor):
                raise TypeError(f"entry {k} of what stage {s} returns is {type(t).__name__}: only tensors and None cross a stage boundary")
        self._outputs[s, i] = out
        self._hand_over("F", i, s, s + 1, [ELSEWHERE if self._routes.elsewhere(s, k) else t for k, t in enumerate(out)])
        for target in self._routes.targets(s):
            self._hand_over("F", i, s, target, [out[k] for k, _ in self._routes.links[s, target]])

    def _received(self, s, i):
        """What stage 0 … made for this one, as its input_tensor; None on the first stage."""
        if s == 0:
            return None
        received = self._take("F", i, s - 1, s)
        for source in self._routes.sources(s):
            for (_, k), t in zip(self._routes.links[source, s], self._take("F", i, source, s)):
                received[k] = t
        return tuple(received)

    def _backward(self, s, i, inputs_only):
        outputs, inputs = self._outputs.pop((s, i)), self._inputs.pop((s, i))
        if s + 1 == self.stages:
            pairs = [(t, None) for t in outputs if t.requires_grad]
        else:
            gradients = self._take("B", i, s + 1, s)
            for target in self._routes.targets(s):
                for (k, _), g in zip(self._routes.links[s, target], self._take("B", i, target, s)):
                    gradients[k] = g
            pairs = [(t, g) for t, g in zip(outputs, gradients) if t is not None and g is not None and t.requires_grad]
        if inputs_only:
            half = self._halves[s, i] = SplitBackward([t for t, _ in pairs], [g for _, g in pairs], inputs or (), self.split_backward)
            gradients = half.first()
        else:
            if pairs:
                torch.autograd.backward([t for t, _ in pairs], [g for _, g in pairs])
            gradients = [t.grad if t is not None and t.requires_grad else None for t in inputs or ()]
        if inputs is not None:
            for source in self._routes.sources(s):
                self._hand_over("B", i, s, source, [gradients[k] for _, k in self._routes.links[source, s]])
            self._hand_over("B", i, s, s - 1, [ELSEWHERE if self._routes.elsewhere(s - 1, k) else g for k, g in enumerate(gradients)])
