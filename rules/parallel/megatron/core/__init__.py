from megatron.core import parallel_state, tensor_parallel
from megatron.core.utils import divide

mpu = parallel_state
