class AbstractContextManager:
    def __enter__(self):
        return self

    def __exit__(self, *args):
        return None


class ContextDecorator:
    def __call__(self, func):
        def inner(*args, **kwargs):
            with self:
                return func(*args, **kwargs)
        return inner


class _GeneratorContext(ContextDecorator):
    def __init__(self, func, args, kwargs):
        self.func, self.args, self.kwargs = func, args, kwargs
        self.gen = func(*args, **kwargs)

    def __enter__(self):
        return next(self.gen)

    def __exit__(self, type, value, traceback):
        if type is None:
            next(self.gen, None)
            return False
        try:
            self.gen.throw(value)
        except StopIteration:
            return True
        except BaseException as e:
            if e is value:
                return False
            raise
        return True

    def __call__(self, func):
        def inner(*args, **kwargs):
            with _GeneratorContext(self.func, self.args, self.kwargs):
                return func(*args, **kwargs)
        return inner


def contextmanager(func):
    def helper(*args, **kwargs):
        return _GeneratorContext(func, args, kwargs)
    return helper


class nullcontext:
    def __init__(self, enter_result=None):
        self.enter_result = enter_result

    def __enter__(self):
        return self.enter_result

    def __exit__(self, *args):
        return None


class suppress:
    def __init__(self, *exceptions):
        self.exceptions = exceptions

    def __enter__(self):
        return None

    def __exit__(self, type, value, traceback):
        return type is not None and issubclass(type, self.exceptions)


class closing:
    def __init__(self, thing):
        self.thing = thing

    def __enter__(self):
        return self.thing

    def __exit__(self, *args):
        self.thing.close()


class ExitStack:
    def __init__(self):
        self.exits = []

    def enter_context(self, cm):
        value = cm.__enter__()
        self.exits.append(cm.__exit__)
        return value

    def push(self, exit):
        self.exits.append(exit)
        return exit

    def callback(self, f, *args, **kwargs):
        self.exits.append(lambda *a: f(*args, **kwargs))

    def close(self):
        self.__exit__(None, None, None)

    def __enter__(self):
        return self

    def __exit__(self, *args):
        while self.exits:
            self.exits.pop()(*args)


class redirect_stdout(nullcontext):
    pass


redirect_stderr = redirect_stdout
asynccontextmanager = contextmanager
