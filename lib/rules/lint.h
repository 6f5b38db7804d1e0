// What is said about each code of `shardwright lint`: rules/lint/SWxxx.yaml. The checks themselves are lib/lint. `explain`, docs/lint.md,
// SARIF's help and the tests of the examples all come from here.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "support/result.h"
#include "support/source.h"

namespace shardwright::rules {

struct LintRule {
  struct File {
    std::string name;  ///< "example.py" where the example is one text
    std::string text;
  };
  std::string code, title;
  std::string why, fix;       ///< paragraphs: what goes wrong, what to do
  std::string severity;       ///< error, warning or info: the usual one, a finding may differ
  std::string applicability;  ///< of its fix: safe, review or manual
  std::string effort;         ///< low, medium or high
  std::string since;          ///< the version that has it first
  std::vector<File> wrong, right;
  std::string where;  ///< file of the rule
};

/// The codes of the program, in order. An error has file, line and column.
support::Expected<std::vector<LintRule>> lint_rules(support::SourceManager& sm);

/// One file of rules/lint: every key known, every needed one there, the code the file's name.
support::Expected<LintRule> read_lint_rule(support::SourceManager& sm, const std::string& display, std::string_view text);

/// The codes alone, from the names of the embedded files: nothing is parsed.
std::vector<std::string> lint_codes();

/// A help page's address in docs/lint.md: "docs/lint.md#sw101".
std::string lint_page(const std::string& code);

}  // namespace shardwright::rules
