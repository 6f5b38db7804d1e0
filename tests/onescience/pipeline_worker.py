"""One rank of a grid: its stage of a generated model in Megatron-Core's own 1F1B schedule, DistributedDataParallel and
finalize_model_grads, over Gloo; outputs, loss, every gradient and the gradient norm against the original's.

    torch.distributed.run --nproc-per-node 4 … pipeline_worker.py SPECS.json RESULT.json

A spec names a package, its params.yaml, a job and the grids; what a grid leaves of the four ranks is data parallel.
"""
import importlib
import inspect
import json
import os
import sys

import torch
import torch.distributed as dist

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import shim  # noqa: E402
from stage_worker import perturb, relative, tensors  # noqa: E402

MICRO_BATCHES = 3


def without_cuda():
    """The schedules' and the buffers' few CUDA calls, on the CPU; stages return tuples of any shapes, as the library's fork allows."""
    from megatron.core.pipeline_parallel import schedules

    zeros, step = torch.zeros, schedules.forward_step
    torch.zeros = lambda *a, device=None, **k: zeros(*a, device=None if str(device).startswith("cuda") else device, **k)

    def forward_step(*args, **kwargs):
        output, tokens = step(*args, **kwargs)
        return list(output[0]) if isinstance(output, list) and isinstance(output[0], tuple) else output, tokens

    def backward_step(inputs, outputs, gradients, *_):
        inputs, outputs, gradients = (x if isinstance(x, list) else [x] for x in (inputs, outputs, gradients))
        for x in inputs:
            if x is not None:
                x.retain_grad()
        torch.autograd.backward(outputs, gradients if gradients[0] is not None else None)
        return [None if x is None else x.grad for x in inputs]

    schedules.forward_step, schedules.backward_step = forward_step, backward_step


def default_loss(output):
    from shardwright.parallel.inputs import default_loss as loss

    return loss(output)


class Model:
    """The original, its micro-batches and their gradients."""

    def __init__(self, spec):
        from shardwright.parallel.inputs import constants, draw_inputs

        module, _, name = spec["model"].rpartition(":")
        names = {"torch": torch, **vars(importlib.import_module(module))}
        exec(spec.get("setup") or "", names)
        torch.manual_seed(0)
        self.original = eval(spec["build"], names).eval()
        perturb(self.original)
        specs = {k: v.replace("f32", "f64") for k, v in spec["inputs"].items()}
        self.fixed, self.call, self.names = constants(specs), spec.get("call"), names
        self.draw = lambda i: {**draw_inputs(specs, torch.Generator().manual_seed(100 + i)), **self.fixed}

    def arguments(self, micro_batch):
        """forward's arguments by name."""
        given, seen = self.draw(micro_batch), {}

        def record(*args, **kwargs):
            seen.update(inspect.signature(self.original.forward).bind(*args, **kwargs).arguments)

        eval(self.call, dict(self.names, model=record, **given)) if self.call else record(**given)
        return seen

    def reference(self, count):
        self.original.zero_grad()
        outputs = []
        for i in range(count):
            outputs.append(self.original(**self.arguments(i)))
            (default_loss(outputs[-1]) / count).backward()
        return outputs


