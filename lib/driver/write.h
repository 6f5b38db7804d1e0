// What convert made, compared with what is in the output directory and written there: never over what somebody changed.
#pragma once
#include "driver/convert.h"

namespace shardwright::driver {

/// Fills `written`, `merged` and `diff`; with --diff nothing is written. `tool_folder`: where plan.yaml and the lock lie, below the output
/// directory.
support::Expected<bool> write_out(const ConvertRequest&, const std::string& tool_folder, ConvertOutcome&);

}  // namespace shardwright::driver
