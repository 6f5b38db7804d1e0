"""Runs the original, or one rank of the generated program, in the same way: k optimizer steps, then a second batch size."""
from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import re
import zlib

import torch

from shardwright.parallel.original import first_names, full_state

from .compare import Moments
from .inputs import other_sizes
from .job import JobError, StageCaller, StageDone, tensors_of
from .modes import CastWatch, Promote, Randomness, to_default_dtype

LEARNING_RATE, WEIGHT_DECAY, EPS = 1e-3, 0.01, 1e-6


@dataclasses.dataclass
class Options:
    """What one comparison is asked to do."""
    tp: int = 1
    pp: int = 1
    dp: int = 1
    micro_batches: int = 1
    steps: int = 3
    dtype: str = "f64"
    device: str = "cpu"
    with_dropout: bool = False
    schedule: str = "1f1b"
    tolerance: float | None = None

    @property
    def torch_dtype(self):
        return {"f64": torch.float64, "f32": torch.float32}[self.dtype]

    @property
    def second_micro_batches(self):
        return min(self.micro_batches, 2)


def record_outputs(out):
    return [(path, t.detach().to("cpu", copy=True)) for path, t in tensors_of(out)]


def perturb(model, reinit=()):
    """Adds a draw keyed by the parameter's name to every parameter, so that nothing hides behind zeros; parameters that the
    constructor leaves uninitialised (`reinit`, or not finite) are drawn anew."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            if not (p.is_floating_point() or p.is_complex()):
                continue
            generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
            noise = torch.randn(p.shape, generator=generator, dtype=torch.complex128 if p.is_complex() else torch.float64)
            noise = 0.02 * noise.to(p.dtype)
            fresh = any(re.search(r, name) for r in reinit) or not bool(torch.isfinite(p).all())
            p.copy_(noise if fresh else p + noise)


class Original:
    """The original, the reference: micro-batches one after another, plain autograd, torch's AdamW and clipping."""

    def __init__(self, job, options):
        self.job, self.options = job, options
        torch.set_default_dtype(options.torch_dtype)
        job.namespace()   # a source may set another default dtype
        torch.set_default_dtype(options.torch_dtype)
        self.model = to_default_dtype(job.build_original()).train(job.train)
        again = dict(to_default_dtype(job.build_original()).named_parameters())   # what the seed does not determine is not compared
        self.initial = {n: p.detach().to("cpu", copy=True) for n, p in self.model.named_parameters() if torch.equal(p, again[n])}
        self.moments = {n: m for n, t in self.initial.items() if (m := Moments.of(t)).finite}
        del again
        perturb(self.model, job.verify.get("reinit") or ())
        self.model.to(options.device)
        self.start = {k: v.clone() for k, v in full_state(self.model).items()}
        self.aliases = first_names(self.model)
        self.promote, self.casts, self.clip, self.shapes = False, False, None, {}
        self._probe()

    def _probe(self):
        """One forward to learn whether the model runs in this precision and whether it casts to a lower one."""
        watch = CastWatch()
        inputs = self.job.draw(0, self.options.torch_dtype, device=self.options.device)
        random = Randomness(self.model, self.job.seed, not self.options.with_dropout)
        random.begin(0)
        try:
            with watch, random.active():   # with gradients: a forward may differentiate
                self.job.call(self.model, inputs)
        except RuntimeError as error:
            if not watch.casts or self.options.dtype != "f64":
                raise
            self.promote = True
            with Promote(), random.active():
                random.begin(0)
                try:
                    self.job.call(self.model, inputs)
                except Exception:
                    raise error from None
        self.casts = watch.casts and not self.promote
        self.restore()

    def restore(self, state=None):
        with torch.no_grad():
            for name, t in [*self.model.named_parameters(), *self.model.named_buffers()]:
                t.copy_((state or self.start)[name])
        self.model.zero_grad(set_to_none=True)

    def _modes(self):
        stack = contextlib.ExitStack()
        if self.promote:
            stack.enter_context(Promote())
        return stack

    def pass_over(self, count, second=0, record=True):
        """Forward and backward of `count` micro-batches. (outputs, losses) by micro-batch."""
        outputs, losses = [], []
        random = Randomness(self.model, self.job.seed, not self.options.with_dropout)
        random.recorded = self.shapes
        with random.active(), self._modes():
            for i in range(count):
                random.begin(i)
                inputs = self.job.draw(i, self.options.torch_dtype, second, self.options.device)
                out = self.job.call(self.model, inputs)
                loss = self.job.loss(out, inputs)
                if not torch.isfinite(loss):
                    raise JobError(f"the original's own loss is {loss.item()} for the inputs of micro-batch {i}: there is nothing to compare with; give inputs that "
                                   "it can compute with, by bounds (job.inputs: f32[2,8]~rand, i64[2,8]1..9) or as an expression (mask: \"=torch.ones(8, 8).tril().bool()\")")
                (loss / count).backward()
                if record:
                    outputs.append(record_outputs(out))
                losses.append(loss.detach().cpu())
        return outputs, losses

    def gradients(self):
        return {n: None if p.grad is None else p.grad.detach().to("cpu", copy=True) for n, p in self.model.named_parameters() if p.requires_grad}

    def run(self, publish_clip=None):
        """The whole reference. `publish_clip(norm)` is called as soon as the clipping norm is known."""
        o, result = self.options, {}
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(parameters, lr=LEARNING_RATE, eps=EPS, weight_decay=WEIGHT_DECAY) if parameters else None
        for step in range(max(1, o.steps)):
            outputs, losses = self.pass_over(o.micro_batches * o.dp)
            if step == 0:
                result.update(outputs=outputs, losses=losses, gradients=self.gradients())
            norm = _norm(parameters)
            if step == 0:
                result["norm"] = norm
                self.clip = norm / 2   # so that clipping really acts
                if publish_clip:
                    publish_clip(self.clip)
            if o.steps == 0:
                break
            torch.nn.utils.clip_grad_norm_(parameters, self.clip)
            optimizer.step()
            self.model.zero_grad(set_to_none=True)
        result["parameters"] = {n: p.detach().to("cpu", copy=True) for n, p in self.model.named_parameters()}
        result["start"] = self.initial
        result["moments"] = self.moments
        result["buffers"] = {n: b.detach().to("cpu", copy=True) for n, b in self.model.named_buffers()}
        self.restore()
        result["second"] = None
        for k in range(len(other_sizes(self.job.specs))):
            try:
                outputs, losses = self.pass_over(o.second_micro_batches * o.dp, second=k + 1)
                result["second"] = dict(sizes=k + 1, outputs=outputs, losses=losses, gradients=self.gradients())
                break
            except Exception as error:   # the original itself is built for one batch size
                result.setdefault("second_error", f"{type(error).__name__}: {error}".splitlines()[0])
                self.restore()
        self.restore()
        return result


