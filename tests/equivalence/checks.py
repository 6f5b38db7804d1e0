"""Run by test_runtime.py in four processes: every `check_*` function, on a mesh of its own. Names as arguments select."""
import sys
import traceback
import types
import warnings
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F

import shardwright.parallel as sw
from shardwright.parallel import device_mesh
from shardwright.parallel.params import Entry, load_stage

warnings.filterwarnings("ignore")
torch.set_default_dtype(torch.float64)
CHECKS = []


def check(tp=1, pp=1, dp=1):
    def register(function):
        CHECKS.append((function.__name__, function, (tp, pp, dp)))
        return function
    return register


def draw(*shape, seed=0, dtype=None):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)), dtype=dtype or torch.float64)


def close(a, b, what="", tolerance=1e-11):
    assert a is not None and b is not None, f"{what}: None"
    assert a.shape == b.shape, f"{what}: {tuple(a.shape)} and {tuple(b.shape)}"
    gap = float((a - b).abs().max()) if a.numel() else 0.0
    assert gap <= tolerance * max(1.0, float(b.abs().max()) if b.numel() else 0.0), f"{what}: off by {gap}"


def weigh(y):
    """A loss that tells elements apart."""
    y = torch.view_as_real(y) if y.is_complex() else y
    return (y * torch.linspace(0.5, 1.5, y.numel()).view(y.shape)).sum() + (y * y).mean()


def cut(full, dim=0, outer=1):
    return sw.ShardSpec.of(full.shape[dim], dim, outer).cut(full)


def same_gradients(pairs):
    for name, mine, full in pairs:
        close(mine, full, name)


# ---- regions ----------------------------------------------------------------------------------------------------------------
@check(tp=4)
def check_regions():
    for dtype in (torch.float64, torch.complex128, torch.float32):
        x = draw(2, 8, 3, dtype=dtype).requires_grad_()
        local = sw.scatter_to_tensor_model_parallel_region(x, 1)
        assert torch.equal(local, cut(x.detach(), 1))
        back = sw.gather_from_tensor_model_parallel_region(local * 2, 1)
        assert torch.equal(back, x * 2)
        weigh(back).backward()
        y = x.detach().clone().requires_grad_()
        weigh(y * 2).backward()
        close(x.grad, y.grad, f"scatter, gather {dtype}")
    x = draw(4, 24).requires_grad_()
    local = sw.scatter_to_tensor_model_parallel_region(x, -1, sizes=(3, 4))
    assert torch.equal(local, cut(x.detach(), 1, 3))
    assert torch.equal(sw.gather_from_tensor_model_parallel_region(local, -1, sizes=(3, 4)), x)
    x = draw(4, 24).requires_grad_()   # R -> V: padded with zeros, the sum over ranks is the gradient
    weigh(sw.local_slice(sw.copy_to_tensor_model_parallel_region(x), -1, sizes=(3, 8)) * (1 + 0)).backward()
    assert float(x.grad.abs().min()) > 0
    x = draw(3, 5, seed=sw.tp_rank()).requires_grad_()
    y = sw.reduce_from_tensor_model_parallel_region(x)
    close(y, sum(draw(3, 5, seed=r) for r in range(4)), "reduce")
    weigh(y).backward()
    z = y.detach().requires_grad_()
    weigh(z).backward()
    close(x.grad, z.grad, "reduce backward")
    x = draw(3, 4).requires_grad_()   # in place on what was copied in
    y = sw.copy_to_tensor_model_parallel_region(x * 1)
    y.mul_(2)
    y.sum().backward()
    close(x.grad, torch.full_like(x, 8.0), "in place after copy")
    ids = torch.arange(8) % 2 == 0
    assert torch.equal(sw.gather_from_tensor_model_parallel_region(cut(ids), 0), ids)


@check(tp=2)
def check_errors_name_sizes():
    for action, words in [(lambda: sw.local_slice(draw(3, 5), 1), "5"), (lambda: sw.ColumnParallelLinear(4, 7), "7"),
                          (lambda: sw.RowParallelLinear(8, 4)(draw(2, 8)), "input_is_parallel"),
                          (lambda: sw.RowParallelLinear(8, 4, input_is_parallel=False)(draw(2, 4)), "already sharded"),
                          (lambda: sw.ParallelMultiheadAttention(9, 3), "3")]:
        try:
            action()
        except (ValueError, RuntimeError) as error:
            assert words in str(error), str(error)
        else:
            raise AssertionError(f"no error that names {words}")


