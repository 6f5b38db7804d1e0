def wrap(f):
    return f


class Proxy:
    pass


class GraphModule:
    pass


class Tracer:
    pass


def symbolic_trace(m, *args, **kwargs):
    return m
