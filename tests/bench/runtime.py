#!/usr/bin/env python3
"""The runtime against its peers on the same model, seeds and machine: runtime.py [--json] [--quick] [--rounds N] [--parts tp,pp]

tp: transformer blocks, forward + backward, two ranks over Gloo, one thread a process: ours, Megatron-Core (PyPI; with one copy-to-region for q,
    k and v, its best here) and DTensor; all in the same processes, in turns.
pp: 1F1B with 2 and 4 ranks: ours and torch.distributed.pipelining, in turns.

Prints medians and, of the paired ratios ours / peer, the median and the 90 % interval of that median (bootstrap). Everything is a ratio within one run; a peer that
is not installed is left out and named. Megatron-Core is looked for in CORPUS/../megatron, or in --megatron DIR.
"""
import argparse
import json
import os
import random
import resource
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHAPES = [(128, 8, 64, 2, 4), (512, 8, 256, 2, 4), (1024, 16, 256, 1, 2)]   # hidden, heads, sequence, batch, layers


# ---- in the processes ---------------------------------------------------------------------------------------------------------
def blocks(h, nh, layers, column, row, enter):
    """A plain transformer whose four projections come from `column` and `row`."""
    import torch.nn as nn
    import torch.nn.functional as F

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v, self.o = column(h, h, True), column(h, h, True), column(h, h, True), row(h, h)

        def forward(self, x):
            b, s, _ = x.shape
            x = enter(x)
            q, k, v = (m(x).view(b, s, -1, h // nh).transpose(1, 2) for m in (self.q, self.k, self.v))
            return self.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, s, -1))

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.n1, self.n2, self.attn, self.fc1, self.fc2 = nn.LayerNorm(h), nn.LayerNorm(h), Attention(), column(h, 4 * h, False), row(4 * h, h)

        def forward(self, x):
            x = x + self.attn(self.n1(x))
            return x + self.fc2(F.gelu(self.fc1(self.n2(x))))

    return nn.Sequential(*[Block() for _ in range(layers)])


def tp_models(h, nh, layers, tp, megatron):
    import torch.nn as nn

    import shardwright.parallel as sw
    made = {"ours": blocks(h, nh, layers, lambda i, o, shared: sw.ColumnParallelLinear(i, o, return_bias=False, disable_grad_reduce=shared),
                           lambda i, o: sw.RowParallelLinear(i, o, return_bias=False), sw.copy_to_tensor_model_parallel_region)}
    if megatron:
        from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear
        from megatron.core.tensor_parallel.mappings import copy_to_tensor_model_parallel_region
        from megatron.core.transformer.transformer_config import TransformerConfig
        config = TransformerConfig(num_layers=layers, hidden_size=h, num_attention_heads=nh, tensor_model_parallel_size=tp, use_cpu_initialization=True)

        class Bare(nn.Module):
            def __init__(self, m):
                super().__init__()
                self.m = m

            def forward(self, x):
                return self.m(x)[0]

        init = nn.init.xavier_uniform_
        made["megatron"] = blocks(h, nh, layers, lambda i, o, shared: Bare(ColumnParallelLinear(i, o, config=config, init_method=init, gather_output=False, disable_grad_reduce=shared)),
                                  lambda i, o: Bare(RowParallelLinear(i, o, config=config, init_method=init, bias=True, input_is_parallel=True, skip_bias_add=False)), copy_to_tensor_model_parallel_region)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    model = blocks(h, nh, layers, lambda i, o, _: nn.Linear(i, o), lambda i, o: nn.Linear(i, o), lambda x: x)
    mesh = init_device_mesh("cpu", (tp,))
    for block in model:
        parallelize_module(block, mesh, {"attn.q": ColwiseParallel(), "attn.k": ColwiseParallel(), "attn.v": ColwiseParallel(), "attn.o": RowwiseParallel(),
                                         "fc1": ColwiseParallel(), "fc2": RowwiseParallel()})
    made["dtensor"] = model
    return made


