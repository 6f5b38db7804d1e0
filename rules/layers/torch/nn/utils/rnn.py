import torch


class PackedSequence:
    pass


def pad_sequence(sequences, batch_first=False, padding_value=0.0, padding_side="right"):
    return torch._unknown("pad_sequence")


def pack_padded_sequence(*args, **kwargs):
    return torch._unknown("packed sequences are not followed")


def pad_packed_sequence(*args, **kwargs):
    return torch._unknown("packed sequences are not followed"), torch._unknown("packed sequences are not followed")


pack_sequence = pack_padded_sequence
