"""The job behind a generated package: how to import and build the original, draw inputs, call it, and build its stages."""
from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import os
import runpy
import sys
import types

import torch
import yaml

from . import inputs as _inputs
from . import patches


@contextlib.contextmanager
def unset_memory_is_nan():
    """What a constructor leaves as torch.empty gave it is then seen to be so, in every process alike."""
    mode, warn = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(mode, warn_only=warn)


class JobError(ValueError):
    """The job or the generated folder cannot be used; the message says what to do."""


def _need(data, key, path, why):
    if key not in data:
        raise JobError(f"{path}: the key {key!r} is missing ({why})")
    return data[key]


def read_plan(folder):
    """plan.yaml of a generated folder, checked."""
    path = os.path.join(folder, "plan.yaml")
    if not os.path.isdir(folder):
        raise JobError(f"{folder}: no such folder; verify takes a folder that convert has written")
    if not os.path.isfile(path):
        raise JobError(f"{folder}: there is no plan.yaml in it; verify takes a folder that convert has written")
    try:
        with open(path) as f:
            plan = yaml.safe_load(f)
    except yaml.YAMLError as error:
        raise JobError(f"{path} is not valid YAML: {error}") from None
    if not isinstance(plan, dict):
        raise JobError(f"{path}: expected a mapping")
    _need(plan, "package", path, "the name of the generated package")
    job = _need(plan, "job", path, "a copy of the job that convert was given")
    _need(job, "model", path, "module:Class of the original")
    if not job.get("inputs"):
        raise JobError(f"{path}: job.inputs is empty: give dtype[shape] for each argument that forward needs")
    target = os.path.join(folder, "target.yaml")   # written by targets whose files lie in a library, not in a package of their own
    if os.path.isfile(target):
        with open(target) as f:
            plan["target"] = yaml.safe_load(f)
    elif not os.path.isdir(os.path.join(folder, plan["package"])):
        raise JobError(f"{folder}: the generated package {plan['package']}/ is missing")
    if not os.path.isfile(os.path.join(folder, "params.yaml")):
        raise JobError(f"{folder}: params.yaml is missing; convert writes it beside the package")
    return plan


class _Captured(BaseException):
    def __init__(self, args, kwargs):
        self.arguments = args, kwargs


class StageDone(BaseException):
    """Leaves the job's call expression on a stage that is not the last; carries what the stage returned."""

    def __init__(self, outputs):
        self.outputs = outputs


_prepared: set[str] = set()


