#!/usr/bin/env python3
"""Speed of lint beside ruff's, as ratios in one run: lint.py --binary BIN --corpus DIR --ruff RUFF [--packages DIR] [--rounds N] [--json FILE]

Two trees: onescience's wheel, which has hardly any parallel code (the floor: bound 0.5 × `ruff check --select F --no-cache`), and one with
work in it (bound 2 ×): megatron-core and 40 converted packages with 20 faults in them, all of which have to be found in the timed run. All
commands run in turns; elapsed times are compared, best of the rounds on both sides. One file edited in the language server: the median time
from a typed character to the findings, over the programs of testdata/parallel (bound 50 ms).
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "tests/lint/mutations"))
FAULTS = 20
COPIES = 40


def once(command):
    """(elapsed seconds, peak MB, what it said)"""
    with tempfile.TemporaryFile("w+") as out:
        began = time.perf_counter()
        child = subprocess.Popen([str(c) for c in command], stdout=out, stderr=subprocess.DEVNULL)
        _, _, used = os.wait4(child.pid, 0)
        elapsed = time.perf_counter() - began
        out.seek(0)
        return elapsed, used.ru_maxrss / 1024, out.read()


def working_tree(a, folder):
    """megatron-core and the converted packages; {folder of a package: code of its fault}"""
    import faults
    shutil.copytree(Path(a.packages) / "megatron", folder / "megatron", ignore=shutil.ignore_patterns("__pycache__"))
    models = ["gpt_tied", "swin_block", "unet_attention", "parallel_block"]
    made = {}
    for model in models:
        out = folder / ("made_" + model)
        subprocess.run([a.binary, "convert", ROOT / f"testdata/{model}.yaml", "--tp", "2", "--target", "runtime", "--force", "-o", out], check=True, capture_output=True)
        made[model] = {str(f.relative_to(out)): f.read_text() for f in out.rglob("*.py")}
        shutil.rmtree(out)
    wanted = {}
    kinds = [k for k in faults.FAULTS if k in ("[0] dropped", "input_is_parallel on a share set to False", "summed twice", "bias before the sum", "stride dropped")]
    for i in range(COPIES):
        model = models[i % len(models)]
        files = dict(made[model])
        name = f"package{i:02d}"
        if i < FAULTS:
            changes = [(kind, file, text) for kind in kinds[i % len(kinds):] + kinds[: i % len(kinds)] for file in files if "def forward(" in files[file] for _, text in faults.FAULTS[kind][0](faults.Source(files[file]))]
            kind, file, text = changes[0]
            files[file] = text
            wanted[name] = faults.FAULTS[kind][1]
        for file, text in files.items():
            path = folder / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return wanted


class Editor:
    """A language client as small as can be: opens a file, types into it, waits for what the server says of it."""

    def __init__(self, binary, root):
        self.child = subprocess.Popen([str(binary), "lsp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.send({"id": 1, "method": "initialize", "params": {"processId": None, "rootUri": root.as_uri(), "capabilities": {}}})
        while self.receive().get("id") != 1:
            pass
        self.send({"method": "initialized", "params": {}})

    def send(self, message):
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.child.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.child.stdin.flush()

    def receive(self):
        length = 0
        while (line := self.child.stdout.readline().strip()):
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        return json.loads(self.child.stdout.read(length))

    def findings(self, uri, version, message):
        began = time.perf_counter()
        self.send(message)
        while True:
            answer = self.receive()
            if answer.get("method") == "textDocument/publishDiagnostics" and answer["params"]["uri"] == uri and answer["params"].get("version", version) == version:
                return time.perf_counter() - began

    def close(self):
        self.send({"id": 2, "method": "shutdown"})
        while self.receive().get("id") != 2:
            pass
        self.send({"method": "exit"})
        self.child.wait(10)


def edited_file(binary, edits):
    """{file: median seconds from a typed character to the findings} over the hand-written programs."""
    out = {}
    for path in sorted((ROOT / "testdata/parallel").glob("*.py")):
        editor, uri, text = Editor(binary, path.parent), path.as_uri(), path.read_text()
        editor.findings(uri, 0, {"method": "textDocument/didOpen", "params": {"textDocument": {"uri": uri, "languageId": "python", "version": 0, "text": text}}})
        times = []
        for i in range(1, edits + 1):
            text += "#" if i == 1 else "x"
            times.append(editor.findings(uri, i, {"method": "textDocument/didChange", "params": {"textDocument": {"uri": uri, "version": i}, "contentChanges": [{"text": text}]}}))
        editor.close()
        out[path.name] = sorted(times)[len(times) // 2]
    return out


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--binary", required=True)
    p.add_argument("--corpus", required=True)
    p.add_argument("--packages", default=str(ROOT / ".cache/megatron"))
    p.add_argument("--ruff", default=shutil.which("ruff"))
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--json")
    a = p.parse_args()
    if not a.ruff or not (Path(a.packages) / "megatron").is_dir():
        print("ruff or megatron-core is not at hand: not measured")
        return 1
    figures, failed = {}, []
    with tempfile.TemporaryDirectory() as work:
        work = Path(work)
        wanted = working_tree(a, work)
        for name, tree, bound in (("floor: the onescience wheel", Path(a.corpus) / "onescience", 0.5), ("megatron-core and 40 packages", work, 2.0)):
            ours, ruffs, peak, said = [], [], 0, ""
            for _ in range(a.rounds):
                t, mb, said = once([a.binary, "lint", tree, "--tp", "2", "--format", "json", "--python-path", ROOT / "testdata"])
                ours.append(t)
                peak = max(peak, mb)
                ruffs.append(once([a.ruff, "check", "--select", "F", "--no-cache", tree])[0])
            ratio = min(ours) / min(ruffs)
            figures[name] = {"lint_s": min(ours), "ruff_s": min(ruffs), "ratio": ratio, "bound": bound, "kept": ratio <= bound, "peak_mb": peak}
            if tree == work:
                found = {}
                for f in json.loads(said):
                    found.setdefault(Path(f["file"]).relative_to(work).parts[0], set()).add(f["code"])
                missed = [k for k, codes in wanted.items() if not codes & found.get(k, set())]
                figures[name]["faults_found"] = len(wanted) - len(missed)
                failed += [f"fault not found in {m}" for m in missed]
    typed = edited_file(a.binary, 4 * a.rounds)
    slowest = max(typed, key=typed.get)
    print(f"one edited file in the language server: median {1000 * sorted(typed.values())[len(typed) // 2]:.1f} ms of {len(typed)} files, slowest {slowest} {1000 * typed[slowest]:.1f} ms (bound 50)")
    if typed[slowest] > 0.05:
        failed.append(f"editor: {slowest} takes {1000 * typed[slowest]:.0f} ms")
    for name, f in figures.items():
        print(f"{name}: {f['lint_s']:.3f} s, ruff {f['ruff_s']:.3f} s, ratio {f['ratio']:.2f} (bound {f['bound']}), peak {f['peak_mb']:.0f} MB" + (f", {f['faults_found']} of {FAULTS} faults found" if "faults_found" in f else ""))
        if not f["kept"]:
            failed.append(f"{name}: ratio {f['ratio']:.2f}")
    for f in failed:
        print("FAILED", f)
    if a.json:
        Path(a.json).write_text(json.dumps({"trees": figures, "editor_ms": {k: 1000 * v for k, v in typed.items()}}))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
