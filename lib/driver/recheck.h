// The generated package analysed again before anything is written: every stage is built and run on abstract tensors with
// local sizes. It must build, hold exactly the parameters that the plan gives it in their local shapes, and its boundary
// tensors must fit the next stage's; and lint (lib/lint) must find nothing in it.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "driver/analysis.h"

namespace shardwright::driver {

/// What is wrong with the generated source. Its diagnostic says that the generator is at fault; convert tries again with less.
struct Fault {
  support::Diagnostic what;
  int stage = -1;         ///< -1: of no one stage
  std::string parameter;  ///< whose local shape is wrong; "" otherwise
  bool raised = false;    ///< the stage does not run
};

struct Recheck {
  std::vector<std::vector<std::string>> held;  ///< by stage: names of parameters and buffers
  std::optional<Fault> fault;
};

/// An error only where the check itself cannot be made.
support::Expected<Recheck> recheck(const Analysis&, const emit::PackageInput&, const std::vector<emit::File>& package, const emit::Grid&,
                                   support::SourceManager&);

/// The `job` text of plan.yaml: what `verify` needs to run the original, with paths as seen from the output directory.
std::string verify_job(const Analysis&, const emit::PackageInput&, const std::string& out_dir);

}  // namespace shardwright::driver
