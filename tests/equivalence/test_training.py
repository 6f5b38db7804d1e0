"""pretrain: the same losses on one process and on tp x pp x dp, also across a save and a load; a dead rank ends the job."""
import glob
import json
import os
import socket
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import hand  # noqa: E402

RUNTIME = os.path.abspath(os.path.join(HERE, "..", "..", "runtime", "python"))


def train(folder, world, *arguments, work):
    """Losses by iteration from `world` processes started as torchrun starts them."""
    for old in glob.glob(f"{work}/history*"):
        os.remove(old)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    base = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, [RUNTIME, os.environ.get("PYTHONPATH")])), MASTER_ADDR="127.0.0.1",
                MASTER_PORT=str(port), WORLD_SIZE=str(world), OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo", HAND_FOLDER=folder,
                HISTORY=f"{work}/history")
    processes = [subprocess.Popen([sys.executable, os.path.join(HERE, "train_hand.py"), *arguments], env=dict(base, RANK=str(r), LOCAL_RANK=str(r)),
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for r in range(world)]
    outputs = [p.communicate(timeout=600)[0] for p in processes]
    if any(p.returncode for p in processes):
        raise AssertionError("\n".join(o[-1500:] for o in outputs))
    histories = [json.load(open(f)) for f in sorted(glob.glob(f"{work}/history*"))]
    return histories, outputs


class Training(unittest.TestCase):
    def test_same_losses_and_resume(self):
        import torch
        sys.path.insert(0, hand.HERE)
        from original import GPT
        torch.manual_seed(0)
        state = {k: v.double() for k, v in GPT().state_dict().items()}
        with tempfile.TemporaryDirectory() as d:
            torch.save(state, f"{d}/original.pt")
            one, two = hand.write(f"{d}/one", 1), hand.write(f"{d}/two", 2)
            common = ["--load", f"{d}/original.pt", "--micro-batch-size", "2", "--global-batch-size", "8", "--lr", "1e-2", "--clip-grad", "0.5"]
            (single,), _ = train(one, 1, *common, "--train-iters", "5", work=d)
            self.assertEqual(len(single), 5)
            self.assertLess(single[-1]["lm loss"], single[0]["lm loss"])
            grid = ["--tensor-model-parallel-size", "2", "--pipeline-model-parallel-size", "2"]
            histories, outputs = train(two, 4, *common, *grid, "--train-iters", "3", "--save", f"{d}/saved", "--eval-interval", "3", work=d)
            self.assertIn("evaluation at 3", "".join(outputs))
            later, _ = train(two, 4, *common[2:], *grid, "--train-iters", "5", "--load", f"{d}/saved", work=d)
            for first, second in zip(histories, later):
                for a, b in zip(single, first + second):
                    self.assertAlmostEqual(a["lm loss"], b["lm loss"], delta=1e-10)
            # Another grid than saved, and a broken save, are refused.
            with self.assertRaisesRegex(AssertionError, "reshard"):
                train(one, 1, *common[2:], "--load", f"{d}/saved", work=d)
            os.remove(f"{d}/saved/latest")
            with self.assertRaisesRegex(AssertionError, "no complete checkpoint"):
                train(one, 1, *common[2:], "--load", f"{d}/saved", work=d)


if __name__ == "__main__":
    unittest.main()
