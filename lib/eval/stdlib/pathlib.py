import os


class PurePath:
    def __init__(self, *parts):
        self._text = os.path.join(*[str(p) for p in parts]) if parts else "."

    def __truediv__(self, other):
        return type(self)(self._text, str(other))

    def __rtruediv__(self, other):
        return type(self)(str(other), self._text)

    def __str__(self):
        return self._text

    def __fspath__(self):
        return self._text

    def __repr__(self):
        return f"Path({self._text!r})"

    def __eq__(self, other):
        return isinstance(other, PurePath) and self._text == other._text

    def __hash__(self):
        return hash(self._text)

    def joinpath(self, *parts):
        return type(self)(self._text, *parts)

    def as_posix(self):
        return self._text

    def with_suffix(self, suffix):
        return type(self)(os.path.splitext(self._text)[0] + suffix)

    def with_name(self, name):
        return self.parent / name

    @property
    def name(self):
        return os.path.basename(self._text)

    @property
    def stem(self):
        return os.path.splitext(self.name)[0]

    @property
    def suffix(self):
        return os.path.splitext(self._text)[1]

    @property
    def parent(self):
        return type(self)(os.path.dirname(self._text) or ".")

    @property
    def parents(self):
        out, p = [], self.parent
        while p._text not in (".", "/"):
            out.append(p)
            p = p.parent
        return out

    @property
    def parts(self):
        return tuple(self._text.split("/"))


class Path(PurePath):
    @classmethod
    def cwd(cls):
        return cls(".")

    @classmethod
    def home(cls):
        return cls("~")

    def exists(self):
        return False

    is_file = is_dir = is_symlink = exists

    def resolve(self, *args):
        return self

    absolute = expanduser = resolve

    def mkdir(self, *args, **kwargs):
        pass

    unlink = touch = mkdir


PosixPath = Path
PurePosixPath = PurePath
