"""Which grids a call of verify runs. Reads plans without importing torch, so that bad input is reported at once."""
from __future__ import annotations

import os

import yaml


class GridError(ValueError):
    pass


def _yaml(path, why):
    if not os.path.isfile(path):
        raise GridError(f"{path} does not exist: {why}")
    try:
        with open(path) as f:
            return yaml.safe_load(f)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise GridError(f"{path} is not valid YAML: {error}") from None


def sharded_sizes(params):
    """Sizes of the sharded factors that params.yaml states (others are not known before the original is built)."""
    sizes = set()
    for entry in (params.get("tensors") or {}).values():
        entry = entry or {}
        shard = entry.get("shard")
        if shard and shard in (entry.get("sizes") or {}) and not entry.get("replicate_groups") and not entry.get("pad"):
            sizes.add(int(entry["sizes"][shard]))
    return sizes


def read_targets(args):
    targets = []
    for folder in args.dirs:
        why = "verify takes a folder that convert has written"
        if not os.path.isdir(folder):
            raise GridError(f"{folder}: no such folder; {why}")
        if os.path.isdir(os.path.join(folder, ".shardwright")):   # a model folder inside a library
            folder = os.path.join(folder, ".shardwright")
        plan = _yaml(os.path.join(folder, "plan.yaml"), why)
        params = _yaml(os.path.join(folder, "params.yaml"), why)
        if not isinstance(plan, dict) or "package" not in plan or "job" not in plan:
            raise GridError(f"{os.path.join(folder, 'plan.yaml')}: the keys 'package' and 'job' are needed; {why}")
        if not isinstance(params, dict) or not isinstance(params.get("tensors"), dict):
            raise GridError(f"{os.path.join(folder, 'params.yaml')}: the key 'tensors' is needed; {why}")
        grid = plan.get("grid") or {}
        stages_a_rank = int(grid.get("virtual_stages", 1))
        pp = int(grid.get("pp", params.get("stages", 1))) * stages_a_rank   # one stage a process: what is compared does not depend on who holds it
        dp = args.dp or int(grid.get("dp", 1))
        sizes = sharded_sizes(params)
        if args.all_grids:
            tps = [t for t in (1, 2, 4, 8) if all(s % t == 0 for s in sizes) and (t == 1 or sizes)]
        else:
            tps = [args.tp or int(grid.get("tp", 1))]
        for tp in tps:
            bad = sorted(s for s in sizes if s % tp)
            if bad:
                allowed = [t for t in range(1, min(sizes) + 1) if all(s % t == 0 for s in sizes)]
                raise GridError(f"{folder}: tp {tp} does not divide the sharded factor of size {bad[0]}; values that work: "
                                f"{', '.join(map(str, allowed))}")
            targets.append({"dir": os.path.abspath(folder), "options": {
                "tp": tp, "pp": pp, "dp": dp, "micro_batches": args.micro_batches or int(plan.get("micro_batches") or max(2, pp)),
                "steps": args.steps, "dtype": args.dtype, "device": args.device, "with_dropout": args.with_dropout,
                "schedule": args.schedule or (plan.get("schedule") if stages_a_rank == 1 else None) or "1f1b", "tolerance": args.tolerance}})
    return targets
