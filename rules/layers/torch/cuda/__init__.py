from torch.cuda import amp


def is_available():
    return False


def device_count():
    return 0


def is_initialized():
    return False


def current_device():
    return 0


def is_bf16_supported(*args, **kwargs):
    return False


def get_device_capability(device=None):
    return (0, 0)


def get_device_name(device=None):
    return "cpu"


def set_device(device):
    return None


def synchronize(device=None):
    return None


def empty_cache():
    return None


def manual_seed(seed):
    return None


def manual_seed_all(seed):
    return None


def get_rng_state(device=None):
    return None


def set_rng_state(state, device=None):
    return None


def current_stream(device=None):
    return None


def is_current_stream_capturing():
    return False


def max_memory_allocated(device=None):
    return 0


def memory_allocated(device=None):
    return 0


class Stream:
    pass


class Event:
    pass


class FloatTensor:
    pass


class nvtx:
    @staticmethod
    def range_push(name):
        return None

    @staticmethod
    def range_pop():
        return None

    @staticmethod
    def range(name):
        from torch.autograd.profiler import record_function
        return record_function(name)