# ---- layers -----------------------------------------------------------------------------------------------------------------
@check(tp=4)
def check_column_and_row_linear():
    for shape in [(8,), (3, 8), (2, 3, 8), (2, 3, 2, 8), (1, 2, 3, 2, 8)]:
        for bias in (True, False):
            x = draw(*shape).requires_grad_()
            full1, full2 = nn.Linear(8, 24, bias), nn.Linear(24, 8, bias)
            for p in [*full1.parameters(), *full2.parameters()]:
                p.data = draw(*p.shape)
            column = sw.ColumnParallelLinear(8, 24, bias, stride=3)
            row = sw.RowParallelLinear(24, 8, bias, stride=3)
            with torch.no_grad():
                column.weight.copy_(cut(full1.weight, 0, 3))
                row.weight.copy_(cut(full2.weight, 1, 3))
                if bias:
                    column.bias.copy_(cut(full1.bias, 0, 3))
                    row.bias.copy_(full2.bias)
            hidden, none = column(x)
            assert none is None
            y = row(F.gelu(hidden))[0]
            weigh(y).backward()
            z = x.detach().clone().requires_grad_()
            want = full2(F.gelu(full1(z)))
            weigh(want).backward()
            close(y, want, "forward")
            same_gradients([("x", x.grad, z.grad), ("column", column.weight.grad, cut(full1.weight.grad, 0, 3)),
                            ("row", row.weight.grad, cut(full2.weight.grad, 1, 3))])
            if bias:
                same_gradients([("column bias", column.bias.grad, cut(full1.bias.grad, 0, 3)), ("row bias", row.bias.grad, full2.bias.grad)])


@check(tp=2)
def check_linear_options():
    x = draw(2, 8).requires_grad_()
    full = nn.Linear(8, 12)
    for p in full.parameters():
        p.data = draw(*p.shape)
    gathered = sw.ColumnParallelLinear(8, 12, gather_output=True, return_bias=False, stride=3)
    sliced = sw.RowParallelLinear(8, 12, input_is_parallel=False, return_bias=False)
    parts = sw.ColumnParallelLinear(8, 12, segments=[(8, (2, 4)), 4], return_bias=False)
    with torch.no_grad():
        gathered.weight.copy_(cut(full.weight, 0, 3))
        gathered.bias.copy_(cut(full.bias, 0, 3))
        sliced.weight.copy_(cut(full.weight, 1))
        sliced.bias.copy_(full.bias)
        spec = sw.ShardSpec.of(12, 0, None, [(8, (2, 4)), 4])
        parts.weight.copy_(spec.cut(full.weight))
        parts.bias.copy_(spec.cut(full.bias))
    want = full(x)
    close(gathered(x), want, "gather_output")
    close(sliced(x), want, "input_is_parallel=False")
    close(parts(x), spec.cut(want.T).T, "segments")
    for layer in (gathered, sliced):
        x.grad = None
        weigh(layer(x)).backward()
        z = x.detach().clone().requires_grad_()
        weigh(full(z)).backward()
        close(x.grad, z.grad, type(layer).__name__)
    # One copy-to-region shared by two layers that do not reduce themselves.
    a, b = sw.ColumnParallelLinear(8, 12, disable_grad_reduce=True), sw.ColumnParallelLinear(8, 12, disable_grad_reduce=True)
    c, d = sw.ColumnParallelLinear(8, 12), sw.ColumnParallelLinear(8, 12)
    c.load_state_dict(a.state_dict()), d.load_state_dict(b.state_dict())
    u, v = draw(2, 8).requires_grad_(), draw(2, 8).requires_grad_()
    with sw.counting() as shared:
        inside = sw.copy_to_tensor_model_parallel_region(u)
        (a(inside)[0].sum() + b(inside)[0].square().sum()).backward()
    with sw.counting() as each:
        (c(v)[0].sum() + d(v)[0].square().sum()).backward()
    close(u.grad, v.grad, "shared entry")
    assert each["activation_backward"] == 2 * shared["activation_backward"] == 2 * 2 * 8 * 8, (each, shared)
    with torch.no_grad():   # evaluation, and a frozen input
        assert c(draw(2, 8))[0].shape == (2, 6)
    c(draw(2, 8))[0].sum().backward()
    with torch.autocast("cpu", torch.bfloat16):
        low = sw.ColumnParallelLinear(8, 12, dtype=torch.float32)
        w = draw(2, 8).float().requires_grad_()
        low(w)[0].float().sum().backward()
    assert w.grad.dtype == torch.float32 and low.weight.grad.dtype == torch.float32


