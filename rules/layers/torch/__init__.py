# What the torch package offers besides operations (those are in rules/ops). Read by the abstract interpreter, never by Python.
import math as _math

__version__ = "2.15.0"
inf = _math.inf
nan = _math.nan
pi = _math.pi
e = _math.e
newaxis = None
strided = "torch.strided"
sparse_coo = "torch.sparse_coo"
sparse_csr = "torch.sparse_csr"
jagged = "torch.jagged"


class memory_format:
    def __init__(self, name):
        self.name = name


contiguous_format = memory_format("contiguous_format")
channels_last = memory_format("channels_last")
channels_last_3d = memory_format("channels_last_3d")
preserve_format = memory_format("preserve_format")


class layout:
    pass


class _GradMode:
    """Context manager and decorator in one."""

    def __init__(self, mode=True):
        self.mode = mode
        self.prev = None

    def __enter__(self):
        self.prev = _set_grad_enabled(self.mode)
        return self

    def __exit__(self, *args):
        _set_grad_enabled(self.prev)

    def __call__(self, f):
        mode = self.mode

        def wrapped(*args, **kwargs):
            prev = _set_grad_enabled(mode)
            out = f(*args, **kwargs)
            _set_grad_enabled(prev)
            return out

        return wrapped


class _NoGrad(_GradMode):
    def __new__(cls, f=None, *args, **kwargs):
        self = object.__new__(cls)
        if callable(f):
            _GradMode.__init__(self, False)
            return self(f)
        return self

    def __init__(self, mode=False):
        self.mode = False
        self.prev = None


class no_grad(_NoGrad):
    pass


class inference_mode(_NoGrad):
    pass


class enable_grad(_GradMode):
    def __init__(self):
        self.mode = True
        self.prev = None


class set_grad_enabled(_GradMode):
    def __init__(self, mode):
        self.mode = mode
        self.prev = _set_grad_enabled(mode)
        _grad_mode_left()

    def __exit__(self, *args):
        _set_grad_enabled(self.prev)
        _grad_mode_left()


class autocast:
    """Mixed precision is a matter of the run; the analysis keeps the types that the model names."""

    def __init__(self, device_type="cuda", dtype=None, enabled=True, cache_enabled=None):
        self.device_type = device_type
        self.dtype = dtype
        self.enabled = enabled

    def __enter__(self):
        return self

    def __exit__(self, *args):
        return None

    def __call__(self, f):
        return f


def is_autocast_enabled(device_type=None):
    return False


def is_autocast_cpu_enabled():
    return False


def get_autocast_dtype(device_type="cuda"):
    return bfloat16


def get_autocast_gpu_dtype():
    return float16


def is_inference_mode_enabled():
    return False


def is_inference(x):
    return False


def are_deterministic_algorithms_enabled():
    return False


def use_deterministic_algorithms(mode, **kwargs):
    return None


def is_storage(x):
    return False


def is_nonzero(x):
    return bool(x)


def is_same_size(a, b):
    return a.shape == b.shape


def can_cast(a, b):
    return True


class finfo:
    _bits = {"torch.float16": (16, 65504.0, 0.0009765625, 6.103515625e-05), "torch.bfloat16": (16, 3.3895313892515355e38, 0.0078125, 1.1754943508222875e-38),
             "torch.float32": (32, 3.4028234663852886e38, 1.1920928955078125e-07, 1.1754943508222875e-38), "torch.float64": (64, 1.7976931348623157e308, 2.220446049250313e-16, 2.2250738585072014e-308)}

    def __init__(self, dtype=None):
        bits = finfo._bits.get(str(dtype if dtype is not None else get_default_dtype()), finfo._bits["torch.float32"])
        self.bits = bits[0]
        self.max = bits[1]
        self.min = -bits[1]
        self.eps = bits[2]
        self.tiny = bits[3]
        self.smallest_normal = bits[3]
        self.resolution = bits[2]
        self.dtype = dtype


class iinfo:
    _bits = {"torch.int8": 8, "torch.int16": 16, "torch.int32": 32, "torch.int64": 63}

    def __init__(self, dtype):
        name = str(dtype)
        if name == "torch.uint8":
            self.bits, self.min, self.max = 8, 0, 255
        elif name == "torch.int64":
            self.bits, self.max = 64, 9223372036854775807
            self.min = -self.max - 1
        else:
            self.bits = iinfo._bits.get(name, 32)
            self.max = 2 ** (self.bits - 1) - 1
            self.min = -(2 ** (self.bits - 1))


