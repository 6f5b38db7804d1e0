from _shardwright import note


class _Fork:
    def __enter__(self):
        note("rng", "enter")
        return self

    def __exit__(self, *error):
        note("rng", "leave")
        return False


class CudaRNGStatesTracker:
    def fork(self, name="model-parallel-rng"):
        return _Fork()

    def add(self, name, seed):
        return None

    def is_initialized(self):
        return True

    def get_states(self):
        return {}

    def set_states(self, states):
        return None


_TRACKER = CudaRNGStatesTracker()


def get_cuda_rng_tracker(*args, **kwargs):
    return _TRACKER


def get_expert_parallel_rng_tracker_name():
    return "expert-parallel-rng"


def get_data_parallel_rng_tracker_name():
    return "data-parallel-rng"


def model_parallel_cuda_manual_seed(seed, *args, **kwargs):
    return None


def checkpoint(function, distribute_saved_activations, *args):
    return function(*args)
