from _made import Config as _Config

_ARGS = _Config()


def get_args():
    return _ARGS


def get_timers():
    return None


def print_rank_0(message):
    return None


def pretrain(*args, **kwargs):
    return None
