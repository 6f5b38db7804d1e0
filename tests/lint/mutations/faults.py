"""Single mutations of a program's source: kinds of faults, each with the codes that name it, and edits that change nothing.

An operator gets a Source and yields (where, new text). It finds its places in the syntax tree and edits the text, so that what is
written is what a person would have written."""
import ast
import re

COLUMN, ROW = "Column", "Row"


class Source:
    def __init__(self, text):
        self.text = text
        self.tree = ast.parse(text)
        self.starts = [0]
        for line in text.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.parents = {c: p for p in ast.walk(self.tree) for c in ast.iter_child_nodes(p)}
        self.layers = {}   # (class, attribute) -> the call that makes a parallel layer
        for cls in self.of(ast.ClassDef):
            for n in ast.walk(cls):
                if isinstance(n, ast.Assign) and isinstance(n.value, ast.Call) and "Parallel" in self.callee(n.value) and "Embedding" not in self.callee(n.value):
                    for t in n.targets:
                        if isinstance(t, ast.Attribute):
                            self.layers[cls.name, t.attr] = n.value

    def of(self, kind, within=None):
        return [n for n in ast.walk(within or self.tree) if isinstance(n, kind)]

    def span(self, n):
        return self.starts[n.lineno - 1] + n.col_offset, self.starts[n.end_lineno - 1] + n.end_col_offset

    def read(self, n):
        a, b = self.span(n)
        return self.text[a:b]

    def put(self, n, new):
        a, b = self.span(n)
        return self.text[:a] + new + self.text[b:]

    def callee(self, call):
        f = call.func
        return f.attr if isinstance(f, ast.Attribute) else f.id if isinstance(f, ast.Name) else ""

    def class_of(self, n):
        while n is not None and not isinstance(n, ast.ClassDef):
            n = self.parents.get(n)
        return n

    def function_of(self, n):
        while n is not None and not isinstance(n, ast.FunctionDef):
            n = self.parents.get(n)
        return n

    def layer(self, call, kind=""):
        """Is this a call of a parallel layer that the class holds?"""
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name) and call.func.value.id == "self"):
            return None
        made = self.layers.get((getattr(self.class_of(call), "name", ""), call.func.attr))
        return made if made is not None and kind in self.callee(made) else None

    def keyword(self, call, name):
        return next((k for k in call.keywords if k.arg == name), None)

    def at(self, n):
        return f"{n.lineno}: {self.read(n)[:70]!r}"


def _flag(name, old, new, kind):
    def change(s):
        for made in s.layers.values():
            k = s.keyword(made, name)
            if kind in s.callee(made) and k is not None and s.read(k.value) == old:
                yield s.at(k), s.put(k.value, new)
    return change


def drop_first(s):
    for n in s.of(ast.Subscript):
        if isinstance(n.slice, ast.Constant) and n.slice.value == 0 and s.layer(n.value):
            yield s.at(n), s.put(n, s.read(n.value))
    for n in s.of(ast.Assign):
        if isinstance(n.targets[0], ast.Tuple) and len(n.targets[0].elts) == 2 and s.layer(n.value):
            yield s.at(n), s.put(n.targets[0], s.read(n.targets[0].elts[0]))


def _unwrap(name):
    def change(s):
        for n in s.of(ast.Call):
            if s.callee(n) == name and n.args and s.function_of(n) is not None and s.function_of(n).name != "__init__":
                yield s.at(n), s.put(n, s.read(n.args[0]))
    return change


def full_heads(s):
    for n in s.of(ast.Call):
        if s.callee(n) in ("view", "reshape", "split"):
            for a in n.args:
                if isinstance(a, ast.BinOp) and isinstance(a.op, ast.FloorDiv) and "tp_size" in s.read(a.right):
                    yield s.at(a), s.put(a, s.read(a.left))
                for b in s.of(ast.Attribute, a):
                    whole = b.attr.replace("_per_rank", "")
                    if whole != b.attr and re.search(rf"self\.{whole}\b.* = ", s.read(s.class_of(n))):
                        yield s.at(n) + " " + b.attr, s.put(b, "self." + whole)


