"""What convert does with sources of every kind: options, slices, constructors that look around, state, comments, names, line ends."""
import io
import os
import re
import tokenize
from unittest import mock

from test_cli import TESTDATA, Case

COMMENTED = '''# A license

"""doc"""
# about the imports
import torch  # torch itself
import torch.nn as nn

# ---- constants ----
# width factor
K = 2  # twice
UNUSED = 3


# helper: doubles
# (second line)
@torch.no_grad()  # no gradient
def f(x):
    # in f
    return x * K  # last of f


# between f and B
# about B
class B(nn.Module):  # header of B
    # class comment
    scale = 1.0  # class attribute

    # before init
    def __init__(self, d):  # header of init
        super().__init__()
        self.a = nn.Linear(d, K * d)
        self.b = nn.Linear(K * d, d)  # last of init
        # below init

    # before forward
    def forward(self, x):
        if x.shape[0] > 0:  # if comment
            pass  # nothing
        # before return
        return self.b((self.a(x) + f(x).mean()).relu())  # last of a class
    # below the class body


# about Net
class Net(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.h = nn.ModuleList([  # list
            B(d)  # element
            for _ in range(4)])  # layers
        # end of init

    def forward(self, x):
        for b in self.h:
            x = b(x)  # last of a loop
            # below loop
        # before return
        return x  # the end
        # below the end


# end of file
'''


