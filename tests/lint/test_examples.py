"""The examples of rules/lint: wrong ones are found with their code, right ones are silent, and fixes do what style.md asks of them.

Codes that the analysis does not have yet are skipped by name, never silently."""

import ast
import io
import tokenize
import unittest

from common import ROOT, Case, files_of, implemented, rules

# Wrong examples that the analysis misses though it has the code. An entry that is found has to go from here.
MISSED: set[str] = set()


def comments(text):
    try:
        return sorted(t.string for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type == tokenize.COMMENT)
    except (tokenize.TokenError, SyntaxError, IndentationError):
        return None


class Fixing(Case):
    def fix_and_check(self, files, *flags):
        """Fixes to a fixpoint in this folder and checks what every fix owes; the findings afterwards."""
        self.write(files)
        self.lint("--fix", "--allow-dirty", *flags)
        after = {name: (self.dir / name).read_text(encoding="utf-8") for name in files}
        for name, text in after.items():
            if not name.endswith(".py"):
                continue
            before = files[name]
            try:
                ast.parse(before)
            except SyntaxError:
                continue
            ast.parse(text)  # CPython's parser: tree-sitter takes some invalid Python
            if "shardwright: ignore" not in before:
                missing = [c for c in comments(before) if c not in comments(text)]
                self.assertEqual(missing, [], f"{name}: comments lost")
        again = self.lint("--diff", *flags)
        self.assertEqual(again.stdout, "", f"a second run changes more\n{again.stdout}")
        return self.findings()


class Examples(Fixing):
    def test_wrong_examples_are_found(self):
        known, skipped = implemented(), []
        for rule in rules():
            code = rule["code"]
            if code not in known:
                skipped.append(code)
                continue
            with self.subTest(code=code):
                self.setUp()
                self.write(files_of(rule["wrong"]))
                found = self.findings("--tp", 2)
                if code in MISSED:
                    self.assertNotIn(code, {f["code"] for f in found}, "found now: take it out of MISSED")
                    continue
                self.assertIn(code, {f["code"] for f in found}, f"found instead: {[(f['code'], f['line'], f['message']) for f in found]}")
        print(f"\nmissed: {', '.join(sorted(MISSED))}")
        print(f"not in the analysis yet ({len(skipped)}): {', '.join(skipped)}" if skipped else "")

    def test_right_examples_are_silent(self):
        known = implemented()
        for rule in rules():
            with self.subTest(code=rule["code"]):
                self.setUp()
                self.write(files_of(rule["right"]))
                found = self.findings("--tp", 2)
                loud = [f for f in found if f["severity"] == "error" or (f["code"] == rule["code"] and f["severity"] != "info") or (rule["code"] in known and f["code"] == rule["code"])]
                self.assertEqual([(f["code"], f["line"], f["message"]) for f in loud], [])

    def test_safe_fixes_of_wrong_examples(self):
        known = implemented()
        for rule in rules():
            if rule["code"] not in known:
                continue
            with self.subTest(code=rule["code"]):
                self.setUp()
                self.write(files_of(rule["wrong"]))
                fixable = [f for f in self.findings("--tp", 2) if f["code"] == rule["code"] and f["fix"] and f["fix"]["applicability"] == "safe" and f["fix"]["edits"]]
                left = self.fix_and_check(files_of(rule["wrong"]), "--tp", 2)
                if fixable:
                    self.assertNotIn(rule["code"], {f["code"] for f in left}, "a safe fix was applied and its finding is still there")

    def test_unsafe_fixes_too(self):
        for rule in rules():
            if rule["code"] in implemented():
                with self.subTest(code=rule["code"]):
                    self.setUp()
                    self.fix_and_check(files_of(rule["wrong"]), "--unsafe", "--tp", 2)

    def test_fixes_of_the_cases(self):
        for case in sorted((ROOT / "tests/cases").iterdir()):
            if not (case / "input.py").is_file():
                continue
            with self.subTest(case=case.name):
                self.setUp()
                self.fix_and_check({"input.py": (case / "input.py").read_text(encoding="utf-8")}, "--unsafe")


class Words(unittest.TestCase):
    def test_every_code_of_the_source_has_words(self):
        self.assertEqual(implemented() - {r["code"] for r in rules()}, set())

    def test_examples_are_python(self):
        for rule in rules():
            for which in ("wrong", "right"):
                for name, text in files_of(rule[which]).items():
                    if name.endswith(".py") and (rule["code"], which) != ("SW901", "wrong"):
                        with self.subTest(code=rule["code"], which=which):
                            ast.parse(text)


if __name__ == "__main__":
    unittest.main()
