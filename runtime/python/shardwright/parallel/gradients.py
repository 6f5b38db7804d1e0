"""Gradients made whole, and their norm under tp x pp x dp x tied weights.

Reads the marks on parameters that params.load_stage (or the layers) set: `tensor_model_parallel`, `sum_gradient_over_tp`,
`holder_stages`, `original_name`, `replicas`. A parameter of low precision may accumulate in `main_grad` (float32) instead of `grad`.
"""
from __future__ import annotations

import math

import torch
import torch.distributed as dist

from . import _C
from . import device_mesh as _mesh


def parameters_of(module):
    return [p for p in module.parameters() if p.requires_grad]


def gradient_of(p):
    return p.main_grad if hasattr(p, "main_grad") else p.grad


def _set_gradient(p, value):
    if hasattr(p, "main_grad"):
        p.main_grad = value
    else:
        p.grad = value


def accumulate_in_float32(module):
    """From now on, what backward gives to parameters of bfloat16 or float16 is added up in float32 (`main_grad`)."""
    def add(p):
        p.main_grad = p.grad.float() if p.main_grad is None else p.main_grad.add_(p.grad)
        p.grad = None

    for p in parameters_of(module):
        if p.dtype in (torch.bfloat16, torch.float16) and not hasattr(p, "main_grad"):
            p.main_grad = None
            p.register_post_accumulate_grad_hook(add)


def zero_gradients(module):
    for p in module.parameters():
        p.grad = None
        if hasattr(p, "main_grad"):
            p.main_grad = None


def _agree(present, group):
    """Which of these gradients exist on any rank of the group (they are zero where they do not)."""
    flags = torch.tensor(present, dtype=torch.float32, device=_mesh.mesh().device)
    return _C.all_reduce_max(flags, group, "header").tolist()


def _zeros(p):
    return torch.zeros_like(p, dtype=torch.float32 if hasattr(p, "main_grad") else p.dtype)


def _sum(parameters, group, tag):
    """Sums the gradients of these parameters over the group; None stays None where no rank has one."""
    if group is None or not parameters:
        return
    exists = _agree([gradient_of(p) is not None for p in parameters], group)
    taking_part = [p for p, e in zip(parameters, exists) if e]
    for p in taking_part:
        if gradient_of(p) is None:
            _set_gradient(p, _zeros(p))
    _C.all_reduce_coalesced([gradient_of(p) for p in taking_part], group, tag)


def tied_over_stages(module):
    """Parameters that several stages hold: {(stages): [parameters in the order of their original names]}."""
    groups: dict[tuple[int, ...], dict[str, torch.Tensor]] = {}
    for p in parameters_of(module):
        stages = tuple(getattr(p, "holder_stages", ()) or ())
        if len(stages) > 1:
            groups.setdefault(stages, {})[p.original_name] = p
    return {s: [by_name[n] for n in sorted(by_name)] for s, by_name in sorted(groups.items())}


def unify_tied(modules):
    """One Parameter where several stages of this rank hold the same one (ends of a V, for instance)."""
    first: dict[tuple, torch.nn.Parameter] = {}
    for module in modules:
        for owner in module.modules():
            for name, p in list(owner._parameters.items()):
                stages = tuple(getattr(p, "holder_stages", ()) or ()) if p is not None else ()
                if len(stages) > 1:
                    spec = getattr(p, "shard", None)
                    kept = first.setdefault((p.original_name, stages, tuple(p.shape), spec), p)
                    owner._parameters[name] = kept


