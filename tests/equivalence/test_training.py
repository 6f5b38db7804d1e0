"""pretrain: the same losses on one process and on tp x pp x dp, across saves and loads at other grids, and with SIGTERM; what it refuses; a
rank that dies ends the job with one message, and the run continues bit for bit."""
import glob
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import hand  # noqa: E402

RUNTIME = os.path.abspath(os.path.join(HERE, "..", "..", "runtime", "python"))
BINARY = os.environ.get("SHARDWRIGHT_BINARY")
KILLS = 50 if os.environ.get("SHARDWRIGHT_ALL") else 2


def start(folder, world, *arguments, work):
    """`world` processes, started as torchrun starts them."""
    for old in glob.glob(f"{work}/history*"):
        os.remove(old)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    base = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, [RUNTIME, os.environ.get("PYTHONPATH")])), MASTER_ADDR="127.0.0.1",
                MASTER_PORT=str(port), WORLD_SIZE=str(world), OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo", HAND_FOLDER=folder,
                HISTORY=f"{work}/history")
    processes = []
    for r in range(world):
        with open(f"{work}/output{r}", "w") as out:
            processes.append(subprocess.Popen([sys.executable, os.path.join(HERE, "train_hand.py"), *map(str, arguments)],
                                              env=dict(base, RANK=str(r), LOCAL_RANK=str(r)), stdout=out, stderr=subprocess.STDOUT, text=True))
    return processes


def outputs(work, world):
    return [Path(f"{work}/output{r}").read_text() for r in range(world)]


def train(folder, world, *arguments, work):
    """Losses by iteration."""
    processes = start(folder, world, *arguments, work=work)
    try:
        for p in processes:
            p.wait(600)
    finally:
        for p in processes:
            if p.poll() is None:
                p.kill()
    said = outputs(work, world)
    if any(p.returncode for p in processes):
        raise AssertionError("\n".join(o[-1500:] for o in said))
    return [json.loads(Path(f).read_text()) for f in sorted(glob.glob(f"{work}/history*"))], said


def original_state(path):
    import torch
    sys.path.insert(0, hand.HERE)
    from original import GPT
    torch.manual_seed(0)
    torch.save({k: v.double() for k, v in GPT().state_dict().items()}, path)
    return path


GRID = ["--tensor-model-parallel-size", "2", "--pipeline-model-parallel-size", "2"]


