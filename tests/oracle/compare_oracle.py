#!/usr/bin/env python3
"""Compare the axes of `shardwright plan --json` (or of lib/sharding's to_json) with what the prototype found.

    compare_oracle.py EXPECTED.json OURS.json [--differences differences.yaml] [-v]

An axis is what it does to parameters: which ones share it and which rows of each rank 0 of 2 keeps (so refinement, names and
order of factors do not matter). Compared: the axes that may be split, the chosen ones, the parameters whose gradients are summed.
Objective `split` splits what remains after the prototype's priced choice: such axes must be ones that the prototype marks
shardable too. Anything else is a difference; each must be explained in differences.yaml. Exit 1 on an unexplained one, or on an
explanation that no longer applies.
"""
import argparse
import fnmatch
import json
import math
import os
import sys


def size(dim):
    return math.prod(sum(size(s) for s in f) if isinstance(f, list) else int(str(f).rstrip("*")) for f in dim)


def kept(dim, tp=2):
    """Indices of a dimension that rank 0 keeps; None where the axis is not in it."""
    ids, marked = [0], False
    for f in dim:
        if isinstance(f, list):
            part, base, any_in = [], 0, False
            for s in f:
                k = kept(s, tp); n = size(s); any_in |= k is not None
                part += [base + i for i in (k if k is not None else range(n))]; base += n
            marked |= any_in; n = base
        else:
            n = int(str(f).rstrip("*")); star = isinstance(f, str); marked |= star
            part = list(range(n // tp if star else n))
        ids = [i * n + j for i in ids for j in part]
    return ids if marked else None


def runs(ids):
    out = []
    for i in ids:
        if out and out[-1][1] == i: out[-1][1] = i + 1
        else: out.append([i, i + 1])
    return tuple(map(tuple, out))


def key(axis):
    cuts = []
    for name, dims in axis["parameters"].items():
        for d, dim in enumerate(dims):
            k = kept(dim)
            if k is not None: cuts.append((name, d, runs(k)))
    return frozenset(cuts)


def short(k):
    return ", ".join(f"{n}[{d}]" for n, d, _ in sorted(k)[:4]) + (" …" if len(k) > 4 else "")


def compare(expected, ours):
    """List of (kind, parameters, text)."""
    exp, got = {key(a): a for a in expected["axes"]}, {key(a): a for a in ours["axes"]}
    out = []
    names = lambda k: sorted({n for n, _, _ in k})
    def kept_alike(k):           # an axis that cuts the same parameters elsewhere helps to see what happened
        alike = [short(g) + " " + str(sorted(g)[0][2][:3]) for g in got if names(g) == names(k) and g != k]
        return f" (same parameters, cut elsewhere: {alike[0]})" if alike else ""
    for k, a in exp.items():
        if k not in got: out.append(("chosen-missing" if a["chosen"] else "missing", names(k), f"size {a['size']}: {short(k)}{kept_alike(k)}"))
        elif a["chosen"] and not got[k]["chosen"]: out.append(("not-chosen", names(k), f"size {a['size']}: {short(k)}"))
    for k, a in got.items():
        if k not in exp and not a.get("vocabulary"): out.append(("chosen-extra" if a["chosen"] else "extra", names(k), f"size {a['size']}: {short(k)}"))
    for n in sorted(set(expected["gradient_summed"]) - set(ours["gradient_summed"])): out.append(("sum-missing", [n], n))
    for n in sorted(set(ours["gradient_summed"]) - set(expected["gradient_summed"])): out.append(("sum-extra", [n], n))
    more = [k for k in exp if k in got and got[k]["chosen"] and not exp[k]["chosen"]]
    return out, more


def main():
    p = argparse.ArgumentParser(); p.add_argument("expected"); p.add_argument("ours"); p.add_argument("--differences"); p.add_argument("-v", action="store_true")
    a = p.parse_args()
    expected, ours = json.load(open(a.expected)), json.load(open(a.ours))
    ours = ours.get("sharding", ours)
    explained = []
    if a.differences:
        import yaml
        explained = (yaml.safe_load(open(a.differences)) or {}).get(expected.get("id", os.path.basename(a.expected)[:-5]), [])
    found, more = compare(expected, ours)
    used, bad = set(), 0
    for kind, names, text in found:
        why = next((i for i, e in enumerate(explained) if i not in used and e["kind"] == kind and any(fnmatch.fnmatch(n, e["parameters"]) for n in names)), None)
        if why is None: bad += 1; print(f"  UNEXPLAINED {kind}: {text}")
        else:
            used.add(why)
            if a.v: print(f"  {kind}: {text}\n      {explained[why]['why']}")
    for i, e in enumerate(explained):
        if i not in used: bad += 1; print(f"  STALE explanation: {e['kind']} {e['parameters']}")
    print(f"{expected.get('id', a.expected)}: {len(expected['axes'])} axes, {sum(x['chosen'] for x in expected['axes'])} chosen by the oracle; ours {len(ours['axes'])}, {sum(x['chosen'] for x in ours['axes'])}"
          f" ({len(more)} more of its shardable ones); differences {len(found)}, unexplained {bad}")
    sys.exit(bad > 0)


if __name__ == "__main__": main()
