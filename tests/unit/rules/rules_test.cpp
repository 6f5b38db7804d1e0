#include "rules/rules.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "rules/embedded.h"

using namespace shardwright;

namespace {

/// Loads the built-in rules and `text` as a user's file on top.
support::Expected<std::shared_ptr<const rules::Database>> with(const std::string& text, support::SourceManager& sm) {
  static int n = 0;
  auto dir = std::filesystem::temp_directory_path() / ("shardwright-rules-" + std::to_string(::getpid()) + "-" + std::to_string(n++));
  std::filesystem::create_directories(dir);
  std::ofstream(dir / "mine.yaml") << text;
  auto r = rules::Database::load(sm, {dir.string()});
  std::filesystem::remove_all(dir);
  return r;
}

std::string error_of(const std::string& text) {
  support::SourceManager sm;
  auto r = with(text, sm);
  if (r) return "";
  std::string where = sm.describe(r.error().range);
  return where.substr(where.rfind("mine.yaml")) + " " + r.error().message;
}

}  // namespace

TEST_CASE("the built-in rules load and name what models use") {
  support::SourceManager sm;
  auto db = rules::Database::load(sm);
  if (!db) FAIL(sm.describe(db.error().range) << ": " << db.error().message);
  CHECK((*db)->ops().size() > 250);
  for (const char* name : {"torch.nn.functional.linear", "torch.Tensor.view", "torch.matmul", "torch.Tensor.add_", "torch.fft.rfft2",
                           "torch.nn.functional.scaled_dot_product_attention"})
    CHECK((*db)->op(name));
  CHECK((*db)->op("torch.concat")->names[0] == "torch.concat");
  CHECK((*db)->op("torch.frobnicate") == nullptr);
  REQUIRE((*db)->layer("torch.nn.Linear"));
  CHECK((*db)->layer("torch.nn.Linear")->parallel.at("column") == "o");
  CHECK((*db)->device("h100-80g"));
}

TEST_CASE("every kind of mistake in a rules file is named with its place") {
  CHECK(error_of("- op: torch.foo\n  lik: elementwise\n")
            .find("mine.yaml:2:3 unknown key \"lik\" in an operation rule (did you mean \"like\"?)") == 0);
  CHECK(error_of("- op: torch.foo\n").find("exactly one of rule, like, compute") != std::string::npos);
  CHECK(error_of("- op: torch.foo\n  rule: \"a b\"\n").find("needs \"->\"") != std::string::npos);
  CHECK(error_of("- op: torch.foo\n  signature: \"input, dim\"\n  like: keep\n  full: [dum]\n").find("did you mean \"dim\"") !=
        std::string::npos);
  CHECK(error_of("- op: torch.foo\n  like: elementwize\n").find("did you mean \"elementwise\"") != std::string::npos);
  CHECK(error_of("- op: [torch.foo\n").find("mine.yaml:") == 0);
  CHECK(error_of("- layer: a.B\n  params: {w: \"o i\"}\n  parallel: {column: x}\n").find("factor \"x\"") != std::string::npos);
  CHECK(error_of("- layer: a.B\n  parallel: {colum: o}\n").find("did you mean \"column\"") != std::string::npos);
  CHECK(error_of("- kind: k\n  when: {nam: x}\n").find("did you mean \"name\"") != std::string::npos);
  CHECK(error_of("- device: d\n").find("needs the key \"tflops\"") != std::string::npos);
  CHECK(error_of("- thing: d\n").find("a rule starts with") != std::string::npos);
  CHECK(error_of("op: torch.foo\n").find("is a list of rules") != std::string::npos);
  CHECK(error_of("- op: torch.foo\n  op: torch.bar\n  like: keep\n").find("twice") != std::string::npos);
}

TEST_CASE("a user's rules win over the built-in ones") {
  support::SourceManager sm;
  auto db = with("- op: torch.relu\n  like: keep\n  why: mine\n- kind: special\n  when: {name: \"*Attention\"}\n", sm);
  REQUIRE(db);
  CHECK((*db)->op("torch.relu")->why == "mine");
  CHECK((*db)->op("torch.Tensor.relu")->why.empty());
  rules::KindFacts f;
  f.type = "a.b.WindowAttention";
  f.has_children = true;
  CHECK((*db)->kind(f) == "special");
}

TEST_CASE("factor patterns") {
  rules::Pattern p;
  REQUIRE(rules::parse_pattern("... i, o i!, o?+ -> ... o", p).empty());
  REQUIRE(p.inputs.size() == 3);
  CHECK(p.inputs[0].dims[0].name == "...");
  CHECK(p.inputs[1].dims[1].blocked);
  CHECK((p.inputs[2].optional && p.inputs[2].bias));
  CHECK(p.outputs[0].dims.size() == 2);
  rules::Pattern q;
  CHECK(!rules::parse_pattern("a-b -> a", q).empty());
  std::vector<rules::Parameter> s;
  REQUIRE(rules::parse_signature("input, dim=(0, 1), *sizes, mode='a,b', **rest", s).empty());
  REQUIRE(s.size() == 5);
  CHECK(s[1].default_text == "(0, 1)");
  CHECK(s[2].kind == rules::Parameter::VarArgs);
  CHECK(s[3].kind == rules::Parameter::KeywordOnly);
  CHECK(s[3].default_text == "'a,b'");
}

TEST_CASE("kinds of modules") {
  support::SourceManager sm;
  auto db = rules::Database::load(sm);
  REQUIRE(db);
  rules::KindFacts f;
  f.type = "x.Earth3DAttention";
  f.has_children = true;
  f.contracts_with_softmax = true;
  CHECK((*db)->kind(f) == "attention");
  f = {};
  f.type = "x.Thing";
  f.has_children = true;
  f.contains = {"attention", "mlp"};
  CHECK((*db)->kind(f) == "transformer");
  f = {};
  f.type = "x.Thing";
  f.has_children = true;
  f.repeats = "transformer";
  CHECK((*db)->kind(f) == "fuser");
  f = {};
  f.type = "torch.nn.Linear";
  CHECK((*db)->kind(f) == "linear");
  f = {};
  f.type = "x.Thing";
  f.has_children = true;
  f.linears = 2;
  f.has_activation = true;
  CHECK((*db)->kind(f) == "mlp");
}

TEST_CASE("globs") {
  CHECK(rules::glob_match("*Attention*", "WindowAttention3D"));
  CHECK(rules::glob_match("Conv?d", "Conv2d"));
  CHECK_FALSE(rules::glob_match("Conv?d", "ConvTranspose2d"));
  CHECK(rules::glob_match("*", ""));
}
