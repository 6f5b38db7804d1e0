// One kind of diagnostic everywhere: severity, code, place, message, notes, optional fix.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "support/source.h"

namespace shardwright::support {

enum class Severity { Note, Info, Warning, Error };

/// Replace `range` by `text` (an insertion has range.begin == range.end).
struct TextEdit {
  Range range;
  std::string text;
};

struct Note {
  Range range;  ///< may be invalid: a note without a place
  std::string message;
};

struct Fix {
  std::string applicability;  ///< "safe" | "review" | "manual"
  std::vector<TextEdit> edits;
};

struct Diagnostic {
  Severity severity = Severity::Error;
  std::string code;  ///< "SW101", "input", …; may be empty
  Range range;       ///< may be invalid (command-line errors)
  std::string message;
  std::vector<Note> notes;
  std::optional<Fix> fix;
};

/// Collects diagnostics in the order they are found.
class Diagnostics {
 public:
  void add(Diagnostic d) { all_.push_back(std::move(d)); }
  void error(Range r, std::string msg, std::string code = "") { add({Severity::Error, std::move(code), r, std::move(msg), {}, {}}); }
  void warn(Range r, std::string msg, std::string code = "") { add({Severity::Warning, std::move(code), r, std::move(msg), {}, {}}); }
  void note(Range r, std::string msg) { add({Severity::Note, "", r, std::move(msg), {}, {}}); }
  const std::vector<Diagnostic>& all() const { return all_; }
  bool has_errors() const;

 private:
  std::vector<Diagnostic> all_;
};

/// "path:line:col: error: message" with the source line and a caret below, notes indented. `color` uses ANSI.
std::string render(const Diagnostic& d, const SourceManager& sm, bool color = false);

}  // namespace shardwright::support