def no_share(s):
    """`x // tp` in a constructor becomes `x`."""
    for n in s.of(ast.BinOp):
        f = s.function_of(n)
        if isinstance(n.op, ast.FloorDiv) and f is not None and f.name == "__init__" and re.search(r"(^|[._])tp(_size)?(\(\))?$|world_size(\(\))?$", s.read(n.right)) and isinstance(s.parents[n], ast.Assign):
            yield s.at(n), s.put(n, s.read(n.left))
    for n in s.of(ast.Call):
        if s.callee(n) == "divide" and s.function_of(n) is not None and "world_size" in s.read(n.args[1]):
            yield s.at(n), s.put(n, s.read(n.args[0]))


def drop_stride(s):
    for made in s.layers.values():
        k = s.keyword(made, "stride") or s.keyword(made, "segments")
        if k is not None and "Conv" not in s.callee(made):  # a convolution's stride is another thing
            yield s.at(k), re.sub(r",\s*" + re.escape(s.read(k)), "", s.text, count=0) if s.text.count(s.read(k)) == 1 else s.text[: s.span(k)[0]].rstrip(", ") + s.text[s.span(k)[1]:]


def unmark(s):
    for n in s.of(ast.Expr):
        if isinstance(n.value, ast.Call) and s.callee(n.value) == "set_tensor_model_parallel_attributes":
            yield s.at(n), s.put(n, "pass")
    for n in s.of(ast.Call):
        if s.callee(n) == "shard_parameter":
            yield s.at(n), s.put(n, s.read(n.args[0]))
    for n in s.of(ast.Expr):
        if isinstance(n.value, ast.Call) and s.callee(n.value) == "shard_module":
            yield s.at(n), s.put(n, "pass")


def unsummed(s):
    for n in s.of(ast.Call):
        if s.callee(n) == "sum_gradients_over_tp":
            yield s.at(n), s.put(n, s.read(n.args[0]))
        if s.callee(n) == "copy_to_tensor_model_parallel_region" and n.args:
            yield s.at(n), s.put(n, s.read(n.args[0]))


def early_bias(s):
    """What is added after the sum is added before it."""
    for cls in s.of(ast.ClassDef):
        for n in s.of(ast.Call, cls):
            if s.callee(n) != "reduce_from_tensor_model_parallel_region":
                continue
            f = s.function_of(n)
            for r in s.of(ast.BinOp, f):
                if isinstance(r.op, ast.Add) and "bias" in s.read(r.right):
                    a = s.read(n.args[0])
                    text = s.put(r, s.read(r.left))
                    yield s.at(n), text.replace(s.read(n), s.read(n).replace(a, a + " + " + s.read(r.right)), 1)
    # A row layer written out, its bias inside.
    for (_, name), made in s.layers.items():
        if ROW not in s.callee(made) or not takes_share(s, made) or s.keyword(made, "bias") is not None and s.read(s.keyword(made, "bias").value) == "False":
            continue
        for n in s.of(ast.Subscript):
            if s.layer(n.value) is made and isinstance(n.slice, ast.Constant):
                new = f"reduce_from_tensor_model_parallel_region(F.linear({s.read(n.value.args[0])}, self.{name}.weight, self.{name}.bias))"
                yield s.at(n), with_names(s.put(n, new))


def takes_share(s, made):
    k = s.keyword(made, "input_is_parallel")
    return k is not None and s.read(k.value) == "True"


def with_names(text):
    """The names that inserted code needs."""
    source = "shardwright.parallel" if "from shardwright" in text else ("onescience.distributed." if "onescience.distributed.megatron" in text else "") + "megatron.core.tensor_parallel.mappings"
    lines = []
    if not re.search(r"^(import torch.nn.functional as F|from torch.nn import functional as F)$", text, re.M):
        lines.append("import torch.nn.functional as F")
    if not re.search(r"^from .* import .*\breduce_from_tensor_model_parallel_region\b|^    reduce_from_tensor_model_parallel_region,$", text, re.M):
        lines.append(f"from {source} import reduce_from_tensor_model_parallel_region")
    if not lines:
        return text
    at = re.search(r"^(import|from) .*\n", text, re.M).start()
    return text[:at] + "\n".join(lines) + "\n" + text[at:]


def twice(s):
    for n in s.of(ast.Subscript):
        if isinstance(n.slice, ast.Constant) and n.slice.value == 0 and s.layer(n.value, ROW):
            yield s.at(n), with_names(s.put(n, f"reduce_from_tensor_model_parallel_region({s.read(n)})"))


