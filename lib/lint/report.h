// Findings for people and machines: text, JSON, SARIF 2.1.0, GitHub annotations, JUnit.
#pragma once
#include <string>
#include <vector>

#include "rules/lint.h"
#include "support/diagnostic.h"

namespace shardwright::lint {

using Findings = std::vector<support::Diagnostic>;

/// By file, place and code; the same finding twice (a class seen through two instances) once.
void sort_findings(Findings& findings, const support::SourceManager& sm);

/// "error", "warning", "info", "note".
const char* severity_name(support::Severity s);

/// Each finding with its source line, the other places of its story, and what its fix would make of the line; then the counts.
std::string text_report(const Findings& findings, const support::SourceManager& sm, bool color);

/// A list of {code, severity, file, line, column, end_line, end_column, message, related, fix}. Lines and columns from 1, columns in
/// characters; a finding without a place has file "" and line 0; `fix` is null or {applicability, edits: [{file, line, column, end_line,
/// end_column, text}]}.
std::string json_report(const Findings& findings, const support::SourceManager& sm);

/// SARIF 2.1.0 with the rules that occur, their help as Markdown, related locations and fixes.
std::string sarif_report(const Findings& findings, const support::SourceManager& sm, const std::vector<rules::LintRule>& rules,
                         const std::string& version);

/// ::error file=…,line=…,title=SW101::message
std::string github_report(const Findings& findings, const support::SourceManager& sm);

/// A test suite for each file, a test case for each finding; errors and warnings are failures. Without findings one case that passes.
std::string junit_report(const Findings& findings, const support::SourceManager& sm);

/// How often each code occurs and how many of it can be fixed, the most frequent first.
std::string statistics_report(const Findings& findings, const std::vector<rules::LintRule>& rules);

/// A place for machines: columns count characters from 1.
struct Place {
  std::string file;
  std::uint32_t line = 0, column = 0, end_line = 0, end_column = 0;
};
Place place_of(const support::Range& r, const support::SourceManager& sm);

}  // namespace shardwright::lint
