"""Activation recompute: parts of a stage keep only their inputs and run again in backward, drawing the same random numbers.

full: every element of the stage's outermost ModuleLists (its blocks), or the stage's children where it has none.
selective: modules whose name or class contains one of `names` (the attention, by default).
"""
from __future__ import annotations

import functools

import torch
from torch.utils.checkpoint import checkpoint

DEFAULT_NAMES = ("attention", "attn")


def _wrap(module):
    plain = module.forward

    @functools.wraps(plain)
    def forward(*args, **kwargs):
        if not torch.is_grad_enabled():
            return plain(*args, **kwargs)
        return checkpoint(plain, *args, use_reentrant=False, preserve_rng_state=True, **kwargs)

    module.forward = forward


def _blocks(module):
    lists = []

    def visit(owner):
        for child in owner.children():
            if isinstance(child, (torch.nn.ModuleList, torch.nn.Sequential)):
                lists.append(child)
            else:
                visit(child)
    visit(module)
    return [block for held in lists for block in held if any(True for _ in block.parameters())] or list(module.children())


def recompute(module, granularity, names=DEFAULT_NAMES):
    """Changes `module` in place; returns the modules that run again."""
    if granularity == "full":
        chosen = _blocks(module)
    elif granularity == "selective":
        chosen, inside = [], []
        for path, m in module.named_modules():
            leaf = path.rpartition(".")[2].lower()
            if any(path.startswith(p + ".") for p in inside) or isinstance(m, torch.nn.ModuleList):
                continue
            if path and any(n.lower() in leaf or n.lower() in type(m).__name__.lower() for n in names):
                chosen.append(m)
                inside.append(path)
        if not chosen:
            raise ValueError(f"nothing to recompute: no module of {type(module).__name__} is named like {', '.join(names)}")
    else:
        raise ValueError(f"recompute: {granularity!r} is neither full nor selective")
    for m in chosen:
        _wrap(m)
    return chosen