@check(tp=2)
def check_functional_row_parallel():
    x, w, b = draw(3, 8), draw(5, 8), draw(5)
    close(sw.row_parallel(F.linear, cut(x, 1), cut(w, 1), b), F.linear(x, w, b), "linear")
    close(sw.row_parallel(F.linear, cut(x, 1), cut(w, 1), bias=b), F.linear(x, w, b), "linear, keyword")
    close(sw.row_parallel(torch.addmm, b, cut(x, 1), cut(w, 1).T), F.linear(x, w, b), "addmm")
    close(sw.row_parallel(torch.matmul, cut(x, 1), cut(w, 1).T), x @ w.T, "matmul")
    image, kernel, b = draw(2, 4, 6, 6), draw(3, 4, 3, 3), draw(3)
    close(sw.row_parallel(F.conv2d, cut(image, 1), cut(kernel, 1), b, padding=1), F.conv2d(image, kernel, b, padding=1), "conv2d")
    close(sw.row_parallel(F.conv2d, cut(image, 1), cut(kernel, 1), b, 1, 1), F.conv2d(image, kernel, b, 1, 1), "conv2d, positional")
    assert sw.local_sizes((2, 8, 3), 1) == (2, 4, 3)


@check(tp=4)
def check_vocabulary_embedding():
    table, ids = nn.Embedding(12, 6, padding_idx=3), torch.tensor([[0, 3, 11], [5, 5, 7]])
    table.weight.data = draw(12, 6)
    mine = sw.VocabParallelEmbedding(12, 6, padding_idx=3)
    mine.weight.data.copy_(cut(table.weight.data))
    weigh(mine(ids)).backward()
    weigh(table(ids)).backward()
    close(mine(ids), table(ids), "forward")
    close(mine.weight.grad, cut(table.weight.grad), "gradient")
    odd = sw.VocabParallelEmbedding(13, 6)
    assert odd.weight.shape[0] == 4 and odd(torch.tensor([12])).shape == (1, 6)


@check(tp=2)
def check_convolutions():
    cases = [("Conv1d", (2, 4, 9), {}), ("Conv2d", (2, 4, 7, 6), {"padding": 1, "stride": 2}), ("Conv3d", (1, 4, 4, 5, 4), {"dilation": 1}),
             ("ConvTranspose2d", (2, 4, 5, 4), {"stride": 2, "output_padding": 1, "padding": 1}), ("ConvTranspose3d", (1, 4, 3, 3, 3), {}),
             ("Conv2d", (2, 4, 6, 6), {"padding": 1, "padding_mode": "circular"})]
    for name, shape, options in cases:
        for kind in ("Column", "Row", "Group"):
            if kind == "Group":
                options = dict(options, groups=4 if name != "Conv3d" else 2)
            full = getattr(nn, name)(4, 8, 3, **options)
            for p in full.parameters():
                p.data = draw(*p.shape)
            mine = getattr(sw, f"{kind}Parallel{name}")(4, 8, 3, **options)
            for p, q in zip(mine.parameters(), full.parameters()):
                spec = getattr(p, "shard", None)
                p.data.copy_(spec.cut(q.data) if spec else q.data)
            x = draw(*shape).requires_grad_()
            z = x.detach().clone().requires_grad_()
            want = full(z)
            channel = 1
            y = mine(x if kind == "Column" else sw.scatter_to_tensor_model_parallel_region(x, channel))[0]
            if kind != "Row":
                assert y.shape[channel] == 4
                y = sw.gather_from_tensor_model_parallel_region(y, channel)
            close(y, want, f"{kind} {name}")
            weigh(y).backward()
            weigh(want).backward()
            close(x.grad, z.grad, f"{kind} {name} input")
            for p, q in zip(mine.parameters(), full.parameters()):
                spec = getattr(p, "shard", None)
                close(p.grad, spec.cut(q.grad) if spec else q.grad, f"{kind} {name} parameter")
    x = draw(2, 4, 6, 6)
    positional = sw.GroupParallelConv2d(4, 4, 3, 1, 1, 1, 4, False)
    assert positional.groups == 2 and positional.bias is None and positional(cut(x, 1))[0].shape == (2, 2, 6, 6)


