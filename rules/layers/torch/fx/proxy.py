class Proxy:
    pass
