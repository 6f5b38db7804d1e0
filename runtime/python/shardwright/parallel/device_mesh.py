"""The device mesh: tp x pp x dp groups made from one world (or from a given list of its ranks).

Ranks are ordered tp fastest, then dp, then pp, as Megatron does by default. A world of one process needs no
torch.distributed at all: every size is 1 and every collective is a no-op.
"""
from __future__ import annotations

import contextlib
import datetime
import os

import torch
import torch.distributed as dist

_groups: dict[tuple[int, ...], dist.ProcessGroup] = {}


class MeshError(RuntimeError):
    """The launch does not fit the requested grid."""


def process_group(ranks) -> dist.ProcessGroup | None:
    """The (cached) group of these global ranks; None when it is one rank. Only its members need to call."""
    key = tuple(ranks)
    if len(key) <= 1:
        return None
    if key not in _groups:
        if key == tuple(range(dist.get_world_size())):
            _groups[key] = dist.group.WORLD
        else:
            with _named_by_members():
                _groups[key] = dist.new_group(list(key), use_local_synchronization=True)
    return _groups[key]


@contextlib.contextmanager
def _named_by_members():
    """torch puts a count of the groups that this process has made into a group's name, under which its members meet. Processes that
    belong to different numbers of groups (tied sets, meshes over a part of the world) would wait for each other under different
    names for ever. There is one group a list of ranks here, so the list alone is the name, and torch's count stays as it is."""
    plain = dist.distributed_c10d._process_group_name
    dist.distributed_c10d._process_group_name = lambda ranks, use_hashed_name: "shardwright:" + "_".join(map(str, ranks))
    try:
        yield
    finally:
        dist.distributed_c10d._process_group_name = plain


class Mesh:
    """One rank's view of a tp x dp x pp grid over `ranks` (global ranks)."""

    def __init__(self, tp=1, pp=1, dp=1, ranks=None, rank=None, device="cpu"):
        self.tp, self.pp, self.dp = tp, pp, dp
        self.ranks = list(ranks) if ranks is not None else list(range(tp * pp * dp))
        if len(self.ranks) != tp * pp * dp:
            raise MeshError(f"a grid of tp {tp} x pp {pp} x dp {dp} needs {tp * pp * dp} processes, {len(self.ranks)} were given")
        self.rank = self.ranks[0] if rank is None else rank
        self.device = torch.device(device)
        index = self.ranks.index(self.rank)
        self.tp_rank, self.dp_rank, self.pp_rank = index % tp, index // tp % dp, index // (tp * dp)
        self.tp_group = process_group(self._line(tp=True))
        self.dp_group = process_group(self._line(dp=True))
        self.pp_group = process_group(self._line(pp=True))
        self.model_group = process_group(self._line(tp=True, pp=True))
        self.placement = list(range(pp))   # pipeline stage -> pp rank; see place_stages
        self.stage = self.pp_rank          # the stage that is being built or run

    def rank_at(self, tp=None, pp=None, dp=None) -> int:
        """Global rank at these coordinates (default: this rank's own)."""
        tp = self.tp_rank if tp is None else tp
        pp = self.pp_rank if pp is None else pp
        dp = self.dp_rank if dp is None else dp
        return self.ranks[(pp * self.dp + dp) * self.tp + tp]

    def _line(self, tp=False, pp=False, dp=False):
        return [self.rank_at(t, p, d)
                for p in (range(self.pp) if pp else [self.pp_rank])
                for d in (range(self.dp) if dp else [self.dp_rank])
                for t in (range(self.tp) if tp else [self.tp_rank])]

    def place_stages(self, placement) -> None:
        """Says which pp rank holds which stage, where a rank holds several (schedules.placement_of)."""
        self.placement = list(placement)
        self.stage = self.held_stages[0]

    @property
    def held_stages(self) -> list[int]:
        return [s for s, r in enumerate(self.placement) if r == self.pp_rank]

    @property
    def holds_last_stage(self) -> bool:
        return self.placement[-1] == self.pp_rank

    def rank_of_stage(self, stage) -> int:
        """Global rank that holds a pipeline stage, at this rank's tp and dp index."""
        return self.rank_at(pp=self.placement[stage])

    def stages_group(self, stages) -> dist.ProcessGroup | None:
        """Ranks of these pipeline stages at this rank's tp and dp index (a tied set's group). Members only."""
        return process_group(sorted({self.rank_of_stage(s) for s in stages}))

    def tp_subgroup(self, members) -> dist.ProcessGroup | None:
        """Some tensor-parallel indices at this rank's pp and dp index. Members only."""
        return process_group([self.rank_at(tp=t) for t in sorted(members)])

    @property
    def is_first_stage(self) -> bool:
        return self.stage == 0

    @property
    def is_last_stage(self) -> bool:
        return self.stage == len(self.placement) - 1

    def where(self) -> str:
        return f"rank {self.rank} (stage {self.pp_rank}, tp {self.tp_rank}, dp {self.dp_rank})"


