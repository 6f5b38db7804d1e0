#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <random>

#include "support/edits.h"
#include "support/files.h"
#include "support/yaml.h"

using namespace shardwright::support;

namespace {
Range r(std::uint32_t b, std::uint32_t e) { return {0, b, e}; }
std::string applied(const Edits& e, std::string_view text) {
  auto out = e.apply(text);
  if (!out) return "error: " + out.error().message;
  return *out;
}
}  // namespace

TEST_CASE("positions and lines") {
  SourceManager sm;
  const FileId f = sm.add("a.py", "one\r\ntwo\n\nlast");
  CHECK(sm.position(f, 0).line == 1);
  CHECK(sm.position(f, 5).line == 2);
  CHECK(sm.position(f, 6).column == 2);
  CHECK(sm.position(f, 14).line == 4);
  CHECK(sm.line_at(f, 1) == "one");
  CHECK(sm.line_at(f, 9) == "");
  CHECK(sm.line_at(f, 14) == "last");
  CHECK(sm.describe({f, 5, 6}) == "a.py:2:1");
  const FileId gone = sm.add("/tmp/x/p/b.py", "y"), like = sm.add("/tmp/xy/b.py", "y");
  sm.show_folder_as("/tmp/x", "<generated>");
  CHECK(sm.describe({gone, 0, 1}) == "<generated>/p/b.py:1:1");
  CHECK(sm.describe({like, 0, 1}) == "/tmp/xy/b.py:1:1");
  CHECK(sm.describe({}) == "<unknown>");
  CHECK(sm.text({f, 5, 8}) == "two");
  CHECK(sm.text({f, 12, 99}) == "st");
  const FileId empty = sm.add("b.py", "");
  CHECK(sm.position(empty, 0).line == 1);
  CHECK(sm.line_at(empty, 0) == "");
}

TEST_CASE("a diagnostic shows the line and a caret") {
  SourceManager sm;
  const FileId f = sm.add("a.py", "x = 1\n\ty = é.bad\n");
  Diagnostic d{Severity::Error, "SW101", {f, 11, 17}, "no", {{Range{f, 0, 1}, "here"}}, {}};
  CHECK(render(d, sm) == "a.py:2:6: error: no [SW101]\n    \ty = é.bad\n    \t    ^~~~~\n  a.py:1:1: note: here\n      x = 1\n      ^\n");
  CHECK(render(failure("plain"), sm) == "error: plain\n");
}

TEST_CASE("edits compose") {
  const std::string text = "f(g(x))";
  Edits e(0);
  SECTION("nested wraps around the same range, and replacement within") {
    e.wrap(r(4, 5), "A(", ")A");
    e.wrap(r(4, 5), "B(", ")B");
    e.wrap(r(2, 6), "C(", ")C");
    e.replace(r(4, 5), "y");
    CHECK(applied(e, text) == "f(C(g(B(A(y)A)B))C)");
  }
  SECTION("order of adding does not matter for different ranges") {
    e.wrap(r(0, 7), "O[", "]O");
    e.wrap(r(2, 6), "I[", "]I");
    CHECK(applied(e, text) == "O[f(I[g(x)]I)]O");
    Edits f(0);
    f.wrap(r(2, 6), "I[", "]I");
    f.wrap(r(0, 7), "O[", "]O");
    CHECK(applied(f, text) == "O[f(I[g(x)]I)]O");
  }
  SECTION("wraps that touch, and insertions between") {
    e.wrap(r(0, 2), "<", ">");
    e.wrap(r(2, 6), "{", "}");
    e.insert_after(2, "a");
    e.insert_before(2, "b");
    CHECK(applied(e, text) == "<f(>ab{g(x)})");
  }
  SECTION("priorities: higher is farther") {
    e.insert_before(0, "near ", 0);
    e.insert_before(0, "far ", 5);
    e.insert_after(7, " near", 0);
    e.insert_after(7, " far", 5);
    CHECK(applied(e, text) == "far near f(g(x)) near far");
  }
  SECTION("equal insertions keep their order") {
    e.insert_before(0, "1");
    e.insert_before(0, "2");
    e.insert_after(0, "3");
    CHECK(applied(e, text) == "312f(g(x))");
  }
  SECTION("adjacent replacements are fine, overlapping ones are not") {
    e.replace(r(0, 2), "h[");
    e.replace(r(2, 4), "k[");
    CHECK(applied(e, text) == "h[k[x))");
    e.replace(r(3, 5), "z");
    CHECK(applied(e, text).rfind("error: edits overlap", 0) == 0);
  }
  SECTION("inside a replacement nothing may be edited") {
    e.replace(r(2, 6), "y");
    Edits a = e, b = e, c = e;
    a.insert_before(4, "q");
    CHECK_FALSE(a.apply(text));
    b.wrap(r(4, 5), "(", ")");
    CHECK_FALSE(b.apply(text));
    c.wrap(r(2, 6), "(", ")");
    c.insert_before(2, "!");
    CHECK(applied(c, text) == "f(!(y))");
  }
  SECTION("crossing wraps") {
    e.wrap(r(0, 4), "(", ")");
    e.wrap(r(2, 6), "[", "]");
    CHECK_FALSE(e.apply(text));
  }
  SECTION("past the end") {
    e.replace(r(5, 9), "");
    CHECK_FALSE(e.apply(text));
  }
  SECTION("duplicates") {
    e.insert_before(0, "a");
    e.insert_before(0, "a");
    e.remove_duplicates();
    CHECK(applied(e, text) == "af(g(x))");
  }
  CHECK(applied(Edits(0), text) == text);
}

