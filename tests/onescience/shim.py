"""Answers `onescience.distributed.megatron…`, which only the library's git version has, with PyPI's megatron-core (the same layers)
and with the little of its training package that generated code reads. On Gloo: no GPU is needed."""
import importlib
import importlib.abc
import importlib.machinery
import os
import sys
import types

PREFIX = "onescience.distributed.megatron"


class _Alias(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """onescience.distributed.megatron.core.X is megatron.core.X."""

    def find_spec(self, full, path=None, target=None):
        if full == PREFIX or full.startswith(PREFIX + "."):
            return importlib.machinery.ModuleSpec(full, self, is_package=True)

    def create_module(self, spec):
        name = spec.name[len(PREFIX) - len("megatron"):]
        if name == "megatron":
            module = types.ModuleType(spec.name)
            module.__path__ = []
            return module
        if name.startswith("megatron.training"):
            return _training(spec.name)
        module = importlib.import_module(name)
        if name == "megatron.core.tensor_parallel.random":
            import torch
            module.model_parallel_cuda_manual_seed = torch.manual_seed   # its streams are CUDA's
        return module

    def exec_module(self, module):
        pass


STATE = {"args": None, "config": None}


def _training(name):
    module = types.ModuleType(name)
    module.__path__ = []
    module.get_args = lambda: STATE["args"]
    module.core_transformer_config_from_args = lambda args: STATE["config"]
    module.pretrain = pretrain
    return module


def pretrain(train_valid_test_dataset_provider, model_provider, model_type=None, forward_step_func=None, extra_args_provider=None, args_defaults=None):
    """Megatron's trainer, answered by our runtime's: its schedule, its optimizer; Megatron's layers and groups. Losses of the last
    stage go to $SHIM_LOSSES; $SHIM_PARAMS is the model's params.yaml, for --save; $SHIM_SAVED gets what was trained in Megatron's format."""
    import json

    from shardwright import parallel
    from shardwright.parallel import device_mesh

    def extra(parser):
        for flag in ("num-layers", "hidden-size", "num-attention-heads", "seq-length", "max-position-embeddings"):
            parser.add_argument("--" + flag, type=int)
        return extra_args_provider(parser) if extra_args_provider else parser

    sys.argv = sys.argv + ["--dtype", "f64", "--params", os.environ.get("SHIM_PARAMS", "none"), "--init", "local", "--log-interval", "1000"]
    held = {}

    def provide(first, last):
        args = parallel.get_args()
        STATE["args"] = args
        start(args.tensor_model_parallel_size, args.pipeline_model_parallel_size)
        STATE["args"] = args
        held["stage"] = model_provider(first, last)
        return held["stage"]

    if os.environ.get("SHIM_SAVED"):   # while there are process groups
        end = device_mesh.shutdown
        device_mesh.shutdown = lambda: (save(held["stage"], os.environ["SHIM_SAVED"]), end())
    history = parallel.pretrain(train_valid_test_dataset_provider, provide, forward_step_func, model_type=model_type, extra_args_provider=extra, args_defaults=args_defaults)
    if history and rank() == int(os.environ["WORLD_SIZE"]) - 1:
        json.dump([h["lm loss"] for h in history], open(os.environ["SHIM_LOSSES"], "w"))


def save(stage, folder):
    """As Megatron-LM saves with --ckpt-format torch."""
    import torch
    from megatron.core import parallel_state

    tp, pp = parallel_state.get_tensor_model_parallel_rank(), parallel_state.get_pipeline_model_parallel_rank()
    mine = os.path.join(folder, f"mp_rank_{tp:02d}_{pp:03d}")
    os.makedirs(mine, exist_ok=True)
    torch.save({"model": stage.state_dict_for_save_checkpoint(), "iteration": 1}, os.path.join(mine, "model_optim_rng.pt"))


def install(packages):
    """`packages`: folder with megatron-core (pip install --no-deps --target)."""
    if packages and packages not in sys.path:
        sys.path.append(packages)
    if not any(isinstance(f, _Alias) for f in sys.meta_path):
        sys.meta_path.insert(0, _Alias())


def start(tp, pp=1):
    """Process group, model-parallel groups, a configuration in float64; call it in every process of torch.distributed.run."""
    import torch
    import torch.distributed as dist
    from megatron.core import parallel_state, tensor_parallel
    from megatron.core.transformer.transformer_config import TransformerConfig

    if not dist.is_initialized():
        dist.init_process_group("gloo")
    torch.cuda.current_device = lambda: torch.device("cpu")
    torch.cuda.is_available = lambda: False
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=tp, pipeline_model_parallel_size=pp)
    tensor_parallel.random.initialize_rng_tracker(force_reset=True)
    tracker = tensor_parallel.get_cuda_rng_tracker()
    tracker.fork = lambda name="model-parallel-rng": torch.random.fork_rng(devices=[])   # its states are CUDA's
    torch.set_default_dtype(torch.float64)
    config = TransformerConfig(num_layers=1, hidden_size=tp * 8, num_attention_heads=tp, tensor_model_parallel_size=tp, use_cpu_initialization=True,
                               params_dtype=torch.float64, gradient_accumulation_fusion=False, pipeline_dtype=torch.float64, pipeline_model_parallel_size=pp)
    STATE["config"] = config
    STATE["args"] = types.SimpleNamespace()
    return config


def rank():
    return int(os.environ.get("RANK", 0))
