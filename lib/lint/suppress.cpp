#include "lint/suppress.h"

#include <algorithm>
#include <map>

#include "program/visit.h"
#include "python/parse.h"
#include "support/yaml.h"

namespace shardwright::lint {
namespace {

using support::Diagnostic;
using support::Range;
using support::Severity;

constexpr std::string_view kMark = "shardwright:";

bool is_space(char c) { return c == ' ' || c == '\t'; }

struct Lines {
  std::uint32_t first = 0, last = 0;
};

// First and last line of every statement; of a compound one only its head, which ends before its first inner statement.
std::vector<Lines> statement_lines(const support::SourceManager& sm, const program::Module& m) {
  std::vector<Lines> out;
  program::walk(m.body, [&](const program::Stmt* s) {
    Lines l{sm.position(m.file, s->range.begin).line, sm.position(m.file, std::max(s->range.begin + 1, s->range.end) - 1).line};
    std::uint32_t inner = 0;
    program::for_each_child(s, [&](const program::Stmt* child) {
      const auto line = sm.position(m.file, child->range.begin).line;
      if (inner == 0 || line < inner) inner = line;
    });
    if (inner != 0) l.last = std::max(l.first, inner > l.first ? inner - 1 : l.first);
    out.push_back(l);
    return true;
  });
  std::sort(out.begin(), out.end(),
            [](const Lines& a, const Lines& b) { return a.first < b.first || (a.first == b.first && a.last < b.last); });
  return out;
}

// The lines a comment on `line` holds for; `alone`: nothing but the comment is on the line.
Lines reach(const std::vector<Lines>& statements, std::uint32_t line, bool alone) {
  if (alone) {
    // Inside a bracketed expression the next line; between statements the statement that comes next.
    const Lines* around = nullptr;
    for (const Lines& s : statements)
      if (s.first < line && line < s.last) around = &s;
    if (around) return {line + 1, line + 1};
    for (const Lines& s : statements)
      if (s.first > line) return s;
    return {line + 1, line + 1};
  }
  // The innermost statement that begins or ends here: statements are sorted by their beginning, so the last one that does.
  Lines out{line, line};
  for (const Lines& s : statements)
    if (s.first <= line && line <= s.last) out = s.first == line || s.last == line ? s : Lines{line, line};
  return out;
}

Diagnostic finding(Severity severity, const char* code, Range range, std::string message) {
  Diagnostic d;
  d.severity = severity;
  d.code = code;
  d.range = range;
  d.message = std::move(message);
  return d;
}

}  // namespace

bool matches(const std::string& code, const std::vector<std::string>& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](const std::string& p) { return !p.empty() && code.compare(0, p.size(), p) == 0; });
}

std::vector<Directive> directives(support::SourceManager& sm, support::FileId file) {
  std::vector<Directive> out;
  if (sm.file(file).text.find(kMark) == std::string::npos) return out;
  program::Arena arena;
  support::Diagnostics ignored;
  const program::Module* m = python::parse(sm, file, arena, ignored);
  std::vector<Lines> statements;
  for (const Range& comment : m->comments) {
    const std::string_view text = sm.text(comment);
    const std::size_t mark = text.find(kMark);
    if (mark == std::string_view::npos) continue;
    // It has to be the comment's own beginning: "# see the shardwright: comment" is prose.
    std::size_t hash = mark;
    while (hash > 0 && is_space(text[hash - 1])) --hash;
    if (hash == 0 || text[hash - 1] != '#') continue;
    --hash;
    Directive d;
    d.comment = {file, comment.begin + static_cast<std::uint32_t>(hash), comment.end};
    std::size_t at = mark + kMark.size();
    while (at < text.size() && is_space(text[at])) ++at;
    const std::size_t word_at = at;
    while (at < text.size() && (std::isalnum(static_cast<unsigned char>(text[at])) || text[at] == '-' || text[at] == '_')) ++at;
    d.word = text.substr(word_at, at - word_at);
    d.rest = at - hash;
    if (statements.empty()) statements = statement_lines(sm, *m);
    const auto where = sm.position(file, comment.begin);
    const std::string_view line = sm.line_at(file, comment.begin);
    d.alone = std::all_of(line.begin(), line.begin() + where.column - 1, is_space);
    const Lines l = reach(statements, where.line, d.alone);
    d.first = l.first;
    d.last = l.last;
    out.push_back(std::move(d));
  }
  return out;
}

std::optional<std::string> unknown_request(const support::SourceManager& sm, const Directive& d) {
  static const std::vector<std::string> kKnown = {"ignore", "ignore-file", "keep", "replicate", "cut-here"};
  if (std::find(kKnown.begin(), kKnown.end(), d.word) != kKnown.end()) return std::nullopt;
  // "cut here", "Keep": the word and the next one, in small letters.
  std::string_view rest = sm.text(d.comment).substr(d.rest);
  while (!rest.empty() && is_space(rest.front())) rest.remove_prefix(1);
  std::size_t end = 0;
  while (end < rest.size() && !is_space(rest[end])) ++end;
  const auto small = [](std::string s) {
    for (char& c : s) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return s;
  };
  const std::string two = small(d.word + "-" + std::string(rest.substr(0, end)));
  const auto near = std::find(kKnown.begin(), kKnown.end(), two) != kKnown.end() ? two : support::yaml::nearest(small(d.word), kKnown);
  return "'shardwright: " + d.word + "' says nothing" + (near ? "; did you mean '" + *near + "'?" : "") +
      (near ? " Known are " : "; known are ") + "keep, replicate, cut-here, ignore[CODE], ignore-file[CODE]";
}