def _norm(parameters):
    """The norm that `clip_grad_norm_` computes: at 1x1 equal bits are asked for."""
    return float(torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None]))


class Generated:
    """One rank of the generated program."""

    def __init__(self, job, options, mesh, reference):
        from shardwright.parallel import ParamTable, load_stage, manual_seed
        from shardwright.parallel.original import start_from_original
        self.job, self.options, self.mesh, self.reference = job, options, mesh, reference
        torch.set_default_dtype(options.torch_dtype)
        stages = job.package().STAGES
        torch.set_default_dtype(options.torch_dtype)   # a source may set another
        manual_seed(job.seed)
        if len(stages) != options.pp:
            raise ValueError(f"the package has {len(stages)} stages, the grid has pp {options.pp}")
        self.stage = to_default_dtype(job.build_stage(mesh.pp_rank)).train(job.train).to(mesh.device)
        if not hasattr(self.stage, "set_input_tensor"):
            self.stage.set_input_tensor = lambda received: setattr(self.stage, "input_tensor", received)
        self.table = ParamTable.load(f"{job.folder}/params.yaml")
        self.table.set_aliases(reference["aliases"])
        self.load = lambda: load_stage(self.stage, self.table, mesh.pp_rank, reference["state"])
        # A package with build_original starts from that model's weights, whatever its layers draw (train.py loads them).
        starts_from_original = hasattr(job.package(), "build_original")
        if not starts_from_original:
            self._drawn()
        why = start_from_original(self.stage, self.table, job.folder, job.seed)
        if starts_from_original:
            self._drawn()
        if why:
            raise ValueError(f"start values of the original: {why}")
        self.start = self.tensors() if mesh.model_group is not None else None
        self.load()
        forward = getattr(job.entry_class, "forward", None)   # a factory has none: then stages say what they take
        self.caller = StageCaller(self.stage, mesh.pp_rank, options.pp, forward, getattr(job.package().STAGES[0], "needs_inputs", ()))

    def _drawn(self):
        self.initial = self._fingerprints()
        self.moments = {n: Moments.of(p) for n, p in self.stage.named_parameters()}

    def _fingerprints(self):
        """{name: digest of its start value as the constructor drew it}; None for constants."""
        return {n: None if p.numel() < 2 or bool((p == p.flatten()[0]).all()) else hashlib.sha1(
            p.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()).hexdigest() for n, p in self.stage.named_parameters()}

    def _modes(self):
        stack = contextlib.ExitStack()
        if self.reference["promote"]:
            stack.enter_context(Promote())
        return stack

    def pass_over(self, micro_batches, second=0, schedule=None, total=None):
        from shardwright.parallel import PipelineExecutor
        if not hasattr(self, "executor"):
            self.executor = PipelineExecutor(self.stage, self.mesh, self.options.schedule)
        total = total or micro_batches * self.mesh.dp
        outputs, losses = [], []
        random = Randomness(self.stage, self.job.seed, not self.options.with_dropout, self.reference.get("shapes"), self.mesh)

        def forward(i):
            i += self.mesh.dp_rank * micro_batches
            random.begin(i)
            inputs = self.job.draw(i, self.options.torch_dtype, second, self.mesh.device)
            try:
                out = self.job.call(self.caller, inputs)
            except StageDone as done:
                return done.outputs
            loss = self.job.loss(out, inputs)
            outputs.append(record_outputs(out))
            losses.append(loss.detach().cpu())
            return loss / total

        with random.active(), self._modes():
            self.executor.run(micro_batches, forward, schedule)
        return outputs, losses

    def tensors(self, gradients=False):
        from shardwright.parallel.params import stage_tensors
        result = {}
        for name, t, is_buffer in stage_tensors(self.stage):
            if gradients:
                if not is_buffer and t.requires_grad:
                    result[name] = None if t.grad is None else t.grad.detach().to("cpu", copy=True)
            else:
                result[name] = t.detach().to("cpu", copy=True)
        return result

    def run(self, channel):
        from shardwright.parallel import adamw, counting, finalize_gradients, gradient_norm
        o, result = self.options, {"initial": self.initial, "moments": self.moments, "start": self.start}
        optimizer = adamw(self.stage, lr=LEARNING_RATE, eps=EPS, weight_decay=WEIGHT_DECAY)
        for step in range(max(1, o.steps)):
            with counting() as payload:
                outputs, losses = self.pass_over(o.micro_batches)
                finalize_gradients(self.stage)
                norm = gradient_norm(self.stage)
            if step == 0:
                result.update(outputs=outputs, losses=losses, gradients=self.tensors(True), norm=norm, payload=dict(payload))
                optimizer.clip_grad = channel.clip()
            if o.steps == 0:
                break
            optimizer.step(finalize=False)
            optimizer.zero_grad()
        result["tensors"] = self.tensors()
        result["second"] = None
        if second := channel.second():
            self.stage.zero_grad(set_to_none=True)
            self.load()
            outputs, losses = self.pass_over(o.second_micro_batches, second=second)
            finalize_gradients(self.stage)
            result["second"] = dict(outputs=outputs, losses=losses, gradients=self.tensors(True))
        return result
