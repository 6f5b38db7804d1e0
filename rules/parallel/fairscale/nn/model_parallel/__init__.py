from fairscale.nn.model_parallel.initialize import (
    get_model_parallel_group, get_model_parallel_rank, get_model_parallel_world_size, initialize_model_parallel, model_parallel_is_initialized)
