"""Payload bytes handed to c10d on this rank, by tag: activation_forward, activation_backward, replicated_grad, boundary, norm,
tied, dp, and header (shapes and flags, not part of plan's prediction)."""
from __future__ import annotations

import contextlib

from . import _C


def payload_bytes() -> dict[str, int]:
    return dict(_C.payload_bytes())


def reset_payload_bytes() -> None:
    _C.reset_payload_bytes()


@contextlib.contextmanager
def counting():
    """with counting() as bytes_by_tag: …  fills the dictionary at the end with what was sent inside."""
    before, result = payload_bytes(), {}
    try:
        yield result
    finally:
        for tag, n in payload_bytes().items():
            if n != before.get(tag, 0):
                result[tag] = n - before.get(tag, 0)
