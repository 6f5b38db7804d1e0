// The axes of a model as JSON, in the format of the oracle (tests/oracle): for comparison and for `plan --json`.
#pragma once
#include <string>

#include "sharding/sharding.h"

namespace shardwright::sharding {

/// {"axes": [{size, parameters: {name: [[factor…] per dimension]}, forward_elements, entry_elements, chosen}], "gradient_summed": […],
/// "left": […]}. Factors are numbers, the axis itself "n*", a concatenation a list of its segments. Lists the axes that may be
/// sharded and are carried by a parameter.
std::string to_json(const model::Trace&, const Result&);

}  // namespace shardwright::sharding
