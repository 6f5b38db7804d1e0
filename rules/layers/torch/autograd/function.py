import torch


class FunctionCtx:
    def __init__(self):
        self.saved_tensors = ()
        self.needs_input_grad = (True,) * 32

    def save_for_backward(self, *tensors):
        self.saved_tensors = tensors

    def save_for_forward(self, *tensors):
        return None

    def mark_dirty(self, *args):
        return None

    def mark_non_differentiable(self, *args):
        return None

    def set_materialize_grads(self, value):
        return None


class Function:
    """Forward runs as written; every operation in it is marked, because its backward is the function's own."""

    @classmethod
    def apply(cls, *args, **kwargs):
        torch._enter_custom(cls.__name__)
        ctx = FunctionCtx()
        if hasattr(cls, "setup_context"):
            out = cls.forward(*args, **kwargs)
        else:
            out = cls.forward(ctx, *args, **kwargs)
        torch._leave_custom()
        return out


InplaceFunction = Function


def once_differentiable(f):
    return f
