#include "lint/fix.h"

#include <catch2/catch.hpp>

using namespace shardwright;

namespace {

/// A source of findings for tests: wherever `word` stands in a.py, a fix that writes `instead`.
struct Rule {
  std::string code, word, instead, applicability = "safe";
};

lint::Find finder(std::vector<Rule> rules) {
  return [rules](support::SourceManager& sm, const python::FileSystem& files) -> support::Expected<std::vector<support::Diagnostic>> {
    const auto text = files.read("/a.py");
    if (!text) return text.error();
    const auto f = sm.add("/a.py", *text);
    std::vector<support::Diagnostic> out;
    for (const auto& r : rules)
      for (std::size_t at = text->find(r.word); at != std::string::npos; at = text->find(r.word, at + r.word.size())) {
        support::Diagnostic d;
        d.code = r.code;
        d.range = {f, static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(at + r.word.size())};
        d.fix = support::Fix{r.applicability, {{d.range, r.instead}}};
        out.push_back(std::move(d));
      }
    return out;
  };
}

lint::FixResult fixed(const std::string& text, std::vector<Rule> rules, bool unsafe, std::string& after) {
  const python::MemoryFileSystem disk({{"/a.py", text}});
  lint::OverlayFileSystem overlay(disk);
  auto r = lint::apply_fixes(finder(std::move(rules)), overlay, unsafe);
  REQUIRE(r);
  after = *overlay.read("/a.py");
  return *r;
}

}  // namespace

TEST_CASE("fixes go to a fixpoint, and a second run changes nothing") {
  std::string after, again;
  const std::vector<Rule> rules = {{"SW101", "one", "two"}, {"SW103", "two", "three"}};
  const auto r = fixed("x = one + one\ny = two\n", rules, false, after);
  CHECK(after == "x = three + three\ny = three\n");
  CHECK(r.applied == 5);
  CHECK(r.files.at("/a.py").before == "x = one + one\ny = two\n");
  CHECK(fixed(after, rules, false, again).files.empty());
}

TEST_CASE("review fixes need --unsafe, manual ones are never applied") {
  std::string after;
  CHECK(fixed("x = one\n", {{"SW101", "one", "two", "review"}}, false, after).files.empty());
  CHECK(fixed("x = one\n", {{"SW101", "one", "two", "review"}}, true, after).files.size() == 1);
  CHECK(fixed("x = one\n", {{"SW101", "one", "two", "manual"}}, true, after).files.empty());
}

TEST_CASE("a fix that makes the file invalid is taken back, the others stay") {
  std::string after;
  const auto r = fixed("x = bad\ny = one\n", {{"SW101", "bad", "((("}, {"SW103", "one", "two"}}, false, after);
  CHECK(after == "x = bad\ny = two\n");
  REQUIRE(r.taken_back.size() == 1);
  CHECK(r.taken_back[0].find("/a.py:1:5: SW101") == 0);
}

TEST_CASE("a fix that loses a comment waits for --unsafe") {
  std::string after;
  const std::string text = "x = f(1,  # why\n      2)\n";
  const Rule rule{"SW101", "1,  # why\n      2", "1, 2"};
  CHECK(fixed(text, {rule}, false, after).taken_back.size() == 1);
  CHECK(after == text);
  fixed(text, {rule}, true, after);
  CHECK(after == "x = f(1, 2)\n");
}

TEST_CASE("overlapping fixes wait for the next round; fixes that undo each other end") {
  std::string after;
  fixed("x = ab\n", {{"SW101", "ab", "c"}, {"SW103", "b", "d"}}, false, after);
  CHECK(after == "x = c\n");
  const auto r = fixed("x = one\n", {{"SW101", "one", "two"}, {"SW103", "two", "one"}}, false, after);
  CHECK(r.applied < 5);
}

TEST_CASE("inserted lines end as the file's do") {
  std::string after;
  fixed("x = one\r\ny = 2\r\n", {{"SW101", "x = one", "x = 1\nz = 3"}}, false, after);
  CHECK(after == "x = 1\r\nz = 3\r\ny = 2\r\n");
}