def megatron_parts():
    """What targets built on Megatron get as their support file, with Megatron's names answered by this runtime."""
    from shardwright import megatron
    megatron.answer("answered")
    text = (Path(__file__).parents[2] / "rules/targets/onescience/parallel_parts.py.mustache").read_text()
    parts = types.ModuleType("parts")
    exec(text.replace("{{{banner}}}", "").replace("{{megatron}}", "answered"), parts.__dict__)
    return parts


@check(tp=2)
def check_multihead_attention():
    def spec_cut(p, full):
        spec = getattr(p, "shard", None)
        return spec.cut(full) if spec else full

    attention_equals_torch(sw.ParallelMultiheadAttention, spec_cut)


@check(tp=2)
def check_multihead_attention_of_megatron_targets():
    parts = megatron_parts()
    attention_equals_torch(parts.ParallelMultiheadAttention, lambda p, full: parts._cut(full, *parts._layout(p)) if parts._layout(p) else full)


def attention_equals_torch(cls, local):
    """`local(parameter, full)`: the slice of the full one that the parameter holds."""
    options = [dict(), dict(batch_first=True), dict(bias=False), dict(kdim=6, vdim=10), dict(add_bias_kv=True), dict(add_zero_attn=True),
               dict(add_bias_kv=True, add_zero_attn=True, batch_first=True)]
    for o in options:
        full, mine = nn.MultiheadAttention(16, 4, **o), cls(16, 4, **o)
        names = dict(mine.named_parameters())
        assert set(names) == {n for n, _ in full.named_parameters()}, (set(names), o)
        for n, p in full.named_parameters():
            p.data = draw(*p.shape)
            names[n].data.copy_(local(names[n], p.data))
        first = o.get("batch_first", False)
        shape = (lambda n, c: (2, n, c)) if first else (lambda n, c: (n, 2, c))
        q, k, v = draw(*shape(5, 16)), draw(*shape(7, o.get("kdim", 16))), draw(*shape(7, o.get("vdim", 16)), seed=1)
        padding = torch.zeros(2, 7, dtype=torch.bool)
        padding[1, 5:] = True
        per_head = draw(8, 5, 7)
        calls = [dict(), dict(need_weights=False), dict(average_attn_weights=False), dict(key_padding_mask=padding),
                 dict(attn_mask=torch.ones(5, 7, dtype=torch.bool).triu(1)), dict(attn_mask=per_head, key_padding_mask=padding, need_weights=False)]
        for c in calls:
            results = []
            for module in (mine, full):
                inputs = [t.clone().requires_grad_() for t in (q, k, v)]
                module.zero_grad()
                out, weights = module(*inputs, **c)
                (weigh(out) + (weigh(weights) if weights is not None else 0)).backward()
                results.append((out, weights, inputs, {n: p.grad for n, p in module.named_parameters()}))
            (a, wa, xa, ga), (b, wb, xb, gb) = results
            close(a, b, f"output {o} {c}")
            assert (wa is None) == (wb is None)
            if wa is not None:
                close(wa, wb, f"weights {o} {c}")
            for s, t in zip(xa, xb):
                close(s.grad, t.grad, f"input {o} {c}")
            for n in gb:
                close(ga[n], local(names[n], gb[n]), f"{n} {o} {c}", 1e-9)
        if "kdim" not in o:   # self-attention, unbatched, causal
            x = draw(5, 16)
            close(mine(x, x, x)[0], full(x, x, x)[0], "unbatched")
            y = draw(*shape(5, 16))
            mask = nn.Transformer.generate_square_subsequent_mask(5)
            close(mine(y, y, y, attn_mask=mask, is_causal=True, need_weights=False)[0],
                  full(y, y, y, attn_mask=mask, is_causal=True, need_weights=False)[0], f"causal {o}")
            with sw.counting() as payload:
                y = y.requires_grad_()
                mine(y, y, y, need_weights=False)[0].sum().backward()
            assert payload == {"activation_forward": y.nbytes, "activation_backward": y.nbytes}, payload


