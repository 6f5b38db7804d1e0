import importlib

from torch import nn

_FUSER_REGISTRY = {
    "WindFuser": ("onescience.modules.fuser.windfuser", "WindFuser"),
}


class OneFuser(nn.Module):
    def __init__(self, style: str, **kwargs):
        super().__init__()
        if style not in _FUSER_REGISTRY:
            raise NotImplementedError(f"Unknown style: {style}")
        path, name = _FUSER_REGISTRY[style]
        self.fuser = getattr(importlib.import_module(path), name)(**kwargs)

    def forward(self, *args, **kwargs):
        return self.fuser(*args, **kwargs)
