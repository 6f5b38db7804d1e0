#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "pipeline/position.h"
#include "plan/plan.h"
#include "sharding/communication.h"

namespace shardwright::plan {
namespace {

using model::ModuleId;
using model::TensorId;
using model::Trace;

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }
std::string last_part(const std::string& dotted) { return dotted.substr(dotted.find_last_of('.') + 1); }

std::string describe_site(const Trace& t, ModuleId id) {
  const auto [type, path] = site_of(t, id);
  return path.empty() ? type : type + "." + path;
}

class Maker {
 public:
  explicit Maker(const Inputs& in) : in_(in), t_(*in.trace) {}

  Plan run() {
    plan_.model = in_.model;
    plan_.grid = in_.grid;
    plan_.objective = in_.objective;
    plan_.device = in_.device;
    plan_.job = in_.job;
    while (!plan_.job.empty() && plan_.job.back() == '\n') plan_.job.pop_back();
    if (!plan_.job.empty()) plan_.job += '\n';
    roles();
    axes();
    stages();
    collectives();
    if (in_.placement)
      for (const auto& f : in_.placement->fallbacks) plan_.fallbacks.push_back({f.module, where(f.where), f.message});
    return std::move(plan_);
  }

 private:
  std::string where(const support::Range& r) const { return r.valid() && in_.sources ? in_.sources->describe(r) : ""; }

  std::vector<std::int64_t> local_shape(TensorId id) const {
    return in_.placement ? in_.placement->local_shape(t_, id) : t_.tensor(id).shape;
  }
  double local_elements(TensorId id) const {
    double n = 1;
    for (std::int64_t d : local_shape(id)) n *= static_cast<double>(d);
    return n;
  }
  double local_bytes(TensorId id) const { return local_elements(id) * model::bytes_of(t_.tensor(id).dtype); }

  // --- roles ---

  struct Instance {
    std::string fqn, role, layer, reason;
  };

  void roles() {
    if (!in_.placement) return;
    std::map<ModuleId, const GivenRole*> given;
    for (const GivenRole& g : in_.roles) given[g.module] = &g;
    std::vector<std::pair<std::string, std::string>> order;
    std::map<std::pair<std::string, std::string>, std::vector<Instance>> by_site;
    auto add = [&](std::pair<std::string, std::string> site, Instance i) {
      auto& list = by_site[site];
      if (list.empty()) order.push_back(site);
      list.push_back(std::move(i));
    };
    const std::set<TensorId> summed(in_.placement->grad_summed.begin(), in_.placement->grad_summed.end());
    for (const model::Module& m : t_.modules) {
      const auto g = given.find(m.id);
      if (m.builtin) {
        if (m.params.empty() && g == given.end()) continue;
        Instance i{m.fqn, g != given.end() ? g->second->role : role_of(t_, *in_.placement, m.id), "", ""};
        if (g != given.end()) i.layer = g->second->layer, i.reason = g->second->reason;
        add(site_of(t_, m.id), std::move(i));
        continue;
      }
      for (const model::ParamRef& p : m.params) {
        if (p.tensor < 0) continue;
        std::string role = in_.placement->sharded_dim(p.tensor) >= 0 ? "sharded"
            : summed.count(p.tensor)                                 ? "replicated, gradient summed"
                                                                     : "";
        add({last_part(m.type), p.attr}, {m.fqn.empty() ? p.attr : m.fqn + "." + p.attr, role, "", ""});
      }
    }
    for (const auto& site : order) {
      const auto& list = by_site[site];
      std::vector<std::tuple<std::string, std::string, std::string>> kinds;
      for (const Instance& i : list)
        if (const auto k = std::make_tuple(i.role, i.layer, i.reason); std::find(kinds.begin(), kinds.end(), k) == kinds.end())
          kinds.push_back(k);
      for (const auto& [role, layer, reason] : kinds) {
        if (kinds.size() == 1 && role.empty()) continue;  // replicated everywhere: the normal case, not worth a line
        Role r{site.first, site.second, role.empty() ? "replicated" : role, layer, reason, {}, 0};
        for (const Instance& i : list)
          if (i.role == role && i.layer == layer && i.reason == reason) {
            ++r.instances;
            if (kinds.size() > 1) r.only.push_back(i.fqn);
          }
        plan_.roles.push_back(std::move(r));
      }
    }
  }

  // --- axes ---

