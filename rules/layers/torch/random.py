def manual_seed(seed):
    return None


def fork_rng(*args, **kwargs):
    from torch.autograd.profiler import record_function
    return record_function("rng")


def get_rng_state():
    return None


def set_rng_state(state):
    return None
