// Choosing p − 1 cuts out of N places so that the slowest of the p stages is as fast as can be.
//
// The plain dynamic programme is
//
//     f[k][j] = the smallest possible slowest stage when the first k stages end at place j
//             = min over i < j of max(f[k−1][i], c[j] − c[i])            c: cumulative cost
//
// which looks at every pair (i, j): O(p·N²). A 96-layer model has thousands of places (every statement, at any depth),
// so that is tens of millions of steps for nothing: f[k−1][i] does not fall and c[j] − c[i] does not rise with i, so their
// maximum has its minimum where they cross, and a binary search finds it: O(p·N·log N). The same differences are compared
// as in the plain form, hence the same floating-point numbers: equal to brute force, not nearly equal.
// (Filling each stage up to the mean, the obvious method, is not optimal: 6 6 6 2 in two stages becomes 6 | 14 when a stage
// stops before the mean of 10, while 12 | 8 exists; 8 8 4 becomes 16 | 4 when it stops after, while 8 | 12 exists.)
//
// What a person would rather do (shallow cuts, whole iterations, few tensors) is not mixed into that cost. It is a second
// search: among all choices whose slowest stage is within `bound`, the smallest sum of penalties,
//
//     g[k][j] = penalty[j] + min over i < j with c[j] − c[i] ≤ bound of g[k−1][i]
//
// a minimum over a window that only moves forward: a queue of candidates in which each place enters and leaves once,
// O(p·N). Penalties are tuples added element by element and compared in order, which addition respects, so the
// programme stays exact. Last, the bound is tightened as far as the same penalty allows (bisection).
#include "pipeline/search.h"

#include <algorithm>
#include <deque>
#include <limits>

namespace shardwright::pipeline {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Penalty operator+(Penalty a, const Penalty& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

/// Places with the forward's two ends: index 0 is the beginning, n + 1 the end.
struct Line {
  std::vector<double> c;
  std::vector<int> lowest;  // by place: the earliest place from which a stage may reach it without passing a required one
  bool free = true;         // nothing is required
  int end = 0;

  Line(const std::vector<double>& cost, double total, const std::vector<char>& required) {
    c.push_back(0);
    c.insert(c.end(), cost.begin(), cost.end());
    c.push_back(total);
    end = static_cast<int>(c.size()) - 1;
    lowest.assign(c.size(), 0);
    int last = 0;
    for (int j = 1; j <= end; ++j) {
      lowest[static_cast<std::size_t>(j)] = last;
      if (j < end && static_cast<std::size_t>(j - 1) < required.size() && required[static_cast<std::size_t>(j - 1)]) {
        last = j;
        free = false;
      }
    }
  }
  double at(int i) const { return c[static_cast<std::size_t>(i)]; }
};

struct Gentle {
  Penalty penalty{};
  std::vector<int> chosen;
  bool found = false;
};

Gentle run(const Line& line, const std::vector<Penalty>& penalty, int p, double bound) {
  const int n = line.end;
  struct State {
    bool ok = false;
    Penalty sum{};
  };
  std::vector<State> before(line.c.size()), now(line.c.size());
  std::vector<std::vector<int>> from(static_cast<std::size_t>(p) + 1, std::vector<int>(line.c.size(), -1));
  before[0].ok = true;
  for (int k = 1; k <= p; ++k) {
    for (State& s : now) s.ok = false;
    std::deque<int> window;  // candidates i, their sums increasing
    for (int j = 1; j <= n; ++j) {
      const State& fresh = before[static_cast<std::size_t>(j - 1)];
      if (fresh.ok) {
        while (!window.empty() && fresh.sum <= before[static_cast<std::size_t>(window.back())].sum) window.pop_back();
        window.push_back(j - 1);
      }
      while (!window.empty() && (line.at(j) - line.at(window.front()) > bound || window.front() < line.lowest[static_cast<std::size_t>(j)]))
        window.pop_front();
      if (window.empty() || (j == n) != (k == p)) continue;
      State& s = now[static_cast<std::size_t>(j)];
      s.ok = true;
      s.sum = before[static_cast<std::size_t>(window.front())].sum;
      if (j < n) s.sum = s.sum + penalty[static_cast<std::size_t>(j - 1)];
      from[static_cast<std::size_t>(k)][static_cast<std::size_t>(j)] = window.front();
    }
    std::swap(before, now);
  }
  Gentle out;
  const State& last = before[static_cast<std::size_t>(n)];
  if (!last.ok) return out;
  out.found = true;
  out.penalty = last.sum;
  for (int k = p, j = n; k > 1; --k) {
    j = from[static_cast<std::size_t>(k)][static_cast<std::size_t>(j)];
    out.chosen.push_back(j - 1);
  }
  std::reverse(out.chosen.begin(), out.chosen.end());
  return out;
}

}  // namespace

double smallest_bottleneck(const std::vector<double>& cost, double total, int p, const std::vector<char>& required) {
  const Line line(cost, total, required);
  const int n = line.end;
  if (p < 1 || p > n) return kInfinity;
  std::vector<double> f(line.c.size(), kInfinity), g(line.c.size(), kInfinity);
  f[0] = 0;
  for (int k = 1; k <= p; ++k) {
    std::fill(g.begin(), g.end(), kInfinity);
    for (int j = k; j <= n; ++j) {
      if ((j == n) != (k == p)) continue;
      const int low = std::max(k - 1, line.lowest[static_cast<std::size_t>(j)]);
      if (low >= j) continue;
      double best = kInfinity;
      auto look = [&](int i) { best = std::min(best, std::max(f[static_cast<std::size_t>(i)], line.at(j) - line.at(i))); };
      if (line.free) {
        int a = low, b = j - 1;  // first i with f[i] ≥ c[j] − c[i]
        while (a < b) {
          const int mid = (a + b) / 2;
          if (f[static_cast<std::size_t>(mid)] >= line.at(j) - line.at(mid)) b = mid;
          else a = mid + 1;
        }
        look(a);
        if (a > low) look(a - 1);
      } else {
        for (int i = low; i < j; ++i) look(i);  // pins break the order that the search relies on; they are rare
      }
      g[static_cast<std::size_t>(j)] = best;
    }
    std::swap(f, g);
  }
  return f[static_cast<std::size_t>(n)];
}

std::vector<int> gentlest(const std::vector<double>& cost, const std::vector<Penalty>& penalty, double total, int p, double bound,
                          const std::vector<char>& required) {
  const Line line(cost, total, required);
  if (p < 1 || p > line.end) return {};
  Gentle best = run(line, penalty, p, bound);
  if (!best.found) return {};
  double low = smallest_bottleneck(cost, total, p, required), high = bound;
  for (int i = 0; i < 40 && low < high; ++i) {
    const double mid = i == 0 ? low : low + (high - low) / 2;
    Gentle tighter = run(line, penalty, p, mid);
    if (tighter.found && tighter.penalty == best.penalty) {
      best = std::move(tighter);
      high = mid;
    } else {
      low = mid;
    }
    if (i > 0 && (high - low) <= 1e-6 * high) break;
  }
  return best.chosen;
}

std::vector<int> best_cuts(const std::vector<double>& cost_before, const std::vector<double>& bytes, double total, int p) {
  const double bound = smallest_bottleneck(cost_before, total, p);
  if (bound == kInfinity) return {};
  std::vector<Penalty> penalty(bytes.size(), Penalty{});
  for (std::size_t i = 0; i < bytes.size(); ++i) penalty[i][0] = bytes[i];
  return gentlest(cost_before, penalty, total, p, bound);
}

}  // namespace shardwright::pipeline
