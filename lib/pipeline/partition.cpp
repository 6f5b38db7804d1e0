// From places to stages: the best cuts, then what each stage holds and what a person should know about it.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <set>

#include "pipeline/liveness.h"
#include "pipeline/search.h"

namespace shardwright::pipeline {
namespace {

using model::ModuleId;
using model::Origin;
using model::Trace;

constexpr Clock kForever = std::numeric_limits<Clock>::max();
std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

std::string name_of(const Trace& t, ModuleId m) {
  if (m < 0) return "the model";
  const model::Module& x = t.module(m);
  return x.fqn.empty() ? "the model itself (" + x.type + ")" : x.fqn + " (" + x.type + ")";
}

/// Innermost module that holds all of these.
ModuleId common(const Trace& t, const std::vector<ModuleId>& ids) {
  std::vector<ModuleId> line;
  bool first = true;
  for (ModuleId m : ids) {
    std::vector<ModuleId> up;
    for (int guard = 0; m >= 0 && guard < 200; m = t.module(m).parent, ++guard) up.push_back(m);
    std::reverse(up.begin(), up.end());
    if (first) {
      line = up;
      first = false;
      continue;
    }
    std::size_t n = 0;
    while (n < line.size() && n < up.size() && line[n] == up[n]) ++n;
    line.resize(n);
  }
  return line.empty() ? -1 : line.back();
}

std::string percent(double share) {
  char b[32];
  std::snprintf(b, sizeof b, "%.0f %%", share * 100);
  return b;
}

class Stages {
 public:
  Stages(const Trace& t, const Liveness& l, Partition& out) : trace_(t), live_(l), out_(out) {}

  void run() {
    const std::size_t p = out_.cuts.size() + 1;
    owners_.resize(trace_.tensors.size());
    for (const auto& m : trace_.modules)
      for (const auto& r : m.params)
        if (r.tensor >= 0) owners_[at(r.tensor)].push_back(m.id);
    out_.stages.resize(p);
    double slowest = 0;
    for (std::size_t k = 0; k < p; ++k) {
      Stage& s = out_.stages[k];
      const Cut* begin = k ? &out_.cuts[k - 1] : nullptr;
      const Cut* end = k + 1 < p ? &out_.cuts[k] : nullptr;
      s.cost = (end ? end->cost_before : live_.total()) - (begin ? begin->cost_before : 0);
      slowest = std::max(slowest, s.cost);
      s.ops = live_.needed(begin, end);
      std::set<TensorId> read;
      std::set<ModuleId> modules;
      for (OpId o : s.ops) {
        add_with_parents(modules, trace_.op(o).module);
        for (const auto& in : trace_.op(o).inputs) {
          given(read, in.tensor);
          if (in.tensor >= 0) add_owner(modules, in.tensor, trace_.op(o).module);
        }
      }
      if (!end)
        for (TensorId t : model::tensors_of(trace_.output)) given(read, t);
      for (const auto& c : trace_.calls)  // modules that did nothing here (dropout that is off) are called all the same
        if (c.begin >= trace_.forward_begin && c.begin < (end ? end->clock : kForever) && c.end > (begin ? begin->clock : 0))
          add_with_parents(modules, c.module);
      s.parameters.assign(read.begin(), read.end());
      s.modules.assign(modules.begin(), modules.end());
      for (TensorId t : s.parameters)
        if (trace_.tensor(t).origin == Origin::Parameter)
          s.parameter_bytes += model::numel(trace_.tensor(t)) * model::bytes_of(trace_.tensor(t).dtype);
    }
    const double mean = live_.total() / static_cast<double>(p);
    out_.slowest_over_mean = mean > 0 ? slowest / mean : 1;
    ties();
    imbalance(mean);
    batch_norms();
  }

 private:
  void add_with_parents(std::set<ModuleId>& s, ModuleId m) const {
    for (; m >= 0 && s.insert(m).second; m = trace_.module(m).parent) {}
  }
  /// The module that a parameter was reached through: the running one where it registers it, else every one that does.
  void add_owner(std::set<ModuleId>& s, TensorId t, ModuleId running) const {
    const auto& owners = owners_[at(t)];
    if (std::find(owners.begin(), owners.end(), running) != owners.end()) add_with_parents(s, running);
    else
      for (ModuleId m : owners) add_with_parents(s, m);
  }
  /// Parameters and buffers; an attribute that __init__ computed counts as what it was computed from only where it is one.
  void given(std::set<TensorId>& read, TensorId t) const {
    if (t < 0) return;
    const Origin o = trace_.tensor(t).origin;
    if (o == Origin::Parameter || o == Origin::Buffer) read.insert(t);
  }

