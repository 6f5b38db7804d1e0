#!/usr/bin/env python3
"""All tests, in the order in which a failure is cheapest to find. tools/test sets up and calls it.

usage: run.py --binary BIN --build DIR --corpus DIR [--all] [--only NAME…]
"""
import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--binary", required=True)
    p.add_argument("--build", required=True)
    p.add_argument("--corpus", required=True)
    p.add_argument("--all", action="store_true")
    p.add_argument("--only", nargs="*")
    a = p.parse_args()
    python = sys.executable
    env = dict(os.environ, SHARDWRIGHT_BINARY=a.binary, SHARDWRIGHT_CORPUS=a.corpus, **({"SHARDWRIGHT_ALL": "1"} if a.all else {}))
    models = [python, "tests/equivalence/run_models.py", "--binary", a.binary, "--corpus", a.corpus]
    steps = [
        ("structure", [python, "tests/check_structure.py"]),
        ("unit tests (C++)", ["ctest", "--test-dir", a.build, "--output-on-failure", "-j2"]),
        ("command line and bad input", [python, "-m", "unittest", "discover", "-s", "tests/cli", "-p", "test_*.py"]),
        ("lint: examples, fixes, formats, language server", [python, "-m", "unittest", "discover", "-s", "tests/lint", "-p", "test_*.py"]),
        ("lint cases", [python, "tests/cases/check_lint.py", a.binary, "tests/cases"]),
        ("lint cases, the fork's imports", [python, "tests/cases/check_lint.py", a.binary, "tests/cases", "--prefix", "onescience"]),
        ("lint: single faults, run on simulated ranks", [python, "tests/lint/mutations/run.py", "--binary", a.binary, *([] if a.all else ["--limit", "30"])]),
        ("fuzzed input", [python, "tests/fuzz/run_fuzz.py", "--tool", str(Path(a.build) / "bin" / "fuzz_lint"), "--runs", "100000" if a.all else "500"]),
        ("axes and cuts against the prototype", [python, "tests/oracle/check.py", "--binary", a.binary, "--corpus", a.corpus]),
        ("trees against PyTorch", [python, "tests/corpus/check_tree.py", "--binary", a.binary, "--corpus", a.corpus]),
        ("operation rules against PyTorch", [python, "tests/oprules/check_ops.py", "--tool", str(Path(a.build) / "bin" / "unit_eval")]),
        ("reshard: checkpoints between grids", [python, "-m", "unittest", "discover", "-s", "tests/checkpoint", "-p", "test_*.py"]),
        ("runtime, verify and its faults", [python, "-m", "unittest", "discover", "-s", "tests/equivalence", "-p", "test_*.py"]),
        ("models: convert and verify", [*models, *(["--all", "--table", "out/table.md"] if a.all else [])]),
        ("predicted payload", [python, "tests/equivalence/check_payload.py", "--binary", a.binary, "--corpus", a.corpus, *([] if a.all else ["--only", "gpt_tied", "timm-vit"])]),
        ("generated training script", [python, "tests/equivalence/check_training.py", "--binary", a.binary]),
        ("models in C++", [python, "tests/cxx/check_cxx.py", "--binary", a.binary, "--verify", *(["all"] if a.all else ["gpt"])]),
        ("target onescience: handoff and files", [python, "-m", "unittest", "discover", "-s", "tests/onescience", "-p", "test_*.py"]),
        ("target onescience: stages against the originals", [python, "tests/onescience/check_stages.py", "--binary", a.binary, "--corpus", a.corpus, *([] if a.all else ["--ci"])]),
        ("target megatron: stages in Megatron-Core's own schedule", [python, "tests/onescience/check_megatron.py", "--binary", a.binary, *([] if a.all else ["--ci"])]),
        ("target onescience: the generated training directory", [python, "tests/onescience/check_training.py", "--binary", a.binary]),
    ]
    if a.all:
        steps.append(("figures", [python, "tests/measure.py", "--binary", a.binary, "--corpus", a.corpus]))
    passed, failed = [], []
    for name, command in steps:
        if a.only and not any(o in name for o in a.only):
            continue
        script = next((c for c in command if c.endswith(".py") and "/" in c and "*" not in c), None)
        if script and not (ROOT / script).exists() or "discover" in command and not (ROOT / command[command.index("-s") + 1]).exists():
            failed.append(f"{name} (its script is missing)")
            print(f"==> {name}: MISSING {script}", flush=True)
            continue
        print(f"\n==> {name}: {' '.join(str(c).replace(str(ROOT) + '/', '') for c in command)}", flush=True)
        began = time.time()
        code = subprocess.run(command, cwd=ROOT, env=env).returncode
        print(f"<== {name}: {'passed' if code == 0 else f'FAILED ({code})'} in {time.time() - began:.0f} s", flush=True)
        (passed if code == 0 else failed).append(name)
    print("\nfailed: " + ", ".join(failed) if failed else "\neverything passed")
    print(f"{len(passed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
