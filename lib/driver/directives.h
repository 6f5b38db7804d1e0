// What a person says about tensor and pipeline parallelism in comments of the model's source:
//
//   self.head = nn.Linear(d, n)   # shardwright: replicate     what this statement (or class) makes stays whole on every rank
//   # shardwright: keep                                        the same, and no stage ends inside of it: its code stays as it is
//   # shardwright: cut-here                                    a stage ends before the statement below; behind a statement: after it
#pragma once
#include <set>
#include <string>
#include <vector>

#include "model/trace.h"
#include "support/diagnostic.h"
#include "support/source.h"

namespace shardwright::driver {

struct Directives {
  std::vector<std::string> whole;        ///< parameters that no axis may cut
  std::set<const program::Expr*> uncut;  ///< constructor calls of modules that no cut may lie in
  struct Here {
    support::Range comment;
    std::vector<model::Clock> clocks;  ///< one for every time that forward passes there
  };
  std::vector<support::Diagnostic> unknown;  ///< comments that ask for nothing known
  std::vector<Here> cuts;                    ///< comments in code that forward ran, in order
};

/// Those in the files of the user's classes and functions that the trace saw.
Directives directives(const model::Trace&, support::SourceManager&);

}  // namespace shardwright::driver
