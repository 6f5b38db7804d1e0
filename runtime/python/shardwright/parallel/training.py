"""`pretrain`: what a generated train.py calls, by Megatron's name and signature. `--help` lists the arguments (arguments.py)."""
from __future__ import annotations

import math
import os
import time

import torch
import torch.distributed as dist

from . import checkpoint, data, failure
from . import device_mesh as _mesh
from . import optimizer as _optimizer
from . import schedules
from .arguments import DTYPES, get_args
from .data import MicroBatches, SyntheticDataset, to_device  # noqa: F401  (generated scripts import them from here)
from .gradients import unify_tied
from .logging import Log
from .lr_schedule import LearningRate
from .original import start_from_original
from .params import ParamTable, annotate, load_stage
from .pipeline import PipelineExecutor
from .random import manual_seed
from .recompute import recompute


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


class _Trainer:
    """One run of `pretrain` on one rank."""

    def __init__(self, args, model_provider, forward_step_func):
        self.args, self.forward_step_func = args, forward_step_func
        m = self.mesh = _mesh.initialize(args.tensor_model_parallel_size, args.pipeline_model_parallel_size, backend=args.backend,
                                         timeout_s=60 * args.distributed_timeout_minutes)
        m.place_stages(schedules.placement_of(args.schedule, m.pp, args.virtual_stages))
        manual_seed(args.seed)
        dtype = DTYPES[args.dtype]
        data.input_dtype = dtype if dtype in _optimizer.LOW else None
        self.stages: dict[int, torch.nn.Module] = {}
        for s in m.held_stages:
            m.stage = s
            stage = model_provider(m.is_first_stage, m.is_last_stage).to(device=m.device)
            self.stages[s] = stage if args.dtype == "f32" else stage.to(dtype=dtype)
            if not hasattr(stage, "set_input_tensor"):
                stage.set_input_tensor = lambda received, stage=stage: setattr(stage, "input_tensor", received)
        m.stage = m.held_stages[0]
        self.table = ParamTable.load(args.params) if os.path.exists(args.params) else None
        if self.table and len(m.placement) > 1 and self.table.stages != len(m.placement):
            raise SystemExit(f"{args.params} is for {self.table.stages} pipeline stages, --pipeline-model-parallel-size {m.pp} with "
                             f"{args.virtual_stages} stage(s) a rank needs {len(m.placement)}")
        self._start_values()
        if len(self.stages) > 1:
            unify_tied(self.stages.values())
        self.model = next(iter(self.stages.values())) if len(self.stages) == 1 else torch.nn.ModuleList(self.stages.values())
        self.checks = [failure.FiniteCheck(stage) for stage in self.stages.values()] if args.check_for_nan_in_loss_and_grad else []
        if args.recompute_granularity:
            for stage in self.stages.values():
                recompute(stage, args.recompute_granularity, args.recompute_modules)
        self._make_optimizer()
        self.count = _micro_batches(args, m.dp)
        self.batch = self.count * args.micro_batch_size * m.dp
        if args.train_samples:
            args.train_iters = -(-args.train_samples // self.batch)
        decay = args.lr_decay_iters or args.train_iters
        warmup = int(args.lr_warmup_fraction * decay) if args.lr_warmup_fraction is not None else args.lr_warmup_iters
        self.lr = LearningRate(args.lr, args.min_lr, warmup, decay, args.lr_decay_style, args.lr_warmup_init, args.lr_wsd_decay_iters,
                               args.weight_decay, args.end_weight_decay)
        reducer = self.optimizer.reducer
        self.executor = PipelineExecutor(list(self.stages.values()), m, args.schedule, split_backward=not args.recompute_granularity,
                                         before_last=reducer.arm if reducer else None)
        self.iteration = self.consumed = 0
        self.best, self.worse = math.inf, 0
        params = open(args.params).read() if self.table is not None else None
        self.saver = checkpoint.Checkpoints(args.save, self.table, params, args.keep) if args.save else None
        self._resume()
        if not args.load:
            _optimizer.broadcast_tied(self.model)
            self.optimizer.refresh()
        self.reports: list[dict] = []

    def _start_values(self):
        """From a file of the original, from the original itself, or as the stages drew them."""
        args, m = self.args, self.mesh
        if args.load and os.path.isfile(args.load):
            if self.table is None:
                raise SystemExit(f"--load {args.load} needs the layouts: --params params.yaml")
            if args.load.endswith(".safetensors"):
                from safetensors.torch import load_file
                state = load_file(args.load)
            else:
                state = torch.load(args.load, map_location="cpu", weights_only=True)
                state = state.get("state", state)
            for s, stage in self.stages.items():
                load_stage(stage, self.table, s, state)
        elif self.table is not None:
            for s, stage in self.stages.items():
                annotate(stage, self.table, s)
            if args.init == "original" and not args.load:
                why = start_from_original(self.stages, self.table, os.path.dirname(os.path.abspath(args.params)), args.seed)
                if why and m.rank == m.ranks[0]:
                    print(f"start values are drawn stage by stage, not the single-GPU program's: {why} (--init local says so)", flush=True)

    def _make_optimizer(self):
        args = self.args
        scaler = None
        if args.dtype == "f16":
            scaler = _optimizer.LossScaler(args.loss_scale or args.initial_loss_scale, args.loss_scale is None, args.min_loss_scale,
                                           args.loss_scale_window, args.hysteresis)
        options = dict(lr=args.lr, weight_decay=args.weight_decay, clip_grad=args.clip_grad, zero=args.use_distributed_optimizer, scaler=scaler,
                       fp32_gradients=args.accumulate_allreduce_grads_in_fp32, overlap=args.overlap_grad_reduce, bucket_bytes=args.ddp_bucket_size,
                       check_finite=args.check_for_nan_in_loss_and_grad)
        if args.optimizer == "sgd":
            self.optimizer = _optimizer.sgd(self.model, momentum=args.sgd_momentum, **options)
        else:
            self.optimizer = _optimizer.adamw(self.model, betas=(args.adam_beta1, args.adam_beta2), eps=args.adam_eps, **options)

    def _resume(self):
        args = self.args
        if not args.load or os.path.isfile(args.load):
            self.optimizer.refresh()
            return
        try:
            saved = checkpoint.open_newest(args.load)
        except checkpoint.CheckpointError as error:
            if args.save and os.path.abspath(args.save) == os.path.abspath(args.load) and not os.path.exists(os.path.join(args.load, "latest")):
                args.load = None   # the first start of a run that continues where it was
                return
            raise SystemExit(f"--load {args.load}: {error}") from None
        fresh = args.finetune or args.no_load_optim
        index = checkpoint.load(saved, self.stages, None if fresh else self.optimizer, self.table, not (args.finetune or args.no_load_rng))
        self.optimizer.refresh() if fresh else None
        if not args.finetune:
            self.iteration, self.consumed = index["iteration"], index["extra"]["consumed"]
            self.best, self.worse = index["extra"].get("best", math.inf), index["extra"].get("worse", 0)

    # ---- steps ----
    def _forward_on(self, iterators, scale=True):
        """`iterators`: {stage: iterator}."""
        m = self.mesh

        def forward(_, stage=None):
            at = m.stage
            stage = self.stages[at] if stage is None else stage
            if self.watchdog:
                self.watchdog.alive(f"a forward on stage {at} after iteration {self.iteration}")
            output, loss_func = self.forward_step_func(iterators[at], stage)
            if not m.is_last_stage:
                return output
            loss, report = _loss_of(loss_func(output))
            self.reports.append({k: float(v) for k, v in report.items()})
            if self.args.check_for_nan_in_loss_and_grad and not bool(torch.isfinite(loss).all()):
                raise failure.NotFinite(f"{m.where()}: the loss is {float(loss)}")
            loss = loss / (self.count * m.dp)
            return self.optimizer.scale(loss) if scale else loss
        return forward

    def _mean_report(self):
        """Of the last stage, over micro-batches and dp."""
        m = self.mesh
        names = list(self.reports[0])
        mean = torch.tensor([sum(r[k] for r in self.reports) / len(self.reports) for k in names], dtype=torch.float64)
        self.reports.clear()
        if m.dp > 1:
            mean = mean.to(m.device)
            dist.all_reduce(mean, group=m.dp_group)
            mean /= m.dp
        return dict(zip(names, mean.tolist()))

    def _iterators(self, dataset, kind, start=0, workers=0):
        return {s: MicroBatches(dataset, self.args.micro_batch_size, kind, self.args.seed, start, workers) for s in self.stages}

    def train_step(self, iterators):
        for stage in self.stages.values():
            stage.train()
        self.optimizer.zero_grad()
        lr = self.lr.set(self.optimizer, self.iteration)
        self.executor.run(self.count, self._forward_on(iterators))
        norm = self.optimizer.step()
        self.iteration += 1
        self.consumed += self.batch
        return (self._mean_report() if self.mesh.holds_last_stage else {}), norm, lr

    def evaluate(self, dataset):
        for stage in self.stages.values():
            stage.eval()
        with torch.no_grad():
            self.executor.run(self.count * self.args.eval_iters, self._forward_on(self._iterators(dataset, "single"), scale=False), "forward")
        return self._mean_report() if self.mesh.holds_last_stage else {}

    def _agree(self, flag):
        """Whether any rank says so."""
        group = _mesh.process_group(self.mesh.ranks)
        if group is None:
            return flag
        t = torch.tensor([int(flag)], device=self.mesh.device)
        dist.all_reduce(t, dist.ReduceOp.MAX, group=group)
        return bool(t.item())

    def _stop_early(self, losses):
        if not self.args.early_stop_patience:
            return False
        if losses:
            value = next(iter(losses.values()))
            self.worse = 0 if value < self.best else self.worse + 1
            self.best = min(self.best, value)
        return self._agree(self.worse >= self.args.early_stop_patience)

    def save(self):
        self.saver.save(self.iteration, self.stages, None if self.args.no_save_optim else self.optimizer,
                        {"consumed": self.consumed, "best": self.best if math.isfinite(self.best) else 1e300, "worse": self.worse}, self.args.async_save)

    def run(self, train, valid):
        args, m = self.args, self.mesh
        began = time.monotonic()
        log = Log(m.holds_last_stage and m.tp_rank == 0 and m.dp_rank == 0, args.train_iters, args.log_json, args.tensorboard_dir)
        signals = failure.Signals()
        self.watchdog = failure.Watchdog(args.watchdog_seconds) if args.watchdog_seconds else None
        history, saved_at, clock, logged = [], -1, time.perf_counter(), self.iteration
        if args.skip_train:
            if valid is not None:
                log.evaluation(self.iteration, self.evaluate(valid))
            return history
        iterators = self._iterators(train, args.dataloader_type, self.consumed, args.num_workers)
        while self.iteration < args.train_iters:
            losses, norm, lr = self.train_step(iterators)
            if losses:
                history.append(losses)
            if self.iteration % args.log_interval == 0:
                now = time.perf_counter()
                extra = {"loss scale": self.optimizer.scaler.scale} if self.optimizer.scaler else None
                log.step(self.iteration, losses, norm, lr, (now - clock) / (self.iteration - logged), self.batch, self.optimizer.skipped, extra)
                clock, logged = now, self.iteration
            if args.check_sync_interval and self.iteration % args.check_sync_interval == 0:
                failure.check_synchronised(self.model, self.iteration)
            stop = None
            if args.eval_interval and valid is not None and self.iteration % args.eval_interval == 0:
                losses = self.evaluate(valid)
                log.evaluation(self.iteration, losses)
                stop = "no better evaluation" if self._stop_early(losses) else None
            if args.exit_interval and self.iteration % args.exit_interval == 0:
                stop = "--exit-interval"
            if args.exit_duration_in_mins and self._agree(time.monotonic() - began > 60 * args.exit_duration_in_mins):
                stop = "--exit-duration-in-mins"
            if signals.asked():
                stop = "SIGTERM"
            if self.saver and (stop or self.iteration == args.train_iters or args.save_interval and self.iteration % args.save_interval == 0):
                self.save()
                saved_at = self.iteration
            if stop:
                log.say(f"ends after iteration {self.iteration}: {stop}" + (f"; saved in {args.save}" if saved_at == self.iteration else ""))
                break
        if self.saver:
            self.saver.wait()
        if self.watchdog:
            self.watchdog.stop()
        signals.restore()
        log.close()
        return history


def pretrain(train_valid_test_dataset_provider, model_provider, forward_step_func, model_type=None, process_non_loss_data_func=None,
             extra_args_provider=None, args_defaults=None):
    """Trains. `model_provider(pre_process, post_process)` builds the stage `mesh().stage` (called once for each that this rank holds);
    `forward_step_func(data_iterator, model)` returns (output, loss_func), loss_func(output) is called on the last stage;
    `train_valid_test_dataset_provider(samples)` returns three data sets (later ones may be None). Returns the losses of the last stage, by
    iteration. An error on any rank ends all (failure.py)."""
    args = get_args(extra_args_provider, args_defaults)
    with failure.ends_the_job():
        trainer = _Trainer(args, model_provider, forward_step_func)
        samples = [args.train_iters * trainer.batch, args.eval_iters * trainer.batch, args.eval_iters * trainer.batch]
        train, valid, _ = (list(train_valid_test_dataset_provider(samples)) + [None, None])[:3]
        history = trainer.run(train, valid)
        if dist.is_initialized():   # nobody leaves while others still write or wait
            dist.barrier()
        _mesh.shutdown()
    return history
