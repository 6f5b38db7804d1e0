"""`pretrain`, `get_args`: what a generated train.py calls, by Megatron's names and signatures."""
from __future__ import annotations

import argparse
import os
import time

import torch
from torch.utils.data import Dataset, default_collate

from . import device_mesh as _mesh
from . import optimizer as _optimizer
from .original import start_from_original
from .params import ParamTable, annotate, load_stage
from .pipeline import PipelineExecutor
from .random import manual_seed

_args: argparse.Namespace | None = None
DTYPES = {"f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def _parser():
    p = argparse.ArgumentParser(description="Training with tensor, pipeline and data parallelism", allow_abbrev=False)
    p.add_argument("--tensor-model-parallel-size", type=int, default=1)
    p.add_argument("--pipeline-model-parallel-size", type=int, default=1)
    p.add_argument("--micro-batch-size", type=int, default=1)
    p.add_argument("--global-batch-size", type=int, help="default: micro-batch size x micro-batches x dp")
    p.add_argument("--num-micro-batches", type=int, help="micro-batches a step and data-parallel rank (default: from the global batch size, else 1)")
    p.add_argument("--schedule", choices=["1f1b", "gpipe"], default="1f1b")
    p.add_argument("--train-iters", type=int, default=10)
    p.add_argument("--eval-interval", type=int, default=0)
    p.add_argument("--eval-iters", type=int, default=1)
    p.add_argument("--optimizer", choices=["adamw", "sgd"], default="adamw")
    p.add_argument("--lr", type=float, default=1e-4)
    p.add_argument("--weight-decay", type=float, default=0.01)
    p.add_argument("--clip-grad", type=float, default=1.0)
    p.add_argument("--seed", type=int, default=1234)
    p.add_argument("--dtype", choices=sorted(DTYPES), default="f32")
    p.add_argument("--log-interval", type=int, default=1)
    p.add_argument("--save", metavar="DIR", help="where checkpoints go")
    p.add_argument("--save-interval", type=int, default=0, help="iterations (0: at the end)")
    p.add_argument("--load", metavar="PATH", help="a folder written by --save, or a state dict of the original model (.pt)")
    p.add_argument("--init", choices=["original", "local"], default="original",
                   help="start values: the single-GPU program's from the same seed (it is built once a machine), or as each stage draws them")
    p.add_argument("--params", metavar="FILE", default="params.yaml", help="layouts (params.yaml of the generated model)")
    p.add_argument("--backend", choices=["gloo", "nccl"])
    p.add_argument("--dataloader-type", choices=["single", "cyclic"], default="cyclic")
    return p


def get_args(extra_args_provider=None, args_defaults=None, argv=None):
    """The parsed command line; the first call decides."""
    global _args
    if _args is None or argv is not None:
        parser = _parser()
        if extra_args_provider:
            parser = extra_args_provider(parser) or parser
        known = {a.dest for a in parser._actions}
        defaults = dict(args_defaults or {})
        parser.set_defaults(**{k: v for k, v in defaults.items() if k in known})
        _args = parser.parse_args(argv)
        for k, v in defaults.items():
            if k not in known:
                setattr(_args, k, v)
    return _args


class SyntheticDataset(Dataset):
    """Samples drawn from their index: `make(generator)` returns one sample (tensors without batch dimension, in a tuple or dict)."""

    def __init__(self, make, length=1024, seed=0):
        self.make, self.length, self.seed = make, length, seed

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if not 0 <= index < self.length:
            raise IndexError(index)
        return self.make(torch.Generator().manual_seed(self.seed * 1_000_003 + index))


class MicroBatches:
    """An endless iterator of this data-parallel rank's micro-batches. Every rank of a pipeline may read: the order is the same.
    `single` keeps the data set's order, `cyclic` shuffles every epoch by the seed."""

    def __init__(self, dataset, micro_batch_size, dataloader_type="cyclic", seed=0, start=0):
        self.dataset, self.size, self.kind, self.seed, self.at = dataset, micro_batch_size, dataloader_type, seed, start
        self._epoch, self._order = -1, None

    def __iter__(self):
        return self

    def _index(self, position):
        epoch, offset = divmod(position, len(self.dataset))
        if self.kind == "single":
            return offset
        if epoch != self._epoch:
            self._epoch = epoch
            self._order = torch.randperm(len(self.dataset), generator=torch.Generator().manual_seed(self.seed + epoch)).tolist()
        return self._order[offset]

    def __next__(self):
        m = _mesh.mesh()
        first = (self.at * m.dp + m.dp_rank) * self.size
        self.at += 1
        return default_collate([self.dataset[self._index(first + i)] for i in range(self.size)])


def to_device(batch, device=None, dtype=None):
    """Tensors of a (nested) batch on the mesh's device; floating ones in `dtype` when given."""
    device = device or _mesh.mesh().device
    if isinstance(batch, torch.Tensor):
        return batch.to(device, dtype if dtype and batch.is_floating_point() else None)
    if isinstance(batch, dict):
        return {k: to_device(v, device, dtype) for k, v in batch.items()}
    if isinstance(batch, (list, tuple)):
        return type(batch)(to_device(v, device, dtype) for v in batch)
    return batch


def _micro_batches(args, dp):
    if args.num_micro_batches:
        return args.num_micro_batches
    if args.global_batch_size:
        if args.global_batch_size % (args.micro_batch_size * dp):
            raise SystemExit(f"--global-batch-size {args.global_batch_size} is no multiple of micro-batch size {args.micro_batch_size} "
                             f"x data-parallel size {dp}")
        return args.global_batch_size // (args.micro_batch_size * dp)
    return 1


def _loss_of(result):
    """(loss, report) of what a loss function returns: loss, (loss, dict) or (loss, tokens, dict)."""
    if isinstance(result, torch.Tensor):
        return result, {"loss": result.detach()}
    if len(result) == 3:
        return result[0], result[2]
    return result


class Checkpoints:
    """Every rank's stage, optimizer and iteration under DIR/iter_N; `latest` is written last, so a broken save is never read."""

    def __init__(self, folder):
        self.folder = folder

    def _file(self, iteration):
        m = _mesh.mesh()
        return os.path.join(self.folder, f"iter_{iteration:07d}", f"tp{m.tp_rank:02d}_pp{m.pp_rank:02d}.pt")

    def save(self, iteration, stage, optimizer):
        m = _mesh.mesh()
        path = self._file(iteration)
        if m.dp_rank == 0:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            torch.save({"model": stage.state_dict(), "optimizer": optimizer.state_dict(), "iteration": iteration,
                        "grid": {"tp": m.tp, "pp": m.pp}}, path + ".tmp")
            os.replace(path + ".tmp", path)
        if torch.distributed.is_initialized():
            torch.distributed.barrier()
        if m.rank == m.ranks[0]:
            with open(os.path.join(self.folder, "latest.tmp"), "w") as f:
                f.write(str(iteration))
            os.replace(os.path.join(self.folder, "latest.tmp"), os.path.join(self.folder, "latest"))

    def load(self, stage, optimizer):
        """The iteration to continue at."""
        marker = os.path.join(self.folder, "latest")
        if not os.path.exists(marker):
            raise SystemExit(f"--load {self.folder}: no complete checkpoint there (the file 'latest' is missing)")
        iteration = int(open(marker).read())
        m = _mesh.mesh()
        if not os.path.exists(self._file(iteration)):
            raise SystemExit(f"--load {self.folder}: {self._file(iteration)} is missing; it was saved at another tp or pp than "
                             f"{m.tp} x {m.pp}: use reshard")
        saved = torch.load(self._file(iteration), map_location=m.device, weights_only=True)
        if saved["grid"] != {"tp": m.tp, "pp": m.pp}:
            raise SystemExit(f"--load {self.folder}: saved at tp x pp = {saved['grid']['tp']} x {saved['grid']['pp']}, this run is "
                             f"{m.tp} x {m.pp}: use reshard")
        stage.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        return saved["iteration"]


def pretrain(train_valid_test_dataset_provider, model_provider, forward_step_func, model_type=None, process_non_loss_data_func=None,
             extra_args_provider=None, args_defaults=None):
    """Trains. `model_provider(pre_process, post_process)` builds this rank's stage; `forward_step_func(data_iterator, model)`
    returns (output, loss_func), loss_func(output) is called on the last stage; `train_valid_test_dataset_provider(samples)`
    returns three data sets (later ones may be None). Returns the losses of the last stage, by iteration."""
    args = get_args(extra_args_provider, args_defaults)
    m = _mesh.initialize(args.tensor_model_parallel_size, args.pipeline_model_parallel_size, backend=args.backend)
    manual_seed(args.seed)
    stage = model_provider(m.is_first_stage, m.is_last_stage).to(device=m.device)
    if args.dtype != "f32":
        stage.to(dtype=DTYPES[args.dtype])
    if not hasattr(stage, "set_input_tensor"):
        stage.set_input_tensor = lambda received: setattr(stage, "input_tensor", received)
    table = ParamTable.load(args.params) if os.path.exists(args.params) else None
    if table and m.pp > 1 and table.stages != m.pp:
        raise SystemExit(f"{args.params} is for {table.stages} pipeline stages, --pipeline-model-parallel-size is {m.pp}")
    if args.load and os.path.isfile(args.load):
        if table is None:
            raise SystemExit(f"--load {args.load} needs the layouts: --params params.yaml")
        state = torch.load(args.load, map_location="cpu", weights_only=True)
        load_stage(stage, table, m.pp_rank, state.get("state", state))
    elif table is not None:
        annotate(stage, table, m.pp_rank)
        if args.init == "original" and not args.load:
            why = start_from_original(stage, table, os.path.dirname(os.path.abspath(args.params)), args.seed)
            if why and m.rank == m.ranks[0]:
                print(f"start values are drawn stage by stage, not the single-GPU program's: {why} (--init local says so)", flush=True)
    make = _optimizer.adamw if args.optimizer == "adamw" else _optimizer.sgd
    optimizer = make(stage, lr=args.lr, weight_decay=args.weight_decay, clip_grad=args.clip_grad)
    start = Checkpoints(args.load).load(stage, optimizer) if args.load and os.path.isdir(args.load) else 0
    if not args.load:
        _optimizer.broadcast_tied(stage)

    count = _micro_batches(args, m.dp)
    global_batch = count * args.micro_batch_size * m.dp
    samples = [args.train_iters * global_batch, args.eval_iters * global_batch, args.eval_iters * global_batch]
    train, valid, _ = (list(train_valid_test_dataset_provider(samples)) + [None, None])[:3]
    iterator = MicroBatches(train, args.micro_batch_size, args.dataloader_type, args.seed, start * count)
    executor = PipelineExecutor(stage, m, args.schedule)
    reports: list[dict] = []

    def forward_on(data):
        def forward(_):
            output, loss_func = forward_step_func(data, stage)
            if not m.is_last_stage:
                return output
            loss, report = _loss_of(loss_func(output))
            reports.append({k: float(v) for k, v in report.items()})
            return loss / (count * m.dp)
        return forward

    def mean_report():
        mean = {k: sum(r[k] for r in reports) / len(reports) for k in reports[0]}
        reports.clear()
        return mean

    history = []
    for iteration in range(start, args.train_iters):
        began = time.perf_counter()
        stage.train()
        optimizer.zero_grad()
        executor.run(count, forward_on(iterator))
        norm = optimizer.step()
        if m.is_last_stage:
            mean = mean_report()
            history.append(mean)
            if (iteration + 1) % args.log_interval == 0 and m.tp_rank == 0 and m.dp_rank == 0:
                print(f"iteration {iteration + 1}/{args.train_iters} | " + " | ".join(f"{k} {v:.6e}" for k, v in mean.items())
                      + (f" | grad norm {norm:.3e}" if norm is not None else "") + f" | {1e3 * (time.perf_counter() - began):.1f} ms",
                      flush=True)
        if args.eval_interval and valid is not None and (iteration + 1) % args.eval_interval == 0:
            stage.eval()
            with torch.no_grad():
                executor.run(count * args.eval_iters, forward_on(MicroBatches(valid, args.micro_batch_size, "single")), "forward")
            if m.is_last_stage:
                mean = mean_report()
                if m.tp_rank == 0 and m.dp_rank == 0:
                    print(f"evaluation at {iteration + 1} | " + " | ".join(f"{k} {v:.6e}" for k, v in mean.items()), flush=True)
        if args.save and (iteration + 1 == args.train_iters or args.save_interval and (iteration + 1) % args.save_interval == 0):
            Checkpoints(args.save).save(iteration + 1, stage, optimizer)
    _mesh.shutdown()
    return history
