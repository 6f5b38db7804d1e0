# Groups and ranks of Megatron-Core as one rank of a tensor-parallel group sees them; every other axis has one rank.
from _shardwright import rank as _rank, tp as _tp


class Group:
    def __init__(self, name):
        self.name = name

    def size(self):
        return _tp() if self.name == "tp" else 1

    def rank(self):
        return _rank() if self.name == "tp" else 0


_TP, _PP, _DP, _CP, _EP = Group("tp"), Group("pp"), Group("dp"), Group("cp"), Group("ep")


def get_tensor_model_parallel_world_size():
    return _tp()


def get_tensor_model_parallel_rank():
    return _rank()


def get_tensor_model_parallel_src_rank():
    return 0


def get_tensor_model_parallel_group(check_initialized=True):
    return _TP


def get_tensor_and_context_parallel_group(*args, **kwargs):
    return _TP


def get_tensor_and_data_parallel_group(*args, **kwargs):
    return _TP


def get_model_parallel_group(*args, **kwargs):
    return _TP


def get_pipeline_model_parallel_group(check_initialized=True):
    return _PP


def get_pipeline_model_parallel_world_size():
    return 1


def get_pipeline_model_parallel_rank():
    return 0


def get_virtual_pipeline_model_parallel_rank():
    return None


def get_virtual_pipeline_model_parallel_world_size():
    return None


def is_pipeline_first_stage(*args, **kwargs):
    return True


def is_pipeline_last_stage(*args, **kwargs):
    return True


def is_inside_encoder(*args):
    return True


def is_inside_decoder(*args):
    return True


def is_rank_in_embedding_group(*args, **kwargs):
    return True


def get_data_parallel_group(*args, **kwargs):
    return _DP


def get_data_parallel_world_size(*args, **kwargs):
    return 1


def get_data_parallel_rank(*args, **kwargs):
    return 0


def get_context_parallel_group(*args, **kwargs):
    return _CP


def get_context_parallel_world_size():
    return 1


def get_context_parallel_rank():
    return 0


def get_expert_model_parallel_group(*args, **kwargs):
    return _EP


def get_expert_model_parallel_world_size():
    return 1


def get_expert_model_parallel_rank():
    return 0


def get_expert_tensor_parallel_world_size():
    return _tp()


def get_expert_tensor_parallel_group(*args, **kwargs):
    return _TP


def model_parallel_is_initialized():
    return True


def is_initialized():
    return True


def is_unitialized():
    return False


def initialize_model_parallel(*args, **kwargs):
    return None


def destroy_model_parallel():
    return None
