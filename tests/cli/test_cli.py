"""The command line from outside: bad input, refusals, interruption, JSON, and that comments and files survive.

Needs Python and the program: SHARDWRIGHT_BINARY=build/bin/shardwright python -m unittest tests/cli/test_cli.py
The tests of `verify` also need a Python with torch and the runtime (--python, $VIRTUAL_ENV, .venv); without one they are skipped.

Every refusal has to be one message on standard error that starts with "error:" (after its place), names what was found, and
says what to do; the exit code is 2; nothing is ever a crash (signal), an internal error (3) or a Python traceback.
"""

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

BINARY = os.environ.get("SHARDWRIGHT_BINARY", "shardwright")
ROOT = Path(__file__).resolve().parents[2]
TESTDATA = ROOT / "testdata"
LIMIT = float(os.environ.get("SHARDWRIGHT_TEST_LIMIT", "10"))  # seconds an error may take
PATIENCE = 12 * LIMIT  # for what is no error: a conversion on a busy machine

MODEL = """\
import torch.nn as nn


class Net(nn.Module):
    def __init__(self, width, depth, heads=2):
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x, scale=None):
        return self.down(self.up(x).relu())


class Plain:
    def __init__(self, width, depth):
        self.width = width


def function(width, depth):
    return None


NUMBER = 3
"""
ARGS = ["--args", "width=8, depth=2"]
INPUT = ["--input", "x=f32[2,8]"]


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = Path(tempfile.mkdtemp(prefix="shardwright_cli_"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.write("net.py", MODEL)

    def write(self, name, text):
        path = self.dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text) if isinstance(text, bytes) else path.write_text(text)
        return path

    def run_it(self, *arguments, timeout=PATIENCE):
        def spent():
            usage = resource.getrusage(resource.RUSAGE_CHILDREN)
            return usage.ru_utime + usage.ru_stime

        begin = spent()  # processor time: a busy machine must not fail a test; `timeout` bounds the wall clock
        done = subprocess.run([BINARY, *map(str, arguments)], cwd=self.dir, capture_output=True, text=True, timeout=timeout, errors="replace")
        done.seconds = spent() - begin
        self.assertIn(done.returncode, (0, 2), f"{arguments}: exit code {done.returncode}\n{done.stderr[-3000:]}")
        self.assertNotIn("Traceback", done.stderr)
        self.assertNotIn("internal error", done.stderr)
        return done

    def good(self, *arguments):
        done = self.run_it(*arguments)
        self.assertEqual(done.returncode, 0, f"{arguments}\n{done.stderr}")
        return done

    def bad(self, *arguments, says=(), place=None):
        """One clear message: `says` are regular expressions it has to match, `place` the file:line:column it starts with."""
        done = self.run_it(*arguments)
        self.assertEqual(done.returncode, 2, f"{arguments}: expected to be refused\n{done.stdout[-2000:]}{done.stderr}")
        self.assertLess(done.seconds, LIMIT)
        errors = re.findall(r"^(?:\S.*?:\d+:\d+: )?error: ", done.stderr, re.M)
        self.assertEqual(len(errors), 1, f"{arguments}: one error is expected\n{done.stderr}")
        self.assertFalse(done.stderr.endswith("\n\n"), f"{arguments}: an empty line after the message\n{done.stderr}")
        for pattern in [says] if isinstance(says, str) else says:
            self.assertRegex(done.stderr, pattern)
        if place:
            self.assertRegex(done.stderr, r"(?m)^(error: )?\S*" + re.escape(place))
        if "--json" not in arguments:
            self.assertEqual(done.stdout, "", f"{arguments}: standard output is for results")
        return done

    def tree(self):
        return {p.relative_to(self.dir): (p.stat().st_mtime_ns, p.read_bytes()) for p in self.dir.rglob("*") if p.is_file()}


class Usage(Case):
    def test_version_is_quick(self):
        self.assertRegex(self.good("--version").stdout, r"^shardwright \d+\.\d+\.\d+\n$")
        spent = []
        for _ in range(20):
            process = subprocess.Popen([BINARY, "--version"], stdout=subprocess.DEVNULL)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            spent.append(usage.ru_utime + usage.ru_stime)
        # processor time, the least of twenty: what else the machine does must not count
        self.assertLess(min(spent), 0.010)

    def test_unknown_option_names_the_nearest(self):
        self.bad("tree", "net.py:Net", "--inputt", "x=f32[2,8]", says=[r"--inputt", r"did you mean --input\b", r"shardwright tree --help"])

    def test_unknown_command(self):
        self.bad("tre", "net.py:Net", says=[r"'tre' is no command", r"did you mean tree"])

    def test_no_command(self):
        self.bad(says=[r"--help"])

    def test_missing_model(self):
        self.bad("tree", says=[r"MODEL", r"shardwright tree --help"])

    def test_sizes(self):
        for option, value in [("--tp", "x"), ("--tp", "0"), ("--pp", "-1"), ("--dp", "0"), ("--schedule", "zigzag"), ("--objective", "luck"), ("--micro-batches", "many")]:
            with self.subTest(option=option, value=value):
                self.bad("plan", "net.py:Net", *ARGS, *INPUT, option, value, says=re.escape(option))

    def test_target(self):
        self.bad("convert", "net.py:Net", *ARGS, *INPUT, "--tp", 2, "--target", "abacus", "-o", "out", says=["abacus", "runtime"])
        self.assertFalse((self.dir / "out").exists())

    def test_no_output_folder(self):
        self.bad("convert", "net.py:Net", *ARGS, *INPUT, "--tp", 2, says=r"-o DIR")

    def test_explain(self):
        self.bad("explain", "SW999", says=["no code 'SW999'"])
        self.bad("explain", says=r"CODE|--rule")
        self.bad("explain", "--rule", "torch.no.such.thing", says="no rule speaks of")
        self.assertIn("softmax", self.good("explain", "--rule", "softmax").stdout)


class Model(Case):
    def test_missing_file(self):
        self.bad("tree", "nowhere.py:Net", says=["nowhere.py", "no such file", "expected"])

    def test_missing_class(self):
        self.bad("tree", "net.py:Nett", says=["no class 'Nett'", "the file defines Net, Plain", "did you mean Net"])

    def test_no_class_given(self):
        self.bad("tree", "net.py", says="expected path/to/file.py:Class")
        self.bad("tree", "net.py:", says="expected path/to/file.py:Class")
        self.bad("tree", ".:Net", says="expected path/to/file.py:Class")

    def test_missing_module(self):
        self.bad("tree", "no.such.module:Net", says=["'no.such.module' is not found", "looked in", "--python-path"])

    def test_missing_import_that_is_used(self):
        self.write("uses.py", "import torch.nn as nn\nimport never_used_and_missing\nfrom missing_package import Helper\n\n\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.first = nn.Linear(8, 8)\n        self.helper = Helper(8)\n\n    def forward(self, x):\n        return self.helper(self.first(x))\n")
        done = self.good("tree", "uses.py:Net", *INPUT)
        self.assertRegex(done.stderr, r"uses\.py:10:\d+: warning: module 'missing_package' is not found.*--python-path")
        self.assertNotIn("never_used_and_missing", done.stderr)

    def test_syntax_error(self):
        self.write("broken.py", "import torch.nn as nn\n\n\nclass Net(nn.Module):\n    def __init__(self:\n        pass\n")
        self.bad("tree", "broken.py:Net", *INPUT, says=["syntax error", "expected"], place="broken.py:5:")

    def test_no_module(self):
        self.bad("tree", "net.py:Plain", *ARGS, *INPUT, says=["'Plain' is not an nn.Module", "expected a class derived from torch.nn.Module"], place="net.py:14:")
        self.bad("tree", "net.py:function", *ARGS, *INPUT, says=["not an nn.Module", "expected"])
        self.bad("tree", "net.py:NUMBER", *ARGS, *INPUT, says=["'NUMBER'", "expected"])

    def test_constructor_arguments(self):
        self.bad("tree", "net.py:Net", *INPUT, says=["Net cannot be built", "'width' and 'depth'", r"takes \(width, depth, heads=", "--args"], place="net.py:5:")
        self.bad("tree", "net.py:Net", *INPUT, "--args", "width=8", says=["'depth'", "--args"], place="net.py:5:")
        self.bad("tree", "net.py:Net", *INPUT, "--args", "width=8, depth=2, color=1", says=["unexpected keyword argument 'color'", "takes"], place="net.py:5:")

    def test_constructor_that_raises(self):
        self.write("raises.py", "import torch.nn as nn\n\n\nclass Net(nn.Module):\n    def __init__(self, width):\n        super().__init__()\n        if width % 3:\n            raise ValueError(f'width {width} is no multiple of 3')\n")
        self.bad("tree", "raises.py:Net", "--args", "width=8", *INPUT, says="ValueError: width 8 is no multiple of 3", place="raises.py:8:")

    def test_text_of_args(self):
        for text in ["width=", "8, 2", "width=8 depth=2", "width=(8", "width=8; depth=2"]:
            with self.subTest(text=text):
                self.bad("tree", "net.py:Net", *INPUT, "--args", text, says=["--args", "keyword arguments as in Python|needs its name"])

    def test_unknown_name_in_args(self):
        self.bad("tree", "net.py:Net", *INPUT, "--args", "width=8, depth=len(what)", says="what")

    def test_text_of_input(self):
        for text in ["x", "=f32[2]", "x=f32[2", "x=q7[2]", "x=f32[2,a]", "x=f32[-2,8]", "x=f32[99999999999999999999,8]", "x=f32[2,8]<b", "x=f32[2,8]~odd", "x="]:
            with self.subTest(text=text):
                done = self.bad("tree", "net.py:Net", *ARGS, "--input", text, says="expected|is written like")
                self.assertNotIn(str(self.dir), done.stderr)

    def test_text_of_set(self):
        self.bad("tree", "net.py:Net", *ARGS, *INPUT, "--set", "mode", says=["--set 'mode'", "NAME=VALUE"])
        self.bad("tree", "net.py:Net", *ARGS, *INPUT, "--set", "mode=[", says=["--set", "expected KEY=VALUE"])
        self.bad("tree", "net.py:Net", *ARGS, *INPUT, "--set", "moode=train", says=["unknown key 'moode'", "known are"])
        self.bad("tree", "net.py:Net", *ARGS, *INPUT, "--set", "mode=fast", says=["'eval' or 'train'"])

    def test_no_input_shape(self):
        done = self.bad("tree", "net.py:Net", *ARGS, says=["no shape is given for input x of Net.forward", "--input 'x="], place="net.py:10:")
        self.assertNotIn("scale", done.stderr.splitlines()[0])  # it has a default

    def test_wrong_shape(self):
        self.bad("tree", "net.py:Net", *ARGS, "--input", "x=f32[2,9]", says="9 and 8|8 and 9", place="net.py:11:")

    def test_cyclic_import(self):
        self.write("one.py", "import torch.nn as nn\nimport two\n\n\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.first = nn.Linear(8, 8)\n\n    def forward(self, x):\n        return two.double(self.first(x))\n")
        self.write("two.py", "import one\n\n\ndef double(x):\n    return x * 2\n")
        self.assertIn("Net", self.good("tree", "one.py:Net", *INPUT).stdout)  # Python can, so can we
        self.write("self_import.py", "import self_import\nfrom self_import import Net\n")
        self.bad("tree", "self_import.py:Net", *INPUT, says="Net")
        self.write("chain_a.py", "from chain_b import Net\n")
        self.write("chain_b.py", "from chain_a import Net\n")
        self.bad("tree", "chain_a.py:Net", *INPUT, says="Net")

    def test_large_file(self):
        self.write("large.py", "# a line\n" + "a = 1  # padding\n" * 650_000)
        self.bad("tree", "large.py:Net", *INPUT, says=["large.py", "too large", "at most"])

    def test_binary_file(self):
        self.write("binary.py", bytes(range(256)) * 100)
        self.bad("tree", "binary.py:Net", *INPUT, says=["binary.py", "binary", "text is expected"])
        self.write("high.py", bytes(range(128, 256)) * 100)
        self.bad("tree", "high.py:Net", *INPUT, says="syntax error", place="high.py:1:")

    def test_not_a_file(self):
        self.write("file", "x")
        self.bad("tree", "file/net.py:Net", *INPUT, says="no such file")
        (self.dir / "folder.py").mkdir()
        self.bad("tree", "folder.py:Net", *INPUT, says="folder")
        self.bad("tree", "/dev/zero:Net", *INPUT, says="expected")

    def test_deep_nesting(self):
        self.write("deep.py", "x = " + "(" * 5000 + ")" * 5000 + "\n")
        self.bad("tree", "deep.py:Net", *INPUT, says="syntax error", place="deep.py:1:")

    def test_endless_loop(self):
        self.write("endless.py", "import torch.nn as nn\n\n\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        while True:\n            pass\n")
        self.bad("tree", "endless.py:Net", *INPUT, "--max-steps", 20000, says="steps", place="endless.py:")


class Jobs(Case):
    def refused(self, text, says, place=None):
        self.write("job.yaml", text)
        with self.subTest(job=text):
            self.bad("tree", "job.yaml", says=says, place=place)

    def test_jobs(self):
        ok = "model: net.py:Net\nargs: {width: 8, depth: 2}\ninputs: {x: 'f32[2,8]'}\n"
        self.refused("model: [", [r"job.yaml:\d:\d", "not YAML"])
        self.refused("just text", "expected a job file")
        self.refused("- a list", "expected a job file")
        self.refused("inputs: {}\n", "'model' is missing")
        self.refused("# a comment\n\nmodle: net.py:Net\n", ["unknown key 'modle'", "known are model"], "job.yaml:3:1")
        self.refused("model: 3\n", "expected path/to/file.py:Class")
        self.refused("model: nowhere.py:Net\n", ["nowhere.py", "no such file"])
        self.refused("model: net.py:Net\ninputs: 3\n", "'inputs' is a mapping", "job.yaml:2:9")
        self.refused("model: net.py:Net\nargs: 3\n", "'args' is a mapping", "job.yaml:2:7")
        self.refused("model: net.py:Net\nargs: {width: 8}\ninputs: {x: 'f32[2,8'}\n", "']' is missing", "job.yaml:3:13")
        self.refused(ok + "mode: fast\n", "'eval' or 'train'", "job.yaml:4:7")
        self.refused(ok + "parallel: 3\n", "'parallel' is a mapping", "job.yaml:4:11")
        self.refused(ok + "parallel: {tpp: 2}\n", ["unknown key 'tpp'", "known are tp, pp"], "job.yaml:4:12")
        self.refused(ok + "parallel: {tp: two}\n", "wrong type", "job.yaml:4:16")
        self.refused(ok + "verify: 3\n", "'verify' is a mapping", "job.yaml:4:9")
        self.refused("model: net.py:Net\nbuild: 'Net(8,'\ninputs: {x: 'f32[2,8]'}\n", "syntax error in build")
        self.refused(ok + "setup: 'x = ('\n", "syntax error in <setup>")
        self.refused(ok + "call: model(y)\n", "'y'")
        self.refused(ok + "imports: {Q: nowhere.Q}\n", "'nowhere.Q'")
        self.write("job.yaml", ok)
        self.good("tree", "job.yaml")

    def test_missing_job(self):
        self.bad("tree", "nojob.yaml", says=["nojob.yaml", "No such file"])

    def test_config(self):
        self.write("cfg.yaml", "model: {width: 8, depth: 2}\nlist: [1]\n")
        self.good("tree", "net.py:Net", *INPUT, "--config", "cfg.yaml:model")
        self.bad("tree", "net.py:Net", *INPUT, "--config", "nocfg.yaml", says=["nocfg.yaml", "No such file"])
        self.bad("tree", "net.py:Net", *INPUT, "--config", "cfg.yaml:model.deeper", says="deeper")
        self.bad("tree", "net.py:Net", *INPUT, "--config", "cfg.yaml:list", says="expected a mapping")


class Rules(Case):
    def test_unknown_key(self):
        self.write("rules/ops/mine.yaml", "- op: torch.mine\n  sigature: x\n")
        self.bad("tree", "net.py:Net", *ARGS, *INPUT, "--rules", "rules", says=['unknown key "sigature"', 'did you mean "signature"'], place="rules/ops/mine.yaml:2:3")

    def test_no_folder(self):
        self.bad("tree", "net.py:Net", *ARGS, *INPUT, "--rules", "nowhere", says=["nowhere", "takes a folder"])
        self.bad("tree", "net.py:Net", *ARGS, *INPUT, "--rules", "net.py", says=["net.py", "takes a folder"])

    def test_broken_yaml(self):
        self.write("rules/ops/mine.yaml", "- op: [\n")
        self.bad("tree", "net.py:Net", *ARGS, *INPUT, "--rules", "rules", says="mine.yaml")


class Convert(Case):
    GPT = TESTDATA / "gpt_tied.yaml"

    def test_heads_not_divided(self):
        done = self.good("convert", self.GPT, "--tp", 8, "--pp", 2, "-o", "out")
        # class, axis size, tp and the values that work
        self.assertRegex(done.stderr, r"warning: .*gpt_tied\.py:\d+:\d+: .*CausalSelfAttention.*stays replicated: tp=8 does not divide its axis of size 4.*values of tp that do: 2, 4")
        done = self.bad("convert", self.GPT, "--tp", 8, "--pp", 2, "-o", "strict", "--strict", says=["--strict", "nothing was written", "values of tp that do: 2, 4"])
        self.assertFalse((self.dir / "strict").exists())

    def test_more_stages_than_cuts(self):
        self.bad("convert", self.GPT, "--pp", 200, "-o", "out", says=["200 stages need 199 cuts", r"at most \d+ stages are possible"])
        self.assertFalse((self.dir / "out").exists())

    def test_nothing_to_split(self):
        self.bad("convert", "net.py:Net", *ARGS, *INPUT, "--tp", 7, "-o", "out", says=["nothing in this model can be split over 7", "values of tp that do"])
        self.assertFalse((self.dir / "out").exists())

    def test_second_run_diff_and_hand_changes(self):
        done = self.good("convert", self.GPT, "--tp", 2, "--pp", 2, "-o", "out", "--diff")
        self.assertIn("+++ ", done.stdout)
        self.assertFalse((self.dir / "out").exists(), "--diff writes nothing")
        self.good("convert", self.GPT, "--tp", 2, "--pp", 2, "-o", "out")
        before = self.tree()
        done = self.good("convert", self.GPT, "--tp", 2, "--pp", 2, "-o", "out")
        self.assertEqual(self.tree(), before, "a second run writes nothing, not even the same again")
        self.assertIn("nothing to do", done.stdout)
        self.assertEqual(self.good("convert", self.GPT, "--tp", 2, "--pp", 2, "-o", "out", "--diff").stdout, "")
        self.assertEqual(self.tree(), before)

        stage = next((self.dir / "out").glob("*_parallel/stage0.py"))
        generated = stage.read_text()
        stage.write_text(generated + "MINE = 1\n")
        before = self.tree()
        self.bad("convert", self.GPT, "--tp", 2, "--pp", 2, "-o", "out", says=["stage0.py", "Nothing was written", "--force", r"\+MINE = 1"])
        self.assertEqual(self.tree(), before)
        # another grid must not slip past either
        self.bad("convert", self.GPT, "--tp", 4, "--pp", 2, "-o", "out", says=["stage0.py", "--force"])
        self.assertEqual(self.tree(), before)
        done = self.good("convert", self.GPT, "--tp", 2, "--pp", 2, "-o", "out", "--force")
        self.assertEqual(stage.read_text(), generated)

    def test_folder_that_is_not_ours(self):
        self.write("out/train.py", "# my own training\n")
        before = self.tree()
        self.bad("convert", self.GPT, "--tp", 2, "-o", "out", says=["train.py", "--force"])
        self.assertEqual(self.tree(), before)

    def test_places_that_cannot_be_written(self):
        self.write("file", "x")
        for out in ["file", "file/below", "/proc/nowhere"]:
            with self.subTest(out=out):
                self.bad("convert", self.GPT, "--tp", 2, "-o", out, says="cannot write")
        self.bad("plan", self.GPT, "--tp", 2, "-o", "file/plan.yaml", says="cannot write")

    def test_plan_that_does_not_fit(self):
        self.good("plan", self.GPT, "--tp", 2, "--pp", 2, "-o", "plan.yaml")
        self.good("plan", self.GPT, "--tp", 2, "--pp", 2, "--plan", "plan.yaml")
        self.bad("plan", "net.py:Net", *ARGS, *INPUT, "--tp", 2, "--plan", "plan.yaml", says=["plan.yaml", "does not fit this source", "which this source does not have"])
        self.write("broken.yaml", "grid: [\n")
        self.bad("plan", self.GPT, "--tp", 2, "--plan", "broken.yaml", says="broken.yaml")
        self.write("other.yaml", "colour: red\n")
        self.bad("plan", self.GPT, "--tp", 2, "--plan", "other.yaml", says="other.yaml")
        self.bad("plan", self.GPT, "--tp", 2, "--plan", "noplan.yaml", says=["noplan.yaml", "No such file"])

    def test_interrupted(self):
        """Ctrl-C at any moment: exit 130, and either nothing is there or everything is."""
        begin = time.monotonic()
        self.good("convert", self.GPT, "--tp", 2, "--pp", 2, "-o", "whole")
        whole = time.monotonic() - begin
        names = {p.relative_to(self.dir / "whole") for p in (self.dir / "whole").rglob("*") if p.is_file()}
        interrupted = 0
        for i, share in enumerate([0.02, 0.2, 0.5, 0.8, 0.9, 0.95, 1.0]):
            out = self.dir / f"out{i}"
            process = subprocess.Popen([BINARY, "convert", str(self.GPT), "--tp", "2", "--pp", "2", "-o", str(out)], cwd=self.dir, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            time.sleep(max(0.02, whole * share))
            process.send_signal(signal.SIGINT)
            _, error = process.communicate(timeout=LIMIT)
            self.assertIn(process.returncode, (0, 130), error)
            if process.returncode == 130:
                interrupted += 1
                self.assertIn("interrupted", error)
            there = {p.relative_to(out) for p in out.rglob("*") if p.is_file()} if out.exists() else set()
            self.assertIn(there, (set(), names), f"interrupted after {share:.0%}")
        self.assertGreater(interrupted, 0)


class Json(Case):
    def test_results(self):
        tree = json.loads(self.good("tree", TESTDATA / "gpt_tied.yaml", "--json").stdout)
        self.assertTrue(tree)
        plan = json.loads(self.good("plan", TESTDATA / "gpt_tied.yaml", "--tp", 8, "--pp", 2, "--json").stdout)
        self.assertTrue(plan)
        done = json.loads(self.good("convert", TESTDATA / "gpt_tied.yaml", "--tp", 8, "--pp", 2, "-o", "out", "--json").stdout)
        self.assertEqual(sorted(done["files"]), sorted(done["written"]))
        self.assertTrue(done["fallbacks"])
        for key in ("findings", "plan", "warnings", "out"):
            self.assertIn(key, done)
        for name in done["written"]:
            self.assertTrue((self.dir / "out" / name).is_file(), name)

    def test_errors(self):
        for arguments in [
            ["tree", "nowhere.py:Net"],
            ["tree", "net.py:Net", *ARGS],
            ["plan", "net.py:Net", *ARGS, *INPUT, "--tp", "0"],
            ["convert", "net.py:Net", *ARGS, *INPUT, "--tp", "2"],
            ["verify", "nowhere"],
            ["explain", "SW999"],
            ["tree", "net.py:Net", "--bogus"],
        ]:
            with self.subTest(arguments=arguments):
                done = self.bad(*arguments, "--json")
                self.assertTrue(json.loads(done.stdout)["error"])
        done = self.bad("tree", "net.py:Net", *ARGS, "--json")
        self.assertEqual(json.loads(done.stdout)["line"], 10)


def python_with_torch():
    candidates = [os.environ.get("SHARDWRIGHT_PYTHON", "")]
    if "VIRTUAL_ENV" in os.environ:
        candidates.append(os.environ["VIRTUAL_ENV"] + "/bin/python")
    candidates += [str(ROOT / ".venv/bin/python"), "python3"]
    for c in candidates:
        if c and shutil.which(c) and subprocess.run([c, "-c", "import importlib.util as u, sys; sys.exit(not u.find_spec('torch'))"]).returncode == 0:
            return c
    return None


class Verify(Case):
    def test_no_directory(self):
        self.bad("verify", "nowhere", says=["nowhere", "no such directory", "expected one that"])
        self.bad("verify", "net.py", says=["net.py", "expected one that"])

    def test_no_plan(self):
        (self.dir / "empty").mkdir()
        self.bad("verify", "empty", says=["empty", "no plan.yaml", "expected a directory"])

    def test_no_python(self):
        self.good("convert", "net.py:Net", *ARGS, *INPUT, "--tp", 2, "-o", "out")
        self.bad("verify", "out", "--python", "/no/such/python", says=["/no/such/python", "pip install torch|tools/build"])

    def children(self, pid):
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if fields[0] != "Z" and int(fields[1]) == pid:
                found += [int(entry.name), *self.children(int(entry.name))]
        return found

    def test_killed_rank(self):
        python = python_with_torch()
        if python is None:
            self.skipTest("no Python with torch")
        self.good("convert", "net.py:Net", *ARGS, *INPUT, "--tp", 2, "-o", "out")
        environment = dict(os.environ)
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT / "runtime/python"), environment.get("PYTHONPATH")]))
        # enough steps that it cannot be done before the rank is killed
        process = subprocess.Popen([BINARY, "verify", "out", "--steps", "200000", "--python", python], cwd=self.dir, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        self.addCleanup(process.kill)
        deadline = time.monotonic() + PATIENCE
        ranks = []
        while len(ranks) < 2 and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.2)
            everyone = self.children(process.pid)
            ranks = [p for p in everyone if self.is_rank(p)]
        self.assertGreaterEqual(len(ranks), 2, "no ranks were started" + (process.stderr.read() if process.poll() is not None else ""))
        time.sleep(2)
        everyone = self.children(process.pid)
        begin = time.monotonic()
        os.kill(ranks[-1], signal.SIGKILL)
        output, error = process.communicate(timeout=PATIENCE)
        self.assertLess(time.monotonic() - begin, 2 * LIMIT, "reported within seconds")
        self.assertEqual(process.returncode, 2, output + error)
        self.assertRegex(error, r"(?i)rank \d+")
        self.assertNotIn("Traceback", error)
        time.sleep(1)
        self.assertEqual([p for p in everyone if self.alive(p)], [], "orphan processes")

    def is_rank(self, pid):
        try:
            return b"shardwright.verify.worker" in Path(f"/proc/{pid}/cmdline").read_bytes() or b"\0RANK=" in b"\0" + Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False

    def alive(self, pid):
        try:
            return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
        except OSError:
            return False


if __name__ == "__main__":
    unittest.main()
