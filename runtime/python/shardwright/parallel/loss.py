"""Losses over logits whose vocabulary is divided over tp."""
from __future__ import annotations

from . import _C
from .device_mesh import tp_group


def vocab_parallel_cross_entropy(vocab_parallel_logits, target, label_smoothing=0.0, vocab_size=None, ignore_index=-100):
    """The loss of every token, as Megatron's of that name (F.cross_entropy(…, reduction="none") of the gathered logits). Logits: (…, words
    // tp), targets: (…). `vocab_size`: the words without padding; padded columns take no part. Four numbers a token cross."""
    return _C.vocab_cross_entropy(vocab_parallel_logits, target, vocab_size or 0, label_smoothing, ignore_index, tp_group())
