#include "sharding/choose.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

namespace shardwright::sharding {

namespace {

std::size_t index(int i) { return static_cast<std::size_t>(i); }

double communication(const Axis& a) { return a.forward_elements + a.entry_elements; }

/// Exact search by components: decide the busiest vertex, fall apart, recurse.
class Search {
 public:
  Search(const std::vector<double>& weight, const std::vector<std::vector<int>>& neighbours, int budget)
      : weight_(weight), neighbours_(neighbours), budget_(budget), mark_(weight.size(), -1) {}

  std::vector<int> solve(const std::vector<int>& vertices) {
    std::vector<int> out;
    for (const std::vector<int>& c : components(vertices)) {
      const std::vector<int> best = component(c);
      out.insert(out.end(), best.begin(), best.end());
    }
    return out;
  }

 private:
  double total(const std::vector<int>& s) const {
    return std::accumulate(s.begin(), s.end(), 0.0, [this](double t, int v) { return t + weight_[index(v)]; });
  }
  std::vector<int> component(const std::vector<int>& c) {
    if (c.size() == 1) return c;
    budget_ -= static_cast<int>(c.size());
    if (budget_ < 0) return greedy(c);
    const std::set<int> inside(c.begin(), c.end());
    const auto degree = [&](int v) {
      return std::count_if(neighbours_[index(v)].begin(), neighbours_[index(v)].end(), [&](int w) { return inside.count(w) > 0; });
    };
    int pick = c.front();
    auto most = degree(pick);
    for (int v : c)
      if (const auto d = degree(v); d > most) {
        pick = v;
        most = d;
      }
    std::vector<int> without, apart;
    for (int v : c) {
      if (v == pick) continue;
      without.push_back(v);
      if (!std::binary_search(neighbours_[index(pick)].begin(), neighbours_[index(pick)].end(), v)) apart.push_back(v);
    }
    std::vector<int> with = solve(apart);
    with.push_back(pick);
    std::vector<int> rest = solve(without);
    return total(rest) > total(with) ? rest : with;
  }
  std::vector<int> greedy(std::vector<int> c) const {
    std::stable_sort(c.begin(), c.end(), [this](int a, int b) { return weight_[index(a)] > weight_[index(b)]; });
    std::vector<int> out;
    for (int v : c)
      if (std::none_of(out.begin(), out.end(),
                       [&](int u) { return std::binary_search(neighbours_[index(v)].begin(), neighbours_[index(v)].end(), u); }))
        out.push_back(v);
    return out;
  }
  std::vector<std::vector<int>> components(const std::vector<int>& vertices) {
    std::vector<std::vector<int>> out;
    const int stamp = ++stamp_;  // vertices of this call that are still to be visited
    for (int v : vertices) mark_[index(v)] = stamp;
    for (int v : vertices) {
      if (mark_[index(v)] != stamp) continue;
      std::vector<int> c{v};
      mark_[index(v)] = 0;
      for (std::size_t i = 0; i < c.size(); ++i)
        for (int w : neighbours_[index(c[i])])
          if (mark_[index(w)] == stamp) {
            mark_[index(w)] = 0;
            c.push_back(w);
          }
      std::sort(c.begin(), c.end());
      out.push_back(std::move(c));
    }
    return out;
  }