def run(spec, tp, pp):
    """One step; the figures of this rank."""
    from megatron.core import parallel_state, tensor_parallel
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
    from megatron.core.dist_checkpointing.dict_utils import nested_values
    from megatron.core.dist_checkpointing.mapping import ShardedTensor, apply_factories, is_main_replica
    from megatron.core.enums import ModelType
    from megatron.core.pipeline_parallel import get_forward_backward_func
    from megatron.core.transformer.module import param_is_not_shared
    from shardwright.parallel.params import ParamTable

    parallel_state.destroy_model_parallel()
    config = shim.start(tp, pp)
    config.batch_p2p_sync = config.batch_p2p_comm = False
    config.finalize_model_grads_func = finalize_model_grads
    package, parts = importlib.import_module(spec["package"][str(pp)]), importlib.import_module(spec["support"])
    model = Model(spec)
    dp, dp_rank = parallel_state.get_data_parallel_world_size(), parallel_state.get_data_parallel_rank()
    k, last = parallel_state.get_pipeline_model_parallel_rank(), parallel_state.is_pipeline_last_stage()
    stage = package.build_stage(k, config).eval()
    if spec.get("break"):
        exec(spec["break"], {"stage": stage})
    parts.load_serial_state_dict(stage, {**dict(model.original.named_buffers()), **model.original.state_dict()})
    chunk = DistributedDataParallel(config, DistributedDataParallelConfig(overlap_grad_reduce=False, use_distributed_optimizer=False), stage)
    chunk.model_type = ModelType.encoder_or_decoder   # as Megatron's get_model sets it
    got = []

    def forward_step(batches, chunk):
        given = model.arguments(next(batches))
        output = chunk(**(given if k == 0 else {n: given[n] for n in stage.needs_inputs if n in given}))
        if last:
            got.append([x.detach().clone() for x in leaves(output)])   # the schedule divides the loss in place
        return output, lambda out: (default_loss(out), torch.tensor(1, dtype=torch.int), {"loss": default_loss(out).detach().clone()})

    shapes = [[tuple(s) for s in shapes] for shapes in spec["shapes"][str(pp)]]
    more = {"adjust_tensor_shapes_fn": lambda *_: (shapes[k - 1] if k else [()], shapes[k] if not last else [()])} if pp > 1 else {}
    losses = get_forward_backward_func()(forward_step_func=forward_step, data_iterator=iter(range(dp_rank * MICRO_BATCHES, (dp_rank + 1) * MICRO_BATCHES)),
                                         model=[chunk], num_microbatches=MICRO_BATCHES, seq_length=1, micro_batch_size=1, **more)
    wanted = model.reference(MICRO_BATCHES * dp)
    result = {"outputs": 0.0, "loss": 0.0, "gradients": 0.0, "worst": "", "sharded": 0, "compared": 0, "names": []}
    if last:
        mine = wanted[dp_rank * MICRO_BATCHES:(dp_rank + 1) * MICRO_BATCHES]
        result["outputs"] = max(relative(a, b, 1e-30) for x, y in zip(got, mine) for a, b in zip(x, leaves(y), strict=True))
        result["loss"] = max(abs(float(a["loss"]) - float(default_loss(b))) / abs(float(default_loss(b))) for a, b in zip(losses, mine))
    table = ParamTable.load(spec["params"][str(pp)])
    reference = dict(model.original.named_parameters(remove_duplicate=False))
    floor = 1e-6 * max(float(p.grad.abs().max()) for p in reference.values() if p.grad is not None)
    square = torch.zeros(())
    for name, p in stage.named_parameters():
        entry, full = table.entry(name, k), reference[name].grad
        full = torch.zeros_like(reference[name]) if full is None else full
        difference = relative(p.main_grad, entry.slice(full, parallel_state.get_tensor_model_parallel_rank(), tp), floor)
        result["compared"] += 1
        result["sharded"] += entry.shard is not None and tp > 1
        result["names"].append(name)
        assert entry.shard is None or getattr(p, "tensor_model_parallel", False), name + " is sharded and not marked"
        if difference > result["gradients"] or difference != difference:
            result["gradients"], result["worst"] = difference, name
        if param_is_not_shared(p) and tensor_parallel.param_is_not_tensor_parallel_duplicate(p):
            square += p.main_grad.square().sum()
    dist.all_reduce(square, group=parallel_state.get_model_parallel_group())
    norm = sum(p.grad.square().sum() for p in model.original.parameters() if p.grad is not None).sqrt()
    result["norm"] = float((square.sqrt() - norm).abs() / norm)
    result["parameters"] = sorted(n for n, _ in model.original.named_parameters())
    saved = stage.sharded_state_dict()
    apply_factories(saved)
    result["saved"] = [[t.key, list(t.global_offset), is_main_replica(t.replica_id)] for t in nested_values(saved) if isinstance(t, ShardedTensor)]
    return result


def leaves(output):
    """The tensors of any output."""
    from shardwright.verify.job import tensors_of

    return [t for _, t in tensors_of(output)] or tensors(output)


def merged(everyone):
    """What the ranks say, as one."""
    worst = max(everyone, key=lambda r: r["gradients"] if r["gradients"] == r["gradients"] else float("inf"))
    held = {n for r in everyone for n in r["names"]}
    main, copies = [[(s[0], tuple(s[1])) for r in everyone for s in r["saved"] if s[2] == is_main] for is_main in (True, False)]
    return {"name": worst["name"], "grid": worst["grid"], "worst": worst["worst"], "missing": [n for n in worst["parameters"] if n not in held],
            "sharded": sum(r["sharded"] for r in everyone), "compared": sum(r["compared"] for r in everyone),
            "saved wrongly": sorted({k for k, _ in main if main.count((k, _)) > 1} | {k for k, _ in copies if (k, _) not in main}),
            **{key: max(r[key] for r in everyone) for key in ("outputs", "loss", "gradients", "norm")}}


def main():
    specs, result_file = json.load(open(sys.argv[1])), sys.argv[2]
    shim.install(specs[0]["packages"])
    sys.path.append(specs[0]["runtime"])
    sys.path[:0] = specs[0]["python_path"]
    shim.start(1)
    without_cuda()
    results = []
    for spec in specs:
        for tp, pp in spec["grids"]:
            mine = {"name": spec["name"], "grid": [tp, pp]}
            try:
                mine.update(run(spec, tp, pp))
            except Exception as error:  # noqa: BLE001
                import traceback
                if not os.path.exists(f"{result_file}.failed"):   # the first is the cause
                    json.dump({**mine, "error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()}, open(f"{result_file}.failed", "w"))
                os._exit(1)   # the others may wait in the middle of a step
            everyone = [None] * dist.get_world_size()
            dist.all_gather_object(everyone, mine)
            results.append(merged(everyone))
    if dist.get_rank() == 0:
        json.dump(results, open(result_file, "w"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
