def warn(*args, **kwargs):
    pass


def warn_explicit(*args, **kwargs):
    pass


def filterwarnings(*args, **kwargs):
    pass


def simplefilter(*args, **kwargs):
    pass


def resetwarnings():
    pass


class catch_warnings:
    def __init__(self, *args, **kwargs):
        pass

    def __enter__(self):
        return []

    def __exit__(self, *args):
        return None


def deprecated(*args, **kwargs):
    return lambda f: f