def time_in_turns(steps, rounds):
    """{name: [seconds]}; every round runs all, in an order that changes."""
    import torch.distributed as dist
    times = {name: [] for name in steps}
    for step in steps.values():
        for _ in range(2):
            step()
    for r in range(rounds):
        names = list(steps)
        names = names[r % len(names):] + names[:r % len(names)]
        for name in names:
            dist.barrier()
            began = time.perf_counter()
            steps[name]()
            dist.barrier()
            times[name].append(time.perf_counter() - began)
    return times


def worker_tp(shapes, rounds, megatron):
    import torch
    import torch.distributed as dist

    import shardwright.parallel as sw
    sw.initialize(tp=dist.get_world_size() if dist.is_initialized() else int(os.environ["WORLD_SIZE"]), backend="gloo")
    tp = sw.tp_size()
    if megatron:
        from megatron.core import parallel_state
        parallel_state.initialize_model_parallel(tensor_model_parallel_size=tp)
    out = []
    for h, nh, s, b, layers in shapes:
        torch.manual_seed(0)
        x = torch.randn(b, s, h, requires_grad=True)

        def step_of(model):
            def step():
                model.zero_grad(set_to_none=True)
                model(x).square().mean().backward()
            return step

        out.append({"shape": [h, nh, s, b, layers], "times": time_in_turns({n: step_of(m) for n, m in tp_models(h, nh, layers, tp, megatron).items()}, rounds)})
    return out


