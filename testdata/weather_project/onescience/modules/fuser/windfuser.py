from torch import nn

from onescience.modules.transformer.onetransformer import OneTransformer


class WindFuser(nn.Module):
    """Windowed transformer blocks, every second one with a static mask. Takes a tensor, or a dict with x and an optional mask."""

    def __init__(self, dim, resolution, depth, num_heads, window, drop_path=0.0, mlp_ratio=2.0):
        super().__init__()
        self.resolution = resolution
        self.blocks = nn.ModuleList(
            [
                OneTransformer(
                    style="WindTransformerBlock",
                    dim=dim,
                    resolution=resolution,
                    num_heads=num_heads,
                    window=window,
                    shifted=i % 2 == 1,
                    drop_path=drop_path[i] if isinstance(drop_path, list) else drop_path,
                    mlp_ratio=mlp_ratio,
                )
                for i in range(depth)
            ]
        )

    def forward(self, x):
        for blk in self.blocks:
            x = blk(x)
        return x
