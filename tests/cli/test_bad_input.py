"""Bad input that a person meets once the model is more than a file: what it imports, who may read it, what a plan says about it, Ctrl-C.

Each is one message with the place, what was expected, what was found and what to do next (test_cli.Case.bad checks the form)."""
import json
import os
import re
import signal
import subprocess
import time
import unittest
from pathlib import Path

from test_cli import ARGS, BINARY, INPUT, LIMIT, PATIENCE, ROOT, TESTDATA, Case, Verify, python_with_torch

GPT = TESTDATA / "gpt_tied.yaml"
HEAD = "import torch.nn as nn\n"
NET = "class Net({}):\n    def __init__(self):\n        super().__init__()\n        self.a = {}\n\n    def forward(self, x):\n        return self.a(x)\n"
COMMANDS = (["tree"], ["plan", "--tp", "2"], ["convert", "--tp", "2", "-o", "out"])


class Imports(Case):
    def test_missing_base_class(self):
        self.write("model.py", HEAD + "from nowhere.at_all import Base\n\n\n" + NET.format("Base", "nn.Linear(8, 8)"))
        for command in COMMANDS:
            self.bad(*command, "model.py:Net", *INPUT, says=["'Net' cannot be built: a class that it derives from is missing", "'nowhere.at_all' is not found", "--python-path"], place="model.py:5:")
        self.assertFalse((self.dir / "out").exists())

    def test_name_that_the_module_lacks(self):
        self.write("other.py", "X = 1\n")
        self.write("model.py", HEAD + "from other import Layer\n\n\n" + NET.format("nn.Module", "Layer(8)"))
        done = self.good("tree", "model.py:Net", *INPUT)
        self.assertRegex(done.stderr, r"model\.py:8:\d+: warning: cannot import name 'Layer' from 'other'")
        self.bad("convert", "model.py:Net", *INPUT, "--tp", 2, "-o", "out", says=["nothing in this model can be split", "cannot import name 'Layer' from 'other'", "--explain"])

    def test_circular_classes(self):
        self.write("a.py", HEAD + "from b import Base\n\n\n" + NET.format("Base", "nn.Linear(8, 8)"))
        self.write("b.py", "from a import Net\n\n\nclass Base(Net):\n    pass\n")
        for command in COMMANDS:
            self.bad(*command, "a.py:Net", *INPUT, says=["cannot import name 'Net' from 'a'", "circular import", "third module"], place="a.py:5:")

    def test_imported_files_that_are_no_source(self):
        self.write("broken.py", HEAD + "class Layer(nn.Module):\n    def forward(self, x:\n        return x\n")
        self.write("binary.py", bytes(range(256)) * 10)
        self.write("large.py", "a = 1  # padding\n" * 650_000)
        for name, says in [("broken", r"broken\.py:3:\d+: (warning|note): syntax error in a file that the model imports"), ("binary", "binary file"), ("large", "too large")]:
            with self.subTest(name):
                self.write("model.py", HEAD + f"from {name} import Layer\n\n\n" + NET.format("nn.Module", "Layer()"))
                done = self.run_it("tree", "model.py:Net", *INPUT)
                self.assertRegex(done.stderr, says)

    def test_arguments_of_the_wrong_type(self):
        for text in ["width='wide', depth=2", "width=None, depth=2", "width=2.5, depth=2", "width=[8], depth=2"]:
            with self.subTest(text):
                self.bad("tree", "net.py:Net", *INPUT, "--args", text, says="TypeError", place="net.py:7:")


