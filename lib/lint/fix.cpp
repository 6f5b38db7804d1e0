#include "lint/fix.h"

#include <algorithm>
#include <set>

#include "python/parse.h"
#include "support/files.h"

namespace shardwright::lint {
namespace {

using support::Diagnostic;

struct Edit {
  std::uint32_t begin, end;
  std::string text;
  bool operator==(const Edit&) const = default;
};

struct Candidate {
  const Diagnostic* finding;
  std::map<std::string, std::vector<Edit>> edits;  ///< by path, in order
  std::string signature;                           ///< recognises it in a later round
};

struct Read {
  bool valid = false;
  std::multiset<std::string> comments;
};

Read read(const std::string& text) {
  support::SourceManager sm;
  program::Arena arena;
  support::Diagnostics ignored;
  const auto file = sm.add("fixed.py", text);
  const program::Module* m = python::parse(sm, file, arena, ignored);
  Read out;
  out.valid = m->syntax_errors.empty();
  for (const auto& c : m->comments) out.comments.emplace(sm.text(c));
  return out;
}

bool touch(const Edit& a, const Edit& b) {
  if (a.begin == a.end && b.begin == b.end) return a.begin == b.begin;  // two insertions at one place: their order is anybody's guess
  return a.begin < b.end && b.begin < a.end;
}

// Do the edits of a file go together with those taken? The same edit twice (two findings, one cause) counts once.
bool fits(const std::vector<Edit>& edits, const std::vector<Edit>& taken) {
  for (const Edit& e : edits)
    for (const Edit& t : taken)
      if (touch(e, t) && !(e == t)) return false;
  return true;
}

std::string edited(const std::string& text, std::vector<Edit> edits) {
  std::sort(edits.begin(), edits.end(),
            [](const Edit& a, const Edit& b) { return a.begin < b.begin || (a.begin == b.begin && a.end < b.end); });
  edits.erase(std::unique(edits.begin(), edits.end()), edits.end());
  std::string out;
  std::size_t at = 0;
  for (const Edit& e : edits) {
    out.append(text, at, e.begin - at);
    out += e.text;
    at = e.end;
  }
  return out.append(text, at, std::string::npos);
}

// New lines end as the file's others do.
std::string line_ends(const std::string& inserted, const std::string& file) {
  if (inserted.find('\n') == std::string::npos || file.find("\r\n") == std::string::npos) return inserted;
  std::string out;
  for (std::size_t i = 0; i < inserted.size(); ++i) {
    if (inserted[i] == '\n' && (i == 0 || inserted[i - 1] != '\r')) out += '\r';
    out += inserted[i];
  }
  return out;
}

std::vector<Candidate> candidates(const std::vector<Diagnostic>& findings, const support::SourceManager& sm, bool unsafe,
                                  const std::set<std::string>& refused) {
  std::vector<Candidate> out;
  for (const Diagnostic& d : findings) {
    if (!d.fix || d.fix->edits.empty() || d.fix->applicability == "manual" || (d.fix->applicability != "safe" && !unsafe)) continue;
    Candidate c{&d, {}, d.code};
    bool usable = true;
    for (const auto& e : d.fix->edits) {
      usable = usable && e.range.valid() && e.range.begin <= e.range.end && e.range.end <= sm.file(e.range.file).text.size();
      if (!usable) break;
      const auto& file = sm.file(e.range.file);
      c.edits[file.path].push_back({e.range.begin, e.range.end, line_ends(e.text, file.text)});
      c.signature += "\n" + file.path + "\n" + std::string(sm.line_at(e.range.file, e.range.begin)) + "\n" + e.text;
    }
    for (auto& [path, edits] : c.edits) {
      std::sort(edits.begin(), edits.end(), [](const Edit& a, const Edit& b) { return a.begin < b.begin; });
      for (std::size_t i = 1; i < edits.size(); ++i) usable = usable && !touch(edits[i - 1], edits[i]);
    }
    if (usable && !refused.count(c.signature)) out.push_back(std::move(c));
  }
  return out;
}

}  // namespace

support::Expected<FixResult> apply_fixes(const Find& find, OverlayFileSystem& overlay, bool unsafe) {
  FixResult result;
  std::set<std::string> refused;
  std::set<std::size_t> seen;  // states of all fixed files: fixes that undo each other must not go round
  for (int round = 0; round < kMostRounds; ++round) {
    support::SourceManager sm;
    auto findings = find(sm, overlay);
    if (!findings) return findings.error();
    std::map<std::string, std::string> texts;  // as this round found them
    std::map<std::string, Read> originals;
    std::map<std::string, std::vector<Edit>> taken;
    std::vector<const Candidate*> applied;
    const auto all = candidates(*findings, sm, unsafe, refused);
    for (const Candidate& c : all) {
      bool fit = true;
      for (const auto& [path, edits] : c.edits) fit = fit && fits(edits, taken[path]);
      if (!fit) continue;  // next round
      std::string why;
      for (const auto& [path, edits] : c.edits) {
        auto [text, fresh] = texts.try_emplace(path);
        if (fresh) {
          auto t = overlay.read(path);
          if (!t) return t.error();
          text->second = *t;
          originals[path] = read(*t);
        }
        auto together = taken[path];
        together.insert(together.end(), edits.begin(), edits.end());
        const bool python = path.ends_with(".py");  // a run script or a YAML file is edited as text
        if (!python) continue;
        const Read after = read(edited(text->second, together));
        const Read& before = originals[path];
        if (before.valid && !after.valid) why = "the file could not be parsed after it";
        // Comments that a fix removes are a person's words; a suppression that suppresses nothing is the exception.
        if (why.empty() && c.finding->code != "SW903" && !unsafe &&
            !std::includes(after.comments.begin(), after.comments.end(), before.comments.begin(), before.comments.end())) {
          // Another fix of this round may have removed a suppression: compare with what this one alone does.
          const Read alone = read(edited(text->second, edits));
          if (!std::includes(alone.comments.begin(), alone.comments.end(), before.comments.begin(), before.comments.end()))
            why = "it would lose a comment; --unsafe applies it";
        }
      }
      if (!why.empty()) {
        refused.insert(c.signature);
        result.taken_back.push_back(sm.describe(c.finding->range) + ": " + c.finding->code + ": " + why);
        continue;
      }
      for (const auto& [path, edits] : c.edits) taken[path].insert(taken[path].end(), edits.begin(), edits.end());
      applied.push_back(&c);
    }
    if (applied.empty()) break;
    for (const auto& [path, edits] : taken) {
      if (edits.empty()) continue;
      const std::string after = edited(texts[path], edits);
      auto [file, fresh] = result.files.try_emplace(path);
      if (fresh) file->second.before = texts[path];
      file->second.after = after;
      overlay.set(path, after);
    }
    for (const Candidate* c : applied) {
      ++result.applied;
      ++result.by_code[c->finding->code];
    }
    std::size_t state = 0;
    for (const auto& [path, file] : result.files) state = state * 1000003 ^ std::hash<std::string>{}(path + "\n" + file.after);
    if (!seen.insert(state).second) break;
  }
  std::erase_if(result.files, [](const auto& f) { return f.second.before == f.second.after; });
  return result;
}

}  // namespace shardwright::lint
