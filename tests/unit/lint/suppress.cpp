#include "lint/suppress.h"

#include <catch2/catch.hpp>

#include "lint/fix.h"

using namespace shardwright;

namespace {

const std::vector<std::string> kCodes = {"SW101", "SW103", "SW106", "SW204", "SW902", "SW903", "SW904"};

support::Diagnostic at(const support::SourceManager& sm, support::FileId f, const std::string& code, const std::string& text) {
  const auto begin = static_cast<std::uint32_t>(sm.file(f).text.find(text));
  support::Diagnostic d;
  d.code = code;
  d.range = {f, begin, begin + static_cast<std::uint32_t>(text.size())};
  d.message = "here";
  return d;
}

struct Result {
  std::vector<std::string> shown;  // "CODE:line"
  std::vector<std::string> suppressed;
  std::vector<support::Diagnostic> findings;
};

/// Findings of the given codes where the given texts are.
Result run(const std::string& text, const std::vector<std::pair<std::string, std::string>>& found) {
  support::SourceManager sm;
  const auto f = sm.add("a.py", text);
  std::vector<support::Diagnostic> list;
  for (const auto& [code, where] : found) list.push_back(at(sm, f, code, where));
  const auto taken = lint::suppress(sm, {f}, kCodes, list);
  Result r;
  auto name = [&](const support::Diagnostic& d) { return d.code + ":" + std::to_string(sm.position(f, d.range.begin).line); };
  for (const auto& d : list) r.shown.push_back(name(d));
  for (const auto& d : taken) r.suppressed.push_back(name(d));
  r.findings = list;
  return r;
}

using Names = std::vector<std::string>;

std::string applied(std::string text, const support::Fix& fix) {
  for (auto e = fix.edits.rbegin(); e != fix.edits.rend(); ++e) text.replace(e->range.begin, e->range.end - e->range.begin, e->text);
  return text;
}

}  // namespace

TEST_CASE("a comment at the end of a line suppresses its line") {
  const std::string text = "y = f(x)  # shardwright: ignore[SW101] whole on purpose\nz = g(x)\n";
  CHECK(run(text, {{"SW101", "f(x)"}}).suppressed == Names{"SW101:1"});
  CHECK(run(text, {{"SW101", "f(x)"}}).shown.empty());
  const auto other = run(text, {{"SW101", "g(x)"}});
  CHECK(other.shown == Names{"SW101:2", "SW903:1"});
  CHECK(run(text, {{"SW103", "f(x)"}}).shown == Names{"SW103:1", "SW903:1"});  // another code
}

TEST_CASE("a comment at either end of a statement holds for all of it, one in the middle for its line") {
  const std::string head = "y = f(x,  # shardwright: ignore[SW101] first line\n      flag,\n      last)\n";
  CHECK(run(head, {{"SW101", "flag"}}).suppressed.size() == 1);
  const std::string tail = "y = f(x,\n      flag,\n      last)  # shardwright: ignore[SW101] last line\n";
  CHECK(run(tail, {{"SW101", "flag"}}).suppressed.size() == 1);
  const std::string middle = "y = f(x,\n      flag,  # shardwright: ignore[SW101] this line\n      last)\n";
  CHECK(run(middle, {{"SW101", "flag"}}).suppressed.size() == 1);
  CHECK(run(middle, {{"SW101", "last"}}).suppressed.empty());
}

TEST_CASE("a comment alone on a line holds for the statement below, of a compound one for its head") {
  const std::string text = "# shardwright: ignore[SW101] generated\ny = f(x,\n      flag)\n";
  CHECK(run(text, {{"SW101", "flag"}}).suppressed.size() == 1);
  const std::string method = "class A:\n    # shardwright: ignore[SW101] head\n    def f(self,\n          x=1):\n        return g(x)\n";
  CHECK(run(method, {{"SW101", "x=1"}}).suppressed.size() == 1);
  CHECK(run(method, {{"SW101", "g(x)"}}).suppressed.empty());
}

TEST_CASE("a file-level suppression and prefixes") {
  const std::string text = "# shardwright: ignore-file[SW1] another launcher\ny = f(x)\nz = g(x)\n";
  CHECK(run(text, {{"SW101", "f(x)"}, {"SW106", "g(x)"}}).suppressed.size() == 2);
  CHECK(run(text, {{"SW204", "g(x)"}}).shown == Names{"SW204:3", "SW903:1"});
}

TEST_CASE("what is wrong with a suppression is said") {
  CHECK(run("y = f(x)  # shardwright: ignore\n", {{"SW101", "f(x)"}}).shown == Names{"SW101:1", "SW904:1"});
  CHECK(run("y = f(x)  # shardwright: ignore[SW1O1] no such code\n", {}).findings.at(0).message.find("did you mean SW101?") !=
        std::string::npos);
  const auto bare = run("y = f(x)  # shardwright: ignore[SW101]\n", {{"SW101", "f(x)"}});
  CHECK(bare.shown == Names{"SW904:1"});
  CHECK(bare.findings.at(0).severity == support::Severity::Info);
  CHECK(run("y = 1  # shardwright: ignroe[SW101] slip\n", {}).shown == Names{"SW904:1"});
  CHECK(
      run("y = 1  # shardwright: keep\nz = 2  # as the shardwright: ignore[SW101] comment says\ns = '# shardwright: ignore[SW101] x'\n", {})
          .shown.empty());
}

TEST_CASE("an incomplete analysis reports no unused suppressions") {
  CHECK(run("y = f(x)  # shardwright: ignore[SW101] reason\nz = g(x)\n", {{"SW902", "g(x)"}}).shown == Names{"SW902:2"});
}

TEST_CASE("an unused suppression is removed by its fix") {
  const std::string trailing = "y = f(x)  # shardwright: ignore[SW101] reason\nz = 1\n";
  CHECK(applied(trailing, *run(trailing, {}).findings.at(0).fix) == "y = f(x)\nz = 1\n");
  const std::string alone = "a = 0\n    # shardwright: ignore[SW101] reason\ny = f(x)\n";
  CHECK(applied(alone, *run(alone, {}).findings.at(0).fix) == "a = 0\ny = f(x)\n");
  const std::string crlf = "a = 0\r\n# shardwright: ignore[SW101] reason\r\ny = f(x)\r\n";
  CHECK(applied(crlf, *run(crlf, {}).findings.at(0).fix) == "a = 0\r\ny = f(x)\r\n");
  const std::string several = "y = f(x)  # shardwright: ignore[SW103, SW101, SW106] reason\n";
  CHECK(applied(several, *run(several, {{"SW101", "f(x)"}}).findings.at(0).fix) == "y = f(x)  # shardwright: ignore[SW101] reason\n");
  CHECK(applied(several, *run(several, {{"SW103", "f(x)"}}).findings.at(0).fix) == "y = f(x)  # shardwright: ignore[SW103] reason\n");
}
