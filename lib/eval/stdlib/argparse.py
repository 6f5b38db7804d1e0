import sys
from _shardwright import unknown

SUPPRESS = "==SUPPRESS=="
OPTIONAL, ZERO_OR_MORE, ONE_OR_MORE, PARSER, REMAINDER = "?", "*", "+", "A...", "..."


class ArgumentError(Exception):
    pass


class ArgumentTypeError(Exception):
    pass


class HelpFormatter:
    def __init__(self, *args, **kwargs):
        pass


class RawDescriptionHelpFormatter(HelpFormatter):
    pass


RawTextHelpFormatter = ArgumentDefaultsHelpFormatter = MetavarTypeHelpFormatter = RawDescriptionHelpFormatter


class FileType:
    def __init__(self, mode="r", bufsize=-1, encoding=None, errors=None):
        self.mode = mode

    def __call__(self, path):
        return unknown("the file that an option of the command line names is opened here")


class Namespace:
    def __init__(self, **kwargs):
        for k, v in kwargs.items():
            setattr(self, k, v)

    def __eq__(self, other):
        return isinstance(other, Namespace) and vars(self) == vars(other)

    def __contains__(self, key):
        return key in self.__dict__

    def __repr__(self):
        return "Namespace(" + ", ".join([f"{k}={v!r}" for k, v in self.__dict__.items()]) + ")"


class Action:
    def __init__(self, option_strings, dest, nargs=None, const=None, default=None, type=None, choices=None, required=False, help=None, metavar=None, **kwargs):
        self.option_strings = option_strings
        self.dest = dest
        self.nargs = nargs
        self.const = const
        self.default = default
        self.type = type
        self.choices = choices
        self.required = required
        self.help = help
        self.metavar = metavar

    def __call__(self, parser, namespace, values, option_string=None):
        raise NotImplementedError(".__call__() not defined")


class _Store(Action):
    def __call__(self, parser, namespace, values, option_string=None):
        setattr(namespace, self.dest, values)


class _StoreConst(Action):
    def __init__(self, option_strings, dest, const=None, **kwargs):
        super().__init__(option_strings, dest, nargs=0, const=const, **kwargs)

    def __call__(self, parser, namespace, values, option_string=None):
        setattr(namespace, self.dest, self.const)


class _StoreTrue(_StoreConst):
    def __init__(self, option_strings, dest, default=False, **kwargs):
        super().__init__(option_strings, dest, const=True, default=default, **kwargs)


class _StoreFalse(_StoreConst):
    def __init__(self, option_strings, dest, default=True, **kwargs):
        super().__init__(option_strings, dest, const=False, default=default, **kwargs)


class BooleanOptionalAction(Action):
    def __init__(self, option_strings, dest, **kwargs):
        both = []
        for s in option_strings:
            both.append(s)
            if s.startswith("--"):
                both.append("--no-" + s[2:])
        super().__init__(both, dest, nargs=0, **kwargs)

    def __call__(self, parser, namespace, values, option_string=None):
        setattr(namespace, self.dest, not option_string.startswith("--no-"))


class _Append(Action):
    def __call__(self, parser, namespace, values, option_string=None):
        setattr(namespace, self.dest, list(getattr(namespace, self.dest, None) or []) + [values])


class _AppendConst(_StoreConst):
    def __call__(self, parser, namespace, values, option_string=None):
        setattr(namespace, self.dest, list(getattr(namespace, self.dest, None) or []) + [self.const])


class _Extend(Action):
    def __call__(self, parser, namespace, values, option_string=None):
        setattr(namespace, self.dest, list(getattr(namespace, self.dest, None) or []) + list(values))


class _Count(Action):
    def __init__(self, option_strings, dest, **kwargs):
        super().__init__(option_strings, dest, nargs=0, **kwargs)

    def __call__(self, parser, namespace, values, option_string=None):
        setattr(namespace, self.dest, (getattr(namespace, self.dest, None) or 0) + 1)


class _Leave(Action):
    """help and version: they print and end the program."""

    def __init__(self, option_strings, dest=SUPPRESS, default=SUPPRESS, **kwargs):
        super().__init__(option_strings, SUPPRESS, nargs=0, default=SUPPRESS)

    def __call__(self, parser, namespace, values, option_string=None):
        parser.exit()


