// Applying fixes: round after round until nothing more can be fixed, in memory; the caller writes.
//
// A round looks for findings, takes the fixes that may be applied and do not touch each other (in the order of the findings; the others
// wait for the next round), applies them, and reads the result again: a fix after which a file cannot be parsed, though it could before, is
// taken back; one that loses a comment counts as "review". A fix is applied with all its edits, in all its files, or not at all.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "lint/files.h"
#include "support/diagnostic.h"

namespace shardwright::lint {

/// Finds with the texts of the given file system. Suppressed and unselected findings are gone.
using Find = std::function<support::Expected<std::vector<support::Diagnostic>>(support::SourceManager&, const python::FileSystem&)>;

struct FixedFile {
  std::string before, after;
};

struct FixResult {
  std::map<std::string, FixedFile> files;  ///< by path as found; only those that differ
  std::size_t applied = 0;
  std::vector<std::string> taken_back;  ///< "layers/mlp.py:12: SW103: the file could not be parsed after it"
  std::map<std::string, std::size_t> by_code;
};

constexpr int kMostRounds = 30;

/// `unsafe`: fixes marked "review" too; "manual" never. `overlay` has the fixed texts afterwards.
support::Expected<FixResult> apply_fixes(const Find& find, OverlayFileSystem& overlay, bool unsafe);

}  // namespace shardwright::lint
