// The list of the checks in this folder. tools/new-check adds to it.
#include "lint/checks/check.h"

namespace shardwright::lint {

void sw901_syntax(const FileContext&);
// new declarations go above this line

void run_file_checks(const FileContext& file) {
  sw901_syntax(file);
  // new calls go above this line
}

}  // namespace shardwright::lint
