#include "rules/embedded.h"

#include <algorithm>

namespace shardwright::rules {

std::optional<std::string_view> embedded(std::string_view path) {
  auto files = embedded_files();
  auto at = std::lower_bound(files.begin(), files.end(), path, [](const EmbeddedFile& f, std::string_view p) { return f.path < p; });
  if (at == files.end() || at->path != path) {
    // CMake sorts without regard to locale, but do not depend on it.
    at = std::find_if(files.begin(), files.end(), [&](const EmbeddedFile& f) { return f.path == path; });
    if (at == files.end()) return std::nullopt;
  }
  return at->text;
}

}  // namespace shardwright::rules
