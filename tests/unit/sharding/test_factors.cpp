#include <catch2/catch.hpp>
#include <map>
#include <numeric>
#include <random>

#include "sharding/factors.h"

using namespace shardwright::sharding;

namespace {
std::vector<std::int64_t> sizes(FactorStore& s, const FactorList& l) {
  std::vector<std::int64_t> out;
  for (FactorId f : s.leaves(l)) out.push_back(s.size(f));
  return out;
}
using Sizes = std::vector<std::int64_t>;
const Reason test_reason{"test", {}, false};
}  // namespace

TEST_CASE("equal sizes become one factor, unequal ones are split from the left") {
  FactorStore s;
  const FactorId a = s.fresh(96), b = s.fresh(3), c = s.fresh(32);
  REQUIRE(s.unify({a}, {b, c}, test_reason));
  CHECK(sizes(s, {a}) == Sizes{3, 32});
  CHECK(s.find(s.leaves({a})[1]) == s.find(c));
  const FactorId h = s.fresh(4), d = s.fresh(8);
  REQUIRE(s.unify({c}, {h, d}, test_reason));
  CHECK(sizes(s, {a}) == Sizes{3, 4, 8});  // resolved again after the later split
  CHECK(s.reasons(h).empty());
}

TEST_CASE("what cannot be aligned is blocked on both sides") {
  FactorStore s;
  const FactorId a = s.fresh(4), b = s.fresh(9), c = s.fresh(6), d = s.fresh(6);
  CHECK_FALSE(s.unify({a, b}, {c, d}, test_reason));
  for (FactorId f : s.leaves({a, b, c, d})) CHECK_FALSE(s.reasons(f).empty());
}

TEST_CASE("size one has no factor") {
  FactorStore s;
  const FactorId one = s.fresh(1), a = s.fresh(5);
  CHECK(s.leaves({one, a}) == FactorList{a});
  CHECK(s.unify({one}, {}, test_reason));
}

TEST_CASE("segments are unified one by one, and blocked when cut elsewhere") {
  FactorStore s;
  const FactorId whole = s.fresh(64), q = s.fresh(32), k = s.fresh(16), v = s.fresh(16);
  REQUIRE(s.concatenate(whole, {{q}, {k}, {v}}));
  const FactorId other = s.fresh(64), q2 = s.fresh(32), k2 = s.fresh(16), v2 = s.fresh(16);
  REQUIRE(s.concatenate(other, {{q2}, {k2}, {v2}}));
  REQUIRE(s.unify({whole}, {other}, test_reason));
  CHECK(s.find(k) == s.find(k2));
  CHECK(s.find(k) != s.find(v));
  CHECK(s.deep({whole}).size() == 3);
  s.split(s.find(whole), 8);
  CHECK_FALSE(s.reasons(q).empty());
  CHECK_FALSE(s.reasons(v2).empty());
}

TEST_CASE("a reason given before two concatenations meet reaches the segments") {
  FactorStore s;
  const FactorId plain = s.fresh(48), whole = s.fresh(48), q = s.fresh(32), k = s.fresh(16);
  s.block({plain}, test_reason);
  REQUIRE(s.concatenate(whole, {{q}, {k}}));
  s.unify({plain}, {whole}, test_reason);
  CHECK_FALSE(s.reasons(q).empty());
}

TEST_CASE("regroup keeps what aligns and blocks the rest") {
  FactorStore s;
  const FactorId b = s.fresh(2), h = s.fresh(4), w = s.fresh(9);
  std::vector<FactorList> out;
  CHECK_FALSE(s.regroup({b, h, w}, {2, 6, 6}, out, test_reason));
  REQUIRE(out.size() == 1);
  CHECK(s.find(out[0][0]) == b);
  CHECK(s.reasons(b).empty());
  CHECK_FALSE(s.reasons(w).empty());
}

/// The truth about a view: factor `f` of the input keeps its stride and size in the output if the output has it.
TEST_CASE("regroup agrees with index arithmetic on random views") {
  std::mt19937 rng(7);
  for (int round = 0; round < 2000; ++round) {
    const auto pick = [&](int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng); };
    std::vector<std::int64_t> primes, in, shape;
    for (int i = pick(1, 6); i > 0; --i) primes.push_back(std::vector<int>{2, 2, 3, 5}[static_cast<std::size_t>(pick(0, 3))]);
    const auto group = [&](std::vector<std::int64_t> p) {
      std::vector<std::int64_t> dims{1};
      for (auto x : p) {
        if (pick(0, 1) == 0) dims.push_back(1);
        dims.back() *= x;
      }
      return dims;
    };
    in = group(primes);
    if (pick(0, 1) == 0) std::shuffle(primes.begin(), primes.end(), rng);
    shape = group(primes);
    FactorStore s;
    FactorList flat;
    for (auto n : in) flat.push_back(s.fresh(n));
    std::vector<FactorList> out;
    const bool ok = s.regroup(flat, shape, out, test_reason);
    // Strides of the leaves on both sides must be the same.
    const auto strides = [&](const FactorList& l) {
      std::map<FactorId, std::int64_t> m;
      std::int64_t stride = 1;
      const FactorList leaves = s.leaves(l);
      for (auto it = leaves.rbegin(); it != leaves.rend(); ++it) {
        m[*it] = stride;
        stride *= s.size(*it);
      }
      return m;
    };
    const auto before = strides(flat);
    FactorList all;
    for (const auto& d : out) all.insert(all.end(), d.begin(), d.end());
    std::int64_t rest = 1;
    for (std::size_t i = out.size(); i < shape.size(); ++i) rest *= shape[i];
    INFO("round " << round);
    for (const auto& [f, stride] : strides(all)) CHECK(before.at(f) == stride * rest);
    for (std::size_t i = 0; i < out.size(); ++i) CHECK(s.product(out[i]) == shape[i]);
    if (ok) CHECK(out.size() == shape.size());
  }
}
