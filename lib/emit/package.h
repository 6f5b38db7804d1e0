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

/// `pp` counts stages; a pipeline rank holds `virtual_stages` of them.
struct Grid {
  int tp = 1, pp = 1, dp = 1, virtual_stages = 1;
  int ranks() const { return pp / virtual_stages; }
};

/// Where files go when they lie beside the originals (targets with `names`).
struct Layout {
  std::function<Place(const program::Module&)> beside;  ///< the generated neighbour of an original module
  std::function<Place(const program::Module&)> same;    ///< the original module itself, as seen from the output directory
  std::function<Place(const program::Module&)> stages;  ///< of stage classes: the model's file, or one beside it by the original's module
  Place init, support;
  std::string tool;  ///< folder of plan.yaml, params.yaml, the lock: "models/x/.shardwright/"
};

struct PackageInput {
  const eval::Traced& traced;
  const eval::Job& job;
  const sharding::Result& sharding;
  const pipeline::Partition& partition;
  const rewrite::TpEdits& edits;
  const rewrite::Specialized& specialized;
  support::SourceManager& sources;
  eval::ModuleSource& loader;
  std::string name;  ///< "gpt": the package is gpt_parallel
  std::string version;
  std::string spec;  ///< MODEL as the user gave it
  Grid grid;
  int micro_batches = 1;
  std::string schedule = "1f1b";
  std::function<bool(const program::Module&)> copied;
  std::vector<std::string> search_path;  ///< python_path as seen from the output directory
  std::string originals;  ///< absolute folder of modules that the generated code imports as the original does (`import utils`); "": none
  std::string prepare;    ///< script to run before the original is imported, seen from the output directory
  std::vector<std::string> fallbacks;  ///< for the README
  const rules::Target* target = nullptr;
  Layout layout;                                                 ///< of targets that write beside the originals
  std::string recompute;                                         ///< "full", "selective"; "": the training script's default
  std::vector<std::vector<std::string>> stage_modules;           ///< by stage, as plan.yaml names them: "embed", "blocks.0-1"
  std::string holds(std::size_t stage, std::size_t most) const;  ///< … in words: "embed, blocks.0-1, …"
  bool in_place() const;
};

/// Folders and names from the entry module's place. `out`: absolute output directory.
Layout layout_of(const PackageInput&, const std::string& out);
/// Files that may hold registries: those named like one in the folders beside each original, and those that a name was looked up in.
std::vector<const program::Module*> registry_modules(const PackageInput&);
/// What the training directory needs beyond the package.
struct TrainingInput {
  std::string script;                   ///< the user's; "": looked for below the target's examples folder
  std::string out;                      ///< absolute output directory
  const eval::Traced* other = nullptr;  ///< the same model at three times the batch size
  std::int64_t batch = 1;               ///< of the trace's inputs
  bool direct = true;                   ///< build_stage takes the constructor's arguments
  std::string data_ranks;               ///< "all" (or ""): every stage reads data; "needed": those that use them
};
/// train.py, run.sh, run.slurm, conf/, README.md beside the user's training directory.
/// `left`: what was not taken over of the script, with its place.
support::Expected<std::vector<File>> training_files(const PackageInput&, const TrainingInput&, std::vector<std::string>& left);
/// The registries (rules::Target::registries) that list an original class, with the generated one beside it.
support::Expected<std::vector<File>> registry_files(const PackageInput&);

/// Is the model built by one call of its class whose arguments can be given anew?
bool built_directly(const PackageInput&);
/// The package alone (to be analysed again before anything is written).
support::Expected<std::vector<File>> package_files(const PackageInput&);
/// train.py, run.sh, conf/config.yaml, README.md.
support::Expected<std::vector<File>> directory_files(const PackageInput&);
/// An input in the job file's notation: "i64[2,16]<128", "=None".
std::string input_text(const eval::InputSpec&);
/// params.yaml. `held`: names of parameters and buffers that each generated stage really has.
std::string params_yaml(const PackageInput&, const std::vector<std::vector<std::string>>& held);

}  // namespace shardwright::emit
