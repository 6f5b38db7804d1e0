import torch


def _log_api_usage_once(*args):
    return None


def _get_tracing_state():
    return None


def _is_tracing():
    return False


class DisableTorchFunctionSubclass:
    def __enter__(self):
        return self

    def __exit__(self, *args):
        return None


class _distributed_c10d:
    pass


def __getattr__(name):
    return torch._unknown("torch._C." + name)
