"""What the lint tests share: running the program in a folder, and reading the rules' YAML."""

import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
BINARY = os.path.abspath(os.environ.get("SHARDWRIGHT_BINARY", ROOT / "build/bin/shardwright"))


def rules():
    """Every rules/lint/SWxxx.yaml, in order."""
    return [yaml.safe_load(p.read_text(encoding="utf-8")) for p in sorted((ROOT / "rules/lint").glob("SW*.yaml"))]


def implemented():
    """The codes that the program can find: those that the source of the analysis speaks of, and the two of suppressions."""
    codes = {"SW903", "SW904"}
    for path in (ROOT / "lib/lint").rglob("*.cpp"):
        if path.stem not in ("suppress", "fix"):
            codes |= set(re.findall(r'"(SW\d{3})"', path.read_text(encoding="utf-8")))
    return codes


def files_of(example):
    return example if isinstance(example, dict) else {"example.py": example}


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = Path(tempfile.mkdtemp(prefix="shardwright_lint_"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def write(self, files):
        for name, text in files.items():
            path = self.dir / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))

    def lint(self, *arguments, paths=(".",), expect=(0, 1)):
        done = subprocess.run([BINARY, "lint", *map(str, arguments), *map(str, paths)], cwd=self.dir, capture_output=True, text=True, timeout=120, errors="replace")
        self.assertIn(done.returncode, expect, f"{arguments}: exit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done

    def findings(self, *arguments, paths=(".",)):
        return json.loads(self.lint("--format", "json", *arguments, paths=paths).stdout)
