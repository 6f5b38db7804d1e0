from torch import nn

from .windmlp import WindMlp

_MLP_REGISTRY = {
    "WindMlp": WindMlp,
}


class OneMlp(nn.Module):
    def __init__(self, style: str, **kwargs):
        super().__init__()
        if style not in _MLP_REGISTRY:
            raise NotImplementedError(f"Unknown style: {style}")
        self.mlp = _MLP_REGISTRY[style](**kwargs)

    def forward(self, *args, **kwargs):
        return self.mlp(*args, **kwargs)
