class Token:
    MISSING = object()

    def __init__(self, var, old_value):
        self.var = var
        self.old_value = old_value


class ContextVar:
    def __init__(self, name, *, default=Token.MISSING):
        self.name = name
        self._default = default
        self._value = Token.MISSING

    def get(self, *default):
        if self._value is not Token.MISSING:
            return self._value
        if default:
            return default[0]
        if self._default is not Token.MISSING:
            return self._default
        raise LookupError(self)

    def set(self, value):
        token = Token(self, self._value)
        self._value = value
        return token

    def reset(self, token):
        self._value = token.old_value


class Context:
    def run(self, callable, *args, **kwargs):
        return callable(*args, **kwargs)


def copy_context():
    return Context()
