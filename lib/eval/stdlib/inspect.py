class BoundArguments:
    def __init__(self, signature, arguments):
        self.signature = signature
        self.arguments = arguments

    def apply_defaults(self):
        full = {}
        for name, p in self.signature.parameters.items():
            if name in self.arguments:
                full[name] = self.arguments[name]
            elif p.default is not Parameter.empty:
                full[name] = p.default
            elif p.kind == Parameter.VAR_POSITIONAL:
                full[name] = ()
            elif p.kind == Parameter.VAR_KEYWORD:
                full[name] = {}
        self.arguments = full

    @property
    def args(self):
        out = []
        for name, p in self.signature.parameters.items():
            if name not in self.arguments:
                break
            if p.kind == Parameter.VAR_POSITIONAL:
                out.extend(self.arguments[name])
            elif p.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.POSITIONAL_ONLY):
                out.append(self.arguments[name])
        return tuple(out)

    @property
    def kwargs(self):
        out = {}
        for name, p in self.signature.parameters.items():
            if name in self.arguments and p.kind == Parameter.KEYWORD_ONLY:
                out[name] = self.arguments[name]
            elif name in self.arguments and p.kind == Parameter.VAR_KEYWORD:
                out.update(self.arguments[name])
        return out


def _bind(signature, args, kwargs, partial):
    values = {}
    rest = list(args)
    extra = dict(kwargs)
    for name, p in signature.parameters.items():
        if p.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.POSITIONAL_ONLY):
            if rest:
                values[name] = rest.pop(0)
                if name in extra:
                    raise TypeError(f"multiple values for argument {name!r}")
            elif name in extra:
                values[name] = extra.pop(name)
            elif p.default is Parameter.empty and not partial:
                raise TypeError(f"missing a required argument: {name!r}")
        elif p.kind == Parameter.VAR_POSITIONAL:
            if rest:
                values[name] = tuple(rest)
            rest = []
        elif p.kind == Parameter.KEYWORD_ONLY:
            if name in extra:
                values[name] = extra.pop(name)
            elif p.default is Parameter.empty and not partial:
                raise TypeError(f"missing a required argument: {name!r}")
        elif extra:
            values[name] = extra
            extra = {}
    if rest:
        raise TypeError("too many positional arguments")
    if extra:
        raise TypeError(f"got an unexpected keyword argument {list(extra)[0]!r}")
    return BoundArguments(signature, values)
