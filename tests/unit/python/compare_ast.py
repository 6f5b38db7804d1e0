#!/usr/bin/env python3
"""Compares lib/python's reading of real files with CPython's own: every statement and expression with its kind, its place and
its value, every comment, every function's local names.

    tests/unit/python/compare_ast.py BUILD_DIR [FOLDER] [--most N] [--show N]

FOLDER defaults to .cache/corpus. Files that CPython itself cannot read are left out. Exits with 1 on any difference.
"""
import argparse
import ast
import io
import os
import random
import subprocess
import symtable
import sys
import tempfile
import tokenize
import warnings
from collections import Counter
from pathlib import Path

warnings.simplefilter("ignore")
OPS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**", ast.MatMult: "@",
       ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>", ast.USub: "-", ast.UAdd: "+",
       ast.Invert: "~", ast.Not: "not", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
       ast.Is: "is", ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in", ast.And: "and", ast.Or: "or"}
STMTS = {"Expr": "Expression", "AsyncFor": "For", "AsyncWith": "With", "AsyncFunctionDef": "FunctionDef", "TryStar": "Try"}
EXPRS = {"JoinedStr": "FString", "IfExp": "Conditional", "NamedExpr": "Walrus", "UnaryOp": "Unary", "BinOp": "Binary"}


def digest(data):
    h = 2166136261
    for c in data:
        h = ((h ^ c) * 16777619) & 0xFFFFFFFF
    return f"{len(data)}:{h:08x}"


def g17(x):
    return "%.17g" % x


