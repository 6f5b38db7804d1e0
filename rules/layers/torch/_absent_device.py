# A kind of device that the machine has not.
def is_available():
    return False


def device_count():
    return 0


def is_bf16_supported(*args, **kwargs):
    return False


def empty_cache():
    return None


def synchronize(device=None):
    return None
