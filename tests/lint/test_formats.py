"""Every output format, suppressions, baselines and configuration, from outside."""

import json
import subprocess
import unittest
import xml.etree.ElementTree as ET
from urllib.parse import unquote

from common import Case, files_of, rules
from sarif_check import check_sarif

# Findings that need no analysis: a suppression that is not needed (with a safe fix), one with a wrong code.
SOURCE = "x = 1  # shardwright: ignore[SW101] why, 100%: \u00e4\ny = 2  # shardwright: ignore[SW1O1] no such\n"
NAME = "dir a/b,c.py"
KEYS = ["code", "severity", "file", "line", "column", "end_line", "end_column", "message", "related", "fix"]


def wrong(code):
    return files_of(next(r for r in rules() if r["code"] == code)["wrong"])


class Formats(Case):
    def setUp(self):
        super().setUp()
        self.write({NAME: SOURCE, "layers.py": wrong("SW103")["example.py"]})

    def test_json(self):
        done = self.lint("--json")
        found = json.loads(done.stdout)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(found, json.loads(self.lint("--format", "json").stdout))
        for f in found:
            self.assertEqual(list(f), KEYS)
            self.assertIn(f["severity"], ("error", "warning", "info", "note"))
            for place in [f, *f["related"], *(f["fix"]["edits"] if f["fix"] else [])]:
                self.assertTrue(place["file"] == "" or (self.dir / place["file"]).is_file(), place)
                self.assertLessEqual((place["line"], place["column"]), (place["end_line"], place["end_column"]))
        ours = [f for f in found if f["file"] == NAME]
        self.assertEqual([f["code"] for f in ours], ["SW903", "SW904"])
        self.assertEqual((ours[0]["line"], ours[0]["column"], ours[0]["end_column"]), (1, 8, 1 + len(SOURCE.splitlines()[0])))

    def test_sarif(self):
        log = json.loads(self.lint("--format", "sarif").stdout)
        self.assertEqual(check_sarif(log), [])
        run = log["runs"][0]
        uris = {loc["physicalLocation"]["artifactLocation"]["uri"] for r in run["results"] for loc in r["locations"]}
        self.assertIn(NAME, {unquote(u) for u in uris})
        for r in run["results"]:
            self.assertEqual(run["tool"]["driver"]["rules"][r["ruleIndex"]]["id"], r["ruleId"])
        self.assertTrue(any("fixes" in r for r in run["results"]))

    def test_sarif_of_a_clean_run(self):
        self.write({NAME: "x = 1\n", "layers.py": "y = 2\n"})
        log = json.loads(self.lint("--format", "sarif", expect=(0,)).stdout)
        self.assertEqual(check_sarif(log), [])
        self.assertEqual(log["runs"][0]["results"], [])

    def test_sarif_leaves_suppressed_out(self):
        self.write({NAME: "x = 1\n", "layers.py": "# shardwright: ignore-file[SW1] a test\n" + wrong("SW103")["example.py"]})
        self.assertEqual([r for r in json.loads(self.lint("--format", "sarif").stdout)["runs"][0]["results"] if r["ruleId"] == "SW103"], [])

    def test_github(self):
        lines = self.lint("--format", "github").stdout.splitlines()
        for line in lines:
            self.assertRegex(line, r"^::(error|warning|notice) file=[^,:]+(,\w+=[^,:]+)*,title=SW\d{3}::")
        self.assertTrue(any("file=dir a/b%2Cc.py,line=1," in line for line in lines))

    def test_junit(self):
        root = ET.fromstring(self.lint("--format", "junit").stdout)
        cases = root.findall("./testsuite/testcase")
        self.assertEqual(int(root.get("tests")), len(cases))
        self.assertEqual(int(root.get("failures")), len(root.findall(".//failure")))
        self.assertTrue(cases)

    def test_text(self):
        text = self.lint().stdout
        self.assertIn(f"{NAME}:1:8: warning: ", text)
        self.assertIn("# shardwright: ignore[SW101]", text)  # the source line
        self.assertIn("can be fixed with --fix", text)

    def test_statistics(self):
        self.assertRegex(self.lint("--statistics").stdout, r"(?m)^ +1  warning SW903  Suppression that suppresses nothing \(1 with --fix\)$")

    def test_broken_sources_in_every_format(self):
        self.write({"bad.py": b"x = '\xff\xfe'\r\ny = (\r\nz = 1  # shardwright: ignore[\xff]\n", "nul.py": b"a\0b", "bom.py": "\ufeffx = 1  # shardwright: ignore[SW101] r\n"})
        for form in ("text", "json", "sarif", "github", "junit"):
            with self.subTest(format=form):
                self.lint("--format", form)
        ET.fromstring(self.lint("--format", "junit").stdout)


