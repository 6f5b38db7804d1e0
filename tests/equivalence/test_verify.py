"""verify says "the same" for a right program on every grid, and finds each kind of fault and names its module.

Run with the runtime importable: PYTHONPATH=runtime/python python -m unittest discover -s tests/equivalence
"""
import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hand  # noqa: E402

RUNTIME = os.path.join(hand.HERE, "..", "..", "..", "runtime", "python")


def verify(*arguments, timeout=1200):
    """(exit code, parsed standard output, standard error)"""
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, [os.path.abspath(RUNTIME), os.environ.get("PYTHONPATH")])))
    p = subprocess.run([sys.executable, "-m", "shardwright.verify", *arguments, "--json"], capture_output=True, text=True,
                       timeout=timeout, env=environment)
    return p.returncode, json.loads(p.stdout) if p.stdout.strip() else None, p.stderr


def edit_params(names, **changes):
    """Changes keys of the entries with these endings ("-" removes; dims=None: one plain factor r for the rows)."""
    def edit(tensors):
        for name, entry in tensors.items():
            if any(name.endswith(n) for n in names):
                for key, value in changes.items():
                    if key == "dims":
                        value = "r c" if name.endswith("weight") else "r"
                    entry.pop(key, None) if value == "-" else entry.__setitem__(key, value)
    return edit


@dataclasses.dataclass
class Fault:
    """One kind of fault: how it is put in, and what must be named (any of these modules)."""
    kind: str
    edits: list
    named: tuple
    stages: int = 2
    params_edit: object = None
    arguments: tuple = ()
    alone: bool = False    # it changes the runtime itself: in a launch of its own
    error: str = ""        # the program cannot run: this must be in the message


MODULES, STAGES, INIT = "modules.py", "stages.py", "__init__.py"
ATTENTION = tuple(f"blocks.{i}.attn" for i in range(4))

FAULTS = [
    Fault("row layer told that its sharded input is full", [(MODULES, "input_is_parallel=True", "input_is_parallel=False")], (),
          error="input_is_parallel"),
    Fault("column layer's sharded output taken as full", [(STAGES, "gather_output=True", "gather_output=False")], ("head", "")),
    Fault("qkv cut in contiguous blocks", [(MODULES, ", stride=3", "")], ("blocks.0.attn", "blocks.0.attn.qkv", "blocks.0"),
          params_edit=edit_params(["qkv.weight", "qkv.bias"], sizes="-", dims=None, shard="r")),
    Fault("layer and params.yaml cut differently", [(MODULES, ", stride=3", "")], (), error="params.yaml"),
    Fault("replicated parameter's gradient not summed", [(MODULES, "sum_gradients_over_tp(nn.LayerNorm(dim // heads))", "nn.LayerNorm(dim // heads)")],
          tuple(f"{a}.q_norm" for a in ATTENTION), params_edit=edit_params(["q_norm.weight", "q_norm.bias"], grad_sum="-")),
    Fault("bias added before the sum", [(MODULES, "self.fc2(F.gelu(self.fc1(x)[0]))[0]",
          "reduce_from_tensor_model_parallel_region(F.linear(F.gelu(self.fc1(x)[0]), self.fc2.weight, self.fc2.bias))")],
          ("blocks.0.mlp", "blocks.0.mlp.fc2", "blocks.0")),
    Fault("output summed twice", [(MODULES, "return self.proj((weights @ v).transpose(1, 2).reshape(B, T, C // tp_size()))[0]",
          "return reduce_from_tensor_model_parallel_region(self.proj((weights @ v).transpose(1, 2).reshape(B, T, C // tp_size()))[0])")],
          ("blocks.0.attn", "blocks.0")),
    Fault("bias table not sharded", [(MODULES, "shard_parameter(nn.Parameter(torch.zeros(heads, length, length)), 0)",
          "nn.Parameter(torch.zeros(heads, length, length))"), (MODULES, "self.bias_table[:, :T, :T]", "self.bias_table[:self.heads, :T, :T]")],
          ("blocks.0.attn", "blocks.0"), params_edit=edit_params(["bias_table"], shard=None)),
    Fault("a local size missed", [(MODULES, "self.heads = heads // tp_size()", "self.heads = heads")], (), error="shape"),
    Fault("a scale from the local width", [(MODULES, "q.shape[-1] ** -0.5", "(q.shape[-1] // tp_size()) ** -0.5")], ("blocks.0.attn", "blocks.0")),
    Fault("residual dropped", [(MODULES, "x = x + self.attn(self.norm1(x))", "x = self.attn(self.norm1(x))")], ("blocks.0", "blocks")),
    Fault("skip over the cut dropped", [(STAGES, "self.norm(x + start)", "self.norm(x + 0 * start)")], ("norm", "")),
    Fault("depth schedule sliced wrongly", [(STAGES, "gains[i]) if i >= 2", "gains[i - 2]) if i >= 2")], ("blocks.2", "blocks.2.mlp", "blocks")),
    Fault("tied weight's gradient not summed over stages", [(INIT, "def build_stage", "from shardwright.parallel import gradients\n"
          "gradients.tied_over_stages = lambda module: {}\n\n\ndef build_stage")], ("wte", "head"), alone=True),
    Fault("clipping by one rank's norm", [(INIT, "def build_stage", "import torch\nfrom shardwright.parallel import optimizer\n"
          "import shardwright.parallel as parallel\n"
          "parallel.gradient_norm = optimizer.gradient_norm = lambda module: float(torch.nn.utils.get_total_norm(\n"
          "    [p.grad for p in module.parameters() if p.grad is not None]))\n\n\ndef build_stage")], (None,), alone=True),
    Fault("one dropout stream for all ranks", [(MODULES, "self.drop = ShardedDropout(drop)", "self.drop = nn.Dropout(drop)")],
          ("blocks.0.attn", "blocks.0.attn.drop", "blocks.0"), arguments=("--with-dropout",)),
    Fault("order of blocks in a stage", [(STAGES, "islice(self.blocks, 2, 4)", "reversed(self.blocks[2:])")],
          ("", "blocks", "blocks.2", "blocks.3")),
    Fault("order of stages", [(STAGES, "STAGES = [GPT_stage0, GPT_stage1]", "STAGES = [GPT_stage1, GPT_stage0]")], (), error="stage"),
    Fault("boundary tensors swapped", [(STAGES, "x, start, nothing, idx = self", "start, x, nothing, idx = self")],
          ("", "blocks", "blocks.2", "blocks.2.norm1")),
    Fault("mask a constant", [(MODULES, "dtype=torch.bool, device=x.device).tril()", "dtype=torch.bool, device=x.device)")],
          ("blocks.0.attn", "blocks.0")),
    Fault("local-shaped start values from a shared stream", [(MODULES, "        self.drop = nn.Dropout(drop)",
          "        self.drop = nn.Dropout(drop)\n        nn.init.normal_(self.fc1.weight)")], tuple(f"blocks.{i}.mlp.fc1" for i in range(4))),
    Fault("input gradient of a column layer not summed", [(MODULES, "ColumnParallelLinear(dim, 4 * dim)",
          "ColumnParallelLinear(dim, 4 * dim, disable_grad_reduce=True)")], ("blocks.3.mlp", "blocks.3.mlp.fc1", "blocks.3")),
    Fault("nonlinear function on a partial sum", [(MODULES, "self.fc2(F.gelu(self.fc1(x)[0]))[0]",
          "reduce_from_tensor_model_parallel_region(F.linear(F.gelu(self.fc1(x)[0]), self.fc2.weight).relu()) + self.fc2.bias")],
          ("blocks.0.mlp", "blocks.0")),
    Fault("a parameter detached", [(MODULES, "+ self.bias_table[:, :T, :T]", "+ self.bias_table.detach()[:, :T, :T]")], ATTENTION),
]


