"""A torch.export graph as a trace of primitive operations (JSON), the structure of lib/model/trace.h.

Lets lib/sharding be compared with the prototype on the very same graphs, without the interpreter in between:
    trace_of_export.py CORPUS.yaml run_corpus.py ID > trace.json
    SHARDWRIGHT_TRACE=trace.json build/bin/unit_sharding '[import]'
"""
import importlib.util
import json
import operator
import sys
import warnings
import torch
import yaml
warnings.filterwarnings("ignore")
sys.path.insert(0, __file__.rsplit("/", 1)[0] + "/prototype")
from axes import ELT, aten

LINEAR = {"add", "sub", "neg", "clone", "contiguous", "to", "_to_copy", "alias", "detach", "rsub", "dropout", "feature_dropout", "lift_fresh_copy", "add_", "sub_", "real", "imag"}
BILINEAR = {"mul", "mul_", "div", "div_"}


class Trace:
    def __init__(self, ep):
        self.tensors, self.ops, self.of = [], [], {}
        sig = ep.graph_signature
        params, buffers, consts = dict(sig.inputs_to_parameters), dict(sig.inputs_to_buffers), dict(sig.inputs_to_lifted_tensor_constants)
        self.outputs, self.current = [], ""
        for n in ep.graph.nodes:
            if n.op == "placeholder":
                v = n.meta.get("val")
                if isinstance(v, torch.Tensor):
                    kind = "parameter" if n.name in params else "buffer" if n.name in buffers else "constant" if n.name in consts else "input"
                    name = params.get(n.name) or buffers.get(n.name) or n.name
                    self.of[n] = self.tensor(v, kind, name, grad=kind == "parameter", inp=kind == "input", par=kind == "parameter")
            elif n.op == "call_function":
                self.node(n)
            elif n.op == "output":
                torch.fx.node.map_arg(n.args, lambda a: self.outputs.append(self.of[a]) if isinstance(self.of.get(a), int) else None)

    def tensor(self, v, origin="result", name="", grad=False, inp=False, par=False):
        dt = str(v.dtype).split(".")[1]
        self.tensors.append({"shape": [int(x) for x in v.shape], "dtype": dt, "origin": origin, "name": name,
                             "grad": grad and (v.is_floating_point() or v.is_complex()), "from_input": inp, "from_parameter": par})
        return len(self.tensors) - 1

    def shape(self, t): return self.tensors[t]["shape"]

    def op(self, name, prim, lin, ins, outs, **kw):
        src = [self.tensors[i] for i in ins]
        grad = any(t["grad"] for t in src) and name not in ("detach", "detach_")
        o = [self.tensor(v, grad=grad, inp=any(t["from_input"] for t in src), par=any(t["from_parameter"] for t in src)) for v in outs]
        self.ops.append({"name": name, "node": self.current, "prim": prim, "lin": lin, "inputs": ins, "outputs": o, **kw})
        return o

    def labelled(self, name, lin, ins, in_words, outs, out_words, blocked=(), why="", bias=(), mean=False, random=""):
        """Words per dimension: anything hashable; None is a broadcast dimension."""
        numbers, sizes = {}, []
        def lab(words, shape):
            r = []
            for w, n in zip(words, shape):
                if w is None: r.append(-1); continue
                if w not in numbers: numbers[w] = len(sizes); sizes.append(n)
                r.append(numbers[w])
            return r
        i = [lab(w, self.shape(t)) for t, w in zip(ins, in_words)]
        o = [lab(w, [int(x) for x in v.shape]) for v, w in zip(outs, out_words)]
        labels = [{"size": n, "blocked": any(numbers.get(b) == k for b in blocked), "why": why} for k, n in enumerate(sizes)]
        return self.op(name, "labelled", lin, ins, outs, **{"in": i, "out": o, "labels": labels, "bias": list(bias), "mean": mean, "random": random})

    def broadcast(self, name, lin, ins, outs, random=""):
        shape = [int(x) for x in outs[0].shape]
        words = []
        for t in ins:
            s = self.shape(t); off = len(shape) - len(s)
            words.append([None if s[i] == 1 and shape[i + off] != 1 else i + off for i in range(len(s))])
        return self.labelled(name, lin, ins, words, outs, [list(range(len(shape)))] * len(outs), random=random)

    def opaque(self, n, outs):
        ins = [x for a in n.all_input_nodes for x in (self.of[a] if isinstance(self.of.get(a), list) else [self.of.get(a)]) if isinstance(x, int)]
        return self.op(str(n.target), "opaque", "nonlinear", ins, outs)

    def node(self, n):
        val, fn = n.meta.get("val"), n.target
        self.current = n.name
        if fn is operator.getitem:
            src = self.of.get(n.args[0])
            if isinstance(src, list): self.of[n] = src[n.args[1]]
            return
        if not isinstance(val, (torch.Tensor, list, tuple)): return
        outs = [val] if isinstance(val, torch.Tensor) else [v for v in val if isinstance(v, torch.Tensor)]
        r = self.rule(n, fn, [self.of.get(a) if isinstance(a, torch.fx.Node) else a for a in n.args], outs)
        if r is None: r = self.opaque(n, outs)
        self.of[n] = r[0] if isinstance(val, torch.Tensor) else r

    def rule(self, n, fn, A, outs):
        name = fn.__name__.split(".")[0] if hasattr(fn, "__name__") else str(fn)
        isT = lambda i: i < len(A) and i < len(n.args) and isinstance(n.args[i], torch.fx.Node)
        sh = [int(x) for x in outs[0].shape] if outs else []
        idx = lambda t: list(range(len(self.shape(t))))
        if fn in ELT:
            lin = "linear" if name in LINEAR else "bilinear" if name in BILINEAR else "nonlinear"
            return self.broadcast(name, lin, [a for i, a in enumerate(A) if isT(i)], outs, random="dropout" if "dropout" in name else "")
        if fn in (aten.view.default, aten.reshape.default, aten._unsafe_view.default, aten.flatten.using_ints, aten.unflatten.int, aten.unsqueeze.default, aten.squeeze.dim, aten.squeeze.default, aten.squeeze.dims):
            return self.op(name, "reshape", "linear", [A[0]], outs)
        def permuted(order): return self.labelled(name, "linear", [A[0]], [idx(A[0])], outs, [order])
        if fn is aten.permute.default: return permuted([i % len(sh) for i in n.args[1]])
        if fn in (aten.transpose.int, aten.swapaxes.default):
            d = idx(A[0]); i, j = n.args[1], n.args[2]; d[i], d[j] = d[j], d[i]; return permuted(d)
        if fn in (aten.t.default, aten.numpy_T.default, aten.mT.default):
            d = idx(A[0]); d[-1], d[-2] = d[-2], d[-1]; return permuted(d)
        if fn is aten.movedim.int:
            d = idx(A[0]); x = d.pop(n.args[1]); d.insert(n.args[2] % len(sh), x); return permuted(d)
        if fn in (aten.expand.default, aten.expand_as.default):
            s = self.shape(A[0]); off = len(sh) - len(s)
            same = [not (s[i] == 1 and sh[i + off] != 1) for i in range(len(s))]
            return self.labelled("expand", "linear", [A[0]], [[i + off if same[i] else None for i in range(len(s))]], outs, [[j if j >= off and same[j - off] else ("new", j) for j in range(len(sh))]])
        if fn is aten.select.int:
            d = idx(A[0]); ax = n.args[1] % len(d); return self.labelled(name, "linear", [A[0]], [d], outs, [[i for i in d if i != ax]], blocked=[ax], why="select")
        if fn is aten.unbind.int:
            d = idx(A[0]); ax = (n.args[1] if len(n.args) > 1 else 0) % len(d)
            return self.labelled(name, "linear", [A[0]], [d], outs, [[i for i in d if i != ax]] * len(outs), blocked=[ax], why="unbind")
        if fn in (aten.chunk.default, aten.split.Tensor, aten.split_with_sizes.default):
            ax = (n.args[2] if len(n.args) > 2 else n.kwargs.get("dim", 0)) % len(self.shape(A[0]))
            return self.op(name, "split", "linear", [A[0]], outs, dim=ax, sizes=[int(v.shape[ax]) for v in outs])
        if fn in (aten.cat.default, aten.concat.default):
            ts = [self.of[a] for a in n.args[0]]; ax = (n.args[1] if len(n.args) > 1 else 0) % len(sh)
            return self.op(name, "concat", "linear", ts, outs, dim=ax) if all(len(self.shape(t)) == len(sh) for t in ts) else None
        if fn is aten.stack.default:
            ts = [self.of[a] for a in n.args[0]]; ax = (n.args[1] if len(n.args) > 1 else 0) % len(sh)
            one = [int(x) for x in outs[0].shape]; one[ax] = 1
            up = [self.op("unsqueeze", "reshape", "linear", [t], [torch.empty(one, dtype=outs[0].dtype, device="meta")])[0] for t in ts]
            return self.op(name, "concat", "linear", up, outs, dim=ax)
        if fn is aten.slice.Tensor:
            ax = (n.args[1] if len(n.args) > 1 else 0) % len(sh); d = idx(A[0])
            if self.shape(A[0])[ax] == sh[ax]: return permuted(d)
            return self.labelled(name, "linear", [A[0]], [d], outs, [[("new", i) if i == ax else i for i in d]], blocked=[ax, ("new", ax)], why="slice")
        if fn in (aten.linear.default, aten.addmm.default):
            x, w, b = (A[0], A[1], A[2] if isT(2) else None) if fn is aten.linear.default else (A[1], A[2], A[0])
            lead = list(range(len(self.shape(x)) - 1)); ww = ["o", "i"] if fn is aten.linear.default else ["i", "o"]
            ins, words = [x, w], [lead + ["i"], ww]
            if b is not None: ins.append(b); words.append(["o"])
            return self.labelled(name, "bilinear", ins, words, outs, [lead + ["o"]], bias=[2] if b is not None else [])
        if fn in (aten.matmul.default, aten.bmm.default, aten.mm.default):
            x, y = A[0], A[1]; xs, ys = self.shape(x), self.shape(y)
            if len(xs) < 2 or len(ys) < 2: return None
            nb = len(sh) - 2
            lead = lambda s: [None if s[i] == 1 and sh[i + nb - len(s) + 2] != 1 else i + nb - len(s) + 2 for i in range(len(s) - 2)]
            return self.labelled(name, "bilinear", [x, y], [lead(xs) + ["m", "k"], lead(ys) + ["k", "n"]], outs, [list(range(nb)) + ["m", "n"]])
        if fn is aten.scaled_dot_product_attention.default:
            q, k, v = A[:3]; qs, ks = self.shape(q), self.shape(k); nb = len(sh) - 2; lead = list(range(nb))
            if qs[:-2] != ks[:-2]:      # grouped queries: heads are (groups, repeats)
                if isT(3) or n.kwargs.get("attn_mask") is not None or len(qs) != 4: return None
                meta = lambda *s: torch.empty(s, dtype=outs[0].dtype, device="meta")
                q5 = self.op("reshape", "reshape", "linear", [q], [meta(qs[0], ks[1], qs[1] // ks[1], qs[2], qs[3])])[0]
                o5 = self.labelled(name, "nonlinear", [q5, k, v], [["b", "g", "r", "n", "d"], ["b", "g", "m", "d"], ["b", "g", "m", "e"]],
                                   [meta(qs[0], ks[1], qs[1] // ks[1], qs[2], sh[-1])], [["b", "g", "r", "n", "e"]], blocked=["d", "m"], why="attention")
                return self.op("reshape", "reshape", "linear", o5, outs)
            ins, words = [q, k, v], [lead + ["n", "d"], lead + ["m", "d"], lead + ["m", "e"]]
            m = A[3] if isT(3) else self.of.get(n.kwargs.get("attn_mask"))
            if isinstance(m, int):
                full = qs[:-2] + [qs[-2], ks[-2]]; ms = self.shape(m); off = len(full) - len(ms); w = lead + ["n", "m"]
                ins.append(m); words.append([None if ms[i] == 1 and full[i + off] != 1 else w[i + off] for i in range(len(ms))])
            return self.labelled(name, "nonlinear", ins, words, outs, [lead + ["n", "e"]], blocked=["d", "m"], why="attention")
        if fn in (aten.softmax.int, aten._softmax.default, aten.log_softmax.int, aten.cumsum.default):
            d = idx(A[0]); return self.labelled(name, "nonlinear", [A[0]], [d], outs, [d], blocked=[n.args[1] % len(d)], why="softmax")
        if fn in (aten.layer_norm.default, aten.rms_norm.default, aten.group_norm.default, aten.batch_norm.default):
            d = idx(A[0]); ins, words = [A[0]], [d]
            if fn in (aten.layer_norm.default, aten.rms_norm.default): trail = d[-len(n.args[1]):]; block = trail; ps = [2, 3]
            elif fn is aten.group_norm.default: trail = [1]; block = d[1:]; ps = [2, 3]
            else: trail = [1]; block = [i for i in d if i != 1]; ps = [1, 2, 3, 4]
            for p in ps:
                if isT(p): ins.append(A[p]); words.append(trail)
            return self.labelled(name, "nonlinear", ins, words, outs, [d] * len(outs), blocked=block, why="norm")
        if "conv" in name and name != "convolution":
            x, w = A[0], A[1]; tr = "transpose" in name; xs = self.shape(x); g = n.args[6] if len(n.args) > 6 else 1
            space = [("x", i) for i in range(len(xs) - 2)]; out_space = [("y", i) for i in range(len(xs) - 2)]; ker = [("k", i) for i in range(len(xs) - 2)]
            if g == 1: words = [["b", "i"] + space, (["i", "o"] if tr else ["o", "i"]) + ker]; o = "o"
            elif g == xs[1] and sh[1] == g and not tr: words = [["b", "c"] + space, ["c", None] + ker]; o = "c"
            else: return None
            ins = [x, w]
            if isT(2): ins.append(A[2]); words.append([o])
            return self.labelled(name, "bilinear", ins, words, outs, [["b", o] + out_space], blocked=space + out_space + ker, why="conv space", bias=[2] if isT(2) else [])
        if fn is aten.embedding.default:
            d = idx(A[1]); return self.labelled(name, "linear", [A[0], A[1]], [["v", "c"], d], outs, [d + ["c"]], blocked=["v"], why="vocab")
        def reduced(axes, keep):
            d = idx(A[0]); return d, [[("one", i) if i in axes else i for i in d if keep or i not in axes]]
        if fn in (aten.sum.dim_IntList, aten.mean.dim, aten.mean.default, aten.sum.default):
            ax = [a % len(self.shape(A[0])) for a in ((n.args[1] if len(n.args) > 1 else None) or range(len(self.shape(A[0]))))]; keep = n.args[2] if len(n.args) > 2 else False
            d, o = reduced(ax, keep); return self.labelled(name, "linear", [A[0]], [d], outs, o, mean=name == "mean")
        if fn in (aten.amax.default, aten.max.dim, aten.argmax.default, aten.std.correction, aten.var.correction, aten.linalg_vector_norm.default):
            norm = fn is aten.linalg_vector_norm.default
            arg = n.args[2] if norm and len(n.args) > 2 else (n.args[1] if len(n.args) > 1 and not norm else None)
            ax = [a % len(self.shape(A[0])) for a in ([arg] if isinstance(arg, int) else (arg or range(len(self.shape(A[0])))))]
            d, o = reduced(ax, len(sh) == len(self.shape(A[0]))); return self.labelled(name, "nonlinear", [A[0]], [d], outs, o * len(outs), blocked=ax, why="reduce")
        if fn is aten.repeat_interleave.self_int:
            ax = (n.args[2] if len(n.args) > 2 else n.kwargs.get("dim")) % len(sh); d = idx(A[0]); r = n.args[1]; s = self.shape(A[0])
            mid = torch.empty(s[:ax + 1] + [r] + s[ax + 1:], dtype=outs[0].dtype, device="meta")
            y = self.labelled(name, "linear", [A[0]], [d], [mid], [d[:ax + 1] + ["r"] + d[ax + 1:]])
            return self.op("reshape", "reshape", "linear", y, outs)
        if fn is aten.repeat.default:
            s = self.shape(A[0]); off = len(sh) - len(s); reps = n.args[1]; mid, words = [], []
            for i, r in enumerate(reps):
                if r > 1: mid.append(r); words.append(("new", i))
                if i >= off: mid.append(s[i - off]); words.append(i - off)
            y = self.labelled(name, "linear", [A[0]], [list(range(len(s)))], [torch.empty(mid, dtype=outs[0].dtype, device="meta")], [words])
            return self.op("reshape", "reshape", "linear", y, outs)
        def spatial(ax, why, lin="linear"):
            d = idx(A[0]); return self.labelled(name, lin, [A[0]], [d], outs, [[("new", i) if i in ax else i for i in d]], blocked=list(ax) + [("new", i) for i in ax], why=why)
        if fn in (aten.fft_rfft2.default, aten.fft_irfft2.default, aten.fft_rfftn.default, aten.fft_irfftn.default):
            ax = n.args[2] if len(n.args) > 2 and n.args[2] is not None else n.kwargs.get("dim", (-2, -1)); return spatial([a % len(sh) for a in ax], "fft")
        if fn in (aten.real.default, aten.imag.default): return permuted(idx(A[0]))
        if fn is aten.view_as_complex.default:
            d = idx(A[0]); return self.labelled(name, "linear", [A[0]], [d], outs, [d[:-1]], blocked=[d[-1]], why="complex")
        if fn is aten.view_as_real.default:
            d = idx(A[0]); return self.labelled(name, "linear", [A[0]], [d], outs, [d + ["two"]], blocked=["two"], why="complex")
        if fn in (aten.adaptive_avg_pool2d.default, aten.avg_pool2d.default, aten.max_pool2d.default): return spatial([2, 3], "pool", "nonlinear")
        if fn is aten.cross_entropy_loss.default:
            # The prototype blocks the classes alone and leaves rows free; the loss is a scalar: rows are needed whole here too.
            d = idx(A[0])
            return self.labelled(name, "nonlinear", [A[0], A[1]], [d, [i for i in d if i != 1]], outs, [[]], blocked=d, why="loss") if len(d) > 1 else None
        if fn in (aten.roll.default, aten.flip.default):
            d = idx(A[0]); ax = [x % len(sh) for x in (n.args[2] if fn is aten.roll.default else n.args[1])]
            return self.labelled(name, "linear", [A[0]], [d], outs, [d], blocked=ax, why="roll")
        if fn in (aten.constant_pad_nd.default, aten.pad.default, aten.upsample_bilinear2d.vec, aten.upsample_nearest2d.vec):
            return spatial([i for i, (a, b) in enumerate(zip(self.shape(A[0]), sh)) if a != b], "pad")
        if fn is aten.index.Tensor:
            ix = n.args[1]
            if any(i is None for i in ix): return None
            k = len(ix); its = [self.of[i] for i in ix]; d = idx(A[0]); rank = len(sh) - (len(d) - k)
            words = []
            for t in its:
                s = self.shape(t); off = rank - len(s); words.append([None if s[i] == 1 and sh[i + off] != 1 else ("b", i + off) for i in range(len(s))])
            return self.labelled(name, "linear", [A[0]] + its, [d] + words, outs, [[("b", i) for i in range(rank)] + d[k:]], blocked=d[:k], why="index")
        if fn is aten.einsum.default:
            eq = n.args[0].replace(" ", "")
            if "." in eq: return None
            l, r = eq.split("->"); ts = [self.of[a] for a in n.args[1]]
            return self.labelled(name, "bilinear", ts, [list(w) for w in l.split(",")], outs, [list(r)])
        if not any(isinstance(self.of.get(a), (int, list)) for a in n.all_input_nodes) or "new_" in name or "_like" in name or name in ("tril", "triu"):
            o = self.op(name, "create", "nonlinear", [], outs)
            # Something may be written into it in place later, which the exported graph does not show as its operand.
            for t in o: self.tensors[t]["from_input"] = any(self.tensors[self.of[a]]["from_input"] for a in n.all_input_nodes if isinstance(self.of.get(a), int))
            return o
        return None

    def json(self): return {"tensors": self.tensors, "ops": self.ops, "outputs": self.outputs}


if __name__ == "__main__":
    sp = importlib.util.spec_from_file_location("rc", sys.argv[2]); rc = importlib.util.module_from_spec(sp); sp.loader.exec_module(rc)
    e = [x for x in yaml.safe_load(open(sys.argv[1])) if x["id"] == sys.argv[3]][0]
    m, inp, call = rc.build(e); kw = bool(e.get("kw"))
    ep = torch.export.export(m, () if kw else tuple(inp.values()), inp if kw else None, strict=False)
    json.dump(Trace(ep).json(), sys.stdout)
