// A model written for one process asks whether it is alone (`if dist.is_initialized(): dist.all_reduce(…)`). In the parallel program the
// answer has to be the one that the original got.
#pragma once
#include <string>

#include "eval/interpreter.h"

namespace shardwright::emit {

/// Definitions of `origin` with the questions to torch.distributed answered: is_initialized() → False, get_world_size() → 1, get_rank() →
/// 0.
std::string answered_alone(std::string text, const program::Module& origin, eval::ModuleSource& loader);

}  // namespace shardwright::emit