def serial(s):
    """A serial linear where a parallel one belongs."""
    for made in s.layers.values():
        if "Linear" not in s.callee(made) or "import torch.nn as nn" not in s.text and "from torch import nn" not in s.text or s.keyword(made, "return_bias") is not None:
            continue
        bias = s.keyword(made, "bias")
        new = "nn.Linear(" + ", ".join([s.read(a) for a in made.args[:2]] + ([s.read(bias)] if bias is not None else [])) + ")"
        text = s.put(made, new)
        name = next(t.attr for t in s.parents[made].targets if isinstance(t, ast.Attribute))
        # Its result is a tensor, and read as one.
        cls = s.class_of(made).name
        body = Source(text)
        for n in sorted([n for n in body.of(ast.Subscript) if isinstance(n.value, ast.Call) and body.read(n.value.func) == f"self.{name}" and body.class_of(n).name == cls], key=lambda n: -n.lineno):
            text = Source(text).put(n, body.read(n.value))
            body = Source(text)
        if f", _ = self.{name}(" not in text and text.count(f"self.{name}(") == 1:
            yield s.at(made), text


def whole_statistics(s):
    """A statistic over a sharded dimension."""
    for n in s.of(ast.Call):
        if s.callee(n) in ("gelu", "relu", "silu", "tanh") and n.args and isinstance(n.args[0], ast.Subscript) and s.layer(n.args[0].value, COLUMN):
            yield s.at(n), with_names(s.put(n, f"F.softmax({s.read(n.args[0])}, dim=-1)"))
            yield s.at(n), with_names(s.put(n, f"F.normalize({s.read(n.args[0])}, dim=-1)"))


def partial_activation(s):
    for n in s.of(ast.Call):
        if s.callee(n) == "reduce_from_tensor_model_parallel_region" and n.args:
            yield s.at(n), with_names(s.put(n.args[0], f"F.gelu({s.read(n.args[0])})"))
    for (_, name), made in s.layers.items():
        if ROW in s.callee(made) and takes_share(s, made):
            for n in s.of(ast.Subscript):
                if s.layer(n.value) is made:
                    new = f"reduce_from_tensor_model_parallel_region(F.gelu(F.linear({s.read(n.value.args[0])}, self.{name}.weight)))"
                    yield s.at(n), with_names(s.put(n, new))


def bare_weight(s):
    """A row layer's weight used past its sum."""
    for (_, name), made in s.layers.items():
        if ROW in s.callee(made) and takes_share(s, made):
            for n in s.of(ast.Subscript):
                if s.layer(n.value) is made:
                    yield s.at(n), with_names(s.put(n, f"F.linear({s.read(n.value.args[0])}, self.{name}.weight)"))


def missing_keyword(s):
    for made in s.layers.values():
        for name in ("init_method", "config", "input_is_parallel", "skip_bias_add"):
            k = s.keyword(made, name)
            if k is not None and "shardwright.parallel" not in s.text:
                a, b = s.span(k)
                yield s.at(k), s.text[:a].rstrip(", ") + s.text[b:] if s.text[:a].rstrip().endswith(",") else s.text[:a] + s.text[b:].lstrip(", ")


def misspelt(s):
    for n in s.of(ast.Call):
        if isinstance(n.func, ast.Attribute) and isinstance(n.func.value, ast.Name) and n.func.value.id == "self" and s.function_of(n) is not None and s.function_of(n).name == "forward":
            name = n.func.attr
            if len(name) > 3 and "def " + name not in s.text:
                yield s.at(n), s.put(n.func, "self." + name[:-2] + name[-1] + name[-2])


def wrong_random_state(s):
    for n in s.of(ast.With):
        if "fork()" in s.read(n.items[0].context_expr):
            yield s.at(n), s.put(n.items[0].context_expr, "torch.enable_grad()")


def no_autograd(s):
    for n in s.of(ast.Assign):
        if isinstance(n.value, ast.Call) and s.callee(n.value) in ("reduce_from_tensor_model_parallel_region",) and isinstance(n.targets[0], ast.Name):
            indent = " " * n.col_offset
            name = n.targets[0].id
            yield s.at(n), s.put(n, f"{name} = {s.read(n.value.args[0])}\n{indent}torch.distributed.all_reduce({name})")


# ---- stages ---------------------------------------------------------------------------------------------------------------------------


def stages(s):
    return [c for c in s.of(ast.ClassDef) if re.search(r"_stage\d+$", c.name)]


def method(cls, name):
    return next((f for f in cls.body if isinstance(f, ast.FunctionDef) and f.name == name), None)


