"""The input language of job files: `f32[2,16]`, `i64[2?,16]<128`, `i64[4]2..128`, `f32[1,3]~rand`, `=expression`.

Values are a function of (seed, name, micro-batch), so that every process draws the same ones.
"""
from __future__ import annotations

import contextlib
import dataclasses
import random
import re
import zlib

import numpy
import torch

DTYPES = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16, "f16": torch.float16, "i64": torch.int64,
          "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "u8": torch.uint8, "bool": torch.bool, "c64": torch.complex64,
          "c128": torch.complex128}
_PATTERN = re.compile(r"^\s*(\w+)\s*\[([^\]]*)\]\s*(?:<\s*(-?\d+)|(-?\d+)\s*\.\.\s*(-?\d+))?\s*(?:~\s*(\w+))?\s*$")


class InputError(ValueError):
    pass


@dataclasses.dataclass
class Input:
    name: str
    expression: str | None = None
    dtype: torch.dtype | None = None
    shape: tuple[int, ...] = ()
    changeable: tuple[bool, ...] = ()
    low: int = 0
    high: int = 2
    kind: str = "normal"


def parse(name, text) -> Input:
    if not isinstance(text, str):
        return Input(name, expression=repr(text))
    if text.lstrip().startswith("="):
        return Input(name, expression=text.lstrip()[1:])
    match = _PATTERN.match(text)
    if not match or match[1] not in DTYPES:
        raise InputError(f"input {name}: {text!r} is not dtype[shape] (as f32[2,16], i64[2,16]<128, f32[1,3]~rand) nor =expression; "
                         f"types are {', '.join(DTYPES)}")
    sizes = [s.strip() for s in match[2].split(",") if s.strip()]
    try:
        shape = tuple(int(s.rstrip("?")) for s in sizes)
    except ValueError:
        raise InputError(f"input {name}: the shape [{match[2]}] must be integers, '?' behind one that may change") from None
    low, high = (0, int(match[3])) if match[3] else (int(match[4]), int(match[5])) if match[4] else (0, 2)
    if high <= low:
        raise InputError(f"input {name}: no integer is at least {low} and below {high}")
    kind = match[6] or "normal"
    if kind not in ("normal", "rand"):
        raise InputError(f"input {name}: ~{kind} is not known (~normal, ~rand)")
    return Input(name, None, DTYPES[match[1]], shape, tuple(s.endswith("?") for s in sizes), low, high, kind)


def other_sizes(inputs: list[Input]) -> list[list[Input]]:
    """The same inputs at a second batch size, to be tried in order until the original runs: sizes marked "?" doubled; then, because a
    marked one may have an upper bound (the longest sequence), all but dimension 0 halved. Without marks, dimension 0 of every input
    that has the first shaped input's size there. Dimension 0 gets one more: what is right at even sizes only would not show."""
    shaped = [i for i in inputs if i.expression is None and i.shape]
    batch = shaped[0].shape[0] if shaped else 0

    def changed(size):
        return [i if i.expression is not None or not i.shape else dataclasses.replace(
            i, shape=tuple(size(k, s) if c else s for k, (s, c) in enumerate(zip(i.shape, i.changeable)))) for i in inputs]

    if any(any(i.changeable) for i in shaped):
        return [changed(lambda k, s: 2 * s + (k == 0)), changed(lambda k, s: 2 * s + 1 if k == 0 else max(1, s // 2)),
                changed(lambda k, s: max(1, s // 2))]
    return [[dataclasses.replace(i, shape=(2 * batch + 1, *i.shape[1:])) if i.expression is None and i.shape and i.shape[0] == batch else i
             for i in inputs]]


@contextlib.contextmanager
def _seeded(seed):
    """`=torch.randn(2, 8)` gives the same numbers in every process, and leaves the generators as they were."""
    python, array = random.getstate(), numpy.random.get_state()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        random.seed(seed)
        numpy.random.seed(seed % 2**32)
        try:
            yield
        finally:
            random.setstate(python)
            numpy.random.set_state(array)


def draw(inputs: list[Input], micro_batch: int, seed: int, namespace: dict, default_dtype, device="cpu") -> dict:
    """One micro-batch: {name: value}. f32 inputs come in the default dtype of the run."""
    values: dict = {}
    for i in inputs:
        if i.expression is not None:
            with _seeded(zlib.crc32(f"{i.name}:{micro_batch}".encode()) + 7919 * seed):
                values[i.name] = eval(i.expression, dict(namespace, **values))   # the job file is the user's own code
            continue
        generator = torch.Generator().manual_seed(zlib.crc32(f"{i.name}:{micro_batch}:{i.shape}".encode()) + 7919 * seed)
        dtype = i.dtype
        if dtype.is_floating_point or dtype.is_complex:
            make = torch.rand if i.kind == "rand" else torch.randn
            value = make(i.shape, generator=generator, dtype=torch.complex128 if dtype.is_complex else torch.float64)
            if dtype == torch.float32:
                dtype = default_dtype
            elif dtype == torch.complex64 and default_dtype == torch.float64:
                dtype = torch.complex128
            value = value.to(dtype)
        elif dtype == torch.bool:
            value = torch.rand(i.shape, generator=generator) < 0.5 if i.kind == "rand" else torch.ones(i.shape, dtype=torch.bool)
        else:
            value = torch.randint(i.low, i.high, i.shape, generator=generator, dtype=dtype)
        values[i.name] = value.to(device)
    return values
