"""shardwright reshard: round trips are bit-equal, slices are what params.yaml says, memory stays within twice the largest tensor, and what
does not fit is named. Needs no torch (numpy and safetensors)."""
import json
import os
import resource
import subprocess
import sys
import tempfile
import unittest
import zlib
from pathlib import Path

import numpy as np
import yaml
from safetensors.numpy import load_file, save_file

BINARY = os.environ.get("SHARDWRIGHT_BINARY", str(Path(__file__).resolve().parents[2] / "build" / "bin" / "shardwright"))


def reshard(*arguments, fails=False):
    p = subprocess.run([BINARY, "reshard", *map(str, arguments)], capture_output=True, text=True)
    if (p.returncode != 0) != fails:
        raise AssertionError(f"{' '.join(map(str, arguments))}: exit {p.returncode}\n{p.stdout}{p.stderr}")
    return p.stdout + p.stderr


def random_table(seed):
    """Originals and, for a number of stages, their layouts."""
    draw = np.random.default_rng(seed)
    originals = {
        "wte.weight": draw.standard_normal((13, 6)).astype(np.float32),
        "qkv.weight": draw.standard_normal((24, 6)), "qkv.bias": draw.standard_normal(24).astype(np.float32),
        "gate.bias": np.arange(16, dtype=np.float32), "gate.weight": draw.standard_normal((16, 5, 3)).astype(np.float16),
        "row.weight": draw.standard_normal((4, 16)).astype(np.float32), "grouped.weight": draw.standard_normal((32, 3)).astype(np.float32),
        "kv.weight": draw.standard_normal((6, 2)).astype(np.float32), "both": draw.standard_normal((16, 4)).astype(np.float32),
        "table": draw.integers(0, 100, (3, 2, 8)), "norm.weight": draw.standard_normal(6).astype(np.float32), "scale": np.array(3, np.float32),
    }

    def layouts(stages):
        last = stages - 1
        return {"version": 1, "stages": stages, "tensors": {
            "wte.weight": {"dims": "v c", "shard": "v", "pad": {"v": 16, "value": 0}, "stage": [0], "tied": ["head.weight"], "shape": [13, 6]},
            "head.weight": {"from": "wte.weight", "dims": "v c", "shard": "v", "pad": {"v": 16, "value": 0}, "stage": [last], "shape": [13, 6]},
            "qkv.weight": {"dims": "(q h d) c", "sizes": {"q": 3, "h": 4, "d": 2}, "shard": "h", "stage": [0]},
            "qkv.bias": {"dims": "(q h d)", "sizes": {"q": 3, "h": 4, "d": 2}, "shard": "h", "stage": [0]},
            "gate.bias": {"dims": "(k f)", "sizes": {"k": 2}, "shard": "f", "stage": [last]}, "gate.weight": {"dims": "(k f) a b", "sizes": {"k": 2}, "shard": "f", "stage": [last]},
            "row.weight": {"dims": "o (k i)", "sizes": {"k": 2}, "shard": "i", "stage": [last]},
            "grouped.weight": {"segments": [{"rows": [0, 16], "dims": "(g r d) c"}, {"rows": [16, 24], "dims": "(g d) c"}, {"rows": [24, 32], "dims": "(g d) c"}],
                               "sizes": {"g": 4, "r": 2, "d": 2}, "shard": "g", "stage": [0]},
            "kv.weight": {"dims": "(g d) c", "sizes": {"g": 2, "d": 3}, "shard": "g", "replicate_groups": True, "stage": [0]},
            "both.low": {"from": {"name": "both", "rows": [0, 8]}, "dims": "h c", "shard": "h", "stage": [0]},
            "both.high": {"from": {"name": "both", "rows": [8, 16]}, "dims": "h c", "shard": "c", "stage": [last]},
            "table": {"dims": "t w h", "shard": "h", "stage": [last], "kind": "buffer"}, "norm.weight": {"shard": None},
            "scale": {"shard": None, "kind": "buffer", "stage": [0]}}}
    return originals, layouts