class Requests(Case):
    """What a person asked for and would otherwise not get, without a word."""
    JOB = "model: net.py:Net\nargs: {width: 8, depth: 2}\ninputs: {x: 'f32[2,8]'}\n"

    def test_device(self):
        self.bad("plan", GPT, "--tp", 2, "--objective", "time", "--device", "H9000", says=["there is no device 'H9000'", "there are: .*h100-80g", "--rules"])
        self.write("wide.py", HEAD + "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.up, self.down = nn.Linear(1024, 4096), nn.Linear(4096, 1024)\n\n"
                   "    def forward(self, x):\n        return self.down(self.up(x).relu())\n")
        split = {}
        for device in ("cpu", "h100-80g"):   # milliseconds of arithmetic against microseconds
            done = self.good("plan", "wide.py:Net", "--input", "x=f32[64,1024]", "--tp", 2, "--objective", "time", "--device", device, "--json")
            split[device] = [a["split"] for a in json.loads(done.stdout)["axes"]]
        self.assertIn(True, split["cpu"])
        self.assertNotIn(True, split["h100-80g"])

    def refused(self, text, says, place):
        self.write("job.yaml", text)
        with self.subTest(job=text):
            self.bad("convert", "job.yaml", "--tp", 2, "-o", "out", says=says, place=place)

    def test_job_files(self):
        self.refused(self.JOB + "build: Net(8, 2)\n", ["`args` is not read beside it", "leave one of them out"], "job.yaml:2:7")
        self.refused(self.JOB + "model: net.py:Plain\n", "the key 'model' is given twice", "job.yaml:4:1")
        self.refused(self.JOB.replace("depth: 2", "depth: 2, width: 4"), "the key 'width' is given twice", "job.yaml:2:28")
        self.refused(self.JOB + "verify: {prepare: nope.py}\n", ["`prepare` of `verify` names '.*nope.py'", "no such file"], "job.yaml:4:19")
        self.write("nope.py", "")
        self.good("convert", "job.yaml", "--tp", 2, "-o", "out")
        # The command line goes before the file; two ways on it do not go together.
        self.good("tree", "job.yaml", "--set", "build=Net(8, 1)")
        self.bad("tree", "job.yaml", "--set", "build=Net(8, 1)", "--args", "depth=3", says=["`build` says how the model is made", "put them into it"])

    def test_comments_in_the_source(self):
        source = (self.dir / "net.py").read_text()
        line = next(i for i, t in enumerate(source.splitlines(), 1) if "super().__init__()" in t)
        for word, near in [("keeep", "did you mean 'keep'"), ("cut here", "did you mean 'cut-here'"), ("Replicate", "did you mean 'replicate'"), ("faster please", "known are keep, replicate, cut-here")]:
            with self.subTest(word=word):
                self.write("net.py", source.replace("super().__init__()", f"super().__init__()  # shardwright: {word}", 1))
                for command in (["plan"], ["convert", "-o", "out", "--force"]):
                    done = self.good(*command, "net.py:Net", *ARGS, *INPUT, "--tp", 2)
                    self.assertRegex(done.stderr, rf"net\.py:{line}:\d+: warning: 'shardwright: {word.split()[0]}' says nothing.*{near}")
        self.write("net.py", source.replace("super().__init__()", "super().__init__()  # shardwright: keep", 1))
        self.assertNotIn("says nothing", self.good("plan", "net.py:Net", *ARGS, *INPUT, "--tp", 2).stderr)

    def test_files_that_are_there(self):
        self.write("out/train.py", "# my own training\n")
        done = self.bad("convert", GPT, "--tp", 2, "-o", "out", says=[r"a file in out was not generated by shardwright: train\.py\. Nothing was written", "-o names another folder, --force"])
        self.assertNotIn("changed since", done.stderr)
        self.assertNotIn("--update", done.stderr)
        (self.dir / "out/train.py").unlink()
        self.good("convert", GPT, "--tp", 2, "-o", "out")
        with open(self.dir / "out/train.py", "a") as f:
            f.write("MINE = 1\n")
        self.bad("convert", GPT, "--tp", 4, "-o", "out", says=["a file in out was changed since it was generated: train.py", "--update keeps your changes", "--force overwrites them"])
        self.good("convert", GPT, "--tp", 2, "-o", "out", "--update")  # nothing new: the file stays
        self.assertIn("MINE = 1", (self.dir / "out/train.py").read_text())
        done = self.bad("convert", GPT, "--tp", 4, "-o", "out", "--update", says=["--update cannot merge a file changed by hand in out: train.py", "--force overwrites them"])
        self.assertNotIn("--update keeps", done.stderr)


