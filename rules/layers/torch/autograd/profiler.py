class record_function:
    def __init__(self, name, args=None):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *args):
        return None

    def __call__(self, f):
        return f


profile = record_function
