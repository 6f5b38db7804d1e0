// Findings that a person has looked at: `# shardwright: ignore[SW101] reason`.
//
//   y = self.proj(x)[0]   # shardwright: ignore[SW101] x is whole on purpose     the line; at the first or last line of a statement
//                                                                                (of a compound one: of its head) the whole of it
//   # shardwright: ignore[SW101, SW106] generated code                           alone on a line: the statement below it
//   # shardwright: ignore-file[SW3] a script of another launcher                 the file
//
// A code may be a prefix. A comment without codes, or with a code that does not exist, suppresses nothing and is reported (SW904); so
// is a missing reason. A code that no finding needed is reported (SW903) with the edit that removes it, unless the analysis says that
// it was incomplete in that file (SW902).
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "support/diagnostic.h"

namespace shardwright::lint {

struct Suppression {
  struct Code {
    std::string text;
    support::Range range;
    bool used = false;
  };
  support::Range comment;  ///< from its '#' to the end of the line
  std::vector<Code> codes;
  std::string reason;
  bool file = false;
  std::uint32_t first = 0, last = 0;  ///< lines it holds for, 1-based
};

/// What a person says to us in a comment: `# shardwright: WORD …`.
struct Directive {
  std::string word;
  support::Range comment;             ///< from its '#' to the end of the line
  std::size_t rest = 0;               ///< where what follows the word begins, counted from the comment's beginning
  bool alone = false;                 ///< nothing but the comment is on the line
  std::uint32_t first = 0, last = 0;  ///< the lines it speaks of, 1-based: the statement that it ends, or, alone on a line, the next one
                                      ///< (of a compound one: its head)
};

/// All of a file, in its order, whatever their words. Costs nothing for a file without one.
std::vector<Directive> directives(support::SourceManager& sm, support::FileId file);

/// What is wrong with a directive that asks for nothing known ("keeep", "cut here"), with what it may mean; nothing where it is known.
std::optional<std::string> unknown_request(const support::SourceManager& sm, const Directive&);

/// The suppressions of one file; what is wrong with them goes to `found` as SW904. `codes` are the codes that exist.
std::vector<Suppression> suppressions(support::SourceManager& sm, support::FileId file, const std::vector<std::string>& codes,
                                      std::vector<support::Diagnostic>& found);

/// Takes out of `found` what a suppression of `files` covers, and adds SW903 and SW904. A finding is at the line where its range
/// begins. Returns what was taken out.
std::vector<support::Diagnostic> suppress(support::SourceManager& sm, const std::vector<support::FileId>& files,
                                          const std::vector<std::string>& codes, std::vector<support::Diagnostic>& found);

/// Does a code begin with one of the prefixes? ("SW1", "SW101")
bool matches(const std::string& code, const std::vector<std::string>& prefixes);

}  // namespace shardwright::lint