class _SubParsers(Action):
    def __init__(self, dest, required, make):
        super().__init__([], SUPPRESS if dest is None else dest, nargs=PARSER, required=required)
        self.make = make
        self.parsers = {}

    def add_parser(self, name, aliases=(), help=None, **kwargs):
        p = self.make(**kwargs)
        for n in (name, *aliases):
            self.parsers[n] = p
        return p


_ACTIONS = {
    None: _Store,
    "store": _Store,
    "store_const": _StoreConst,
    "store_true": _StoreTrue,
    "store_false": _StoreFalse,
    "append": _Append,
    "append_const": _AppendConst,
    "extend": _Extend,
    "count": _Count,
    "help": _Leave,
    "version": _Leave,
}


class _Group:
    """What options are added to; groups hand them to their parser."""

    def __init__(self, parser):
        self._parser = parser

    def register(self, registry, value, made):
        if registry == "action":
            self._parser._registered[value] = made

    def add_argument(self, *names, **kwargs):
        return self._parser._add(names, kwargs)

    def add_argument_group(self, *args, **kwargs):
        return _Group(self._parser)

    add_mutually_exclusive_group = add_argument_group

    def set_defaults(self, **kwargs):
        self._parser._defaults.update(kwargs)
        for a in self._parser._actions:
            if a.dest in kwargs:
                a.default = kwargs[a.dest]

    def get_default(self, dest):
        for a in self._parser._actions:
            if a.dest == dest and a.default is not None:
                return a.default
        return self._parser._defaults.get(dest)


