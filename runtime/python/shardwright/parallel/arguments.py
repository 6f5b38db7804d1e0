"""The command line of a training script: Megatron's names where they mean something here. `python -m shardwright.parallel.arguments` prints
the table of docs/runtime.md."""
from __future__ import annotations

import argparse
import difflib
import sys

import torch

from . import lr_schedule, schedules

DTYPES = {"f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
_args: argparse.Namespace | None = None

# Megatron's arguments that have no meaning here, and why: told instead of "unknown".
ELSEWHERE = {
    "--sequence-parallel": "it is a property of the model's layers here (sequence_parallel=True), and convert decides it",
    "--context-parallel-size": "there is no context parallelism here",
    "--expert-model-parallel-size": "there is no expert parallelism here",
    "--num-layers": "the model's constructor says it (extra_args_provider can add it)",
    "--hidden-size": "the model's constructor says it (extra_args_provider can add it)",
    "--num-attention-heads": "the model's constructor says it (extra_args_provider can add it)",
    "--seq-length": "the data set says it (extra_args_provider can add it)",
    "--use-cpu-initialization": "parameters are always made from the same random numbers on all devices",
    "--no-async-tensor-model-parallel-allreduce": "the gradient's sum always overlaps the weight gradient",
    "--standalone-embedding-stage": "convert chooses the cuts",
    "--ckpt-format": "there is one format (docs/runtime.md)",
    "--use-dist-ckpt": "every checkpoint loads at every grid",
    "--rampup-batch-size": "the batch size is constant",
}


def parser():
    p = argparse.ArgumentParser(description="Training with tensor, pipeline and data parallelism", allow_abbrev=False,
                                formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    g = p.add_argument_group("grid and schedule")
    g.add_argument("--tensor-model-parallel-size", type=int, default=1, help="tp")
    g.add_argument("--pipeline-model-parallel-size", type=int, default=1, help="pp; dp is what is left of the processes")
    g.add_argument("--schedule", choices=sorted(schedules.SCHEDULES), default="1f1b", help="pipeline schedule (python -m shardwright.parallel.simulate compares them)")
    g.add_argument("--num-virtual-stages-per-pipeline-rank", type=int, help="stages a rank: for interleaved (default 2); the package then has pp x this many stages")
    g.add_argument("--micro-batch-size", type=int, default=1, help="samples in a micro-batch")
    g.add_argument("--global-batch-size", type=int, help="samples a step, over all data-parallel ranks (default: micro-batch size x micro-batches x dp)")
    g.add_argument("--num-micro-batches", type=int, help="micro-batches a step and data-parallel rank (default: from the global batch size, else 1)")
    g.add_argument("--recompute-granularity", choices=["full", "selective"], help="activations that are computed again in backward: whole blocks, or the modules of --recompute-modules")
    g.add_argument("--recompute-modules", nargs="+", default=["attention", "attn"], help="parts of names or classes of modules, for selective")
    g.add_argument("--overlap-grad-reduce", action="store_true", help="sum gradients over dp in buckets while backward runs")
    g.add_argument("--ddp-bucket-size", type=int, default=25 * 2**20, help="bytes of a bucket")
    g.add_argument("--backend", "--distributed-backend", choices=["gloo", "nccl"], help="default: nccl where every process has a GPU")
    g.add_argument("--distributed-timeout-minutes", type=float, default=10.0, help="longest wait for other ranks")
    g = p.add_argument_group("length")
    g.add_argument("--train-iters", type=int, default=10, help="steps in all")
    g.add_argument("--train-samples", type=int, help="samples in all (instead of --train-iters)")
    g.add_argument("--eval-interval", type=int, default=0, help="steps between evaluations (0: none)")
    g.add_argument("--eval-iters", type=int, default=1, help="global batches an evaluation")
    g.add_argument("--early-stop-patience", type=int, default=0, help="ends after so many evaluations without a better first value (0: never)")
    g.add_argument("--exit-interval", type=int, default=0, help="saves and ends after this step's multiple")
    g.add_argument("--exit-duration-in-mins", type=float, default=0.0, help="saves and ends after so long")
    g.add_argument("--skip-train", action="store_true", help="evaluate only")
    g = p.add_argument_group("optimizer")
    g.add_argument("--optimizer", choices=["adamw", "adam", "sgd"], default="adamw", help="adam is adamw, as in Megatron")
    g.add_argument("--lr", type=float, default=1e-4)
    g.add_argument("--min-lr", type=float, default=0.0)
    g.add_argument("--lr-decay-style", choices=lr_schedule.STYLES, default="constant")
    g.add_argument("--lr-decay-iters", type=int, help="default: --train-iters")
    g.add_argument("--lr-wsd-decay-iters", type=int, default=0, help="length of WSD's decay, at the end")
    g.add_argument("--lr-warmup-iters", type=int, default=0)
    g.add_argument("--lr-warmup-fraction", type=float, help="of --lr-decay-iters")
    g.add_argument("--lr-warmup-init", type=float, default=0.0, help="where the warm-up begins")
    g.add_argument("--weight-decay", type=float, default=0.01)
    g.add_argument("--end-weight-decay", type=float, help="reached at the end of the decay (default: constant)")
    g.add_argument("--adam-beta1", type=float, default=0.9)
    g.add_argument("--adam-beta2", type=float, default=0.999)
    g.add_argument("--adam-eps", type=float, default=1e-8)
    g.add_argument("--sgd-momentum", type=float, default=0.0)
    g.add_argument("--clip-grad", type=float, default=1.0, help="largest norm of the whole gradient (0: no clipping)")
    g.add_argument("--use-distributed-optimizer", action="store_true", help="optimizer states divided over dp (ZeRO-1)")
    g = p.add_argument_group("precision")
    g.add_argument("--dtype", choices=sorted(DTYPES), default="f32", help="of parameters and activations; bf16 and f16 keep float32 masters")
    g.add_argument("--bf16", action="store_true", help="--dtype bf16")
    g.add_argument("--fp16", action="store_true", help="--dtype f16, with loss scaling")
    g.add_argument("--loss-scale", type=float, help="constant scale for f16 (default: dynamic)")
    g.add_argument("--initial-loss-scale", type=float, default=2.0**32)
    g.add_argument("--min-loss-scale", type=float, default=1.0)
    g.add_argument("--loss-scale-window", type=int, default=1000)
    g.add_argument("--hysteresis", type=int, default=2)
    g.add_argument("--no-accumulate-allreduce-grads-in-fp32", dest="accumulate_allreduce_grads_in_fp32", action="store_false",
                   help="gradients of bf16 and f16 parameters stay in their type")
    g = p.add_argument_group("start, saving")
    g.add_argument("--seed", type=int, default=1234)
    g.add_argument("--init", choices=["original", "local"], default="original",
                   help="start values: the single-GPU program's from the same seed (it is built once a machine), or as each stage draws them")
    g.add_argument("--params", metavar="FILE", default="params.yaml", help="layouts (params.yaml of the generated model)")
    g.add_argument("--load", metavar="PATH", help="a folder written by --save, or a state dict of the original model (.pt, .safetensors)")
    g.add_argument("--finetune", action="store_true", help="load parameters only, begin at step 0")
    g.add_argument("--no-load-optim", action="store_true")
    g.add_argument("--no-load-rng", action="store_true")
    g.add_argument("--save", metavar="DIR", help="where checkpoints go")
    g.add_argument("--save-interval", type=int, default=0, help="steps (0: at the end)")
    g.add_argument("--no-save-optim", action="store_true")
    g.add_argument("--async-save", action="store_true", help="write beside training")
    g.add_argument("--keep", type=int, default=0, help="complete checkpoints that stay (0: all)")
    g = p.add_argument_group("data")
    g.add_argument("--dataloader-type", choices=["single", "cyclic"], default="cyclic", help="in order, or shuffled every epoch")
    g.add_argument("--num-workers", type=int, default=0, help="processes that read data, a rank")
    g = p.add_argument_group("logging and checks")
    g.add_argument("--log-interval", type=int, default=1)
    g.add_argument("--log-json", metavar="FILE", help="a line of JSON a logged step")
    g.add_argument("--tensorboard-dir", metavar="DIR", help="needs the package tensorboard")
    g.add_argument("--check-for-nan-in-loss-and-grad", action="store_true", help="the first module whose output or gradient is not finite ends the job (the norm's check needs no argument)")
    g.add_argument("--check-sync-interval", "--check-weight-hash-across-dp-replicas-interval", type=int, default=0, help="steps between comparisons of what ranks hold alike")
    g.add_argument("--watchdog-seconds", type=float, default=0.0, help="ends the job when a step takes longer (0: never)")
    return p


def _refuse(p, unknown):
    known = sorted({o for a in p._actions for o in a.option_strings})
    lines = []
    for word in unknown:
        name = word.split("=", 1)[0]
        if not name.startswith("--"):
            continue
        near = difflib.get_close_matches(name, known, 1, 0.6)
        lines.append(f"unknown argument {name}" + (f": {ELSEWHERE[name]}" if name in ELSEWHERE else f": is {near[0]} meant?" if near else ""))
    p.error("; ".join(lines) or f"unknown argument {unknown[0]}")


def get_args(extra_args_provider=None, args_defaults=None, argv=None):
    """The parsed command line; the first call decides."""
    global _args
    if _args is None or argv is not None:
        p = parser()
        if extra_args_provider:
            p = extra_args_provider(p) or p
        known = {a.dest for a in p._actions}
        defaults = dict(args_defaults or {})
        p.set_defaults(**{k: v for k, v in defaults.items() if k in known})
        _args, unknown = p.parse_known_args(argv)
        if unknown:
            _refuse(p, unknown)
        for k, v in defaults.items():
            if k not in known:
                setattr(_args, k, v)
        if argv is None:
            del sys.argv[1:]   # read here in full: a model that parses the command line itself gets its defaults, as in the analysis
        _complete(p, _args)
    return _args


def _complete(p, a):
    if a.bf16 and a.fp16:
        p.error("--bf16 and --fp16 exclude each other")
    a.dtype = "bf16" if a.bf16 else "f16" if a.fp16 else a.dtype
    try:
        a.virtual_stages = schedules.virtual_stages(a.schedule, a.num_virtual_stages_per_pipeline_rank)
    except schedules.ScheduleError as error:
        p.error(f"--num-virtual-stages-per-pipeline-rank: {error}")
    for name in ("micro_batch_size", "tensor_model_parallel_size", "pipeline_model_parallel_size", "eval_iters"):
        if getattr(a, name) < 1:
            p.error(f"--{name.replace('_', '-')} {getattr(a, name)}: at least 1")


def table():
    """All arguments as Markdown."""
    out = []
    for group in parser()._action_groups:
        actions = [a for a in group._group_actions if a.dest != "help"]
        if not actions:
            continue
        out += [f"**{group.title}**", "", "| argument | default | |", "| --- | --- | --- |"]
        for a in actions:
            default = "" if a.default in (None, False) or isinstance(a.default, bool) else " ".join(a.default) if isinstance(a.default, list) else str(a.default)
            choices = f" ({', '.join(map(str, a.choices))})" if a.choices else ""
            out.append(f"| `{'`, `'.join(a.option_strings)}` | {default} | {(a.help or '').replace('|', '/')}{choices} |")
        out.append("")
    out += ["**Megatron's that are refused with their reason**", "", "| argument | |", "| --- | --- |"]
    out += [f"| `{name}` | {why} |" for name, why in sorted(ELSEWHERE.items())]
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    sys.stdout.write(table())
