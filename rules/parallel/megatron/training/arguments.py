from _made import Config as _Config


def core_transformer_config_from_args(args, config_class=None):
    return _Config()