@check(tp=2)
def check_shard_module():
    norm = sw.shard_module(nn.LayerNorm(8), weight=0, bias=0)
    assert norm.normalized_shape == (4,) and norm.weight.shape == (4,)
    group = sw.shard_module(nn.GroupNorm(4, 8), weight=0, bias=0)
    assert (group.num_groups, group.num_channels) == (2, 4)
    conv = sw.shard_module(nn.Conv2d(8, 8, 3, groups=8), weight=(0, None), bias=0)
    assert (conv.groups, conv.in_channels, conv.out_channels) == (4, 4, 4) and conv(draw(1, 4, 5, 5)).shape == (1, 4, 3, 3)
    fused = nn.Linear(4, 3 * 4 * 2)
    want = cut(fused.weight.data, 0, 3)
    sw.shard_module(fused, weight=(0, (3, 4, 2)), bias=(0, (3, 4, 2)))
    assert torch.equal(fused.weight, want) and fused.out_features == 12
    assert fused.weight.tensor_model_parallel and fused.weight.partition_stride == 3
    batch = sw.shard_module(nn.BatchNorm2d(8), weight=0, bias=0, running_mean=0, running_var=0)
    assert batch.num_features == 4 and batch(draw(2, 4, 3, 3)).shape == (2, 4, 3, 3)
    outer = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    sw.drop_unused(outer, ["0"])
    assert [n for n, _ in outer.named_parameters()] == ["0.weight", "0.bias"] and outer(draw(1, 4)).shape == (1, 8)
    partly = nn.Linear(4, 8)
    sw.drop_unused(partly, ["weight"])
    assert partly.bias is None and partly(draw(1, 4)).shape == (1, 8)
    asked = nn.ModuleDict({"a": nn.Sequential(nn.Linear(4, 8, dtype=torch.float64), nn.BatchNorm1d(8)), "b": nn.Linear(4, 8)})
    sw.attributes_only(asked, ["a", "b.bias"])
    assert [n for n, _ in asked.named_parameters()] == list(asked.state_dict()) == ["b.weight"]
    assert asked["a"][0].weight.shape == (8, 4) and asked["a"][1].running_mean.shape == (8,) and asked["b"].bias.isnan().all()
    assert next(asked["a"].parameters()).dtype == torch.float64 and asked["a"][0].out_features == 8
    asked.bfloat16()
    assert asked["a"][0].weight.dtype == asked["b"].bias.dtype == torch.bfloat16 and asked["a"][0].weight.shape == (8, 4)


# ---- random streams ---------------------------------------------------------------------------------------------------------
@check(tp=2, pp=2)
def check_random_streams():
    sw.manual_seed(7)
    replicated = torch.rand(4)
    with sw.get_rng_tracker().fork():
        own = torch.rand(4)
    after = torch.rand(4)
    everyone = [None] * 4
    torch.distributed.all_gather_object(everyone, (sw.tp_rank(), sw.pp_rank(), replicated, own, after))
    for a in everyone:
        for b in everyone:
            same_stage = a[1] == b[1]
            assert torch.equal(a[2], b[2]) == same_stage and torch.equal(a[4], b[4]) == same_stage
            assert torch.equal(a[3], b[3]) == (a[:2] == b[:2])
    # Recomputation draws the same: torch's own checkpoint restores all there is.
    drop, x = sw.ShardedDropout(0.5), draw(64, 64).requires_grad_()
    seen = []

    def block(x):
        y = F.dropout(drop(x), 0.5)
        seen.append(y.detach().clone())
        return y * y

    for reentrant in (True, False):
        seen.clear()
        torch.utils.checkpoint.checkpoint(block, x, use_reentrant=reentrant).sum().backward()
        assert len(seen) == 2 and torch.equal(*seen)


