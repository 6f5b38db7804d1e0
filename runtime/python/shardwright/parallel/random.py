"""Random streams: replicated tensors draw the same numbers on all tensor-parallel ranks, sharded ones draw their own.

The replicated stream is torch's default generator, seeded alike on the tp ranks of one stage (and differently by stage and
data-parallel rank). A fork draws one number from it, the same on all tp ranks, and seeds this rank's stream from that number
and its tp rank. So the forked numbers are a function of the default generator's state alone: whatever saves and restores
that state (torch.utils.checkpoint does) recomputes the same numbers, with nothing more to save.
"""
from __future__ import annotations

import contextlib

import torch

from . import device_mesh as _mesh


def manual_seed(seed: int) -> None:
    """Seeds every stream. Call once, after `initialize`."""
    m = _mesh.mesh()
    torch.manual_seed(seed + 100 * m.pp_rank + 100_003 * m.dp_rank)


class RngTracker:
    """Megatron's RNG tracker, by its interface: `with get_rng_tracker().fork(): …` draws from this rank's own stream."""

    def __init__(self):
        self._depth = 0
        self.cut = None   # (dim, sizes) of the tensor that the innermost fork draws for, where it said so

    @property
    def forked(self) -> bool:
        """Whether code runs inside a fork now (draws for a sharded tensor)."""
        return self._depth > 0

    @contextlib.contextmanager
    def fork(self, name: str = "model-parallel-rng", dim: int | None = None, sizes=None):
        """Inside, draws come from this rank's own stream. `dim`, `sizes`: where the tensor drawn for is cut (for verify)."""
        outer, self.cut = self.cut, (dim, sizes) if dim is not None else None
        try:
            with self._fork():
                yield
        finally:
            self.cut = outer

    @contextlib.contextmanager
    def _fork(self):
        m = _mesh.mesh()
        if m.tp == 1 or _mesh.making_whole_parameters():
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
            return
        drawn = int(torch.randint(0, 2 ** 62, (1,)).item())
        cuda = m.device.type == "cuda"
        saved = torch.get_rng_state()
        saved_cuda = torch.cuda.get_rng_state(m.device) if cuda else None
        torch.manual_seed((drawn + 2718 * (m.tp_rank + 1) + 7919 * m.pp_rank) % 2 ** 63)
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            torch.set_rng_state(saved)
            if cuda:
                torch.cuda.set_rng_state(saved_cuda, m.device)


_tracker = RngTracker()


def get_rng_tracker() -> RngTracker:
    return _tracker


def sharded_random(function, *args, **kwargs):
    """Calls what draws random numbers for a sharded tensor (F.dropout, torch.rand, x.bernoulli_, …) on this rank's own stream."""
    with _tracker.fork():
        return function(*args, **kwargs)


class ShardedDropout(torch.nn.Dropout):
    """Dropout on a tensor that is sharded over tp: each rank draws its own mask. `dim`, `sizes` say where the tensor is cut
    (only read by verify)."""

    def __init__(self, p: float = 0.5, inplace: bool = False, dim: int | None = None, sizes=None):
        super().__init__(p, inplace)
        self.dim, self.sizes = dim, sizes

    def forward(self, x):
        if not self.training or self.p == 0.0:
            return x
        with _tracker.fork(dim=self.dim, sizes=self.sizes):
            return super().forward(x)
