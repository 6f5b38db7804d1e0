#include "rewrite/text_layout.h"

namespace shardwright::rewrite {

Suite suite_of(const support::SourceManager& sources, const std::vector<program::Stmt*>& body, std::uint32_t header) {
  const support::FileId file = body.front()->range.file;
  const std::string& text = sources.file(file).text;
  const auto indent_at = [&](std::uint32_t at) {
    const std::string_view line = sources.line_at(file, at);
    return std::string(line.substr(0, line.find_first_not_of(" \t")));
  };
  const auto begins_line = [&](std::uint32_t at) { return sources.position(file, at).column == indent_at(at).size() + 1; };
  Suite out;
  const std::uint32_t first = body.front()->range.begin;
  out.on_header = !begins_line(first);
  out.indent = indent_at(out.on_header ? header : first);
  if (out.on_header) {
    out.indent += out.indent.find('\t') == std::string::npos ? "    " : "\t";
    std::uint32_t colon = first;
    while (colon > 0 && (text[colon - 1] == ' ' || text[colon - 1] == '\t')) --colon;
    out.breaks.push_back({{file, colon, first}, "\n" + out.indent});
  }
  for (std::size_t i = 1; i < body.size(); ++i)
    if (const std::uint32_t at = body[i]->range.begin; !begins_line(at))
      out.breaks.push_back({{file, body[i - 1]->range.end, at}, "\n" + out.indent});
  return out;
}

}  // namespace shardwright::rewrite
