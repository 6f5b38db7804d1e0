def dedent(text):
    return text


def fill(text, *args, **kwargs):
    return text


def indent(text, prefix):
    return "\n".join([prefix + line for line in text.split("\n")])
