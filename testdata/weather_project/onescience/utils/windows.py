import torch


def split_windows(x, window):
    """B, H, W, C → B, windows, tokens of a window, C"""
    B, H, W, C = x.shape
    x = x.view(B, H // window[0], window[0], W // window[1], window[1], C)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(B, -1, window[0] * window[1], C)


def join_windows(x, window, H, W):
    B, C = x.shape[0], x.shape[-1]
    x = x.view(B, H // window[0], W // window[1], window[0], window[1], C)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(B, H, W, C)


def band_mask(resolution, window):
    """−100 between tokens of different halves of a window, in the windows of the first row."""
    tokens = window[0] * window[1]
    half = torch.arange(tokens) // (tokens // 2)
    apart = (half.unsqueeze(0) != half.unsqueeze(1)).float() * -100.0
    windows = (resolution[0] // window[0]) * (resolution[1] // window[1])
    first = (torch.arange(windows) < resolution[1] // window[1]).float()
    return first.view(windows, 1, 1) * apart