class Records:
    def __init__(self, source, tree, locals_of):
        self.source, self.locals_of, self.out = source, locals_of, []
        self.starts = [0]
        for i, c in enumerate(source):
            if c == 10:
                self.starts.append(i + 1)
        # CPython drops the byte order mark before it counts columns.
        self.bom = 3 if source.startswith(b"\xef\xbb\xbf") else 0
        self.stmts(tree.body, None)

    def place(self, node):
        begin = self.starts[node.lineno - 1] + node.col_offset + (self.bom if node.lineno == 1 else 0)
        end = self.starts[node.end_lineno - 1] + node.end_col_offset + (self.bom if node.end_lineno == 1 else 0)
        return f"{begin:08d} {end}"

    def put(self, kind, node, extra, placed=True):
        self.out.append(f"{self.place(node) if placed else '-'} {kind} {extra}")

    def parameters(self, a):
        out = []
        positional = a.posonlyargs + a.args
        first_default = len(positional) - len(a.defaults)
        for i, p in enumerate(positional):
            out.append(("/" if i < len(a.posonlyargs) else "") + p.arg + ("=" if i >= first_default else ""))
        if a.vararg:
            out.append("*" + a.vararg.arg)
        for p, d in zip(a.kwonlyargs, a.kw_defaults):
            out.append("kw:" + p.arg + ("=" if d else ""))
        if a.kwarg:
            out.append("**" + a.kwarg.arg)
        return "".join(p + "," for p in out)

    def expr(self, node, placed=True):
        if isinstance(node, (ast.arguments, ast.keyword, ast.comprehension, ast.arg, ast.withitem)):
            for child in ast.iter_child_nodes(node):
                self.expr(child, placed)
            return
        if isinstance(node, (ast.expr_context, ast.operator, ast.boolop, ast.unaryop, ast.cmpop)):
            return
        name = type(node).__name__
        kind, extra = EXPRS.get(name, name), ""
        if isinstance(node, ast.Constant):
            v = node.value
            if v is None or v is True or v is False:
                kind = str(v)
            elif v is Ellipsis:
                kind = "Ellipsis"
            elif isinstance(v, int):
                kind, extra = "Int", str(v) if v < 2**63 else "big"
            elif isinstance(v, float):
                kind, extra = "Float", g17(v)
            elif isinstance(v, complex):
                kind, extra = "Imaginary", g17(v.imag)
            elif isinstance(v, bytes):
                kind, extra = "Bytes", digest(v)
            else:
                kind, extra = "String", digest(v.encode("utf-8", "surrogatepass"))
        elif isinstance(node, ast.Name):
            extra = node.id
        elif isinstance(node, ast.Attribute):
            extra = node.attr
        elif isinstance(node, (ast.UnaryOp, ast.BinOp)):
            extra = OPS[type(node.op)]
        elif isinstance(node, ast.BoolOp):
            extra = f"{len(node.values)}{OPS[type(node.op)]}"
        elif isinstance(node, ast.Compare):
            extra = "".join(OPS[type(o)] + "," for o in node.ops)
        elif isinstance(node, ast.Call):
            parts = [(a, "*," if isinstance(a, ast.Starred) else "p,") for a in node.args]
            parts += [(k.value, "**,") for k in node.keywords if not k.arg]
            parts.sort(key=lambda p: (p[0].lineno, p[0].col_offset))
            extra = "".join(p[1] for p in parts) + "".join(k.arg + "=," for k in node.keywords if k.arg)
        elif isinstance(node, ast.Lambda):
            extra = self.parameters(node.args)
        elif isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            extra = str(len(node.elts))
        elif isinstance(node, ast.Dict):
            extra = str(2 * len(node.keys))
        elif isinstance(node, ast.Slice):
            extra = "3"
        elif isinstance(node, ast.JoinedStr):
            self.put("FString", node, "", placed)
            self.fields(node)
            return
        self.put(kind, node, extra, placed)
        for child in ast.iter_child_nodes(node):
            self.expr(child, placed)

    def fields(self, node):
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                self.put("FormattedValue", part, "!" + chr(part.conversion) if part.conversion > 0 else "", False)
                self.expr(part.value, False)
                if part.format_spec:
                    self.fields(part.format_spec)

    def stmts(self, body, owner):
        for s in body:
            self.stmt(s, owner)

    def stmt(self, s, owner):
        name = type(s).__name__
        extra = ""
        inner = owner
        if isinstance(s, (ast.FunctionDef, ast.AsyncFunctionDef)):
            generator = any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in own_scope(s))
            extra = f"{s.name}({self.parameters(s.args)}){'gen' if generator else ''}{'async' if name[0] == 'A' else ''}{owner or ''} ["
            extra += "".join(n + "," for n in sorted(self.locals_of(s))) + "]"
            inner = None
        elif isinstance(s, ast.ClassDef):
            extra = f"{s.name}{len(s.bases) + len(s.keywords)}"
            inner = s.name
        elif isinstance(s, ast.Import):
            extra = ":" + "".join(f"{a.name}/{a.asname or ''}," for a in s.names)
        elif isinstance(s, ast.ImportFrom):
            extra = "." * s.level + (s.module or "") + ":" + "".join(f"{a.name}/{a.asname or ''}," for a in s.names)
        elif isinstance(s, (ast.Global, ast.Nonlocal)):
            extra = "".join(n + "," for n in s.names)
        elif isinstance(s, (ast.Assign, ast.Delete)):
            extra = str(len(s.targets))
        elif name in ("Try", "TryStar"):
            extra = "".join((h.name or "") + "," for h in s.handlers) + f"{len(s.body)}/{len(s.orelse)}/{len(s.finalbody)}"
        elif isinstance(s, (ast.With, ast.AsyncWith)):
            extra = "".join("t" if w.optional_vars else "n" for w in s.items)
        elif isinstance(s, (ast.If, ast.For, ast.AsyncFor, ast.While)):
            extra = f"{len(s.body)}/{len(s.orelse)}"
        elif isinstance(s, ast.AugAssign):
            extra = OPS[type(s.op)]
        self.put("S" + STMTS.get(name, name), s, extra)
        for field in ast.iter_fields(s):
            for node in field[1] if isinstance(field[1], list) else [field[1]]:
                if isinstance(node, ast.stmt):
                    self.stmt(node, inner)
                elif isinstance(node, ast.ExceptHandler):
                    if node.type:
                        self.expr(node.type)
                    self.stmts(node.body, inner)
                elif isinstance(node, ast.match_case):
                    if node.guard:
                        self.expr(node.guard)
                    self.stmts(node.body, inner)
                elif isinstance(node, ast.AST) and not isinstance(node, (ast.type_ignore, ast.alias)):
                    self.expr(node)


def own_scope(function):
    pending = list(function.body)
    while pending:
        n = pending.pop()
        yield n
        if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        if isinstance(n, ast.Lambda):
            continue
        pending.extend(ast.iter_child_nodes(n))