class Options(Case):
    def setUp(self):
        super().setUp()
        self.write({"a.py": SOURCE})

    def codes(self, *arguments):
        return sorted({f["code"] for f in self.findings(*arguments)})

    def test_select_and_ignore(self):
        self.assertEqual(self.codes(), ["SW903", "SW904"])
        self.assertEqual(self.codes("--select", "SW903"), ["SW903"])
        self.assertEqual(self.codes("--ignore", "SW903,SW1"), ["SW904"])
        self.assertEqual(self.codes("--ignore", "SW9", "--select", "SW904"), ["SW904"])  # the longer prefix wins
        self.assertEqual(self.codes("--select", "SW1"), [])
        self.assertIn("did you mean SW903?", self.lint("--select", "SW9O3", expect=(2,)).stderr)

    def test_exit_codes(self):
        self.assertEqual(self.lint().returncode, 1)
        self.assertEqual(self.lint("--exit-zero").returncode, 0)
        self.assertEqual(self.lint("--error-on", "error").returncode, 0)
        self.lint(paths=["nowhere"], expect=(2,))
        self.lint(paths=[], expect=(2,))
        self.lint("--format", "xml", expect=(2,))
        self.write({"a.py": "x = 1\n"})
        self.assertEqual(self.lint().returncode, 0)

    def test_quiet(self):
        done = self.lint("-q")
        self.assertEqual(done.stderr, "")
        self.assertIn("SW903", done.stdout)

    def test_baseline(self):
        self.assertIn("--write-baseline", self.lint("--baseline", "base.json", expect=(2,)).stderr)
        self.lint("--baseline", "base.json", "--write-baseline", expect=(0,))
        self.assertEqual(json.loads((self.dir / "base.json").read_text())["findings"], {"a.py": {"SW903": 1, "SW904": 1}})
        self.lint("--baseline", "base.json", expect=(0,))
        self.write({"a.py": "\n\n" + SOURCE})  # moved lines do not matter
        self.lint("--baseline", "base.json", expect=(0,))
        self.write({"a.py": SOURCE + "z = 3  # shardwright: ignore[SW103] new\n"})
        self.assertEqual(len([f for f in self.findings("--baseline", "base.json") if f["code"] == "SW903"]), 2)
        self.write({"a.py": SOURCE.splitlines()[0] + "\nz = 1  # shardwright: ignore[SW1O1] x\n"})
        self.write({"base.json": '{"shardwright_baseline": 1, "findings": {"a.py": {"SW903": 3}}}'})
        self.assertIn("counts too much", self.lint("--baseline", "base.json").stderr)
        self.write({"base.json": '{"shardwright_baseline": 1, "findngs": {}}'})
        self.assertIn("base.json:1:", self.lint("--baseline", "base.json", expect=(2,)).stderr)

    def test_configuration(self):
        self.write({"shardwright.yaml": "lint:\n  ignore: [SW904]\n  error_on: error\n"})
        self.assertEqual(self.codes(), ["SW903"])
        self.assertEqual(self.lint().returncode, 0)
        self.assertEqual(self.lint("--error-on", "warning").returncode, 1)
        self.write({"shardwright.yaml": "lint:\n  exclude: ['a*']\n"})
        self.assertEqual(self.codes(), [])
        self.write({"shardwright.yaml": "lint:\n  ingore: [SW904]\n"})
        self.assertRegex(self.lint(expect=(2,)).stderr, r"shardwright\.yaml:2:3: error: .*did you mean 'lint.ignore'\?")
        (self.dir / "shardwright.yaml").unlink()
        self.write({"pyproject.toml": "[tool.shardwright.lint]\nselect = ['SW903']\n"})
        self.assertEqual(self.codes(), ["SW903"])
        self.assertEqual(self.codes("--select", "SW904"), ["SW904"])

    def git(self, *arguments):
        subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@t", *arguments], cwd=self.dir, check=True, capture_output=True)

    def test_fix_refuses_uncommitted_changes(self):
        self.git("init", "-q")
        self.git("add", ".")
        before = (self.dir / "a.py").read_bytes()
        self.assertIn("--allow-dirty", self.lint("--fix", expect=(2,)).stderr)
        self.assertEqual((self.dir / "a.py").read_bytes(), before)
        self.assertIn("-x = 1  # shardwright", self.lint("--fix", "--diff").stdout)
        self.assertEqual((self.dir / "a.py").read_bytes(), before)
        self.git("commit", "-qm", "x")
        self.lint("--fix")
        self.assertTrue((self.dir / "a.py").read_text().startswith("x = 1\n"))
        self.lint("--fix", "--allow-dirty")

    def test_fix_keeps_line_ends_modes_and_links(self):
        self.write({"real/b.py": b"\xef\xbb\xbfx = 1  # shardwright: ignore[SW101] why\r\ny = 2\r\n"})
        (self.dir / "real/b.py").chmod(0o755)
        (self.dir / "link.py").symlink_to("real/b.py")
        self.lint("--fix", paths=["link.py"])
        self.assertTrue((self.dir / "link.py").is_symlink())
        self.assertEqual((self.dir / "real/b.py").read_bytes(), b"\xef\xbb\xbfx = 1\r\ny = 2\r\n")
        self.assertEqual((self.dir / "real/b.py").stat().st_mode & 0o777, 0o755)


if __name__ == "__main__":
    unittest.main()