class Job:
    def __init__(self, folder, plan, extra_path=(), guest=False):
        """`guest`: in a process of the generated program; what the original's source changes in PyTorch holds only while it is built."""
        self.guest, self.before = guest, None
        self.folder, self.plan, self.data = os.path.abspath(folder), plan, plan["job"]
        self.seed = int(self.data.get("seed") or 0)
        self.train = self.data.get("mode", "eval") == "train"
        self.verify = self.data.get("verify") or {}
        self.specs = [_inputs.parse(k, v) for k, v in self.data["inputs"].items()]
        self.target = plan.get("target") or {}
        root = [self.target["root"]] if self.target else []
        self.path = [self._resolve(p) for p in [*extra_path, *root, *(self.data.get("python_path") or [])]]
        self._namespace = None
        self.entry_folder = None      # where a model given by its file was imported from

    def _resolve(self, path):
        if os.path.isabs(path):
            return path
        for base in (self.folder, os.getcwd()):
            if os.path.exists(os.path.join(base, path)):
                return os.path.abspath(os.path.join(base, path))
        return os.path.abspath(os.path.join(self.folder, path))

    # ---- the original ---------------------------------------------------------------------------------------------------
    def enter(self):
        """Puts the job's folders on sys.path and runs its prepare script (once a process)."""
        self.before = patches.Snapshot()
        for p in reversed([self.folder, *self.path]):
            if p not in sys.path:
                sys.path.insert(0, p)
        if self.target.get("megatron"):
            from ..megatron import answer
            answer(self.target["megatron"])
        script = self.verify.get("prepare")
        if script:
            script = self._resolve(script)
            if not os.path.isfile(script):
                raise JobError(f"job.verify.prepare: {script} does not exist")
            if script not in _prepared:
                _prepared.add(script)
                runpy.run_path(script)

    def leave(self, keep=()):
        """Forgets the generated package and the folders that the next job does not use."""
        gone = [p for p in [self.folder, *self.path] if p not in keep]
        if self.entry_folder:      # a model given by its file: the next one's file may have the same name
            gone.append(self.entry_folder)
        sys.path[:] = [p for p in sys.path if p not in gone]
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None) or ""
            # Installed packages stay, also when the environment lies below one of the folders: torch cannot be imported twice.
            if any(file.startswith(p + os.sep) and "site-packages" not in file[len(p):] for p in gone):
                del sys.modules[name]
        importlib.invalidate_caches()
        if self.before:
            self.before.restore()

    def _entry(self):
        where, _, name = self.data["model"].rpartition(":")
        if where.endswith(".py"):
            path = self._resolve(where)
            if not os.path.isfile(path):
                raise JobError(f"job.model: {path} does not exist")
            package, folder = [os.path.splitext(os.path.basename(path))[0]], os.path.dirname(path)
            while os.path.isfile(os.path.join(folder, "__init__.py")):
                package.insert(0, os.path.basename(folder))
                folder = os.path.dirname(folder)
            if package[-1] == "__init__":
                package.pop()
            self.entry_folder = folder
            if folder in sys.path:
                sys.path.remove(folder)
            sys.path.insert(0, folder)
            where = ".".join(package)
        try:
            module = importlib.import_module(where)
        except ModuleNotFoundError as error:
            raise JobError(f"the original cannot be imported: {error} (model {self.data['model']}; folders searched: "
                           f"{', '.join(self.path) or 'none beside the interpreter’s own'}; add --python-path)") from error
        if not hasattr(module, name):
            raise JobError(f"job.model: {module.__name__} has no {name!r}")
        return module, name

    def namespace(self):
        if self._namespace is None:
            model = self.data["model"]
            with self._changes_of_torch(), patches.noted(model):
                self.module, self.class_name = self._entry()
            ns = dict(vars(self.module))
            ns.update(torch=torch, nn=torch.nn, F=torch.nn.functional, np=importlib.import_module("numpy"), math=importlib.import_module("math"))
            ns["NS"] = types.SimpleNamespace
            for name, dotted in (self.data.get("imports") or {}).items():
                ns[name] = _import(dotted)
            ns[self.class_name] = getattr(self.module, self.class_name)
            if self.data.get("setup"):
                exec(self.data["setup"], ns)
            self._namespace = ns
        return self._namespace

    @property
    def entry_class(self):
        return self.namespace()[self.class_name]

    def _changes_of_torch(self):
        """Around code of the original's: in a guest's process what it changed in PyTorch is taken off again behind it."""
        return patches.of(self.data["model"]) if self.guest else contextlib.nullcontext()

    def _evaluate(self):
        ns = self.namespace()
        with self._changes_of_torch():
            if self.data.get("build"):
                return eval(self.data["build"], ns)
            args = self.data.get("args") or {}
            return eval(f"{self.class_name}({args})", ns) if isinstance(args, str) else self.entry_class(**_tuples(args))

    def build_original(self, seed=None):
        self.namespace()   # a source may seed the generator when it is imported
        torch.manual_seed(self.seed if seed is None else seed)
        with unset_memory_is_nan():
            model = self._evaluate()
        if not isinstance(model, torch.nn.Module):
            raise JobError(f"job.build gives {type(model).__name__}, not a module")
        return model

    def constructor_arguments(self):
        """(args, kwargs) that job.build passes to the entry class, without building it."""
        cls = self.entry_class
        if not inspect.isclass(cls):
            return (), {}
        original = cls.__init__

        def record(instance, *args, **kwargs):
            raise _Captured(args, kwargs)

        # `__init__` may be inherited: what is put on the class is taken off again.
        own = "__init__" in vars(cls)
        cls.__init__ = record
        try:
            self._evaluate()
        except _Captured as captured:
            return captured.arguments
        finally:
            if own:
                cls.__init__ = original
            else:
                del cls.__init__
        return (), {}

    def draw(self, micro_batch, default_dtype, second=0, device="cpu"):
        """`second`: which of the other sizes, from 1; 0: the job's own."""
        specs = _inputs.other_sizes(self.specs)[second - 1] if second else self.specs
        return _inputs.draw(specs, micro_batch, self.seed, self.namespace(), default_dtype, device)

    def call(self, model, inputs):
        if self.data.get("call"):
            return eval(self.data["call"], dict(self.namespace(), model=model, **inputs))
        return model(**inputs) if self.data.get("keyword") else model(*inputs.values())

    def loss(self, outputs, inputs):
        text = self.verify.get("loss")
        if text:
            return eval(text, dict(self.namespace(), output=outputs, outputs=outputs, **inputs))
        return default_loss(outputs)

    # ---- the generated package ------------------------------------------------------------------------------------------
    def package(self):
        return importlib.import_module(self.plan["package"])

    def build_stage(self, stage):
        """The package knows what it was converted with; one that does not gets the job's constructor arguments."""
        package = self.package()
        torch.manual_seed(self.seed)
        try:
            with unset_memory_is_nan():
                return package.build_stage(stage)
        except TypeError as error:
            if "missing" not in str(error) or "argument" not in str(error):
                raise
            args, kwargs = self._named_arguments()
            torch.manual_seed(self.seed)
            return package.build_stage(stage, None, *args, **kwargs) if args else package.build_stage(stage, **kwargs)

    def _named_arguments(self):
        """The constructor's arguments by name, where the original's signature allows that."""
        args, kwargs = self.constructor_arguments()
        if not args:
            return args, kwargs
        signature = inspect.signature(self.entry_class.__init__)
        bound = list(signature.bind(None, *args, **kwargs).arguments.items())[1:]
        if any(signature.parameters[k].kind is inspect.Parameter.VAR_POSITIONAL for k, _ in bound):
            return args, kwargs
        named = {}
        for k, v in bound:
            named.update(v if signature.parameters[k].kind is inspect.Parameter.VAR_KEYWORD else {k: v})
        return (), named


