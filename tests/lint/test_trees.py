"""Several packages in one repository whose modules bear the same names; what crosses from a class into other people's files."""

import json
import unittest

from common import Case

LAYERS = """import torch
import torch.nn as nn
from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear


class Mlp(nn.Module):
    def __init__(self, dim, config):
        super().__init__()
        self.up = ColumnParallelLinear(dim, 4 * dim, config=config, init_method=config.init_method, gather_output=False)
        self.down = RowParallelLinear(4 * dim, dim, config=config, init_method=config.init_method, bias=True,
                                      input_is_parallel=True, skip_bias_add=False)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)[0]))[0]
"""
MODEL = """import torch.nn as nn
from net.layers import Mlp


class Net(nn.Module):
    def __init__(self, dim, config):
        super().__init__()
        self.mlp = Mlp(dim, config)

    def forward(self, x):
        return self.mlp(x) + x
"""
FAULTS = {"one": ("input_is_parallel=True", "input_is_parallel=False", "SW102"), "two": ("self.up(x)[0]", "self.up(x)", "SW103"), "three": ("", "", "")}


def package(folder, fault):
    old, new, _ = fault
    return {f"{folder}/train.py": "import net\n", f"{folder}/net/__init__.py": "", f"{folder}/net/layers.py": LAYERS.replace(old, new) if old else LAYERS, f"{folder}/net/model.py": MODEL}


class Trees(Case):
    def test_each_package_means_its_own_modules(self):
        for folder, fault in FAULTS.items():
            self.write(package(folder, fault))
        found = {(f["file"].split("/")[-3], f["code"]) for f in self.findings() if f["severity"] == "error"}
        self.assertEqual(found, {(folder, code) for folder, (_, _, code) in FAULTS.items() if code})

    def test_a_folder_beside_is_found_by_its_imports(self):
        # No name in common: one import space, as with several entries of the search path.
        self.write({"a/net/__init__.py": "", "a/net/layers.py": LAYERS.replace("self.up(x)[0]", "self.up(x)"), "b/app/__init__.py": "", "b/app/model.py": MODEL})
        self.assertEqual({f["code"] for f in self.findings() if f["severity"] == "error"}, {"SW103"})

    def test_many_folders_give_the_same_findings_in_the_same_order(self):
        for i in range(12):
            self.write(package(f"p{i:02d}", FAULTS["two" if i % 3 else "one"]))
        first = self.lint("--format", "json").stdout
        for _ in range(3):
            self.assertEqual(self.lint("--format", "json").stdout, first)
        self.assertEqual(len({f["file"] for f in self.findings()}), 12)

    def test_a_pair_handed_to_a_file_of_others(self):
        self.write({"lib/helpers.py": "def halves(x):\n    return x.chunk(2, dim=-1)\n",
                    "src/model.py": LAYERS.replace("import torch\n", "import torch\nfrom helpers import halves\n", 1).replace("return self.down(torch.relu(self.up(x)[0]))[0]", "a, b = halves(self.down(torch.relu(self.up(x)[0])))\n        return a * b")})
        found = [f for f in self.findings("--python-path", "lib", paths=("src",)) if f["severity"] == "error"]
        self.assertEqual([(f["code"], f["file"].split("/")[-1]) for f in found], [("SW103", "model.py")])


class Cached(Case):
    def told(self, *flags):
        return self.lint("--format", "json", *flags, paths=("src",)).stdout

    def both(self):
        """Findings without a cache, and twice with one."""
        plain = self.told()
        self.assertEqual(self.told("--cache", "cache"), plain)
        self.assertEqual(self.told("--cache", "cache"), plain)
        return {(f["file"].split("/")[-3], f["code"]) for f in json.loads(plain) if f["severity"] == "error"}

    def setUp(self):
        super().setUp()
        for folder, fault in FAULTS.items():
            self.write(package(f"src/{folder}", fault))
        self.found = self.both()

    def test_an_entry_is_used(self):
        entries = sorted((self.dir / "cache").iterdir())
        self.assertEqual(len(entries), 3)
        changed = [e for e in entries if "SW102" in e.read_text()]
        changed[0].write_text(changed[0].read_text().replace("SW102", "SW101"))
        self.assertIn("SW101", self.told("--cache", "cache"))

    def test_an_edited_file(self):
        self.write(package("src/one", FAULTS["two"]))
        self.assertEqual(self.both(), {("one", "SW103"), ("two", "SW103")})

    def test_a_file_that_an_import_finds_first_now(self):
        self.write({"src/two/net/layers/__init__.py": LAYERS})
        self.assertEqual(self.both(), {("one", "SW102")} | ({("two", "SW103")} & self.both()))

    def test_other_options(self):
        self.assertEqual(self.told("--tp", 4, "--cache", "cache"), self.told("--tp", 4))

    def test_damaged_entries(self):
        for i, entry in enumerate(sorted((self.dir / "cache").iterdir())):
            entry.write_text(("", "{", entry.read_text().replace('"range"', '"rang"'))[i])
        self.assertEqual(self.both(), self.found)

    def test_fixes(self):
        self.lint("--fix", "--allow-dirty", "--cache", "cache", paths=("src",))
        self.assertEqual(self.both(), set())
        self.assertEqual((self.dir / "src/one/net/layers.py").read_text(), LAYERS)


STAGE = """import torch.nn as nn
from shardwright.parallel import ColumnParallelLinear


class Net_stage0(nn.Module):
    def __init__(self, dim=32, classes=10):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.head = ColumnParallelLinear(dim, classes, gather_output=True)

    def forward(self, x):
        return self.head(self.norm(x))[0]

    input_tensor = None

    def set_input_tensor(self, tensors):
        self.input_tensor = tensors
"""


class LastOutput(Case):
    def codes(self, text):
        self.write({"net.py": text})
        return {f["code"] for f in self.findings() if f["severity"] == "error"}

    def test_right(self):
        self.assertEqual(self.codes(STAGE), set())

    def test_a_pair(self):
        self.assertEqual(self.codes(STAGE.replace("(x))[0]", "(x))")), {"SW103"})
        self.lint("--fix", "--allow-dirty")
        self.assertEqual((self.dir / "net.py").read_text(), STAGE)

    def test_a_share(self):
        self.assertEqual(self.codes(STAGE.replace("gather_output=True", "gather_output=False")), {"SW105"})


if __name__ == "__main__":
    unittest.main()
