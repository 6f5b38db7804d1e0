"""Layers, regions, random streams, pipeline and training of the runtime against the same computation in one process.

All checks share one launch of four processes (checks.py); each uses the tp, pp and dp sizes it needs on the first ranks.
"""
import os
import socket
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
RUNTIME = os.path.abspath(os.path.join(HERE, "..", "..", "runtime", "python"))
WORLD = 4


class Runtime(unittest.TestCase):
    def test_checks(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        base = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, [RUNTIME, os.environ.get("PYTHONPATH")])), MASTER_ADDR="127.0.0.1",
                    MASTER_PORT=str(port), WORLD_SIZE=str(WORLD), OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo")
        processes = [subprocess.Popen([sys.executable, os.path.join(HERE, "checks.py"), *filter(None, [os.environ.get("CHECKS")])],
                                      env=dict(base, RANK=str(r), LOCAL_RANK=str(r)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                     for r in range(WORLD)]
        try:
            outputs = [p.communicate(timeout=500)[0] for p in processes]
        finally:
            for p in processes:
                if p.poll() is None:
                    p.kill()
        for rank, (p, out) in enumerate(zip(processes, outputs)):
            self.assertEqual(p.returncode, 0, f"rank {rank}:\n{out[-4000:]}")
        print(outputs[0], end="")


if __name__ == "__main__":
    unittest.main()
