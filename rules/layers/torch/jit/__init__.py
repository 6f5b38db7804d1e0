def _decorator(f=None, *args, **kwargs):
    return f if f is not None else (lambda g: g)


script = _decorator
script_method = _decorator
ignore = _decorator
unused = _decorator
export = _decorator
interface = _decorator
script_if_tracing = _decorator
_overload = _decorator
_overload_method = _decorator
trace_module = _decorator


def trace(f, *args, **kwargs):
    return f


def is_scripting():
    return False


def is_tracing():
    return False


def annotate(t, v):
    return v


def isinstance(x, t):
    return True


def freeze(m, *args, **kwargs):
    return m


def fork(f, *args, **kwargs):
    return f(*args, **kwargs)


def wait(x):
    return x


class ScriptModule:
    pass


class ScriptFunction:
    pass


class RecursiveScriptModule:
    pass


Final = object
Attribute = object
