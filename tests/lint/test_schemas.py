"""docs/schema: what editors complete from says what the program accepts, and every file of rules/ fits it."""
import json
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

import yaml
from common import BINARY, ROOT

RULES = json.loads((ROOT / "docs/schema/rules.schema.json").read_text())
CONFIG = json.loads((ROOT / "docs/schema/config.schema.json").read_text())
TYPES = {"string": str, "boolean": bool, "integer": int, "number": (int, float), "array": list, "object": dict}


def fits(value, schema, root):
    """As much of JSON Schema as the two files use."""
    if "$ref" in schema:
        return fits(value, root["$defs"][schema["$ref"].rsplit("/", 1)[1]], root)
    if "enum" in schema and value not in schema["enum"]:
        return False
    if "type" in schema:
        kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        if not any(isinstance(value, TYPES[k]) and not (isinstance(value, bool) and k != "boolean") for k in kinds):
            return False
    if "pattern" in schema and not re.search(schema["pattern"], value):
        return False
    if value is not None and "exclusiveMinimum" in schema and value <= schema["exclusiveMinimum"]:
        return False
    if "minimum" in schema and value < schema["minimum"]:
        return False
    if isinstance(value, list) and not all(fits(v, schema.get("items", {}), root) for v in value):
        return False
    if isinstance(value, dict):
        properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
        if not set(schema.get("required", [])) <= set(value):
            return False
        for k, v in value.items():
            if k not in properties and (others is False or isinstance(others, dict) and not fits(v, others, root)):
                return False
            if k in properties and not fits(v, properties[k], root):
                return False
    if "anyOf" in schema and not any(fits(value, s, root) for s in schema["anyOf"]):
        return False
    return "oneOf" not in schema or sum(fits(value, s, root) for s in schema["oneOf"]) == 1


def said(config, rules=None):
    """What lint says of a configuration, or of a rules file that it names."""
    with tempfile.TemporaryDirectory() as d:
        folder = Path(d)
        (folder / "shardwright.yaml").write_text(config)
        (folder / "a.py").write_text("")
        if rules is not None:
            (folder / "r").mkdir()
            (folder / "r/r.yaml").write_text(rules)
        run = subprocess.run([BINARY, "lint", "a.py"], cwd=folder, capture_output=True, text=True)
        return run.returncode, run.stdout + run.stderr


def listed(text):
    return set(re.search("; known: ([\\w, ]+)", text)[1].split(", "))


class Schemas(unittest.TestCase):
    def test_rules_fit(self):
        files = [f for part in ("ops", "devices") for f in (ROOT / "rules" / part).glob("*.yaml")] + [ROOT / "rules/kinds.yaml", ROOT / "rules/layers/torch.yaml"]
        self.assertGreater(len(files), 5)
        for f in files:
            for rule in yaml.safe_load(f.read_text()):
                self.assertTrue(fits([rule], RULES, RULES), f"{f.name}: {rule}")

    def test_wrong_ones_do_not(self):
        for rule in ({"op": "f"}, {"op": "f", "like": "keep", "rule": "a -> a"}, {"op": "f", "like": "sideways"}, {"layer": "L", "parallel": {"up": "o"}}, {"kind": "k"}, {"device": "d", "tflops": 0, "memory_gib": 1, "memory_gb_s": 1, "link_gb_s": 1}):
            self.assertFalse(fits([rule], RULES, RULES), rule)
        for config in ({"lint": {"tp": 0}}, {"lint": {"error_on": "info"}}, {"lint": {"select": ["X1"]}}, {"lints": {}}):
            self.assertFalse(fits(config, CONFIG, CONFIG), config)

    def test_keys_are_the_programs(self):
        """The program names its keys when it meets one that is like none of them."""
        starts = {"op": "op: f, like: keep", "layer": "layer: L", "kind": "kind: k, when: {root: true}", "device": "device: d"}
        for kind, start in starts.items():
            code, text = said("rules: [r]\n", f"- {{{start}, qqqqqqqqqqqqqqqq: 1}}\n")
            self.assertEqual(code, 2, text)
            self.assertIn("; known: ", text)
            self.assertEqual(listed(text), set(RULES["$defs"][kind]["properties"]), kind)
        code, text = said("rules: [r]\n", "- {kind: k, when: {qqqqqqqqqqqqqqqq: 1}}\n")
        self.assertEqual(listed(text), set(RULES["$defs"]["condition"]["properties"]), text)
        code, text = said("qqqqqqqqqqqqqqqq: 1\n")
        known = set(re.search(r"Known are ([\w., ]+)", text)[1].replace(" ", "").rstrip(".").split(","))
        lint = CONFIG["properties"]["lint"]["properties"]
        self.assertEqual(known, {k for k in CONFIG["properties"] if k != "lint"} | {f"lint.{k}" for k in lint})


if __name__ == "__main__":
    unittest.main()
