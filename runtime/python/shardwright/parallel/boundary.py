"""What crosses between two stages: tuples of tensors (entries may be None), with as little said about them as possible.

In front of every message goes one integer. Forward: 0 where shapes, types and None entries are those that the receiver expects, else the
length of a new description, which follows. Backward: which entries have a gradient (a bit each). Both sides know what is expected (what
this micro-batch had in the step before, else what the message before had), so the receiver posts its buffers before it knows
what comes; where something else comes, what was posted is filled with zeros and the right tensors follow. So a short last batch or an
evaluation with another batch size needs nothing special, and costs once. Small messages travel in one piece with their integer, large ones
beside it, without a copy.

Transfers obey the stricter rules of NCCL on every backend: no tags, one order of messages for a pair of ranks (schedules.programs),
contiguous buffers, complex as real, bool as uint8.
"""
from __future__ import annotations

import functools

import torch
import torch.distributed as dist

from . import _C

BOUNDARY, HEADER = "boundary", "header"
_DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64, torch.complex128, torch.int8, torch.uint8,
           torch.int16, torch.int32, torch.int64, torch.bool, torch.float8_e4m3fn, torch.float8_e5m2]
ELSEWHERE = -2   # an entry that travels over another link
_ABSENT = -1     # None


def describe(tensors):
    """The description that the receiver needs, as integers."""
    flat = [len(tensors)]
    for t in tensors:
        if t is None or t is ELSEWHERE:
            flat.append(_ABSENT if t is None else ELSEWHERE)
        elif t.dtype not in _DTYPES:
            raise TypeError(f"tensors of type {t.dtype} do not cross a stage boundary")
        else:
            flat += [_DTYPES.index(t.dtype), int(t.requires_grad), t.dim(), *t.shape]
    return tuple(flat)


def parse(flat):
    """-> list of None, ELSEWHERE or (dtype, requires_grad, shape)."""
    out, i = [], 1
    for _ in range(flat[0] if flat else 0):
        if flat[i] in (_ABSENT, ELSEWHERE):
            out.append(None if flat[i] == _ABSENT else ELSEWHERE)
            i += 1
        else:
            n = flat[i + 2]
            out.append((_DTYPES[flat[i]], bool(flat[i + 1]), tuple(flat[i + 3:i + 3 + n])))
            i += 3 + n
    return out


def wording(kinds):
    """What crosses, for messages."""
    return "(" + ", ".join("None" if k is None else "-" if k is ELSEWHERE else f"{str(k[0])[6:]}{list(k[2])}" for k in kinds) + ")"


def _is_tensor(kind):
    return kind is not None and kind is not ELSEWHERE


def _wire(t):
    t = t.detach()
    if t.is_complex():
        t = torch.view_as_real(t.resolve_conj())
    return (t.to(torch.uint8) if t.dtype == torch.bool else t).contiguous()


def _buffer(kind, device, make=torch.empty):
    dtype, _, shape = kind
    if dtype.is_complex:
        return make((*shape, 2), dtype=torch.empty(0, dtype=dtype).real.dtype, device=device)
    return make(shape, dtype=torch.uint8 if dtype == torch.bool else dtype, device=device)


_PACKED = 1 << 18   # bytes up to which copying costs less than a message


