"""What verify changes while a program runs, alike in the original and the generated one: precision and randomness."""
from __future__ import annotations

import contextlib
import zlib

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

_LOW = (torch.float32, torch.float16, torch.bfloat16)


def to_default_dtype(module):
    """f32 parameters and buffers in the default dtype, complex64 alike. (Module.double() would drop imaginary parts.)"""
    dtype = torch.get_default_dtype()
    if dtype == torch.float64:
        module._apply(lambda t: t.to(torch.complex128) if t.dtype == torch.complex64 else t.to(dtype) if t.dtype in _LOW else t)
    return module


class CastWatch(TorchFunctionMode):
    """Notices that the model itself casts tensors to a lower precision than the run's."""

    def __init__(self):
        super().__init__()
        self.casts = False

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if not self.casts and any(isinstance(a, torch.Tensor) and a.dtype == torch.float64 for a in args[:1]):
            name = getattr(func, "__name__", "")
            if name in ("float", "half", "bfloat16") or any(a in _LOW for a in args[1:] if isinstance(a, torch.dtype)) or kwargs.get("dtype") in _LOW:
                self.casts = True
        return func(*args, **kwargs)


class Promote(TorchFunctionMode):
    """For models that cast to float32 and then meet float64 parameters: the casts go to float64."""
    MAP = {torch.float32: torch.float64, torch.complex64: torch.complex128, torch.float16: torch.float64, torch.bfloat16: torch.float64}

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") in ("float", "half", "bfloat16") and args and isinstance(args[0], torch.Tensor):
            return args[0].double(*args[1:], **kwargs)
        args = tuple(self.MAP.get(a, a) if isinstance(a, torch.dtype) else a for a in args)
        if isinstance(kwargs.get("dtype"), torch.dtype):
            kwargs = {**kwargs, "dtype": self.MAP.get(kwargs["dtype"], kwargs["dtype"])}
        return func(*args, **kwargs)


