// Found of one request: each once a place and code, those of an abandoned run taken back.
#pragma once
#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "support/diagnostic.h"

namespace shardwright::lint {

class Found {
 public:
  void add(support::Severity severity, std::string code, support::Range where, std::string message, std::vector<support::Note> notes = {},
           std::optional<support::Fix> fix = {});
  /// Position to go back to.
  std::size_t mark() const { return all_.size(); }
  /// Takes back what was added since, except codes in `keep`.
  void back_to(std::size_t mark, const std::set<std::string>& keep = {});
  const std::vector<support::Diagnostic>& all() const { return all_; }
  bool has(const std::string& code, support::Range where) const;
  /// Keeps only those findings of a code at places (since `mark`) that another run had too.
  void keep_common(std::size_t mark, const std::string& code, const std::vector<support::Diagnostic>& other);

 private:
  std::vector<support::Diagnostic> all_;
};

}  // namespace shardwright::lint
