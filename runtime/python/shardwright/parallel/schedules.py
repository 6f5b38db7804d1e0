"""Pipeline schedules as data: for every stage a list of (kind, micro_batch) with kind "F" or "B", in execution order."""
from __future__ import annotations

FORWARD, BACKWARD = "F", "B"


class ScheduleError(ValueError):
    pass


def gpipe(stages: int, micro_batches: int):
    """All forwards, then all backwards. Bubble (p - 1) / (m + p - 1); m activations kept."""
    return [[(FORWARD, i) for i in range(micro_batches)] + [(BACKWARD, i) for i in range(micro_batches)] for _ in range(stages)]


def one_f_one_b(stages: int, micro_batches: int):
    """Forwards until the pipeline is full, then one forward, one backward; at most p - stage activations kept (PipeDream-flush)."""
    schedule = []
    for stage in range(stages):
        warm_up = min(stages - stage - 1, micro_batches)
        actions = [(FORWARD, i) for i in range(warm_up)]
        for i in range(micro_batches - warm_up):
            actions += [(FORWARD, warm_up + i), (BACKWARD, i)]
        schedule.append(actions + [(BACKWARD, i) for i in range(micro_batches - warm_up, micro_batches)])
    return schedule


def forward_only(stages: int, micro_batches: int):
    """Evaluation."""
    return [[(FORWARD, i) for i in range(micro_batches)] for _ in range(stages)]


SCHEDULES = {"1f1b": one_f_one_b, "gpipe": gpipe, "forward": forward_only}


def make(name: str, stages: int, micro_batches: int):
    if name not in SCHEDULES:
        raise ScheduleError(f"unknown schedule {name!r}: there are {', '.join(sorted(SCHEDULES))}")
    return SCHEDULES[name](stages, micro_batches)


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


def transfers(actions, stage: int, stages: int):
    """The stage's program with its transfers: ("recv"|"send", peer stage, "F"|"B", micro_batch) around ("run", …) entries."""
    program = []
    for kind, i in actions:
        source, target = (stage - 1, stage + 1) if kind == FORWARD else (stage + 1, stage - 1)
        if 0 <= source < stages:
            program.append(("recv", source, kind, i))
        program.append(("run", stage, kind, i))
        if 0 <= target < stages:
            program.append(("send", target, kind, i))
    return program


def programs(schedule, routes=None):
    """What every stage executes, transfers past other stages (`routes`) included."""
    return routed_programs(schedule, routes) if routes is not None and routes.links else neighbour_programs(schedule)


def routed_programs(schedule, routes, forward_cost=1.0, backward_cost=2.0):
    """Programs with transfers between any two stages. They are read off an execution: always the event that can begin first happens
    next, a transfer when its receiver needs it for what it does next. So all stages agree on one order of events, and rendezvous
    transfers cannot lock."""
    stages = len(schedule)
    cost = {FORWARD: forward_cost, BACKWARD: backward_cost}
    entries, clock, at = [[] for _ in range(stages)], [0.0] * stages, [0] * stages
    done, arrived = set(), set()

    def sources(stage, kind):
        near = [stage - 1 if kind == FORWARD else stage + 1]
        return [s for s in near if 0 <= s < stages] + (routes.sources(stage) if kind == FORWARD else routes.targets(stage))

    def events():
        """(time, is a run, stage, source or -1) of what could happen next."""
        for s in range(stages):
            if at[s] == len(schedule[s]):
                continue
            kind, i = schedule[s][at[s]]
            missing = [p for p in sources(s, kind) if (p, s, kind, i) not in arrived]
            if not missing:
                yield clock[s], 1, s, -1
            for p in missing:
                if (p, kind, i) in done:
                    yield max(clock[s], clock[p]), 0, s, p

    while any(at[s] < len(schedule[s]) for s in range(stages)):
        event = min(events(), default=None)
        if event is None:
            raise ScheduleError("the schedule cannot finish: " + "; ".join(
                f"stage {s} waits before {schedule[s][at[s]]}" for s in range(stages) if at[s] < len(schedule[s])))
        begin, is_run, s, p = event
        kind, i = schedule[s][at[s]]
        if is_run:
            entries[s].append(("run", s, kind, i))
            clock[s] = begin + cost[kind]
            done.add((s, kind, i))
            at[s] += 1
        else:
            entries[s].append(("recv", p, kind, i))
            entries[p].append(("send", s, kind, i))
            clock[s] = clock[p] = begin
            arrived.add((p, s, kind, i))
    return entries


