// From a job (commands.md, "Job file") to a trace: builds the model, runs its forward on abstract tensors.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eval/interpreter.h"
#include "eval/observer.h"
#include "model/trace.h"
#include "python/syntax.h"
#include "support/result.h"
#include "support/source.h"

namespace shardwright::rules {
class Database;
}

namespace shardwright::eval {

/// One input of forward: a tensor, or a Python expression.
struct InputSpec {
  std::string expression;  ///< "=expr": its text; else empty
  model::DType dtype = model::DType::F32;
  std::vector<std::int64_t> shape;
  std::vector<bool> free;          ///< sizes marked "?": a bare ? has size 1 until resized
  std::int64_t low = 0, high = 0;  ///< integers: low <= x < high; both 0: not stated
  std::string distribution;        ///< floats: "normal" (default) or "rand"
};

struct Job {
  std::string model;                                         ///< "path/file.py:Class" or "package.module:Class"
  std::vector<std::string> python_path;                      ///< absolute, or relative to the job file's folder (already joined)
  std::vector<std::pair<std::string, std::string>> imports;  ///< name → dotted object
  std::string setup;                                         ///< statements
  std::string build;                                         ///< expression; empty: Class(**args)
  std::vector<std::pair<std::string, std::string>> args;     ///< name → expression
  std::vector<std::pair<std::string, InputSpec>> inputs;
  std::string call;  ///< expression; empty: model(*inputs)
  bool keyword = false;
  bool train = false;  ///< mode: train
  std::int64_t seed = 0;
};

/// A run of parallel code as one rank sees it.
struct Watch {
  Observer* observer = nullptr;     ///< must outlive the run
  int tp = 1, rank = 0;             ///< what descriptions of parallel layers take as their group
  bool parallel_libraries = false;  ///< imports of parallel libraries are answered by rules/parallel
};

struct Options {
  std::int64_t max_steps = 20'000'000;
  std::shared_ptr<const rules::Database> rules;  ///< null: the embedded ones
  std::shared_ptr<python::Syntax> syntax;        ///< shared between traces with one SourceManager; null: its own
  Watch watch;
  std::vector<std::string> rules_dirs;  ///< folders whose layers/**.py describe modules; they win over the embedded ones
  /// Modules that are not where the search path would find them: dotted name → file (generated code that is not in its place yet).
  std::vector<std::pair<std::string, std::string>> modules;
  /// Modules that another front end than Python's has read; they outlive the trace.
  std::vector<program::Module*> programs;
  /// Modules that are described rather than read, as rules/layers are: dotted name → text.
  std::vector<std::pair<std::string, std::string>> described;
};

/// Parses "f32[1,72,?]~rand", "i64[2,16]<128", "i64[4]2..128", "=None".
support::Expected<InputSpec> parse_input(std::string_view text);
/// Reads the interpreter's keys of a job file (others are left to their readers). `path` is for messages and relative paths.
support::Expected<Job> parse_job(std::string_view yaml, const std::string& path);
/// The job at k times its batch size: sizes marked "?"; where none is, dimension 0 of every input that has the first shaped input's size
/// there (a mask of [T, T] beside [B, T, D] keeps its sizes). verify's second batch size is chosen the same way.
Job with_batch(const Job& job, std::int64_t k);
/// Jobs that differ in those sizes, to be tried in order: the first that runs tells what depends on them. The batch can be any; a
/// marked size may have an upper bound (the longest sequence) or a divisor (a patch).
std::vector<Job> at_other_sizes(const Job& job);

/// A trace and what it points into. Keep it as long as the trace is used.
struct Traced {
  model::Trace trace;
  std::unique_ptr<ModuleSource> loader;  ///< owns the syntax trees
  std::unique_ptr<Interpreter> interpreter;
  std::string entry_module;                                    ///< dotted
  std::vector<std::pair<std::string, std::string>> arguments;  ///< the job's `args` as evaluated: a bare word that names nothing is quoted
  ClassObj* root_class = nullptr;
  std::vector<model::Incomplete> lost;  ///< parts of what forward returned that are not known, and since where
};

/// Builds and runs. Errors carry the Python error with file, line and call stack as notes.
support::Expected<std::unique_ptr<Traced>> trace(const Job& job, const Options& options, support::SourceManager& sm);

}  // namespace shardwright::eval
