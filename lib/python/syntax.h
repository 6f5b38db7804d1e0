// Parsed files, shared: a model is traced several times in one run (at another batch size, the generated stages), and reading the
// text is most of what a trace costs.
#pragma once
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "program/program.h"
#include "support/diagnostic.h"

namespace shardwright::python {

/// Syntax trees of the files of one SourceManager, each parsed once. Trees are not changed after parsing, so any number of
/// readers may hold them; they live as long as this does.
class Syntax {
 public:
  /// `bodies_later`: see parse.h.
  explicit Syntax(support::SourceManager& sources, bool bodies_later = false) : sources_(sources), bodies_later_(bodies_later) {}
  Syntax(const Syntax&) = delete;
  Syntax& operator=(const Syntax&) = delete;

  /// The tree of `text`, shown as `path`, as the module `name`. The same three give the same tree; what the parser found wrong is
  /// said to `diagnostics` each time.
  program::Module* parse(const std::string& name, const std::string& path, std::string_view text, bool is_package,
                         support::Diagnostics& diagnostics);
  /// Reads these on all cores, so that parse() has them at hand.
  struct Text {
    std::string name, path, text;
    bool is_package = false;
  };
  void read_ahead(std::vector<Text> texts);
  /// A package without a file of its own.
  program::Module* empty(const std::string& name);
  support::SourceManager& sources() const { return sources_; }

 private:
  struct Parsed {
    program::Module* module = nullptr;
    support::Diagnostics said;
  };
  support::SourceManager& sources_;
  const bool bodies_later_;
  static std::string key(const std::string& name, const std::string& path, bool is_package);
  program::Arena arena_;
  std::deque<program::Arena> ahead_;                ///< one for each thread of read_ahead
  std::unordered_map<std::string, Parsed> parsed_;  // by name, path and kind; a changed text replaces its entry
};

}  // namespace shardwright::python
