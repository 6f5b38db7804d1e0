import importlib

from torch import nn

_RECOVERY_REGISTRY = {
    "WindRecovery": ("onescience.modules.recovery.windrecovery", "WindRecovery"),
}


class OneRecovery(nn.Module):
    def __init__(self, style: str, **kwargs):
        super().__init__()
        if style not in _RECOVERY_REGISTRY:
            raise NotImplementedError(f"Unknown style: {style}")
        path, name = _RECOVERY_REGISTRY[style]
        self.recovery = getattr(importlib.import_module(path), name)(**kwargs)

    def forward(self, *args, **kwargs):
        return self.recovery(*args, **kwargs)