  void ties() {
    std::vector<std::vector<int>> where(trace_.tensors.size());
    for (std::size_t k = 0; k < out_.stages.size(); ++k)
      for (TensorId t : out_.stages[k].parameters)
        if (trace_.tensor(t).origin == Origin::Parameter) where[at(t)].push_back(static_cast<int>(k));
    for (std::size_t t = 0; t < where.size(); ++t)
      if (where[t].size() > 1) out_.tied.push_back({static_cast<TensorId>(t), where[t]});
  }

  void imbalance(double mean) {
    if (out_.stages.size() < 2 || out_.slowest_over_mean <= 1.2) return;
    std::size_t k = 0;
    for (std::size_t i = 0; i < out_.stages.size(); ++i)
      if (out_.stages[i].cost > out_.stages[k].cost) k = i;
    // The costliest stretch of that stage that no legal cut divides.
    const double lo = k ? out_.cuts[k - 1].cost_before : 0, hi = lo + out_.stages[k].cost;
    double worst = 0, from = lo, previous = lo;
    for (double c : legal_) {
      if (c <= lo || c > hi) continue;
      if (c - previous > worst) worst = c - previous, from = previous;
      previous = c;
    }
    if (hi - previous > worst) worst = hi - previous, from = previous;
    std::vector<ModuleId> inside;
    for (int p = 0; p + 1 < live_.places(); ++p)
      if (live_.cost_before(p) >= from && live_.cost_before(p + 1) <= from + worst && live_.cost_before(p + 1) > live_.cost_before(p))
        inside.push_back(trace_.op(live_.flow_op(p)).module);
    out_.warnings.push_back("stage " + std::to_string(k) + " costs " + percent(out_.slowest_over_mean - 1) +
                            " more than the mean: " + name_of(trace_, common(trace_, inside)) + " is " +
                            percent(mean > 0 ? worst / mean : 0) + " of a stage's mean and no legal cut divides it");
  }

  void batch_norms() {
    if (out_.stages.size() < 2) return;
    std::string names;
    int n = 0;
    for (const auto& m : trace_.modules)
      if (m.training && m.type.find("BatchNorm") != std::string::npos && m.type.find("SyncBatchNorm") == std::string::npos &&
          m.parent >= 0) {
        if (++n <= 5) names += (n > 1 ? ", " : "") + m.fqn;
      }
    if (n > 5) names += " and " + std::to_string(n - 5) + " more";
    if (n)
      out_.warnings.push_back(
          "batch statistics are taken per micro-batch, as they are without a pipeline when gradients are accumulated: " + names);
  }

  const Trace& trace_;
  const Liveness& live_;
  Partition& out_;
  std::vector<std::vector<ModuleId>> owners_;  // by tensor: modules that register it

 public:
  std::vector<double> legal_;
};

std::string why_few(const Options& options, std::size_t found, std::size_t without_condition) {
  const int cuts = options.stages - 1;
  std::string s = std::to_string(options.stages) + " stages need " + std::to_string(cuts) + (cuts == 1 ? " cut" : " cuts") + ", but ";
  if (options.can_emit && without_condition > found)
    s += "of the forward's " + std::to_string(without_condition) + " places where at most " + std::to_string(options.max_tensors) +
        " tensors cross, the stages' source can be written for " + (found == 0 ? "none" : std::to_string(found));
  else
    s += "the forward has " + std::to_string(found) + " place" + (found == 1 ? "" : "s") + " where at most " +
        std::to_string(options.max_tensors) + " tensors cross";
  if (found == 0) return s + ": it stays in one stage";
  return s + "; at most " + std::to_string(found + 1) + " stages are possible";
}

/// The places of one forward, each with its cuts in order of preference. Whether generation can express a cut is asked only of
/// cuts that would be chosen: asking costs as much as writing the stage, and there are thousands of places.
class Candidates {
 public:
  Candidates(const Trace& trace, const Options& options, Liveness& live) : trace_(trace), options_(options) {
    if (options.stages > 1) found_ = places(trace, options, live);
    for (const auto& f : found_) place_.push_back(live.place_of(f[0].clock));
    all_ = found_.size();
    refresh();
  }

