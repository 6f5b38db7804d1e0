"""Learning rate and weight decay by iteration (Megatron's OptimizerParamScheduler): linear warm-up, then a decay style down to `min_lr`."""
from __future__ import annotations

import math

STYLES = ("constant", "linear", "cosine", "inverse-square-root", "WSD")


class LearningRate:
    def __init__(self, lr, min_lr=0.0, warmup=0, decay=0, style="constant", init_lr=0.0, wsd_decay=0, weight_decay=None, end_weight_decay=None):
        if style not in STYLES:
            raise ValueError(f"unknown decay style {style!r}: there are {', '.join(STYLES)}")
        if warmup and decay and warmup > decay:
            raise ValueError(f"the warm-up of {warmup} iterations is longer than the {decay} iterations of decay")
        self.lr, self.min_lr, self.warmup, self.decay, self.style, self.init_lr, self.wsd_decay = lr, min_lr, warmup, decay, style, init_lr, wsd_decay
        self.weight_decay, self.end_weight_decay = weight_decay, end_weight_decay

    def at(self, step):
        """For the step with this number (from 0)."""
        if step < self.warmup:
            return self.init_lr + (self.lr - self.init_lr) * (step + 1) / self.warmup
        if self.style == "constant":
            return self.lr
        if self.style == "inverse-square-root":
            return max(self.min_lr, self.lr * math.sqrt(max(self.warmup, 1)) / math.sqrt(max(step + 1, 1)))
        if step >= self.decay:
            return self.min_lr
        if self.style == "WSD":
            begin = self.decay - self.wsd_decay
            share = 1.0 if step <= begin else 1.0 - (step - begin) / self.wsd_decay
        else:
            done = (step - self.warmup) / max(self.decay - self.warmup, 1)
            share = 1.0 - done if self.style == "linear" else 0.5 * (1 + math.cos(math.pi * done))
        return self.min_lr + share * (self.lr - self.min_lr)

    def set(self, optimizer, step):
        """Sets the groups of a torch optimizer (or ours) for this step; returns the rate."""
        lr = self.at(step)
        for group in optimizer.param_groups:
            group["lr"] = lr * group.get("lr_mult", 1.0)
            if self.end_weight_decay is not None and self.weight_decay is not None and self.decay:
                group["weight_decay"] = self.weight_decay + (self.end_weight_decay - self.weight_decay) * min(step / self.decay, 1.0)
        return lr
