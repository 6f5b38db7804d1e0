"""The comparison: what the ranks have, put together through params.yaml, against the original's (semantics §8)."""
from __future__ import annotations

import dataclasses
import math
import re

import torch

BOUND_F64, BOUND_CASTS, BOUND_F32 = 1e-9, 1e-6, 1e-4
LOOSEST = 1e-2   # where one unit in the last place changes more, nothing can be told apart: then it is said to differ
KINDS = ["outputs", "loss", "gradients", "grad_norm", "parameters", "buffers", "initial", "start"]


@dataclasses.dataclass
class Row:
    """One tensor compared."""
    kind: str
    name: str
    difference: float      # relative; inf for None against a tensor, NaN, another shape
    note: str = ""
    bound: float = BOUND_F64
    loosened: bool = False

    @property
    def differs(self):
        return not self.difference <= self.bound


def _largest(tensors):
    values = [float(_wide(t).abs().max()) for t in tensors if t is not None and t.numel()]
    values = [v for v in values if math.isfinite(v)]
    return max(values, default=0.0)


def _wide(t):
    if t.layout != torch.strided:      # sparse buffers
        t = t.to_dense()
    return t.to(torch.complex128 if t.is_complex() else torch.float64)


def difference(a, b, largest):
    """max|a − b| / max(max|a|, 1e-6 x the largest of its kind); inf and a note for what cannot be subtracted."""
    if a is None and b is None:
        return 0.0, ""
    if a is None or b is None:
        return math.inf, "None on one side only"
    if tuple(a.shape) != tuple(b.shape):
        return math.inf, f"shape {tuple(b.shape)} instead of {tuple(a.shape)}"
    if a.numel() == 0:
        return 0.0, ""
    a, b = _wide(a), _wide(b)
    # Infinities of the same sign (masked logits) are equal; NaN never is.
    gap = torch.where(a == b, torch.zeros_like(a), a - b).abs().max()
    if not math.isfinite(float(gap)):
        return math.inf, "not finite"
    if bool(torch.isnan(a.abs()).any()):
        return math.inf, "NaN in both"
    finite = a.abs()[torch.isfinite(a.abs())]
    scale = max(float(finite.max()) if finite.numel() else 0.0, 1e-6 * largest)
    return (float(gap) / scale if scale > 0 else (0.0 if float(gap) == 0 else math.inf)), ""


@dataclasses.dataclass
class Moments:
    """What a tensor's start values look like: count, mean, mean of squares and of fourth powers (about the mean), least, largest."""
    count: int
    mean: float
    square: float
    fourth: float
    least: float
    largest: float

    @staticmethod
    def of(t):
        t = _wide(t.detach()).abs() if t.is_complex() else _wide(t.detach())
        if not t.numel():
            return Moments(0, 0.0, 0.0, 0.0, 0.0, 0.0)
        mean = float(t.mean())
        centred = t - mean
        return Moments(t.numel(), mean, float((centred ** 2).mean()), float((centred ** 4).mean()), float(t.min()), float(t.max()))

    @property
    def finite(self):
        return math.isfinite(self.mean)

    @property
    def std(self):
        return math.sqrt(self.square)

    def like(self, other):
        """The same constant; or mean and variance within eight standard errors (semantics §6: another stream, the same distribution)."""
        if self.least == self.largest or other.least == other.largest:
            return self.count < 2 or other.count < 2 or (self.least == other.least and self.largest == other.largest)
        n = min(self.count, other.count)
        error = math.sqrt(max(2 * max(x.fourth - x.square ** 2, 0.0) / n for x in (self, other)))
        scale = max(self.square, other.square)
        return (abs(self.mean - other.mean) <= 8 * math.sqrt(2 * scale / n) + 1e-12 * abs(self.mean)
                and abs(self.square - other.square) <= 8 * error + 0.02 * scale)


def merged_moments(parts):
    """Of the whole, from those of its slices."""
    n = sum(p.count for p in parts)
    if not n:
        return parts[0]
    mean = sum(p.count * p.mean for p in parts) / n
    square = sum(p.count * (p.square + (p.mean - mean) ** 2) for p in parts) / n
    fourth = sum(p.count * (p.fourth + 6 * p.square * (p.mean - mean) ** 2 + (p.mean - mean) ** 4) for p in parts) / n   # skewness left out
    return Moments(n, mean, square, fourth, min(p.least for p in parts), max(p.largest for p in parts))


