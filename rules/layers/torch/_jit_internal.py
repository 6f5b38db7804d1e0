from typing import Final


def boolean_dispatch(*args, **kwargs):
    return None


def _overload(f):
    return f


def _copy_to_script_wrapper(f):
    return f


def unused(f):
    return f


def ignore(f=None, **kwargs):
    return f if f is not None else (lambda g: g)


def is_scripting():
    return False
