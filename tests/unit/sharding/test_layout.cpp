#include <catch2/catch.hpp>
#include <numeric>

#include "sharding/choose.h"
#include "sharding/layout.h"
#include "trace_builder.h"

using namespace shardwright;
using namespace shardwright::sharding;

namespace {

/// Brute force: the indices of a dimension, walked as nested loops over its terms; those whose sharded factor is this rank's.
void walk(const Dim& d, std::size_t term, int axis, std::int64_t lo, std::int64_t hi, std::int64_t base, bool in,
          std::vector<std::int64_t>& out) {
  if (term == d.size()) {
    if (in) out.push_back(base);
    return;
  }
  std::int64_t inner = 1;
  for (std::size_t i = term + 1; i < d.size(); ++i) inner *= d[i].size;
  if (d[term].segments.empty()) {
    for (std::int64_t k = 0; k < d[term].size; ++k)
      walk(d, term + 1, axis, lo, hi, base + k * inner, in && (d[term].axis != axis || (k >= lo && k < hi)), out);
    return;
  }
  std::int64_t offset = 0;
  for (const Dim& s : d[term].segments) {
    std::vector<std::int64_t> part;
    walk(s, 0, axis, lo, hi, 0, true, part);
    for (std::int64_t k : part) walk(d, term + 1, axis, lo, hi, base + (offset + k) * inner, in, out);
    std::int64_t n = 1;
    for (const Term& t : s) n *= t.size;
    offset += n;
  }
}

std::vector<std::int64_t> expand(const std::vector<IndexRange>& r) {
  std::vector<std::int64_t> out;
  for (auto [a, b] : r)
    for (std::int64_t i = a; i < b; ++i) out.push_back(i);
  return out;
}

Term leaf(int axis, std::int64_t size) { return Term{axis, size, {}}; }

struct Case {
  model::Trace trace;
  Result result;
  Case(std::vector<std::int64_t> shape, Factored f, int axis) {
    model::Tensor t;
    t.id = 0;
    t.shape = std::move(shape);
    trace.tensors.push_back(t);
    result.tensors.push_back(std::move(f));
    result.axis_of.push_back(axis);
    result.states.push_back(axis >= 0 ? State::V : State::I);
  }
};

void check_against_brute_force(const Case& c, int tp) {
  const Layout l = layout(c.result, c.trace, 0);
  const int axis = c.result.axis_of[0];
  for (int rank = 0; rank < tp; ++rank) {
    const auto s = slices(l, tp, rank);
    REQUIRE(s.size() == c.trace.tensors[0].shape.size());
    for (std::size_t i = 0; i < s.size(); ++i) {
      const std::int64_t mine = l.shard_size / tp;
      std::vector<std::int64_t> want;
      walk(c.result.tensors[0][i], 0, axis, rank * mine, (rank + 1) * mine, 0, true, want);
      CHECK(expand(s[i]) == want);
    }
  }
}

}  // namespace

TEST_CASE("layouts of the usual kinds") {
  SECTION("fused qkv") {
    const Case c({96, 32}, {{leaf(0, 3), leaf(1, 4), leaf(2, 8)}, {leaf(3, 32)}}, 1);
    const Layout l = layout(c.result, c.trace, 0);
    CHECK(l.dims == "(a b c) d");
    CHECK(l.shard == "b");
    CHECK(l.sizes == std::map<std::string, std::int64_t>{{"a", 3}, {"b", 4}, {"c", 8}, {"d", 32}});
    CHECK(slices(l, 2, 1)[0] == std::vector<IndexRange>{{16, 32}, {48, 64}, {80, 96}});
    CHECK(slices(l, 3, 0).empty());
    check_against_brute_force(c, 2);
    check_against_brute_force(c, 4);
  }
  SECTION("column and row weights: neighbours that stay whole are one letter") {
    const Layout l =
        layout(Case({32, 24}, {{leaf(0, 32)}, {leaf(1, 2), leaf(2, 3), leaf(3, 4)}}, 3).result, Case({32, 24}, {}, -1).trace, 0);
    CHECK(l.dims == "a (b c)");
    CHECK(l.shard == "c");
    CHECK(l.shard_dim == 1);
  }
  SECTION("grouped queries in segments") {
    const Dim q{leaf(0, 4), leaf(1, 2), leaf(2, 8)}, k{leaf(0, 4), leaf(2, 8)}, v{leaf(0, 4), leaf(3, 8)};
    const Case c({128, 64}, {{Term{-1, 128, {q, k, v}}}, {leaf(4, 64)}}, 0);
    const Layout l = layout(c.result, c.trace, 0);
    REQUIRE(l.segments.size() == 3);
    CHECK(l.segments[1].begin == 64);
    CHECK(l.segments[1].end == 96);
    CHECK(l.segments[0].dims.substr(0, 5) == "(a b)");
    CHECK(l.shard_size == 4);
    check_against_brute_force(c, 2);
    check_against_brute_force(c, 4);
  }
  SECTION("a concatenation inside a product") {
    const Dim p{leaf(0, 4), leaf(1, 2)}, s{leaf(0, 4)};
    const Case c({72}, {{leaf(5, 2), Term{-1, 12, {p, s}}, leaf(6, 3)}}, 0);
    check_against_brute_force(c, 2);
    check_against_brute_force(c, 4);
  }
  SECTION("replicated, unit dimensions and scalars") {
    const Layout l = layout(Case({1, 5}, {{}, {leaf(0, 5)}}, -1).result, Case({1, 5}, {}, -1).trace, 0);
    CHECK(l.shard.empty());
    CHECK(l.dims == "1 a");
    CHECK(slices(l, 2, 1) == std::vector<std::vector<IndexRange>>{{{0, 1}}, {{0, 5}}});
    CHECK(layout(Case({}, {}, -1).result, Case({}, {}, -1).trace, 0).dims.empty());
  }
}

TEST_CASE("independent sets equal brute force") {
  std::srand(11);
  for (int round = 0; round < 300; ++round) {
    const int n = 1 + std::rand() % 12;
    std::vector<double> w;
    std::vector<std::vector<int>> adj(static_cast<std::size_t>(n));
    for (int i = 0; i < n; ++i) w.push_back(std::rand() % 20 - 3);
    for (int i = 0; i < n; ++i)
      for (int j = i + 1; j < n; ++j)
        if (std::rand() % 3 == 0) {
          adj[static_cast<std::size_t>(i)].push_back(j);
          adj[static_cast<std::size_t>(j)].push_back(i);
        }
    for (auto& a : adj) std::sort(a.begin(), a.end());
    double best = 0;
    for (int m = 0; m < (1 << n); ++m) {
      double sum = 0;
      bool ok = true;
      for (int i = 0; i < n; ++i) {
        if ((m >> i & 1) == 0) continue;
        sum += w[static_cast<std::size_t>(i)];
        for (int j : adj[static_cast<std::size_t>(i)]) ok = ok && (m >> j & 1) == 0;
      }
      if (ok) best = std::max(best, sum);
    }
    double got = 0;
    const auto set = independent_set(w, adj);
    for (int v : set) got += w[static_cast<std::size_t>(v)];
    CHECK(got == Approx(best));
    for (int v : set)
      for (int u : set)
        CHECK_FALSE(std::binary_search(adj[static_cast<std::size_t>(v)].begin(), adj[static_cast<std::size_t>(v)].end(), u));
  }
}
