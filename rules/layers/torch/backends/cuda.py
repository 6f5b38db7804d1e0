from torch.backends import cuda as _flags


def is_available():
    return False


def is_built():
    return False


def __getattr__(name):
    return getattr(_flags, name)
