def scale(x):
    return x * 0.3


def other(x):
    return x + 1.0
