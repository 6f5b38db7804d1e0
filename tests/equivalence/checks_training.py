"""Optimizer modes, precision, recompute and checkpoints: a small model under many grids against plain PyTorch in one process. Registered in
checks.py's launch."""
import copy
import glob
import os
import shutil
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F
from checks import check, close

import shardwright.parallel as sw
from shardwright.parallel import checkpoint, failure, schedules
from shardwright.parallel.gradients import unify_tied
from shardwright.parallel.lr_schedule import LearningRate
from shardwright.parallel.params import load_stage, merge_originals, stage_tensors

DEPTH, WIDTH, WORDS, MICRO_BATCHES = 4, 8, 10, 4
ROOM = os.path.join(tempfile.gettempdir(), f"shardwright-checks-{os.environ.get('MASTER_PORT', '0')}")


class Block(nn.Module):
    def __init__(self, parallel, drop):
        super().__init__()
        self.norm, self.drop = nn.LayerNorm(WIDTH), nn.Dropout(drop)
        if parallel:
            self.fc1, self.fc2 = sw.ColumnParallelLinear(WIDTH, 4 * WIDTH, return_bias=False), sw.RowParallelLinear(4 * WIDTH, WIDTH, return_bias=False)
        else:
            self.fc1, self.fc2 = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.drop(self.fc2(F.gelu(self.fc1(self.norm(x)))))


