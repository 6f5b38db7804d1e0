// Where an addition to a list of arguments or parameters goes: on a line of its own where the last one has that.
#pragma once
#include <string>

#include "support/source.h"

namespace shardwright::rewrite {

/// "\n" and the indentation when the range begins its line, else "".
inline std::string line_of_its_own(const support::SourceManager& sources, const support::Range& r) {
  std::string_view line = sources.line_at(r.file, r.begin);
  const std::size_t indent = line.find_first_not_of(" \t");
  if (indent == std::string_view::npos || sources.position(r.file, r.begin).column != indent + 1) return "";
  return "\n" + std::string(line.substr(0, indent));
}

}  // namespace shardwright::rewrite
