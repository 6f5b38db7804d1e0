"""Starts and watches the processes of a verification: when one dies the others are ended at once, nothing is left behind."""
from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time


RESTART = 4   # see worker.py


class LaunchError(RuntimeError):
    """The run could not finish; the message says which rank and why."""


class Launch:
    def __init__(self, targets, *, device="cpu", python_path=(), timeout=900, debug=False, progress=None):
        self.targets, self.progress, self.debug = targets, progress or (lambda done, total: None), debug
        self.world = max(t["options"]["tp"] * t["options"]["pp"] * t["options"]["dp"] for t in targets)
        self.timeout = timeout
        self.folder = tempfile.mkdtemp(prefix="shardwright-verify-")
        for k in range(len(targets)):
            os.mkdir(os.path.join(self.folder, str(k)))
        self.spec = {"targets": targets, "folder": self.folder, "world": self.world, "device": device, "timeout": timeout,
                     "python_path": [os.path.abspath(p) for p in python_path], "debug": debug,
                     "threads": max(1, (os.cpu_count() or 1) // (self.world + 1))}
        self.processes: dict[str, subprocess.Popen] = {}

    def run(self):
        """{index: report} of the targets that finished, and (index, message) of the first that did not, or None."""
        path = os.path.join(self.folder, "spec.json")
        with open(path, "w") as f:
            json.dump(self.spec, f)
        here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        environment = dict(os.environ, TOKENIZERS_PARALLELISM="false",
                           PYTHONPATH=os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")])), PYTHONDONTWRITEBYTECODE="1",
                           SHARDWRIGHT_LAUNCHER=str(os.getpid()),
                           OMP_NUM_THREADS=str(self.spec["threads"]), GLOO_SOCKET_IFNAME=os.environ.get("GLOO_SOCKET_IFNAME", "lo"))
        try:
            for role in ["reference", *map(str, range(self.world))]:
                env = dict(environment) if role == "reference" else dict(environment, RANK=role, LOCAL_RANK=role, WORLD_SIZE=str(self.world))
                log = open(os.path.join(self.folder, f"{role}.log"), "w+")
                self.processes[role] = subprocess.Popen([sys.executable, "-m", "shardwright.verify.worker", path, role], env=env,
                                                        stdout=log, stderr=sys.stderr if self.debug else subprocess.STDOUT,
                                                        stdin=subprocess.DEVNULL, start_new_session=True)
            return self._watch()
        finally:
            self.end()

    def _finished(self):
        reports = {}
        for k in range(len(self.targets)):
            try:
                with open(os.path.join(self.folder, str(k), "result.json")) as f:
                    reports[k] = json.load(f)
            except FileNotFoundError:
                break
        return reports

    def _watch(self):
        began, done, first_failure = time.monotonic(), -1, None
        while True:
            states = {role: p.poll() for role, p in self.processes.items()}
            failed = {role: code for role, code in states.items() if code not in (None, 0)}
            reports = self._finished()
            if len(reports) != done:
                done, began = len(reports), time.monotonic()
                self.progress(done, len(self.targets))
            if failed.get("reference") == RESTART:
                return self._finished(), (len(self._finished()), None)
            if failed:
                # The reference may still be comparing an earlier target than the one that failed here.
                ahead = self._failed_target()
                first_failure = first_failure or time.monotonic()
                if ahead is not None and len(reports) < ahead and states["reference"] is None and time.monotonic() - first_failure < 120:
                    time.sleep(0.05)
                    continue
                time.sleep(0.3)   # the process that failed first may still be writing why
                return self._finished(), (len(self._finished()), self._why({r: p.poll() for r, p in self.processes.items()}))
            if all(code == 0 for code in states.values()):
                if len(reports) == len(self.targets):
                    return reports, None
                return reports, (len(reports), "all processes ended without a result")
            if len(reports) == len(self.targets) and states["reference"] == 0:
                deadline = time.monotonic() + 20
                while any(p.poll() is None for p in self.processes.values()) and time.monotonic() < deadline:
                    time.sleep(0.02)
                return reports, None
            if time.monotonic() - began > self.timeout:
                return reports, (len(reports), f"nothing happened for {self.timeout:.0f} s (rank or reference hangs); --timeout changes the limit")
            time.sleep(0.05)

    def _failed_target(self):
        """The first target in whose folder a process wrote an error."""
        for k in range(len(self.targets)):
            if any(name.startswith("error") for name in os.listdir(os.path.join(self.folder, str(k)))):
                return k
        return None

    def _why(self, states):
        folder = os.path.join(self.folder, str(len(self._finished())))
        messages = []
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
            if name.startswith("error") and name.endswith(".json"):
                with open(os.path.join(folder, name)) as f:
                    messages.append(json.load(f))
        # The first cause, not what followed from it on other ranks.
        messages.sort(key=lambda m: (bool(m.get("secondary")), m["rank"] is not None, m["rank"] or 0))
        options = self.targets[min(len(self._finished()), len(self.targets) - 1)]["options"]
        killed = []
        for role, code in states.items():
            if code is not None and code < 0 and role != "reference":
                r = int(role)
                stage, tp = r // (options["tp"] * options["dp"]), r % options["tp"]
                killed.append(f"rank {role} (stage {stage}, tp {tp}) was ended by {signal.Signals(-code).name}")
            elif code is not None and code < 0:
                killed.append(f"the reference process was ended by {signal.Signals(-code).name}")
        if killed and all(m.get("secondary") for m in messages):
            return "; ".join(killed)
        if messages:
            return messages[0]["message"]
        for role, code in states.items():
            if code not in (None, 0):
                with open(os.path.join(self.folder, f"{role}.log")) as f:
                    tail = [line for line in f.read().strip().splitlines() if line.strip()][-8:]
                who = "the reference process" if role == "reference" else f"rank {role}"
                return f"{who} ended with code {code}" + ("\n  " + "\n  ".join(tail) if tail else "")
        return "a process ended"

    def end(self):
        """Ends every process that still runs, and removes the folder."""
        for p in self.processes.values():
            if p.poll() is None:
                try:
                    os.killpg(p.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        for p in self.processes.values():
            p.wait()
        if not self.debug:
            shutil.rmtree(self.folder, ignore_errors=True)


def run_all(targets, **options):
    """Reports in the order of targets; {"error": …} for one that could not finish. A target that fails ends its launch, the
    following ones get a new one."""
    reports, start = [None] * len(targets), 0
    while start < len(targets):
        finished, failure = Launch(targets[start:], **options).run()
        for k, report in finished.items():
            reports[start + k] = report
        if failure is None:
            break
        k, message = failure
        if k >= len(targets) - start:
            break
        if message is None:
            start += k
            continue
        o = targets[start + k]["options"]
        reports[start + k] = {"dir": targets[start + k]["dir"], "same": False, "error": message,
                              "grid": {"tp": o["tp"], "pp": o["pp"], "dp": o["dp"]}}
        start += k + 1
    return reports
