"""params.yaml: how every parameter and buffer of a generated model is cut from the original's, at any tp.

Slices and merges tensors, loads an original state dict into a stage, and sets the marks that gradients and clipping need.
"""
from __future__ import annotations

import dataclasses
import math
import re

import torch
import yaml

from . import device_mesh as _mesh
from .shards import ShardSpec


class ParamsError(ValueError):
    """params.yaml does not describe the tensor at hand."""


_KEYS = {"from", "dims", "sizes", "shard", "segments", "pad", "tied", "grad_sum", "stage", "kind", "replicate_groups", "shape", "dtype"}


def _parse_dims(text):
    """"(q h d) c" -> [["q", "h", "d"], ["c"]]"""
    dims, group = [], None
    for token in re.findall(r"\(|\)|[^\s()]+", text):
        if token == "(":
            group = []
        elif token == ")":
            dims.append(group)
            group = None
        elif group is not None:
            group.append(token)
        else:
            dims.append([token])
    return dims


@dataclasses.dataclass
class Entry:
    """One tensor of the generated model."""
    name: str
    source: str                 # original name
    rows: tuple[int, int] | None
    dims: list[list[str]] | None
    sizes: dict[str, int]
    shard: str | None
    segments: list | None
    pad: dict | None
    tied: list[str]
    grad_sum: bool
    stages: list[int] | None    # None: all
    buffer: bool
    replicate_groups: bool
    shape: tuple[int, ...] | None = None   # the original's, where it is written down

    @staticmethod
    def read(name, data):
        data = dict(data or {})
        unknown = set(data) - _KEYS
        if unknown:
            raise ParamsError(f"params.yaml: {name}: unknown key {sorted(unknown)[0]!r}; there are {', '.join(sorted(_KEYS))}")
        source, rows = data.get("from", name), None
        if isinstance(source, dict):
            rows = tuple(source["rows"]) if source.get("rows") else None
            source = source["name"]
        stages = data.get("stage")
        if isinstance(stages, int):
            stages = [stages]
        tied = data.get("tied") or []
        return Entry(name, source, rows, _parse_dims(data["dims"]) if data.get("dims") else None, dict(data.get("sizes") or {}),
                     data.get("shard"), data.get("segments"), data.get("pad"), [tied] if isinstance(tied, str) else list(tied),
                     data.get("grad_sum") == "tp", list(stages) if stages is not None else None, data.get("kind") == "buffer",
                     bool(data.get("replicate_groups")), tuple(data["shape"]) if data.get("shape") else None)

    def on(self, stage):
        return self.stages is None or stage in self.stages

    def _fail(self, why):
        raise ParamsError(f"params.yaml: {self.name}: {why}")

    def _product(self, factors, size):
        """(outer, sharded) of a dimension of `size` with these factor names."""
        known = math.prod(self.sizes[f] for f in factors if f in self.sizes)
        free = [f for f in factors if f not in self.sizes]
        if len(free) > 1 or known == 0 or size % known or (not free and known != size):
            self._fail(f"a dimension of size {size} is no product ({' '.join(factors)}) with sizes {self.sizes}")
        of = {f: self.sizes.get(f, size // known) for f in factors}
        at = factors.index(self.shard)
        return math.prod(of[f] for f in factors[:at]), of[self.shard]

    def spec(self, shape):
        """The cut of an original tensor of this (row-selected, padded) shape; None when it is replicated."""
        if self.shard is None:
            return None
        if self.segments:
            parts, at = [], 0
            dim = None
            for segment in self.segments:
                dims = _parse_dims(segment["dims"])
                first, last = segment["rows"]
                if first != at:
                    self._fail(f"segment rows {segment['rows']} do not continue at {at}")
                holder = [i for i, d in enumerate(dims) if self.shard in d]
                if len(holder) != 1 or (dim is not None and holder[0] != dim):
                    self._fail(f"the sharded factor {self.shard!r} must be in one and the same dimension of every segment")
                dim = holder[0]
                parts.append((last - first, *self._product(dims[dim], last - first)))
                at = last
            if at != shape[dim]:
                self._fail(f"segments end at {at}, the dimension has {shape[dim]}")
            return ShardSpec(dim, tuple(parts))
        if self.dims is None or len(self.dims) != len(shape):
            self._fail(f"dims {self.dims} do not fit a tensor of shape {tuple(shape)}")
        holder = [i for i, d in enumerate(self.dims) if self.shard in d]
        if len(holder) != 1:
            self._fail(f"the sharded factor {self.shard!r} must be in exactly one dimension of {self.dims}")
        dim = holder[0]
        return ShardSpec(dim, ((shape[dim], *self._product(self.dims[dim], shape[dim])),))

    def _groups(self, tp, spec):
        """(parts to cut into, ranks that share one part)."""
        count = spec.segments[0][2] or spec.segments[0][0] // spec.segments[0][1]
        if self.replicate_groups and tp > count:
            if tp % count:
                self._fail(f"tp {tp} is no multiple of the {count} groups")
            return count, tp // count
        return tp, 1

    def replicas(self, shape, tp, rank):
        """Tensor-parallel ranks that hold the same slice as `rank` (one unless groups are repeated)."""
        spec = self.spec(self._selected_shape(shape))
        if spec is None:
            return [rank]
        _, share = self._groups(tp, spec)
        return list(range(rank // share * share, (rank // share + 1) * share))

    def _pad_amount(self, shape):
        """(dimension, padded size, value) or None."""
        if not self.pad:
            return None
        factor = next(k for k in self.pad if k != "value")
        holder = [i for i, d in enumerate(self.dims or []) if factor in d]
        if len(holder) != 1 or len(self.dims[holder[0]]) != 1:
            self._fail(f"pad: the factor {factor!r} must be a dimension of its own")
        return holder[0], int(self.pad[factor]), self.pad.get("value", 0)

    def _selected_shape(self, shape):
        shape = list(shape)
        if self.rows:
            shape[0] = self.rows[1] - self.rows[0]
        pad = self._pad_amount(shape)
        if pad:
            shape[pad[0]] = pad[1]
        return shape

    def local_shape(self, shape, tp):
        """Shape of the slice of an original tensor of `shape`."""
        shape = self._selected_shape(shape)
        spec = self.spec(shape)
        if spec is not None:
            shape[spec.dim] = spec.local_size(self._groups(tp, spec)[0])
        return tuple(shape)

    def original_shape(self, local, tp):
        """Shape of the original from a slice's: as written down, else multiplied up (padding then counts as part of it). For a tensor cut
        from rows of a larger one: as far as these rows go."""
        if self.shape is not None:
            return tuple(self.shape)
        shape = list(local)
        if self.shard is not None:
            if self.segments:
                holders = {i for s in self.segments for i, d in enumerate(_parse_dims(s["dims"])) if self.shard in d}
                shape[holders.pop()] = self.segments[-1]["rows"][1]
            else:
                dim = next(i for i, d in enumerate(self.dims) if self.shard in d)
                size = self.sizes.get(self.shard)
                shape[dim] *= size if self.replicate_groups and size and tp > size else tp
        if self.rows:
            shape[0] = self.rows[1]
        return tuple(shape)

    def slice(self, full, rank, tp):
        """The slice of the original tensor for tensor-parallel rank `rank` of `tp` (a copy)."""
        if self.rows:
            full = full[self.rows[0]:self.rows[1]]
        pad = self._pad_amount(full.shape)
        if pad and pad[1] > full.shape[pad[0]]:
            extra = list(full.shape)
            extra[pad[0]] = pad[1] - full.shape[pad[0]]
            full = torch.cat([full, full.new_full(extra, pad[2])], pad[0])
        spec = self.spec(full.shape)
        if spec is None:
            return full.clone()
        parts, share = self._groups(tp, spec)
        try:
            return spec.cut(full, rank // share, parts)
        except ValueError as error:
            self._fail(str(error))

    def merge(self, locals_, shape):
        """The original's part (its rows, without padding) from the slices of all tensor-parallel ranks. `shape`: the original's."""
        selected = self._selected_shape(shape)
        spec = self.spec(selected)
        if spec is None:
            out = locals_[0]
        else:
            parts, share = self._groups(len(locals_), spec)
            mine, pieces, at = locals_[::share], [], 0
            for size, outer, _ in spec.segments:
                length = size // parts
                cuts = [t.narrow(spec.dim, at, length).unflatten(spec.dim, (outer, length // outer)) for t in mine]
                pieces.append(torch.cat(cuts, spec.dim + 1).flatten(spec.dim, spec.dim + 1))
                at += length
            out = torch.cat(pieces, spec.dim)
        pad = self._pad_amount(shape)
        if pad:
            whole = (self.rows[1] - self.rows[0]) if self.rows and pad[0] == 0 else shape[pad[0]]
            out = out.narrow(pad[0], 0, whole)
        return out


class ParamTable:
    """params.yaml, read."""

    def __init__(self, data, where="params.yaml"):
        if not isinstance(data, dict) or not isinstance(data.get("tensors"), dict):
            raise ParamsError(f"{where}: expected a mapping with the key 'tensors'")
        if data.get("version", 1) != 1:
            raise ParamsError(f"{where}: version {data['version']} is not known (1 is)")
        self.stages = int(data.get("stages", 1))
        self.entries = {name: Entry.read(name, value) for name, value in data["tensors"].items()}
        self._alias: dict[str, str] = {}
        self._under: dict[str, str] = {}   # a tied name without an entry of its own: the entry that describes it
        for e in self.entries.values():
            for other in e.tied:
                self._alias[other] = e.source
                self._under.setdefault(other, e.name)
        for e in self.entries.values():   # a tied generated name that is cut from another original name
            if e.name in self._alias and e.source != e.name and not e.rows:
                self._alias.setdefault(e.source, self._alias[e.name])

    @staticmethod
    def load(path):
        try:
            with open(path) as f:
                return ParamTable(yaml.safe_load(f), str(path))
        except FileNotFoundError:
            raise ParamsError(f"{path} does not exist: it is written beside the generated package by convert") from None
        except yaml.YAMLError as error:
            raise ParamsError(f"{path} is not valid YAML: {error}") from None

    def set_aliases(self, aliases):
        """Names of the original that are one tensor: {name: first name}."""
        for name, first in aliases.items():
            if name != first:
                self._alias[name] = first

    def canonical(self, original):
        seen = set()
        while original in self._alias and original not in seen and self._alias[original] != original:
            seen.add(original)
            original = self._alias[original]
        return original

    def holders(self, canonical, rows=None):
        """Stages that hold this original tensor."""
        stages = set()
        for e in self.entries.values():
            if self.canonical(e.source) == canonical and e.rows == rows:
                stages |= set(range(self.stages) if e.stages is None else e.stages)
        return sorted(stages)

    def entry(self, name, stage):
        e = self.entries.get(name) or self.entries.get(self._under.get(name))
        if e is None:
            raise ParamsError(f"stage {stage} has a tensor {name!r} that params.yaml does not describe")
        if not e.on(stage):
            raise ParamsError(f"stage {stage} has a tensor {name!r}, params.yaml says it is on stage {e.stages}")
        return e


def stage_tensors(module):
    """(name, tensor, is buffer) of a stage, tied names repeated."""
    for name, p in module.named_parameters(remove_duplicate=False):
        yield name, p, False
    for name, b in module.named_buffers(remove_duplicate=False):
        yield name, b, True


def annotate(module, table, stage, shapes=None):
    """Sets on every parameter of the stage what finalize_gradients and the norm read: the original's name, the stages that
    hold it, whether its gradient is summed over tp, ranks that repeat the same slice."""
    m = _mesh.mesh()
    for name, p, is_buffer in stage_tensors(module):
        if is_buffer:
            continue
        e = table.entry(name, stage)
        p.original_name = table.canonical(e.source)
        p.holder_stages = table.holders(p.original_name, e.rows)
        p.tensor_model_parallel = e.shard is not None and m.tp > 1
        if e.grad_sum:
            p.sum_gradient_over_tp = True
        p.replicas = e.replicas(shapes[e.source], m.tp, m.tp_rank) if shapes and e.replicate_groups else [m.tp_rank]


def load_stage(module, table, stage, state, strict=True):
    """Loads the slices of an original state dict into a stage and annotates it. Returns the names that were loaded."""
    m = _mesh.mesh()
    loaded = []
    with torch.no_grad():
        for name, tensor, is_buffer in stage_tensors(module):
            e = table.entry(name, stage)
            source = e.source if e.source in state else table.canonical(e.source)
            if source not in state:
                if is_buffer or not strict:   # not persistent: what the constructor made
                    continue
                raise ParamsError(f"{name}: the original state dict has no {e.source!r}")
            local = e.slice(state[source], m.tp_rank, m.tp)
            if tuple(local.shape) != tuple(tensor.shape):
                raise ParamsError(f"stage {stage}: {name} has shape {tuple(tensor.shape)} in the generated model; params.yaml cuts "
                                  f"{tuple(local.shape)} from the original's {tuple(state[source].shape)} at tp {m.tp}")
            built = getattr(tensor, "shard", None)
            if built is not None and m.tp > 1 and not e.replicate_groups:
                spec = e.spec(e._selected_shape(state[source].shape))
                if spec is None or (spec.dim, spec.blocks()) != (built.dim, built.blocks()):
                    raise ParamsError(f"stage {stage}: {name} is built to be cut along dimension {built.dim} in blocks {built.blocks()}, "
                                      f"params.yaml says " + (f"dimension {spec.dim} in blocks {spec.blocks()}" if spec else "replicated")
                                      + " (see stride= and segments= of the layer)")
            tensor.copy_(local)
            loaded.append(name)
    annotate(module, table, stage, {k: tuple(v.shape) for k, v in state.items()})
    return loaded


def merge_originals(table, per_stage, shapes):
    """Full originals from the slices of all ranks. `per_stage`: {stage: [{generated name: local tensor} for each tp rank]};
    `shapes`: {original name: shape}. Tensors cut from rows of one original are put together. Raises ParamsError for rows that no
    stage holds."""
    whole: dict[str, torch.Tensor] = {}
    rows: dict[str, dict[tuple[int, int], torch.Tensor]] = {}
    for stage, ranks in per_stage.items():
        for name in ranks[0]:
            e = table.entry(name, stage)
            original = table.canonical(e.source)
            full = e.merge([r[name] for r in ranks], shapes[original])
            if e.rows is None:
                whole[original] = full
            else:
                rows.setdefault(original, {})[e.rows] = full
    for original, parts in rows.items():
        at = 0
        for first, last in sorted(parts):
            if first > at:
                raise ParamsError(f"{original}: rows {at} to {first} are in no stage")
            at = max(at, last)
        if at != shapes[original][0]:
            raise ParamsError(f"{original}: rows {at} to {shapes[original][0]} are in no stage")
        out = next(iter(parts.values())).new_empty(shapes[original])
        for (first, last), part in parts.items():
            out[first:last] = part
        whole[original] = out
    return whole


def gather_stage(module, table, stage, shapes, gradients=False):
    """Full originals of this stage's parameters and buffers (or of the parameters' gradients) on every tensor-parallel rank."""
    m = _mesh.mesh()
    mine = {name: (t.grad if gradients else t.detach()) for name, t, is_buffer in stage_tensors(module)
            if not (gradients and (is_buffer or t.grad is None))}
    everyone = [mine]
    if m.tp > 1:
        everyone = [None] * m.tp
        torch.distributed.all_gather_object(everyone, {k: v.cpu() for k, v in mine.items()}, group=m.tp_group)
    return merge_originals(table, {stage: everyone}, shapes)