class Plans(Case):
    def setUp(self):
        super().setUp()
        self.good("plan", GPT, "--tp", 2, "--pp", 2, "-o", "plan.yaml")

    def test_replay_takes_the_plan_s_sizes(self):
        self.good("convert", GPT, "--plan", "plan.yaml", "-o", "out")
        self.good("convert", GPT, "--tp", 2, "--pp", 2, "-o", "stated")
        for name in ("tied_gpt_parallel/stage1.py", "tied_gpt_parallel/gpt_tied.py", "params.yaml", "conf/config.yaml"):
            self.assertEqual((self.dir / "out" / name).read_text(), (self.dir / "stated" / name).read_text())

    def test_roles_follow_from_axes(self):
        text = (self.dir / "plan.yaml").read_text()
        at = text.index("attribute: qkv")
        edited = text[:at] + text[at:].replace("role: column", "role: replicated", 1)
        self.assertNotEqual(edited, text)
        self.write("edited.yaml", edited)
        done = self.good("convert", GPT, "--plan", "edited.yaml", "-o", "out")
        self.assertRegex(done.stderr, r"warning: edited\.yaml: the role of CausalSelfAttention\.qkv stays 'column \(ColumnParallelLinear\)', not 'replicated \(.*roles follow from `axes`.*`by: pinned` at axes\[\d+\] \(size 4, with blocks\.0\.attention\.qkv\.weight\)")
        lines = text.splitlines(keepends=True)
        first = next(i for i, t in enumerate(lines) if "attribute: qkv" in t)
        begin = max(i for i in range(first + 1) if lines[i].startswith("  - "))
        end = next(i for i in range(first + 1, len(lines)) if lines[i].startswith("  - "))
        self.write("edited.yaml", "".join(lines[:begin] + lines[end:]))
        self.assertIn("stays 'column (ColumnParallelLinear)', not 'replicated' as", self.good("plan", GPT, "--plan", "edited.yaml").stderr)
        # as it is, and as its header says
        self.assertNotIn("stays '", self.good("plan", GPT, "--plan", "plan.yaml").stderr)
        axis = re.search(r"(?s)(  - split: true\n    by: )auto(\n    size: 4\n)", text)
        self.write("pinned.yaml", text.replace(axis.group(0), axis.group(1).replace("true", "false") + "pinned" + axis.group(2)))
        done = self.good("plan", GPT, "--plan", "pinned.yaml")
        self.assertNotIn("stays '", done.stderr)
        self.assertNotIn("qkv ", done.stdout)
        self.bad("plan", GPT, "--plan", self.write("me.yaml", text.replace("by: auto\n", "by: me\n", 1)), says="'by' of .* must be auto or pinned, not 'me'")

    def test_sizes_that_contradict_it(self):
        self.bad("convert", GPT, "--plan", "plan.yaml", "--pp", 3, "-o", "out", says=["plan.yaml has 2 stages, 3 are asked for", "leave --pp"])
        self.bad("convert", GPT, "--plan", "plan.yaml", "--tp", 5, "-o", "out", says=["does not fit this source", "size 4, which tp 5 does not divide|tp 5"])

    def test_names_that_the_source_lacks(self):
        text = (self.dir / "plan.yaml").read_text()
        for old, new, says in [("class: FeedForward", "class: Forward", r"names the class 'Forward', which this source does not have \(it has .*FeedForward"),
                               ("attribute: qkv", "attribute: kqv", "names 'kqv' of CausalSelfAttention"), ("blocks.0.feed.up.weight", "blocks.9.feed.up.weight", "'blocks.9.feed.up.weight'")]:
            with self.subTest(new):
                self.assertIn(old, text)
                self.write("edited.yaml", text.replace(old, new))
                self.bad("convert", GPT, "--plan", "edited.yaml", "-o", "out", says=["edited.yaml does not fit this source", says, "Make it again"])


