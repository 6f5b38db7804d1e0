import importlib

from torch import nn

_EMBEDDING_REGISTRY = {
    "WindEmbedding": ("onescience.modules.embedding.windembedding", "WindEmbedding"),
}


class OneEmbedding(nn.Module):
    def __init__(self, style: str, **kwargs):
        super().__init__()
        if style not in _EMBEDDING_REGISTRY:
            raise NotImplementedError(f"Unknown style: {style}")
        path, name = _EMBEDDING_REGISTRY[style]
        self.embedding = getattr(importlib.import_module(path), name)(**kwargs)

    def forward(self, *args, **kwargs):
        return self.embedding(*args, **kwargs)
