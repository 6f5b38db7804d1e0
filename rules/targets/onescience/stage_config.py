{config} = core_transformer_config_from_args(get_args()) if {config} is None else {config}
{self}.config = {config}