class ArgumentParser(_Group):
    def __init__(self, prog=None, usage=None, description=None, epilog=None, parents=(), formatter_class=None, prefix_chars="-",
                 fromfile_prefix_chars=None, argument_default=None, conflict_handler="error", add_help=True, allow_abbrev=True, exit_on_error=True):
        super().__init__(self)
        self.prog = prog
        self.description = description
        self.epilog = epilog
        self.argument_default = argument_default
        self.allow_abbrev = allow_abbrev
        self._actions = []
        self._defaults = {}
        self._registered = {}
        if add_help:
            self._actions.append(_Leave(["-h", "--help"]))
        for p in parents:
            self._actions += [a for a in p._actions if not isinstance(a, _Leave)]
            self._defaults.update(p._defaults)

    def _add(self, names, kwargs):
        kwargs = dict(kwargs)
        action = kwargs.pop("action", None)
        kwargs.pop("version", None)
        if action in self._registered:
            action = self._registered[action]
        elif action is None or isinstance(action, str):
            if action not in _ACTIONS:
                raise ValueError(f"unknown action {action!r}")
            action = _ACTIONS[action]
        options = [n for n in names if n.startswith("-")]
        dest = kwargs.pop("dest", None)
        if dest is None:
            if options:
                long = [n for n in options if n.startswith("--")]
                dest = (long or options)[0].lstrip("-").replace("-", "_")
            else:
                dest = names[0]
        elif not options:
            options = []
        if "default" not in kwargs:
            if dest in self._defaults:
                kwargs["default"] = self._defaults[dest]
            elif self.argument_default is not None:
                kwargs["default"] = self.argument_default
        if not options and "required" not in kwargs and kwargs.get("nargs") not in ("?", "*"):
            kwargs["required"] = True
        a = action(options, dest, **kwargs)
        self._actions = [b for b in self._actions if not (options and all([o in a.option_strings for o in b.option_strings]) and b.option_strings)]
        self._actions.append(a)
        return a

    def add_subparsers(self, dest=None, required=False, parser_class=None, **kwargs):
        a = _SubParsers(dest, required, parser_class or type(self))
        self._actions.append(a)
        return a

    def exit(self, status=0, message=None):
        raise SystemExit(message or status)

    def error(self, message):
        raise SystemExit("argparse: error: " + message)

    def _nothing(self, *args, **kwargs):
        return ""

    print_help = print_usage = format_help = format_usage = _nothing

    def convert_arg_line_to_args(self, line):
        return [line]

    def _value(self, action, text):
        v = text if action.type is None else action.type(text)
        if action.choices is not None and v not in action.choices:
            self.error(f"argument {'/'.join(action.option_strings) or action.dest}: invalid choice: {v!r}")
        return v

    def _find(self, text):
        for a in self._actions:
            if text in a.option_strings:
                return a, text
        if self.allow_abbrev and text.startswith("--"):
            near = [(a, o) for a in self._actions for o in a.option_strings if o.startswith(text)]
            if len(near) == 1:
                return near[0]
        return None, text

    def _is_option(self, text):
        if not text.startswith("-") or text == "-":
            return False
        if text[1:].replace(".", "", 1).replace("e-", "", 1).isdigit():
            return self._find(text)[0] is not None
        return " " not in text

    def _take(self, action, args, i, given):
        """The values of an action from args[i]: (values, the next place)."""
        n = action.nargs
        j = i
        if n == REMAINDER:
            return args[i:], len(args)
        most = 1 if n is None or n == "?" else n if isinstance(n, int) else len(args)
        while j < len(args) and j - i < most and args[j] != "--" and not self._is_option(args[j]):
            j += 1
        texts = args[i:j]
        if given:
            texts = [given]
        if (n is None or n == "+") and not texts or isinstance(n, int) and len(texts) != n:
            self.error(f"argument {'/'.join(action.option_strings) or action.dest}: expected {n or 1} argument(s)")
        if n is None:
            return self._value(action, texts[0]), j
        if n == "?":
            if texts:
                return self._value(action, texts[0]), j
            return (action.const if action.option_strings else action.default), j
        if n == 0:
            return [], i
        if n == "*" and not texts and not action.option_strings and action.default is not None:
            return action.default, j
        return [self._value(action, t) for t in texts], j

    def parse_known_args(self, args=None, namespace=None):
        from_outside = args is None
        args = [str(a) for a in (sys.argv[1:] if from_outside else args)]
        if namespace is None:
            namespace = Namespace()
        for a in self._actions:
            if a.dest != SUPPRESS and a.default != SUPPRESS and not hasattr(namespace, a.dest):
                setattr(namespace, a.dest, a.default)
        for k, v in self._defaults.items():
            if not hasattr(namespace, k):
                setattr(namespace, k, v)
        seen = []
        rest = []
        places = [a for a in self._actions if not a.option_strings]
        i = 0
        while i < len(args):
            text = args[i]
            if text == "--":
                args = args[:i] + args[i + 1:]
                continue
            if self._is_option(text):
                name, _, given = text.partition("=")
                a, name = self._find(name)
                if a is None and len(text) > 2 and not text.startswith("--"):
                    a, name = self._find(text[:2])
                    given = text[2:]
                    if a is not None and a.nargs == 0:
                        args = args[:i] + [text[:2], "-" + given] + args[i + 1:]
                        given = ""
                if a is None:
                    rest.append(text)
                    i += 1
                    continue
                values, after = self._take(a, args, i + 1, given)
                i = i + 1 if given else after
                seen.append(a)
                a(self, namespace, values, name)
                continue
            if not places:
                rest.append(text)
                i += 1
                continue
            a = places[0]
            places = places[1:]
            seen.append(a)
            if isinstance(a, _SubParsers):
                if text not in a.parsers:
                    self.error(f"invalid choice: {text!r}")
                if a.dest != SUPPRESS:
                    setattr(namespace, a.dest, text)
                namespace, more = a.parsers[text].parse_known_args(args[i + 1:], namespace)
                return namespace, rest + more
            values, i = self._take(a, args, i, "")
            a(self, namespace, values)
        for a in self._actions:
            if a in seen:
                continue
            if a.required:
                name = "/".join(a.option_strings) or a.dest
                if not from_outside:
                    self.error("the following arguments are required: " + name)
                if a.dest != SUPPRESS:
                    setattr(namespace, a.dest, unknown(f"'{name}' is required on the command line and has no default"))
            elif isinstance(a.default, str) and a.type is not None and hasattr(namespace, a.dest) and getattr(namespace, a.dest) is a.default:
                setattr(namespace, a.dest, a.type(a.default))
        return namespace, rest

    def parse_args(self, args=None, namespace=None):
        namespace, rest = self.parse_known_args(args, namespace)
        if rest:
            self.error("unrecognized arguments: " + " ".join(rest))
        return namespace

    parse_intermixed_args = parse_args
    parse_known_intermixed_args = parse_known_args
