"""A train.py for the hand-made package, in the form that convert writes: run by test_training.py under several grids."""
import json
import os
import sys
from functools import partial

import torch
import torch.nn.functional as F

FOLDER = os.environ["HAND_FOLDER"]
sys.path.insert(0, FOLDER)

from gpt_parallel import build_stage  # noqa: E402
from shardwright.parallel import SyntheticDataset, mesh, pretrain  # noqa: E402


def sample(generator):
    return {"idx": torch.randint(0, 32, (8,), generator=generator), "keep": torch.rand(8, generator=generator, dtype=torch.float64),
            "target": torch.randint(0, 32, (8,), generator=generator)}


def model_provider(pre_process=True, post_process=True):
    torch.set_default_dtype(torch.float64)
    return build_stage(mesh().stage, drop=0.0)


def datasets(samples):
    return SyntheticDataset(sample, 40), SyntheticDataset(sample, 8, seed=1), None


def loss_func(target, output):
    loss = F.cross_entropy(output.flatten(0, 1), target.flatten())
    return loss, {"lm loss": loss.detach()}


def forward_step(iterator, model):
    batch = next(iterator)
    output = model(**{k: batch[k] for k in model.needs_inputs})
    return output, partial(loss_func, batch["target"])


if __name__ == "__main__":
    history = pretrain(datasets, model_provider, forward_step, args_defaults={"params": f"{FOLDER}/params.yaml", "dtype": "f64"})
    if history:
        with open(os.environ["HISTORY"] + os.environ.get("RANK", "0"), "w") as f:
            json.dump(history, f)