def swapped_outputs(s):
    for cls in stages(s):
        for r in s.of(ast.Return, method(cls, "forward")):
            if isinstance(r.value, ast.Tuple) and len(r.value.elts) >= 2:
                a, b = r.value.elts[:2]
                yield s.at(r), s.put(r, "return " + ", ".join([s.read(b), s.read(a)] + [s.read(e) for e in r.value.elts[2:]]))


def unpackings(s, cls):
    """Assignments of a stage's forward that take apart what it received: a, b = self.input_tensor."""
    return [n for n in s.of(ast.Assign, method(cls, "forward")) if isinstance(n.targets[0], ast.Tuple) and s.read(n.value) == "self.input_tensor"]


def swapped_inputs(s):
    for cls in stages(s):
        for n in unpackings(s, cls):
            if len(n.targets[0].elts) >= 2:
                a, b = n.targets[0].elts[:2]
                yield s.at(n), s.put(n.targets[0], ", ".join([s.read(b), s.read(a)] + [s.read(e) for e in n.targets[0].elts[2:]]))


def fewer_unpacked(s):
    for cls in stages(s):
        for n in unpackings(s, cls):
            if s.at(n):
                elts = n.targets[0].elts
                yield s.at(n), s.put(n.targets[0], ", ".join(s.read(e) for e in elts) + ", extra")


def no_set_input(s):
    for cls in stages(s):
        f = method(cls, "set_input_tensor")
        if f is not None and "state_dict_for_save_checkpoint" in s.read(cls):
            yield f"{cls.name}.set_input_tensor", s.put(f, "pass")


def no_attribute(s):
    for cls in stages(s):
        for n in s.of(ast.Assign, cls):
            name = s.read(n.targets[0]).removeprefix("self.")
            if name in ("pre_process", "share_embeddings_and_output_weights") and s.read(n.value) == "None":
                yield f"{cls.name}.{name}", s.put(n, "pass")


def packed_result(s):
    found = stages(s)
    for cls in found:
        f = method(cls, "forward")
        last = cls.name == max((c.name for c in found), default="")
        for r in s.of(ast.Return, f):
            if r.value is None:
                continue
            if last and not isinstance(r.value, ast.Tuple) and len(found) > 1:
                yield s.at(r), s.put(r.value, f"({s.read(r.value)},)")
            if not last and isinstance(r.value, ast.Tuple) and len(r.value.elts) == 1:
                yield s.at(r), s.put(r.value, s.read(r.value.elts[0]))


def reads_argument(s):
    for cls in stages(s):
        f = method(cls, "forward")
        for n in s.of(ast.Assign, f):
            if s.read(n.value) == "self.input_tensor" and len(f.args.args) > 1:
                yield s.at(n), s.put(n.value, f.args.args[1].arg)


def mask_crosses(s):
    for cls in stages(s):
        for r in s.of(ast.Return, method(cls, "forward")):
            if isinstance(r.value, ast.Tuple) and len(r.value.elts) >= 1 and len(stages(s)) > 1:
                for extra in ("None", "torch.ones(1)"):
                    text = s.put(r.value, "(" + ", ".join([s.read(e) for e in r.value.elts] + [extra]) + ")")
                    number = int(re.search(r"\d+$", cls.name).group())
                    body = Source(text)
                    for nxt in stages(body):
                        if nxt.name.endswith(f"_stage{number + 1}"):
                            for n in unpackings(body, nxt):
                                yield s.at(r) + " " + extra, body.put(n.targets[0], ", ".join([body.read(e) for e in n.targets[0].elts] + ["mask"]))


def changed_depth(s):
    for cls in stages(s):
        for n in s.of(ast.Call, method(cls, "__init__")):
            if s.callee(n) == "range" and len(n.args) == 2 and isinstance(n.args[1], ast.Constant):
                yield s.at(n), s.put(n.args[1], str(n.args[1].value - 1))
                yield s.at(n), s.put(n.args[0], str(n.args[0].value + 1))


def changed_rates(s):
    for cls in stages(s):
        for n in s.of(ast.Call, method(cls, "__init__")):
            if s.callee(n) == "linspace":
                yield s.at(n), s.put(n.args[2], "2 * " + s.read(n.args[2]))
                yield s.at(n), s.put(n.args[1], "0.5 * " + s.read(n.args[1]))


