import torch


def _unfollowed(module, *args, **kwargs):
    """A parametrised module computes its weight anew at every call: not followed."""
    module.forward = lambda *a, **k: torch._unknown("a parametrised module (weight_norm, spectral_norm, orthogonal)")
    return module


weight_norm = spectral_norm = orthogonal = _unfollowed
