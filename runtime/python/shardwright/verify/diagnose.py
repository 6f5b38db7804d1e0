"""Where two programs part: the first module in execution order whose output differs; when all outputs agree, the first on the
way back whose gradient differs; else the owner of the first parameter that differs.

Both programs run one micro-batch with hooks that keep every module's inputs, outputs and their gradients. Tensors that are
sharded on the generated side are put together where that can be told from shapes and layouts; others are not judged.
"""
from __future__ import annotations

import torch

from .job import tensors_of

LIMIT_BYTES = 2 << 30


class Recorder:
    """Hooks on every module of a model: a list of calls {name, inputs, outputs} in order of completion; `start` gives the order
    of beginning. Values are kept by reference until `collect`."""

    def __init__(self, model):
        self.calls, self.tensors, self.gradients, self._ids, self._started, self._bytes = [], [], {}, {}, 0, 0
        self._open, self._hooks = [], []
        for name, module in model.named_modules():
            self._hooks.append(module.register_forward_pre_hook(self._enter(name), with_kwargs=True))
            self._hooks.append(module.register_forward_hook(self._leave(name), with_kwargs=True))

    def _keep(self, value):
        kept = []
        for _, t in tensors_of(value):
            key = id(t)
            if key not in self._ids:
                if self._bytes > LIMIT_BYTES:
                    continue
                self._bytes += t.nbytes
                index = self._ids[key] = len(self.tensors)
                self.tensors.append((t, t.detach().to("cpu", copy=True)))   # the reference keeps the id alive
                if t.requires_grad and torch.is_grad_enabled():
                    t.register_hook(lambda g, index=index: self.gradients.__setitem__(index, g.detach().to("cpu", copy=True)))
            kept.append(self._ids[key])
        return kept

    def _enter(self, name):
        def hook(_, args, kwargs):
            self._started += 1
            self._open.append((name, self._started, self._keep((args, dict(kwargs)))))
        return hook

    def _leave(self, name):
        def hook(_, __, ___, out):
            _, start, inputs = self._open.pop()
            self.calls.append({"name": name, "start": start, "inputs": inputs, "outputs": self._keep(out)})
        return hook

    def collect(self):
        for hook in self._hooks:
            hook.remove()
        return {"calls": self.calls, "values": [v for _, v in self.tensors], "gradients": self.gradients}


def _close(a, b, tolerance):
    if a.shape != b.shape:
        return False
    if a.numel() == 0:
        return True
    wide = torch.complex128 if a.is_complex() else torch.float64
    a, b = a.to(wide), b.to(wide)
    gap = torch.where(a == b, torch.zeros_like(a), a - b).abs().max()
    scale = max(float(a.abs()[torch.isfinite(a.abs())].max()) if bool(torch.isfinite(a.abs()).any()) else 0.0, 1e-30)
    return bool(gap <= tolerance * scale)


def match(original, ranks, outers, tolerance, partial_allowed):
    """True: the same, as it is, summed or put together. False: not. None: cannot be told."""
    if any(r is None for r in ranks) or original is None:
        return None
    if all(r.shape == original.shape for r in ranks):
        if all(_close(original, r, tolerance) for r in ranks):
            return True
        return bool(partial_allowed and len(ranks) > 1 and _close(original, sum(ranks[1:], ranks[0].clone()), tolerance))
    tp = len(ranks)
    if any(r.dim() != original.dim() for r in ranks):
        return None
    for dim in range(original.dim()):
        local = ranks[0].shape[dim]
        if local * tp != original.shape[dim] or any(r.shape[:dim] != original.shape[:dim] or r.shape[dim + 1:] != original.shape[dim + 1:] for r in ranks):
            continue
        for outer in sorted({1, 2, 3, *outers}):
            if local % outer == 0:
                whole = torch.cat([r.unflatten(dim, (outer, local // outer)) for r in ranks], dim + 1).flatten(dim, dim + 1)
                if _close(original, whole, tolerance):
                    return True
    return None


def _parent(name):
    return name.rpartition(".")[0]


class _Side:
    """One program's record by (name, occurrence)."""

    def __init__(self, record):
        self.values, self.gradients = record["values"], record["gradients"]
        self.calls, count = {}, {}
        for call in record["calls"]:
            k = count[call["name"]] = count.get(call["name"], -1) + 1
            self.calls[call["name"], k] = call


def first_difference(original, stages, table, tolerance):
    """`stages`: {stage: [record of each tensor-parallel rank]}. -> (module or None, how it was found)."""
    reference = _Side(original)
    sides = [[_Side(r) for r in ranks] for _, ranks in sorted(stages.items())]
    outers = {spec for e in table.entries.values() if e.dims for spec in _outers(e)}

    def on_ranks(key):
        for ranks in sides:
            if all(key in r.calls for r in ranks) and key[0] != "":
                return ranks
        return None

    def verdict(key, which, gradient=False, partial=False):
        """match over all tensors of a call's inputs or outputs; None when nothing could be told."""
        ranks = on_ranks(key)
        if ranks is None:
            return None
        ours = reference.calls[key][which]
        theirs = [r.calls[key][which] for r in ranks]
        results = []
        for position, index in enumerate(ours):
            if any(position >= len(t) for t in theirs):
                break
            if gradient:
                a = reference.gradients.get(index)
                b = [r.gradients.get(t[position]) for r, t in zip(ranks, theirs)]
            else:
                a, b = reference.values[index], [r.values[t[position]] for r, t in zip(ranks, theirs)]
            results.append(match(a, b, outers, tolerance, partial))
        if any(r is False for r in results):
            return False
        return True if results and all(r is True for r in results) else None

    order = list(reference.calls)
    for key in order:   # completion order: innermost first
        if verdict(key, "outputs", partial=True) is False:
            name = key[0]
            if verdict(key, "inputs", partial=True) is not True:
                # What arrives is already wrong and no module before made it so: the code of the parent, between its children.
                return _parent(name), "output"
            return name, "output"

    by_start = sorted(order, key=lambda k: reference.calls[k]["start"])
    for key in reversed(order):   # backwards, outermost first
        if verdict(key, "outputs", gradient=True) is not False:
            continue
        # The gradient of this output is wrong and those after it are right: who reads it first?
        made = set(reference.calls[key]["outputs"])
        end = reference.calls[key]["start"]
        readers = [k for k in by_start if reference.calls[k]["start"] > end and made & set(reference.calls[k]["inputs"])]
        if readers:
            return readers[0][0], "gradient"
        return _parent(key[0]), "gradient"
    return None, ""


def _outers(entry):
    """Outer factors of an entry's cut, where sizes are given."""
    for dims in entry.dims:
        if entry.shard in dims:
            outer = 1
            for f in dims[:dims.index(entry.shard)]:
                outer *= entry.sizes.get(f, 1)
            yield outer
