from torch.nn import functional as F
from torch.nn.modules.module import Module


class ReflectionPad1d(Module):
    def __init__(self, padding):
        super().__init__()
        self.padding = tuple(padding) if isinstance(padding, (tuple, list)) else (padding,) * 2

    def forward(self, input):
        return F.pad(input, self.padding, "reflect")


class ReflectionPad2d(Module):
    def __init__(self, padding):
        super().__init__()
        self.padding = tuple(padding) if isinstance(padding, (tuple, list)) else (padding,) * 4

    def forward(self, input):
        return F.pad(input, self.padding, "reflect")


class ReflectionPad3d(Module):
    def __init__(self, padding):
        super().__init__()
        self.padding = tuple(padding) if isinstance(padding, (tuple, list)) else (padding,) * 6

    def forward(self, input):
        return F.pad(input, self.padding, "reflect")


class ReplicationPad1d(Module):
    def __init__(self, padding):
        super().__init__()
        self.padding = tuple(padding) if isinstance(padding, (tuple, list)) else (padding,) * 2

    def forward(self, input):
        return F.pad(input, self.padding, "replicate")


class ReplicationPad2d(Module):
    def __init__(self, padding):
        super().__init__()
        self.padding = tuple(padding) if isinstance(padding, (tuple, list)) else (padding,) * 4

    def forward(self, input):
        return F.pad(input, self.padding, "replicate")


class ReplicationPad3d(Module):
    def __init__(self, padding):
        super().__init__()
        self.padding = tuple(padding) if isinstance(padding, (tuple, list)) else (padding,) * 6

    def forward(self, input):
        return F.pad(input, self.padding, "replicate")


class ZeroPad1d(Module):
    def __init__(self, padding):
        super().__init__()
        self.padding = tuple(padding) if isinstance(padding, (tuple, list)) else (padding,) * 2

    def forward(self, input):
        return F.pad(input, self.padding, "constant")


class ZeroPad2d(Module):
    def __init__(self, padding):
        super().__init__()
        self.padding = tuple(padding) if isinstance(padding, (tuple, list)) else (padding,) * 4

    def forward(self, input):
        return F.pad(input, self.padding, "constant")


class ZeroPad3d(Module):
    def __init__(self, padding):
        super().__init__()
        self.padding = tuple(padding) if isinstance(padding, (tuple, list)) else (padding,) * 6

    def forward(self, input):
        return F.pad(input, self.padding, "constant")


class CircularPad1d(Module):
    def __init__(self, padding):
        super().__init__()
        self.padding = tuple(padding) if isinstance(padding, (tuple, list)) else (padding,) * 2

    def forward(self, input):
        return F.pad(input, self.padding, "circular")


class CircularPad2d(Module):
    def __init__(self, padding):
        super().__init__()
        self.padding = tuple(padding) if isinstance(padding, (tuple, list)) else (padding,) * 4

    def forward(self, input):
        return F.pad(input, self.padding, "circular")


class CircularPad3d(Module):
    def __init__(self, padding):
        super().__init__()
        self.padding = tuple(padding) if isinstance(padding, (tuple, list)) else (padding,) * 6

    def forward(self, input):
        return F.pad(input, self.padding, "circular")


class ConstantPad1d(Module):
    def __init__(self, padding, value):
        super().__init__()
        self.padding = tuple(padding) if isinstance(padding, (tuple, list)) else (padding,) * 2
        self.value = value

    def forward(self, input):
        return F.pad(input, self.padding, "constant", self.value)


class ConstantPad2d(Module):
    def __init__(self, padding, value):
        super().__init__()
        self.padding = tuple(padding) if isinstance(padding, (tuple, list)) else (padding,) * 4
        self.value = value

    def forward(self, input):
        return F.pad(input, self.padding, "constant", self.value)


class ConstantPad3d(Module):
    def __init__(self, padding, value):
        super().__init__()
        self.padding = tuple(padding) if isinstance(padding, (tuple, list)) else (padding,) * 6
        self.value = value

    def forward(self, input):
        return F.pad(input, self.padding, "constant", self.value)
