"""What training tells: a line on the terminal, a line of JSON, TensorBoard. Written by one rank that holds the last stage."""
from __future__ import annotations

import json
import os
import sys
import time


class Log:
    def __init__(self, active, total, json_file=None, tensorboard_dir=None):
        self.active, self.total, self._json, self._board, self._began = active, total, None, None, time.perf_counter()
        self._steps = 0
        if not active:
            return
        if json_file:
            os.makedirs(os.path.dirname(os.path.abspath(json_file)), exist_ok=True)
            self._json = open(json_file, "a")
        if tensorboard_dir:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError:
                raise SystemExit("--tensorboard-dir needs the package tensorboard (pip install tensorboard)") from None
            self._board = SummaryWriter(tensorboard_dir)

    def _write(self, kind, step, values):
        if self._json:
            self._json.write(json.dumps({"kind": kind, "iteration": step, "time": round(time.time(), 3), **values}) + "\n")
            self._json.flush()
        if self._board:
            for name, value in values.items():
                if isinstance(value, (int, float)):
                    self._board.add_scalar(f"{kind}/{name}", value, step)

    def step(self, step, losses, norm, lr, seconds, samples, skipped, extra=None):
        """`losses`: {name: mean of this step}; `seconds`: of one step; `samples`: in one step."""
        if not self.active:
            return
        left = (self.total - step) * seconds
        parts = [f"iteration {step}/{self.total}", *(f"{k} {v:.6e}" for k, v in losses.items())]
        parts += [f"grad norm {norm:.3e}"] if norm is not None else []
        parts += [f"lr {lr:.3e}", f"{1e3 * seconds:.1f} ms", f"{samples / seconds:.1f} samples/s"]
        parts += [f"{k} {v:g}" for k, v in (extra or {}).items()]
        parts += ["step skipped: gradients overflowed"] if skipped else []
        parts += [f"{int(left // 3600):d}:{int(left // 60 % 60):02d}:{int(left % 60):02d} left"] if self.total > step else []
        print(" | ".join(parts), flush=True)
        self._write("train", step, {**losses, **({"grad norm": norm} if norm is not None else {}), "lr": lr, "seconds": seconds,
                                    "samples per second": samples / seconds, "skipped": int(skipped), **(extra or {})})

    def evaluation(self, step, losses):
        if self.active:
            print(f"evaluation at {step} | " + " | ".join(f"{k} {v:.6e}" for k, v in losses.items()), flush=True)
            self._write("evaluation", step, losses)

    def say(self, text):
        if self.active:
            print(text, flush=True)

    def close(self):
        if self._json:
            self._json.close()
        if self._board:
            self._board.close()
        sys.stdout.flush()
