"""verify says "the same" for a right program on every grid, and ends well whatever happens to it. (Faults it finds: test_faults.py.)

Run with the runtime importable: PYTHONPATH=runtime/python python -m unittest discover -s tests/equivalence
"""
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


MODULES, STAGES = "modules.py", "stages.py"


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


def _overwrite(path, text):
    with open(path, "w") as f:
        f.write(text)


class Inputs(unittest.TestCase):
    def test_expressions_draw_the_same_numbers_in_every_process(self):
        sys.path.insert(0, os.path.abspath(RUNTIME))
        import numpy
        import torch
        from shardwright.verify import inputs
        names = {"torch": torch, "np": numpy}
        specs = [inputs.parse("x", "=torch.randn(3)"), inputs.parse("y", "=torch.from_numpy(np.random.rand(3)) + x[0]")]
        first = inputs.draw(specs, 0, 1, names, torch.float64)
        torch.rand(1), numpy.random.rand(1)   # another process has drawn other numbers before
        again, other = inputs.draw(specs, 0, 1, names, torch.float64), inputs.draw(specs, 1, 1, names, torch.float64)
        for name in ("x", "y"):
            self.assertTrue(torch.equal(first[name], again[name]))
            self.assertFalse(torch.equal(first[name], other[name]))

    def test_a_marked_size_may_have_an_upper_bound(self):
        sys.path.insert(0, os.path.abspath(RUNTIME))
        from shardwright.verify import inputs
        sizes = [s[0].shape for s in inputs.other_sizes([inputs.parse("ids", "i64[2?,12?]<64")])]
        self.assertEqual(sizes, [(5, 24), (5, 6), (1, 6)])
        self.assertEqual([s[0].shape for s in inputs.other_sizes([inputs.parse("x", "f32[2,12]")])], [(5, 12)])


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
