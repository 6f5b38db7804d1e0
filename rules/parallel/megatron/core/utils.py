def ensure_divisibility(numerator, denominator):
    assert numerator % denominator == 0, f"{numerator} is not divisible by {denominator}"


def divide(numerator, denominator):
    ensure_divisibility(numerator, denominator)
    return numerator // denominator


def get_tensor_model_parallel_group_if_none(tp_group, is_expert=False, check_initialized=True):
    from megatron.core import parallel_state
    return tp_group if tp_group is not None else parallel_state.get_tensor_model_parallel_group()


def init_method_normal(sigma):
    return _made_init


def scaled_init_method_normal(sigma, num_layers, multiplier=2.0):
    return _made_init


def _made_init(tensor):
    return tensor


def make_viewless_tensor(inp, requires_grad=True, keep_graph=True):
    return inp


def assert_viewless_tensor(tensor, extra_msg=None):
    return tensor


def get_model_config(model):
    return model.config


def is_te_min_version(version, check_equality=True):
    return True


def nvtx_range_push(msg=None, suffix=None):
    return None


def nvtx_range_pop(msg=None, suffix=None):
    return None
