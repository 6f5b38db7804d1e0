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


def programs(schedule):
    """What every stage executes. Facing transfers are one entry, ("exchange", peer, send kind, send index, receive kind, receive
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


def simulate(schedule, forward_cost=1.0, backward_cost=2.0):
    """Runs a schedule with rendezvous transfers in one process: {"makespan", "bubble", "peak": activations kept by stage}.
    Raises ScheduleError, naming what every stage waits for, when it cannot finish."""
    stages = len(schedule)
    program = programs(schedule)
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