  std::size_t size() const { return found_.size(); }
  std::size_t before_questions() const { return all_; }
  const std::vector<double>& cost() const { return cost_; }
  const std::vector<Penalty>& penalty() const { return penalty_; }
  const std::vector<int>& place() const { return place_; }
  const Cut& best(int i) const { return found_[static_cast<std::size_t>(i)][0]; }

  /// Asks about the preferred cut of each of these places; false when one was refused, which is then gone.
  bool keep(const std::vector<int>& chosen) {
    if (!options_.can_emit) return true;
    bool all = true;
    for (int i : chosen) {
      auto& here = found_[static_cast<std::size_t>(i)];
      if (asked_.count(here[0].clock)) continue;
      while (!here.empty() && !options_.can_emit(trace_, here[0], options_.can_emit_data)) {
        here.erase(here.begin());
        all = false;
      }
      if (!here.empty()) asked_.insert(here[0].clock);
    }
    if (!all) refresh();
    return all;
  }
  /// Asks about every place.
  void keep_all() {
    std::vector<int> every(found_.size());
    for (std::size_t i = 0; i < every.size(); ++i) every[i] = static_cast<int>(i);
    keep(every);
  }

 private:
  void refresh() {
    cost_.clear();
    penalty_.clear();
    std::size_t kept = 0;
    for (std::size_t i = 0; i < found_.size(); ++i) {
      if (found_[i].empty()) continue;
      if (kept != i) found_[kept] = std::move(found_[i]), place_[kept] = place_[i];
      cost_.push_back(found_[kept][0].cost_before);
      penalty_.push_back(penalty_of(found_[kept][0]));
      ++kept;
    }
    found_.resize(kept);
    place_.resize(kept);
  }

  const Trace& trace_;
  const Options& options_;
  std::vector<std::vector<Cut>> found_;
  std::vector<int> place_;
  std::vector<double> cost_;
  std::vector<Penalty> penalty_;
  std::set<Clock> asked_;
  std::size_t all_ = 0;
};

}  // namespace

Partition partition(const Trace& trace, const Options& options) {
  Partition out;
  Liveness live(trace, options);
  Candidates candidates(trace, options, live);
  if (options.stages > 1) {
    std::vector<int> chosen;
    do {
      std::vector<char> required(candidates.size(), 0);
      for (Clock c : options.required) {
        const auto& place = candidates.place();
        const auto it = std::find(place.begin(), place.end(), live.place_of(c));
        if (it == place.end()) {
          out.error =
              "a pinned cut is not legal there: nothing, or more than " + std::to_string(options.max_tensors) + " tensors, would cross";
          return out;
        }
        required[static_cast<std::size_t>(it - place.begin())] = 1;
      }
      const double best = smallest_bottleneck(candidates.cost(), live.total(), options.stages, required);
      if (!std::isfinite(best)) {
        const auto pins = std::count(required.begin(), required.end(), 1);
        candidates.keep_all();
        out.error = pins >= options.stages
            ? std::to_string(pins) + " pinned cuts make more than " + std::to_string(options.stages) + " stages"
            : why_few(options, candidates.size(), candidates.before_questions());
        return out;
      }
      chosen = gentlest(candidates.cost(), candidates.penalty(), live.total(), options.stages, best * (1 + options.preference), required);
      if (live.total() > 0) out.optimum_slowest_over_mean = best * options.stages / live.total();
    } while (!candidates.keep(chosen));
    for (int i : chosen) out.cuts.push_back(candidates.best(i));
  }
  out.legal_cuts = static_cast<int>(candidates.size());
  Stages stages(trace, live, out);
  stages.legal_ = candidates.cost();
  stages.run();
  return out;
}

Partition partition_at(const Trace& trace, const Options& options, std::vector<Cut> cuts) {
  Partition out;
  Liveness live(trace, options);
  std::sort(cuts.begin(), cuts.end(), [](const Cut& a, const Cut& b) { return a.clock < b.clock; });
  out.cuts = std::move(cuts);
  Stages stages(trace, live, out);
  if (out.cuts.size()) {
    Liveness sweep(trace, options);
    const auto found = places(trace, options, sweep);
    out.legal_cuts = static_cast<int>(found.size());
    for (const auto& f : found) stages.legal_.push_back(f[0].cost_before);
    const double best = smallest_bottleneck(stages.legal_, live.total(), static_cast<int>(out.cuts.size()) + 1);
    if (std::isfinite(best) && live.total() > 0)
      out.optimum_slowest_over_mean = best * static_cast<double>(out.cuts.size() + 1) / live.total();
  }
  stages.run();
  return out;
}

}  // namespace shardwright::pipeline
