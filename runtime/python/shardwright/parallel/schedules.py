"""Pipeline schedules as data: for every rank a list of actions (kind, stage, micro-batch) in execution order.

Kinds: F forward; B the whole backward; I the backward to the stage's inputs alone; W what remains of it, the parameters' gradients.
A rank may hold several stages (`placement`: stage -> rank): interleaved round-robin, or a V (down the ranks and up again).

    schedule = make("zb-v", ranks=4, micro_batches=8)
    schedule.actions[0]            # what rank 0 does
    programs(schedule)[0]          # the same with its transfers: what the executor runs

Transfers are put in by one rule: all ranks read them off one ideal execution (`timeline`), whose events are in one total order by time.
Every rank's program is its part of that order, so even transfers where both sides wait for each other, in order, cannot lock
(`check_rendezvous` executes them so).

Sources: GPipe (Huang et al. 2019); 1F1B, PipeDream-flush (Narayanan et al. 2021), interleaved (Megatron-LM, SC21); ZB-H1 and ZB-V (Qi et
al., Zero Bubble Pipeline Parallelism 2024, Pipeline Parallelism with Controllable Memory 2024).
"""
from __future__ import annotations

import dataclasses
from collections import namedtuple

FORWARD, BACKWARD, INPUT, WEIGHT = "F", "B", "I", "W"
Action = namedtuple("Action", "kind stage micro_batch")
Transfer = namedtuple("Transfer", "kind micro_batch source target")   # stages; kind F: activations, B: gradients
Placed = namedtuple("Placed", "start end action")


class ScheduleError(ValueError):
    pass


@dataclasses.dataclass
class Schedule:
    """`placement[stage]`: the rank that holds it; `actions[rank]`: in order."""
    name: str
    micro_batches: int
    placement: list[int]
    actions: list[list[Action]]

    @property
    def ranks(self):
        return len(self.actions)

    @property
    def stages(self):
        return len(self.placement)


# ---- who holds what -----------------------------------------------------------------------------------------------------------
def placement_of(name: str, ranks: int, virtual: int = 1):
    """Rank of every stage: in a V for zb-v (two stages a rank), else round-robin."""
    if name == "zb-v":
        return [*range(ranks), *reversed(range(ranks))]
    return [s % ranks for s in range(ranks * virtual)]


def stages_of(rank: int, name: str, ranks: int, virtual: int = 1):
    """Stages that a rank holds, ascending."""
    return [s for s, r in enumerate(placement_of(name, ranks, virtual)) if r == rank]


def virtual_stages(name: str, wanted: int | None = None):
    """Stages a rank holds under this schedule: 2 for zb-v, at least 2 for interleaved, else 1. Raises where `wanted` does not fit."""
    if name == "zb-v":
        if wanted not in (None, 2):
            raise ScheduleError(f"zb-v has two stages a rank, {wanted} were asked for")
        return 2
    if name == "interleaved":
        if wanted == 1:
            raise ScheduleError("interleaved has two or more stages a rank, 1 was asked for")
        return wanted or 2
    if wanted not in (None, 1) and name != "forward":
        raise ScheduleError(f"{name} has one stage a rank, {wanted} were asked for: use interleaved or zb-v")
    return wanted or 1


# ---- the schedules ------------------------------------------------------------------------------------------------------------
def gpipe(ranks, micro_batches, virtual=1):
    """All forwards, then all backwards. Bubble (p - 1) / (m + p - 1); m activations kept."""
    return [[Action(FORWARD, r, i) for i in range(micro_batches)] + [Action(BACKWARD, r, i) for i in range(micro_batches)] for r in range(ranks)]


def one_f_one_b(ranks, micro_batches, virtual=1):
    """Forwards until the pipeline is full, then one forward, one backward; at most p - rank activations kept."""
    every = []
    for r in range(ranks):
        warm_up = min(ranks - r - 1, micro_batches)
        actions = [Action(FORWARD, r, i) for i in range(warm_up)]
        for i in range(micro_batches - warm_up):
            actions += [Action(FORWARD, r, warm_up + i), Action(BACKWARD, r, i)]
        every.append(actions + [Action(BACKWARD, r, i) for i in range(micro_batches - warm_up, micro_batches)])
    return every


