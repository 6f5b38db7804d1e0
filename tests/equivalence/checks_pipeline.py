"""Schedules: what they promise, the executor's results under every one of them, backward in two halves. Registered in checks.py's launch."""
import os
import random
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from checks import Toy, check, close, draw

import shardwright.parallel as sw
from shardwright.parallel import schedules
from shardwright.parallel.schedules import Routes, make
from shardwright.parallel.simulate import as_svg, as_text, simulate
from shardwright.parallel.split_backward import SplitBackward


def every_schedule(ranks, micro_batches):
    for name in schedules.SCHEDULES:
        for virtual in (2, 3) if name == "interleaved" else (None,):
            yield make(name, ranks, micro_batches, virtual)


@check()
def check_schedules_keep_their_promises():
    for p in range(1, 9):
        for m in range(1, 14):
            for s in every_schedule(p, m):
                schedules.check_rendezvous(s)
                for actions in s.actions:
                    held = len(s.placement) // p
                    assert sum(a.kind == "F" for a in actions) == m * held == sum(a.kind in "BI" for a in actions), s.name
                    assert sum(a.kind == "I" for a in actions) == sum(a.kind == "W" for a in actions) and len(set(actions)) == len(actions)
                result = simulate(s)
                if s.name in ("1f1b", "gpipe"):
                    assert abs(result["bubble"] - (p - 1) / (m + p - 1)) < 1e-12
                    assert result["peak"] == ([min(p - r, m) for r in range(p)] if s.name == "1f1b" else [m] * p)
                if s.name == "interleaved" and m % p == 0:
                    assert abs(result["bubble"] - (p - 1) / (held * m + p - 1)) < 1e-12
                if s.name == "zb-h1":
                    assert max(result["peak"]) <= p
                    for f, b, w in ((1, 1, 1), (1, 2, 1), (2, 2, 1)):
                        bubble = simulate(s, f, b, w)["bubble"]
                        if m >= 2 * p:
                            assert abs(bubble - (p - 1) * (f + b - w) / (m * (f + b + w) + (p - 1) * (f + b - w))) < 0.02, (p, m, f, b, w, bubble)
                if s.name == "zb-v":
                    assert max(result["peak"]) <= 2 * p and (result["bubble"] < 1e-12 or m < 2 * p - 1)
                schedules.check_rendezvous(make("forward", p, m, placement=s.placement))
    slow = simulate(make("1f1b", 2, 4), transfer=0.5)
    assert slow["makespan"] > simulate(make("1f1b", 2, 4))["makespan"]
    assert simulate(make("gpipe", 2, 1), forward=[1, 3], backward_input=[0, 0], backward_weight=[0, 0])["makespan"] == 4
    assert "rank  1" in as_text(slow) and as_svg(slow).count("<rect") == 16
    for wrong in (lambda: make("zb-v", 2, 2, 3), lambda: make("1f1b", 2, 2, 2), lambda: make("what", 2, 2), lambda: make("interleaved", 2, 2, 1)):
        try:
            wrong()
        except schedules.ScheduleError:
            continue
        raise AssertionError("accepted")
    broken = make("1f1b", 2, 2)
    broken.actions[0].reverse()
    try:
        schedules.check_rendezvous(broken)
    except schedules.ScheduleError as error:
        assert "rank 0 waits" in str(error)
    else:
        raise AssertionError("a schedule that cannot run")


