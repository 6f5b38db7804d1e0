"""Faults put into generated code, one of a kind each: verify finds every one and names the module that has it, or its parent.

The model is hand/original.py (fused qkv, a bias table by head, a norm shared by the heads, a tied embedding, a skip over the cut, a
schedule over depth, dropout), converted once to 2 x 2; every fault is an edit of a copy of what convert wrote. An edit whose text is not
there fails the test: the list cannot outlive the generator. KINDS are the fifteen that issue 3 names.

Run: SHARDWRIGHT_BINARY=build/bin/shardwright PYTHONPATH=runtime/python python -m unittest discover -s tests/equivalence -p test_faults.py
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from dataclasses import dataclass

HERE = os.path.dirname(os.path.abspath(__file__))
RUNTIME = os.path.abspath(os.path.join(HERE, "..", "..", "runtime", "python"))
BINARY = os.path.abspath(os.environ.get("SHARDWRIGHT_BINARY", "shardwright"))

KINDS = ["wrong input_is_parallel", "contiguous qkv", "unsummed replicated gradient", "bias counted twice", "bias table unsharded", "local size missed",
         "skip dropped", "drop-path slice wrong", "tied weight unsummed", "clip on one rank", "dropout stream shared", "stage order", "boundary tensors swapped",
         "mask constant", "local-shaped init from a stream that all ranks share"]

MODULES, STAGE0, STAGE1, INIT, PARAMS = "gpt_parallel/hand/original.py", "gpt_parallel/stage0.py", "gpt_parallel/stage1.py", "gpt_parallel/__init__.py", "params.yaml"
ATTENTION = tuple(f"blocks.{i}.attn" for i in range(4))
MLP = tuple(f"blocks.{i}.mlp" for i in range(4))
BLOCKS = tuple(f"blocks.{i}" for i in range(4))
REDUCE = "from shardwright.parallel import reduce_from_tensor_model_parallel_region as reduce_it\n"
FEED = "self.fc2(F.gelu(self.fc1(x)[0]))[0]"


@dataclass
class Fault:
    kind: str
    edits: list            # (file, regular expression, replacement)
    named: tuple = ()      # any of these modules must be named ("": the model)
    error: str = ""        # the program cannot run: this must be in the message
    arguments: tuple = ()
    alone: bool = False    # it changes the runtime itself: in a launch of its own


FAULTS = [
    Fault("wrong input_is_parallel", [(MODULES, r"RowParallelLinear\(dim, dim, input_is_parallel=True", "RowParallelLinear(dim, dim, input_is_parallel=False")], error="input_is_parallel"),
    Fault("contiguous qkv", [(MODULES, ", stride=3", ""), (PARAMS, r'(qkv.weight: \{)dims: "\(a b c\) d", sizes: \{a: 3, b: 4, c: 4, d: 16\}, shard: b', r'\1dims: "a b", sizes: {a: 48, b: 16}, shard: a'),
          (PARAMS, r'(qkv.bias: \{)dims: "\(a b c\)", sizes: \{a: 3, b: 4, c: 4\}, shard: b', r'\1dims: "a", sizes: {a: 48}, shard: a')],
          (*ATTENTION, *(a + ".qkv" for a in ATTENTION), *BLOCKS)),
    Fault("unsummed replicated gradient", [(MODULES, r"sum_gradients_over_tp\((nn.LayerNorm\(dim // heads\))\)", r"\1"), (PARAMS, r"(q_norm\.\w+: \{shard: null), grad_sum: tp", r"\1")],
          tuple(a + ".q_norm" for a in ATTENTION)),
    Fault("bias counted twice", [(MODULES, r"\A", REDUCE), (MODULES, re.escape(FEED), "reduce_it(F.linear(F.gelu(self.fc1(x)[0]), self.fc2.weight, self.fc2.bias))")],
          (*MLP, *(m + ".fc2" for m in MLP), *BLOCKS)),
    Fault("bias table unsharded", [(MODULES, r"shard_parameter\((nn.Parameter\(.*?\)\)), dim=0\)", r"\1"), (MODULES, r"self.bias_table\[:, :T, :T\]", "self.bias_table[:self.heads // tp_size(), :T, :T]"),
          (PARAMS, r'(bias_table: \{)dims: "a b c", sizes: \{a: 4, b: 8, c: 8\}, shard: a', r"\1shard: null")], (*ATTENTION, *BLOCKS)),
    Fault("local size missed", [(MODULES, r"3, self.heads // tp_size\(\)", "3, self.heads")], error="shape"),
    Fault("skip dropped", [(STAGE1, r"self.norm\(x \+ start\)", "self.norm(x + 0 * start)")], ("norm", "")),
    Fault("drop-path slice wrong", [(STAGE1, r"gains\[i\]\) if i >= 2", "gains[i - 2]) if i >= 2")], ("blocks.2", "blocks.2.mlp", "blocks")),
    Fault("tied weight unsummed", [(INIT, "def build_stage", "from shardwright.parallel import gradients\ngradients.tied_over_stages = lambda module: {}\n\n\ndef build_stage")],
          ("wte", "head"), alone=True),
    Fault("clip on one rank", [(INIT, "def build_stage", "import torch\nfrom shardwright.parallel import optimizer\nimport shardwright.parallel as parallel\n"
          "parallel.gradient_norm = optimizer.gradient_norm = lambda module: float(torch.nn.utils.get_total_norm(\n"
          "    [p.grad for p in module.parameters() if p.grad is not None]))\n\n\ndef build_stage")], (None,), alone=True),   # no module has it: the norm is named
    Fault("dropout stream shared", [(MODULES, r"ShardedDropout\(drop\)", "nn.Dropout(drop)")], (*ATTENTION, *(a + ".drop" for a in ATTENTION), *BLOCKS), arguments=("--with-dropout",)),
    Fault("stage order", [(INIT, r"STAGES = \[GPT_stage0, GPT_stage1\]", "STAGES = [GPT_stage1, GPT_stage0]")], error="stage"),
    Fault("boundary tensors swapped", [(STAGE1, "x, start = self.input_tensor", "start, x = self.input_tensor")], ("", "blocks", "blocks.2", "blocks.2.norm1")),
    Fault("mask constant", [(MODULES, r"device=x.device\)\.tril\(\)", "device=x.device)")], (*ATTENTION, *BLOCKS)),
    Fault("local-shaped init from a stream that all ranks share", [(INIT, r"return keep_slices\(model\)", "model = keep_slices(model)\n    import torch\n"
          "    for name, parameter in model.named_parameters():\n        if name.endswith('mlp.fc1.weight'):\n            torch.nn.init.normal_(parameter)\n    return model")],
          tuple(m + ".fc1" for m in MLP)),
    # beyond the fifteen
    Fault("column layer's sharded output taken as full", [(STAGE1, "gather_output=True", "gather_output=False")], ("head", "")),
    Fault("layer and params.yaml cut differently", [(MODULES, ", stride=3", "")], error="params.yaml"),
    Fault("output summed twice", [(MODULES, r"\A", REDUCE), (MODULES, r"return (self.proj\(.*\)\[0\])", r"return reduce_it(\1)")], (*ATTENTION, *BLOCKS)),
    Fault("a scale from the local width", [(MODULES, r"\(C // self.heads\) \*\* -0.5", "(C // self.heads // tp_size()) ** -0.5")], (*ATTENTION, *BLOCKS)),
    Fault("residual dropped", [(MODULES, r"x = x \+ self.attn", "x = self.attn")], (*BLOCKS, "blocks")),
    Fault("order of blocks in a stage", [(STAGE1, r"islice\(self.blocks, 2, None\)", "reversed(self.blocks[2:])")], ("", "blocks", "blocks.2", "blocks.3")),
    Fault("input gradient of a column layer not summed", [(MODULES, r"(dim, 4 \* dim, gather_output=False)", r"\1, disable_grad_reduce=True")], (*MLP, *(m + ".fc1" for m in MLP), *BLOCKS)),
    Fault("nonlinear function on a partial sum", [(MODULES, r"\A", REDUCE), (MODULES, re.escape(FEED), "(reduce_it(F.linear(F.gelu(self.fc1(x)[0]), self.fc2.weight).relu()) + self.fc2.bias)")], (*MLP, *BLOCKS)),
    Fault("memory that nothing sets", [(MODULES, r"torch\.zeros\(heads, length, length\)", "torch.empty(heads, length, length)")], (*ATTENTION, *BLOCKS)),
    Fault("drawn from another distribution", [(MODULES, r"(\n +)(self\.fc1 = .*)", r"\1\2\1nn.init.normal_(self.fc1.weight)")], (*MLP, *(m + ".fc1" for m in MLP))),
    Fault("a parameter detached", [(MODULES, r"\+ self.bias_table\[", "+ self.bias_table.detach()[")], ATTENTION),
]

OLD = "old_style_parallel/old_style.py"
# The original is imported by every rank, too: what it does to PyTorch must not help a generated program that forgot it.
OLD_STYLE = [
    Fault("a layer of PyTorch not changed", [(OLD, r"nn\.Linear\.reset_parameters = draw.*", "")], (*(f"h.{i}.{k}" for i in range(4) for k in ("up", "down")), "head")),
    Fault("a function of PyTorch not replaced", [(OLD, r"F\.gelu = lambda.*", "")], tuple(f"h.{i}" for i in range(4))),
]


def verify(folders, *arguments):
    """(exit code, reports, standard error)"""
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, [RUNTIME, os.environ.get("PYTHONPATH")])))
    p = subprocess.run([sys.executable, "-m", "shardwright.verify", *folders, *arguments, "--json"], capture_output=True, text=True, timeout=1200, env=environment)
    reports = json.loads(p.stdout) if p.stdout.strip() else []
    return p.returncode, reports if isinstance(reports, list) else [reports], p.stderr


class Faults(unittest.TestCase):
    def test_the_kinds_are_all_there(self):
        self.assertEqual([f.kind for f in FAULTS[:len(KINDS)]], KINDS)

    def test_each_is_found_and_named(self):
        self.find(FAULTS, f"{HERE}/hand/original.py:GPT", "--args", "vocab=32, depth=4", "--input", "idx=i64[2?,8]<32", "--input", "keep=f32[2?,8]~rand",
                  "--set", "mode=train", "--set", "seed=3", "--name", "gpt")

    def test_what_the_source_changes_in_pytorch(self):
        self.find(OLD_STYLE, f"{HERE}/../../testdata/old_style.yaml")

    def find(self, faults, *model):
        with tempfile.TemporaryDirectory() as d:
            whole = f"{d}/whole"
            made = subprocess.run([BINARY, "convert", *model, "--tp", "2", "--pp", "2", "-o", whole], capture_output=True, text=True)
            self.assertEqual(made.returncode, 0, made.stderr)
            groups = {}
            for k, fault in enumerate(faults):
                folder = f"{d}/{k:02d}"
                shutil.copytree(whole, folder)
                for name, old, new in fault.edits:
                    with open(f"{folder}/{name}") as f:
                        text = f.read()
                    changed = re.sub(old, new, text)
                    self.assertNotEqual(text, changed, f"{fault.kind}: {old!r} is not in {name}")
                    with open(f"{folder}/{name}", "w") as f:
                        f.write(changed)
                groups.setdefault((fault.arguments, k if fault.alone else -1), []).append((fault, folder))
            # the unharmed program stands in the largest launch: what is found below is found because of the edit
            groups[((), -1)].append((None, whole))
            for (arguments, _), group in groups.items():
                code, reports, err = verify([folder for _, folder in group], *arguments)
                self.assertEqual(len(reports), len(group), err)
                self.assertNotEqual(code, 0)
                for (fault, _), report in zip(group, reports):
                    with self.subTest(fault.kind if fault else "no fault"):
                        if not fault:
                            self.assertTrue(report["same"], json.dumps(report)[:1500])
                            continue
                        self.assertFalse(report["same"], "not found")
                        if fault.error:
                            self.assertIn(fault.error, report.get("error", "no error: " + json.dumps(report)[:1500]))
                        else:
                            self.assertNotIn("error", report)
                            self.assertIn(report["first_difference"], fault.named, json.dumps(report["different"][:6]) + report["found_by"])


if __name__ == "__main__":
    unittest.main()
