// Where an addition to a list of arguments or parameters goes: on a line of its own where the last one has that. Where the comments of a
// definition end. Bodies on their header's line.
#pragma once
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "program/program.h"
#include "support/source.h"

namespace shardwright::rewrite {

/// "\n" and the indentation when the range begins its line, else "".
inline std::string line_of_its_own(const support::SourceManager& sources, const support::Range& r) {
  std::string_view line = sources.line_at(r.file, r.begin);
  const std::size_t indent = line.find_first_not_of(" \t");
  if (indent == std::string_view::npos || sources.position(r.file, r.begin).column != indent + 1) return "";
  return "\n" + std::string(line.substr(0, indent));
}

/// The end of a definition with its comments: the one behind its last statement, and the comment lines below that are indented deeper than
/// the definition (a parser counts neither to it).
inline std::uint32_t end_with_comments(const std::string& text, const support::Range& r) {
  const auto line_end = [&](std::size_t at) {
    const auto end = text.find('\n', at);
    return end == std::string::npos ? text.size() : end;
  };
  const auto first_of = [&](std::size_t at) { return std::min(text.find_first_not_of(" \t\r", at), text.size()); };
  std::size_t end = r.end;
  if (const auto at = first_of(end); at < text.size() && text[at] == '#') end = line_end(at);
  else if (at < text.size() && text[at] != '\n') return r.end;  // another statement behind it
  const std::size_t column = r.begin == 0 ? 0 : r.begin - (text.rfind('\n', r.begin - 1) + 1);
  for (std::size_t at = line_end(end); at < text.size();) {
    const std::size_t next = line_end(at + 1), first = first_of(at + 1);
    if (first < next) {
      if (text[first] != '#' || first - (at + 1) <= column) break;
      end = next;
    }
    at = next;
  }
  while (end > r.end && (text[end - 1] == '\r' || text[end - 1] == ' ')) --end;
  return static_cast<std::uint32_t>(end);
}

/// The lines of a body, to which statements are to be added: `def f(self): a; b` has none of its own.
struct Suite {
  std::string indent;                                          ///< of its statements where each begins a line
  bool on_header = false;                                      ///< it stands on its header's line
  std::vector<std::pair<support::Range, std::string>> breaks;  ///< replacements after which every statement begins a line
};
/// `header`: where the header (`def`, `for`, `else`) begins. The body is not empty.
Suite suite_of(const support::SourceManager& sources, const std::vector<program::Stmt*>& body, std::uint32_t header);

}  // namespace shardwright::rewrite
