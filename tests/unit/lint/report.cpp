#include "lint/report.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "lint/baseline.h"

using namespace shardwright;

namespace {

support::Diagnostic finding(support::FileId f, std::uint32_t begin, std::uint32_t end, const std::string& code = "SW101") {
  support::Diagnostic d;
  d.code = code;
  d.range = {f, begin, end};
  d.message = "100% wrong: a, b\nsecond \"line\" <x>";
  d.notes.push_back({{f, 0, 1}, "became sharded here"});
  d.fix = support::Fix{"safe", {{{f, begin, end}, "w"}}};
  return d;
}

}  // namespace

TEST_CASE("JSON counts columns in characters") {
  support::SourceManager sm;
  const auto f = sm.add("dir/a.py", "ä = b\n");
  const auto j = nlohmann::json::parse(lint::json_report({finding(f, 5, 6)}, sm));
  REQUIRE(j.size() == 1);
  CHECK(j[0]["file"] == "dir/a.py");
  CHECK(j[0]["line"] == 1);
  CHECK(j[0]["column"] == 5);
  CHECK(j[0]["end_column"] == 6);
  CHECK(j[0]["severity"] == "error");
  CHECK(j[0]["related"][0]["message"] == "became sharded here");
  CHECK(j[0]["fix"]["edits"][0]["text"] == "w");
  CHECK(nlohmann::json::parse(lint::json_report({}, sm)) == nlohmann::json::array());
}

TEST_CASE("invalid UTF-8 does not stop a report") {
  support::SourceManager sm;
  const auto f = sm.add("a.py", "x = '\xff\xfe'\n");
  auto d = finding(f, 0, 1);
  d.message = "bad \xff byte";
  for (const auto& text :
       {lint::json_report({d}, sm), lint::sarif_report({d}, sm, {}, "0"), lint::junit_report({d}, sm), lint::github_report({d}, sm)})
    CHECK(text.find("\xff") == std::string::npos);
}

TEST_CASE("GitHub annotations escape what separates their parts") {
  support::SourceManager sm;
  const auto f = sm.add("a,b:c.py", "x = 1\n");
  CHECK(lint::github_report({finding(f, 0, 1)}, sm) ==
        "::error file=a%2Cb%3Ac.py,line=1,endLine=1,col=1,endColumn=2,title=SW101::100%25 wrong: a, b%0Asecond \"line\" <x>%0Aa,b:c.py:1: "
        "became sharded here\n");
}

TEST_CASE("JUnit escapes XML") {
  support::SourceManager sm;
  const auto f = sm.add("a.py", "x = 1\n");
  const auto text = lint::junit_report({finding(f, 0, 1)}, sm);
  CHECK(text.find("message=\"100% wrong: a, b&#10;second &quot;line&quot; &lt;x&gt;\"") != std::string::npos);
  CHECK(text.find("failures=\"1\"") != std::string::npos);
  CHECK(lint::junit_report({}, sm).find("<testcase") != std::string::npos);
}

TEST_CASE("text shows the line, the other end of the story and the fixed line") {
  support::SourceManager sm;
  const auto f = sm.add("a.py", "x = 1\n");
  const auto text = lint::text_report({finding(f, 4, 5)}, sm, false);
  CHECK(text.find("a.py:1:5: error: ") == 0);
  CHECK(text.find("[SW101]") != std::string::npos);
  CHECK(text.find("became sharded here") != std::string::npos);
  CHECK(text.find("+ x = w") != std::string::npos);
  CHECK(text.find("1 error in 1 file; 1 can be fixed with --fix\n") != std::string::npos);
}

TEST_CASE("the same finding twice is shown once, in the order of places") {
  support::SourceManager sm;
  const auto f = sm.add("a.py", "x = 1\n");
  lint::Findings list{finding(f, 4, 5), finding(f, 0, 1), finding(f, 4, 5)};
  lint::sort_findings(list, sm);
  REQUIRE(list.size() == 2);
  CHECK(list[0].range.begin == 0);
}

TEST_CASE("a baseline covers as many as it counts") {
  support::SourceManager sm;
  const auto f = sm.add("pkg/a.py", "x = 1\ny = 2\n");
  lint::Findings two{finding(f, 0, 1), finding(f, 6, 7)};
  const auto text = lint::baseline_text(two, sm, "base.json");
  CHECK(nlohmann::json::parse(text)["findings"]["pkg/a.py"]["SW101"] == 2);
  CHECK(nlohmann::json::parse(lint::baseline_text(two, sm, "pkg/base.json"))["findings"]["a.py"]["SW101"] == 2);
  lint::Baseline b{{{"pkg/a.py", {{"SW101", 2}}}}};
  auto all = two;
  CHECK(lint::apply_baseline(b, "base.json", all, sm).covered.size() == 2);
  CHECK(all.empty());
  lint::Findings one{finding(f, 0, 1)};
  CHECK(lint::apply_baseline(b, "base.json", one, sm).stale.size() == 1);
  lint::Findings three{finding(f, 0, 1), finding(f, 6, 7), finding(f, 4, 5)};
  lint::apply_baseline(b, "base.json", three, sm);
  CHECK(three.size() == 3);  // which one is new, nobody can tell
}