def changed_default(s):
    for cls in stages(s):
        f = method(cls, "__init__")
        for a, d in zip(f.args.args[len(f.args.args) - len(f.args.defaults):], f.args.defaults):
            if isinstance(d, ast.Constant) and isinstance(d.value, float) and "drop" not in a.arg and re.search(r"\b%s\b" % a.arg, s.read(f).split("):", 1)[1]):
                yield f"{cls.name} {a.arg}", s.put(d, str(d.value * 2))


def skip_changed(s):
    for cls in stages(s):
        f = method(cls, "forward")
        for n in unpackings(s, cls):
            for e in n.targets[0].elts:
                name = s.read(e)
                later = s.text[s.span(n)[1]: s.span(f)[1]]
                if len(re.findall(rf"\b{name}\b", later)) == 1 and re.search(rf"return [^\n]*\b{name}\b", later):
                    yield s.at(n), s.put(n, s.read(n) + "\n" + " " * n.col_offset + f"{name} = torch.relu({name})")
                    yield s.at(n), s.put(n, s.read(n) + "\n" + " " * n.col_offset + f"{name} = {name} * 0.5")


def detached(s):
    for cls in stages(s):
        f = method(cls, "forward")
        for n in unpackings(s, cls):
            for e in n.targets[0].elts:
                name = s.read(e)
                uses = [u for u in s.of(ast.Name, f) if u.id == name and isinstance(u.ctx, ast.Load)]
                if len(uses) == 1:
                    yield s.at(n), s.put(uses[0], name + ".detach()")


def no_activation(s):
    for n in s.of(ast.Call):
        if s.callee(n) in ("gelu", "silu", "relu") and n.args and s.class_of(n) is not None and "Distributed" in s.class_of(n).name:
            yield s.at(n), s.put(n, s.read(n.args[0]))
            if isinstance(n.func, ast.Attribute):
                yield s.at(n), s.put(n.func, s.read(n.func.value) + ".tanh")


# kind -> (operator, codes that name it)
FAULTS = {
    "input_is_parallel on a share set to False": (_flag("input_is_parallel", "True", "False", ROW), {"SW102"}),
    "input_is_parallel on a whole value set to True": (_flag("input_is_parallel", "False", "True", ROW), {"SW101"}),
    "column output gathered": (_flag("gather_output", "False", "True", COLUMN), {"SW101", "SW106", "SW105", "SW108", "SW115"}),
    "column output left sharded": (_flag("gather_output", "True", "False", COLUMN), {"SW105", "SW101", "SW102", "SW111"}),
    "[0] dropped": (drop_first, {"SW103"}),
    "gather dropped": (_unwrap("gather_from_tensor_model_parallel_region"), {"SW105", "SW102", "SW111"}),
    "sum dropped": (_unwrap("reduce_from_tensor_model_parallel_region"), {"SW122", "SW105", "SW110", "SW119"}),
    "full heads in a view": (full_heads, {"SW106"}),
    "share not taken in the constructor": (no_share, {"SW106", "SW108"}),
    "stride dropped": (drop_stride, {"SW107"}),
    "parameter unmarked or held whole": (unmark, {"SW108"}),
    "gradient not summed": (unsummed, {"SW109"}),
    "bias before the sum": (early_bias, {"SW110"}),
    "summed twice": (twice, {"SW115", "SW110"}),
    "serial layer": (serial, {"SW111", "SW102", "SW101", "SW105", "SW106", "SW108"}),
    "statistic over shares": (whole_statistics, {"SW105"}),
    "activation on a partial sum": (partial_activation, {"SW122"}),
    "row weight past its sum": (bare_weight, {"SW119", "SW122", "SW105", "SW110"}),
    "required keyword missing": (missing_keyword, {"SW116"}),
    "attribute misspelt": (misspelt, {"SW307"}),
    "random state of the other kind": (wrong_random_state, {"SW113"}),
    "sum outside autograd": (no_autograd, {"SW120"}),
    "stage outputs swapped": (swapped_outputs, {"SW203", "SW206", "SW301"}),
    "stage inputs swapped": (swapped_inputs, {"SW203", "SW206", "SW301"}),
    "more unpacked than sent": (fewer_unpacked, {"SW203"}),
    "set_input_tensor removed": (no_set_input, {"SW201"}),
    "stage attribute removed": (no_attribute, {"SW201"}),
    "result packed or bare": (packed_result, {"SW204"}),
    "later stage reads its argument": (reads_argument, {"SW202"}),
    "mask passed on": (mask_crosses, {"SW205", "SW214", "SW216"}),
    "depth changed": (changed_depth, {"SW208"}),
    "rates changed": (changed_rates, {"SW208"}),
    "default changed": (changed_default, {"SW208"}),
    "skip changed on the way": (skip_changed, {"SW206", "SW117"}),
    "received tensor detached": (detached, {"SW214"}),
    "activation missing or another": (no_activation, {"SW117"}),
}


