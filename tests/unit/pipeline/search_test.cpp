// The optimisation against brute force: same slowest stage, then the same bytes.
#include "pipeline/search.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <random>

#include "pipeline/pipeline.h"

using namespace shardwright::pipeline;

namespace {

struct Value {
  double slowest = std::numeric_limits<double>::infinity(), bytes = 0;
  bool operator<(const Value& o) const { return slowest != o.slowest ? slowest < o.slowest : bytes < o.bytes; }
};

Value value_of(const std::vector<double>& c, const std::vector<double>& b, double total, const std::vector<int>& cuts) {
  Value v{0, 0};
  double last = 0;
  for (int i : cuts) {
    v.slowest = std::max(v.slowest, c[static_cast<std::size_t>(i)] - last);
    v.bytes += b[static_cast<std::size_t>(i)];
    last = c[static_cast<std::size_t>(i)];
  }
  v.slowest = std::max(v.slowest, total - last);
  return v;
}

void brute(const std::vector<double>& c, const std::vector<double>& b, double total, int p, std::vector<int>& now, Value& best) {
  if (static_cast<int>(now.size()) == p - 1) {
    best = std::min(best, value_of(c, b, total, now));
    return;
  }
  for (int i = now.empty() ? 0 : now.back() + 1; i < static_cast<int>(c.size()); ++i) {
    now.push_back(i);
    brute(c, b, total, p, now, best);
    now.pop_back();
  }
}

}  // namespace

TEST_CASE("equals brute force on 200 random chains with skips") {
  std::mt19937 rng(20240711);
  for (int round = 0; round < 200; ++round) {
    INFO("seed 20240711, round " << round);
    const int n = 3 + static_cast<int>(rng() % 14), p = 1 + static_cast<int>(rng() % 5);
    std::vector<double> c, b;
    double sum = 0;
    // A chain of operations with costs from a few values (ties are frequent); every place carries x and the skips open there.
    std::vector<int> open(static_cast<std::size_t>(n), 0);
    for (int s = 0; s < 3; ++s) {
      int a = static_cast<int>(rng() % static_cast<unsigned>(n)), e = static_cast<int>(rng() % static_cast<unsigned>(n));
      if (a > e) std::swap(a, e);
      for (int i = a; i < e; ++i) ++open[static_cast<std::size_t>(i)];
    }
    for (int i = 0; i < n; ++i) {
      sum += round % 2 ? static_cast<double>(rng() % 4) : static_cast<double>(rng()) / 1e6;
      c.push_back(sum);
      b.push_back(64.0 * (1 + open[static_cast<std::size_t>(i)]));
    }
    const double total = sum + static_cast<double>(rng() % 4);
    Value best;
    std::vector<int> now;
    brute(c, b, total, p, now, best);
    const std::vector<int> got = best_cuts(c, b, total, p);
    if (p - 1 > n) {
      CHECK(got.empty());
      continue;
    }
    REQUIRE(static_cast<int>(got.size()) == p - 1);
    CHECK(std::is_sorted(got.begin(), got.end()));
    const Value v = value_of(c, b, total, got);
    CHECK(v.slowest == best.slowest);
    CHECK(v.bytes == best.bytes);
  }
}

TEST_CASE("required places are kept, and the rest is optimal around them") {
  std::mt19937 rng(7);
  for (int round = 0; round < 100; ++round) {
    INFO("seed 7, round " << round);
    const int n = 8, p = 4;
    std::vector<double> c, b(n, 1.0);
    double sum = 0;
    for (int i = 0; i < n; ++i) c.push_back(sum += static_cast<double>(rng() % 9));
    const double total = sum + 3;
    std::vector<char> required(n, 0);
    const int pin = static_cast<int>(rng() % n);
    required[static_cast<std::size_t>(pin)] = 1;
    double best = std::numeric_limits<double>::infinity();
    for (int i = 0; i < n; ++i)
      for (int j = i + 1; j < n; ++j)
        for (int k = j + 1; k < n; ++k)
          if (i == pin || j == pin || k == pin) best = std::min(best, value_of(c, b, total, {i, j, k}).slowest);
    const double got = smallest_bottleneck(c, total, p, required);
    CHECK(got == best);
    const auto cuts = gentlest(c, std::vector<Penalty>(n), total, p, got, required);
    REQUIRE(cuts.size() == 3);
    CHECK(std::count(cuts.begin(), cuts.end(), pin) == 1);
    CHECK(value_of(c, b, total, cuts).slowest == best);
  }
}

TEST_CASE("fewer places than stages") {
  CHECK(best_cuts({1, 2}, {0, 0}, 3, 4).empty());
  CHECK(best_cuts({1, 2}, {0, 0}, 3, 3) == std::vector<int>{0, 1});
  CHECK(best_cuts({}, {}, 3, 1).empty());
  CHECK(best_cuts({}, {}, 3, 2).empty());
}

TEST_CASE("a hundred thousand places: a quadratic search would not end") {
  std::vector<double> c, b;
  for (int i = 0; i < 100000; ++i) {
    c.push_back(i + 1);
    b.push_back(i % 7);
  }
  CHECK(best_cuts(c, b, 100001, 8).size() == 7);
}