class Same(unittest.TestCase):
    @unittest.skipUnless(os.environ.get("SHARDWRIGHT_ALL"), "with tools/test --all: eight ranks, several minutes")
    def test_grids(self):
        with tempfile.TemporaryDirectory() as d:
            one, two = hand.write(f"{d}/one", 1), hand.write(f"{d}/two", 2)
            code, reports, err = verify(one, two, "--all-grids")
            self.assertEqual(code, 0, err + json.dumps(reports)[:2000])
            grids = {(r["grid"]["tp"], r["grid"]["pp"]) for r in reports}
            self.assertEqual(grids, {(t, p) for t in (1, 2, 4) for p in (1, 2)})
            for r in reports:
                self.assertTrue(r["same"])
                self.assertIsNone(r["first_difference"])
                self.assertGreaterEqual(r["compared"]["gradients"], 65)
                self.assertGreater(r["split_fraction"], 0.9)
                if r["grid"]["tp"] * r["grid"]["pp"] == 1:   # bit-equal
                    self.assertEqual(set(r["max_rel"].values()), {0.0})

    def test_data_parallel_with_dropout_and_few_micro_batches(self):
        with tempfile.TemporaryDirectory() as d:
            code, report, err = verify(hand.write(d, 2), "--tp", "2", "--dp", "2", "--with-dropout", "--micro-batches", "1")
            self.assertEqual(code, 0, err + json.dumps(report)[:2000])

    @unittest.skipUnless(os.environ.get("SHARDWRIGHT_ALL"), "with tools/test --all; check_payload.py covers converted models")
    def test_payload(self):
        with tempfile.TemporaryDirectory() as d:
            code, report, err = verify(hand.write(d, 2), "--tp", "2", "--micro-batches", "2")
            self.assertEqual(code, 0, err)
            first = report["payload_bytes"][0]
            activation = 2 * 8 * 16 * 8   # batch x length x width, float64
            # two row layers a block and the embedding forward, two column layers a block backward
            self.assertEqual(first["activation_forward"], 2 * activation * (2 * 2 + 1))
            self.assertEqual(first["activation_backward"], 2 * activation * 2 * 2)
            # x and start forth (with idx: int64) and their gradients back
            self.assertEqual(first["boundary"], 2 * (2 * activation + 2 * 8 * 8))
            self.assertEqual(report["payload_bytes"][2]["boundary"], 2 * 2 * activation)