def _import(dotted):
    module, _, attribute = dotted.rpartition(".")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError):
        return importlib.import_module(dotted)


def _tuples(value):
    """Lists of a YAML job become tuples, as constructors are usually called."""
    if isinstance(value, dict):
        return {k: _tuples(v) for k, v in value.items()}
    return tuple(_tuples(v) for v in value) if isinstance(value, list) else value


class StageCaller:
    """Stands for `model` in the job's call: binds the arguments to the original's forward and hands every stage what it
    needs."""

    def __init__(self, stage, index, stages, forward, names=()):
        """`names`: of the arguments in order, where `forward` does not tell (a decorator took its place)."""
        self.stage, self.index, self.last = stage, index, index == stages - 1
        self.signature, self.names = inspect.signature(forward) if forward is not None else None, names
        if self.signature is not None and any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in self.signature.parameters.values()):
            self.signature = None

    def __call__(self, *args, **kwargs):
        if self.index == 0:
            out = self.stage(*args, **kwargs)
        else:
            named = {**dict(zip(self.names, args)), **kwargs}
            if self.signature is not None:
                for k, v in self.signature.bind(None, *args, **kwargs).arguments.items():
                    named.update(v if self.signature.parameters[k].kind is inspect.Parameter.VAR_KEYWORD else {k: v})
            needs = getattr(self.stage, "needs_inputs", None)
            if needs is None:
                needs = [k for k in inspect.signature(self.stage.forward).parameters]
            out = self.stage(**{k: named[k] for k in needs if k in named})
        if self.last:
            return out
        raise StageDone(out)

    def __getattr__(self, name):
        return getattr(self.stage, name)


def tensors_of(value, path="out"):
    """(path, tensor) of every tensor in a result: nested sequences, mappings, objects."""
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, dict):
        for k, v in value.items():
            yield from tensors_of(v, f"{path}.{k}")
    elif isinstance(value, (list, tuple)):
        for k, v in enumerate(value):
            yield from tensors_of(v, f"{path}[{k}]")
    elif hasattr(value, "__dict__") and not callable(value):
        for k, v in vars(value).items():
            yield from tensors_of(v, f"{path}.{k}")


def default_loss(outputs):
    """A ramp-weighted mean of value and square over all float outputs: permuted outputs give another loss."""
    total = None
    for _, t in tensors_of(outputs):
        if t.is_complex():
            t = torch.view_as_real(t)
        if t.is_floating_point() and t.requires_grad:
            w = torch.linspace(0.5, 1.5, max(t.numel(), 1), dtype=t.dtype, device=t.device)[:t.numel()].view(t.shape)
            part = (t * t * w).mean() + (t * w).mean()
            total = part if total is None else total + part
    if total is None:
        raise JobError("no output of the model is a float tensor that needs a gradient: give job.verify.loss")
    return total
