from torch import nn


class WindRecovery(nn.Module):
    def __init__(self, dim, channels, patch):
        super().__init__()
        self.proj = nn.ConvTranspose2d(dim, channels, kernel_size=patch, stride=patch)

    def forward(self, x, H, W):
        B, N, C = x.shape
        return self.proj(x.transpose(1, 2).reshape(B, C, H, W))