class Faults(unittest.TestCase):
    def test_each_is_found_and_named(self):
        with tempfile.TemporaryDirectory() as d:
            by_arguments = {}
            for k, fault in enumerate(FAULTS):
                folder = hand.write(f"{d}/{k:02d}", fault.stages, fault.edits, fault.params_edit)
                by_arguments.setdefault((fault.arguments, k if fault.alone else -1), []).append((fault, folder))
            for (arguments, _), group in by_arguments.items():
                code, reports, err = verify(*[folder for _, folder in group], "--tp", "2", "--micro-batches", "2", *arguments)
                reports = reports if isinstance(reports, list) else [reports]
                self.assertNotEqual(code, 0)
                for (fault, _), report in zip(group, reports):
                    with self.subTest(fault.kind):
                        self.assertFalse(report["same"], "not found")
                        if fault.error:
                            self.assertIn(fault.error, report.get("error", "no error: " + json.dumps(report)[:1500]))
                        else:
                            self.assertNotIn("error", report)
                            self.assertIn(report["first_difference"], fault.named, json.dumps(report["different"][:6]) + report["found_by"])


def _overwrite(path, text):
    with open(path, "w") as f:
        f.write(text)


class Failures(unittest.TestCase):
    def test_bad_input(self):
        with tempfile.TemporaryDirectory() as d:
            for edit, expected in [(lambda f: os.remove(f"{f}/plan.yaml"), "plan.yaml"), (lambda f: os.remove(f"{f}/params.yaml"), "params.yaml"),
                                   (lambda f: _overwrite(f"{f}/plan.yaml", "a: [1"), "YAML")]:
                folder = hand.write(tempfile.mkdtemp(dir=d), 1)
                edit(folder)
                code, report, err = verify(folder)
                self.assertEqual(code, 2)
                self.assertIn(expected, err)
                self.assertNotIn("Traceback", err)
            code, _, err = verify(f"{d}/nothing")
            self.assertEqual((code, "no such folder" in err), (2, True))
            code, _, err = verify(hand.write(f"{d}/x", 1), "--tp", "3")
            self.assertEqual(code, 2)
            self.assertIn("1, 2, 4", err)

    def test_missing_entry_and_unimportable_original(self):
        with tempfile.TemporaryDirectory() as d:
            missing = hand.write(f"{d}/a", 1, params_edit=lambda t: t.pop("wpe.weight"))
            lost = hand.write(f"{d}/b", 1, job_edit=lambda j: j.update(model="nowhere.to.be.found:GPT"))
            code, reports, err = verify(missing, lost, "--tp", "1")
            self.assertEqual(code, 2)
            self.assertIn("wpe.weight", reports[0]["error"])
            self.assertIn("nowhere", reports[1]["error"])
            self.assertNotIn("Traceback", err)

    def test_killed_rank_ends_all(self):
        with tempfile.TemporaryDirectory() as d:
            folder = hand.write(d, 2, [(STAGES, "        assert self.input_tensor is not None\n",
                                        "        import os, signal\n        os.kill(os.getpid(), signal.SIGKILL)\n")])
            code, report, err = verify(folder, "--tp", "2")
            self.assertEqual(code, 2)
            self.assertIn("stage 1", report["error"])
            self.assertIn("SIGKILL", report["error"])
            self._no_process_left(folder)

    def test_killed_launcher_leaves_nothing(self):
        with tempfile.TemporaryDirectory() as d:
            folder = hand.write(d, 2)
            environment = dict(os.environ, PYTHONPATH=os.path.abspath(RUNTIME))
            p = subprocess.Popen([sys.executable, "-m", "shardwright.verify", folder, "--tp", "2"], env=environment,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(4)
            children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(p.pid)], capture_output=True, text=True).stdout.split()
            p.send_signal(signal.SIGKILL)
            p.wait()
            self.assertTrue(children)
            deadline = time.monotonic() + 10
            while any(os.path.exists(f"/proc/{c}") for c in children) and time.monotonic() < deadline:
                time.sleep(0.1)
            left = subprocess.run(["ps", "-o", "pid=,stat=", "-p", ",".join(children)], capture_output=True, text=True).stdout
            self.assertFalse([line for line in left.splitlines() if "Z" not in line], left)

    def _no_process_left(self, folder):
        out = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
        self.assertFalse([line for line in out.splitlines() if folder in line])


if __name__ == "__main__":
    unittest.main()