def local_names(text, path):
    tables = {}

    def visit(t):
        if t.get_type() == "function" and t.get_name() not in ("lambda", "listcomp", "dictcomp", "setcomp", "genexpr"):
            tables.setdefault((t.get_name(), t.get_lineno()), []).append([s.get_name() for s in t.get_symbols() if s.is_local()])
        for c in t.get_children():
            visit(c)

    visit(symtable.symtable(text, path, "exec"))

    def lookup(node):
        found = tables.get((node.name, node.lineno)) or tables.get((node.name, min([node.lineno] + [d.lineno for d in node.decorator_list])))
        return found.pop(0) if found else ["?"]

    return lookup


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("build")
    p.add_argument("folder", nargs="?", default=str(Path(__file__).resolve().parents[3] / ".cache/corpus"))
    p.add_argument("--most", type=int, default=600)
    p.add_argument("--later", action="store_true", help="bodies of functions are read when asked for")
    p.add_argument("--show", type=int, default=8)
    p.add_argument("--seed", type=int, default=7)
    a = p.parse_args()
    files = [a.folder] if os.path.isfile(a.folder) else sorted(str(f) for f in Path(a.folder).rglob("*.py"))
    random.Random(a.seed).shuffle(files)
    good, trees = [], {}
    for f in files:
        if len(good) >= a.most:
            break
        data = Path(f).read_bytes()
        try:
            text = data.decode("utf-8-sig")
            if "\r" in text.replace("\r\n", "") or "\f" in text:
                continue
            tree = ast.parse(data, f)
            comments = [t for t in tokenize.tokenize(io.BytesIO(data).readline) if t.type == tokenize.COMMENT]
            lookup = local_names(text, f)
        except (SyntaxError, ValueError, RecursionError, tokenize.TokenError):
            continue
        good.append(f)
        r = Records(data, tree, lookup)
        lines = data.split(b"\n")
        for c in comments:
            line = lines[c.start[0] - 1].decode("utf-8-sig" if c.start[0] == 1 else "utf-8")
            begin = r.starts[c.start[0] - 1] + len(line[:c.start[1]].encode()) + (r.bom if c.start[0] == 1 else 0)
            r.out.append(f"{begin:08d} {begin + len(c.string.encode())} Comment ")
        trees[f] = r.out
    with tempfile.TemporaryDirectory() as d:
        (Path(d) / "list").write_text("".join(f + "\n" for f in good))
        env = dict(os.environ, SHARDWRIGHT_AST_FILES=d + "/list", SHARDWRIGHT_AST_OUT=d + "/out")
        run = subprocess.run([a.build + "/bin/unit_python", "[.ast]"], env=env | ({"SHARDWRIGHT_AST_LATER": "1"} if a.later else {}), capture_output=True, text=True)
        print(run.stdout.splitlines()[1] if run.stdout else run.stderr)
        if run.returncode:
            print(run.stdout, run.stderr)
            return 1
        ours = {}
        for line in (Path(d) / "out").read_text().splitlines():
            if line.startswith("FILE "):
                ours[line[5:]] = current = []
            else:
                current.append(line)
    nodes = bad = 0
    for f in good:
        theirs, mine = trees[f], ours[f]
        nodes += len(theirs)
        left, right = Counter(x.strip() for x in theirs), Counter(x.strip() for x in mine)
        missing, extra = sorted((left - right).elements()), sorted((right - left).elements())
        # \N{…} names are not decoded: documented.
        named = [x for x in extra if x.endswith(" String named")]
        for x in named:
            key = x[: -len("named")]
            hit = next((m for m in missing if m.startswith(key)), None)
            if hit:
                missing.remove(hit)
                extra.remove(x)
        if not missing and not extra:
            continue
        bad += 1
        if bad <= a.show:
            print(f"{f}: {len(missing)} of CPython's missing, {len(extra)} of ours extra")
            for x in missing[:4]:
                print("   CPython:", x)
            for x in extra[:4]:
                print("   ours:   ", x)
    print(f"{len(good)} files, {nodes} nodes compared, {bad} files differ")
    return 1 if bad or not good else 0


if __name__ == "__main__":
    sys.exit(main())
