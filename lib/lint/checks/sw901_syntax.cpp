// SW901: a file that cannot be parsed. Only its first error: the others follow from it more often than not.
#include "lint/checks/check.h"

namespace shardwright::lint {

void sw901_syntax(const FileContext& file) {
  if (file.module.syntax_errors.empty()) return;
  file.add(support::Severity::Error, "SW901", file.module.syntax_errors.front(),
           "this cannot be parsed; the file was looked at without it");
}

}  // namespace shardwright::lint