class Comparison:
    """Collects rows. `ranks`: what every rank of the grid saved, with its coordinates {tp, pp, dp}."""

    suspects = {}        # start values that look drawn otherwise: {name: (the original's name, Moments)}
    uninitialised = ()   # patterns of parameters that the original's constructor leaves unset (job.verify.reinit)

    def __init__(self, reference, ranks, table, options, casts, promote):
        self.reference, self.ranks, self.table, self.options = reference, ranks, table, options
        self.bound = options.tolerance or (BOUND_F32 if options.dtype == "f32" else BOUND_CASTS if casts else BOUND_F64)
        if not options.tolerance and options.tp * options.pp * options.dp == 1:
            self.bound = 0.0   # nothing is cut: bit-equal
        self.rows: list[Row] = []
        self.shapes = {n: tuple(t.shape) for n, t in {**reference["parameters"], **reference["buffers"]}.items()}

    def _add(self, kind, name, a, b, largest):
        gap, note = difference(a, b, largest)
        self.rows.append(Row(kind, name, gap, note, self.bound))

    def at(self, tp=None, pp=None, dp=None):
        return [r for r in self.ranks if (tp is None or r["tp"] == tp) and (pp is None or r["pp"] == pp) and (dp is None or r["dp"] == dp)]

    def run(self):
        self._outputs(self.reference, lambda r: r, self.options.micro_batches, "")
        self._stage_tensors("gradients", self.reference["gradients"], lambda r: r["gradients"], "")
        for r in self.ranks:
            self._add("grad_norm", f"rank {r['rank']}", torch.tensor(self.reference["norm"]), torch.tensor(r["norm"]), 0.0)
        if self.options.steps:
            self._stage_tensors("parameters", self.reference["parameters"], lambda r: r["tensors"], "")
        self._stage_tensors("buffers", self.reference["buffers"], lambda r: r["tensors"], "")
        self._initial()
        self.suspects = self._drawn()
        self._start()
        second = self.reference["second"]
        if second:
            self._outputs(second, lambda r: r["second"], self.options.second_micro_batches, " (second batch size)")
            self._stage_tensors("gradients", second["gradients"], lambda r: r["second"]["gradients"], " (second batch size)")
        return self.rows

    def _initial(self):
        """Start values as the constructors drew them: slices differ from rank to rank, replicated tensors do not."""
        for stage in range(self.options.pp if self.options.tp > 1 else 0):
            drawn = [r["initial"] for r in self.at(pp=stage, dp=0)]
            for name in drawn[0]:
                values = {d.get(name) for d in drawn}
                e = self.table.entry(name, stage)
                if None in values or e.replicate_groups or any(re.search(r, name) for r in self.uninitialised):
                    continue
                if e.shard is not None:
                    note = "every rank draws the same slice" if len(values) == 1 and not self._alike(e) else ""
                else:
                    note = "replicated, but drawn differently by the ranks" if len(values) > 1 else ""
                self.rows.append(Row("initial", name, math.inf if note else 0.0, note, self.bound))

    def _drawn(self):
        """Start values as the constructors drew them against the original's: another pipeline stage draws other numbers, of the same
        distribution. Names whose values are not set, not the same constant, or whose moments are off; the caller looks at the last
        again at other seeds."""
        original, suspects, seen = self.reference["moments"], {}, set()
        for stage in range(self.options.pp):
            ranks = self.at(pp=stage, dp=0)
            for name in ranks[0]["moments"]:
                e = self.table.entry(name, stage)
                source = self.table.canonical(e.source)
                a = original.get(source)
                held_before = source in seen   # a tied copy: training starts with the first stage's values
                seen.add(source)
                if a is None or held_before or e.rows or e.replicate_groups or any(re.search(r, name) for r in self.uninitialised):
                    continue
                b = merged_moments([r["moments"][name] for r in ranks] if e.shard is not None else [ranks[0]["moments"][name]])
                where = name + (f" (stage {stage})" if self.options.pp > 1 else "")
                if not b.finite:
                    self.rows.append(Row("initial", where, math.inf, "is not initialised", self.bound))
                elif not a.like(b):
                    suspects[where] = (source, b)
                else:
                    self.rows.append(Row("initial", where, 0.0, "", self.bound))
        return suspects

    def drawn_otherwise(self, others):
        """`others`: {name: moments} of the original at other seeds. What none of them is like either is drawn from something else."""
        for where, (source, b) in self.suspects.items():
            alike = any(source not in o or o[source].like(b) for o in others)
            spread = [o[source] for o in [self.reference["moments"], *others] if source in o]
            varies = any(not x.like(y) for x in spread for y in spread)   # few random numbers decide: nothing can be told
            note = "" if alike or varies else f"drawn from another distribution: mean {b.mean:.3g}, deviation {b.std:.3g} instead of {spread[0].mean:.3g}, {spread[0].std:.3g}"
            self.rows.append(Row("initial", where, math.inf if note else 0.0, note, self.bound))

    def _alike(self, entry):
        """Are the original's slices equal, too (a table whose rows repeat)?"""
        original = self.table.canonical(entry.source)
        full = self.reference["start"].get(original)
        if full is None:
            return False
        slices = [entry.slice(full, tp, self.options.tp) for tp in range(self.options.tp)]
        return all(torch.equal(s, slices[0]) for s in slices)

    def _start(self):
        """What training starts from at the same seed is the original's to the last bit."""
        if any(r.get("start") is None for r in self.ranks):
            return
        first = len(self.rows)
        self._stage_tensors("start", self.reference["start"], lambda r: r["start"], "")
        for row in self.rows[first:]:
            row.bound = 0.0

    def _outputs(self, reference, of, count, suffix):
        largest = _largest([t for out in reference["outputs"] for _, t in out])
        for rank in self.at(pp=self.options.pp - 1):
            mine = of(rank)
            where = f" on rank {rank['rank']}"
            for i in range(count):
                k = rank["dp"] * count + i
                expected = reference["outputs"][k]
                got = dict(mine["outputs"][i]) if i < len(mine["outputs"]) else {}
                for path, t in expected:
                    self._add("outputs", f"{path}, micro-batch {k}{where}{suffix}", t, got.pop(path, None), largest)
                for path in got:
                    self.rows.append(Row("outputs", f"{path}, micro-batch {k}{where}{suffix}", math.inf, "not an output of the original", self.bound))
                self._add("loss", f"micro-batch {k}{where}{suffix}", reference["losses"][k],
                          mine["losses"][i] if i < len(mine["losses"]) else None, 0.0)

    def _stage_tensors(self, kind, expected, of, suffix):
        largest = _largest(expected.values())
        seen = set()
        for dp in range(self.options.dp):
            for stage in range(self.options.pp):
                ranks = sorted(self.at(pp=stage, dp=dp), key=lambda r: r["tp"])
                tensors = [of(r) for r in ranks]
                for name in tensors[0]:
                    e = self.table.entry(name, stage)
                    original = self.table.canonical(e.source)
                    if original not in expected:
                        continue   # a buffer while parameters are compared, or the other way round
                    seen.add(original)
                    a = expected[original]
                    where = (f" (stage {stage}" if self.options.pp > 1 else " (") .rstrip(" (") + (")" if self.options.pp > 1 else "")
                    where += f" (dp {dp})" if dp else ""
                    pieces = [t.get(name) for t in tensors]
                    if any(p is None for p in pieces):
                        got = None if all(p is None for p in pieces) else pieces
                        if a is None or got is None:
                            self._add(kind, name + where + suffix, a, None if got is None else next(p for p in pieces if p is not None), largest)
                        else:
                            self.rows.append(Row(kind, name + where + suffix, math.inf, "None on some tensor-parallel ranks", self.bound))
                        continue
                    if a is None:
                        self.rows.append(Row(kind, name + where + suffix, math.inf, "None in the original only", self.bound))
                        continue
                    if e.rows:
                        a = a[e.rows[0]:e.rows[1]]
                    if e.shard is None:   # every rank's copy counts
                        for tp, piece in enumerate(pieces):
                            self._add(kind, name + where + (f" (tp {tp})" if tp else "") + suffix, a, e.merge([piece], self.shapes[original]), largest)
                        continue
                    try:
                        merged = e.merge(pieces, self.shapes[original])
                    except (RuntimeError, ValueError) as error:
                        self.rows.append(Row(kind, name + where + suffix, math.inf, str(error).splitlines()[0], self.bound))
                        continue
                    self._add(kind, name + where + suffix, a, merged, largest)
                    if e.replicate_groups:   # repeated slices must agree among themselves
                        for tp, piece in enumerate(pieces):
                            first = e.replicas(self.shapes[original], len(pieces), tp)[0]
                            if first != tp:
                                self._add(kind, f"{name}{where} (tp {tp} against tp {first}){suffix}", pieces[first], piece, largest)
        for name in expected:
            if name not in seen and expected[name] is not None and kind != "buffers":
                self.rows.append(Row(kind, name + suffix, math.inf, "in no stage of the generated program", self.bound))

    def loosen(self, perturbed):
        """The one-ulp rule: `perturbed` is the same reference from parameters changed by one ulp."""
        sensitivity = {}
        probe = Comparison(self.reference, [], self.table, self.options, False, False)
        probe.bound = self.bound
        for kind in ("gradients", "parameters", "buffers"):
            largest = _largest(self.reference[kind].values())
            for name, a in self.reference[kind].items():
                sensitivity[kind, name] = difference(a, perturbed[kind].get(name), largest)[0]
        largest = _largest([t for out in self.reference["outputs"] for _, t in out])
        for k, out in enumerate(self.reference["outputs"]):
            for (path, a), (_, b) in zip(out, perturbed["outputs"][k]):
                sensitivity["outputs", path] = max(sensitivity.get(("outputs", path), 0.0), difference(a, b, largest)[0])
        sensitivity["loss", ""] = max(difference(a, b, 0.0)[0] for a, b in zip(self.reference["losses"], perturbed["losses"]))
        sensitivity["grad_norm", ""] = abs(self.reference["norm"] - perturbed["norm"]) / max(self.reference["norm"], 1e-300)
        for row in self.rows:
            name = row.name.split(" ")[0].rstrip(",")
            if row.kind in ("gradients", "parameters", "buffers"):
                e = self.table.entries.get(name)
                name = self.table.canonical(e.source if e else name)
            elif row.kind != "outputs":
                name = ""
            s = sensitivity.get((row.kind, name), 0.0)
            if s > row.bound / 10 and math.isfinite(s):
                row.bound, row.loosened = max(row.bound, min(10 * s, LOOSEST)), True
                if 10 * s > LOOSEST and row.differs and not row.note:
                    row.note = f"{row.difference:.3g}; the original itself changes by {s:.3g} when its parameters change by one unit in the last place"


