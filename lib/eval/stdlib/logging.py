CRITICAL, FATAL, ERROR, WARNING, WARN, INFO, DEBUG, NOTSET = 50, 50, 40, 30, 30, 20, 10, 0


class Logger:
    def __init__(self, name="", level=0):
        self.name = name
        self.level = level
        self.handlers = []
        self.filters = []
        self.propagate = True
        self.parent = None
        self.disabled = False
        self.manager = None

    def _nothing(self, *args, **kwargs):
        pass

    debug = info = warning = warn = error = critical = exception = log = _nothing
    setLevel = addHandler = removeHandler = addFilter = removeFilter = _nothing
    warning_once = info_once = warning_advice = _nothing

    def isEnabledFor(self, level):
        return False

    def getEffectiveLevel(self):
        return WARNING

    def hasHandlers(self):
        return False

    def getChild(self, name):
        return Logger(self.name + "." + name)


class LoggerAdapter(Logger):
    def __init__(self, logger=None, extra=None):
        super().__init__()
        self.logger = logger


class Handler:
    def __init__(self, *args, **kwargs):
        pass

    def setFormatter(self, *args):
        pass

    setLevel = addFilter = emit = flush = close = setFormatter


class StreamHandler(Handler):
    pass


class FileHandler(Handler):
    pass


class NullHandler(Handler):
    pass


class Formatter:
    def __init__(self, *args, **kwargs):
        pass


class Filter:
    def __init__(self, *args, **kwargs):
        pass


root = Logger("root")


def getLogger(name=None):
    return Logger(name or "root")


def getLoggerClass():
    return Logger


def _nothing(*args, **kwargs):
    pass


debug = info = warning = warn = error = critical = exception = log = _nothing
basicConfig = captureWarnings = disable = addLevelName = setLoggerClass = _nothing


def getLevelName(level):
    return str(level)
