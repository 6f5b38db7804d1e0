import numpy as np
import torch
from torch import nn

from onescience.modules import OneEmbedding, OneFuser, OneRecovery


class Wind(nn.Module):
    """Surface fields (with static masks) and fields aloft at the next time step.

    Args:
        img_size (tuple[int]): latitudes, longitudes
        patch_size (tuple[int]): of a token
    """

    def __init__(self, img_size=(16, 32), patch_size=(2, 2), embed_dim=32, num_heads=(2, 4, 4, 2), window_size=(4, 4), surface=4, masks=3, aloft=6):
        super().__init__()
        drop_path = np.linspace(0, 0.0, 8).tolist()
        self.resolution = (img_size[0] // patch_size[0], img_size[1] // patch_size[1])
        self.surface = surface
        self.embedding = OneEmbedding(style="WindEmbedding", channels=surface + masks + aloft, dim=embed_dim, patch=patch_size)
        common = dict(dim=embed_dim, resolution=self.resolution, window=window_size)
        self.layer1 = OneFuser(style="WindFuser", depth=2, num_heads=num_heads[0], drop_path=drop_path[:2], **common)
        self.layer2 = OneFuser(style="WindFuser", depth=2, num_heads=num_heads[1], drop_path=drop_path[2:], **common)
        self.layer3 = OneFuser(style="WindFuser", depth=2, num_heads=num_heads[2], drop_path=drop_path[2:], **common)
        self.layer4 = OneFuser(style="WindFuser", depth=2, num_heads=num_heads[3], drop_path=drop_path[:2], **common)
        self.recovery = OneRecovery(style="WindRecovery", dim=2 * embed_dim, channels=surface + aloft, patch=patch_size)

    def forward(self, x):
        x = self.embedding(x)
        x = self.layer1(x)
        skip = x
        x = self.layer2(x)
        x = self.layer3(x)
        x = self.layer4(x)
        x = self.recovery(torch.cat([x, skip], dim=-1), self.resolution[0], self.resolution[1])
        return x[:, : self.surface], x[:, self.surface :]