  const std::vector<double>& weight_;
  const std::vector<std::vector<int>>& neighbours_;
  int budget_;
  int stamp_ = 0;
  std::vector<int> mark_;
};

struct Candidates {
  std::vector<int> axes;
  std::vector<std::vector<int>> neighbours;  ///< by position in `axes`
};

Candidates candidates(const model::Trace& trace, AxisTable& table, const Options& options) {
  Candidates c;
  std::vector<int> position(table.axes.size(), -1);
  std::map<TensorId, std::string> kept;  // by any of its names: a tied parameter has several
  if (!options.keep_replicated.empty() || !options.kept_whole.empty())
    for (const auto& n : model::named_tensors(trace)) {
      for (const auto& p : options.keep_replicated)
        if (matches(p, n.fqn)) kept.emplace(n.ref.tensor, "kept replicated on request");
      for (const auto& [p, why] : options.kept_whole)
        if (matches(p, n.fqn)) kept.emplace(n.ref.tensor, why);
    }
  std::vector<char> read(trace.tensors.size(), 0);
  for (const auto& op : trace.ops)
    if (op.clock >= trace.forward_begin)
      for (const auto& i : op.inputs) read[index(i.tensor)] = 1;
  for (Axis& a : table.axes) {
    if (!a.legal && !table.divisibility_only[index(a.id)]) continue;
    if (a.parameter_elements <= 0) continue;
    if (!std::any_of(a.parameters.begin(), a.parameters.end(), [&](TensorId t) { return read[index(t)] != 0; })) {
      a.why_not = "forward reads no parameter that carries it";
      continue;
    }
    if (std::any_of(a.parameters.begin(), a.parameters.end(), [&](TensorId t) { return trace.hooked.count(t) > 0; })) {
      a.given_up = true;
      a.why_not = "a hook is registered on a parameter that carries it, or on its module";
      continue;
    }
    if (const auto why = options.given_up.find(a.key); why != options.given_up.end()) {
      a.given_up = true;
      a.why_not = why->second;
      continue;
    }
    const auto pinned = std::find_if(a.parameters.begin(), a.parameters.end(), [&](TensorId t) { return kept.count(t) > 0; });
    if (pinned != a.parameters.end()) {
      a.given_up = true;
      a.why_not = kept[*pinned];
      continue;
    }
    position[index(a.id)] = static_cast<int>(c.axes.size());
    c.axes.push_back(a.id);
  }
  c.neighbours.resize(c.axes.size());
  const auto exclude = [&](const std::vector<int>& together) {
    std::vector<int> here;
    for (int a : together)
      if (position[index(a)] >= 0) here.push_back(position[index(a)]);
    for (int x : here)
      for (int y : here)
        if (x != y) c.neighbours[index(x)].push_back(y);
  };
  for (const auto& axes : table.touched) exclude(axes);
  for (const auto& axes : table.of_tensor) exclude(axes);
  for (auto& n : c.neighbours) {
    std::sort(n.begin(), n.end());
    n.erase(std::unique(n.begin(), n.end()), n.end());
  }
  return c;
}

bool excluded(const Candidates& c, int v, const std::vector<char>& taken) {
  return std::any_of(c.neighbours[index(v)].begin(), c.neighbours[index(v)].end(), [&](int w) { return taken[index(w)] != 0; });
}

std::vector<int> greedy(const Candidates& c, const std::function<double(int)>& value, std::vector<char> taken = {}) {
  std::vector<int> order(c.axes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return value(a) > value(b); });
  taken.resize(c.axes.size(), 0);
  std::vector<int> out;
  for (int v : order) {
    if (taken[index(v)] || excluded(c, v, taken)) continue;
    taken[index(v)] = 1;
    out.push_back(v);
  }
  return out;
}

/// What an all-reduced element costs in parameter elements: so that a typical region keeps three quarters of its gain.
/// Weighing gain alone picks the residual stream (legal where norms are sums, but an all-reduce after every layer).
double price_of(const Candidates& c, const AxisTable& table) {
  const std::vector<int> first = greedy(c, [&](int v) {
    const Axis& a = table.axes[index(c.axes[index(v)])];
    return a.vocabulary ? 0 : a.parameter_elements / (1 + communication(a));
  });
  double gain = 0, cost = 0;
  for (int v : first) {
    if (table.axes[index(c.axes[index(v)])].vocabulary) continue;  // tables and heads are no typical region
    gain += table.axes[index(c.axes[index(v)])].parameter_elements;
    cost += communication(table.axes[index(c.axes[index(v)])]);
  }
  return gain / (1 + cost) / 4;
}

double seconds_saved(const Axis& a, const Options& o) {
  const double share = 1.0 - 1.0 / o.tp;
  const double compute = 3 * a.flops * share / o.profile.flops;  // backward costs twice the forward
  const double bytes_per_element = a.parameter_elements > 0 ? a.parameter_bytes / a.parameter_elements : 4;
  return compute - 2 * share * communication(a) * bytes_per_element / o.profile.bytes_per_second -
      o.profile.latency * (a.forward_sites + a.entry_sites);
}

}  // namespace

double score(const Axis& a, double price) { return a.parameter_elements - price * communication(a); }

std::vector<int> independent_set(const std::vector<double>& weight, const std::vector<std::vector<int>>& neighbours, int budget) {
  std::vector<int> vertices;
  for (std::size_t v = 0; v < weight.size(); ++v)
    if (weight[v] > 0) vertices.push_back(static_cast<int>(v));
  std::vector<int> out = Search(weight, neighbours, budget).solve(vertices);
  std::sort(out.begin(), out.end());
  return out;
}

Choice choose(const model::Trace& trace, AxisTable& table, const Options& options) {
  const Candidates c = candidates(trace, table, options);
  const auto axis = [&](int v) -> const Axis& { return table.axes[index(c.axes[index(v)])]; };
  const double price = price_of(c, table);
  std::vector<double> weight(c.axes.size());
  for (std::size_t v = 0; v < weight.size(); ++v) {
    const Axis& a = axis(static_cast<int>(v));
    if (options.objective == "memory") {
      // Weights, gradients and two moments; then what is kept for backward. Communication breaks ties only.
      weight[v] = 4 * a.parameter_bytes + a.activation_bytes - 1e-9 * communication(a);
    } else if (options.objective == "time") {
      weight[v] = seconds_saved(a, options);
    } else {
      weight[v] = score(a, price);
    }
    if (a.divides) weight[v] *= 1 + 1e-9;  // between equals, one that can be split
  }
  std::vector<int> best = independent_set(weight, c.neighbours);
  if (options.objective != "memory" && options.objective != "time") {
    // `split`: the price decides between axes that exclude each other; what remains is split too, the cheapest first.
    std::vector<char> taken(c.axes.size(), 0);
    for (int v : best) taken[index(v)] = 1;
    for (int v : greedy(
             c, [&](int v) { return weight[index(v)]; }, taken))
      best.push_back(v);
  }
  Choice out;
  for (int v : best) (axis(v).legal ? out.chosen : out.wanted).push_back(axis(v).id);
  std::sort(out.chosen.begin(), out.chosen.end());
  std::sort(out.wanted.begin(), out.wanted.end());
  return out;
}

}  // namespace shardwright::sharding