  void axes() {
    if (!in_.placement) return;
    std::map<std::string, const Axis*> before;
    if (in_.pins)
      for (const Axis& a : in_.pins->axes)
        if (a.by == By::Pinned) before[a.key] = &a;
    for (const sharding::Axis& a : in_.placement->axes) {
      Axis x;
      for (TensorId p : a.parameters)
        if (t_.tensor(p).origin == model::Origin::Parameter) x.parameters.push_back(t_.tensor(p).name);
      const bool divides_only = !a.legal && !a.divides;
      if (x.parameters.empty() || !(a.legal || a.chosen || divides_only)) continue;
      x.key = a.key;
      if (x.key.empty()) x.key = x.parameters[0];
      x.size = a.size;
      x.split = a.chosen;
      if (const auto b = before.find(x.key); b != before.end()) x.by = By::Pinned;
      x.parameter_bytes = a.parameter_bytes;
      const double width = model::bytes_of(t_.tensor(a.parameters[0]).dtype);
      x.forward_bytes = a.forward_elements * width;
      x.backward_bytes = a.entry_elements * width;
      const auto& missed = in_.placement->fallbacks;
      x.given_up = !a.chosen &&
          (a.given_up ||
           (divides_only && std::any_of(missed.begin(), missed.end(), [&](const sharding::Fallback& f) { return f.axis == a.id; })));
      if (!a.chosen) x.why_not = !a.why_not.empty() ? a.why_not : "meets an axis that is split, or costs more than it gains";
      plan_.axes.push_back(std::move(x));
    }
  }

  // --- stages ---

  void stages() {
    pipeline::Partition whole;
    if (!in_.partition) {
      pipeline::Options o;
      whole = pipeline::partition(t_, o);
      parts_ = &whole;
    } else {
      parts_ = in_.partition;
    }
    const pipeline::Partition& p = *parts_;
    plan_.slowest_over_mean = p.slowest_over_mean;
    plan_.optimum_slowest_over_mean = p.optimum_slowest_over_mean;
    plan_.legal_cuts = p.legal_cuts;
    plan_.warnings = p.warnings;
    stage_of_.assign(t_.ops.size(), -1);
    double total = 0;
    for (const auto& s : p.stages) total += s.cost;
    const double mean = p.stages.empty() ? 0 : total / static_cast<double>(p.stages.size());
    for (std::size_t k = 0; k < p.stages.size(); ++k) {
      const pipeline::Stage& s = p.stages[k];
      for (model::OpId o : s.ops) stage_of_[at(o)] = static_cast<int>(k);
      Stage x;
      x.flops = s.cost;
      x.share = mean > 0 ? s.cost / mean : 1;
      double bytes = 0;
      for (TensorId t : s.parameters)
        if (t_.tensor(t).origin == model::Origin::Parameter) {
          x.parameters += static_cast<std::int64_t>(local_elements(t));
          bytes += 4 * local_bytes(t);  // itself, its gradient, Adam's two moments
        }
      x.gib = bytes / (1024.0 * 1024 * 1024);
      outermost(p, k, 0, x.modules);
      fold(x.modules);
      if (k < p.cuts.size()) x.cut.push_back(cut(p.cuts[k]));
      plan_.stages.push_back(std::move(x));
    }
    for (const auto& [t, where] : p.tied) plan_.tied.push_back({t_.tensor(t).name, static_cast<std::int64_t>(where.size())});
    parts_copy_ = p;
    parts_ = &parts_copy_;
  }

  Cut cut(const pipeline::Cut& c) {
    Cut x;
    static const support::SourceManager none;
    x.at = pipeline::describe(t_, in_.sources ? *in_.sources : none, c);
    x.key = pipeline::key_of(t_, c);
    if (in_.pins)
      for (const Stage& s : in_.pins->stages)
        for (const Cut& old : s.cut)
          if (old.by == By::Pinned && old.key == x.key) x.by = By::Pinned;
    for (TensorId t : c.live) {
      const model::Tensor& y = t_.tensor(t);
      Crossing z{name_of(t_, t), y.shape, std::string(model::short_name(y.dtype)), static_cast<std::int64_t>(local_bytes(t)), gradient(t)};
      x.bytes += z.bytes;
      x.sends.push_back(std::move(z));
    }
    for (const auto& r : c.recompute) {
      std::string n = name_of(t_, r.tensor);
      if (std::find(x.recomputed.begin(), x.recomputed.end(), n) == x.recomputed.end()) x.recomputed.push_back(std::move(n));
    }
    for (TensorId t : c.inputs_needed) x.inputs.push_back(t_.tensor(t).name);
    return x;
  }

  /// Does a gradient come back? Not for what depends on inputs alone: they need none.
  bool gradient(TensorId t) const {
    return t_.tensor(t).requires_grad && t_.tensor(t).from_parameter && model::is_floating(t_.tensor(t).dtype);
  }

  bool in_stage(const pipeline::Partition& p, std::size_t k, ModuleId m) const {
    return std::binary_search(p.stages[k].modules.begin(), p.stages[k].modules.end(), m);
  }

  /// Modules that only stage k has, outermost first; what it shares with other stages is opened.
  void outermost(const pipeline::Partition& p, std::size_t k, ModuleId m, std::vector<std::string>& out) const {
    bool shared = false;
    for (std::size_t j = 0; j < p.stages.size(); ++j) shared |= j != k && in_stage(p, j, m);
    const auto& kids = t_.module(m).children;
    if ((!shared || kids.empty()) && m != 0) {
      out.push_back(t_.module(m).fqn);
      return;
    }
    for (const auto& [name, child] : kids)
      if (child >= 0 && t_.module(child).parent == m && in_stage(p, k, child)) outermost(p, k, child, out);
  }

