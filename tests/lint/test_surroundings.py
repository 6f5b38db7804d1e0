"""What is around lint: generated documents, the hook, the action, `explain` and tools/new-check."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import yaml

from common import BINARY, ROOT, Case, rules


class Documents(unittest.TestCase):
    def test_docs_are_up_to_date(self):
        done = subprocess.run([sys.executable, ROOT / "tools/lint-docs", "--check"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_explain_says_what_the_yaml_says(self):
        for rule in rules():
            with self.subTest(code=rule["code"]):
                done = subprocess.run([BINARY, "explain", rule["code"], "--json"], capture_output=True, text=True, check=True)
                said = json.loads(done.stdout)
                self.assertEqual({k: v.strip() if isinstance(v, str) else v for k, v in said.items()}, {k: v.strip() if isinstance(v, str) else v for k, v in rule.items()})
                text = subprocess.run([BINARY, "explain", rule["code"].lower()], capture_output=True, text=True, check=True).stdout
                for part in ("Wrong", "Right", "What to do", rule["title"]):
                    self.assertIn(part, text)

    def test_explain_of_an_unknown_code(self):
        done = subprocess.run([BINARY, "explain", "SW1O3"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("did you mean SW103?", done.stderr)


class Hooks(Case):
    def test_the_hook_runs(self):
        for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text()):
            with self.subTest(hook=hook["id"]):
                self.write({"a.py": "x = 1  # shardwright: ignore[SW101] why\n"})
                words = hook["entry"].split()
                done = subprocess.run([BINARY, *words[1:], "a.py"], cwd=self.dir, capture_output=True, text=True)
                self.assertEqual(done.returncode, 0 if "--fix" in words else 1, done.stderr)

    def test_the_action_runs(self):
        """The lint step of action.yml as GitHub would run it: bash, with its inputs in the environment."""
        action = yaml.safe_load((ROOT / "action.yml").read_text())
        self.assertEqual(action["runs"]["using"], "composite")
        step = action["runs"]["steps"][-1]
        self.assertNotIn("${{", step["run"])
        self.write({"a.py": "x = 1  # shardwright: ignore[SW101] why\n", "b.py": "y = 1\n"})
        for paths, code, output in (("a.py b.py", 1, ""), ("b.py", 0, ""), ("a.py", 1, "out.txt"), ("$(touch hacked) a.py", 2, "")):
            done = subprocess.run(["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]], cwd=self.dir, capture_output=True, text=True,
                                  env={**os.environ, "BINARY": BINARY, "PATHS": paths, "ARGS": "--tp 2", "FORMAT": action["inputs"]["format"]["default"], "OUTPUT": output})
            self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertFalse((self.dir / "hacked").exists())
        self.assertRegex((self.dir / "out.txt").read_text(), r"^::warning file=a\.py,line=1,")
        packages = re.search(r"apt-get install -y -qq (.*)", action["runs"]["steps"][0]["run"]).group(1).split()
        ours = (ROOT / "tools/common.sh").read_text()
        for p in packages:
            if p.startswith("lib") or p.startswith("nlohmann"):
                self.assertIn(p, ours)


class Golden(unittest.TestCase):
    def test_golden_cases(self):
        done = subprocess.run([sys.executable, ROOT / "tests/cases/check_lint.py", BINARY, ROOT / "tests/lint/golden"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


class NewCheck(unittest.TestCase):
    def test_it_writes_a_check_that_compiles_and_words_that_load(self):
        with tempfile.TemporaryDirectory() as tmp:
            root = Path(tmp)
            for name in ("rules/lint", "tools", "lib/lint/checks"):
                shutil.copytree(ROOT / name, root / name, dirs_exist_ok=True)
            done = subprocess.run([sys.executable, root / "tools/new-check", "SW1", "gathered_mask", "--title", "Gathered mask"], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            code = "SW" + str(max(int(r["code"][2:]) for r in rules() if r["code"].startswith("SW1")) + 1)
            rule = yaml.safe_load((root / f"rules/lint/{code}.yaml").read_text())
            self.assertEqual((rule["code"], rule["title"], set(rule)), (code, "Gathered mask", set(rules()[0])))
            function = f"{code.lower()}_gathered_mask"
            self.assertTrue((root / f"tests/lint/golden/{function}/input.py").is_file())
            for source in (f"{function}.cpp", "all.cpp"):
                compiled = subprocess.run(["g++", "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Wno-missing-field-initializers", "-Wno-restrict", f"-I{root / 'lib'}", f"-I{ROOT / 'lib'}", root / "lib/lint/checks" / source], capture_output=True, text=True)
                self.assertEqual(compiled.returncode, 0, compiled.stderr)
            self.assertIn(f"  {function}(file);\n", (root / "lib/lint/checks/all.cpp").read_text())
            again = subprocess.run([sys.executable, root / "tools/new-check", code, "other"], capture_output=True, text=True)
            self.assertEqual(again.returncode, 2)


if __name__ == "__main__":
    unittest.main()
