#!/usr/bin/env python3
"""Structure of the source: includes between lib/ folders point one way; lib/ and tools/ name no model; C++ is formatted (tools/format), Python passes ruff.
Files over 800 lines are listed.

usage: check_structure.py [ROOT]
"""
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent)
# docs/decisions.md says why `cxx` and `report` stand where they stand.
ORDER = ["support", "program", "rules", "model", "python", "cxx", "eval", "sharding", "pipeline", "plan", "lint", "rewrite", "emit", "report", "checkpoint", "driver"]
# Words of models, of packages in the corpus, and of the first users' library: they belong in rules/, tests/, testdata/, docs.
WORDS = re.compile(r"pangu|xihe|fengwu|fuxi|onescience|\btimm\b|whisper|litgpt|llama|nanogpt|transolver|vit_pytorch|convnext|physicsnemo", re.I)


def main():
    bad = []
    for path in sorted((ROOT / "lib").rglob("*")):
        if path.suffix not in (".h", ".cpp"):
            continue
        layer = path.relative_to(ROOT / "lib").parts[0]
        for number, line in enumerate(path.read_text().splitlines(), 1):
            m = re.match(r'\s*#include "([a-z]+)/', line)
            if m and m.group(1) in ORDER and ORDER.index(m.group(1)) > ORDER.index(layer):
                bad.append(f"{path.relative_to(ROOT)}:{number}: {layer} includes {m.group(1)}, which is below it")
    for folder in ("lib", "tools/shardwright"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix not in (".h", ".cpp"):
                continue
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if WORDS.search(line):
                    bad.append(f"{path.relative_to(ROOT)}:{number}: names a model or package: {line.strip()[:80]}")
    for folder in ("lib", "tools", "runtime", "tests"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".h", ".cpp", ".py") and "oracle" not in path.parts and path.is_file():
                lines = len(path.read_text().splitlines())
                if lines > 800:
                    print(f"to look at: {path.relative_to(ROOT)} has {lines} lines")
    tracked = subprocess.run(["git", "-C", str(ROOT), "grep", "-nIE", "https?://[a-z0-9.-]*(pypi|pythonhosted|debian)[a-z0-9.-]*"], capture_output=True, text=True).stdout
    bad += [f"registry host: {line}" for line in tracked.splitlines() if "check_structure.py" not in line]
    ruff = next((r for r in (ROOT / ".venv/bin/ruff", shutil.which("ruff")) if r and Path(r).exists()), None)
    for tool, command in (("clang-format", [ROOT / "tools/format", "--check"]), ("ruff", [ruff, "check", "-q", "--output-format=concise", "."] if ruff else None)):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True) if command else None
        if done is None or done.returncode == 3:
            print(f"to look at: {tool} is not installed, nothing was checked with it")
        elif done.returncode:
            bad += [f"{tool}: {line}" for line in (done.stdout + done.stderr).splitlines() if line.strip()][:20]
    print("\n".join(bad) or "structure: fine")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
