{config} = parallel_config({config})
{self}.config = {config}