class Comments(Case):
    """`# shardwright: keep | replicate | cut-here` in the model's source."""

    def model(self, up="", down="", block="", cut=""):
        self.write("said.py", f"""import torch.nn as nn


class Mlp(nn.Module):{block}
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(16, 64){up}
        self.down = nn.Linear(64, 16){down}

    def forward(self, x):
        return self.down(self.up(x).relu())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = Mlp(), Mlp(), Mlp()

    def forward(self, x):
        x = self.first(x)
        {cut or "# nothing"}
        x = self.second(x)
        return self.third(x)
""")
        done = self.run_it("plan", "said.py:Net", "--input", "x=f32[2,16]", "--tp", 2, "--pp", 2, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_replicate(self):
        self.assertEqual({r["attribute"] for r in self.model()["roles"]}, {"up", "down"})
        self.assertEqual(self.model(up="  # shardwright: replicate")["roles"], [])
        self.assertEqual(self.model(block="  # shardwright: keep the whole of it")["roles"], [])

    def test_cut_here(self):
        self.assertNotIn("after first", self.model()["stages"][0]["cut"]["at"])   # the middle is in `second`
        for text in ("# shardwright: cut-here", "pass  # shardwright: cut-here"):
            with self.subTest(text):
                self.assertIn("after first", self.model(cut=text)["stages"][0]["cut"]["at"])
        self.bad("plan", "said.py:Net", "--input", "x=f32[2,16]", "--pp", 200, says="cut-here")


class Options(Case):
    def test_stages_of_a_rank_and_recompute(self):
        self.good("convert", GPT, "--tp", 2, "--pp", 2, "--virtual-stages", 2, "--recompute", "selective", "--micro-batches", 4, "-o", "out")
        config = (self.dir / "out/conf/config.yaml").read_text()
        for line in ("pipeline_model_parallel_size: 2", "num_virtual_stages_per_pipeline_rank: 2", "schedule: interleaved", "recompute_granularity: selective"):
            self.assertIn(line, config)
        self.assertEqual(len(list((self.dir / "out").glob("*_parallel/stage*.py"))), 4)
        self.good("convert", GPT, "--tp", 2, "--pp", 2, "--plan", "out/plan.yaml", "--recompute", "selective", "-o", "out")   # and again from its plan
        self.bad("convert", GPT, "--pp", 2, "--virtual-stages", 2, "--schedule", "gpipe", "-o", "other", says=["--virtual-stages 2 does not go with --schedule gpipe", "interleaved"])
        self.bad("plan", GPT, "--pp", 2, "--schedule", "zb-v", "--virtual-stages", 3, says="two stages a rank")
        self.bad("plan", GPT, "--pp", 2, "--set", "parallel.schedule=zigzag", says=["no schedule 'zigzag'", "1f1b"])

    def test_every_option_of_the_contract_is_there(self):
        every = "--python-path --args --config --input --set --rules --max-steps --quiet --verbose --color --stats --json --no-cache"
        for command, options in {"tree": "--format " + every, "plan": "--tp --pp --out --explain --report --objective --device " + every,
                                 "convert": "--tp --pp --target --out --diff --plan --update --force --strict --name --schedule --micro-batches --virtual-stages --dp --recompute " + every,
                                 "lint": "--format --select --ignore --fix --unsafe --diff --allow-dirty --baseline --tp --statistics --error-on --exit-zero",
                                 "verify": "--tp --dp --all-grids --steps --dtype --device --tolerance --with-dropout --python --json", "explain": "--rule",
                                 "reshard": "--params --from --to"}.items():
            shown = self.good(command, "--help").stdout
            for option in options.split():
                self.assertRegex(shown, re.escape(option) + r"\b", command)


class Lint(Case):
    def test_files_that_cannot_be_read(self):
        self.write("broken.py", "def f(:\n    pass\n")
        self.write("binary.py", bytes(range(256)))
        self.write("large.py", "a = 1  # padding\n" * 650_000)
        done = subprocess.run([BINARY, "lint", "broken.py"], cwd=self.dir, capture_output=True, text=True)
        self.assertEqual((done.returncode, "SW901" in done.stdout), (1, True), done.stdout + done.stderr)
        self.bad("lint", "binary.py", says=["binary.py", "binary", "text is expected"])
        self.bad("lint", "large.py", says=["large.py", "too large"])
        self.bad("lint", "nowhere", "net.py", says=["'nowhere'", "no such file or folder", "expected"])
        done = subprocess.run([BINARY, "lint", ".", "--format", "json"], cwd=self.dir, capture_output=True, text=True)   # in a folder: findings, the rest is looked at
        self.assertEqual(done.returncode, 1)
        self.assertEqual({Path(f["file"]).name for f in json.loads(done.stdout)}, {"binary.py", "large.py"})

    def test_nothing_to_look_at(self):
        (self.dir / "empty").mkdir()
        self.assertIn("no Python file", self.good("lint", "empty").stderr)

    def test_rules(self):
        self.write("rules/ops/mine.yaml", "- op: torch.mine\n  sigature: x\n")
        for command in (["lint", "net.py"], *([*c, "net.py:Net", *ARGS, *INPUT] for c in COMMANDS)):
            self.bad(*command, "--rules", "rules", says=['unknown key "sigature"', "did you mean"], place="rules/ops/mine.yaml:2:3")


@unittest.skipUnless(os.geteuid() == 0, "as root another user is tried; others cannot")
class Permissions(Case):
    def run_it(self, *arguments, timeout=PATIENCE):
        """As nobody: root may read and write everything."""
        keep = subprocess.run

        def as_nobody(command, **options):
            return keep(command, user=65534, group=65534, extra_groups=[], **options)

        subprocess.run = as_nobody
        try:
            return super().run_it(*arguments, timeout=timeout)
        except PermissionError as e:
            self.skipTest(f"nobody cannot run {BINARY}: {e}")
        finally:
            subprocess.run = keep

    def setUp(self):
        super().setUp()
        os.chmod(self.dir, 0o755)

    def test_places_without_permission(self):
        (self.dir / "locked").mkdir()
        os.chmod(self.dir / "locked", 0o555)
        os.chmod(self.write("secret.py", "x = 1\n"), 0o600)
        (self.dir / "closed").mkdir()
        os.chmod(self.dir / "closed", 0o700)
        self.bad("tree", "secret.py:Net", *INPUT, says=["secret.py", "Permission denied"])
        self.bad("lint", "secret.py", says=["secret.py", "Permission denied"])
        self.bad("lint", "closed", says=["closed", "Permission denied"])
        self.bad("convert", "net.py:Net", *ARGS, *INPUT, "--tp", 2, "-o", "locked/out", says=["cannot write", "locked", "Permission denied"])
        self.bad("plan", "net.py:Net", *ARGS, *INPUT, "--tp", 2, "-o", "locked/plan.yaml", says=["cannot write", "Permission denied"])
        self.assertEqual(list((self.dir / "locked").iterdir()), [])


class Interrupted(Case):
    children, is_rank, alive = Verify.children, Verify.is_rank, Verify.alive

    def test_verify(self):
        """Ctrl-C while the ranks run: 130 within seconds, one line, nobody left."""
        python = python_with_torch()
        if python is None:
            self.skipTest("no Python with torch")
        self.good("convert", "net.py:Net", *ARGS, *INPUT, "--tp", 2, "-o", "out")
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, [str(ROOT / "runtime/python"), os.environ.get("PYTHONPATH")])))
        process = subprocess.Popen([BINARY, "verify", "out", "--steps", "200000", "--python", python], cwd=self.dir, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
                                   start_new_session=True)
        self.addCleanup(process.kill)
        deadline = time.monotonic() + PATIENCE
        everyone = []
        while sum(map(self.is_rank, everyone)) < 2 and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.2)
            everyone = self.children(process.pid)
        self.assertIsNone(process.poll())
        time.sleep(1)
        everyone = self.children(process.pid)
        begin = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)   # as a terminal does: to all of the group
        output, error = process.communicate(timeout=PATIENCE)
        self.assertLess(time.monotonic() - begin, 2 * LIMIT)
        self.assertEqual(process.returncode, 130, output + error)
        self.assertNotIn("Traceback", error)
        self.assertIn("interrupted", error)
        time.sleep(1)
        self.assertEqual([p for p in everyone if self.alive(p)], [], "orphan processes")


del Case, Verify   # their tests are test_cli's

if __name__ == "__main__":
    unittest.main()