@check()
def check_schedules_with_links_finish():
    """Transfers past stages: no lock with rendezvous transfers (where both sides wait), and no slower than without them."""
    draw_links = random.Random(0)
    for p in range(3, 7):
        pairs = [(s, t) for s in range(p) for t in range(s + 2, p)]
        for links in [[x] for x in pairs] + [sorted(draw_links.sample(pairs, min(len(pairs), 3))) for _ in range(4)] + [pairs]:
            passes = [{e: e for e, (s, t) in enumerate(links, 1) if s < k < t} for k in range(p)]
            routes = Routes(passes)
            assert sorted(routes.links) == links
            for m in (1, 2, 3, 5, 9):
                for s in [make(n, p, m) for n in ("1f1b", "gpipe", "zb-h1", "forward")] + ([make("zb-v", p // 2, m), make("interleaved", p // 2, m)] if p in (4, 6) else []):
                    schedules.check_rendezvous(s, routes)
                    assert simulate(s, routes=routes)["makespan"] == simulate(s)["makespan"]


# ---- backward in two halves ---------------------------------------------------------------------------------------------------
class Varied(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.n, self.c = nn.Linear(8, 16), nn.Linear(16, 8), nn.LayerNorm(8), nn.utils.parametrizations.weight_norm(nn.Linear(8, 8))
        self.table, self.attention, self.gate = nn.Embedding(4, 8), nn.MultiheadAttention(8, 2, batch_first=True), nn.Parameter(draw(8))
        self.frozen = nn.Linear(8, 8).requires_grad_(False)

    def forward(self, x, ids):
        y = self.n(x + self.b(F.gelu(self.a(x)))) + self.table(ids)
        y = self.frozen(self.c(y + self.attention(y, y, y)[0]) * torch.sigmoid(self.gate))
        y += 1
        return torch.tanh(y), self.gate * 2, x * 1.5


@check()
def check_backward_in_two_halves():
    ids = torch.arange(6).view(2, 3) % 4
    for repeated, splits in ((False, True), (True, False)):   # a layer applied twice: its parameters are reached by the inputs' path, too
        found = []
        for halves in (True, False):
            torch.manual_seed(1)
            module = Varied()
            x = draw(2, 3, 8).requires_grad_()
            out = module(module(x, ids)[0], ids) if repeated else module(x, ids)
            gradients = [draw(*t.shape, seed=3) for t in out]
            if halves:
                split = SplitBackward(out, gradients, [x, None])
                assert split.splittable == splits
                first = split.first()[0].clone()
                assert splits == all(p.grad is None for p in module.parameters())
                split.second()
                found.append((first, module))
            else:
                torch.autograd.backward(out, gradients)
                found.append((x.grad, module))
        close(found[0][0], found[1][0], "input")
        for (name, p), q in zip(found[0][1].named_parameters(), found[1][1].parameters()):
            assert (p.grad is None) == (q.grad is None), name
            if p.grad is not None:
                close(p.grad, q.grad, name)


@check(tp=2)
def check_halves_communicate_once():
    """Parallel layers under a split backward: the sums over tp happen once, results are those of one backward."""
    column, row = sw.ColumnParallelLinear(8, 12, return_bias=False), sw.RowParallelLinear(12, 8, return_bias=False)
    norm = nn.LayerNorm(8)
    payload, grads = [], []
    for halves in (True, False):
        for p in [*column.parameters(), *row.parameters(), *norm.parameters()]:
            p.grad = None
        x = draw(3, 8).requires_grad_()
        with sw.counting() as bytes_by_tag:
            y = row(F.gelu(column(norm(x)))) + x
            if halves:
                split = SplitBackward([y], [draw(3, 8, seed=1)], [x])
                assert split.splittable
                grads.append([split.first()[0]])
                assert column.weight.grad is None and row.weight.grad is None
                split.second()
            else:
                y.backward(draw(3, 8, seed=1))
                grads.append([x.grad])
        grads[-1] += [p.grad for p in [*column.parameters(), *row.parameters(), *norm.parameters()]]
        payload.append(dict(bytes_by_tag))
    assert payload[0] == payload[1], payload
    for k, (a, b) in enumerate(zip(*grads)):
        close(a, b, f"{k}")


# ---- the executor -------------------------------------------------------------------------------------------------------------
def one_process(whole, inputs, scale):
    """Losses, with gradients left in `whole`."""
    for s in whole:
        s.zero_grad()
    losses = []
    for x in inputs:
        out = whole[0](x)
        for s in whole[1:]:
            s.set_input_tensor(out)
            out = s()
        (out / scale).backward()
        losses.append((out / scale).detach())
    return losses


def check_toy(name, virtual, rowses):
    stages = sw.pp_size() * virtual
    held = schedules.stages_of(sw.pp_rank(), name, sw.pp_size(), virtual)
    mine, whole = [Toy(i, i == stages - 1) for i in held], [Toy(i, i == stages - 1) for i in range(stages)]
    executor = sw.PipelineExecutor(mine, schedule=name)
    for rows in rowses:
        inputs = [draw(n, 6, seed=i) for i, n in enumerate(rows)]
        for module in mine:
            module.zero_grad()

        def forward(i, module=mine[0]):
            out = module(inputs[i]) if module.index == 0 else module()
            return out / len(rows) if module.last else out

        losses = executor.run(len(rows), forward)
        expected = one_process(whole, inputs, len(rows))
        assert len(losses) == (len(rows) if stages - 1 in held else 0)
        for a, b in zip(losses, expected):
            close(a, b, f"{name} {rows} loss")
        for index, module in zip(held, mine):
            close(module.weight.grad, whole[index].weight.grad, f"{name} {rows} stage {index}")
            assert module.unused.grad is None
        with torch.no_grad():
            out = executor.run(3, lambda i, module=mine[0]: module(draw(2, 6)), "forward")
        assert len(out) == (3 if stages - 1 in held else 0)


ROWS = [[3, 3, 3, 3, 3, 3, 3], [3, 2], [4], [2, 5, 2, 1, 5], [2, 5, 2, 1, 5], [3] * 9]


@check(pp=4)
def check_every_schedule_on_four_ranks():
    for name, virtual in (("1f1b", 1), ("gpipe", 1), ("zb-h1", 1), ("interleaved", 2), ("interleaved", 3), ("zb-v", 2)):
        check_toy(name, virtual, ROWS)


@check(pp=2)
def check_every_schedule_on_two_ranks():
    for name, virtual in (("1f1b", 1), ("gpipe", 1), ("zb-h1", 1), ("interleaved", 2), ("interleaved", 4), ("zb-v", 2)):
        check_toy(name, virtual, ROWS)


@check(pp=1)
def check_every_schedule_on_one_rank():
    for name, virtual in (("1f1b", 1), ("zb-h1", 1), ("interleaved", 2), ("zb-v", 2)):
        check_toy(name, virtual, ROWS[:3])


@check(pp=2)
def check_description_is_sent_once():
    """Shapes that repeat from step to step are announced once; unequal ones, too."""
    stage = Toy(sw.pp_rank(), sw.is_last_stage())
    executor, headers = sw.PipelineExecutor(stage), []
    for _ in range(3):
        with sw.counting() as payload:
            executor.run(3, lambda i: stage(draw([2, 5, 3][i], 6)) if not stage.last else stage())
        headers.append(payload["header"])
    assert headers[2] == headers[1] == 3 * 8 < headers[0], headers


class _Sleep(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, forward_s, backward_s):
        ctx.backward_s = backward_s
        time.sleep(forward_s)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(ctx.backward_s)
        return gradient, None, None


class Sleeping(nn.Module):
    def __init__(self, first, last, forward_s, backward_s):
        super().__init__()
        self.first, self.last, self.times, self.input_tensor, self.weight = first, last, (forward_s, backward_s), None, nn.Parameter(torch.ones(1))

    def set_input_tensor(self, received):
        self.input_tensor = received

    def forward(self):
        y = _Sleep.apply((torch.ones(4) if self.first else self.input_tensor[0]) * self.weight, *self.times)
        return y.sum() if self.last else (y,)


@check(pp=4)
def check_simulator_tells_real_times():
    """Stages that sleep for given times, over Gloo: within 5 % of the simulator (the best of a few runs: other load only adds). In the CI
    tier shorter, and only not faster than it says: four processes share two cores with what else runs."""
    everything = "SHARDWRIGHT_ALL" in os.environ
    forward, backward, m, bound = (0.06, 0.12, 8, 1.05) if everything else (0.02, 0.04, 8, float("inf"))
    for name, virtual in (("1f1b", 1), ("gpipe", 1), ("interleaved", 2)):
        schedule = make(name, 4, m, virtual)
        held = schedules.stages_of(sw.pp_rank(), name, 4, virtual)
        stages = [Sleeping(s == 0, s == len(schedule.placement) - 1, forward / virtual, backward / virtual) for s in held]
        executor = sw.PipelineExecutor(stages, schedule=name)
        told = simulate(schedule, forward / virtual, backward / virtual, 0.0)["makespan"]
        best = float("inf")
        for attempt in range(6):
            torch.distributed.barrier()
            began = time.perf_counter()
            executor.run(m, lambda i, module=stages[0]: module())
            torch.distributed.barrier()
            taken = torch.tensor([time.perf_counter() - began], dtype=torch.float64)
            torch.distributed.all_reduce(taken, torch.distributed.ReduceOp.MAX)   # the same decision on all ranks
            best = min(best, float(taken))
            if attempt and best < told * bound:   # the first one announces shapes
                break
        assert told * 0.99 < best < told * bound, f"{name}: {best:.4f} s, the simulator says {told:.4f} s"
