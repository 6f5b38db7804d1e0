"""Gradients made whole, the norm right under tp x pp x tied weights, and the step.

Reads the marks on parameters that params.load_stage (or the layers) set: `tensor_model_parallel`, `sum_gradient_over_tp`,
`holder_stages`, `original_name`, `replicas`.
"""
from __future__ import annotations

import math

import torch
import torch.distributed as dist

from . import _C
from . import device_mesh as _mesh


def parameters_of(module):
    return [p for p in module.parameters() if p.requires_grad]


def _agree(present, group):
    """Which of these gradients exist on any rank of the group (they are zero where they do not)."""
    flags = torch.tensor(present, dtype=torch.float32, device=_mesh.mesh().device)
    return _C.all_reduce_max(flags, group, "header").tolist()


def _sum(parameters, group, tag):
    """Sums the gradients of these parameters over the group; None stays None where no rank has one."""
    if group is None or not parameters:
        return
    exists = _agree([p.grad is not None for p in parameters], group)
    taking_part = [p for p, e in zip(parameters, exists) if e]
    for p in taking_part:
        if p.grad is None:
            p.grad = torch.zeros_like(p)
    _C.all_reduce_coalesced([p.grad for p in taking_part], group, tag)


def tied_over_stages(module):
    """Parameters that several stages hold: {(stages): [parameters in the order of their original names]}."""
    groups: dict[tuple[int, ...], dict[str, torch.Tensor]] = {}
    for p in parameters_of(module):
        stages = tuple(getattr(p, "holder_stages", ()) or ())
        if len(stages) > 1:
            groups.setdefault(stages, {})[p.original_name] = p
    return {s: [by_name[n] for n in sorted(by_name)] for s, by_name in sorted(groups.items())}


def finalize_gradients(module):
    """Once a step, after the last backward and before clipping: sums partial gradients of replicated parameters over tp, of
    repeated groups, of tied weights over the stages that hold them, and all of them over dp (losses are already divided by
    micro-batches x dp)."""
    m = _mesh.mesh()
    parameters = parameters_of(module)
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
    if m.dp > 1:
        _sum(parameters, m.dp_group, "dp")


def broadcast_tied(module):
    """Equal start values for parameters that several stages hold (needed when they were not loaded from one state dict)."""
    m = _mesh.mesh()
    for stages, group in tied_over_stages(module).items():
        for p in group:
            dist.broadcast(p.data, m.rank_at(pp=stages[0]), m.stages_group(stages))


def counts_in_norm(p):
    """Whether this rank adds the parameter to the norm: sharded ones on every rank, the others on tp rank 0; a tied one on the
    first stage that holds it; a repeated slice on the first of its ranks."""
    m = _mesh.mesh()
    stages = getattr(p, "holder_stages", None)
    if stages and len(stages) > 1 and m.pp > 1 and m.pp_rank != stages[0]:
        return False
    if getattr(p, "tensor_model_parallel", False):
        members = getattr(p, "replicas", None)
        return not members or m.tp_rank == members[0]
    return m.tp_rank == 0


def gradient_norm(module):
    """The norm of the whole model's gradient, the same on every rank."""
    gradients = [p.grad for p in parameters_of(module) if p.grad is not None and counts_in_norm(p)]
    m = _mesh.mesh()
    if m.model_group is None:   # as torch.nn.utils.clip_grad_norm_ computes it, to the last bit
        return float(torch.nn.utils.get_total_norm(gradients))
    square = _C.squared_norm(gradients).to(m.device)
    return math.sqrt(float(_C.all_reduce(square, m.model_group, "norm")))


class ParallelOptimizer:
    """Wraps a torch optimizer: `step()` makes the gradients whole, clips by the global norm, steps; returns the norm (None
    when it was not needed)."""

    def __init__(self, optimizer, module, clip_grad=0.0):
        self.optimizer, self.module, self.clip_grad = optimizer, module, clip_grad

    def zero_grad(self):
        self.optimizer.zero_grad(set_to_none=True)

    def step(self, finalize=True):
        if finalize:
            finalize_gradients(self.module)
        norm = None
        if self.clip_grad > 0:
            norm = gradient_norm(self.module)
            if not math.isfinite(norm):
                raise FloatingPointError(f"{_mesh.mesh().where()}: the gradient norm is {norm}")
            _C.clip_by_norm([p.grad for p in parameters_of(self.module) if p.grad is not None], norm, self.clip_grad)
        self.optimizer.step()
        return norm

    def state_dict(self):
        return self.optimizer.state_dict()

    def load_state_dict(self, state):
        self.optimizer.load_state_dict(state)


def adamw(module, lr=1e-3, weight_decay=0.01, betas=(0.9, 0.999), eps=1e-8, clip_grad=0.0):
    return ParallelOptimizer(torch.optim.AdamW(parameters_of(module) or [torch.zeros(1, requires_grad=True)], lr=lr, betas=betas,
                                               eps=eps, weight_decay=weight_decay), module, clip_grad)


def sgd(module, lr=1e-2, momentum=0.0, weight_decay=0.0, clip_grad=0.0):
    return ParallelOptimizer(torch.optim.SGD(parameters_of(module) or [torch.zeros(1, requires_grad=True)], lr=lr, momentum=momentum,
                                             weight_decay=weight_decay), module, clip_grad)
