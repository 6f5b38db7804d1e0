"""Run a placement of lib/sharding on simulated ranks in one process: every conversion explicit, every rank its own copies.

    sim_states.py CORPUS.yaml run_corpus.py ID UNIT_SHARDING [TP]

Unlike the prototype's sim.py, where autograd sums what ranks share, each rank here has its own parameters, and only CopyTo,
ReduceFrom and the gradient sums that lib/sharding asks for connect ranks. A conversion that is missing, or one too many, shows
as a wrong gradient. float64, all parameters perturbed.
"""
import importlib.util
import json
import operator
import os
import subprocess
import sys
import tempfile
import warnings
import torch
import yaml
warnings.filterwarnings("ignore")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from trace_of_export import Trace, aten


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, *xs): return tuple(x.view_as(x) for x in xs)
    @staticmethod
    def backward(ctx, *gs): s = sum(g for g in gs if g is not None); return tuple(s for _ in gs)


class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, *xs): s = sum(xs); return tuple(s.clone() for _ in xs)
    @staticmethod
    def backward(ctx, *gs): return gs


def cut(v, slices):
    for d, ranges in enumerate(slices):
        if ranges != [[0, v.shape[d]]]: v = torch.cat([v.narrow(d, a, b - a) for a, b in ranges], d)
    return v


class Ranks(list):
    """Values of one node, one per rank."""


def run(ep, trace, place, inputs, state):
    """state: placeholder name -> list of tensors per rank (or one tensor for tp 1). Returns outputs per rank."""
    tp = place["tp"]; sharded = {int(k): v for k, v in place.get("sharded", {}).items()}
    ops_of = {}
    for i, o in enumerate(trace.ops): ops_of.setdefault(o["node"], []).append(i)
    node_of = {i: o["node"] for i, o in enumerate(trace.ops)}
    copy_at, slice_at, reduce_out, slice_out = set(), set(), {}, set()
    for c in place["conversions"]:
        edges = [(c["op"], c["operand"])] + [tuple(e) for e in c["also"]]
        for op, _ in edges:
            if c["kind"] == "copy": copy_at.add((node_of[op], c["tensor"]))
            elif c["kind"] == "reduce": reduce_out[node_of[op]] = c["mean"]
            elif c["kind"] == "slice" and c["on_output"]: slice_out.add(node_of[op])
            elif c["kind"] == "slice": slice_at.add((node_of[op], c["tensor"]))
    env, copies, it, where = {}, {}, iter(inputs), trace.of
    for n in ep.graph.nodes:
        if n.op == "placeholder":
            if n.name in state: env[n] = Ranks(state[n.name])
            else:
                v = next(it); env[n] = Ranks([v] * tp)
            continue
        if n.op == "get_attr": env[n] = Ranks([getattr(ep.graph_module, n.target)] * tp); continue
        if n.op == "output":
            res = []
            torch.fx.node.map_arg(n.args, lambda a: res.append(env[a])); return [[r[k] for r in res] for k in range(tp)]
        fn, ids = n.target, where.get(n)
        if fn is operator.getitem: env[n] = Ranks([v[n.args[1]] for v in env[n.args[0]]]); continue
        out_ids = ids if isinstance(ids, list) else [ids]
        local = lambda t: sharded[t]["local"] if t in sharded else trace.shape(t)
        def operand(a):
            t = where.get(a)
            if (n.name, t) in copy_at:
                if t not in copies: copies[t] = Ranks(Copy.apply(*env[a]))
                return copies[t]
            if (n.name, t) in slice_at: return Ranks([cut(v, s) for v, s in zip(env[a], sharded[t]["slices"])])
            return env[a]
        ready = {a: operand(a) for a in n.all_input_nodes}
        outs = []
        for r in range(tp):
            look = lambda a: ready[a][r]
            a, k = list(torch.fx.node.map_arg(n.args, look)), dict(torch.fx.node.map_arg(n.kwargs, look)); f, bias = fn, None
            if n.name not in slice_out and isinstance(ids, int) and ids in sharded:
                shp = local(ids)
                if fn in (aten.view.default, aten.reshape.default, aten._unsafe_view.default, aten.flatten.using_ints, aten.unflatten.int): f, a = aten.reshape.default, [a[0], shp]
                if fn in (aten.expand.default, aten.expand_as.default): f, a = aten.expand.default, [a[0], shp]
                if "conv" in str(fn) and n.args[6:] and n.args[6] > 1: a[6] = shp[1]
            if fn in (aten.split_with_sizes.default, aten.split.Tensor, aten.chunk.default) and any(t in sharded for t in out_ids):
                d = (n.args[2] if len(n.args) > 2 else n.kwargs.get("dim", 0)) % a[0].dim(); f, a, k = aten.split_with_sizes.default, [a[0], [local(t)[d] for t in out_ids], d], {}
            if n.name in reduce_out:
                if fn is aten.linear.default and len(a) > 2: bias, a = a[2], a[:2]
                elif fn is aten.addmm.default: bias, a, f = a[0], a[1:], aten.mm.default
                elif "conv" in str(fn) and len(a) > 2 and a[2] is not None: bias = a[2].reshape([1, -1] + [1] * (a[0].dim() - 2)); a[2] = None
            outs.append((f(*a, **k), bias))
        vals = [o for o, _ in outs]
        if n.name in reduce_out and tp > 1:
            vals = [v / tp if reduce_out[n.name] else v for v in Reduce.apply(*vals)]
        vals = [v + b if b is not None else v for v, (_, b) in zip(vals, outs)]
        if n.name in slice_out: vals = [cut(v, s) for v, s in zip(vals, sharded[ids]["slices"])]
        if isinstance(ids, int) and tp > 1:
            assert list(vals[0].shape) == list(local(ids)), f"{n.name}: local shape {list(vals[0].shape)}, planned {local(ids)}"
        env[n] = Ranks(vals)


