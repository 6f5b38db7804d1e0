"""The optimizer step: gradients made whole, clipped by the global norm, float32 masters of low-precision parameters, states divided
over dp (ZeRO-1), loss scaling.

    optimizer = adamw(stage, lr=1e-3, clip_grad=1.0, zero=True)
    (optimizer.scale(loss)).backward()
    norm = optimizer.step()           # None when it was not needed; optimizer.skipped says whether gradients overflowed
"""
from __future__ import annotations

import math

import torch
import torch.distributed as dist

from . import _C
from . import device_mesh as _mesh
from .gradients import (GradientReducer, accumulate_in_float32, broadcast_tied, finalize_gradients, gradient_norm, gradient_of,  # noqa: F401
                        parameters_of, zero_gradients)

LOW = (torch.bfloat16, torch.float16)


class LossScaler:
    """Constant, or dynamic: halved after `hysteresis` overflows, doubled after `window` steps without one (Megatron's)."""

    def __init__(self, scale=2.0**32, dynamic=True, minimum=1.0, window=1000, hysteresis=2):
        self.scale, self.dynamic, self.minimum, self.window, self.hysteresis = float(scale), dynamic, minimum, window, hysteresis
        self.good, self.left = 0, hysteresis

    def update(self, overflow):
        if not self.dynamic:
            return
        if overflow:
            self.good, self.left = 0, self.left - 1
            if self.left <= 0:
                self.scale = max(self.scale / 2, self.minimum)
        else:
            self.good += 1
            if self.good == self.window:
                self.good, self.left, self.scale = 0, self.hysteresis, self.scale * 2

    def state_dict(self):
        return {"scale": self.scale, "good": self.good, "left": self.left}

    def load_state_dict(self, state):
        self.scale, self.good, self.left = state["scale"], state["good"], state["left"]


