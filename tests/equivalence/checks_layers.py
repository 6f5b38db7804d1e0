"""Sequence-parallel regions and layers, cross entropy over shards, norms over a divided dimension, grouped queries. Registered in checks.py's launch."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from checks import check, close, cut, draw, weigh

import shardwright.parallel as sw


@check(tp=4)
def check_sequence_regions():
    for dim in (0, 1, -1):
        x = draw(8, 4, 8).requires_grad_()
        local = sw.scatter_to_sequence_parallel_region(x, dim)
        assert torch.equal(local, cut(x.detach(), dim))
        weigh(sw.gather_from_sequence_parallel_region(local * 2, False, dim)).backward()
        y = x.detach().clone().requires_grad_()
        weigh(y * 2).backward()
        close(x.grad, y.grad, "scatter, gather")
        x = draw(8, 4, 8, seed=sw.tp_rank()).requires_grad_()
        total = sum(draw(8, 4, 8, seed=r) for r in range(4))
        part = sw.reduce_scatter_to_sequence_parallel_region(x, dim)
        close(part, cut(total, dim), "reduce-scatter")
        weigh(sw.gather_from_sequence_parallel_region(part, False, dim)).backward()
        z = total.clone().requires_grad_()
        weigh(z).backward()
        close(x.grad, z.grad, "reduce-scatter backward")


@check(tp=2)
def check_sequence_parallel_block():
    """norm, column, row on parts of the sequence: as the same block on one rank, with the norm's and the bias's gradients summed."""
    full = nn.ModuleList([nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)])
    for p in full.parameters():
        p.data = draw(*p.shape)
    norm = nn.LayerNorm(8)
    norm.load_state_dict(full[0].state_dict())
    sw.sum_gradients_over_tp(norm)
    for dim in (0, 1):
        column = sw.ColumnParallelLinear(8, 16, return_bias=False, sequence_parallel=True, sequence_dim=dim)
        row = sw.RowParallelLinear(16, 8, return_bias=False, sequence_parallel=True, sequence_dim=dim)
        with torch.no_grad():
            column.weight.copy_(cut(full[1].weight))
            column.bias.copy_(cut(full[1].bias))
            row.weight.copy_(cut(full[2].weight, 1))
            row.bias.copy_(full[2].bias)
        module = nn.ModuleList([norm, column, row])
        for m in (module, full):
            m.zero_grad()
        x, z = draw(6, 4, 8).requires_grad_(), draw(6, 4, 8).requires_grad_()
        local = sw.scatter_to_sequence_parallel_region(x, dim)
        y = sw.gather_from_sequence_parallel_region(local + row(F.gelu(column(norm(local)))), False, dim)
        want = z + full[2](F.gelu(full[1](full[0](z))))
        close(y, want, "forward")
        weigh(y).backward()
        weigh(want).backward()
        sw.finalize_gradients(module)
        for name, mine, other in (("x", x.grad, z.grad), ("norm", norm.weight.grad, full[0].weight.grad), ("column", column.weight.grad, cut(full[1].weight.grad)),
                                  ("row", row.weight.grad, cut(full[2].weight.grad, 1)), ("bias", row.bias.grad, full[2].bias.grad)):
            close(mine, other, f"{name} along {dim}")


@check(tp=4)
def check_vocabulary_cross_entropy():
    for shape, words, smoothing in (((5,), 16, 0.0), ((2, 3), 13, 0.0), ((2, 3), 13, 0.2), ((4, 1), 5, 0.1)):
        padded = -(-words // 4) * 4 + (4 if words == 5 else 0)   # with 5 words of 12 columns one rank has nothing but padding
        logits = draw(*shape, padded).requires_grad_()
        targets = torch.randint(0, words, shape, generator=torch.Generator().manual_seed(1))
        targets.flatten()[0] = -100
        mine = sw.scatter_to_tensor_model_parallel_region(logits * 3)
        loss = sw.vocab_parallel_cross_entropy(mine, targets, smoothing, vocab_size=words)
        loss_gradient = draw(*shape, seed=2)
        loss.backward(loss_gradient)
        full = logits.detach().clone().requires_grad_()
        want = F.cross_entropy((full * 3)[..., :words].flatten(0, -2), targets.flatten(), reduction="none", label_smoothing=smoothing).view(shape)
        want.backward(loss_gradient)
        close(loss, want, f"loss {shape}")
        close(logits.grad, full.grad, f"gradient {shape} {words} {smoothing}")
    with sw.counting() as payload:
        sw.vocab_parallel_cross_entropy(draw(10, 8), torch.zeros(10, dtype=torch.int64))
    assert payload == {"activation_forward": 4 * 10 * 8}, payload   # four numbers a token
    low = draw(6, 4).to(torch.bfloat16).requires_grad_()
    sw.vocab_parallel_cross_entropy(low, torch.arange(6)).sum().backward()
    assert low.grad.dtype == torch.bfloat16


@check(tp=2)
def check_norms_over_a_divided_dimension():
    for make, parallel, options in ((nn.LayerNorm, sw.ParallelLayerNorm, {}), (nn.LayerNorm, sw.ParallelLayerNorm, {"bias": False, "eps": 0.1}),
                                    (nn.LayerNorm, sw.ParallelLayerNorm, {"elementwise_affine": False}), (nn.RMSNorm, sw.ParallelRMSNorm, {}),
                                    (nn.RMSNorm, sw.ParallelRMSNorm, {"eps": 1e-3})):
        full, mine = make(12, **options), parallel(12, **options)
        for p, q in zip(full.parameters(), mine.parameters()):
            p.data = draw(*p.shape) + 1
            q.data.copy_(cut(p.data))
        x, z = draw(2, 3, 12).requires_grad_(), draw(2, 3, 12).requires_grad_()
        y = sw.gather_from_tensor_model_parallel_region(mine(sw.scatter_to_tensor_model_parallel_region(x)))
        want = full(z)
        close(y, want, f"{make.__name__} {options}")
        weigh(y).backward()
        weigh(want).backward()
        close(x.grad, z.grad, "input")
        for p, q in zip(full.parameters(), mine.parameters()):
            close(q.grad, cut(p.grad), "parameter")


@check(tp=4)
def check_grouped_queries_with_few_heads():
    """8 query heads on 4 ranks with 8, 4, 2 and 1 key and value heads."""
    for kv in (8, 4, 2, 1):
        mine = sw.ParallelGroupedQueryAttention(16, 8, kv, causal=True)
        full = {n: draw(*((kv * 2 if n[0] in "kv" else 16), 16)[:2 if n.endswith("weight") else 1]) for n, _ in mine.named_parameters()}
        with torch.no_grad():
            for n, p in mine.named_parameters():
                spec = getattr(p, "shard", None)
                p.copy_(spec.cut(full[n]) if spec else full[n])
        leaves = {n: t.clone().requires_grad_() for n, t in full.items()}
        x, z = draw(2, 5, 16).requires_grad_(), draw(2, 5, 16).requires_grad_()
        q, k, v = (F.linear(z, leaves[f"{w}_proj.weight"], leaves[f"{w}_proj.bias"]).unflatten(-1, (-1, 2)).transpose(1, 2) for w in "qkv")
        want = F.linear(F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2).flatten(2),
                        leaves["out_proj.weight"], leaves["out_proj.bias"])
        y = mine(x)
        close(y, want, f"{kv} heads")
        weigh(y).backward()
        weigh(want).backward()
        sw.finalize_gradients(mine)
        close(x.grad, z.grad, "input")
        for n, p in mine.named_parameters():
            spec = getattr(p, "shard", None)
            close(p.grad, spec.cut(leaves[n].grad) if spec else leaves[n].grad, f"{n}, {kv} heads")
        norm = sw.gradient_norm(mine)
        total = float(torch.sqrt(sum((t.grad ** 2).sum() for t in leaves.values())))
        assert abs(norm - total) < 1e-10 * total, (norm, total)


@check(tp=4)
def check_stock_layer_in_inference():
    """A stock layer whose heads stay whole while its MLP is split: torch's fused kernel would read the slices as the weights."""
    full, mine = (nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True).eval() for _ in range(2))
    for p in full.parameters():
        p.data = draw(*p.shape)
    mine.load_state_dict(full.state_dict())
    mine.linear1 = sw.ColumnParallelLinear(16, 32, gather_output=False, return_bias=False)
    mine.linear2 = sw.RowParallelLinear(32, 16, input_is_parallel=True, return_bias=False)
    x = draw(2, 3, 16)
    with torch.no_grad():
        mine.linear1.weight.copy_(cut(full.linear1.weight))
        mine.linear1.bias.copy_(cut(full.linear1.bias))
        mine.linear2.weight.copy_(cut(full.linear2.weight, 1))
        mine.linear2.bias.copy_(full.linear2.bias)
        close(mine(x), full(x), "output")