class Net(nn.Module):
    """A part of the model (stage `index` of `stages`), or all of it."""

    def __init__(self, index=0, stages=1, parallel=False, drop=0.0):
        super().__init__()
        self.first, self.last, self.input_tensor = index == 0, index == stages - 1, None
        self.blocks = nn.ModuleList([Block(parallel, drop) if i * stages // DEPTH == index else sw.Absent() for i in range(DEPTH)])
        if self.first:
            self.wte = nn.Embedding(WORDS, WIDTH)
        if self.last:
            self.head = nn.Linear(WIDTH, WORDS, bias=False)
            if self.first:
                self.head.weight = self.wte.weight

    def set_input_tensor(self, received):
        self.input_tensor = received

    def forward(self, ids, targets):
        x = self.wte(ids) if self.first else self.input_tensor[0]
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(x).float() if x.dtype in (torch.bfloat16, torch.float16) else self.head(x), targets) if self.last else (x,)


def table(stages):
    tensors = {"wte.weight": {"shard": None, "stage": [0], "tied": ["head.weight"]}, "head.weight": {"from": "wte.weight", "shard": None, "stage": [stages - 1]}}
    for i in range(DEPTH):
        at = {"stage": [i * stages // DEPTH]}
        tensors |= {f"blocks.{i}.norm.weight": {"shard": None, **at}, f"blocks.{i}.norm.bias": {"shard": None, **at},
                    f"blocks.{i}.fc1.weight": {"dims": "f c", "shard": "f", **at}, f"blocks.{i}.fc1.bias": {"dims": "f", "shard": "f", **at},
                    f"blocks.{i}.fc2.weight": {"dims": "c f", "shard": "f", **at}, f"blocks.{i}.fc2.bias": {"shard": None, **at}}
    return {"version": 1, "stages": stages, "tensors": tensors}


def whole(dtype=torch.float64):
    torch.manual_seed(11)
    return Net().to(dtype)


def batch(step, i):
    generator = torch.Generator().manual_seed(100 * step + i)
    return torch.randint(0, WORDS, (3,), generator=generator), torch.randint(0, WORDS, (3,), generator=generator)


def reference(steps, make=lambda p: torch.optim.AdamW(p, lr=1e-2), clip=0.5):
    model = whole()
    optimizer = make(list(model.parameters()))
    for step in range(steps):
        optimizer.zero_grad()
        for i in range(MICRO_BATCHES):
            (model(*batch(step, i)) / MICRO_BATCHES).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
    return {n: p.detach() for n, p in model.named_parameters()}


class Run:
    """The model on the current mesh."""

    def __init__(self, schedule="1f1b", virtual=None, optimizer=None, dtype=torch.float64, drop=0.0, recompute=None, **options):
        m = sw.mesh()
        virtual = schedules.virtual_stages(schedule, virtual)
        m.place_stages(schedules.placement_of(schedule, m.pp, virtual))
        self.table = sw.ParamTable(table(len(m.placement)))
        self.modules = {s: Net(s, len(m.placement), True, drop).to(dtype) for s in m.held_stages}
        state = dict(whole(dtype).named_parameters())
        for s, module in self.modules.items():
            load_stage(module, self.table, s, state)
        unify_tied(self.modules.values())
        if recompute:
            for module in self.modules.values():
                sw.recompute(module, recompute, ("fc1", "drop"))
        self.model = nn.ModuleList(self.modules.values()) if len(self.modules) > 1 else next(iter(self.modules.values()))
        self.optimizer = (optimizer or sw.adamw)(self.model, lr=1e-2, clip_grad=0.5, **options)
        reducer = self.optimizer.reducer
        self.executor = sw.PipelineExecutor(list(self.modules.values()), m, schedule, before_last=reducer.arm if reducer else None, split_backward=not recompute)

    def step(self, step):
        m = sw.mesh()
        count = MICRO_BATCHES // m.dp

        module = next(iter(self.modules.values()))

        def forward(i, module=module):
            loss = module(*batch(step, m.dp_rank * count + i))
            return self.optimizer.scale(loss / MICRO_BATCHES) if module.last else loss

        self.optimizer.zero_grad()
        losses = self.executor.run(count, forward)
        return losses, self.optimizer.step()

    def compare(self, want, what, tolerance=1e-10):
        m = sw.mesh()
        for s, module in self.modules.items():
            every = [{n: p.detach() for n, p, _ in stage_tensors(module)}]
            if m.tp > 1:
                every = [None] * m.tp
                torch.distributed.all_gather_object(every, {n: p.detach() for n, p, _ in stage_tensors(module)}, group=m.tp_group)
            for name, full in merge_originals(self.table, {s: every}, {k: tuple(v.shape) for k, v in want.items()}).items():
                close(full.to(want[name].dtype), want[name], f"{what}: {name}", tolerance)


def train_and_compare(**options):
    run = Run(**options)
    for step in range(3):
        run.step(step)
    run.compare(reference(3), str(options))


@check(tp=2, dp=2)
def check_optimizer_modes_tp_dp():
    for options in ({}, {"zero": True}, {"overlap": True, "bucket_bytes": 1000}, {"overlap": True, "zero": True}, {"recompute": "full"}, {"recompute": "selective"}):
        train_and_compare(**options)
    run = Run(optimizer=lambda module, lr, clip_grad: sw.sgd(module, lr=lr, momentum=0.9, clip_grad=clip_grad, zero=True))
    for step in range(3):
        run.step(step)
    run.compare(reference(3, lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9)), "sgd")
    sizes = sum(t.numel() for t in Run(zero=True).optimizer.tensors().values())
    assert sizes == 0   # nothing before the first step


@check(pp=2, dp=2)
def check_optimizer_modes_pp_dp():
    for schedule in ("1f1b", "zb-h1", "interleaved", "zb-v"):   # with zb-v both ends of the tied table are on one rank
        train_and_compare(schedule=schedule, zero=schedule == "zb-v", overlap=schedule in ("zb-h1", "interleaved"), bucket_bytes=2000)
    train_and_compare(schedule="zb-h1", recompute="full")


@check(tp=2, pp=2)
def check_optimizer_modes_tp_pp():
    for schedule in ("gpipe", "zb-v"):
        train_and_compare(schedule=schedule)


@check(dp=4)
def check_zero_divides_states():
    run = Run(zero=True)
    run.step(0)
    mine = sum(t.numel() for k, t in run.optimizer.tensors().items() if k.startswith("exp_avg/"))
    total = sum(p.numel() for p in run.model.parameters())
    assert mine <= total / 4 + 40, (mine, total)
    run.compare(reference(1), "zero")


@check(tp=2)
def check_low_precision():
    """bf16: masters and float32 accumulation keep steps that bf16 alone would lose; f16: an overflow skips the step and halves the scale."""
    run = Run(dtype=torch.bfloat16)
    for step in range(3):
        run.step(step)
    assert all(p.dtype == torch.bfloat16 for p in run.model.parameters())
    run.compare({k: v.float() for k, v in reference(3).items()}, "bf16", 0.03)
    masters = [t for k, t in run.optimizer.tensors().items() if k.startswith("master/")]
    assert len(masters) == len(list(run.model.parameters())) and all(t.dtype == torch.float32 for t in masters)
    run = Run(dtype=torch.float16, scaler=sw.LossScaler(2.0**40, hysteresis=1))
    before = {n: p.detach().clone() for n, p in run.model.named_parameters()}
    run.step(0)
    assert run.optimizer.skipped and run.optimizer.scaler.scale == 2.0**39
    assert all(torch.equal(p, before[n]) for n, p in run.model.named_parameters())
    run.optimizer.scaler.scale = 1024.0
    _, norm = run.step(0)
    assert not run.optimizer.skipped and 0 < norm < 10
    run.compare({k: v.float() for k, v in reference(1).items()}, "f16", 0.02)


@check(tp=2)
def check_recompute_draws_the_same():
    for granularity in ("full", "selective"):
        gradients = []
        for recomputed in (None, granularity):
            run = Run(drop=0.5, recompute=recomputed)
            torch.manual_seed(5)
            run.executor.run(2, lambda i: run.model(*batch(0, i)))
            gradients.append([p.grad.clone() for p in run.model.parameters()])
        for a, b in zip(*gradients):
            close(a, b, granularity)


@check()
def check_learning_rates():
    for style, at, want in (("constant", 50, 1.0), ("linear", 55, 0.5), ("cosine", 55, 0.5), ("inverse-square-root", 39, 0.5), ("linear", 200, 0.0)):
        assert abs(LearningRate(1.0, 0.0, 10, 100, style).at(at) - want) < 1e-9, (style, at, LearningRate(1.0, 0.0, 10, 100, style).at(at))
    assert LearningRate(1.0, 0.0, 10, 100).at(0) == 0.1 and abs(LearningRate(1.0, 0.2, 0, 100, "WSD", wsd_decay=20).at(90) - 0.6) < 1e-9
    scaler = sw.LossScaler(8.0, window=2, hysteresis=2)
    for overflow, want in ((True, 8.0), (True, 4.0), (False, 4.0), (False, 8.0)):
        scaler.update(overflow)
        assert scaler.scale == want


# ---- checkpoints --------------------------------------------------------------------------------------------------------------
def saved_at(name, **options):
    run = Run(**options)
    for step in range(2):
        run.step(step)
    import yaml
    folder = os.path.join(ROOM, name)
    saver = checkpoint.Checkpoints(folder, run.table, yaml.safe_dump(table(len(sw.mesh().placement))))
    saver.save(2, run.modules, run.optimizer, {"consumed": 24}, background="async" in name)
    saver.wait()
    if sw.mesh().rank == 0:
        while not os.path.exists(os.path.join(folder, "latest")):
            pass
    torch.distributed.barrier(group=sw.device_mesh.process_group(sw.mesh().ranks))


def load_everywhere(**options):
    """Continues from every saved checkpoint at the current grid: the third step ends where three steps in one process do."""
    for name in ("tp2dp2zero", "pp2dp2v_async", "tp2pp2"):
        run = Run(**options)
        saved = checkpoint.open_newest(os.path.join(ROOM, name))
        index = checkpoint.load(saved, run.modules, run.optimizer, run.table)
        assert index["iteration"] == 2 and index["extra"]["consumed"] == 24
        run.compare(reference(2), f"{name} loaded")
        run.step(2)
        run.compare(reference(3), f"{name} continued with {options}")


@check(tp=2, dp=2)
def check_save_tp_dp():
    saved_at("tp2dp2zero", zero=True)


@check(pp=2, dp=2)
def check_save_pp_dp():
    saved_at("pp2dp2v_async", schedule="zb-v")


@check(tp=2, pp=2)
def check_save_tp_pp():
    saved_at("tp2pp2")


@check(tp=4)
def check_load_at_tp4():
    load_everywhere()


@check(pp=2, dp=2)
def check_load_at_pp2():
    load_everywhere(schedule="interleaved", zero=True)


@check(tp=2)
def check_load_at_tp2():
    load_everywhere()


@check()
def check_load_at_one():
    load_everywhere()


@check()
def check_broken_checkpoints():
    """Truncated, changed, missing and foreign files are named; the previous checkpoint is used; old ones go."""
    import yaml
    folder, run = os.path.join(ROOM, "broken"), Run()
    saver = checkpoint.Checkpoints(folder, run.table, yaml.safe_dump(table(1)), keep=3)
    for step in range(4):
        run.step(step)
        saver.save(step + 1, run.modules, run.optimizer, {"consumed": 0})
    assert checkpoint.found(folder) == ["iter_0000004", "iter_0000003", "iter_0000002"], checkpoint.found(folder)
    newest, said = os.path.join(folder, "iter_0000004"), []
    intact = {f: open(f, "rb").read() for f in glob.glob(f"{newest}/*")}

    def damage(name, change, words):
        path = os.path.join(newest, name)
        data = intact.get(path)
        change(path, data)
        said.clear()
        saved = checkpoint.open_newest(folder, lambda text, **_: said.append(text))
        assert saved.iteration == 3 and len(said) == 1 and name in said[0] and words in said[0], said
        try:
            checkpoint.open_newest(newest)
        except checkpoint.CheckpointError as error:
            assert name in str(error)
        else:
            raise AssertionError(f"{name} was accepted")
        os.remove(path) if data is None else open(path, "wb").write(data)

    model = "model-tp00-stage00.safetensors"
    damage(model, lambda p, d: open(p, "wb").write(d[:-5]), "truncated")
    damage(model, lambda p, d: open(p, "wb").write(d[:-5] + bytes([d[-5] ^ 1]) + d[-4:]), "checksum")
    damage("optimizer-tp00-stage00-dp00.safetensors", lambda p, d: os.remove(p), "missing")
    damage("model-tp07-stage00.safetensors", lambda p, d: open(p, "wb").write(b"x"), "does not belong")
    damage("index.json", lambda p, d: open(p, "wb").write(d.replace(b'"iteration": 4', b'"iteration": 5')), "checksum")
    damage("complete", lambda p, d: os.remove(p), "not written to its end")
    assert checkpoint.open_newest(folder).iteration == 4
    saver.save(4, run.modules, run.optimizer, {"consumed": 7})   # the same iteration again: beside the older one
    assert checkpoint.open_newest(folder).index["extra"]["consumed"] == 7
    shutil.rmtree(ROOM, ignore_errors=True)


# ---- failure ------------------------------------------------------------------------------------------------------------------
@check(tp=2)
def check_not_finite_names_the_module():
    run = Run()
    checks = failure.FiniteCheck(run.model)
    with torch.no_grad():
        run.model.blocks[2].fc2.bias[3] = float("nan")
    try:
        run.step(0)
    except sw.PipelineError as error:
        assert "blocks.2.fc2" in str(error) and "forward of micro-batch 0" in str(error) and "NaN" in str(error), str(error)
    else:
        raise AssertionError("NaN went on")
    checks.remove()
    run = Run()
    for p in run.model.blocks[1].fc1.parameters():
        p.register_hook(lambda g: g * float("inf"))
    try:
        run.step(0)
    except FloatingPointError as error:
        assert "blocks.1.fc1" in str(error), str(error)
    else:
        raise AssertionError("infinity went on")


@check(tp=2, dp=2)
def check_desynchronised_ranks_are_noticed():
    run = Run()
    run.step(0)
    failure.check_synchronised(run.model, 1)
    for change, words in ((lambda: run.model.blocks[0].norm.bias, "norm.bias, which tensor-parallel"), (lambda: run.model.blocks[0].fc1.bias, "fc1.bias, which data-parallel")):
        saved = copy.deepcopy(change().data)
        if sw.mesh().rank == 3:
            change().data[0] += 1e-6
        try:
            failure.check_synchronised(run.model, 1)
        except failure.Desynchronised as error:
            assert words in str(error) and "rank 3" in str(error), str(error)
        else:
            raise AssertionError("nobody noticed")
        change().data.copy_(saved)
    try:
        failure.check_synchronised(run.model, sw.mesh().rank // 2)
    except failure.Desynchronised as error:
        assert "at step 1" in str(error)
    else:
        raise AssertionError("steps differ")
