// Lint: what goes wrong in hand-written parallel code, found before it runs. Classes that use or contain parallel layers are
// interpreted at local sizes (lib/eval, the layers described in rules/layers), placements are propagated over the trace, and
// each check reads operations and placements. A check that cannot be sure stays silent.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "python/resolve.h"
#include "rules/rules.h"
#include "support/result.h"
#include "support/source.h"

namespace shardwright::lint {

/// What an expression holds at one rank: for an editor's hover.
struct ValueAt {
  support::Range range;
  std::string text;
};

struct Request {
  std::vector<std::string> paths;             ///< files and folders to look at
  std::vector<std::string> python_path;       ///< where imports are searched besides the folders of `paths`
  std::vector<std::string> rules;             ///< folders of the user's own rules
  const python::FileSystem* files = nullptr;  ///< null: the disk; else an editor's buffers, fixes not written yet (lint/files.h)
  std::vector<ValueAt>* values = nullptr;     ///< filled with the values of the expressions of the files looked at, as far as classes run
  std::string cache;                          ///< a folder for findings of earlier runs (lint/cache.h); "": none
  int tp = 0;                                 ///< tensor-parallel size to assume; 0: 2
  std::int64_t max_steps = 20'000'000;        ///< step budget of the interpreter for one class
};

/// Every finding, by file and place, whatever its severity: suppressions, selection and baselines are the caller's. `notes` are
/// the other ends of the story (where the value became sharded). An error only when nothing could be looked at at all.
support::Expected<std::vector<support::Diagnostic>> check(const Request&, support::SourceManager&, const rules::Database&);

}  // namespace shardwright::lint