# ---- pipeline ---------------------------------------------------------------------------------------------------------------
class Toy(nn.Module):
    """Stages that pass everything: floats, complex, int, bool, None, a strided view, a tensor that nobody differentiates."""
    def __init__(self, index, last):
        super().__init__()
        self.index, self.last = index, last
        self.weight = nn.Parameter(draw(6, 6, seed=index) / 3)
        self.unused = nn.Parameter(draw(3, seed=index))
        self.input_tensor = None

    def set_input_tensor(self, received):
        self.input_tensor = received

    def body(self, received):
        x, skip, z, ids, flags, frozen, nothing = received
        if self.index:
            x += 0.25   # in place on what was received
        x = torch.sin(x @ self.weight)   # keeps its input, not its output: that may change in place
        side = skip * self.unused[0]
        return x, skip, z * (1 + 0.5j), ids, flags, frozen, nothing, side

    def forward(self, x=None):
        if self.index == 0:
            z = torch.complex(x, x * 2)
            received = (x, x.t().contiguous().t() * 1.5, z, torch.arange(x.shape[0]), x > 0, x.detach() * 2, None)
        else:
            received = self.input_tensor[:7]
        out = self.body(received)
        if not self.last:
            return out
        x, skip, z, ids, flags, frozen, nothing, _ = out
        assert nothing is None and ids.dtype == torch.int64 and flags.dtype == torch.bool and z.is_complex()
        return (x * skip).sum() + z.abs().sum() + (x[ids] * flags).sum() + frozen.sum()


@check(pp=4)
def check_pipeline_boundaries():
    stages = sw.pp_size()
    stage = Toy(sw.pp_rank(), sw.is_last_stage())
    executor = sw.PipelineExecutor(stage)
    whole = [Toy(i, i == stages - 1) for i in range(stages)]
    for schedule in ("1f1b", "gpipe"):
        for rows in ([3, 3, 3, 3, 3, 3, 3], [3, 2], [4], [2, 5, 2, 1, 5]):   # fewer than stages; sizes that change
            inputs = [draw(n, 6, seed=i) for i, n in enumerate(rows)]
            stage.zero_grad()
            losses = executor.run(len(rows), lambda i: stage(inputs[i]) / len(rows) if stage.last else stage(inputs[i]), schedule)
            for s in whole:
                s.zero_grad()
            expected = []
            for x in inputs:
                out = whole[0](x)
                for s in whole[1:]:
                    s.set_input_tensor(out)
                    out = s()
                (out / len(rows)).backward()
                expected.append(out / len(rows))
            mine = whole[sw.pp_rank()]
            close(stage.weight.grad, mine.weight.grad, f"{schedule} {rows}")
            assert stage.unused.grad is None and mine.unused.grad is None
            if stage.last:
                for a, b in zip(losses, expected):
                    close(a, b, "loss")
    with torch.no_grad():
        out = executor.run(3, lambda i: stage(draw(2, 6)), "forward")
    assert len(out) == (3 if stage.last else 0)


class Passing(nn.Module):
    """Stages that hand on what they do not read: from 0 to 3, from 0 to 2 in another place, from 1 to 3."""
    def __init__(self, index):
        super().__init__()
        self.index = index
        self.passes = {1: {1: 2, 2: 1}, 2: {2: 1}}.get(index, {})
        self.weight = nn.Parameter(draw(6, 6, seed=index) / 3)
        self.input_tensor = None
        self.saw = None

    def set_input_tensor(self, received):
        self.input_tensor = received
        self.saw = None if received is None else [t is not None for t in received]

    def forward(self, x=None):
        if self.index == 0:
            return torch.sin(x @ self.weight), x @ self.weight, torch.cos(x @ self.weight)
        if self.index == 1:
            x, far, near = self.input_tensor
            return torch.sin(x @ self.weight), near, far, x * 2
        if self.index == 2:
            x, near, far, own = self.input_tensor
            return torch.sin(x @ self.weight) * near, far, own
        x, far, own = self.input_tensor
        return ((x + far * 3) @ self.weight).sum() + own.sum()


