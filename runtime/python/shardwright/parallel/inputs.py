"""What a generated train.py needs around random data: draws of a job's inputs, the default loss."""
from __future__ import annotations

import torch

from ..verify import inputs as _inputs
from ..verify.job import default_loss as _ramp_loss
from .data import to_device  # noqa: F401  (generated scripts import it from here)


def draw_inputs(specs: dict[str, str], generator: torch.Generator) -> dict[str, torch.Tensor]:
    """One micro-batch of the shaped inputs ({"x": "f32[2,16]", …}, the job file's notation), drawn by `generator`."""
    out = {}
    for spec in (_inputs.parse(name, text) for name, text in specs.items()):
        if spec.expression is not None:
            continue
        if spec.dtype.is_floating_point or spec.dtype.is_complex:
            make = torch.rand if spec.kind == "rand" else torch.randn
            out[spec.name] = make(spec.shape, generator=generator, dtype=spec.dtype)
        elif spec.dtype == torch.bool:
            out[spec.name] = torch.rand(spec.shape, generator=generator) < 0.5
        else:
            out[spec.name] = torch.randint(spec.low, spec.high, spec.shape, generator=generator, dtype=spec.dtype)
    return out


def constants(specs: dict[str, str]) -> dict:
    """The inputs that are expressions ("=None"); those that need the model's own names are left out."""
    out = {}
    for name, text in specs.items():
        spec = _inputs.parse(name, text)
        if spec.expression is not None:
            try:
                out[name] = eval(spec.expression, {"torch": torch})  # the job file is the user's own
            except NameError:
                pass
    return out


def default_loss(output) -> torch.Tensor:
    """The model's own loss when the output is a scalar or has one; else a fixed one over all float outputs."""
    if isinstance(output, torch.Tensor) and output.dim() == 0:
        return output
    loss = getattr(output, "loss", None) if not isinstance(output, dict) else output.get("loss")
    return loss if isinstance(loss, torch.Tensor) and loss.dim() == 0 else _ramp_loss(output)