class Reshard(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.d = Path(folder.name)

    def files(self, seed=0, stages=(1, 2, 3)):
        originals, layouts = random_table(seed)
        save_file(originals, self.d / "model.safetensors")
        save_file({f"{k}/{n}": (t * 0.5 + (k == "exp_avg")).astype(t.dtype) for k in ("exp_avg", "exp_avg_sq") for n, t in originals.items() if n not in ("table", "scale")},
                  self.d / "model.optimizer.safetensors", {"shardwright": json.dumps({"iteration": 7, "steps": {"row.weight": 5.0}, "extra": {"consumed": 56}})})
        for s in stages:
            (self.d / f"p{s}.yaml").write_text(yaml.safe_dump(layouts(s), sort_keys=False))
        return originals

    def same(self, path, originals):
        got = load_file(path)
        self.assertEqual(set(got), set(originals))
        for name, want in originals.items():
            self.assertEqual(got[name].dtype, want.dtype, name)
            self.assertTrue(np.array_equal(got[name].reshape(want.shape), want), name)

    def test_round_trips(self):
        originals = self.files()
        states = load_file(self.d / "model.optimizer.safetensors")
        routes = [[(2, 1)], [(4, 1)], [(2, 1), (4, 1)], [(2, 2), (4, 3)], [(1, 3), (2, 2), (4, 1), (2, 3)], [(1, 2)]]
        for k, route in enumerate(routes):
            at, stages, previous = self.d / "model.safetensors", 1, "1,1"
            for i, (tp, pp) in enumerate(route):
                out = self.d / f"route{k}_{i}"
                reshard(at, out, "--params", self.d / f"p{pp}.yaml", "--from", previous, "--to", f"{tp},{pp}")
                at, stages, previous = out, pp, f"{tp},{pp}"
            reshard(at, self.d / f"back{k}.safetensors", "--params", self.d / f"p{stages}.yaml", "--from", previous, "--to", "1,1")
            self.same(self.d / f"back{k}.safetensors", originals)
            self.same(self.d / f"back{k}.optimizer.safetensors", states)

    def test_slices(self):
        self.files()
        reshard(self.d / "model.safetensors", self.d / "two", "--params", self.d / "p2.yaml", "--to", "2,2")
        folder = self.d / "two" / (self.d / "two" / "latest").read_text()
        self.assertEqual(folder.name, "iter_0000007")
        index = json.loads((folder / "index.json").read_text())
        self.assertEqual(index["grid"], {"tp": 2, "pp": 2, "dp": 1, "stages": 2, "zero": False})
        self.assertEqual((index["steps"], index["extra"]), ({"row.weight": 5.0}, {"consumed": 56}))
        for name, said in index["files"].items():
            self.assertEqual(f"{zlib.crc32((folder / name).read_bytes()):08x}", said["crc32"])
        bias = [load_file(folder / f"model-tp0{r}-stage01.safetensors")["gate.bias"].tolist() for r in (0, 1)]
        self.assertEqual(bias, [[0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15]])
        padded = load_file(folder / "model-tp01-stage00.safetensors")["wte.weight"]
        self.assertEqual(padded.shape, (8, 6))
        self.assertTrue((padded[5:] == 0).all() and (padded[:5] != 0).any())
        self.assertNotIn("exp_avg/table", load_file(folder / "optimizer-tp00-stage01-dp00.safetensors"))

    def test_what_does_not_fit(self):
        self.files()
        model, params = self.d / "model.safetensors", self.d / "p1.yaml"
        reshard(model, self.d / "two", "--params", params, "--to", "2,1")
        folder = self.d / "two" / "iter_0000007"
        cases = [((self.d / "two", self.d / "x", "--params", params, "--from", "4,1", "--to", "1,1"), "is of tp 2, pp 1"),
                 ((model, self.d / "x", "--params", params, "--to", "3,1"), "cannot be divided over tp 3"),
                 ((model, self.d / "x", "--params", params, "--to", "2,2"), "1 pipeline stages"),
                 ((model, self.d / "x", "--params", params, "--to", "two"), "expected tp,pp"),
                 ((self.d / "nothing", self.d / "x", "--params", params, "--to", "2,1"), "no such file"),
                 ((params, self.d / "x", "--params", params, "--to", "2,1"), "safetensors")]
        for arguments, words in cases:
            self.assertIn(words, reshard(*arguments, fails=True))
        originals, layouts = random_table(0)
        save_file({**originals, "extra.weight": np.zeros(3)}, self.d / "more.safetensors")
        self.assertIn("does not describe extra.weight", reshard(self.d / "more.safetensors", self.d / "x", "--params", params, "--to", "2,1", fails=True))
        del originals["row.weight"]
        save_file(originals, self.d / "less.safetensors")
        self.assertIn("no tensor row.weight", reshard(self.d / "less.safetensors", self.d / "x", "--params", params, "--to", "2,1", fails=True))
        data = (folder / "model-tp01-stage00.safetensors").read_bytes()
        for change, words in ((data[:-1], "truncated"), (data[:-1] + bytes([data[-1] ^ 4]), "checksum")):
            (folder / "model-tp01-stage00.safetensors").write_bytes(change)
            said = reshard(self.d / "two", self.d / "x", "--params", params, "--to", "1,1", fails=True)
            self.assertTrue("model-tp01-stage00.safetensors" in said and words in said, said)
        (folder / "model-tp01-stage00.safetensors").unlink()
        self.assertIn("is missing", reshard(self.d / "two", self.d / "x", "--params", params, "--to", "1,1", fails=True))
        self.assertFalse([p for p in (self.d / "x").glob(".saving*")] if (self.d / "x").exists() else [])

    def test_memory(self):
        """Twice the largest tensor and 64 MiB, over all directions."""
        largest = 48 << 20
        tensors = {"a": np.zeros((4096, largest // 4 // 4096), np.float32), "b": np.ones((1024, largest // 4 // 1024), np.float32), "c": np.zeros((64, 64), np.float32)}
        save_file(tensors, self.d / "model.safetensors")
        table = {"version": 1, "stages": 1, "tensors": {"a": {"dims": "r c", "shard": "c"}, "b": {"dims": "r c", "shard": "r"}, "c": {"shard": None}}}
        (self.d / "p.yaml").write_text(yaml.safe_dump(table))
        del tensors
        steps = [(self.d / "model.safetensors", self.d / "two", "2,1"), (self.d / "two", self.d / "four", "4,1"), (self.d / "four", self.d / "back.safetensors", "1,1")]
        for source, out, to in steps:
            child = subprocess.Popen([BINARY, "reshard", str(source), str(out), "--params", str(self.d / "p.yaml"), "--to", to], stdout=subprocess.DEVNULL)
            _, status, used = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            self.assertEqual(child.returncode, 0)
            self.assertLessEqual(used.ru_maxrss * 1024, 2 * largest + (64 << 20), f"--to {to}: {used.ru_maxrss / 1024:.0f} MiB")
            print(f"--to {to}: peak {used.ru_maxrss / 1024:.0f} MiB, largest tensor {largest >> 20} MiB", file=sys.stderr)
        self.assertEqual((self.d / "back.safetensors").read_bytes()[-largest:], (self.d / "model.safetensors").read_bytes()[-largest:])


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    unittest.main()