  /// blocks.0, blocks.1, blocks.2 → blocks.0–2.
  static void fold(std::vector<std::string>& names) {
    std::vector<std::string> out;
    std::string prefix;
    int first = 0, last = 0;
    auto flush = [&] {
      if (!prefix.empty()) out.push_back(first == last ? prefix + std::to_string(first) : fmt::format("{}{}-{}", prefix, first, last));
      prefix.clear();
    };
    for (const std::string& n : names) {
      const auto dot = n.find_last_of('.');
      const std::string tail = dot == std::string::npos ? "" : n.substr(dot + 1);
      if (tail.empty() || tail.size() > 6 || tail.find_first_not_of("0123456789") != std::string::npos) {
        flush();
        out.push_back(n);
        continue;
      }
      const int i = std::stoi(tail);
      if (n.substr(0, dot + 1) == prefix && i == last + 1) {
        last = i;
        continue;
      }
      flush();
      prefix = n.substr(0, dot + 1);
      first = last = i;
    }
    flush();
    names = std::move(out);
  }

  // --- collectives ---

  /// Tags are the names under which the runtime counts: one word, "_" between its parts.
  void add(std::string tag, const std::string& kind, const std::string& site, int stage, double count, double bytes) {
    for (char& c : tag)
      if (c == '/' || c == '-') c = '_';
    for (Collective& c : plan_.collectives)
      if (c.tag == tag && c.kind == kind && c.site == site && c.stage == stage) {
        c.count += count;
        c.bytes += bytes;
        return;
      }
    plan_.collectives.push_back({tag, kind, site, stage, count, bytes});
  }

  bool passed(std::size_t stage, TensorId t) const {
    return stage < in_.passes.size() && std::find(in_.passes[stage].begin(), in_.passes[stage].end(), t) != in_.passes[stage].end();
  }

  void collectives() {
    const double m = in_.grid.micro_batches;
    const int pp = static_cast<int>(plan_.stages.size());
    const pipeline::Partition& p = *parts_;
    if (in_.placement && in_.grid.tp > 1) {
      const sharding::Communication comm = sharding::communication(t_, *in_.placement);
      for (const auto& c : comm.sites) {
        if (c.op >= 0) {
          const model::Op& op = t_.op(c.op);
          std::string site = describe_site(t_, op.module);
          if (c.tag.find("backward") != std::string::npos && c.tensor >= 0 && t_.tensor(c.tensor).origin == model::Origin::Parameter)
            site = t_.tensor(c.tensor).name;
          add(c.tag, c.kind, site, pp > 1 ? stage_of_[at(c.op)] : -1, m, m * c.bytes);
          continue;
        }
        for (int k = 0; k < pp; ++k)
          if (const auto& held = p.stages[static_cast<std::size_t>(k)].parameters; std::binary_search(held.begin(), held.end(), c.tensor))
            add(c.tag, c.kind, "replicated parameters beside sharded tensors", pp > 1 ? k : -1, 1, c.bytes);
      }
    }
    for (int k = 0; k + 1 < pp; ++k) {
      const pipeline::Cut& c = p.cuts[static_cast<std::size_t>(k)];
      for (TensorId t : c.live) {
        if (passed(static_cast<std::size_t>(k), t)) continue;  // the stage that made it sends it
        int to = k + 1;
        while (passed(static_cast<std::size_t>(to), t)) ++to;
        add("boundary", "send", fmt::format("stage {} to {}", k, to), k, m, m * local_bytes(t));
        if (gradient(t)) add("boundary", "send", fmt::format("stage {} to {}", to, k), to, m, m * local_bytes(t));
      }
    }
    for (const auto& [t, where] : p.tied)
      for (int k : where)
        if (t_.tensor(t).requires_grad) add("tied", "all_reduce", t_.tensor(t).name, k, 1, local_bytes(t));
    if (in_.grid.tp * pp > 1) add("norm", "all_reduce", "gradient norm", -1, 1, 8);  // the sum of squares, one f64
    if (in_.grid.dp > 1)
      for (int k = 0; k < pp; ++k) {
        double bytes = 0;
        for (TensorId t : p.stages[static_cast<std::size_t>(k)].parameters)
          if (t_.tensor(t).origin == model::Origin::Parameter && t_.tensor(t).requires_grad) bytes += local_bytes(t);
        add("dp", "all_reduce", "all gradients of a rank", pp > 1 ? k : -1, 1, bytes);
      }
  }

  const Inputs& in_;
  const Trace& t_;
  Plan plan_;
  const pipeline::Partition* parts_ = nullptr;
  pipeline::Partition parts_copy_;
  std::vector<int> stage_of_;
};

}  // namespace

Plan make(const Inputs& in) { return Maker(in).run(); }

}  // namespace shardwright::plan
