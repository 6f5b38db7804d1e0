# torch.distributed as one rank of a tensor-parallel group sees it.
import torch
from _shardwright import note, rank as _rank, region, tp as _tp


class ReduceOp:
    SUM = 0
    AVG = 1
    PRODUCT = 2
    MAX = 3
    MIN = 4


class ProcessGroup:
    def size(self):
        return _tp()

    def rank(self):
        return _rank()


class group:
    WORLD = ProcessGroup()


GroupMember = group


class Work:
    def wait(self, *args):
        return None

    def is_completed(self):
        return True


def is_available():
    return True


def is_initialized():
    return True


def is_nccl_available():
    return True


def is_torchelastic_launched():
    return True


def _size(group):
    return _tp() if group is None else group.size()


def get_rank(group=None):
    return _rank() if group is None else group.rank()


def get_world_size(group=None):
    return _size(group)


def get_backend(group=None):
    return "nccl"


def new_group(*args, **kwargs):
    return ProcessGroup()


def barrier(*args, **kwargs):
    return None


def _is_tp(group):
    return group is None or getattr(group, "name", "tp") == "tp"


def all_reduce(tensor, op=ReduceOp.SUM, group=None, async_op=False):
    if group is None:
        note("default_group", "all_reduce", tensor)
    if _is_tp(group):
        tensor.copy_(region("raw_reduce" if op in (ReduceOp.SUM, ReduceOp.AVG) else "raw_maximum", tensor))
    return Work() if async_op else None


def all_gather(tensor_list, tensor, group=None, async_op=False):
    if _is_tp(group):
        for i in range(len(tensor_list)):
            tensor_list[i] = region("raw_gathered", tensor)
    return Work() if async_op else None


def all_gather_into_tensor(output_tensor, input_tensor, group=None, async_op=False):
    if _is_tp(group):
        note("raw_gather", "all_gather_into_tensor", input_tensor)
    return Work() if async_op else None


_all_gather_base = all_gather_into_tensor


def reduce_scatter_tensor(output, input, op=ReduceOp.SUM, group=None, async_op=False):
    return Work() if async_op else None


_reduce_scatter_base = reduce_scatter_tensor
reduce_scatter = reduce_scatter_tensor


def broadcast(tensor, src=0, group=None, async_op=False):
    return Work() if async_op else None


def reduce(tensor, dst=0, op=ReduceOp.SUM, group=None, async_op=False):
    return Work() if async_op else None


def all_to_all(*args, **kwargs):
    return None


def all_to_all_single(*args, **kwargs):
    return None


def gather(*args, **kwargs):
    return None


def scatter(*args, **kwargs):
    return None


def send(tensor, dst=None, *args, **kwargs):
    return None


def recv(tensor, src=None, *args, **kwargs):
    return 0


def isend(tensor, dst=None, *args, **kwargs):
    return Work()


def irecv(tensor, src=None, *args, **kwargs):
    return Work()


class P2POp:
    def __init__(self, op, tensor, peer=None, *args, **kwargs):
        self.op, self.tensor, self.peer = op, tensor, peer


def batch_isend_irecv(ops):
    return [Work() for _ in ops]


def init_process_group(*args, **kwargs):
    return None


def destroy_process_group(*args, **kwargs):
    return None
