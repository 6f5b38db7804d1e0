#include "emit/comments.h"

#include <algorithm>
#include <cctype>

#include "rewrite/text_layout.h"

namespace shardwright::emit {
namespace {

using program::Stmt;
using program::StmtKind;

support::Range whole(const Stmt& s) {
  if (s.kind == StmtKind::FunctionDef) return s.function->range;
  if (s.kind == StmtKind::ClassDef) return s.class_def->range;
  return s.range;
}

const Stmt* docstring_of(const program::Module& m) {
  if (m.body.empty() || m.body[0]->kind != StmtKind::Expression || !m.body[0]->value || m.body[0]->value->kind != program::ExprKind::String)
    return nullptr;
  return m.body[0];
}

std::size_t line_end(const std::string& text, std::size_t at) { return std::min(text.find('\n', at), text.size()); }

/// The comment lines of text[from, to) with the blank lines between and behind them, not those before.
std::string comment_lines(const std::string& text, std::size_t from, std::size_t to) {
  std::string out;
  while (from < to) {
    const std::size_t end = std::min(line_end(text, from), to);
    std::string line = text.substr(from, end - from);
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    const auto first = line.find_first_not_of(" \t");
    if (first == std::string::npos ? !out.empty() : line[first] == '#') out += line + "\n";
    from = end + 1;
  }
  return out.find('#') == std::string::npos ? "" : out;
}

/// Where the comments that belong to a statement end.
std::size_t end_of(const std::string& text, const Stmt& s) {
  const auto r = whole(s);
  if (s.kind == StmtKind::FunctionDef || s.kind == StmtKind::ClassDef) return rewrite::end_with_comments(text, r);
  const auto at = std::min(text.find_first_not_of(" \t", r.end), text.size());
  return at < text.size() && text[at] == '#' ? line_end(text, at) : r.end;
}

/// From the end of the statement before to the start of this one's line.
std::string before(const std::string& text, std::size_t from, const Stmt& s) {
  const std::size_t begin = whole(s).begin, line = begin == 0 ? 0 : text.rfind('\n', begin - 1) + 1;
  if (from > 0) from = line_end(text, from) + 1;
  return from < line ? comment_lines(text, from, line) : "";
}

/// Where a heading ends that comments above the first statement begin with: behind the last blank line.
std::size_t heading_end(const std::string& above) {
  const auto blank = above.rfind("\n\n");
  return blank == std::string::npos ? 0 : blank + 2;
}

}  // namespace

Comments comments_of(const program::Module& m, const Stmt& s, const support::SourceManager& sources) {
  const auto at = std::find(m.body.begin(), m.body.end(), &s);
  if (at == m.body.end() || !s.range.valid()) return {};
  const std::string& text = sources.file(s.range.file).text;
  const Stmt* doc = docstring_of(m);
  Comments out;
  out.above = before(text, at == m.body.begin() ? 0 : end_of(text, **(at - 1)), s);
  if (&s == doc) out.above.clear();
  else if (at == m.body.begin()) out.above.erase(0, heading_end(out.above));
  std::size_t end = end_of(text, s);
  out.behind = text.substr(whole(s).end, end - whole(s).end);
  if (at + 1 == m.body.end()) {
    std::string rest = comment_lines(text, std::min(line_end(text, end) + 1, text.size()), text.size());
    while (!rest.empty() && rest.back() == '\n') rest.pop_back();
    out.after = rest;
  }
  while (!out.behind.empty() && out.behind.back() == '\r') out.behind.pop_back();
  return out;
}

std::string heading(const program::Module& m, const support::SourceManager& sources) {
  if (m.body.empty() || !m.body[0]->range.valid()) return "";
  const std::string& text = sources.file(m.body[0]->range.file).text;
  std::string above = before(text, 0, *m.body[0]);
  if (m.body[0] != docstring_of(m)) above.resize(heading_end(above));
  if (above.starts_with("#!")) above.erase(0, line_end(above, 0) + 1);
  while (above.ends_with("\n\n")) above.pop_back();
  return above.find('#') == std::string::npos ? "" : above;
}

std::string docstring(const program::Module& m, const support::SourceManager& sources) {
  const Stmt* s = docstring_of(m);
  return s && s->range.valid() ? std::string(sources.text(s->range)) : "";
}

std::string comment_on_name(const Stmt& import, const std::string& name, const support::SourceManager& sources) {
  const std::string_view text = sources.text(import.range);
  const auto letter = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  for (std::size_t at = text.find(name); at != std::string_view::npos; at = text.find(name, at + 1)) {
    if ((at > 0 && letter(text[at - 1])) || (at + name.size() < text.size() && letter(text[at + name.size()]))) continue;
    const auto end = std::min(text.find('\n', at), text.size()), hash = text.find('#', at);
    return hash < end ? "  " + std::string(text.substr(hash, end - hash)) : "";
  }
  return "";
}

}  // namespace shardwright::emit
