// Groups module instances (and calls of free functions) by the edits they need into as few definitions as possible, names
// them, and produces their text. docs/generation.md §3.
#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

#include "rewrite/rewrite.h"

namespace shardwright::rewrite {

/// A generated class or function.
struct Definition {
  std::string name;  ///< in the generated package
  const program::Module* origin = nullptr;
  std::string original;                 ///< its name there
  Range range;                          ///< of the original definition, decorators included
  std::string text;                     ///< edited source, at indentation 0, without a final newline
  std::set<std::string> runtime;        ///< names of the target's it uses
  std::set<std::string> plain_imports;  ///< whole lines: "from itertools import islice"
  std::map<std::string, int> refs;      ///< name in the text → index of the definition it means
  std::vector<std::string> entering;    ///< its decorators that put it into a registry of the program's, as written
  bool asked = false;                   ///< the program asks isinstance(…, the original class)
  int stage = -1;                       ///< -1: shared by all stages; else it belongs into that stage's file
  std::vector<std::string> why;         ///< one line per edit, for the README of the directory
};

/// The expression (or class call) that builds the model, with the constructors and functions it calls redirected.
struct BuildText {
  std::string text;
  std::map<std::string, int> refs;
};

/// A class of the top level of a module that a constructor call finds by a value: `REGISTRY[kind](…)`.
struct ByValue {
  const program::Module* module = nullptr;
  std::string name;
  bool in_globals = false;  ///< `globals()[kind](…)`: the file of the call must have its name
};

struct Specialized {
  std::vector<Definition> definitions;
  std::vector<int> stage_roots;  ///< definition of each stage's root class
  BuildText build;               ///< the root class's call, its callee unchanged
  BuildText factory;             ///< the job's whole build expression, where a function that it calls makes the root
  /// Definitions that are reached by a name in a registry, and the module whose registry it is.
  std::vector<std::pair<const program::Module*, int>> looked_up;
  std::vector<ByValue> by_value;
  bool modules_asked = false;     ///< the program asks classes for their `__module__`
  std::vector<Refusal> refusals;  ///< verdicts that contradict each other: those axes are planned again without
};

/// What the text of a class that `isinstance` is asked about calls the class that it was made of.
inline std::string original_name(const std::string& name) { return "Original" + name; }

/// `stages` is nullptr when there is one stage. `target`: its names and stage conventions; without one, those of shardwright.parallel.
Specialized specialize(const model::Trace&, const TpEdits&, const StageSlicer* stages, int stage_count, const support::SourceManager&,
                       const rules::Target* target = nullptr);

}  // namespace shardwright::rewrite