std::vector<Suppression> suppressions(support::SourceManager& sm, support::FileId file, const std::vector<std::string>& codes,
                                      std::vector<Diagnostic>& found) {
  std::vector<Suppression> out;
  for (const Directive& d : directives(sm, file)) {
    const std::string_view text = sm.text(d.comment);
    const std::string& word = d.word;
    std::size_t at = d.rest;
    auto skip = [&] {
      while (at < text.size() && is_space(text[at])) ++at;
    };
    auto place = [&](std::size_t begin, std::size_t end) {
      return Range{file, d.comment.begin + static_cast<std::uint32_t>(begin), d.comment.begin + static_cast<std::uint32_t>(end)};
    };
    if (word != "ignore" && word != "ignore-file") {
      if (auto wrong = unknown_request(sm, d))
        found.push_back(finding(Severity::Warning, "SW904", place(0, text.size()), std::move(*wrong)));
      continue;
    }
    Suppression s;
    s.comment = place(0, text.size());
    s.file = word == "ignore-file";
    skip();
    const std::size_t close = at < text.size() && text[at] == '[' ? text.find(']', at) : std::string_view::npos;
    if (close == std::string_view::npos) {
      found.push_back(
          finding(Severity::Warning, "SW904", s.comment,
                  "a suppression names its codes: '# shardwright: " + word + "[SW101] why it is right here'; this one suppresses nothing"));
      continue;
    }
    for (std::size_t i = at + 1; i < close;) {
      while (i < close && (is_space(text[i]) || text[i] == ',')) ++i;
      std::size_t end = i;
      while (end < close && !is_space(text[end]) && text[end] != ',') ++end;
      if (end == i) break;
      const std::string code(text.substr(i, end - i));
      if (std::any_of(codes.begin(), codes.end(), [&](const std::string& c) { return c.compare(0, code.size(), code) == 0; })) {
        s.codes.push_back({code, place(i, end)});
      } else {
        const auto near = support::yaml::nearest(code, codes);
        found.push_back(finding(Severity::Warning, "SW904", place(i, end),
                                "there is no code '" + code + "'" + (near ? "; did you mean " + *near + "?" : "")));
      }
      i = end;
    }
    std::size_t reason = close + 1;
    while (reason < text.size() && (is_space(text[reason]) || text[reason] == ':' || text[reason] == '-')) ++reason;
    s.reason = std::string(text.substr(reason));
    if (s.codes.empty()) continue;
    if (s.reason.empty())
      found.push_back(
          finding(Severity::Info, "SW904", s.comment, "the suppression has no reason; say after the bracket why it is right here"));
    if (!s.file) {
      s.first = std::min(d.first, sm.position(file, d.comment.begin).line);
      s.last = d.last;
    }
    out.push_back(std::move(s));
  }
  return out;
}

std::vector<Diagnostic> suppress(support::SourceManager& sm, const std::vector<support::FileId>& files,
                                 const std::vector<std::string>& codes, std::vector<Diagnostic>& found) {
  std::vector<Diagnostic> out, kept, more;
  std::map<support::FileId, std::vector<Suppression>> by_file;
  for (const support::FileId f : files)
    if (auto s = suppressions(sm, f, codes, more); !s.empty()) by_file[f] = std::move(s);
  std::map<support::FileId, bool> incomplete;
  for (Diagnostic& d : found) {
    bool taken = false;
    if (d.code == "SW902" && d.range.valid()) incomplete[d.range.file] = true;
    if (d.range.valid())
      if (auto it = by_file.find(d.range.file); it != by_file.end()) {
        const auto line = sm.position(d.range.file, d.range.begin).line;
        for (Suppression& s : it->second)
          if (s.file || (s.first <= line && line <= s.last))
            for (auto& c : s.codes)
              if (d.code.compare(0, c.text.size(), c.text) == 0) taken = c.used = true;
      }
    (taken ? out : kept).push_back(std::move(d));
  }
  for (auto& [file, list] : by_file) {
    if (incomplete.count(file)) continue;
    for (Suppression& s : list) {
      std::vector<const Suppression::Code*> unused;
      for (const auto& c : s.codes)
        if (!c.used) unused.push_back(&c);
      if (unused.empty()) continue;
      std::string names;
      for (const auto* c : unused) names += (names.empty() ? "" : ", ") + c->text;
      Diagnostic d = finding(
          Severity::Warning, "SW903", s.comment,
          "nothing to suppress here for " + names + (s.file ? " in this file" : "") + "; remove it, so that it does not hide the next one");
      support::Fix fix{"safe", {}};
      const std::string& text = sm.file(file).text;
      if (unused.size() == s.codes.size()) {
        // The comment with the space before it; with its line when nothing else is there.
        std::uint32_t begin = s.comment.begin, end = s.comment.end;
        while (begin > 0 && is_space(text[begin - 1])) --begin;
        if ((begin == 0 || text[begin - 1] == '\n') && end < text.size()) {
          if (text[end] == '\r') ++end;
          if (end < text.size() && text[end] == '\n') ++end;
        }
        fix.edits.push_back({{file, begin, end}, ""});
      } else {
        // All codes at once, so that the commas come out right; the rest of the comment stays.
        std::string used;
        for (const auto& c : s.codes)
          if (c.used) used += (used.empty() ? "" : ", ") + c.text;
        fix.edits.push_back({{file, s.codes.front().range.begin, s.codes.back().range.end}, used});
      }
      d.fix = std::move(fix);
      more.push_back(std::move(d));
    }
  }
  found = std::move(kept);
  found.insert(found.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  return out;
}

}  // namespace shardwright::lint
