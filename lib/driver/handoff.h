// File handoff: a step described in step_{id}.yaml in the folder that a target names (rules/targets) is converted, and
// step_{id}_result.yaml says what came of it. The keys are fixed by those who write the steps. Results are written atomically; a step that
// cannot start is `blocked` and says what is missing.
#pragma once
#include <string>
#include <vector>

#include "driver/convert.h"

namespace shardwright::driver {

struct HandoffResult {
  std::string step_id;
  std::string status;  ///< success | partial | failed | blocked
  std::string summary, next;
  std::vector<std::pair<std::string, std::string>> artifacts;  ///< path, type
  std::vector<std::string> completed, missing, risks;
  std::string file;  ///< the result's path
};

/// Runs the steps of `dir` that have no result yet, or the one named `step` (again). Relative paths are those of `dir`, which must be
/// the working directory. An error: there is no step to run, or a result cannot be written.
support::Expected<std::vector<HandoffResult>> handoff(const std::string& dir, const std::string& step, support::SourceManager& sm,
                                                      const Progress& progress);

}  // namespace shardwright::driver
