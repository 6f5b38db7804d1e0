#!/usr/bin/env python3
"""Models in C++ (testdata/cxx): trees and plans, bad input, the cache, conversion; with --verify also build and compare.

usage: check_cxx.py --binary BIN [--verify MODEL…|all]
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from models import MODELS

ROOT = Path(__file__).resolve().parent.parent.parent
DATA = ROOT / "testdata" / "cxx"
failures = []


def check(what, ok, detail=""):
    print(f"{'ok  ' if ok else 'FAIL'} {what}" + ("" if ok else f": {detail}"), flush=True)
    if not ok:
        failures.append(what)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--binary", required=True)
    p.add_argument("--verify", nargs="*", default=[])
    a = p.parse_args()
    if not (Path(a.binary).parent / "shardwright-cxx").exists():
        print("shardwright-cxx is not built here (Clang 19's libraries are missing)")
        return 1
    import importlib.util
    torch = Path(importlib.util.find_spec("torch").origin).parent
    flags = ["--", f"-I{torch}/include", f"-I{torch}/include/torch/csrc/api/include"]
    work = Path(tempfile.mkdtemp(prefix="shardwright-cxx-"))
    env = dict(os.environ, XDG_CACHE_HOME=str(work / "cache"))

    def run(*args, with_flags=True):
        began = time.time()
        r = subprocess.run([a.binary, *args, *(flags if with_flags else [])], capture_output=True, text=True, env=env, cwd=ROOT)
        r.seconds = time.time() - began
        return r

    def options(m):
        out = ["--args", m["args"]] if m["args"] else []
        for i in m["inputs"]:
            out += ["--input", i]
        return out

    # Every model from one translation unit: Clang runs once.
    first = None
    for name, m in MODELS.items():
        spec = f"{DATA}/all.cpp:{m['cls']}"
        r = run("tree", spec, *options(m), "--json")
        first = first if first is not None else r.seconds
        if r.returncode:
            check(f"{name}: tree", False, r.stderr)
            continue
        check(f"{name}: parameters", json.loads(r.stdout)["parameters"] == m["parameters"], json.loads(r.stdout)["parameters"])
        r = run("plan", spec, *options(m), "--tp", "2", "--json")
        if r.returncode:
            check(f"{name}: plan", False, r.stderr)
            continue
        plan = json.loads(r.stdout)
        split = split_of(plan)
        if m["split"] is not None:
            check(f"{name}: split at tp 2", split == m["split"], f"missing {sorted(m['split'] - split)}, beyond {sorted(split - m['split'])}")
        check(f"{name}: nothing left out", not re.search("not followed|not described", run("tree", "-v", spec, *options(m)).stderr), "see tree -v")
    gpt = MODELS["gpt"]
    again = min(run("tree", f"{DATA}/all.cpp:GPTImpl", *options(gpt)).seconds for _ in range(3))
    print(f"     first run {first:.1f} s, a second one {again * 1000:.0f} ms")
    check("a second run is quick", again < max(0.3, first / 10), f"{again:.2f} s")

    # Bad input: exit code 2, and the message says what to do.
    def bad(what, text, expected, with_flags=True, name="broken.h", cls="X"):
        path = work / name
        path.write_text(text)
        r = run("tree", f"{path}:{cls}", with_flags=with_flags)
        check(what, r.returncode == 2 and re.search(expected, r.stderr), f"exit {r.returncode}: {r.stderr}")

    bad("a file with errors", "struct X { int f( };\n", r"broken.h:1:\d+: ")
    bad("a missing header", "#include <torch/nothing.h>\nstruct X {};\n", "'torch/nothing.h' file not found")
    bad("no compile database", "struct X {};\n", r"compile_commands.json.*-p BUILD", with_flags=False)
    bad("no such class", "struct Y {};\n", "no class 'X'")
    r = run("convert", f"{DATA}/all.cpp:GPTImpl", *options(gpt), "--tp", "2", "--pp", "2", "-o", str(work / "no"))
    check("stages are refused", r.returncode == 2 and not (work / "no").exists(), r.stderr)

    # Converted: comments stay, a second run changes nothing.
    out = work / "gpt_2"
    r = run("convert", f"{DATA}/all.cpp:GPTImpl", *options(gpt), "--tp", "2", "-o", str(out))
    check("gpt: convert", r.returncode == 0, r.stderr)
    if r.returncode == 0:
        text = (out / "include" / "gpt.h").read_text()
        for comment in re.findall(r"//.*", (DATA / "gpt.h").read_text()):
            check("gpt: comment kept", comment in text, comment)
        check("gpt: edited", "shardwright::shard(*this" in text and "shardwright::tp_size()" in text, text)
        r = run("convert", f"{DATA}/all.cpp:GPTImpl", *options(gpt), "--tp", "2", "-o", str(out))
        check("gpt: a second run changes nothing", "nothing to do" in r.stdout, r.stdout + r.stderr)

    for name in MODELS if a.verify == ["all"] else a.verify:
        m = MODELS[name]
        out = ROOT / "out" / "cxx" / name
        r = run("convert", f"{DATA}/{m['file']}:{m['cls']}", *options(m), "--tp", "2", "--force", "-o", str(out))
        if r.returncode:
            check(f"{name}: convert", False, r.stderr)
            continue
        for tp in (2, 1):
            r = run("verify", str(out), "--tp", str(tp), "--json", with_flags=False)
            check(f"{name}: the same at tp {tp}", r.returncode == 0, r.stdout + r.stderr)
            if r.returncode == 0:
                print("     " + json.dumps(json.loads(r.stdout)))
        if name == "gpt":
            # It must be able to fail: a residual added on every rank.
            source = out / "include" / "gpt.h"
            text = source.read_text()
            source.write_text(text.replace("shardwright::row_parallel_module(c_proj", "c_proj->forward(").replace("c_proj->forward(, ", "c_proj->forward("))
            r = run("verify", str(out), "--json", with_flags=False)
            check("gpt: a sum that is left out is found", r.returncode == 1, r.stdout + r.stderr)
            source.write_text(text)
    print(f"{len(failures)} failed" if failures else "C++: fine")
    return 1 if failures else 0


def split_of(plan):
    """Modules that hold a slice, by name."""
    return {p.rsplit(".", 1)[0] for axis in plan["axes"] if axis["split"] for p in axis["parameters"]}


if __name__ == "__main__":
    sys.exit(main())
