from torch import nn

from .windtransformerblock import WindTransformerBlock

_TRANSFORMER_REGISTRY = {
    "WindTransformerBlock": WindTransformerBlock,
}


class OneTransformer(nn.Module):
    def __init__(self, style: str, **kwargs):
        super().__init__()
        if style not in _TRANSFORMER_REGISTRY:
            raise NotImplementedError(f"Unknown style: {style}")
        self.transformer = _TRANSFORMER_REGISTRY[style](**kwargs)

    def forward(self, *args, **kwargs):
        return self.transformer(*args, **kwargs)