def main():
    sp = importlib.util.spec_from_file_location("rc", sys.argv[2]); rc = importlib.util.module_from_spec(sp); sp.loader.exec_module(rc)
    e = [x for x in yaml.safe_load(open(sys.argv[1])) if x["id"] == sys.argv[3]][0]; tp = int(sys.argv[5]) if len(sys.argv) > 5 else 2
    m, inp, call = rc.build(e); kw = bool(e.get("kw"))
    m = m.double(); inp = {k: v.double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v for k, v in inp.items()}
    ep = torch.export.export(m, () if kw else tuple(inp.values()), inp if kw else None, strict=False)
    trace = Trace(ep)
    with tempfile.TemporaryDirectory() as d:
        json.dump(trace.json(), open(d + "/t.json", "w"))
        subprocess.run([sys.argv[4], "[import]"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                       env={**os.environ, "SHARDWRIGHT_TRACE": d + "/t.json", "SHARDWRIGHT_PLACEMENT": d + "/p.json", "SHARDWRIGHT_TP": str(tp)})
        place = json.load(open(d + "/p.json"))
    sig = ep.graph_signature; params, bufs, consts = dict(sig.inputs_to_parameters), dict(sig.inputs_to_buffers), dict(sig.inputs_to_lifted_tensor_constants)
    sd, bd = dict(m.named_parameters(remove_duplicate=False)), dict(m.named_buffers(remove_duplicate=False))
    torch.manual_seed(5)
    full = {k: (v.detach() + 0.02 * torch.randn_like(v)) for k, v in sd.items()}
    flat = torch.utils._pytree.tree_leaves(((), inp) if kw else (tuple(inp.values()), {}))
    flat = [x for x in flat]
    loss = lambda outs: rc.loss_of([x for x in outs if isinstance(x, torch.Tensor)])
    def buffers(): return {**{k: bd[v] if v in bd else ep.constants[v] for k, v in bufs.items()}, **{k: ep.constants[v] for k, v in consts.items()}}
    # one rank
    leaf1 = {k: v.clone().requires_grad_() for k, v in full.items()}
    torch.manual_seed(99); o = run(ep, trace, {"tp": 1, "conversions": []}, flat, {**{k: [leaf1[v]] for k, v in params.items()}, **{k: [v] for k, v in buffers().items()}})
    l1 = loss(o[0]); l1.backward()
    # tp ranks, each with its own leaves
    sharded = {int(k): v for k, v in place.get("sharded", {}).items()}; ids = {n.name: trace.of[n] for n in trace.of if n.op == "placeholder"}
    state, leaves = {}, {}
    for k, v in params.items():
        t = ids[k]
        key = (v, t in sharded and json.dumps(sharded[t]["slices"]))
        if key not in leaves: leaves[key] = [(cut(full[v], sharded[t]["slices"][r]) if t in sharded else full[v]).clone().requires_grad_() for r in range(tp)]
        state[k] = leaves[key]
    for k, v in buffers().items():
        t = ids.get(k); is_buffer = k in bufs
        state[k] = [cut(v, sharded[t]["slices"][r]) if is_buffer and t in sharded else v for r in range(tp)]
    torch.manual_seed(99); o2 = run(ep, trace, place, flat, state)
    ls = [loss(x) for x in o2]; sum(ls).backward()
    summed = {trace.tensors[t]["name"] for t in place["grad_summed"]}
    worst, wk, top, bad = 0.0, "", max(p.grad.abs().max().item() for p in leaf1.values() if p.grad is not None), 0
    for (v, _), ps in leaves.items():
        want = leaf1[v].grad
        t = next(ids[k] for k, name in params.items() if name == v)
        gs = [p.grad if p.grad is not None else torch.zeros_like(p) for p in ps]
        if want is None: continue
        for r, g in enumerate(gs):
            w = cut(want, sharded[t]["slices"][r]) if t in sharded else want
            if v in summed: g = sum(gs)
            d = (g - w).abs().max().item() / max(want.abs().max().item(), 1e-6 * top)
            bad += not d <= 1e-8
            if not d <= worst: worst, wk = d, v
    print(f"{e['id']:18s} tp{tp} sharded {len(sharded):4d} conversions {len(place['conversions']):3d} sums {len(summed):2d} loss {l1.item():.4f} {abs((l1 - ls[-1]) / l1).item():.1e} largest {top:.1e} worst grad {worst:.1e} {wk if worst > 1e-8 else ''} {f'BAD {bad}' if bad else ''}")
    sys.exit(bad > 0 or not abs((l1 - ls[-1]) / l1).item() < 1e-9)


if __name__ == "__main__": main()