def interleaved(ranks, micro_batches, virtual=2):
    """1F1B over v stages a rank, micro-batches in groups of p. Bubble (p - 1) / (v m + p - 1) where p divides m. Other numbers are planned
    for the next multiple and what is too much is left out: a smaller last group would lock."""
    every, total = [], -(-micro_batches // ranks) * ranks
    for r in range(ranks):
        forwards, backwards = [], []
        for first in range(0, total, ranks):
            group = range(first, first + ranks)
            forwards += [Action(FORWARD, c * ranks + r, i) for c in range(virtual) for i in group]
            backwards += [Action(BACKWARD, c * ranks + r, i) for c in reversed(range(virtual)) for i in group]
        warm_up = min(2 * (ranks - r - 1) + (virtual - 1) * ranks, len(forwards))
        actions = forwards[:warm_up]
        for forward, backward in zip(forwards[warm_up:], backwards):
            actions += [forward, backward]
        every.append([a for a in actions + backwards[len(forwards) - warm_up:] if a.micro_batch < micro_batches])
    return every


def zb_h1(ranks, micro_batches, virtual=1):
    """1F1B whose backward is halved: the gradient of the inputs goes on at once, that of the parameters fills what would be idle. Rank r
    puts it off by r micro-batches, so at most p activations are kept. Bubble (p - 1)(F + B - W) / (m (F + B + W) + (p - 1)(F + B - W))."""
    every = []
    for r in range(ranks):
        warm_up = min(ranks - r - 1, micro_batches)
        actions, put_off = [Action(FORWARD, r, i) for i in range(warm_up)], []
        for i in range(micro_batches):
            if warm_up + i < micro_batches:
                actions.append(Action(FORWARD, r, warm_up + i))
            actions.append(Action(INPUT, r, i))
            put_off.append(i)
            if len(put_off) > r:
                actions.append(Action(WEIGHT, r, put_off.pop(0)))
        every.append(actions + [Action(WEIGHT, r, i) for i in put_off])
    return every


def zb_v(ranks, micro_batches, virtual=2):
    """Two stages a rank in a V: the first rank holds the first and the last one, whose backward can begin at once. No bubble for F = B = W
    and m >= 2p - 1; at most 2p half-size activations kept on every rank."""
    every = []
    for r in range(ranks):
        down, up = r, 2 * ranks - 1 - r
        count = {(k, s): 0 for k in (FORWARD, INPUT, WEIGHT) for s in (down, up)}
        actions = []

        def add(kind, stage):
            actions.append(Action(kind, stage, count[kind, stage]))
            count[kind, stage] += 1

        def backward(stage):
            add(INPUT, stage)
            add(WEIGHT, stage)

        for _ in range(2 * (ranks - r) - 1):
            add(FORWARD, down)
        for _ in range(r):
            add(FORWARD, up)
            add(FORWARD, down)
        for _ in range(ranks - r):
            add(FORWARD, up)
            backward(up)
        total = max(micro_batches, 2 * ranks - 1)   # generated for a full pipeline; what is too much is left out below
        while count[FORWARD, up] < count[FORWARD, down] or count[FORWARD, down] < total:
            if count[FORWARD, down] < total:
                add(FORWARD, down)
            backward(down)
            add(FORWARD, up)
            backward(up)
        for _ in range(r):
            add(INPUT, down)
            add(INPUT, up)
        for _ in range(ranks - r):
            add(INPUT, down)
            add(WEIGHT, down)
        while count[WEIGHT, up] < count[INPUT, up]:
            add(WEIGHT, up)
        while count[WEIGHT, down] < count[INPUT, down]:
            add(WEIGHT, down)
        every.append([a for a in actions if a.micro_batch < micro_batches])
    return every


def forward_only(placement, micro_batches):
    """Evaluation: every rank takes what has arrived, later stages first."""
    ranks = max(placement) + 1
    if list(placement) == list(range(ranks)):
        return [[Action(FORWARD, r, i) for i in range(micro_batches)] for r in range(ranks)]
    ends, clock, every = {}, [0] * ranks, [[] for _ in range(ranks)]
    waiting = [(s, i) for i in range(micro_batches) for s in range(len(placement))]
    while waiting:
        begin = {(s, i): max(clock[placement[s]], ends[s - 1, i] if s else 0) for s, i in waiting if s == 0 or (s - 1, i) in ends}
        s, i = min(begin, key=lambda a: (begin[a], -a[0], a[1]))
        ends[s, i] = clock[placement[s]] = begin[s, i] + 1
        every[placement[s]].append(Action(FORWARD, s, i))
        waiting.remove((s, i))
    return every


SCHEDULES = {"1f1b": one_f_one_b, "gpipe": gpipe, "interleaved": interleaved, "zb-h1": zb_h1, "zb-v": zb_v}


def make(name: str, ranks: int, micro_batches: int, virtual: int | None = None, placement=None) -> Schedule:
    """The schedule of this name ("forward": evaluation, over any `placement`)."""
    if name == "forward":
        placement = list(placement or placement_of(name, ranks, virtual or 1))
        return Schedule(name, micro_batches, placement, forward_only(placement, micro_batches))
    if name not in SCHEDULES:
        raise ScheduleError(f"unknown schedule {name!r}: there are {', '.join(sorted(SCHEDULES))}")
    virtual = virtual_stages(name, virtual)
    return Schedule(name, micro_batches, placement_of(name, ranks, virtual), SCHEDULES[name](ranks, micro_batches, virtual))


# ---- what crosses -------------------------------------------------------------------------------------------------------------
class Routes:
    """Which entry of what a stage returns goes to which stage. Made from every stage's `passes`: {entry received: entry returned} of
    tensors that the stage hands on unread; these are sent past it, from the stage that made them straight to the one that reads them."""

    def __init__(self, passes):
        self.passes = [dict(p or {}) for p in passes]
        self.links: dict[tuple[int, int], list[tuple[int, int]]] = {}   # (source, target) -> [(entry returned, entry received)], neighbours left out
        for stage, mine in enumerate(self.passes):
            for entry in sorted(mine):
                if stage == 0 or stage + 1 == len(self.passes):
                    raise ScheduleError(f"stage {stage} of {len(self.passes)} cannot pass on what it receives: it is at the end of the pipeline")
                if entry in self.passes[stage - 1].values():
                    continue   # it comes from further up
                target, at = stage, entry
                while target + 1 < len(self.passes) and at in self.passes[target]:
                    at = self.passes[target][at]
                    target += 1
                self.links.setdefault((stage - 1, target), []).append((entry, at))

    @classmethod
    def neighbours(cls, stages: int):
        return cls([{}] * stages)

    def elsewhere(self, stage: int, entry: int) -> bool:
        """Does this entry between `stage` and the next one travel over another link?"""
        return entry in self.passes[stage].values() or entry in self.passes[stage + 1]

    def targets(self, stage: int):
        return [t for s, t in sorted(self.links) if s == stage]

    def sources(self, stage: int):
        return [s for s, t in sorted(self.links) if t == stage]


def _needs(action, stages, routes):
    """[(action's kind group, stage, micro-batch)] that must have ended: "F" or "B" (B or I)."""
    kind, s, i = action
    if kind == FORWARD:
        return [(FORWARD, t, i) for t in ([s - 1] if s else []) + routes.sources(s)]
    if kind == WEIGHT:
        return [(BACKWARD, s, i)]
    return [(FORWARD, s, i)] + [(BACKWARD, t, i) for t in ([s + 1] if s + 1 < stages else []) + routes.targets(s)]


def _cost(costs, action):
    cost = costs[FORWARD] if action.kind == FORWARD else costs[INPUT] if action.kind == INPUT else costs[WEIGHT] if action.kind == WEIGHT else None
    if cost is None:
        return _cost(costs, Action(INPUT, *action[1:])) + _cost(costs, Action(WEIGHT, *action[1:]))
    return cost[action.stage] if isinstance(cost, (list, tuple)) else cost


def timeline(schedule, forward=1.0, backward_input=1.0, backward_weight=1.0, transfer=0.0, routes=None):
    """An execution in which compute never waits for a send: ([[Placed, …] by rank], [(time ready, Transfer), …]). Costs are numbers, or
    lists by stage; `transfer` is the time of one message, and messages from one rank to another go one after the other. Raises
    ScheduleError, naming what every rank waits for, when it cannot finish."""
    routes = routes or Routes.neighbours(schedule.stages)
    costs = {FORWARD: forward, INPUT: backward_input, WEIGHT: backward_weight}
    at, clock, placed = [0] * schedule.ranks, [0.0] * schedule.ranks, [[] for _ in range(schedule.ranks)]
    ended: dict[tuple[str, int, int], float] = {}     # on the rank that did it
    arrived: dict[Transfer, float] = {}
    link_free: dict[tuple[int, int], float] = {}
    crossing, moved = [], True
    where = schedule.placement

    def arrival(need, target):
        """When what `need` made is at stage `target`; None: not yet."""
        kind, source, i = need
        return ended.get(need) if where[source] == where[target] else arrived.get(Transfer(kind, i, source, target))

    while moved:
        moved = False
        for r in range(schedule.ranks):
            while at[r] < len(schedule.actions[r]):
                action = schedule.actions[r][at[r]]
                times = [arrival(n, action.stage) for n in _needs(action, schedule.stages, routes)]
                if None in times:
                    break
                start = max([clock[r], *times])
                end = clock[r] = start + _cost(costs, action)
                placed[r].append(Placed(start, end, action))
                at[r] += 1
                moved = True
                if action.kind == WEIGHT:
                    continue
                kind, s, i = FORWARD if action.kind == FORWARD else BACKWARD, action.stage, action.micro_batch
                ended[kind, s, i] = end
                near = s + 1 if kind == FORWARD else s - 1
                targets = ([near] if 0 <= near < schedule.stages else []) + (routes.targets(s) if kind == FORWARD else routes.sources(s))
                for t in targets:
                    if where[t] == r or (schedule.name == "forward" and kind != FORWARD):
                        continue
                    item = Transfer(kind, i, s, t)
                    begin = max(end, link_free.get((r, where[t]), 0.0))
                    arrived[item] = link_free[r, where[t]] = begin + transfer
                    crossing.append((end, item))
    if any(at[r] < len(a) for r, a in enumerate(schedule.actions)):
        raise ScheduleError("the schedule cannot finish: " + "; ".join(
            f"rank {r} waits before {tuple(a[at[r]])}" for r, a in enumerate(schedule.actions) if at[r] < len(a)))
    return placed, crossing


def programs(schedule, routes=None):
    """What every rank executes: ("run", Action), ("send", Transfer), ("recv", Transfer)."""
    placed, crossing = timeline(schedule, routes=routes)
    where = schedule.placement
    events = [(p.start, 1, r, p.action) for r, rank in enumerate(placed) for p in rank]
    events += [(ready, 0, where[item.source], item) for ready, item in crossing]
    out = [[] for _ in range(schedule.ranks)]
    for _, is_run, r, what in sorted(events, key=lambda e: (e[0], e[1], e[2], e[3])):
        if is_run:
            out[r].append(("run", what))
        else:
            out[r].append(("send", what))
            out[where[what.target]].append(("recv", what))
    return out


def check_rendezvous(schedule, routes=None):
    """Executes the programs with transfers that both sides wait for, in order. Raises ScheduleError where they lock."""
    program, at = programs(schedule, routes), [0] * schedule.ranks
    where, moved = schedule.placement, True
    while moved:
        moved = False
        for r in range(schedule.ranks):
            while at[r] < len(program[r]):
                what, item = program[r][at[r]]
                if what == "run":
                    at[r] += 1
                elif what == "send":
                    peer = where[item.target]
                    if at[peer] == len(program[peer]) or program[peer][at[peer]] != ("recv", item):
                        break
                    at[r] += 1
                    at[peer] += 1
                else:
                    break
                moved = True
    if any(at[r] < len(p) for r, p in enumerate(program)):
        raise ScheduleError("the schedule cannot finish with rendezvous transfers: " + "; ".join(
            f"rank {r} at {p[at[r]]}" for r, p in enumerate(program) if at[r] < len(p)))
