// SW901: a file that cannot be parsed. Only its first error: the others follow from it more often than not.
#include "lint/checks/check.h"

namespace shardwright::lint {

void sw901_syntax(const FileContext& file) {
  if (file.module.syntax_errors.empty()) return;
  const support::Range where = file.module.syntax_errors.front();
  const bool nul = file.sources.text(where) == std::string_view("\0", 1);
  file.add(support::Severity::Error, "SW901", where,
           nul ? "a NUL byte: this is no Python source, nothing of the file was looked at (UTF-16? save it as UTF-8)"
               : "this cannot be parsed; the file was looked at without it");
}

}  // namespace shardwright::lint
