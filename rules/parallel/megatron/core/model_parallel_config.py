from _made import Config


class ModelParallelConfig(Config):
    pass
