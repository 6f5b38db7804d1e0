def singledispatch(func):
    registry = {}

    def dispatch(cls):
        for k in cls.__mro__:
            if k in registry:
                return registry[k]
        return func

    def register(cls, f=None):
        if f is None:
            if isinstance(cls, type):
                return lambda g: register(cls, g)
            return cls
        registry[cls] = f
        return f

    def wrapper(*args, **kwargs):
        return dispatch(type(args[0]))(*args, **kwargs)

    wrapper.register = register
    wrapper.dispatch = dispatch
    return wrapper


singledispatchmethod = singledispatch
WRAPPER_ASSIGNMENTS = ("__module__", "__name__", "__qualname__", "__doc__")
