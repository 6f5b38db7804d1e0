"""python -m shardwright.verify DIR…: runs the original and the generated program and compares them.

Exit codes: 0 the same; 1 they differ; 2 bad input, or a run that could not finish; 130 interrupted.
"""
from __future__ import annotations

import argparse
import json
import os
import signal
import sys


def _parser():
    p = argparse.ArgumentParser(prog="shardwright verify", description="Runs the original and the generated program from the same weights and "
                                "compares outputs, loss, gradients, gradient norm and parameters after optimizer steps.")
    p.add_argument("dirs", nargs="+", metavar="DIR", help="folder written by convert")
    p.add_argument("--tp", type=int, help="tensor-parallel size (default: the plan's)")
    p.add_argument("--dp", type=int, help="data-parallel size (default: the plan's)")
    p.add_argument("--all-grids", action="store_true", help="every tp of 1, 2, 4, 8 that the sharded factors allow")
    p.add_argument("--steps", type=int, default=3, help="optimizer steps (default 3)")
    p.add_argument("--micro-batches", type=int, help="micro-batches a step and data-parallel rank (default: the plan's)")
    p.add_argument("--schedule", choices=["1f1b", "gpipe"], default=None)
    p.add_argument("--dtype", choices=["f64", "f32"], default="f64")
    p.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    p.add_argument("--tolerance", type=float, help="bound instead of the default (1e-9 in f64)")
    p.add_argument("--with-dropout", action="store_true", help="stochastic layers on, their masks made comparable")
    p.add_argument("--python-path", action="append", default=[], metavar="DIR")
    p.add_argument("--timeout", type=float, default=900, help="seconds without progress after which the run is ended (default 900)")
    p.add_argument("-q", "--quiet", action="store_true", help="no progress")
    p.add_argument("--json", action="store_true")
    p.add_argument("--debug", action="store_true", help="tracebacks on standard error; keeps the working folder")
    return p


def _fail(message, as_json):
    if as_json:
        print(json.dumps({"same": False, "error": message}))
    print(f"error: {message}", file=sys.stderr)
    return 2


def _print(report):
    g = report["grid"]
    folder = os.path.normpath(report["dir"])
    print(f"{os.path.basename(os.path.dirname(folder) if folder.endswith('.shardwright') else folder)}: tp {g['tp']} x pp {g['pp']} x dp {g['dp']}", end="")
    if "error" in report:
        print(": could not be run")
        return
    print(f", {report['micro_batches']} micro-batches, {report['seconds']:.1f} s")
    print(f"  {'kind':<12}{'compared':>9}  {'worst relative difference':<27}{'of':<40}")
    for kind, row in report["table"].items():
        worst = row["worst"]
        text = f"{worst:.2e}" if isinstance(worst, float) else str(worst)
        flag = f"  {row['different']} differ" if row["different"] else ""
        flag += f"  (bound raised for {row['loosened']}: sensitive to one ulp)" if row["loosened"] else ""
        print(f"  {kind:<12}{row['compared']:>9}  {text:<27}{row['name']}{flag}")
    if report["second_batch_size"] != "compared":
        print(f"  second batch size: not run, the original fails at it ({report['second_batch_size']})")
    if report["casts"]:
        print(f"  the model casts to a lower precision: bound {report['bound']:g}")
    if report["promoted"]:
        print("  the model's casts to float32 were run in float64 on both sides")
    print(f"  split: {100 * report['split_fraction']:.1f} % of the weights in sharded regions")
    if report["same"]:
        print("  the same")
        return
    first = report["first_difference"]
    print(f"  DIFFERENT: first at {first or '(the model itself)'} ({report['found_by']})" if first is not None else f"  DIFFERENT: {report['found_by']}")
    for line in report["different"][:12]:
        print(f"    {line}")
    if len(report["different"]) > 12:
        print(f"    … {len(report['different']) - 12} more")


def main(argv=None):
    args = _parser().parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
    from .grids import GridError, read_targets
    from .launcher import run_all
    try:
        targets = read_targets(args)
    except GridError as error:
        return _fail(str(error), args.json)
    terminal = sys.stderr.isatty()

    def progress(done, total):
        if terminal and total > 1 and not args.quiet:
            print(f"\rverify: {done}/{total}", end="" if done < total else "\n", file=sys.stderr, flush=True)

    try:
        reports = run_all(targets, device=args.device, python_path=args.python_path, timeout=args.timeout, debug=args.debug, progress=progress)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    if args.json:
        print(json.dumps(reports[0] if len(reports) == 1 else reports))
    else:
        for report in reports:
            _print(report)
    for report in reports:
        if "error" in report:
            print(f"error: {report['dir']}: {report['error']}", file=sys.stderr)
    if any("error" in r for r in reports):
        return 2
    return 0 if all(r["same"] for r in reports) else 1


if __name__ == "__main__":
    sys.exit(main())
