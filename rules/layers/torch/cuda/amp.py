from torch import autocast


def custom_fwd(fwd=None, **kwargs):
    return fwd if fwd is not None else (lambda f: f)


def custom_bwd(bwd=None, **kwargs):
    return bwd if bwd is not None else (lambda f: f)


class GradScaler:
    def __init__(self, *args, **kwargs):
        pass
