// From a MODEL to everything that plan, convert and tree show: traces, placements, stages, edits.
#pragma once
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "emit/package.h"
#include "eval/run.h"
#include "pipeline/pipeline.h"
#include "plan/plan.h"
#include "rewrite/specialize.h"
#include "rewrite/typed_text.h"
#include "rules/rules.h"
#include "rules/target.h"
#include "sharding/sharding.h"

namespace shardwright::cxx {
struct Unit;
}

namespace shardwright::driver {

/// What the shared options of the command line say.
struct ModelRequest {
  std::string spec;  ///< MODEL: file.py:Class, package.module:Class, or a job file
  std::vector<std::string> python_path;
  std::string args;                   ///< --args 'embed_dim=192, num_heads=(6, 12)'
  std::string config;                 ///< --config cfg.yaml[:key.path]
  std::vector<std::string> inputs;    ///< --input 'x=f32[1,72]'
  std::vector<std::string> settings;  ///< --set key=value
  std::vector<std::string> rules;     ///< --rules DIR
  std::int64_t max_steps = 20'000'000;
  std::string cxx_build;               ///< -p BUILD: folder of compile_commands.json
  std::vector<std::string> cxx_flags;  ///< after --: the compiler's flags
  bool cached = true;                  ///< --no-cache: what was read of C++ before is not used
};

/// A job with what its file says beyond the interpreter's keys.
struct JobFile {
  eval::Job job;
  std::string path;  ///< "" when MODEL was given directly
  emit::Grid grid;
  bool has_grid = false;
  int micro_batches = 0;                          ///< 0: not stated
  std::string schedule, target = "runtime", out;  ///< schedule: "" when it is not stated
  std::string prepare;                            ///< verify.prepare, absolute
  std::string train_script;                       ///< train.script, absolute
  std::string data_ranks;                         ///< train.data_ranks: "all", "needed"; "": not said
  std::vector<std::string> reinit;
  std::string loss;
  bool by_path = false;             ///< the model is a file: its neighbours may be copied
  std::string entry_dir;            ///< folder of that file
  std::string cxx_file, cxx_build;  ///< a model in C++: its file, the folder of its compile_commands.json
  std::vector<std::string> cxx_flags;
  std::shared_ptr<cxx::Unit> cxx;  ///< what was read of it (trace_model); else null
};

/// Reads the C++ file of a job (cxx_file) and names the class in it as the interpreter does.
support::Expected<bool> read_cxx(const ModelRequest&, JobFile&, support::SourceManager&);

/// Reads a job file or makes a job of MODEL and the options.
support::Expected<JobFile> load_job(const ModelRequest&, support::SourceManager&);

/// The runtime's schedules (runtime/python/shardwright/parallel/schedules.py).
inline const std::vector<std::string> kSchedules = {"1f1b", "gpipe", "interleaved", "zb-h1", "zb-v"};

struct PlanRequest {
  emit::Grid grid;  ///< pp: stages, all of them
  int micro_batches = 0;
  std::string schedule = "1f1b", objective = "split", device;
  std::string plan_file;                                        ///< --plan FILE
  std::vector<std::string> whole;                               ///< parameters that no axis may cut
  std::set<std::pair<model::Clock, pipeline::CutKind>> no_cut;  ///< cuts that may not be taken
  std::set<int> built_whole;              ///< stages whose constructors build all of the model and drop what is not theirs
  const rules::Target* target = nullptr;  ///< whose layers and conventions the text is written for; nullptr: our runtime's
};

/// The plan that --plan names; a text that is none, or a file that cannot be read, is an error.
support::Expected<plan::Plan> read_plan(const PlanRequest&, support::SourceManager&);

/// Called with what is being done, for a progress line.
using Progress = std::function<void(const std::string&)>;

struct Analysis {
  JobFile file;
  std::shared_ptr<python::Syntax> syntax;  ///< of all files read in this run
  std::shared_ptr<const rules::Database> rules;
  std::unique_ptr<rules::Target> target;  ///< of a model in C++ when none was asked for
  std::unique_ptr<eval::Traced> traced;
  std::unique_ptr<eval::Traced> other;  ///< at another batch size; may be null
  sharding::Result sharding;
  pipeline::Partition partition;
  rewrite::TpEdits edits;
  std::unique_ptr<rewrite::StageSlicer> slicer;  ///< null at pp = 1
  rewrite::Specialized specialized;
  rewrite::TypedText typed;  ///< of a model in C++
  plan::Plan plan;
  std::vector<std::pair<std::string, int>> refused_cuts;  ///< cuts that the source cannot express: reason, how many
  std::vector<support::Diagnostic> warnings;
};

/// Traces only (tree).
support::Expected<std::unique_ptr<Analysis>> trace_model(const ModelRequest&, support::SourceManager&, const Progress&);
/// Traces, places, partitions and derives the edits.
support::Expected<std::unique_ptr<Analysis>> analyse(const ModelRequest&, const PlanRequest&, support::SourceManager&, const Progress&);
/// Places, partitions and derives the edits of a model that was analysed before, anew.
support::Expected<bool> plan_again(Analysis&, const ModelRequest&, const PlanRequest&, support::SourceManager&, const Progress&);

/// Where the entry module's text can only be copied: modules below the folder of an entry file given by its path.
std::function<bool(const program::Module&)> copied_modules(const JobFile&, const support::SourceManager&);

}  // namespace shardwright::driver
