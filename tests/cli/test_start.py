"""`init` and `doctor`: where a new user starts."""

import json
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import yaml

BINARY = os.path.abspath(os.environ.get("SHARDWRIGHT_BINARY", "shardwright"))
ROOT = Path(__file__).resolve().parents[2]


class Start(unittest.TestCase):
    def setUp(self):
        self.dir = Path(tempfile.mkdtemp(prefix="shardwright_start_"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def run_it(self, *arguments, expect=0):
        done = subprocess.run([BINARY, *map(str, arguments)], cwd=self.dir, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done

    def test_init_writes_jobs_that_run(self):
        for model in ("gpt_tied.py:TiedGPT", "swin_block.py:SwinStage", "unet_attention.py:AttentionUNet"):
            with self.subTest(model=model):
                done = self.run_it("init", ROOT / "testdata" / model, "-o", "sub/job.yaml", "--force")
                self.assertEqual(done.stderr, "")
                job = yaml.safe_load((self.dir / "sub/job.yaml").read_text())
                self.assertTrue(job["inputs"])
                self.run_it("tree", "sub/job.yaml")

    def test_init_marks_guesses_and_says_when_it_does_not_work(self):
        (self.dir / "net.py").write_text("import torch.nn as nn\n\n\nclass Base(nn.Module):\n    def __init__(self, dim, num_heads, config, drop=0.1):\n        super().__init__()\n        self.fc = nn.Linear(dim, config.wide)\n\n\nclass Net(Base):\n    def forward(self, x, mask=None):\n        return self.fc(x)\n")
        done = self.run_it("init", "net.py:Net")
        self.assertIn("does not get through", done.stderr)
        text = (self.dir / "net.yaml").read_text()
        self.assertRegex(text, r"(?m)^  dim: 64 +# guessed$")
        self.assertRegex(text, r"(?m)^  config: None +# guessed: nothing tells what this is$")
        self.assertRegex(text, r"(?m)^  # drop: 0\.1  \(default\)$")
        self.assertIn("net.py:7", text)
        self.assertIn("--force", self.run_it("init", "net.py:Net", expect=2).stderr)
        self.run_it("init", "net.py:Net", "--args", "config=__import__('types').SimpleNamespace(wide=8)", "--force", "--json")
        self.run_it("init", "net.py:Nott", expect=2)

    def test_doctor(self):
        said = json.loads(self.run_it("doctor", "--json").stdout)
        self.assertTrue({"Python", "PyTorch", "runtime", "NCCL", "GPUs", "C++ compiler"} <= {f["what"] for f in said["found"]})
        self.assertTrue(next(c for c in said["commands"] if c["command"] == "lint")["works"])
        bare = subprocess.run([BINARY, "doctor", "--python", "/nowhere/python"], env={"PATH": "/nowhere"}, capture_output=True, text=True, timeout=60)
        self.assertEqual(bare.returncode, 0)
        self.assertIn("misses   verify: Python, PyTorch, runtime, Gloo", bare.stdout)
        self.assertIn("works    tree, plan, convert", bare.stdout)


if __name__ == "__main__":
    unittest.main()