def worker_pp(rounds):
    import torch
    import torch.distributed as dist
    import torch.nn as nn
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    import shardwright.parallel as sw
    sw.initialize(pp=int(os.environ["WORLD_SIZE"]), backend="gloo")
    p, rank, h, m = sw.pp_size(), sw.pp_rank(), 256, 8
    torch.manual_seed(rank)

    class Stage(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.input_tensor = nn.Sequential(*[layer for _ in range(4) for layer in (nn.Linear(h, h), nn.GELU())]), None

        def set_input_tensor(self, received):
            self.input_tensor = received

        def forward(self, x=None):
            return self.body(self.input_tensor[0] if x is None else x)

    module, batch = Stage(), torch.randn(m * 64, h)
    micro = batch.chunk(m)
    executor = sw.PipelineExecutor(module, schedule="1f1b")

    def ours():
        module.zero_grad(set_to_none=True)
        executor.run(m, lambda i: (module(micro[i]),) if rank == 0 else module().square().mean() / m if rank == p - 1 else (module(),))

    schedule = Schedule1F1B(PipelineStage(module, rank, p, torch.device("cpu")), m, loss_fn=lambda y, _: y.square().mean())

    def theirs():
        module.zero_grad(set_to_none=True)
        if rank == 0:
            schedule.step(batch)
        elif rank == p - 1:
            schedule.step(target=batch)
        else:
            schedule.step()

    times = time_in_turns({"ours": ours, "torch pipelining": theirs}, rounds)
    dist.barrier()
    return [{"ranks": p, "times": times}]


def worker(kind, arguments):
    result = worker_tp(**arguments) if kind == "tp" else worker_pp(**arguments)
    if os.environ["RANK"] == "0":
        print("RESULT " + json.dumps(result), flush=True)
    import shardwright.parallel as sw
    sw.shutdown()


def memory(name, megatron):
    """Peak MiB of one process's step after its imports."""
    code = f"""
import resource, sys, os
sys.path.insert(0, {str(Path(__file__).parent)!r})
import runtime, torch
import shardwright.parallel as sw
sw.initialize(tp=2, backend="gloo")
if {bool(megatron)}:   # the same imports for both
    from megatron.core import parallel_state
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=2)
    import megatron.core.tensor_parallel.layers, megatron.core.transformer.transformer_config
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
model = runtime.tp_models(512, 8, 4, 2, {name == 'megatron'})[{name!r}]
x = torch.randn(2, 256, 512, requires_grad=True)
for _ in range(3):
    model.zero_grad(set_to_none=True)
    model(x).square().mean().backward()
if os.environ["RANK"] == "0":
    print("RESULT", (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
sw.shutdown()
"""
    return float(launch(2, ["-c", code], megatron))


# ---- outside ------------------------------------------------------------------------------------------------------------------
def launch(world, command, megatron):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    path = os.pathsep.join(filter(None, [str(ROOT / "runtime" / "python"), megatron, os.environ.get("PYTHONPATH")]))
    base = dict(os.environ, PYTHONPATH=path, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE=str(world), OMP_NUM_THREADS="1",
                GLOO_SOCKET_IFNAME="lo", PYTHONWARNINGS="ignore")
    processes = [subprocess.Popen([sys.executable, *command], env=dict(base, RANK=str(r), LOCAL_RANK=str(r)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                 for r in range(world)]
    said = [p.communicate(timeout=900) for p in processes]
    if any(p.returncode for p in processes):
        raise SystemExit("\n".join(e[-1500:] for (_, e), p in zip(said, processes) if p.returncode))
    return next(line for line in said[0][0].splitlines() if line.startswith("RESULT"))[7:]


def interval(ratios, draws=2000):
    """90 % interval of the median."""
    r = random.Random(0)
    medians = sorted(statistics.median(r.choices(ratios, k=len(ratios))) for _ in range(draws))
    return medians[int(0.05 * draws)], medians[int(0.95 * draws)]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--binary")
    p.add_argument("--corpus")
    p.add_argument("--megatron")
    p.add_argument("--json", action="store_true")
    p.add_argument("--quick", action="store_true", help="the first shape, few rounds")
    p.add_argument("--rounds", type=int)
    p.add_argument("--parts", default="tp,pp,memory")
    p.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.worker:
        return worker(a.worker[0], json.loads(a.worker[1]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    megatron = a.megatron or (str(Path(a.corpus).parent / "megatron") if a.corpus else "")
    if not megatron or not (Path(megatron) / "megatron").is_dir():
        print("megatron-core is not installed: left out", file=sys.stderr)
        megatron = ""
    rounds = a.rounds or (7 if a.quick else 15)
    rows, everything = [], []

    def add(title, times):
        everything.append({"what": title, "times": times})
        for peer in times:
            if peer != "ours":
                ratios = [x / y for x, y in zip(times["ours"], times[peer])]
                low, high = interval(ratios)
                rows.append((title, peer, 1e3 * statistics.median(times["ours"]), 1e3 * statistics.median(times[peer]), statistics.median(ratios), low, high))

    if "tp" in a.parts.split(","):
        shapes = SHAPES[:1] if a.quick else SHAPES
        for r in json.loads(launch(2, [__file__, "--worker", "tp", json.dumps({"shapes": shapes, "rounds": rounds, "megatron": bool(megatron)})], megatron)):
            add("tp 2, " + " x ".join(map(str, r["shape"])), r["times"])
    if "pp" in a.parts.split(","):
        for world in (2,) if a.quick else (2, 4):
            for r in json.loads(launch(world, [__file__, "--worker", "pp", json.dumps({"rounds": rounds})], megatron)):
                add(f"pp {r['ranks']}, 1f1b, 8 micro-batches", r["times"])
    peaks = {n: memory(n, megatron) for n in ["ours", *(["megatron"] if megatron else [])]} if "memory" in a.parts.split(",") else {}
    if a.json:
        print(json.dumps({"rows": rows, "peak MiB after import": peaks, "all": everything}))
        return 0
    print(f"{'what':34s} {'peer':18s} {'ours ms':>9s} {'peer ms':>9s} {'ratio':>7s}  90 % interval")
    for title, peer, mine, other, ratio, low, high in rows:
        print(f"{title:34s} {peer:18s} {mine:9.1f} {other:9.1f} {ratio:7.2f}  {low:.2f} … {high:.2f}")
    if peaks:
        print("peak memory after imports, MiB (512 x 8 x 256 x 2 x 4): " + ", ".join(f"{n} {v:.0f}" for n, v in peaks.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