class Training(unittest.TestCase):
    def test_same_losses_and_resume(self):
        with tempfile.TemporaryDirectory() as d:
            one, two = hand.write(f"{d}/one", 1), hand.write(f"{d}/two", 2)
            common = ["--load", original_state(f"{d}/original.pt"), "--micro-batch-size", "2", "--global-batch-size", "8", "--lr", "1e-2", "--clip-grad",
                      "0.5", "--lr-decay-style", "cosine", "--lr-warmup-iters", "2", "--lr-decay-iters", "6"]
            (single,), _ = train(one, 1, *common, "--train-iters", "5", work=d)
            self.assertEqual(len(single), 5)
            self.assertLess(single[-1]["lm loss"], single[0]["lm loss"])

            def same(histories, begin=0):
                self.assertTrue(histories)
                for losses in histories:
                    for a, b in zip(single[begin:], losses, strict=True):
                        self.assertAlmostEqual(a["lm loss"], b["lm loss"], delta=1e-10)

            saved = ["--save", f"{d}/saved", "--exit-interval", "3", "--log-json", f"{d}/log.jsonl"]
            histories, said = train(two, 4, *common, *GRID, "--schedule", "zb-h1", "--train-iters", "5", *saved, "--eval-interval", "3", work=d)
            self.assertIn("evaluation at 3", "".join(said))
            self.assertIn("ends after iteration 3: --exit-interval", "".join(said))
            same([h + single[3:] for h in histories])
            lines = [json.loads(line) for line in Path(f"{d}/log.jsonl").read_text().splitlines()]
            self.assertEqual([x["iteration"] for x in lines if x["kind"] == "train"], [1, 2, 3])
            self.assertEqual([x["kind"] for x in lines][-1], "evaluation")
            again = [*common[2:], "--load", f"{d}/saved", "--train-iters", "5"]
            same(train(two, 4, *again, *GRID, work=d)[0], 3)                                           # the same grid
            same(train(one, 1, *again, work=d)[0], 3)                                                  # one process
            same(train(two, 4, *again, "--pipeline-model-parallel-size", "2", "--use-distributed-optimizer", "--overlap-grad-reduce", work=d)[0], 3)
            if BINARY:   # the same through reshard: to another grid, and to the single-GPU file (without the optimizer: the first loss)
                for source, out, table, to in (("saved", "grid", "two", "1,2"), ("grid", "single.safetensors", "two", "1,1")):
                    subprocess.run([BINARY, "reshard", f"{d}/{source}", f"{d}/{out}", "--params", f"{d}/{table}/params.yaml", "--to", to], check=True, stdout=subprocess.DEVNULL)
                same(train(two, 2, *common[2:], "--load", f"{d}/grid", "--train-iters", "5", "--pipeline-model-parallel-size", "2", work=d)[0], 3)
                (start,), _ = train(one, 1, "--load", f"{d}/single.safetensors", *common[2:], "--train-iters", "1", work=d)
                (again_one,), _ = train(one, 1, *common[2:], "--load", f"{d}/saved", "--finetune", "--train-iters", "1", work=d)
                self.assertEqual(start, again_one)
            # One package of two stages on one rank: interleaved with two stages a rank.
            same(train(two, 1, *again, "--schedule", "interleaved", work=d)[0], 3)
            os.rename(f"{d}/saved/iter_0000003/complete", f"{d}/saved/elsewhere")
            with self.assertRaisesRegex(AssertionError, "complete is missing"):
                train(one, 1, *again, work=d)

    def test_arguments(self):
        with tempfile.TemporaryDirectory() as d:
            one = hand.write(f"{d}/one", 1)
            for arguments, words in ((["--micro-batchsize", "2"], "is --micro-batch-size meant"), (["--sequence-parallel"], "property of the model's layers"),
                                     (["--schedule", "zb-v", "--num-virtual-stages-per-pipeline-rank", "3"], "two stages a rank")):
                with self.assertRaisesRegex(AssertionError, words):
                    train(one, 1, *arguments, work=d)

    def test_documented_arguments(self):
        """docs/runtime.md has the arguments that there are."""
        said = subprocess.run([sys.executable, "-m", "shardwright.parallel.arguments"], env=dict(os.environ, PYTHONPATH=RUNTIME), capture_output=True, text=True, check=True).stdout
        page = Path(HERE, "..", "..", "docs", "runtime.md").read_text()
        self.assertEqual(page.split("<!-- arguments -->\n")[1].split("<!-- arguments end -->")[0], said, "run python -m shardwright.parallel.arguments")
        for command in (line.split("#")[0].split() for line in page.splitlines() if line.startswith("python -m shardwright.parallel.simulate")):
            with tempfile.TemporaryDirectory() as d:
                subprocess.run([sys.executable, *command[1:]], env=dict(os.environ, PYTHONPATH=RUNTIME), cwd=d, check=True, stdout=subprocess.DEVNULL)

    def test_hung_rank(self):
        """A rank that stops: the others end within the time limit and say which operation they waited for."""
        with tempfile.TemporaryDirectory() as d:
            two = hand.write(f"{d}/two", 2)
            processes = start(two, 2, "--pipeline-model-parallel-size", "2", "--train-iters", "100000", "--log-json", f"{d}/log.jsonl", "--init", "local",
                              "--distributed-timeout-minutes", "0.1", work=d)
            try:
                until = time.monotonic() + 120
                while not (os.path.exists(f"{d}/log.jsonl") and os.path.getsize(f"{d}/log.jsonl")) and time.monotonic() < until:
                    time.sleep(0.05)
                processes[0].send_signal(signal.SIGSTOP)
                self.assertNotEqual(processes[1].wait(30), 0)
            finally:
                for p in processes:
                    p.kill()
                    p.wait()
            self.assertRegex(outputs(d, 2)[1], r"the job ends: rank 1 \(stage 1, tp 0, dp 0\): .*(imed out|time)")

    def test_signal_and_kill(self):
        """SIGTERM saves and ends; a killed rank ends all within 15 s with one message; what follows equals the uninterrupted run."""
        seed = int(os.environ.get("SEED", time.time()))
        draw = random.Random(seed)
        with tempfile.TemporaryDirectory() as d:
            two = hand.write(f"{d}/two", 2)
            common = ["--micro-batch-size", "2", "--global-batch-size", "8", "--lr", "1e-2", *GRID, "--train-iters", "400", "--save", f"{d}/saved",
                      "--load", f"{d}/saved", "--save-interval", "2", "--keep", "3", "--async-save", "--log-json", f"{d}/log.jsonl", "--init", "local"]

            def iterations():
                try:
                    return [json.loads(x) for x in Path(f"{d}/log.jsonl").read_text().splitlines(keepends=True) if x.endswith("\n")]
                except FileNotFoundError:
                    return []

            for attempt in range(KILLS + 1):
                at = len(iterations())
                processes = start(two, 4, *common, work=d)
                until = time.monotonic() + 300
                while len(iterations()) < at + draw.randint(2, 6) and time.monotonic() < until:
                    self.assertTrue(all(p.poll() is None for p in processes), "\n".join(o[-1500:] for o in outputs(d, 4)))
                    time.sleep(0.02)
                time.sleep(draw.random() * 0.1)
                if attempt == KILLS:   # the last time: all are asked to end
                    for p in processes:
                        p.send_signal(signal.SIGTERM)
                    for p in processes:
                        self.assertEqual(p.wait(60), 0, "\n".join(o[-1500:] for o in outputs(d, 4)))
                    self.assertRegex("".join(outputs(d, 4)), r"ends after iteration \d+: SIGTERM; saved in")
                    continue
                victim = draw.randrange(4)
                processes[victim].kill()
                began = time.monotonic()
                for p in processes:
                    p.wait(60)
                self.assertLess(time.monotonic() - began, 15, f"seed {seed}")
                said = [o for r, o in enumerate(outputs(d, 4)) if r != victim]
                told = [o for o in said if "shardwright: the job ends" in o]
                self.assertTrue(told, f"seed {seed}: nobody said why:\n" + "\n".join(o[-800:] for o in said))
                self.assertRegex("".join(told), r"the job ends: .*rank \d \(stage \d, tp \d, dp \d\)")
            # Every iteration's loss, whichever run computed it, is that of one run without interruptions.
            last = iterations()[-1]["iteration"]
            by_step = {}
            for line in iterations():
                by_step.setdefault(line["iteration"], []).append(line["lm loss"])
            self.assertEqual(sorted(by_step), list(range(1, last + 1)), f"seed {seed}")
            plain = [a for a in common if a not in ("--save", "--load", f"{d}/saved", "--log-json", f"{d}/log.jsonl", "--async-save")]
            plain[plain.index("--train-iters") + 1] = str(last)
            del plain[plain.index("--save-interval"):plain.index("--save-interval") + 4]
            histories, _ = train(two, 4, *plain, work=d)
            for step, losses in sorted(by_step.items()):
                for loss in losses:
                    self.assertEqual(loss, histories[0][step - 1]["lm loss"], f"step {step}, seed {seed}")


if __name__ == "__main__":
    unittest.main()
