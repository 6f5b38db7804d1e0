"""A backward pass in two halves, for zero-bubble schedules: first the gradients of a stage's inputs, later those of its parameters.

The autograd graph falls into nodes on a path to an input ("through"), and nodes that only lead to parameters. The first half runs the
through nodes alone, asked for inputs only: functions then leave out the parameters' gradients (autograd tells them which are needed), and
what arrives at a through node that has a parameter behind it is kept. The second half enters these nodes again with what arrived, asked
for their parameter side only, and goes on from there. Nothing is computed twice, and collectives are issued once.

Where that is not possible the whole backward happens in the first half, and the second does nothing: results are the same, only the
bubble is not filled. These are: functions written in Python (they compute all gradients at once), saved-tensor hooks (activation
recompute would run twice), a parameter side that the inputs' path also leads to (a node used by both).
"""
from __future__ import annotations

import torch
from torch.autograd.graph import GradientEdge


def _is_python(node):
    return isinstance(node, torch.autograd.function.BackwardCFunction)


def _explore(roots):
    """Nodes reachable from `roots`, every one after what it leads to."""
    order, seen = [], set()
    for root in roots:
        stack = [(root, False)]
        while stack:
            node, done = stack.pop()
            if done:
                order.append(node)
                continue
            if node in seen:
                continue
            seen.add(node)
            stack.append((node, True))
            stack.extend((child, False) for child, _ in node.next_functions if child is not None and child not in seen)
    return order


class SplitBackward:
    """`first()` gives the gradients of `inputs` (None where there is none); `second()` accumulates into the parameters' .grad."""

    def __init__(self, outputs, gradients, inputs, splittable=True):
        self.inputs = inputs
        self.outputs = [(t, g) for t, g in zip(outputs, gradients) if t.requires_grad]
        self.splittable = splittable and bool(self.outputs) and self._plan()
        self.arrived, self.left = {}, []

    def _plan(self):
        leaves = {torch.autograd.graph.get_gradient_edge(t).node for t in self.inputs if t is not None and t.requires_grad}
        order = _explore([t.grad_fn for t, _ in self.outputs if t.grad_fn is not None])
        through, behind = set(), {}   # behind: node -> edges that lead to parameters only
        for node in order:
            if node in leaves or any(c in through for c, _ in node.next_functions if c is not None):
                through.add(node)
                if _is_python(node):
                    return False
        self.through = through
        owners: dict[object, object] = {}
        for node in order:
            if node not in through or node in leaves:
                continue
            edges = [(c, n) for c, n in node.next_functions if c is not None and c not in through]
            if not edges:
                continue
            for child, _ in edges:
                if owners.setdefault(child, node) is not node:
                    return False
            behind[node] = list(dict.fromkeys(edges))
        self.behind = behind
        return True

    def first(self):
        wanted = [t for t in self.inputs if t is not None and t.requires_grad]
        if not self.splittable:
            if self.outputs:
                torch.autograd.backward([t for t, _ in self.outputs], [g for _, g in self.outputs])
            self.outputs = []
            return [None if t is None or not t.requires_grad else t.grad for t in self.inputs]
        ahead = [(t, g) for t, g in self.outputs if t.grad_fn in self.through]
        self.left = [(torch.autograd.graph.get_gradient_edge(t), g if g is not None else torch.ones_like(t))
                     for t, g in self.outputs if t.grad_fn not in self.through]
        found = []
        if ahead and wanted:
            hooks = [node.register_prehook(lambda grads, node=node: self.arrived.__setitem__(node, grads)) for node in self.behind]
            try:
                found = torch.autograd.grad([t for t, _ in ahead], wanted, [g for _, g in ahead], retain_graph=True, allow_unused=True)
            finally:
                for h in hooks:
                    h.remove()
        at = iter(found or [None] * len(wanted))
        self.roots = [t for t, _ in ahead]   # the graph lives until the second half
        self.outputs = []
        return [None if t is None or not t.requires_grad else next(at) for t in self.inputs]

    def second(self):
        edges, gradients = [e for e, _ in self.left], [g for _, g in self.left]
        for node, grads in self.arrived.items():
            here = [(GradientEdge(node, k), g) for k, g in enumerate(grads) if g is not None]
            if not here:
                continue
            sides = [GradientEdge(c, n) for c, n in self.behind[node]]
            found = torch.autograd.grad([e for e, _ in here], sides, [g for _, g in here], retain_graph=True, allow_unused=True)
            for edge, g in zip(sides, found):
                if g is not None:
                    edges.append(edge)
                    gradients.append(g)
        if edges:
            torch.autograd.backward(edges, gradients)
        self.arrived, self.left, self.roots, self.behind = {}, [], [], {}
