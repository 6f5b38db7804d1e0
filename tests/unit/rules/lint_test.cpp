#include "rules/lint.h"

#include <catch2/catch.hpp>

#include "rules/lookup.h"

using namespace shardwright;

namespace {

const std::string kGood =
    "code: SW101\ntitle: t\nseverity: error\napplicability: safe\neffort: low\nsince: \"0.1\"\nwhy: w\nfix: f\nwrong: |\n  x = 1\nright: "
    "|\n  x = 2\n";

std::string error_of(const std::string& text, std::uint32_t line) {
  support::SourceManager sm;
  auto r = rules::read_lint_rule(sm, "rules/lint/SW101.yaml", text);
  if (r) return "";
  CHECK(sm.position(r.error().range.file, r.error().range.begin).line == line);
  return r.error().message;
}

std::string without(std::string text, const std::string& line) { return text.erase(text.find(line), line.size()); }

}  // namespace

TEST_CASE("every code has its words") {
  support::SourceManager sm;
  const auto all = rules::lint_rules(sm);
  if (!all) FAIL(all.error().message);
  CHECK(all->size() == rules::lint_codes().size());
  CHECK(all->size() >= 50);
  for (const auto& r : *all) {
    INFO(r.code);
    CHECK(r.code.size() == 5);
    CHECK(!r.wrong.empty());
    CHECK(!r.right.empty());
    CHECK(r.title.find('\n') == std::string::npos);
  }
}

TEST_CASE("a lint rule is read strictly") {
  CHECK(error_of(kGood, 0).empty());
  CHECK(error_of(kGood + "aplicability: safe\n", 13).find("did you mean \"applicability\"?") != std::string::npos);
  CHECK(!error_of(without(kGood, "why: w\n"), 1).empty());
  CHECK(!error_of(without(kGood, "severity: error\n") + "severity: fatal\n", 12).empty());
  CHECK(!error_of("code: SW102\n" + without(kGood, "code: SW101\n"), 1).empty());
  CHECK(!error_of("code: [\n", 2).empty());
}

TEST_CASE("rules are found by full and by short names") {
  support::SourceManager sm;
  const auto db = rules::Database::load(sm);
  REQUIRE(db);
  const auto softmax = rules::rules_of(**db, "torch.nn.functional.softmax");
  REQUIRE(!softmax.empty());
  CHECK(softmax[0].file == "rules/ops/reduce.yaml");
  CHECK(softmax[0].text.find("- op: ") == 0);
  CHECK(softmax[0].text.find("softmax") != std::string::npos);
  CHECK(!rules::rules_of(**db, "softmax").empty());
  const auto linear = rules::rules_of(**db, "torch.nn.Linear");
  REQUIRE(linear.size() == 2);  // what it is, and what it computes
  CHECK(linear[1].file == "rules/layers/torch/nn/modules/linear.py");
  CHECK(linear[1].text.find("class Linear") == 0);
  CHECK(rules::rules_of(**db, "torch.nn.Linaer").empty());
  CHECK(rules::nearest_rule(**db, "torch.nn.functional.sofmax") == "torch.nn.functional.softmax");
  CHECK(!rules::rules_of(**db, "attention").empty());  // a kind
}