namespace {
// Applies a unified difference, strictly.
std::string patch(const std::string& old_text, const std::string& diff) {
  const auto lines = [](const std::string& t) {
    std::vector<std::string> out;
    for (std::size_t at = 0; at < t.size();) {
      const std::size_t n = t.find('\n', at);
      out.push_back(t.substr(at, n == std::string::npos ? n : n + 1 - at));
      at = n == std::string::npos ? t.size() : n + 1;
    }
    return out;
  };
  const auto a = lines(old_text);
  auto d = lines(diff);
  for (std::size_t i = 0; i + 1 < d.size(); ++i)
    if (d[i + 1].rfind("\\ No newline", 0) == 0) d[i].pop_back();
  std::string out;
  std::size_t at = 0;
  for (std::size_t i = 2; i < d.size(); ++i) {
    if (d[i][0] == '@') {
      const std::size_t start = std::strtoul(d[i].c_str() + 4, nullptr, 10);
      const bool none = d[i].find(",0 +") != std::string::npos;
      const std::size_t to = none ? start : start - 1;
      while (at < to) out += a[at++];
    } else if (d[i][0] == ' ' || d[i][0] == '-') {
      REQUIRE(at < a.size());
      REQUIRE(a[at] == d[i].substr(1));
      if (d[i][0] == ' ') out += a[at];
      ++at;
    } else if (d[i][0] == '+') {
      out += d[i].substr(1);
    }
  }
  while (at < a.size()) out += a[at++];
  return out;
}
}  // namespace

TEST_CASE("unified difference") {
  CHECK(unified_diff("a\n", "a\n", "x", "y").empty());
  CHECK(unified_diff("a\nb\nc\n", "a\nB\nc\n", "x", "y") == "--- x\n+++ y\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n");
  CHECK(unified_diff("", "a\n", "x", "y") == "--- x\n+++ y\n@@ -0,0 +1 @@\n+a\n");
  CHECK(unified_diff("a", "a\n", "x", "y") == "--- x\n+++ y\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n");
  std::mt19937 random(20240607);  // the seed
  for (int round = 0; round < 300; ++round) {
    std::string a, b;
    const int n = static_cast<int>(random() % 30);
    for (int i = 0; i < n; ++i) {
      const std::string line = std::string(1, static_cast<char>('a' + random() % 5)) + "\n";
      if (random() % 4) a += line;
      if (random() % 4) b += line;
      if (random() % 6 == 0) b += "new\n";
    }
    if (a == b) continue;
    INFO(a << "=====\n" << b);
    CHECK(patch(a, unified_diff(a, b, "a", "b", static_cast<int>(random() % 4))) == b);
  }
}

TEST_CASE("the difference is minimal") {
  const std::string d = unified_diff("a\nb\nc\na\nb\nb\na\n", "c\nb\na\nb\na\nc\n", "x", "y", 0);
  CHECK(std::count(d.begin() + 12, d.end(), '-') + std::count(d.begin() + 12, d.end(), '+') >= 5);
  int changed = 0;
  for (std::size_t at = d.find('\n', d.find('\n') + 1) + 1; at < d.size(); at = d.find('\n', at) + 1)
    changed += d[at] == '-' || d[at] == '+';
  CHECK(changed == 5);  // the example of Myers' paper
}

