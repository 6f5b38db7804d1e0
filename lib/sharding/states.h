// From chosen axes to states and conversions (semantics §1, §3).
#pragma once
#include "sharding/axes.h"

namespace shardwright::sharding {

/// Fills states, axis_of, conversions, grad_summed and sharded_random of `result`; its axes and tensors are set already.
void assign_states(const model::Trace&, const Options&, const AxisTable&, Result& result);

}  // namespace shardwright::sharding