def summary(rows):
    """Per kind: how many tensors, the worst difference, its name."""
    table = {}
    for kind in KINDS:
        of = [r for r in rows if r.kind == kind]
        if not of:
            continue
        worst = max(of, key=lambda r: r.difference if not math.isnan(r.difference) else math.inf)
        table[kind] = {"compared": len(of), "worst": worst.difference, "name": worst.name, "note": worst.note,
                       "different": sum(r.differs for r in of), "loosened": sum(r.loosened for r in of),
                       "first": next((r.name + (f": {r.note}" if r.note else "") for r in of if r.differs), None)}
    return table


def split_fraction(table, reference, plan):
    """Bytes of parameters held as a strict slice ÷ bytes of the weights in the regions around them: all parameters with two or
    more dimensions whose module shares its parent with a sharded one, matrices of the block that this parent is in (the attention
    beside a split MLP), and those that the plan says could have been split."""
    parameters = reference["parameters"]
    sharded = {table.canonical(e.source) for e in table.entries.values() if e.shard is not None and not e.buffer}
    regions = {n.rpartition(".")[0].rpartition(".")[0] for n in sharded}
    blocks = {r.rpartition(".")[0] + "." for r in regions if "." in r}
    inside = {n for n, t in parameters.items() if n in sharded or (t.dim() >= 2 and n.rpartition(".")[0].rpartition(".")[0] in regions)
              or (t.dim() == 2 and any(n.startswith(b) for b in blocks))}
    inside |= {n for a in plan.get("axes") or () if a.get("given_up") for n in map(table.canonical, a["parameters"]) if n in parameters and parameters[n].dim() >= 2}
    total = sum(parameters[n].nbytes for n in inside if n in parameters)
    return sum(parameters[n].nbytes for n in sharded if n in parameters) / total if total else 0.0
