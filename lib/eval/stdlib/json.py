class JSONEncoder:
    pass


class JSONDecodeError(ValueError):
    pass


def _escape(s):
    return '"' + s.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def dumps(obj, **kwargs):
    if obj is None:
        return "null"
    if obj is True:
        return "true"
    if obj is False:
        return "false"
    if isinstance(obj, (int, float)):
        return repr(obj)
    if isinstance(obj, str):
        return _escape(obj)
    if isinstance(obj, dict):
        return "{" + ", ".join([_escape(str(k)) + ": " + dumps(v) for k, v in obj.items()]) + "}"
    if isinstance(obj, (list, tuple)):
        return "[" + ", ".join([dumps(v) for v in obj]) + "]"
    raise TypeError(f"Object of type {type(obj).__name__} is not JSON serializable")


def _value(s, i):
    while s[i] in " \t\r\n":
        i += 1
    c = s[i]
    if c == "{":
        out, i = {}, i + 1
        while True:
            while s[i] in " \t\r\n,":
                i += 1
            if s[i] == "}":
                return out, i + 1
            k, i = _value(s, i)
            while s[i] in " \t\r\n:":
                i += 1
            out[k], i = _value(s, i)
    if c == "[":
        out, i = [], i + 1
        while True:
            while s[i] in " \t\r\n,":
                i += 1
            if s[i] == "]":
                return out, i + 1
            v, i = _value(s, i)
            out.append(v)
    if c == '"':
        j, text = i + 1, ""
        while s[j] != '"':
            if s[j] == "\\":
                j += 1
                text += {"n": "\n", "t": "\t", "r": "\r"}.get(s[j], s[j])
            else:
                text += s[j]
            j += 1
        return text, j + 1
    for word, v in (("true", True), ("false", False), ("null", None)):
        if s.startswith(word, i):
            return v, i + len(word)
    j = i
    while j < len(s) and s[j] in "+-0123456789.eE":
        j += 1
    if i == j:
        raise JSONDecodeError(f"Expecting value: char {i}")
    number = s[i:j]
    return (float(number) if "." in number or "e" in number or "E" in number else int(number)), j


def loads(s, **kwargs):
    try:
        return _value(s, 0)[0]
    except IndexError:
        raise JSONDecodeError("Expecting value")