def _layout(tensors):
    """(offset, bytes) of every tensor behind the integer, and the length of the whole; None where they are better sent one by one."""
    at, places = 16, []
    for t in tensors:
        places.append((at, t.nbytes))
        at += -(-t.nbytes // 16) * 16
    return (places, at) if tensors and at <= _PACKED else None


def _packed_views(like, device):
    """One buffer for the integer and tensors like these: (buffer, view of the integer, views). Each view has a version counter of its
    own (`.data`): a stage that changes one tensor in place has not changed the others, which autograd may have saved."""
    places, length = _layout(like)
    whole = torch.empty(length, dtype=torch.uint8, device=device)
    return whole, whole[:8].view(torch.int64), [whole[a:a + n].view(t.dtype).view(t.shape).data for (a, n), t in zip(places, like)]


def _unwire(t, dtype):
    return torch.view_as_complex(t) if dtype.is_complex else t.to(torch.bool) if dtype == torch.bool else t


class _Expectation:
    """What one direction of one link is expected to carry; kept alike on both sides."""

    def __init__(self):
        self.last, self.by_micro_batch = None, {}

    def get(self, i):
        return self.by_micro_batch.get(i, self.last)

    def set(self, i, value):
        self.last = self.by_micro_batch[i] = value


class Transport:
    """Sends and receives messages of one rank. `rank_of(stage)`: global rank; a link is (kind, source stage, target stage)."""

    def __init__(self, group, rank_of, device, most_in_flight):
        self.group, self.rank_of, self.device, self.most = group, functools.cache(lambda stage: dist.get_group_rank(group, rank_of(stage))), device, most_in_flight
        # On Gloo directions do not wait for each other, so what follows a receive may be posted before it is complete. NCCL runs what a
        # pair of ranks exchanges in the order posted: there a message is completed at once.
        self.posts_ahead = group is not None and dist.get_backend(group) == "gloo"
        self.expected: dict[tuple[str, int, int], _Expectation] = {}
        self.posted: dict[tuple[str, int, int], tuple] = {}    # link -> message under way
        self.arrived: dict[tuple[str, int, int, int], list] = {}
        self.kinds: dict[tuple[int, int, int], list] = {}      # (source, target, micro-batch): what went forward, until its gradient crosses
        self.sends: list[tuple[object, torch.Tensor, str]] = []

    def reset(self):
        self.arrived, self.kinds = {}, {}

    def _expect(self, link, i):
        return self.expected.setdefault(link, _Expectation()).get(i)

    def _gradient_mask(self, link, i, kinds):
        """Entries whose gradient is expected: those of before where the message has the same entries, else all that can have one."""
        known = self._expect(link, i)
        able = sum(1 << k for k, kind in enumerate(kinds) if _is_tensor(kind) and kind[1])
        return known[1] & able if known is not None and known[0] == len(kinds) else able

    # ---- sending ----
    def _post_send(self, tensors, rank, what):
        for t in tensors:
            self.sends.append((self.group.send([t], rank, 0), t, what))

    def _trim(self, most):
        while len(self.sends) > most:
            work, _, what = self.sends.pop(0)
            try:
                work.wait()
            except RuntimeError as error:
                raise RuntimeError(f"{what}: {error}") from error

    def send(self, item, tensors):
        """`item`: schedules.Transfer; tensors: entries, None or ELSEWHERE."""
        kind, i, source, target = item
        rank, link = self.rank_of(target), (kind, source, target)
        what = f"sending micro-batch {i} ({'activations' if kind == 'F' else 'gradients'}) to stage {target}"
        payload = [_wire(t) for t in tensors if t is not None and t is not ELSEWHERE]
        extra = []
        if kind == "F":
            description, known = describe(tensors), self._expect(link, i)
            self.kinds[source, target, i] = parse(description)
            changed = description != known
            header, first, later = 0, payload, []
            if changed:
                header = len(description)
                first = [_buffer(k, self.device, torch.zeros) for k in parse(known or ()) if _is_tensor(k)]
                extra = [*first, torch.tensor(description, dtype=torch.int64, device=self.device)]
                later = [extra[-1], *payload]
            self.expected[link].set(i, description)
        else:
            kinds = self.kinds.pop((target, source, i))
            if len(kinds) > 62:
                raise TypeError(f"{len(kinds)} tensors cross between stages {target} and {source}: more than 62 are not supported")
            expected = self._gradient_mask(link, i, kinds)
            header = sum(1 << k for k, t in enumerate(tensors) if t is not None and t is not ELSEWHERE)
            at, real = iter(payload), {}
            for k in range(len(kinds)):
                if header >> k & 1:
                    real[k] = next(at)
            first = []
            for k in range(len(kinds)):
                if expected >> k & 1:
                    first.append(real[k] if k in real else _buffer(kinds[k], self.device, torch.zeros))
                    extra += [] if k in real else first[-1:]
            later = [t for k, t in real.items() if not expected >> k & 1]
            self.expected[link].set(i, (len(kinds), header))
        _C.count_payload(HEADER, 8 + sum(t.nbytes for t in extra))
        for t in payload:
            _C.count_payload(BOUNDARY, t.nbytes)
        if _layout(first):
            whole, number, views = _packed_views(first, self.device)
            number.fill_(header)
            for view, t in zip(views, first):
                view.copy_(t)
            first = [whole]
        else:
            first = [torch.tensor([header], dtype=torch.int64, device=self.device), *first]
        self._post_send([*first, *later], rank, what)
        self._trim(self.most)

    def finish(self):
        self._trim(0)

    # ---- receiving ----
    def post(self, item):
        """The receive's place in the order of transfers."""
        kind, i, source, target = item
        link = (kind, source, target)
        # What follows a message that is not the expected one must find its place before the next message of that rank.
        for other in [k for k in self.posted if self.rank_of(k[1]) == self.rank_of(source)]:
            self._complete(other)
        if kind == "F":
            kinds = parse(self._expect(link, i) or ())
            expected = sum(1 << k for k, d in enumerate(kinds) if _is_tensor(d))
        else:
            kinds = self.kinds[target, source, i]
            expected = self._gradient_mask(link, i, kinds)
        buffers = {k: _buffer(kinds[k], "meta") for k in range(len(kinds)) if expected >> k & 1}
        if _layout(list(buffers.values())):
            whole, header, views = _packed_views(list(buffers.values()), self.device)
            buffers, posted = dict(zip(buffers, views)), [whole]
        else:
            header = torch.empty(1, dtype=torch.int64, device=self.device)
            buffers = {k: _buffer(kinds[k], self.device) for k in buffers}
            posted = [header, *buffers.values()]
        works = self._post_receive(posted, source)
        self.posted[link] = (item, kinds, expected, header, buffers, works)
        if not self.posts_ahead:
            self._complete(link)

    def _post_receive(self, tensors, source):
        return [self.group.recv([t], self.rank_of(source), 0) for t in tensors]

    def _wait(self, works):
        for work in works:
            work.wait()

    def _complete(self, link):
        item, kinds, expected, header, buffers, works = self.posted.pop(link)
        kind, i, source, target = item
        works[0].wait()
        said = int(header)
        self._wait(works[1:])
        if kind == "F":
            if said:
                description = torch.empty(said, dtype=torch.int64, device=self.device)
                self._wait(self._post_receive([description], source))
                flat = tuple(description.tolist())
                kinds = parse(flat)
                buffers = {k: _buffer(d, self.device) for k, d in enumerate(kinds) if _is_tensor(d)}
                self._wait(self._post_receive(buffers.values(), source))
                self.expected[link].set(i, flat)
            else:
                self.expected[link].set(i, self._expect(link, i))
            self.kinds[source, target, i] = kinds
        else:
            later = {k: _buffer(kinds[k], self.device) for k in range(len(kinds)) if said >> k & 1 and not expected >> k & 1}
            self._wait(self._post_receive(later.values(), source))
            buffers = {k: t for k, t in {**buffers, **later}.items() if said >> k & 1}
            self.expected[link].set(i, (len(kinds), said))
            del self.kinds[target, source, i]
        self.arrived[kind, source, target, i] = [
            _unwire(buffers[k], kinds[k][0]).requires_grad_(kind == "F" and kinds[k][1]) if k in buffers else None for k in range(len(kinds))]

    def take(self, kind, source, target, i):
        """The message's entries; waits for it."""
        key = (kind, source, target, i)
        if key not in self.arrived:
            self._complete(key[:3])
        return self.arrived.pop(key)