# ---- edits that change nothing ----------------------------------------------------------------------------------------------------------


def renamed_local(s):
    for f in s.of(ast.FunctionDef):
        if f.name != "forward":
            continue
        names = {n.id for n in s.of(ast.Name, f) if isinstance(n.ctx, ast.Store)} - {a.arg for a in f.args.args}
        for name in sorted(names)[:2]:
            a, b = s.span(f)
            if not re.search(rf"[.\"']{name}\b|\b{name}=", s.text[a:b]):
                yield f"{name} in line {f.lineno}", s.text[:a] + re.sub(rf"\b{name}\b", name + "_value", s.text[a:b]) + s.text[b:]


def swapped_sum(s):
    for n in s.of(ast.BinOp):
        f = s.function_of(n)
        if isinstance(n.op, ast.Add) and f is not None and f.name == "forward" and isinstance(n.left, ast.Name):
            yield s.at(n), s.put(n, f"{s.read(n.right)} + {s.read(n.left)}" if not isinstance(n.right, ast.BinOp) else f"({s.read(n.right)}) + {s.read(n.left)}")


def reordered_keywords(s):
    for made in s.layers.values():
        if len(made.keywords) >= 2:
            first, last = made.keywords[0], made.keywords[-1]
            a, b = s.read(first), s.read(last)
            (x, y), (u, v) = s.span(first), s.span(last)
            yield s.at(made), s.text[:x] + b + s.text[y:u] + a + s.text[v:]


def named_first(s):
    """x = layer(…)[0]  ->  x, _ = layer(…)"""
    for n in s.of(ast.Assign):
        if isinstance(n.value, ast.Subscript) and isinstance(n.targets[0], ast.Name) and s.layer(n.value.value) and isinstance(n.value.slice, ast.Constant):
            yield s.at(n), s.put(n, f"{s.read(n.targets[0])}, _ = {s.read(n.value.value)}")


def view_as_reshape(s):
    for n in s.of(ast.Call):
        if isinstance(n.func, ast.Attribute) and n.func.attr == "view" and len(n.args) > 1:
            yield s.at(n), s.put(n.func, s.read(n.func.value) + ".reshape")


def contiguous(s):
    for n in s.of(ast.Subscript):
        if isinstance(n.slice, ast.Constant) and n.slice.value == 0 and s.layer(n.value):
            yield s.at(n), s.put(n, s.read(n) + ".contiguous()")


def commented(s):
    for f in s.of(ast.FunctionDef)[:3]:
        n = f.body[-1]
        yield s.at(n), s.put(n, s.read(n) + "  # as in the paper")


def minus_one(s):
    """The last size of a view that no other -1 is in."""
    for n in s.of(ast.Call):
        if s.callee(n) in ("view", "reshape") and isinstance(n.func, ast.Attribute) and len(n.args) > 1 and "-1" not in s.read(n) and not isinstance(n.func.value, ast.Name):
            yield s.at(n), s.put(n.args[-1], "-1")


NEUTRAL = {"renamed": renamed_local, "terms swapped": swapped_sum, "keywords in another order": reordered_keywords, "unpacked": named_first, "view as reshape": view_as_reshape,
           "contiguous": contiguous, "comment": commented, "last size as -1": minus_one}


def _changes(operators, source):
    s = Source(source)
    for kind, operator in operators.items():
        operator = operator[0] if isinstance(operator, tuple) else operator
        for where, text in operator(s):
            try:
                ast.parse(text)
            except SyntaxError:
                continue
            if text != source:
                yield kind, where, text


def mutants(program):
    """(kind, file, where, files) of every single fault and of every edit that changes nothing."""
    for file in program.mutable:
        # Where nothing is drawn, rates of dropout are no numbers that a run shows.
        for kind, where, text in [*_changes(FAULTS, program.files[file]), *_changes(NEUTRAL, program.files[file])]:
            if kind in ("rates changed", "default changed") and not program.draws:
                continue
            yield kind, file, where, {**program.files, file: text}
