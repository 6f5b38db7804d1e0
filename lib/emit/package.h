// The generated directory of the `runtime` target: package, training script, params.yaml, README.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "emit/assemble.h"
#include "eval/run.h"
#include "pipeline/pipeline.h"
#include "sharding/sharding.h"

namespace shardwright::emit {

struct Grid { int tp = 1, pp = 1, dp = 1; };

struct PackageInput {
  const eval::Traced& traced;
  const eval::Job& job;
  const sharding::Result& sharding;
  const pipeline::Partition& partition;
  const rewrite::TpEdits& edits;
  const rewrite::Specialized& specialized;
  support::SourceManager& sources;
  eval::ModuleSource& loader;
  std::string name;                         ///< "gpt": the package is gpt_parallel
  std::string version;
  std::string spec;                         ///< MODEL as the user gave it
  Grid grid;
  int micro_batches = 1;
  std::string schedule = "1f1b";
  std::function<bool(const program::Module&)> copied;
  std::vector<std::string> search_path;     ///< python_path as seen from the output directory
  std::string prepare;                      ///< script to run before the original is imported, seen from the output directory
  std::vector<std::string> fallbacks;       ///< for the README
};

/// The package alone (to be analysed again before anything is written).
support::Expected<std::vector<File>> package_files(const PackageInput&);
/// train.py, run.sh, conf/config.yaml, README.md.
support::Expected<std::vector<File>> directory_files(const PackageInput&);
/// An input in the job file's notation: "i64[2,16]<128", "=None".
std::string input_text(const eval::InputSpec&);
/// params.yaml. `held`: names of parameters and buffers that each generated stage really has.
std::string params_yaml(const PackageInput&, const std::vector<std::vector<std::string>>& held);

}  // namespace shardwright::emit
