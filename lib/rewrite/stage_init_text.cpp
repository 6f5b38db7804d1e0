// The text of a stage's __init__: what InitSlice decided, written down.
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "rewrite/stage_init.h"
#include "rewrite/text_layout.h"

namespace shardwright::rewrite::stage {

std::optional<std::string> InitSlice::text(const Function* f, const RenderText& render, Uses& uses) const {
  if (std::find(functions_.begin(), functions_.end(), f) == functions_.end()) return std::nullopt;
  std::vector<Edit> edits;
  if (const auto it = edits_.find(f); it != edits_.end()) edits = it->second;
  const std::string& file = c_.sources.file(f->def_range.file).text;
  const Layout& layout = c_.layout(f);
  auto line_start = [&](std::uint32_t at) {
    while (at > 0 && file[at - 1] != '\n') --at;
    return at;
  };
  auto line_end = [&](std::uint32_t at) {
    while (at < file.size() && file[at] != '\n') ++at;
    return at;
  };
  // Which statements go, compound ones with all of their bodies.
  std::function<bool(const Stmt*)> gone = [&](const Stmt* s) -> bool {
    if (drop_.count(s)) return true;
    if (s->kind != StmtKind::If && s->kind != StmtKind::For && s->kind != StmtKind::With) return false;
    auto all = [&](const Block& b) {
      return std::all_of(b.begin(), b.end(), [&](const Stmt* k) { return gone(k) || k->kind == StmtKind::Pass; });
    };
    auto any = [&](const Block& b) { return std::any_of(b.begin(), b.end(), [&](const Stmt* k) { return gone(k); }); };
    return all(s->body) && all(s->orelse) && (any(s->body) || any(s->orelse));
  };
  std::function<void(const Block&, const Stmt*)> block = [&](const Block& b, const Stmt* parent) {
    bool empty = !b.empty();
    for (const Stmt* s : b) empty &= gone(s);
    const auto shares_line = [&](std::size_t i) { return i + 1 < b.size() && line_end(b[i]->range.end) >= b[i + 1]->range.begin; };
    for (std::size_t i = 0; i < b.size(); ++i) {
      const Stmt* s = b[i];
      if (!gone(s)) {
        if (s->kind == StmtKind::FunctionDef || s->kind == StmtKind::ClassDef) continue;
        block(s->body, s);
        block(s->orelse, s);
        block(s->finally, s);
        for (const auto& h : s->handlers) block(h.body, s);
        continue;
      }
      if (empty && i + 1 == b.size()) {
        edits.push_back({s->range, "pass"});
        continue;
      }
      const std::uint32_t begin = line_start(s->range.begin);
      // Statements that share a line: `a; b; c` without b.
      const std::size_t first = i;
      while (shares_line(i) && gone(b[i + 1]) && !(empty && i + 2 == b.size())) ++i;
      if (shares_line(i)) {
        edits.push_back({{s->range.file, s->range.begin, b[i + 1]->range.begin}, ""});
        continue;
      }
      if (first > 0 && shares_line(first - 1)) {
        edits.push_back({{s->range.file, b[first - 1]->range.end, b[i]->range.end}, ""});
        continue;
      }
      if (file.find_first_not_of(" \t", begin) != s->range.begin) {  // behind its header
        edits.push_back({{s->range.file, s->range.begin, b[i]->range.end}, "pass"});
        continue;
      }
      // With the comments above it, but not the blank lines above those.
      const std::string above = layout.above(s, b, first, parent);
      const auto text_at = above.find_first_not_of(" \t\r\n");
      std::uint32_t from = begin;
      if (text_at != std::string::npos) {
        const auto first = above.rfind('\n', text_at);
        from = begin - static_cast<std::uint32_t>(above.size()) + static_cast<std::uint32_t>(first == std::string::npos ? 0 : first + 1);
      } else if (!above.empty() && i + 1 == b.size()) {
        from = begin - static_cast<std::uint32_t>(above.size());
      }
      // The newline before it goes rather than the one behind: the text of a method ends without one.
      std::uint32_t to = line_end(b[i]->range.end);
      if (from > 0) --from;
      edits.push_back({{s->range.file, from, to}, ""});
    }
  };
  block(f->body, nullptr);
  const Suite lines = suite_of(c_.sources, f->body, f->def_range.begin);
  std::string tail;
  const auto& init = c_.trace.module(module_).init_frame;
  if (narrow_ && init >= 0 && c_.trace.frame(init).function == f) {
    const auto keep = keep_list();
    std::vector<std::string> quoted;
    for (const auto& k : keep) quoted.push_back("\"" + k + "\"");
    tail = "\n" + lines.indent + fmt::format("drop_unused({}, [{}])", self_name(f), fmt::join(quoted, ", "));
    uses.drop_unused = true;
  }
  if (const auto& described = use_.described(stage_);
      module_ == 0 && !described.empty() && init >= 0 && c_.trace.frame(init).function == f) {
    tail += "\n" + lines.indent + fmt::format("attributes_only({}, [\"{}\"])", self_name(f), fmt::join(described, "\", \""));
    uses.attributes_only = true;
  }
  if (edits.empty() && tail.empty()) return std::nullopt;
  if (lines.on_header && !tail.empty())
    for (const auto& [range, text] : lines.breaks) edits.push_back({range, text});
  std::uint32_t end = end_with_comments(file, f->def_range);
  for (const Edit& e : edits) end = std::max(end, e.range.end);
  std::string out = with_edits({f->def_range.file, f->def_range.begin, end}, edits, render);
  while (!out.empty() && (out.back() == '\n' || out.back() == ' ')) out.pop_back();
  if (uses_absent_ && out.find("Absent") != std::string::npos) uses.absent = true;
  return layout.as_indented(out + tail);
}

}  // namespace shardwright::rewrite::stage