class _Piece:
    """What the inner optimizer steps for one parameter: itself, a float32 master of it, or of the flat range [first, last) that this
    dp rank owns."""

    def __init__(self, name, p, zero):
        self.name, self.p = name, p
        n, m = p.numel(), _mesh.mesh()
        self.ranges = None
        if zero and m.dp > 1:
            chunk = -(-n // m.dp)
            self.ranges = [(min(d * chunk, n), min((d + 1) * chunk, n)) for d in range(m.dp)]
            self.first, self.last = self.ranges[m.dp_rank]
        self.is_master = p.dtype in LOW
        if self.ranges is None and not self.is_master:
            self.tensor = p
        else:
            own = self._own(p.data)
            self.tensor = torch.nn.Parameter(own.float() if self.is_master else own)

    def _own(self, t):
        if self.ranges is None:
            return t
        if not t.is_contiguous():
            raise ValueError(f"{self.name}: a parameter whose memory is not contiguous cannot be divided over dp")
        return t.view(-1)[self.first:self.last]

    def take_gradient(self):
        g = gradient_of(self.p)
        if self.tensor is self.p:
            if g is not self.p.grad:
                self.p.grad = g
            return
        self.tensor.grad = None if g is None else self._own(g.contiguous()).to(self.tensor.dtype)

    def give_back(self):
        if self.is_master:
            self._own(self.p.data).copy_(self.tensor.data)

    def refresh(self):
        """After the parameter was loaded."""
        if self.is_master:
            self.tensor.data.copy_(self._own(self.p.data))


class ParallelOptimizer:
    """`make(tensors)` gives the torch optimizer. `zero`: its states are divided over dp. `scaler`: a LossScaler."""

    def __init__(self, make, module, clip_grad=0.0, zero=False, scaler=None, fp32_gradients=True, overlap=False, bucket_bytes=25 * 2**20,
                 check_finite=False):
        self.module, self.clip_grad, self.scaler, self.check_finite = module, clip_grad, scaler, check_finite
        self.zero = zero and _mesh.mesh().dp > 1
        if fp32_gradients:
            accumulate_in_float32(module)
        seen, self.pieces = set(), []
        for name, p in module.named_parameters():
            if p.requires_grad and id(p) not in seen:
                seen.add(id(p))
                self.pieces.append(_Piece(name, p, self.zero))
        self.optimizer = make([piece.tensor for piece in self.pieces] or [torch.zeros(1, requires_grad=True)])
        self.reducer = GradientReducer(module, _mesh.mesh().dp_group, bucket_bytes) if overlap and _mesh.mesh().dp > 1 else None
        self.skipped = False

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def scale(self, loss):
        return loss if self.scaler is None else loss * self.scaler.scale

    def zero_grad(self):
        zero_gradients(self.module)
        self.optimizer.zero_grad(set_to_none=True)

    def step(self, finalize=True):
        if finalize:
            finalize_gradients(self.module, self.reducer)
        norm, self.skipped = None, False
        scale = self.scaler.scale if self.scaler else 1.0
        if self.clip_grad > 0 or self.scaler or self.check_finite:
            norm = gradient_norm(self.module) / scale
            if self.scaler:
                self.skipped = not math.isfinite(norm)
                self.scaler.update(self.skipped)
            elif not math.isfinite(norm):
                raise FloatingPointError(f"{_mesh.mesh().where()}: the gradient norm is {norm}{self._where_not_finite()}")
        if self.skipped:
            return norm
        gradients = [g for g in (gradient_of(p) for p in parameters_of(self.module)) if g is not None]
        with torch.no_grad():
            if scale != 1.0:
                torch._foreach_mul_(gradients, 1.0 / scale)
            if self.clip_grad > 0:
                _C.clip_by_norm(gradients, norm, self.clip_grad)
            for piece in self.pieces:
                piece.take_gradient()
            self.optimizer.step()
            for piece in self.pieces:
                piece.give_back()
            if self.zero:
                self._gather_parameters()
        return norm

    def _where_not_finite(self):
        names = [piece.name for piece in self.pieces if gradient_of(piece.p) is not None and not bool(torch.isfinite(gradient_of(piece.p)).all())]
        return f"; not finite here: the gradients of {', '.join(names[:5])}{' …' if len(names) > 5 else ''}" if names else "; not on this rank"

    def _gather_parameters(self):
        """Every dp rank's ranges to all, one collective a dtype."""
        m = _mesh.mesh()
        for dtype in sorted({piece.p.dtype for piece in self.pieces}, key=str):
            pieces = [p for p in self.pieces if p.p.dtype == dtype]
            parts = [[p.p.data.view(-1)[a:b] for p in pieces for a, b in [p.ranges[d]]] for d in range(m.dp)]
            longest = max(sum(t.numel() for t in part) for part in parts)
            mine = torch.cat(parts[m.dp_rank])
            mine = torch.cat([mine, mine.new_zeros(longest - mine.numel())])
            gathered = [torch.empty_like(mine) for _ in range(m.dp)]
            _C.count_payload("dp", mine.nbytes)
            real = [torch.view_as_real(t) if t.is_complex() else t for t in (mine, *gathered)]
            dist.all_gather(real[1:], real[0], group=m.dp_group)
            for d, flat in enumerate(gathered):
                if d != m.dp_rank:
                    for target, source in zip(parts[d], flat.split([*(t.numel() for t in parts[d]), longest - sum(t.numel() for t in parts[d])])):
                        target.copy_(source)

    # ---- states, by parameter --------------------------------------------------------------------------------------------------
    def tensors(self):
        """{"exp_avg/NAME": tensor, …, "master/NAME": …}: shaped as the parameter, or the flat range of it that this dp rank owns."""
        out = {}
        for piece in self.pieces:
            for key, value in self.optimizer.state.get(piece.tensor, {}).items():
                if isinstance(value, torch.Tensor) and value.dim() > 0:
                    out[f"{key}/{piece.name}"] = value
            if piece.is_master:
                out[f"master/{piece.name}"] = piece.tensor.data
        return out

    def numbers(self):
        """What is no tensor: steps of every parameter, learning rates, the scaler."""
        steps = {}
        for piece in self.pieces:
            state = self.optimizer.state.get(piece.tensor, {})
            if "step" in state:
                steps[piece.name] = float(state["step"])
        groups = [{k: v for k, v in g.items() if k in ("lr", "weight_decay") and isinstance(v, (int, float))} for g in self.param_groups]
        return {"steps": steps, "groups": groups, "scaler": self.scaler.state_dict() if self.scaler else None}

    def load_tensors(self, lookup, kinds, numbers):
        """`lookup(kind, name)` gives the whole local tensor (shaped as the parameter) or None; `kinds`: those there are."""
        for piece in self.pieces:
            state = {}
            for kind in kinds:
                value = lookup(kind, piece.name)
                if value is None:
                    continue
                value = piece._own(value.contiguous())
                if kind == "master":
                    if piece.is_master:
                        piece.tensor.data.copy_(value)
                else:
                    state[kind] = value.to(piece.tensor.device, piece.tensor.dtype).clone().view(piece.tensor.shape)
            if piece.name in numbers["steps"]:
                state["step"] = torch.tensor(numbers["steps"][piece.name], dtype=torch.float32)
            if state:
                self.optimizer.state[piece.tensor] = state
        for group, saved in zip(self.param_groups, numbers["groups"]):
            group.update(saved)
        if self.scaler and numbers.get("scaler"):
            self.scaler.load_state_dict(numbers["scaler"])

    def refresh(self):
        """After parameters were loaded: masters follow."""
        for piece in self.pieces:
            piece.refresh()

    def state_dict(self):
        return {"tensors": self.tensors(), "numbers": self.numbers()}

    def load_state_dict(self, state):
        kinds = sorted({k.split("/", 1)[0] for k in state["tensors"]})
        for piece in self.pieces:
            if piece.ranges is not None:
                raise ValueError("states that are divided over dp are loaded from a checkpoint, not from a state_dict")
        self.load_tensors(lambda kind, name: state["tensors"].get(f"{kind}/{name}"), kinds, state["numbers"])


def adamw(module, lr=1e-3, weight_decay=0.01, betas=(0.9, 0.999), eps=1e-8, clip_grad=0.0, **options):
    return ParallelOptimizer(lambda tensors: torch.optim.AdamW(tensors, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay), module,
                             clip_grad, **options)


def sgd(module, lr=1e-2, momentum=0.0, weight_decay=0.0, clip_grad=0.0, **options):
    return ParallelOptimizer(lambda tensors: torch.optim.SGD(tensors, lr=lr, momentum=momentum, weight_decay=weight_decay), module,
                             clip_grad, **options)
