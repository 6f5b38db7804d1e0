from torch import nn

from .windattention2d import WindAttention2D

_ATTENTION_REGISTRY = {
    "WindAttention2D": WindAttention2D,
}


class OneAttention(nn.Module):
    def __init__(self, style: str, **kwargs):
        super().__init__()
        if style not in _ATTENTION_REGISTRY:
            raise NotImplementedError(f"Unknown style: {style}")
        self.attention = _ATTENTION_REGISTRY[style](**kwargs)

    def forward(self, *args, **kwargs):
        return self.attention(*args, **kwargs)
