#include "rules/lint.h"

#include <algorithm>

#include "rules/embedded.h"
#include "rules/loader.h"
#include "support/text.h"

namespace shardwright::rules {
namespace {

constexpr std::string_view kFolder = "lint/";

bool is_lint_file(std::string_view path) { return path.starts_with(kFolder) && path.ends_with(".yaml"); }
std::string code_of(std::string_view path) { return std::string(path.substr(kFolder.size(), path.size() - kFolder.size() - 5)); }

std::string one_of(const Fields& f, const char* key, const std::vector<std::string>& allowed) {
  f.required(key);
  std::string value = f.text(key), all;
  if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return value;
  for (const auto& a : allowed) all += (all.empty() ? "" : ", ") + a;
  fail(f.at(key), "\"" + std::string(key) + "\" is one of " + all + ", found \"" + value + "\"");
}

std::string text_of(const Fields& f, const char* key) {
  const YAML::Node n = f.required(key);
  std::string value = f.text(key);
  while (!value.empty() && value.back() == '\n') value.pop_back();
  if (value.empty()) fail(n, std::string("\"") + key + "\" is empty");
  return value;
}

// One text, or file name → text where an example needs several files.
std::vector<LintRule::File> example(const Fields& f, const char* key) {
  const YAML::Node n = f.required(key);
  if (n.IsScalar()) return {{"example.py", n.Scalar()}};
  if (!n.IsMap() || n.size() == 0) fail(n, std::string("\"") + key + "\" is a text, or a mapping of file names to texts");
  std::vector<LintRule::File> out;
  for (const auto& e : n) {
    if (!e.second.IsScalar()) fail(e.second, "a file's text is expected");
    out.push_back({e.first.as<std::string>(""), e.second.Scalar()});
  }
  return out;
}

LintRule parse(std::string_view display, std::string_view text) {
  YAML::Node root;
  try {
    root = YAML::Load(std::string(text));
  } catch (const YAML::Exception& e) { throw RuleError{"not valid YAML: " + e.msg, e.mark.line + 1, e.mark.column + 1}; }
  const Fields f(root, "a lint rule", {"code", "title", "severity", "applicability", "effort", "since", "why", "fix", "wrong", "right"});
  LintRule r;
  r.where = display;
  r.code = text_of(f, "code");
  const std::string name(display.substr(display.rfind('/') + 1));
  if (name != r.code + ".yaml") fail(f.at("code"), "the file of code " + r.code + " is named " + r.code + ".yaml, not " + name);
  r.title = text_of(f, "title");
  r.severity = one_of(f, "severity", {"error", "warning", "info"});
  r.applicability = one_of(f, "applicability", {"safe", "review", "manual"});
  r.effort = one_of(f, "effort", {"low", "medium", "high"});
  r.since = text_of(f, "since");
  r.why = text_of(f, "why");
  r.fix = text_of(f, "fix");
  r.wrong = example(f, "wrong");
  r.right = example(f, "right");
  return r;
}

}  // namespace

support::Expected<LintRule> read_lint_rule(support::SourceManager& sm, const std::string& display, std::string_view text) {
  try {
    return parse(display, text);
  } catch (const RuleError& e) { return diagnose(sm, display, text, e); }
}

support::Expected<std::vector<LintRule>> lint_rules(support::SourceManager& sm) {
  std::vector<LintRule> out;
  for (const EmbeddedFile& f : embedded_files()) {
    if (!is_lint_file(f.path)) continue;
    auto rule = read_lint_rule(sm, "rules/" + std::string(f.path), f.text);
    if (!rule) return rule.error();
    out.push_back(std::move(*rule));
  }
  std::sort(out.begin(), out.end(), [](const LintRule& a, const LintRule& b) { return a.code < b.code; });
  return out;
}

std::vector<std::string> lint_codes() {
  std::vector<std::string> out;
  for (const EmbeddedFile& f : embedded_files())
    if (is_lint_file(f.path)) out.push_back(code_of(f.path));
  std::sort(out.begin(), out.end());
  return out;
}

std::string lint_page(const std::string& code) { return "docs/lint.md#" + support::lower(code); }

}  // namespace shardwright::rules
