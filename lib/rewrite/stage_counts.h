// Constructors that compute with all that was built.
#pragma once
#include "model/trace.h"

namespace shardwright::rewrite {

/// Where a constructor keeps a number that it has from a walk over its parameters or modules (`self.scale = 1 / sum(p.numel() for p in
/// self.parameters())`): a stage that leaves parts out would keep another. Not valid where none does. What is only printed or returned does
/// not count, nor does a loop that treats each by itself.
support::Range counts_what_was_built(const model::Trace&);

}  // namespace shardwright::rewrite
