// Baselines: findings that were there when checking began, counted by file and code, so that moving lines does not matter.
//
//   {"shardwright_baseline": 1, "findings": {"layers/mlp.py": {"SW106": 2}}}
//
// Paths are relative to the baseline file's folder. A file with at most as many findings of a code as counted shows none of them; with
// more it shows all of that code: which one is new, nobody can tell.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "support/diagnostic.h"
#include "support/result.h"

namespace shardwright::lint {

struct Baseline {
  std::map<std::string, std::map<std::string, int>> counts;  ///< path → code → how many
};

/// Checked strictly; an error names the file and the place.
support::Expected<Baseline> read_baseline(const std::string& path, support::SourceManager& sm);

/// The text of a baseline of errors and warnings at `path`. Findings without a file are not counted.
std::string baseline_text(const std::vector<support::Diagnostic>& findings, const support::SourceManager& sm, const std::string& path);

struct BaselineUse {
  std::vector<support::Diagnostic> covered;
  std::vector<std::string> stale;  ///< "layers/mlp.py: SW106 counted 2, found 1"
};

/// Takes out of `findings` what the baseline at `path` covers. A file that has findings, but fewer than counted, is stale.
BaselineUse apply_baseline(const Baseline& baseline, const std::string& path, std::vector<support::Diagnostic>& findings,
                           const support::SourceManager& sm);

}  // namespace shardwright::lint