class GradientReducer:
    """Sums gradients over dp in buckets while the last backward of a step still runs: what is last used is ready first. Buckets are
    sent in one order on all ranks. `arm(module)` before a stage's last backward, `finish()` after all."""

    def __init__(self, module, group, bucket_bytes=25 * 2**20):
        self.group, self.parameters = group, list(reversed(parameters_of(module)))
        self.buckets: list[list[torch.nn.Parameter]] = []
        size, kind = 0, None
        for p in self.parameters:
            dtype = torch.float32 if hasattr(p, "main_grad") else p.dtype
            if not self.buckets or size >= bucket_bytes or dtype != kind:
                self.buckets.append([])
                size, kind = 0, dtype
            self.buckets[-1].append(p)
            size += p.numel() * dtype.itemsize
        self.bucket_of = {id(p): k for k, bucket in enumerate(self.buckets) for p in bucket}
        self._armed: set[int] = set()
        self._begin()
        for p in self.parameters:
            p.register_post_accumulate_grad_hook(self._ready)

    def _begin(self):
        self._missing = [{id(p) for p in bucket} for bucket in self.buckets]
        self._sent: list[tuple[object, torch.Tensor, list]] = []
        self._armed.clear()

    def arm(self, module):
        self._armed |= {id(p) for p in module.parameters()}

    def _ready(self, p):
        if id(p) in self._armed:
            self._missing[self.bucket_of[id(p)]].discard(id(p))
            while len(self._sent) < len(self.buckets) and not self._missing[len(self._sent)]:
                self._send()

    def _send(self):
        bucket = self.buckets[len(self._sent)]
        parts = [g if g is not None else _zeros(p) for p, g in ((p, gradient_of(p)) for p in bucket)]
        flat = torch.cat([(torch.view_as_real(g) if g.is_complex() else g).reshape(-1) for g in parts])
        _C.count_payload("dp", flat.nbytes)
        self._sent.append((dist.all_reduce(flat, group=self.group, async_op=True), flat, bucket))

    def finish(self):
        """All gradients are sums over dp; None stays None where no rank has one."""
        exists = dict(zip(map(id, self.parameters), _agree([gradient_of(p) is not None for p in self.parameters], self.group)))
        while len(self._sent) < len(self.buckets):
            self._send()
        for work, flat, bucket in self._sent:
            work.wait()
            at = 0
            for p in bucket:
                n = p.numel() * (2 if p.is_complex() else 1)
                if exists[id(p)]:
                    part = flat.narrow(0, at, n)
                    part = torch.view_as_complex(part.view(*p.shape, 2)) if p.is_complex() else part.view(p.shape)
                    if gradient_of(p) is None:
                        _set_gradient(p, part.clone())
                    else:
                        gradient_of(p).copy_(part)
                at += n
        self._begin()


def finalize_gradients(module, reducer=None):
    """Once a step, after the last backward and before clipping: sums partial gradients of replicated parameters over tp, of
    repeated groups, of tied weights over the stages that hold them, and all of them over dp (losses are already divided by
    micro-batches x dp). `reducer`: has summed over dp during backward."""
    m = _mesh.mesh()
    parameters = parameters_of(module)
    if m.dp > 1 and reducer is not None:
        reducer.finish()
    if m.tp > 1:
        _sum([p for p in parameters if getattr(p, "sum_gradient_over_tp", False)], m.tp_group, "replicated_grad")
        repeated: dict[tuple[int, ...], list] = {}
        for p in parameters:
            members = tuple(getattr(p, "replicas", ()))
            if len(members) > 1:
                repeated.setdefault(members, []).append(p)
        for members, group in sorted(repeated.items()):
            _sum(group, m.tp_subgroup(members), "replicated_grad")
    if m.pp > 1:
        for stages, group in tied_over_stages(module).items():
            _sum(group, m.stages_group(stages), "tied")
    if m.dp > 1 and reducer is None:
        _sum(parameters, m.dp_group, "dp")


def broadcast_tied(module):
    """Equal start values for parameters that several stages hold (needed when they were not loaded from one state dict)."""
    m = _mesh.mesh()
    for stages, group in tied_over_stages(module).items():
        if m.stages_group(stages) is not None:
            for p in group:
                dist.broadcast(p.data, m.rank_of_stage(stages[0]), m.stages_group(stages))


def counts_in_norm(p):
    """Whether this rank adds the parameter to the norm: sharded ones on every rank, the others on tp rank 0; a tied one on the
    first stage that holds it; a repeated slice on the first of its ranks."""
    m = _mesh.mesh()
    stages = getattr(p, "holder_stages", None)
    if stages and len(stages) > 1 and m.pp > 1 and m.pp_rank != m.placement[stages[0]]:
        return False
    if getattr(p, "tensor_model_parallel", False):
        members = getattr(p, "replicas", None)
        return not members or m.tp_rank == members[0]
    return m.tp_rank == 0


def gradient_norm(module):
    """The norm of the whole model's gradient, the same on every rank."""
    gradients = [g for g in (gradient_of(p) for p in parameters_of(module) if counts_in_norm(p)) if g is not None]
    m = _mesh.mesh()
    if m.model_group is None:   # as torch.nn.utils.clip_grad_norm_ computes it, to the last bit
        return float(torch.nn.utils.get_total_norm(gradients))
    square = _C.squared_norm(gradients).to(m.device)
    return math.sqrt(float(_C.all_reduce(square, m.model_group, "norm")))
