from _shardwright import rank as _rank, tp as _tp
from megatron.core.utils import divide


def split_tensor_along_last_dim(tensor, num_partitions, contiguous_split_chunks=False):
    return tensor.split(divide(tensor.size(-1), num_partitions), dim=-1)


class VocabUtility:
    @staticmethod
    def vocab_range_from_per_partition_vocab_size(per_partition_vocab_size, rank, world_size):
        first = rank * per_partition_vocab_size
        return first, first + per_partition_vocab_size

    @staticmethod
    def vocab_range_from_global_vocab_size(global_vocab_size, rank, world_size):
        return VocabUtility.vocab_range_from_per_partition_vocab_size(divide(global_vocab_size, world_size), rank, world_size)
