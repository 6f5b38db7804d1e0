#include "support/merge.h"

#include <catch2/catch.hpp>

using shardwright::support::merge_three;

namespace {
auto merge(const char* base, const char* mine, const char* theirs) { return merge_three(base, mine, theirs, "mine", "theirs"); }
}  // namespace

TEST_CASE("lines that one side changed are that side's", "[support][merge]") {
  auto m = merge("a\nb\nc\nd\n", "a\nB\nc\nd\n", "a\nb\nc\nD\ne\n");
  CHECK(m.conflicts == 0);
  CHECK(m.text == "a\nB\nc\nD\ne\n");
}

TEST_CASE("insertions and deletions of both sides stay", "[support][merge]") {
  auto m = merge("a\nb\nc\nd\ne\n", "x\na\nb\nc\nd\ne\n", "a\nb\nd\ne\ny\n");
  CHECK(m.conflicts == 0);
  CHECK(m.text == "x\na\nb\nd\ne\ny\n");
}

TEST_CASE("the same change on both sides is taken once", "[support][merge]") {
  auto m = merge("a\nb\nc\n", "a\nB\nc\n", "a\nB\nc\n");
  CHECK(m.conflicts == 0);
  CHECK(m.text == "a\nB\nc\n");
}

TEST_CASE("two changes of one line are a conflict and both are shown", "[support][merge]") {
  auto m = merge("a\nb\nc\n", "a\nmine\nc\n", "a\ntheirs\nc\n");
  CHECK(m.conflicts == 1);
  CHECK(m.text == "a\n<<<<<<< mine\nmine\n=======\ntheirs\n>>>>>>> theirs\nc\n");
}