class Generator:
    def __init__(self, device="cpu"):
        self.device = device

    def manual_seed(self, seed):
        return self

    def seed(self):
        return 0

    def initial_seed(self):
        return 0


default_generator = Generator()


def manual_seed(seed):
    return default_generator


def seed():
    return 0


def initial_seed():
    return 0


def get_rng_state():
    return None


def set_rng_state(state):
    return None


class _ReturnType(tuple):
    """torch.return_types: (values, indices) with names."""

    @property
    def values(self):
        return self[0]

    @property
    def indices(self):
        return self[1]


def _values_indices(values, indices):
    return _ReturnType((values, indices))


class _MinMax(tuple):
    """torch.return_types.aminmax: (min, max) with names."""

    @property
    def min(self):
        return self[0]

    @property
    def max(self):
        return self[1]


class _Handle:
    def remove(self):
        return None


_handle = _Handle()


class _LoadedKeys:
    missing_keys = []
    unexpected_keys = []


_loaded_keys = _LoadedKeys()


def compile(model=None, **kwargs):
    if model is None:
        return lambda f: f
    return model


def _assert(condition, message=""):
    return None


def _assert_async(*args, **kwargs):
    return None


def _check(condition, message=None):
    return None


def _check_is_size(i, message=None, **kwargs):
    return None


def sym_int(x):
    return int(x)


def sym_float(x):
    return float(x)


def sym_max(a, b):
    return max(a, b)


def sym_min(a, b):
    return min(a, b)


def sym_not(x):
    return not x


def typename(x):
    return type(x).__name__


def get_num_threads():
    return 1


def set_num_threads(n):
    return None


def set_float32_matmul_precision(precision):
    return None


def get_float32_matmul_precision():
    return "highest"


def set_default_device(device):
    return None


def set_printoptions(*args, **kwargs):
    return None


def get_default_device():
    return device("cpu")


def set_default_tensor_type(t):
    return None


def set_warn_always(b):
    return None


def load(*args, **kwargs):
    return _unknown("contents of a file read by torch.load")


def save(*args, **kwargs):
    return None


def vmap(func, *args, **kwargs):
    return lambda *a, **k: _unknown("torch.vmap")


def FloatTensor(*args):
    return Tensor(*args)


def DoubleTensor(*args):
    return Tensor(*args).double()


def HalfTensor(*args):
    return Tensor(*args).half()


def LongTensor(*args):
    return Tensor(*args).long()


def IntTensor(*args):
    return Tensor(*args).int()


def BoolTensor(*args):
    return Tensor(*args).bool()


def ByteTensor(*args):
    return Tensor(*args).byte()


# Compound operations.
def vander(x, N=None, increasing=False):
    return _opaque("torch.vander", (x.shape[0], N or x.shape[0]), x.dtype, x)


def combinations(x, r=2, with_replacement=False):
    return _unknown("torch.combinations")


def aminmax(x, *, dim=None, keepdim=False):
    return _MinMax((x.amin(dim, keepdim), x.amax(dim, keepdim)) if dim is not None else (x.min(), x.max()))


def addmv(input, mat, vec, *, beta=1, alpha=1):
    return input + mv(mat, vec)


def addbmm(input, a, b, *, beta=1, alpha=1):
    return input + bmm(a, b).sum(0)


def chain_matmul(*matrices):
    out = matrices[0]
    for m in matrices[1:]:
        out = out @ m
    return out


def clip_grad_norm_(*args, **kwargs):
    return None


def allclose(a, b, rtol=1e-05, atol=1e-08, equal_nan=False):
    return _unknown("torch.allclose compares values")


def equal(a, b):
    return _unknown("torch.equal compares values")


def from_dlpack(x):
    return _unknown("torch.from_dlpack")


def frombuffer(*args, **kwargs):
    return _unknown("torch.frombuffer")


def sparse_coo_tensor(*args, **kwargs):
    return _unknown("sparse tensors are not followed")


def squeeze_copy(x, *args):
    return x.squeeze(*args)


def scatter_mean(*args, **kwargs):
    return _unknown("torch.scatter_mean")


class UntypedStorage:
    pass


class SymInt:
    pass


class SymFloat:
    pass


class SymBool:
    pass


class ScriptModule:
    pass


class Stream:
    pass
