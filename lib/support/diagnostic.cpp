#include "support/diagnostic.h"

#include <algorithm>

namespace shardwright::support {

namespace {

const char* name(Severity s) {
  switch (s) {
    case Severity::Note: return "note";
    case Severity::Info: return "info";
    case Severity::Warning: return "warning";
    case Severity::Error: return "error";
  }
  return "error";
}

const char* colour(Severity s) {
  switch (s) {
    case Severity::Note: return "\033[36m";
    case Severity::Info: return "\033[34m";
    case Severity::Warning: return "\033[33m";
    case Severity::Error: return "\033[31m";
  }
  return "";
}

// Bytes that start a character: what a caret line has to count for UTF-8 text.
std::size_t characters(std::string_view s) {
  return static_cast<std::size_t>(std::count_if(s.begin(), s.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

void indent_lines(std::string& out, const std::string& message, std::string_view indent) {
  for (char c : message) {
    out += c;
    if (c == '\n') out += indent;
  }
}

// The source line and a caret line that underlines the range as far as that line goes.
void snippet(std::string& out, const Range& r, const SourceManager& sm, std::string_view indent, const char* on, const char* off) {
  if (!r.valid() || static_cast<std::size_t>(r.file) >= sm.size()) return;
  const std::string_view line = sm.line_at(r.file, r.begin);
  const std::size_t column = std::min<std::size_t>(sm.position(r.file, r.begin).column - 1, line.size());
  constexpr std::size_t kLongest = 400;  // minified sources: a line nobody can read helps nobody
  if (line.size() > kLongest) return;
  out += indent;
  out += line;
  out += '\n';
  out += indent;
  for (std::size_t i = 0; i < column; ++i)
    if ((static_cast<unsigned char>(line[i]) & 0xC0) != 0x80) out += line[i] == '\t' ? '\t' : ' ';
  const std::size_t width = std::min<std::size_t>(r.end > r.begin ? r.end - r.begin : 1, line.size() - column);
  out += on;
  out += '^';
  const std::size_t shown = characters(line.substr(column, width));
  if (shown > 1) out += std::string(shown - 1, '~');
  out += off;
  out += '\n';
}

}  // namespace

bool Diagnostics::has_errors() const {
  return std::any_of(all_.begin(), all_.end(), [](const Diagnostic& d) { return d.severity == Severity::Error; });
}

std::string render(const Diagnostic& d, const SourceManager& sm, bool color) {
  const char* bold = color ? "\033[1m" : "";
  const char* off = color ? "\033[0m" : "";
  const char* tint = color ? colour(d.severity) : "";
  std::string out;
  if (d.range.valid()) out += bold + sm.describe(d.range) + ": " + off;
  out += std::string(bold) + tint + name(d.severity) + off;
  out += ": ";
  indent_lines(out, d.message, "  ");
  // "input" and its like classify; only numbered codes are worth a reader's look-up.
  if (d.code.rfind("SW", 0) == 0) out += " [" + d.code + "]";
  out += '\n';
  snippet(out, d.range, sm, "    ", tint, off);
  for (const Note& n : d.notes) {
    out += "  ";
    if (n.range.valid()) out += sm.describe(n.range) + ": ";
    out += color ? std::string(colour(Severity::Note)) + "note" + off + ": " : std::string("note: ");
    indent_lines(out, n.message, "    ");
    out += '\n';
    snippet(out, n.range, sm, "      ", color ? colour(Severity::Note) : "", off);
  }
  return out;
}

}  // namespace shardwright::support