def neighbour_programs(schedule):
    """What every stage executes when tensors go from neighbour to neighbour. Facing transfers are one entry, ("exchange", peer, send kind, send index, receive kind, receive
    index): a send followed by a receive from the same peer, where the peer has the same pair the other way round. (Where it has
    not, the peer may need what is sent before it can send anything: then they stay two.)"""
    stages = len(schedule)
    plain = [transfers(actions, s, stages) for s, actions in enumerate(schedule)]
    pairs = [{(a[1], *a[2:], *b[2:]) for a, b in zip(p, p[1:]) if a[0] == "send" and b[0] == "recv" and a[1] == b[1]} for p in plain]
    out = []
    for s, program in enumerate(plain):
        entries, i = [], 0
        while i < len(program):
            a, b = program[i], program[i + 1] if i + 1 < len(program) else None
            if b and a[0] == "send" and b[0] == "recv" and a[1] == b[1] and (s, *b[2:], *a[2:]) in pairs[a[1]]:
                entries.append(("exchange", a[1], *a[2:], *b[2:]))
                i += 2
            else:
                entries.append(a)
                i += 1
        out.append(entries)
    return out


def simulate(schedule, forward_cost=1.0, backward_cost=2.0, routes=None):
    """Runs a schedule with rendezvous transfers in one process: {"makespan", "bubble", "peak": activations kept by stage}.
    Raises ScheduleError, naming what every stage waits for, when it cannot finish."""
    stages = len(schedule)
    program = programs(schedule, routes)
    at, clock, busy = [0] * stages, [0.0] * stages, [0.0] * stages
    kept, peak = [0] * stages, [0] * stages

    pending = [[] for _ in range(stages)]   # halves of the current transfer not yet met: (direction, kind, micro-batch)

    def halves(entry):
        if entry[0] == "exchange":
            return [("send", *entry[2:4]), ("recv", *entry[4:])]
        return [(entry[0], *entry[2:])]

    flip = {"send": "recv", "recv": "send"}
    while any(at[s] < len(program[s]) for s in range(stages)):
        moved = False
        for s in range(stages):
            while at[s] < len(program[s]):
                entry = program[s][at[s]]
                if entry[0] == "run":
                    cost = forward_cost if entry[2] == FORWARD else backward_cost
                    kept[s] += 1 if entry[2] == FORWARD else -1
                    peak[s] = max(peak[s], kept[s])
                    clock[s] += cost
                    busy[s] += cost
                    at[s] += 1
                    moved = True
                    continue
                pending[s] = pending[s] or halves(entry)
                peer = entry[1]
                facing = at[peer] < len(program[peer]) and program[peer][at[peer]][0] != "run" and program[peer][at[peer]][1] == s
                if facing:
                    pending[peer] = pending[peer] or halves(program[peer][at[peer]])
                    met = [h for h in pending[s] if (flip[h[0]], *h[1:]) in pending[peer]]
                    for h in met:
                        pending[s].remove(h)
                        pending[peer].remove((flip[h[0]], *h[1:]))
                        clock[s] = clock[peer] = max(clock[s], clock[peer])
                        moved = True
                    if met:
                        for side in (s, peer):
                            at[side] += not pending[side]
                        continue
                break
        if not moved:
            waiting = "; ".join(f"stage {s} at {program[s][at[s]]}" for s in range(stages) if at[s] < len(program[s]))
            raise ScheduleError(f"the schedule cannot finish with rendezvous transfers: {waiting}")
    total = max(clock)
    return {"makespan": total, "bubble": 1 - sum(busy) / (stages * total) if total else 0.0, "peak": peak}