@check(pp=4)
def check_passes():
    """Tensors that stages hand on unread go past them, and so do their gradients."""
    stage, whole = Passing(sw.pp_rank()), [Passing(i) for i in range(4)]
    executor = sw.PipelineExecutor(stage)
    for schedule in ("1f1b", "gpipe"):
        for rows in ([3, 3, 3, 3, 3, 3], [3, 2], [2, 5, 1]):
            stage.zero_grad()
            with sw.counting() as payload:
                losses = executor.run(len(rows), lambda i: stage(draw(rows[i], 6, seed=i)), schedule)
            assert stage.saw == {0: None, 1: [True, False, False], 2: [True, True, False, True], 3: [True, True, True]}[stage.index], stage.saw
            # far goes once, from 0 to 3; near from 0 to 2; the main path and `own` from neighbour to neighbour; gradients back
            crossing = {0: 3, 1: 2 + 1, 2: 2 + 3, 3: 3}[stage.index]
            assert payload["boundary"] == crossing * sum(rows) * 6 * 8, (stage.index, payload["boundary"], crossing * sum(rows) * 48)
            for s in whole:
                s.zero_grad()
            for i, n in enumerate(rows):
                out = whole[0](draw(n, 6, seed=i))
                for s in whole[1:]:
                    s.set_input_tensor(out)
                    out = s()
                out.backward()
                if stage.index == 3:
                    close(losses[i], out, "loss")
            close(stage.weight.grad, whole[stage.index].weight.grad, f"{schedule} {rows}")
    with torch.no_grad():
        executor.run(2, lambda i: stage(draw(2, 6)), "forward")


@check(pp=4)
def check_groups_of_some_ranks():
    m = sw.mesh()
    for stages in ([0, 3], [1, 2, 3], [0, 2]):   # ranks are in different numbers of groups when they make the next one
        if m.pp_rank in stages:
            x = torch.ones(1)
            torch.distributed.all_reduce(x, group=m.stages_group(stages))
            assert x.item() == len(stages)


@check(pp=2)
def check_boundary_errors():
    stage = nn.Identity()
    stage.set_input_tensor = lambda received: None
    if sw.pp_rank() == 0:
        try:
            sw.PipelineExecutor(stage).run(1, lambda i: (torch.ones(1), "a string"))
        except sw.PipelineError as error:
            assert "entry 1" in str(error) and "stage 0" in str(error) and "micro-batch 0" in str(error), str(error)
        else:
            raise AssertionError("a string crossed")


# ---- gradients and the norm -------------------------------------------------------------------------------------------------
@check(tp=2, pp=2)
def check_norm_counts_everything_once():
    table = sw.ParamTable({"version": 1, "stages": 2, "tensors": {
        "cut": {"dims": "a b", "shard": "a", "stage": [0]}, "whole": {"shard": None, "stage": [0]},
        "tied": {"from": "t", "dims": "a b", "shard": "a", "stage": [0]}, "again": {"from": "t", "dims": "a b", "shard": "a", "stage": [1]},
        "partial": {"shard": None, "grad_sum": "tp", "stage": [1]}}})
    state = {"cut": draw(4, 3), "whole": draw(5), "t": draw(6, 2), "partial": draw(3)}
    module = nn.Module()
    for name in ("cut", "whole", "tied") if sw.pp_rank() == 0 else ("again", "partial"):
        e = table.entries[name]
        module.register_parameter(name, nn.Parameter(torch.zeros(e.local_shape(state[e.source].shape, 2))))
    load_stage(module, table, sw.pp_rank(), state)
    gradients = {"cut": draw(4, 3, seed=5), "whole": draw(5, seed=5), "partial": draw(3, seed=5)}
    tied = [draw(6, 2, seed=6), draw(6, 2, seed=7)]
    for name, p in module.named_parameters():
        if name == "partial":
            p.grad = gradients["partial"] * (0.25 if sw.tp_rank() == 0 else 0.75)
        else:
            full = tied[sw.pp_rank()] if name in ("tied", "again") else gradients[name]
            p.grad = table.entries[name].slice(full, sw.tp_rank(), 2)
    optimizer = sw.sgd(module, lr=1.0, clip_grad=0.5)
    norm = optimizer.step()
    full = [*gradients.values(), tied[0] + tied[1]]
    want = torch.sqrt(sum((g * g).sum() for g in full))
    assert abs(norm - float(want)) < 1e-12 * float(want), (norm, want)
    factor = 0.5 / (norm + 1e-6)
    after = {**{n: state[n] - factor * g for n, g in gradients.items()}, "t": state["t"] - factor * (tied[0] + tied[1])}
    for name, full in sw.gather_stage(module, table, sw.pp_rank(), {k: tuple(v.shape) for k, v in state.items()}).items():
        close(full, after[name], name)