TEST_CASE("files") {
  char name[] = "/tmp/shardwright-test-XXXXXX";
  REQUIRE(mkdtemp(name));
  const std::string dir = name;
  const std::string path = dir + "/a/b/c.txt";
  CHECK_FALSE(read_file(path));
  CHECK(read_file(path).error().message.find("No such file") != std::string::npos);
  REQUIRE(write_file(path, "one"));
  REQUIRE(write_file(path, "two"));
  CHECK(*read_file(path) == "two");
  CHECK(read_file(dir).error().message.find("folder") != std::string::npos);
  REQUIRE(write_file(dir + "/bin", std::string("a\0b", 3)));
  CHECK(read_file(dir + "/bin").error().message.find("binary") != std::string::npos);
  REQUIRE(write_file(dir + "/big", std::string(5 << 20, 'x')));
  CHECK(read_file(dir + "/big").error().message.find("too large") != std::string::npos);
  REQUIRE(write_file(dir + "/run.sh", "#!/bin/sh\n", true));
  CHECK((std::filesystem::status(dir + "/run.sh").permissions() & std::filesystem::perms::owner_exec) != std::filesystem::perms::none);
  CHECK_FALSE(write_file(dir + "/a", "x"));      // a folder
  CHECK_FALSE(write_file(dir + "/big/x", "x"));  // below a file
  const auto all = walk(dir);
  REQUIRE(all);
  CHECK(*all == std::vector<std::string>{"a/b/c.txt", "big", "bin", "run.sh"});  // and no temporary file left
  CHECK(walk(dir, [](const std::string& d) { return d != "a"; })->size() == 3);
  CHECK_FALSE(walk(dir + "/none"));
  std::filesystem::remove_all(dir);
  CHECK(normal_path("a/./b/../c/") == "a/c");
  CHECK(join_path("a", "/b") == "/b");
  CHECK(stem("x/y.tar.gz") == "y.tar");
}

TEST_CASE("strict YAML") {
  SourceManager sm;
  const auto read = [&](const std::string& text) { return yaml::parse(sm, sm.add("t.yaml", text)); };
  auto doc = read("name: x\nsize: 3\nratio: 1e-3\non: true\nlist: [a, 'b']\nsub:\n  k: 1\n");
  REQUIRE(doc);
  yaml::Reader reader(*doc, "the test");
  CHECK(reader.required<std::string>("name") == "x");
  CHECK(reader.required<int>("size") == 3);
  CHECK(reader.optional<double>("ratio") == Approx(1e-3));
  CHECK(reader.optional<bool>("on"));
  CHECK(reader.optional<std::vector<std::string>>("list").size() == 2);
  CHECK(reader.optional<int>("absent", 7) == 7);
  CHECK(reader.map("sub").size() == 1);
  CHECK_FALSE(reader.finish());

  auto unknown = read("name: x\nsiez: 3\n");
  REQUIRE(unknown);
  yaml::Reader strict(*unknown, "the test");
  CHECK(strict.required<std::string>("name") == "x");
  CHECK(strict.optional<int>("size") == 0);
  const auto error = strict.finish();
  REQUIRE(error);
  CHECK(error->message == "unknown key 'siez' in the test; did you mean 'size'? Valid keys: name, size");
  CHECK(sm.describe(error->range) == "t.yaml:2:1");

  auto wrong = read("size: many\n");
  yaml::Reader typed(*wrong);
  typed.required<int>("size");
  typed.required<std::string>("name");
  CHECK(typed.finish()->message == "'size': expected an integer, found 'many'");
  yaml::Reader missing(*read("{}"), "the job");
  missing.required<std::string>("name");
  CHECK(missing.finish()->message == "the job needs 'name'");

  CHECK(read("a: [1\nb: 2").error().message.find("not valid YAML") == 0);
  CHECK(read("a: 1\na: 2").error().message == "the key 'a' is given twice");
  CHECK(read("a: 1\n---\nb: 1\n").error().message.find("one YAML document") == 0);
  CHECK(read("")->is_null());
  CHECK_FALSE(read("? [a]\n: b\n"));
  CHECK_FALSE(read("&a [*a]"));
  CHECK_FALSE(read(std::string(3000, '[')));
  CHECK_FALSE(yaml::Reader(*read("[1]")).finish()->message.empty());
  yaml::Reader pick(*read("mode: fsat"));
  CHECK(pick.choice("mode", {"fast", "slow"}, "slow") == "slow");
  CHECK(pick.finish()->message == "expected one of fast, slow for 'mode', found 'fsat'");
  CHECK_FALSE(read("a: '1'")->get("a")->as_int());
  CHECK(*read("a: 1_000")->get("a")->as_int() == 1000);
}