class Source(Case):
    def test_options_from_argparse(self):
        """Options of argparse have their defaults; what is not followed is said by every command, with the first reason."""
        model = ("import argparse\nimport random\nfrom torch import nn\n\n\ndef options():\n    p = argparse.ArgumentParser()\n    p.add_argument('--depth', type=int, default=%s)\n"
                 "    return p.parse_known_args()[0]\n\n\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        opt = options()\n"
                 "        self.layers = nn.ModuleList([nn.Linear(16, 16) for _ in range(opt.depth)])\n\n    def forward(self, x):\n        for layer in self.layers:\n"
                 "            x = layer(x).relu()\n        return x\n")
        self.write("options.py", model % 4)
        done = self.good("tree", "options.py:Net", "--input", "x=f32[2,16]")
        self.assertEqual((done.stderr, done.stdout.count("Linear")), ("", 1))
        self.assertRegex(done.stdout, r"0–3 \(4×\)")
        self.good("convert", "options.py:Net", "--input", "x=f32[2,16]", "--tp", 2, "--pp", 2, "-o", "out")
        self.write("options.py", model % "random.randint(1, 4)")
        done = self.good("tree", "options.py:Net", "--input", "x=f32[2,16]")
        self.assertRegex(done.stderr, r"options\.py:\d+:\d+: warning: not followed from here on: a random number; a loop or call depends on it")
        for grid in (["--tp", 2], ["--pp", 2]):
            self.bad("convert", "options.py:Net", "--input", "x=f32[2,16]", *grid, "-o", "none", says=[r"note: not followed from here on: a random number"])

    def test_stock_layers_without_torch(self):
        """PyTorch's own layers split where its source is not at hand; a stage's class stands behind the one it is derived from."""
        self.write("stock.py", "import torch\nfrom torch import nn\n\n\nclass Mine(nn.TransformerEncoderLayer):\n    def _ff_block(self, x):\n        return super()._ff_block(x) * 2\n\n\n"
                   "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.layers = nn.ModuleList([Mine(16, 4, 32) for _ in range(3)])\n\n"
                   "    def forward(self, x):\n        for layer in self.layers:\n            x = layer(x)\n        return x\n")
        with mock.patch.dict(os.environ):
            for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
                os.environ.pop(name, None)
            self.good("convert", "stock.py:Net", "--input", "x=f32[2,3,16]", "--tp", 2, "--pp", 2, "-o", "out")
        layer = (self.dir / "out/net_parallel/torch/nn/modules/transformer.py").read_text()
        for name in ("ParallelMultiheadAttention", "ColumnParallelLinear", "RowParallelLinear", "ShardedDropout"):
            self.assertIn(name, layer)
        stage = (self.dir / "out/net_parallel/stage0.py").read_text()
        self.assertLess(stage.index("class TransformerEncoderLayer_stage0("), stage.index("class Mine_stage0("))

    SLICES = """\
import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, d=32, heads=4, kv=2):
        super().__init__()
        self.heads, self.kv, self.size = heads, kv, d // heads
        self.qkv, self.o = nn.Linear(d, (heads + 2 * kv) * self.size), nn.Linear(d, d)
        self.norm = nn.GroupNorm(heads, d)

    def forward(self, x):
        y, a, b = self.qkv(x), self.heads * self.size, self.kv * self.size
        q, k, v = y[..., :a], y[:, :, a:a + b], y[..., -b:]
        q = q.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = (t.unflatten(-1, (self.kv, -1)).transpose(1, 2).repeat_interleave(self.heads // self.kv, 1) for t in (k, v))
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return self.o(self.norm(y.transpose(1, 2)).transpose(1, 2))


class Gated(nn.Module):
    def __init__(self, d=32, f=64):
        super().__init__()
        self.f, self.a, self.b, self.c, self.d = f, nn.Linear(d, 2 * f), nn.Linear(f, d), nn.Linear(d, 2 * f), nn.Linear(f, d)

    def forward(self, x):
        y = self.a(x)
        x = x + self.b(F.silu(y[..., ::2]) * y[..., 1::2])
        y = self.c(x)
        half = y.shape[-1] // 2
        return x + self.d(F.silu(y[..., :half]) * y.narrow(-1, self.f, self.f))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.gated = Attention(), Gated()

    def forward(self, x):
        return self.gated(x + self.attention(x))
"""

    def test_projections_cut_by_slices(self):
        """Slices that together are a whole dimension split as chunk and split do; group norms at their groups."""
        self.write("slices.py", self.SLICES)
        done = self.good("convert", "slices.py:Net", "--input", "x=f32[2,5,32]", "--tp", 2, "-o", "out")
        self.assertEqual(done.stderr, "")
        text = "".join(p.read_text() for p in sorted((self.dir / "out/net_parallel").rglob("*.py")))
        self.assertEqual((text.count("ColumnParallelLinear("), text.count("RowParallelLinear(")), (3, 3))
        for piece in ("y[..., :a // tp_size()], y[:, :, a // tp_size():(a + b) // tp_size()], y[..., -b // tp_size():]",
                      "shard_module(nn.GroupNorm(heads, d), weight=(0, None), bias=(0, None))", "F.silu(y[..., ::2]) * y[..., 1::2]",
                      "half = y.shape[-1] // 2\n", "F.silu(y[..., :half]) * y.narrow(-1, self.f // tp_size(), self.f // tp_size())"):
            self.assertIn(piece, text)
        # Pieces that leave something out, or overlap, are no such cut.
        self.write("slices.py", self.SLICES.replace("y[..., 1::2]", "y[..., 1:1 + 64]").replace("::2", ":64"))
        self.good("convert", "slices.py:Net", "--input", "x=f32[2,5,32]", "--tp", 2, "-o", "overlap")
        self.assertIn("y[..., 1:1 + 64]", "".join(p.read_text() for p in (self.dir / "overlap/net_parallel").rglob("*.py")))

    def test_constructors_that_read_what_was_built(self):
        """Widths read from modules built before, lists popped by the constructor: a stage builds all of it and drops what is not its own."""
        self.write("skips.py", """\
from torch import nn


class Net(nn.Module):
    def __init__(self, widths=(8, 12, 16, 12)):
        super().__init__()
        self.enc = nn.ModuleDict()
        last = 8
        for i, w in enumerate(widths):
            self.enc[f"e{i}"] = nn.Linear(last, w)
            last = w
        skips = [block.weight.shape[0] for block in self.enc.values()]
        self.dec = nn.ModuleDict()
        self.groups = nn.ModuleList()
        for i in range(4):
            group = nn.ModuleList([])
            for _ in range(2):
                group.append(nn.Linear(last, last))
            self.groups.append(nn.ModuleList([group, nn.LayerNorm(last)]))
            w = skips.pop()
            self.dec[f"d{i}"] = nn.Linear(last, w)
            last = w

    def forward(self, x):
        for block in self.enc.values():
            x = block(x).relu()
        for (group, norm), block in zip(self.groups, self.dec.values()):
            for layer in group:
                x = x + layer(x)
            x = block(norm(x)).relu()
        return x
""")
        for pp in (2, 3, 4):
            self.good("convert", "skips.py:Net", "--input", "x=f32[2,8]", "--pp", pp, "-o", f"out{pp}")

    def test_constructors_that_count_what_was_built(self):
        """A number over all parameters is the original's in every stage, which therefore builds all of it first; one that is printed is not."""
        for kept in (True, False):
            count = "sum(p.numel() for p in self.parameters())"
            self.write("counted.py", f"""\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width=8, depth=4):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(depth)])
        total = {count}
        {'self.register_buffer("share", torch.tensor(1e3 / total), persistent=False)' if kept else 'print(total)'}
        for p in self.parameters():
            nn.init.normal_(p, std=0.1)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu(){' * self.share' if kept else ''}
        return x
""")
            self.good("convert", "counted.py:Net", "--input", "x=f32[2,8]", "--pp", 2, "-o", f"out{kept}")
            text = (self.dir / f"out{kept}/net_parallel/stage1.py").read_text()
            self.assertEqual(("if i >= 2 else Absent()" in text, "drop_unused(self, [" in text), (not kept, kept), text)

    def test_layers_that_stay_whole_are_named_once(self):
        self.write("recurrent.py", "from torch import nn\n\n\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)\n"
                   "        self.rnn = nn.LSTM(16, 16, num_layers=2, batch_first=True)\n\n    def forward(self, x):\n        x, _ = self.rnn(x)\n        return self.down(self.up(x).relu())\n")
        done = self.good("convert", "recurrent.py:Net", "--input", "x=f32[2,5,16]", "--tp", 2, "-o", "out")
        self.assertEqual(done.stderr.count("(rnn) stays replicated"), 1, done.stderr)
        self.assertRegex(done.stderr, r"LSTM \(rnn\) stays replicated: .*no rule says how it can be computed in parts")

    def test_what_stays_whole_is_named(self):
        self.write("normed.py", "import torch\nfrom torch import nn\n\n\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
                   "        self.up, self.down, self.norm = nn.Linear(16, 32), nn.Linear(32, 16), nn.LayerNorm(32)\n"
                   "        self.a, self.b = nn.Linear(16, 64), nn.Linear(64, 16)\n\n    def forward(self, x):\n        return self.b(self.a(x).relu()) + self.down(self.norm(self.up(x)))\n")
        self.good("convert", "normed.py:Net", "--input", "x=f32[2,3,16]", "--tp", 2, "-o", "normed")
        readme = (self.dir / "normed" / "README.md").read_text()
        self.assertIn("up.weight", readme)
        self.assertIn("the axis of size 32 is not split: a norm is computed over it", readme)
        self.assertNotIn("a.weight:", readme)

    def test_input_called_like_what_is_received(self):
        self.write("named.py", "from torch import nn\n\n\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
                   "        self.a, self.b = nn.Linear(16, 16), nn.Linear(16, 16)\n\n    def forward(self, x, received_scale):\n"
                   "        y = self.a(x)\n        y = y * received_scale\n        return self.b(y)\n")
        self.good("convert", "named.py:Net", "--input", "x=f32[2,3,16]", "--input", "received_scale=f32[2,3,16]", "--pp", 2, "-o", "named")

    def test_state_for_the_next_call(self):
        self.write("kept.py", "import torch\nfrom torch import nn\n\n\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
                   "        self.a, self.b, self.c = (nn.Linear(16, 16) for _ in range(3))\n        self.register_buffer('centre', torch.zeros(16))\n\n"
                   "    def forward(self, x):\n        y = self.a(x - self.centre)\n        y = self.b(y)\n        y = self.c(y)\n"
                   "        self.centre.mul_(0.9).add_(y.detach().mean((0, 1)), alpha=0.1)\n        return y\n")
        self.bad("convert", "kept.py:Net", "--input", "x=f32[2,3,16]", "--pp", 2, "-o", "kept", says=["changed in forward behind the cut", "read before it by the next call"])

    def test_branch_of_training(self):
        self.write("modes.py", "import torch\nfrom torch import nn\n\n\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
                   "        self.a, self.b = nn.Linear(16, 32), nn.Linear(32, 16)\n\n    def forward(self, x):\n        y = self.a(x)\n        if self.training:\n"
                   "            y = y / y.norm(dim=-1, keepdim=True)\n        return self.b(y)\n")
        done = self.good("convert", "modes.py:Net", "--input", "x=f32[2,3,16]", "--tp", 2, "-o", "modes")
        self.assertIn("modes.py:12:12: warning: `training` decides here", done.stderr)
        self.bad("convert", "modes.py:Net", "--input", "x=f32[2,3,16]", "--tp", 2, "--set", "mode=train", "-o", "train", says="nothing in this model can be split")

    def test_comments_of_every_place(self):
        """A file whose name no module can have, with a comment in every place."""
        self.write("my-model.py", COMMENTED)
        original = {line[line.index("# "):] for line in COMMENTED.splitlines() if "# " in line}
        for tp, pp in [(1, 1), (2, 1), (1, 2), (2, 2)]:
            with self.subTest(tp=tp, pp=pp):
                out = self.dir / f"out{tp}{pp}"
                self.good("convert", "my-model.py:Net", "--input", "x=f32[2,16]", "--tp", tp, "--pp", pp, "-o", out)
                text = ""
                for path in out.rglob("*_parallel/**/*.py"):
                    compile(path.read_text(), str(path), "exec")
                    text += path.read_text()
                self.assertEqual([c for c in sorted(original) if c not in text], [])
                self.assertEqual(text.count("# below loop"), pp)

    def test_a_class_that_types_are_compared_with_keeps_its_name(self):
        (self.dir / "exact.py").write_text(
            "import torch\nfrom torch import nn\n\n\nclass Lin(nn.Module):\n    def __init__(self, i, o):\n        super().__init__()\n"
            "        self.weight = nn.Parameter(torch.randn(i, o))\n\n    def forward(self, x):\n        return x @ self.weight\n\n\n"
            "def start(m):\n    if type(m) is Lin:\n        nn.init.normal_(m.weight, std=0.02)\n\n\n"
            "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.a, self.b = Lin(16, 64), Lin(64, 16)\n"
            "        self.c, self.d = nn.Linear(16, 64), nn.Linear(64, 16)\n        self.apply(start)\n\n"
            "    def forward(self, x):\n        return self.d(self.c(self.b(self.a(x).relu())).relu())\n")
        out = self.dir / "exact"
        done = self.good("convert", "exact.py:Net", "--input", "x=f32[2,16]", "--tp", 2, "-o", out)
        self.assertRegex(done.stderr, "a.weight.*the program compares types with the class Lin")
        self.assertNotRegex("".join(p.read_text() for p in out.rglob("*.py")), r"class Lin\w+")

    def test_comments_survive(self):
        def comments(path):
            with open(path, "rb") as f:
                return {t.string for t in tokenize.tokenize(f.readline) if t.type == tokenize.COMMENT}

        for job in sorted(TESTDATA.glob("*.yaml")):
            if not job.with_suffix(".py").exists():   # a package of several files
                continue
            original = comments(job.with_suffix(".py"))
            for tp, pp in [(2, 1), (1, 2), (2, 2)]:
                with self.subTest(job=job.name, tp=tp, pp=pp):
                    out = self.dir / f"{job.stem}_{tp}_{pp}"
                    done = self.run_it("convert", job, "--tp", tp, "--pp", pp, "-o", out)
                    if pp == 1 and "nothing in this model can be split" in done.stderr:
                        continue
                    self.assertEqual(done.returncode, 0, done.stderr)
                    kept = set()
                    for path in out.rglob("*_parallel/**/*.py"):
                        kept |= comments(path)
                    if pp == 1:  # classes that tensor parallelism leaves alone are imported, not copied
                        text = "".join(p.read_text() for p in out.rglob("*_parallel/**/*.py"))
                        copied = set(re.findall(r"^class (\w+)", text, re.M))
                        source = job.with_suffix(".py").read_text()
                        original_here = set()
                        for block in re.split(r"(?m)^(?=class |def )", source):
                            name = re.match(r"class (\w+)", block)
                            if name and name.group(1) in copied:
                                original_here |= {t.string for t in tokenize.generate_tokens(io.StringIO(block).readline) if t.type == tokenize.COMMENT}
                        self.assertLessEqual(original_here, kept)
                    else:
                        self.assertLessEqual(original, kept)

    BLOCKS = ("from torch import nn\n\n\nclass %s(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.emb = nn.Linear(16, 16)\n"
              "        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 16)) for _ in range(4)])\n\n"
              "    def forward(self, x):\n        x = self.emb(x)\n        for block in self.blocks:\n            x = block(x)\n        return x\n")

    def test_names_of_packages(self):
        for name, package in [("ViT", "vit"), ("MoEGPT", "moegpt"), ("ViTModel", "vit_model"), ("MoELayer", "moe_layer"), ("LoRA", "lora"), ("MyNet", "my_net"), ("GPT2Model", "gpt2_model"), ("VisionTransformer", "vision_transformer")]:
            with self.subTest(name=name):
                self.write("named.py", self.BLOCKS % name)
                self.good("convert", f"named.py:{name}", "--input", "x=f32[2,16]", "--tp", 2, "-o", name)
                self.assertTrue((self.dir / name / f"{package}_parallel").is_dir(), sorted(p.name for p in (self.dir / name).iterdir()))

    def test_which_blocks_a_stage_holds(self):
        self.write("blocks.py", self.BLOCKS % "Net")
        self.good("convert", "blocks.py:Net", "--input", "x=f32[2,16]", "--pp", 2, "-o", "out")
        rows = re.findall(r"(?m)^\| [01] \| (.*?) \|", (self.dir / "out/README.md").read_text())
        self.assertRegex("; ".join(rows), r"^emb, blocks\.0-1; blocks\.2-3$")

    def test_line_ends(self):
        """A source with CRLF gives files with one kind of line end."""
        self.write("crlf.py", (self.BLOCKS % "Net").replace("\n", "\r\n").encode())
        for tp, pp in [(1, 2), (2, 1), (2, 2)]:
            self.good("convert", "crlf.py:Net", "--input", "x=f32[2,16]", "--tp", tp, "--pp", pp, "-o", f"out{tp}{pp}")
            for path in (self.dir / f"out{tp}{pp}").rglob("*.py"):
                self.assertNotIn(b"\r", path.read_bytes(), path.name)
        self.assertIn("nothing to do", self.good("convert", "crlf.py:Net", "--input", "x=f32[2,16]", "--tp", 2, "--pp", 2, "-o", "out22").stdout)

    def test_copies_that_have_no_name(self):
        self.write("distilled.py", "import copy\n" + self.BLOCKS % "Net" + "\n\nclass Distilled(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
                   "        self.student = Net()\n        self.teacher = copy.deepcopy(self.student)\n\n    def forward(self, x):\n        return self.student(x)\n")
        done = self.bad("convert", "distilled.py:Net", "--input", "x=f32[2,16]", "--set", "build=Distilled().student", "--pp", 2, "-o", "out",
                        says=r"note: \d+ places: the model is copied by `deepcopy` to another model, and the copy shares its constructor call")
        self.assertNotIn("``", done.stderr)