@check()
def check_layouts_round_trip():
    cases = [
        ({"dims": "(q h d) c", "sizes": {"q": 3, "h": 4, "d": 2}, "shard": "h"}, (24, 5), (1, 2, 4)),
        ({"dims": "o (k i)", "sizes": {"k": 2}, "shard": "i"}, (3, 16), (1, 2, 4, 8)),
        ({"segments": [{"rows": [0, 16], "dims": "(g r d) c"}, {"rows": [16, 24], "dims": "(g d) c"}, {"rows": [24, 32], "dims": "(g d) c"}],
          "sizes": {"g": 4, "r": 2, "d": 2}, "shard": "g"}, (32, 3), (1, 2, 4)),
        ({"dims": "(g d) c", "sizes": {"g": 2, "d": 3}, "shard": "g", "replicate_groups": True}, (6, 2), (1, 2, 4, 8)),
        ({"dims": "v c", "shard": "v", "pad": {"v": 16, "value": 0}}, (13, 2), (1, 2, 4, 8)),
        ({"from": {"name": "x", "rows": [4, 12]}, "dims": "(h d) c", "sizes": {"h": 4}, "shard": "h"}, (20, 2), (1, 2, 4)),
        ({"shard": None}, (3, 2), (1, 2)),
        ({"dims": "t w h", "sizes": {"h": 6}, "shard": "h"}, (3, 2, 6), (1, 2, 3, 6)),
    ]
    for data, shape, tps in cases:
        e, full = Entry.read("x", data), draw(*shape)
        want = full[e.rows[0]:e.rows[1]] if e.rows else full
        for tp in tps:
            pieces = [e.slice(full, r, tp) for r in range(tp)]
            assert all(tuple(p.shape) == e.local_shape(shape, tp) for p in pieces), (data, tp)
            assert torch.equal(e.merge(pieces, shape), want), (data, tp)
    qkv = Entry.read("x", cases[0][0]).slice(torch.arange(24.0).view(24, 1), 1, 2).flatten()
    assert qkv.tolist() == [4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23]
    for data, shape in [({"dims": "a b", "shard": "c"}, (2, 2)), ({"dims": "(a b) c", "sizes": {"a": 3}, "shard": "b"}, (4, 2)), ({"what": 1}, (2,))]:
        try:
            Entry.read("x", data).slice(draw(*shape), 0, 1)
        except sw.ParamsError:
            continue
        raise AssertionError(f"{data} was accepted")


def main():
    sys.modules["checks"] = sys.modules["__main__"]
    import checks_pipeline  # noqa: F401  (they register their own)
    import checks_layers  # noqa: F401
    import checks_training  # noqa: F401
    device_mesh.init_process_group("gloo", 60)
    rank, failed = torch.distributed.get_rank(), 0
    for name, function, (tp, pp, dp) in CHECKS:
        if sys.argv[1:] and not any(a in name for a in sys.argv[1:]):
            continue
        mesh = sw.initialize(tp, pp, dp, ranks=list(range(tp * pp * dp)))
        if mesh is not None:
            torch.manual_seed(0)
            try:
                function()
                if rank == 0:
                    print(f"ok {name}", flush=True)
            except Exception:
                failed += 1
                print(f"FAILED {name} on rank {rank}", flush=True)
                traceback.print_exc(file=sys.stdout)
                if tp * pp * dp > 1:
                    sys.exit(1)
        torch.distributed.barrier()
    sw.shutdown()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
