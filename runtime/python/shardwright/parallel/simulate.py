"""What a schedule costs, before it runs: makespan, bubble, peak of live activations, and the timeline as text or SVG.

    python -m shardwright.parallel.simulate --schedule zb-h1 --ranks 4 --micro-batches 8
    python -m shardwright.parallel.simulate --ranks 4 --micro-batches 8 --forward 1 --backward-input 1 --backward-weight 1 --transfer 0.1 --svg zb.svg
"""
from __future__ import annotations

import argparse
import html
import sys

from . import schedules
from .schedules import BACKWARD, FORWARD, INPUT, WEIGHT

_COLOURS = {FORWARD: "#8ecae6", BACKWARD: "#ffb703", INPUT: "#ffb703", WEIGHT: "#90be6d"}
_ANSI = {FORWARD: "\033[46;30m", BACKWARD: "\033[43;30m", INPUT: "\033[43;30m", WEIGHT: "\033[42;30m"}


def simulate(schedule, forward=1.0, backward_input=1.0, backward_weight=1.0, transfer=0.0, routes=None):
    """{"makespan": time until the last rank ends, "bubble": the largest share of a rank's time between its first and last action in
    which it is idle, "peak": by rank, the most activations (of one stage and micro-batch) kept from a forward to the end of its
    backward, "timeline": [[Placed, …] by rank]}. Costs are numbers or lists by stage."""
    placed, _ = schedules.timeline(schedule, forward, backward_input, backward_weight, transfer, routes)
    bubble, peak = 0.0, []
    for rank in placed:
        busy = sum(p.end - p.start for p in rank)
        span = rank[-1].end - rank[0].start if rank else 0.0
        bubble = max(bubble, 1 - busy / span if span else 0.0)
        kept = most = 0
        for p in rank:
            kept += (p.action.kind == FORWARD) - (p.action.kind in (BACKWARD, WEIGHT))
            most = max(most, kept)
        peak.append(most)
    return {"makespan": max((r[-1].end for r in placed if r), default=0.0), "bubble": bubble, "peak": peak, "timeline": placed}


def as_text(result, width=100, colour=False):
    """One line a rank; a column is makespan / width. Letters: f forward, b backward (to inputs), w weights; capitals: odd stages of a rank."""
    scale, lines = width / result["makespan"] if result["makespan"] else 1.0, []
    for r, rank in enumerate(result["timeline"]):
        cells = [(" ", None)] * width
        held = sorted({p.action.stage for p in rank})
        for p in rank:
            first, last = round(p.start * scale), max(round(p.end * scale), round(p.start * scale) + 1)
            label = str(p.action.micro_batch)
            letter = {FORWARD: "f", BACKWARD: "b", INPUT: "b", WEIGHT: "w"}[p.action.kind]
            letter = letter.upper() if held.index(p.action.stage) % 2 else letter
            text = (letter + label).ljust(last - first, "." if not colour else " ")[:last - first]
            for k, c in enumerate(text):
                if first + k < width:
                    cells[first + k] = (c, p.action.kind)
        line = "".join((_ANSI[kind] + c + "\033[0m" if colour and kind else c) for c, kind in cells)
        lines.append(f"rank {r:2d} |{line}|")
    return "\n".join(lines)


def as_svg(result, title="", width=1200, row=26):
    """The timeline as an SVG document."""
    scale = (width - 80) / (result["makespan"] or 1.0)
    height = row * len(result["timeline"]) + 40
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="11">',
             f'<text x="4" y="16">{html.escape(title)}</text>']
    for r, rank in enumerate(result["timeline"]):
        y = 28 + r * row
        parts.append(f'<text x="4" y="{y + 15}">rank {r}</text>')
        held = sorted({p.action.stage for p in rank})
        for p in rank:
            x, w = 60 + p.start * scale, (p.end - p.start) * scale
            opacity = 1.0 if held.index(p.action.stage) % 2 == 0 else 0.6
            name = f"{p.action.kind} stage {p.action.stage} micro-batch {p.action.micro_batch}: {p.start:g} to {p.end:g}"
            parts.append(f'<rect x="{x:.2f}" y="{y}" width="{w:.2f}" height="{row - 4}" fill="{_COLOURS[p.action.kind]}" fill-opacity="{opacity}" '
                         f'stroke="#333" stroke-width="0.5"><title>{name}</title></rect>')
            if w > 12:
                parts.append(f'<text x="{x + w / 2:.2f}" y="{y + 15}" text-anchor="middle">{p.action.micro_batch}</text>')
    return "\n".join([*parts, "</svg>\n"])


def main(argv=None):
    p = argparse.ArgumentParser(prog="python -m shardwright.parallel.simulate", description="Makespan, bubble and peak activations of pipeline schedules")
    p.add_argument("--schedule", choices=sorted(schedules.SCHEDULES), help="default: a table of all")
    p.add_argument("--ranks", type=int, default=4)
    p.add_argument("--micro-batches", type=int, default=8)
    p.add_argument("--virtual-stages", type=int, help="stages a rank (interleaved: default 2)")
    p.add_argument("--forward", type=float, default=1.0, help="time of one rank's whole forward of a micro-batch (its stages share it)")
    p.add_argument("--backward-input", type=float, default=1.0)
    p.add_argument("--backward-weight", type=float, default=1.0)
    p.add_argument("--transfer", type=float, default=0.0, help="time of one message")
    p.add_argument("--width", type=int, default=100, help="columns of the timeline")
    p.add_argument("--svg", metavar="FILE", help="writes the timeline there")
    a = p.parse_args(argv)
    names = [a.schedule] if a.schedule else list(schedules.SCHEDULES)
    print(f"{'schedule':12s} {'makespan':>9s} {'bubble':>7s}  peak activations by rank (in whole ranks' worth)")
    for name in names:
        try:
            virtual = schedules.virtual_stages(name, a.virtual_stages if a.schedule or name == "interleaved" else None)
            schedule = schedules.make(name, a.ranks, a.micro_batches, virtual)
            schedules.check_rendezvous(schedule)
        except schedules.ScheduleError as error:
            sys.exit(f"{name}: {error}")
        result = simulate(schedule, *(t / virtual for t in (a.forward, a.backward_input, a.backward_weight)), a.transfer)
        print(f"{name:12s} {result['makespan']:9.2f} {100 * result['bubble']:6.1f}%  {' '.join(f'{n / virtual:g}' for n in result['peak'])}")
    if a.schedule:
        print(as_text(result, a.width, sys.stdout.isatty()))
        if a.svg:
            with open(a.svg, "w") as f:
                f.write(as_svg(result, f"{a.schedule}, {a.ranks} ranks, {a.micro_batches} micro-batches, bubble {100 * result['bubble']:.1f} %"))


if __name__ == "__main__":
    main()
