// One run of lint around the analysis: configuration, checks, suppressions, selection, baseline; and fixing until nothing is left to fix.
#pragma once
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "driver/config.h"
#include "lint/fix.h"
#include "lint/lint.h"
#include "rules/lint.h"

namespace shardwright::driver {

/// The analysis; a stand-in in tests.
using Check = std::function<support::Expected<std::vector<support::Diagnostic>>(const lint::Request&, support::SourceManager&,
                                                                                const rules::Database&)>;

struct LintRequest {
  /// Steps for one class: enough for every class of the tests by far, and a class of many unknown branches ends before memory does.
  static constexpr std::int64_t kMaxSteps = 200'000;
  LintRequest() { what.max_steps = kMaxSteps; }

  lint::Request what;
  std::vector<std::string> select, ignore;  ///< codes or prefixes; `select` empty: all. The longer prefix wins, then `ignore`
  std::vector<std::string> exclude;         ///< globs on paths, their folders and their names
  std::string baseline;                     ///< a file, or ""
  bool read_baseline = true;
  std::string error_on;  ///< "error" or "warning"; "": the configuration's, else warning
  Check check;           ///< empty: lint::check
};

struct LintOutcome {
  std::vector<support::Diagnostic> findings;    ///< sorted, what is to be shown
  std::vector<support::Diagnostic> suppressed;  ///< by comments
  std::vector<support::Diagnostic> baselined;
  std::vector<std::string> stale;  ///< what the baseline counts too much
};

/// The request with what the configuration says where the command line said nothing. The configuration is that of the first path.
support::Expected<LintRequest> configured(LintRequest request, support::SourceManager& sm);

/// Checks prefixes of --select and --ignore: each has to begin a code that exists. The error names the nearest.
support::Expected<bool> known_codes(const std::vector<std::string>& prefixes, const std::string& option);

/// `request` is configured. `db` are the rules with the request's own folders.
support::Expected<LintOutcome> run_lint(const LintRequest& request, support::SourceManager& sm, const rules::Database& db);

/// Fixes in memory, to a fixpoint. See lint/fix.h.
support::Expected<lint::FixResult> fix_lint(const LintRequest& request, lint::OverlayFileSystem& overlay, const rules::Database& db,
                                            bool unsafe);

/// Writes fixed files, each whole or not at all, through links to the files themselves. Without `allow_dirty` a file with uncommitted
/// changes is an error and nothing is written. An error too when a file changed since it was read.
support::Expected<bool> write_fixes(const lint::FixResult& fixes, bool allow_dirty);

/// Is a finding counted for the exit code?
bool counts(const support::Diagnostic& d, const std::string& error_on);

}  // namespace shardwright::driver
