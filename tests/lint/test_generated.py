"""Generated packages: lint finds nothing in them as they are, and each fault put into one by its code."""

import json
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from common import BINARY, ROOT, Case

GPT, SWIN = "tied_gpt_parallel/gpt_tied.py", "swin_stage_parallel/swin_block.py"
NORM = "        self.drop = ShardedDropout(dropout)\n"
FEED = "return self.down(F.gelu(self.up(x)[0]))[0]"

# model, file, what is written, what stands there instead, the code
FAULTS = [
    ("gpt_tied", GPT, "self.up = ColumnParallelLinear(width, 4 * width, gather_output=False)", "self.up = ColumnParallelLinear(width, 4 * width, gather_output=True)", "SW101"),
    ("gpt_tied", GPT, "RowParallelLinear(4 * width, width, input_is_parallel=True)", "RowParallelLinear(4 * width, width, input_is_parallel=False)", "SW102"),
    ("gpt_tied", GPT, "F.gelu(self.up(x)[0])", "F.gelu(self.up(x))", "SW103"),
    ("gpt_tied", GPT, ".contiguous().view(batch, length, width // tp_size()))[0]", ".contiguous().view(batch, length, width // tp_size()))", "SW103"),
    ("gpt_tied", GPT, "F.gelu(self.up(x)[0])", "F.layer_norm(self.up(x)[0], (4 * self.up.in_features // tp_size(),))", "SW105"),
    ("gpt_tied", GPT, "return self.out(y.transpose(1, 2).contiguous().view(batch, length, width // tp_size()))[0]", "return y.transpose(1, 2).contiguous().view(batch, length, width // tp_size())", "SW105"),
    ("gpt_tied", GPT, "q = q.view(batch, length, self.heads // tp_size(), self.head_width)", "q = q.view(batch, length, self.heads, self.head_width)", "SW106"),
    ("gpt_tied", GPT, ".view(batch, length, width // tp_size())", ".view(batch, length, width)", "SW106"),
    ("gpt_tied", GPT, "gather_output=False, stride=3)", "gather_output=False)", "SW107"),
    ("swin_block", SWIN, "shard_parameter(nn.Parameter(torch.zeros((2 * window - 1) ** 2, num_heads)), dim=1)", "nn.Parameter(torch.zeros((2 * window - 1) ** 2, num_heads))", "SW108"),
    ("gpt_tied", GPT, NORM, NORM + "        self.qn = nn.LayerNorm(self.head_width)\n", "SW109"),
    ("gpt_tied", GPT, FEED, "return reduce_from(F.linear(F.gelu(self.up(x)[0]), self.down.weight, self.down.bias))", "SW110"),
    ("gpt_tied", GPT, "RowParallelLinear(4 * width, width, input_is_parallel=True)", "nn.Linear(4 * width, width)", "SW111"),
]