class Randomness:
    """Replaces what draws random numbers during a run. `off`: dropout does nothing, drawn numbers are constants. Else masks are
    a function of (seed, module path, call, micro-batch, number of elements of the full tensor); inside the RNG tracker's fork a
    rank keeps its slice of the full tensor's mask.

    The original records the full shape of every draw (`shapes`); a generated program is given that record, and finds from it
    along which dimension its tensor is cut where the fork does not say so."""

    def __init__(self, root, seed, off, shapes=None, mesh=None):
        self.root, self.seed, self.off, self.mesh = root, seed, off, mesh
        self.recorded, self.shapes = {}, shapes
        self.micro_batch, self.stack, self.calls = 0, [], {}
        self.names = {id(m): name for name, m in root.named_modules()}

    def begin(self, micro_batch):
        self.micro_batch, self.calls, self.stack = micro_batch, {}, []

    # ---- draws ----------------------------------------------------------------------------------------------------------
    def uniform(self, shape, like):
        """Numbers in [0, 1) of this rank's tensor of `shape`."""
        path = self.stack[-1] if self.stack else ""
        call = self.calls[path] = self.calls.get(path, -1) + 1
        key = (path, call)
        full, cut = tuple(shape), None
        if self.mesh is not None and self.mesh.tp > 1:
            from shardwright.parallel import get_rng_tracker
            tracker = get_rng_tracker()
            if tracker.forked:
                full, cut = self._full(key, tuple(shape), tracker.cut)
        else:
            self.recorded.setdefault(key, set()).add(full)   # one shape for each batch size
        count = 1
        for s in full:
            count *= s
        generator = torch.Generator().manual_seed(zlib.crc32(f"{path}:{call}:{self.micro_batch}:{count}".encode()) + 104729 * self.seed)
        values = torch.rand(count, generator=generator, dtype=torch.float64).view(full)
        if cut is not None:
            dim, outer = cut
            values = values.unflatten(dim, (outer, self.mesh.tp, full[dim] // outer // self.mesh.tp)).select(dim + 1, self.mesh.tp_rank)
            values = values.flatten(dim, dim + 1)
        return values.to(like.device)

    def _full(self, key, shape, said):
        tp = self.mesh.tp
        if said is not None:
            dim = said[0] % len(shape)
            return (*shape[:dim], shape[dim] * tp, *shape[dim + 1:]), (dim, said[1][0] if said[1] else 1)
        for original in sorted((self.shapes or {}).get(key, ())):
            if len(original) == len(shape):
                dims = [d for d in range(len(shape)) if shape[d] * tp == original[d] and all(
                    a == b for i, (a, b) in enumerate(zip(shape, original)) if i != d)]
                if len(dims) == 1:
                    return original, (dims[0], 1)
        return shape, None

    def dropout(self, x, p):
        if self.off or p == 0.0:
            return x
        if p == 1.0:
            return x * 0
        return x * ((self.uniform(x.shape, x) >= p).to(x.dtype) / (1 - p))

    # ---- patches --------------------------------------------------------------------------------------------------------
    @contextlib.contextmanager
    def active(self):
        me, saved = self, []

        def patch(owner, name, replacement):
            saved.append((owner, name, owner.__dict__.get(name), name in owner.__dict__))
            setattr(owner, name, replacement)

        def dropout(input, p=0.5, training=True, inplace=False):
            return me.dropout(input, p) if training else input

        def channels(input, p=0.5, training=True, inplace=False):
            if not training or me.off or p == 0.0:
                return input
            shape = (*input.shape[:2], *[1] * (input.dim() - 2))
            return input * ((me.uniform(shape, input) >= p).to(input.dtype) / (1 - p))

        plain_attention = F.scaled_dot_product_attention

        def attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, **kwargs):
            if dropout_p == 0.0 or me.off:
                return plain_attention(query, key, value, attn_mask, 0.0, is_causal, **kwargs)
            scale = kwargs.get("scale") or query.shape[-1] ** -0.5
            scores = query @ key.transpose(-2, -1) * scale
            if is_causal:
                keep = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
                scores = scores.masked_fill(~keep, float("-inf"))
            if attn_mask is not None:
                scores = scores.masked_fill(~attn_mask, float("-inf")) if attn_mask.dtype == torch.bool else scores + attn_mask
            return me.dropout(scores.softmax(-1), dropout_p) @ value

        plain_rand = torch.rand

        def numbers(shape, like):
            return torch.full(shape, 0.999, dtype=torch.float64, device=like.device) if me.off else me.uniform(shape, like)

        def rand(*size, dtype=None, device=None, generator=None, **kwargs):
            if generator is not None:
                return plain_rand(*size, dtype=dtype, device=device, generator=generator, **kwargs)
            size = size[0] if len(size) == 1 and not isinstance(size[0], int) else size
            return numbers(tuple(size), torch.empty(0, device=device)).to(dtype or torch.get_default_dtype())

        def rand_like(input, dtype=None, **kwargs):
            return numbers(tuple(input.shape), input).to(dtype or input.dtype)

        def bernoulli_(self, p=0.5, generator=None):
            with torch.no_grad():
                return self.copy_(torch.ones_like(self) if me.off else (me.uniform(self.shape, self) < p).to(self.dtype))

        def bernoulli(input, p=None, generator=None):
            return (numbers(tuple(input.shape), input) < (input if p is None else p)).to(input.dtype) if not me.off else torch.ones_like(input)

        patch(F, "dropout", dropout)
        for name in ("dropout1d", "dropout2d", "dropout3d"):
            patch(F, name, channels)
        patch(F, "scaled_dot_product_attention", attention)
        patch(torch, "rand", rand)
        patch(torch, "rand_like", rand_like)
        patch(torch, "bernoulli", bernoulli)
        patch(torch.Tensor, "bernoulli_", bernoulli_)
        hooks = [torch.nn.modules.module.register_module_forward_pre_hook(lambda m, _: me._enter(m)),
                 torch.nn.modules.module.register_module_forward_hook(lambda m, _, __: me._exit(m))]
        try:
            yield self
        finally:
            for hook in hooks:
                hook.remove()
            for owner, name, value, own in reversed(saved):
                setattr(owner, name, value) if own else delattr(owner, name)

    def _enter(self, module):
        name = self.names.get(id(module))
        if name is not None:
            self.stack.append(name)

    def _exit(self, module):
        name = self.names.get(id(module))
        if name is not None and self.stack and self.stack[-1] == name:
            self.stack.pop()
