from _made import Config


class TransformerConfig(Config):
    pass


class MLATransformerConfig(Config):
    pass
