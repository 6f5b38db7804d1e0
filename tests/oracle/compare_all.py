#!/usr/bin/env python3
"""Axes of corpus models against the prototype's: compare_all.py TOOL JOBS [ID…]

TOOL: a program that prints a job's axes (`axes_of_job`, or "shardwright plan --tp 2 --json"); JOBS: folder of make_jobs.py.
Without ids: every model that has a job and an expectation. Exit 1 where one differs without an explanation or fails."""
import os
import shlex
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
tool, jobs, ids = shlex.split(sys.argv[1]), sys.argv[2], sys.argv[3:]
ids = ids or sorted(f[:-5] for f in os.listdir(HERE + "/prototype/expected") if os.path.isdir(f"{jobs}/{f[:-5]}"))
bad = []
for i in ids:
    r = subprocess.run(tool + [f"{jobs}/{i}/job.yaml"], capture_output=True, text=True)
    if r.returncode:
        bad.append(i); print(f"{i}: failed ({r.returncode}): {r.stderr.strip().splitlines()[-1] if r.stderr.strip() else ''}"); continue
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        f.write(r.stdout); f.flush()
        c = subprocess.run([sys.executable, HERE + "/compare_oracle.py", f"{HERE}/prototype/expected/{i}.json", f.name, "--differences", HERE + "/differences.yaml"])
    if c.returncode: bad.append(i)
print(f"{len(ids) - len(bad)} of {len(ids)} models as the prototype" + (f"; not: {', '.join(bad)}" if bad else ""))
sys.exit(bool(bad))