_current = Mesh()


def init_process_group(backend=None, timeout_s=None, init_method=None) -> None:
    """Joins the world that torchrun describes in the environment (or meets at `init_method`); nothing to do for a world of one."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1 or dist.is_initialized():
        return
    if backend is None:
        backend = "nccl" if torch.cuda.is_available() and dist.is_nccl_available() and torch.cuda.device_count() >= int(
            os.environ.get("LOCAL_WORLD_SIZE", world)) else "gloo"
    if backend == "nccl":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    timeout = datetime.timedelta(seconds=float(timeout_s or os.environ.get("SHARDWRIGHT_TIMEOUT", 600)))
    if init_method is None:
        dist.init_process_group(backend, timeout=timeout)
    else:
        dist.init_process_group(backend, init_method=init_method, rank=int(os.environ["RANK"]), world_size=world, timeout=timeout)


def initialize(tp=1, pp=1, dp=None, backend=None, ranks=None, timeout_s=None) -> Mesh | None:
    """Makes the current mesh. Without `ranks` the whole world is used and dp defaults to world / (tp * pp).

    With `ranks` only those take part; on other ranks the result is None and the current mesh is one process."""
    global _current
    init_process_group(backend, timeout_s)
    world = dist.get_world_size() if dist.is_initialized() else 1
    rank = dist.get_rank() if dist.is_initialized() else 0
    if ranks is None:
        if dp is None:
            dp = max(1, world // (tp * pp))
        if tp * pp * dp != world:
            raise MeshError(f"tp {tp} x pp {pp} x dp {dp} needs {tp * pp * dp} processes, the launch has {world}: "
                            f"start with torchrun --nproc-per-node {tp * pp * dp}, or change the sizes")
        ranks = range(world)
    cuda = dist.is_initialized() and dist.get_backend() == "nccl"
    device = f"cuda:{torch.cuda.current_device()}" if cuda else "cpu"
    if rank not in ranks:
        _current = Mesh(rank=0)
        return None
    if tp > 1:   # torch's fused transformer kernels for inference read the weights themselves, which are slices here
        torch.backends.mha.set_fastpath_enabled(False)
    _current = Mesh(tp, pp, dp or 1, list(ranks), rank, device)
    return _current


def set_mesh(mesh: Mesh) -> Mesh:
    """Makes `mesh` current and returns the previous one."""
    global _current
    previous, _current = _current, mesh
    return previous


def mesh() -> Mesh:
    return _current


_whole = 0


@contextlib.contextmanager
def whole_parameters():
    """While a model is constructed: layers make whole parameters, marked with how they are cut, and nothing draws from a rank's
    own stream. So initialisation, the user's included, sees and draws what the original's does; `keep_slices` then cuts."""
    global _whole
    _whole += 1
    plain = torch.nn.Parameter.__deepcopy__

    def with_marks(parameter, memo):
        # A constructor may clone layers with copy.deepcopy, and torch copies a parameter without what was set on it.
        copy = plain(parameter, memo)
        copy.__dict__.update(parameter.__dict__)
        return copy

    torch.nn.Parameter.__deepcopy__ = with_marks
    try:
        yield
    finally:
        torch.nn.Parameter.__deepcopy__ = plain
        _whole -= 1


def making_whole_parameters() -> bool: return _whole > 0


def tp_size() -> int: return _current.tp
def tp_rank() -> int: return _current.tp_rank
def built_tp_size() -> int: return 1 if _whole else _current.tp   # over how many ranks a layer divides what it makes now
def built_tp_rank() -> int: return 0 if _whole else _current.tp_rank
def pp_size() -> int: return _current.pp
def pp_rank() -> int: return _current.pp_rank
def dp_size() -> int: return _current.dp
def dp_rank() -> int: return _current.dp_rank
def tp_group(): return _current.tp_group
def pp_group(): return _current.pp_group
def dp_group(): return _current.dp_group
def is_first_stage() -> bool: return _current.is_first_stage
def is_last_stage() -> bool: return _current.is_last_stage


def shutdown() -> None:
    """Leaves the world (call once, at the end of a script)."""
    global _current
    _groups.clear()
    _current = Mesh()
    if dist.is_initialized():
        dist.destroy_process_group()
