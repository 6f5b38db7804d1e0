"""Simulated tensor-parallel ranks: threads of one process that meet in every collective.

CPU autograd runs a backward pass in the thread that asks for it, so collectives in backward meet as those in forward do. A rank
that fails, or that waits where the others never come, ends the run with an error.
"""
import threading

import torch

TIMEOUT = 8.0


class Hang(RuntimeError):
    """Not every rank came to a collective."""


class World:
    def __init__(self, size):
        self.size = size
        self.local = threading.local()
        self.barrier = threading.Barrier(size)
        self.slots = [None] * size

    @property
    def rank(self):
        return getattr(self.local, "rank", 0)

    def run(self, function):
        """`function(rank)` on every rank; its results in order. The first error of any rank is raised."""
        results, errors = [None] * self.size, []
        self.barrier = threading.Barrier(self.size)

        def body(rank):
            self.local.rank = rank
            self.local.streams = {}
            try:
                results[rank] = function(rank)
            except threading.BrokenBarrierError:
                errors.append(Hang("a collective that some ranks never reach"))
            except BaseException as error:  # noqa: BLE001
                errors.insert(0, error)
                self.barrier.abort()
            # A rank that is done while others wait.
            finally:
                done.append(rank)
                if len(done) < self.size and self.barrier.n_waiting:
                    self.barrier.abort()

        done = []
        threads = [threading.Thread(target=body, args=(r,), daemon=True) for r in range(self.size)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        if errors:
            raise errors[0]
        return results

    def exchange(self, value):
        """What every rank gives, in the order of the ranks."""
        self.slots[self.rank] = value
        self.barrier.wait(TIMEOUT)
        everything = list(self.slots)
        self.barrier.wait(TIMEOUT)
        return everything

    # ---- collectives on tensors, without gradients ------------------------------------------------------------------------------

    def all_reduce(self, x, maximum=False):
        parts = self.exchange(x.detach().clone())
        if len({tuple(p.shape) for p in parts}) > 1:
            raise RuntimeError("all_reduce of different shapes: " + str([tuple(p.shape) for p in parts]))
        stack = torch.stack(parts)
        return stack.amax(0) if maximum else stack.sum(0)

    def all_gather(self, x, dim, outer=1):
        parts = self.exchange(x.detach().clone())
        dim %= x.dim()
        return torch.stack([p.unflatten(dim, (outer, -1)) for p in parts], dim + 1).flatten(dim, dim + 2)

    def slice(self, x, dim, outer=1):
        dim %= x.dim()
        if x.shape[dim] % (outer * self.size):
            raise RuntimeError(f"{x.shape[dim]} is not divisible by {outer * self.size}")
        return x.unflatten(dim, (outer, self.size, -1)).select(dim + 1, self.rank).flatten(dim, dim + 1)

    # ---- random numbers ----------------------------------------------------------------------------------------------------------

    def generator(self, own):
        """The stream that all ranks share, or this rank's own."""
        streams = self.local.streams
        if own not in streams:
            streams[own] = torch.Generator().manual_seed(100 + (1 + self.rank if own else 0))
        return streams[own]


WORLD = World(2)
_forks = threading.local()


class fork:
    """Draws come from this rank's own stream inside."""

    def __enter__(self):
        _forks.depth = getattr(_forks, "depth", 0) + 1

    def __exit__(self, *_):
        _forks.depth -= 1


class Tracker:
    cut = None

    @property
    def forked(self):
        return getattr(_forks, "depth", 0) > 0

    def fork(self, *_, **__):
        return fork()

    def add(self, *_, **__):
        pass


TRACKER = Tracker()


def dropout(input, p=0.5, training=True, inplace=False):
    if not training or p == 0:
        return input
    keep = torch.rand(input.shape, generator=WORLD.generator(TRACKER.forked)) >= p
    return input * keep / (1 - p)


torch.nn.functional.dropout = dropout


# ---- conversions with their gradients ---------------------------------------------------------------------------------------------


def _conversion(name, forward, backward):
    class Conversion(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, dim, outer):
            ctx.at = (dim, outer)
            return forward(x, dim, outer).clone()

        @staticmethod
        def backward(ctx, gradient):
            return backward(gradient, *ctx.at).clone(), None, None

    Conversion.__name__ = name
    return lambda x, dim=-1, outer=1: Conversion.apply(x, dim, outer) if WORLD.size > 1 else x


_same = lambda x, dim, outer: x  # noqa: E731
_sum = lambda x, dim, outer: WORLD.all_reduce(x)  # noqa: E731
_gather = lambda x, dim, outer: WORLD.all_gather(x, dim, outer)  # noqa: E731
_slice = lambda x, dim, outer: WORLD.slice(x, dim, outer)  # noqa: E731

copy_to = _conversion("CopyTo", _same, _sum)
reduce_from = _conversion("ReduceFrom", _sum, _same)
gather_from = _conversion("GatherFrom", _gather, _slice)
scatter_to = _conversion("ScatterTo", _slice, _gather)


def vocab_embedding(ids, weight, padding_idx=-1):
    rows = weight.shape[0]
    local = ids - rows * WORLD.rank
    elsewhere = (local < 0) | (local >= rows)
    y = torch.nn.functional.embedding(local.masked_fill(elsewhere, 0), weight)
    return reduce_from(y.masked_fill(elsewhere.unsqueeze(-1), 0))
