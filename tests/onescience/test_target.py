"""The files of the onescience target on the miniature project: names, registries, reruns, edits that are kept, the handoff.

SHARDWRIGHT_BINARY names the program; nothing is run, so neither torch nor Megatron is needed.
"""
import ast
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent.parent
BINARY = os.environ.get("SHARDWRIGHT_BINARY", str(ROOT / "build/bin/shardwright"))
MODEL = "onescience/models/wind_distributed_4stage"


def shardwright(*arguments, cwd=None):
    return subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True, cwd=cwd)


class Project(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="shardwright-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.project = self.folder / "project"
        shutil.copytree(ROOT / "testdata/weather_project", self.project)

    def convert(self, *more, code=0):
        run = shardwright("convert", self.project / "wind.yaml", "-o", self.project, *more)
        self.assertEqual(run.returncode, code, run.stderr + run.stdout)
        return run

    def read(self, path):
        return (self.project / path).read_text()


class Files(Project):
    def test_names_and_places(self):
        self.convert()
        for path in ("onescience/modules/fuser/winddistributedfuser.py", "onescience/modules/transformer/winddistributedtransformerblock.py",
                     "onescience/modules/attention/winddistributedattention2d.py", "onescience/modules/mlp/winddistributedmlp.py", MODEL + "/__init__.py",
                     MODEL + "/wind_distributed_4stage.py", MODEL + "/.shardwright/params.yaml", MODEL + "/.shardwright/plan.yaml",
                     "examples/earth/wind_distributed_4stage/train.py", "examples/earth/wind_distributed_4stage/conf/config.yaml"):
            self.assertTrue((self.project / path).is_file(), path)
        for f in self.project.rglob("*.py"):
            ast.parse(f.read_text(), str(f))
        attention = self.read("onescience/modules/attention/winddistributedattention2d.py")
        self.assertIn("class WindDistributedAttention2D", attention)
        self.assertRegex(attention, r"ColumnParallelLinear\(dim, 3 \* dim, bias=qkv_bias, config=config, init_method=config\.init_method, gather_output=False, stride=3\)")
        self.assertRegex(attention, r"RowParallelLinear\(.*bias=True, skip_bias_add=False, input_is_parallel=True\)")
        # No distributed module imports the wrapper whose registry imports it.
        self.assertNotIn("oneattention", attention)
        stages = self.read(MODEL + "/wind_distributed_4stage.py")
        self.assertEqual(sorted(set(re.findall(r"class (Wind_stage\d)", stages))), [f"Wind_stage{k}" for k in range(4)])
        for word in ("pre_process = None", "share_embeddings_and_output_weights = None", "input_tensor = None", "def forward(self, x=None)",
                     "core_transformer_config_from_args(get_args())"):
            self.assertIn(word, stages)

    def test_registries_in_both_forms(self):
        self.convert()
        strings = self.read("onescience/modules/fuser/onefuser.py")
        self.assertIn('"WindDistributedFuser": ("onescience.modules.fuser.winddistributedfuser", "WindDistributedFuser")', strings)
        classes = self.read("onescience/modules/attention/oneattention.py")
        self.assertIn('"WindDistributedAttention2D": WindDistributedAttention2D', classes)
        self.assertIn("from .winddistributedattention2d import WindDistributedAttention2D", classes)

    def test_a_second_run_changes_nothing(self):
        self.convert()
        before = {f: f.read_bytes() for f in self.project.rglob("*") if f.is_file()}
        self.assertIn("nothing to do", self.convert().stdout)
        self.assertEqual(before, {f: f.read_bytes() for f in self.project.rglob("*") if f.is_file()})

    def test_an_edited_file_is_not_overwritten(self):
        self.convert()
        path = self.project / "onescience/modules/mlp/winddistributedmlp.py"
        path.write_text(path.read_text() + "\n# mine\n")
        run = self.convert(code=2)
        self.assertIn("winddistributedmlp.py", run.stderr)
        self.assertIn("# mine", path.read_text())

    def test_another_entry_of_that_name_is_an_error(self):
        path = self.project / "onescience/modules/fuser/onefuser.py"
        path.write_text(path.read_text().replace('    "WindFuser": (', '    "WindDistributedFuser": ("elsewhere", "Other"),\n    "WindFuser": ('))
        run = self.convert(code=2)
        self.assertIn("WindDistributedFuser", run.stderr)
        self.assertFalse((self.project / MODEL).exists())

    def test_diff_writes_nothing(self):
        before = sorted(self.project.rglob("*"))
        run = self.convert("--diff")
        self.assertIn("+class WindDistributedFuser", run.stdout)
        self.assertEqual(before, sorted(self.project.rglob("*")))

    def test_what_was_not_taken_over_is_named(self):
        self.convert()
        readme = self.read("examples/earth/wind_distributed_4stage/README.md")
        script = self.read("examples/earth/wind/train.py").splitlines()
        for what in ("torch.set_default_dtype(dtype)", "best = float", "if total < best"):
            number = next(i for i, line in enumerate(script, 1) if what in line)
            self.assertIn(f"train.py:{number}: ", readme)
        run = self.read("examples/earth/wind_distributed_4stage/run.sh")
        for argument in ("--lr 2.0e-3", "--weight-decay 1.0e-2", "--seed 7", "--clip-grad 1.0", "--micro-batch-size 2"):
            self.assertIn(argument, run)


    def test_tables(self):
        run = self.convert()
        import json
        tables = json.loads(self.read(MODEL + "/.shardwright/tables.json"))
        files = {(f["original"], f["distributed"]) for f in tables["files"]}
        self.assertIn(("onescience/modules/mlp/windmlp.py", "onescience/modules/mlp/winddistributedmlp.py"), files)
        self.assertTrue(all(f["done"] == "yes" for f in tables["files"]))
        registered = {r["entry"]: r["registry"] for r in tables["registries"]}
        self.assertEqual(registered["WindDistributedMlp"], "onescience/modules/mlp/onemlp.py")
        self.assertEqual(len(tables["boundaries"]), 3)
        self.assertEqual(len(tables["stages"]), 4)
        rows = [r for r in tables["roles"] if r["role"] == "row"]
        self.assertTrue(rows and all(r["input_is_parallel"] == "True" and r["why"] for r in rows))
        for title in ("Files", "Call chain", "Registries", "Between the stages", "Balance", "Layers"):
            self.assertIn(title, run.stdout)
            self.assertIn("## " + title, self.read(MODEL + "/.shardwright/tables.md"))


class Update(Project):
    """A generated file that was edited, and an original that was."""
    GENERATED = "onescience/modules/mlp/winddistributedmlp.py"
    ORIGINAL = "onescience/modules/mlp/windmlp.py"

    def edit(self, path, old, new):
        f = self.project / path
        text = f.read_text()
        self.assertIn(old, text)
        f.write_text(text.replace(old, new))

    def test_edits_are_kept(self):
        self.convert()
        self.edit(self.GENERATED, "self.act = nn.GELU()", "self.act = nn.GELU()  # mine")
        self.convert("--update")
        self.assertIn("# mine", self.read(self.GENERATED))

    def test_both_changed_different_lines(self):
        self.convert()
        self.edit(self.GENERATED, "self.act = nn.GELU()", "self.act = nn.GELU()  # mine")
        self.edit(self.ORIGINAL, "return self.drop(self.fc2(self.act(self.fc1(x))))", "y = self.fc2(self.act(self.fc1(x)))\n        return self.drop(y)")
        self.convert("--update")
        text = self.read(self.GENERATED)
        self.assertIn("# mine", text)
        self.assertIn("return self.drop(y)", text)
        ast.parse(text)
        self.assertNotIn("<<<<", text)
        registry = self.read("onescience/modules/mlp/onemlp.py")
        self.assertEqual(registry.count('"WindDistributedMlp"'), 1)

    def test_both_changed_the_same_line(self):
        self.convert()
        self.edit(self.GENERATED, "self.act = nn.GELU()", "self.act = nn.ReLU()")
        self.edit(self.ORIGINAL, "self.act = nn.GELU()", "self.act = nn.SiLU()")
        before = self.read(self.GENERATED)
        run = self.convert("--update", code=2)
        self.assertIn("nn.SiLU()", run.stderr)
        self.assertEqual(before, self.read(self.GENERATED))


class Handoff(Project):
    def step(self, text, step="convert_wind"):
        folder = self.project / ".onescience/handoff"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"step_{step}.yaml").write_text(text)
        run = shardwright("handoff", self.project)
        result = yaml.safe_load((folder / f"step_{step}_result.yaml").read_text())["execution_result"]
        self.assertEqual(set(result), {"skill", "status", "artifacts", "observation"})
        self.assertEqual(set(result["observation"]), {"summary", "completed", "missing", "risks", "next_recommendation"})
        return run, result

    STEP = """
step_handoff:
  step_id: convert_wind
  execution_skill: onescience-parallel
  step_goal: split the model
  task_context: {user_goal: train on eight devices, constraints: [], relevant_artifacts: []}
  resource_bindings: [{path: onescience/models/wind/wind.py, type: model, purpose: original}]
  inputs: {model: Wind, tp: 2, pp: 4, target: onescience, input: {x: "f32[2,13,16,32]"}}
  required_outputs: [onescience/models/wind_distributed_4stage]
  completion_criteria: [verified]
"""

    def test_success(self):
        run, result = self.step(self.STEP)
        self.assertEqual((run.returncode, result["status"]), (0, "success"), run.stderr + str(result))
        types = {a["type"] for a in result["artifacts"]}
        self.assertLessEqual({"model", "module", "registry", "training_script", "run_script", "plan"}, types)
        for a in result["artifacts"]:
            self.assertTrue((self.project / a["path"]).exists(), a)
        self.assertIn("verify", result["observation"]["next_recommendation"])

    def test_partial(self):
        _, result = self.step(self.STEP.replace("tp: 2", "tp: 4").replace("required_outputs: [", "required_outputs: [docs/report.pdf, "))
        self.assertEqual(result["status"], "partial")
        self.assertTrue(any("docs/report.pdf" in m for m in result["observation"]["missing"]))

    def test_blocked_by_a_missing_input(self):
        run, result = self.step(self.STEP.replace("model: Wind, ", ""))
        self.assertEqual((run.returncode, result["status"]), (2, "blocked"))
        self.assertIn("inputs.model", " ".join(result["observation"]["missing"]))

    def test_blocked_by_a_missing_path(self):
        _, result = self.step(self.STEP.replace("wind/wind.py", "wind/breeze.py"))
        self.assertEqual(result["status"], "blocked")
        self.assertIn("wind/breeze.py does not exist", " ".join(result["observation"]["missing"]))

    def test_an_unknown_skill(self):
        _, result = self.step(self.STEP.replace("onescience-parallel", "onescience-coffee"))
        self.assertEqual(result["status"], "blocked")
        self.assertIn("onescience-coffee", " ".join(result["observation"]["missing"]))

    def test_an_input_that_forward_needs(self):
        _, result = self.step(self.STEP.replace(', input: {x: "f32[2,13,16,32]"}', ""))
        self.assertEqual(result["status"], "blocked")
        self.assertIn("input", " ".join(result["observation"]["missing"]))

    def test_broken_yaml(self):
        run, result = self.step("step_handoff: {execution_skill: [\n")
        self.assertEqual((run.returncode, result["status"]), (2, "failed"))
        self.assertIn("not YAML", result["observation"]["summary"])

    def test_no_step(self):
        run = shardwright("handoff", self.project)
        self.assertEqual(run.returncode, 2)
        self.assertIn(".onescience/handoff", run.stderr)


if __name__ == "__main__":
    unittest.main()