class Generated(Case):
    made = {}

    def package(self, model):
        """The files of the package that convert makes at tp 2."""
        if model not in self.made:
            out = Path(tempfile.mkdtemp(prefix="shardwright_lint_"))
            self.addCleanup(shutil.rmtree, out, ignore_errors=True)
            done = subprocess.run([BINARY, "convert", ROOT / "testdata" / (model + ".yaml"), "--tp", "2", "--force", "-o", out], capture_output=True, text=True, timeout=300)
            self.assertEqual(done.returncode, 0, done.stdout[-2000:] + done.stderr[-2000:])
            self.made[model] = {str(p.relative_to(out)): p.read_text(encoding="utf-8") for p in out.rglob("*.py")}
        return dict(self.made[model])

    def test_nothing_is_found_in_generated_code(self):
        for model in ("gpt_tied", "swin_block", "unet_attention"):
            with self.subTest(model=model):
                self.setUp()
                self.write(self.package(model))
                found = [f for f in self.findings("--tp", 2, "--python-path", ROOT / "testdata") if f["severity"] != "info"]
                self.assertEqual(found, [])

    def test_nothing_is_found_in_code_for_megatron(self):
        """Files beside the originals, two stages: tied weights, skips, embeddings that stay whole; and the miniature project's."""
        jobs = [("testdata", "gpt_tied.yaml", "megatron"), ("testdata", "swin_block.yaml", "megatron"), ("testdata", "unet_attention.yaml", "megatron"),
                ("testdata/weather_project", "wind.yaml", "onescience")]
        for folder, job, target in jobs:
            with self.subTest(job=job, target=target):
                out = Path(tempfile.mkdtemp(prefix="shardwright_lint_"))
                self.addCleanup(shutil.rmtree, out, ignore_errors=True)
                shutil.copytree(ROOT / folder, out / "project", ignore=shutil.ignore_patterns("parallel", "cxx", "weather_project"))
                grid = ["--tp", "2", "--pp", "2"] if target == "megatron" else []
                done = subprocess.run([BINARY, "convert", out / "project" / job, *grid, "--target", target, "-o", out / "project"], capture_output=True, text=True, timeout=300)
                self.assertEqual(done.returncode, 0, done.stdout[-2000:] + done.stderr[-2000:])
                done = subprocess.run([BINARY, "lint", out / "project", "--tp", "2", "--format", "json"], capture_output=True, text=True, timeout=300)
                found = [f for f in json.loads(done.stdout) if f["severity"] == "error"]
                self.assertEqual(found, [])

    def test_layers_cut_by_the_library_s_own_helpers(self):
        """Convolutions that the support file cuts and marks, skips that arrive as shares: every copy into the region is missed where it is left out."""
        out = Path(tempfile.mkdtemp(prefix="shardwright_lint_"))
        self.addCleanup(shutil.rmtree, out, ignore_errors=True)
        done = subprocess.run([BINARY, "convert", ROOT / "testdata/unet_attention.yaml", "--tp", "2", "--pp", "2", "--target", "onescience", "-o", out], capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout[-2000:] + done.stderr[-2000:])
        files = {str(p.relative_to(out)): p.read_text(encoding="utf-8") for p in out.rglob("*") if p.suffix in (".py", ".yaml", ".sh") and "/generated/" not in str(p)}
        copy, places = "copy_to_tensor_model_parallel_region(", 0

        def codes(changed):
            self.setUp()
            self.write({**files, **changed})
            return {f["code"] for f in self.findings("--tp", 2, "--python-path", ROOT / "testdata") if f["severity"] != "info"}

        self.assertEqual(codes({}), set())
        for file, text in files.items():
            if "parallel_parts" in file:
                continue
            parts = text.split(copy)
            for i in range(1, len(parts)):
                with self.subTest(file=file, copy=i):
                    self.assertEqual(codes({file: copy.join(parts[:i]) + "(" + copy.join(parts[i:])}), {"SW109"})
                    places += 1
        self.assertGreaterEqual(places, 4)

    def test_faults_are_found(self):
        for model, file, old, new, code in FAULTS:
            with self.subTest(code=code, new=new):
                self.setUp()
                files = self.package(model)
                self.assertIn(old, files[file])
                text = files[file].replace(old, new, 1)
                if code == "SW109":
                    text = text.replace("scores = (q @", "q = self.qn(q)\n        scores = (q @", 1)
                if code == "SW110":
                    text = text.replace("from shardwright.parallel import", "from shardwright.parallel import reduce_from_tensor_model_parallel_region as reduce_from, tp_rank\nfrom shardwright.parallel import", 1)
                files[file] = text
                self.write(files)
                found = self.findings("--tp", 2, "--python-path", ROOT / "testdata")
                self.assertIn(code, {f["code"] for f in found}, found)
                others = {f["code"] for f in found if f["severity"] == "error"} - {code}
                self.assertEqual(others, set(), found)


if __name__ == "__main__":
    unittest.main()
