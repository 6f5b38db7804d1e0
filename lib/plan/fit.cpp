// A plan on a trace: does it speak of this source, which axes and cuts does it mean; and what differs between two plans.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "model/shape.h"
#include "pipeline/position.h"
#include "plan/plan.h"

namespace shardwright::plan {
namespace {

std::string joined(const std::vector<std::string>& v, const char* between) {
  std::string s;
  for (const auto& x : v) s += (s.empty() ? "" : between) + x;
  return s;
}

/// How much two keys have in common, for "did you mean".
std::size_t common(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  std::size_t n = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    std::size_t k = 0;
    while (k < a[i].size() && k < b[i].size() && a[i][k] == b[i][k]) ++k;
    n += k;
    if (a[i] != b[i]) break;
    n += 1000;
  }
  return n;
}

std::string sent(const Cut& c) {
  std::vector<std::string> s;
  for (const Crossing& x : c.sends) s.push_back(x.name + model::shape_text(x.shape));
  return joined(s, " + ");
}

}  // namespace

std::vector<std::vector<std::string>> split_axes(const Plan& p) {
  std::vector<std::vector<std::string>> out;
  for (const Axis& a : p.axes)
    if (a.split) out.push_back({a.key});
  return out;
}

std::vector<std::string> kept_whole(const Plan& p) {
  std::vector<std::string> out;
  for (const Axis& a : p.axes)
    if (!a.split && a.by == By::Pinned) out.insert(out.end(), a.parameters.begin(), a.parameters.end());
  return out;
}

support::Expected<std::vector<pipeline::Cut>> cuts_of(const Plan& p, const model::Trace& trace, const pipeline::Options& options,
                                                      bool only_pinned) {
  std::vector<pipeline::Cut> out;
  bool any = false;
  for (const Stage& s : p.stages)
    for (const Cut& c : s.cut) any |= !only_pinned || c.by == By::Pinned;
  if (!any) return out;
  std::map<std::vector<std::string>, std::vector<pipeline::Cut>> by_key;
  for (pipeline::Cut& c : pipeline::legal_cuts(trace, options)) by_key[pipeline::key_of(trace, c)].push_back(std::move(c));
  for (std::size_t k = 0; k < p.stages.size(); ++k)
    for (const Cut& c : p.stages[k].cut) {
      if (only_pinned && c.by != By::Pinned) continue;
      const auto it = by_key.find(c.key);
      if (it == by_key.end()) {
        std::string m = fmt::format("the cut of stage {} ('{}', key [{}]) is no legal cut of this source", k, c.at, joined(c.key, ", "));
        const auto near = std::max_element(by_key.begin(), by_key.end(),
                                           [&](const auto& a, const auto& b) { return common(a.first, c.key) < common(b.first, c.key); });
        m += near == by_key.end() ? "; it has none at all" : "; the nearest one is [" + joined(near->first, ", ") + "]";
        return support::failure(m, {}, "plan");
      }
      // The same place can have variants (pieces sent one by one, or the tensor they are pieces of): the one with the plan's tensors.
      const pipeline::Cut* best = &it->second.front();
      for (const auto& v : it->second)
        if (v.live.size() == c.sends.size() &&
            std::equal(v.live.begin(), v.live.end(), c.sends.begin(),
                       [&](model::TensorId t, const Crossing& x) { return trace.tensor(t).shape == x.shape; })) {
          best = &v;
          break;
        }
      if (!out.empty() && best->clock <= out.back().clock)
        return support::failure(fmt::format("the cut of stage {} ('{}') is not after that of stage {}", k, c.at, k - 1), {}, "plan");
      out.push_back(*best);
    }
  return out;
}

support::Expected<bool> fits(const Plan& p, const model::Trace& trace, const sharding::Result& r) {
  std::set<std::string> keys;
  for (const auto& a : r.axes) keys.insert(a.key);
  std::set<std::string> names;
  for (const auto& n : model::named_tensors(trace)) names.insert(n.fqn);
  for (std::size_t i = 0; i < p.axes.size(); ++i) {
    const Axis& a = p.axes[i];
    for (const std::string& n : a.parameters)
      if (!names.count(n))
        return support::failure(fmt::format("axes[{}] names the parameter '{}', which this source does not have", i, n), {}, "plan");
    if (!keys.count(a.key))
      return support::failure(
          fmt::format("axes[{}] (size {}, {}) is no axis of this source any more: its shapes or its computation changed", i, a.size,
                      a.parameters.empty() ? "no parameters" : a.parameters[0]),
          {}, "plan");
    if (a.split && a.size % p.grid.tp)
      return support::failure(fmt::format("axes[{}] ({}) has size {}, which tp {} does not divide", i,
                                          a.parameters.empty() ? a.key : a.parameters[0], a.size, p.grid.tp),
                              {}, "plan");
  }
  std::map<std::string, std::set<std::string>> sites;  // attributes of each class
  for (const auto& m : trace.modules) {
    const auto& [type, path] = site_of(trace, m.id);
    sites[type].insert(path);
    for (const auto& q : m.params) sites[type].insert(path.empty() ? q.attr : path + "." + q.attr);
  }
  for (std::size_t i = 0; i < p.roles.size(); ++i) {
    const Role& role = p.roles[i];
    const auto site = sites.find(role.type);
    if (site == sites.end()) {
      std::vector<std::string> known;
      for (const auto& [type, _] : sites) known.push_back(type);
      return support::failure(
          fmt::format("roles[{}] names the class '{}', which this source does not have (it has {})", i, role.type, joined(known, ", ")), {},
          "plan");
    }
    if (!site->second.count(role.attribute))
      return support::failure(fmt::format("roles[{}] names '{}' of {}, which it does not have", i, role.attribute, role.type), {}, "plan");
    for (const std::string& f : role.only) {
      const bool module = std::any_of(trace.modules.begin(), trace.modules.end(), [&](const auto& m) { return m.fqn == f; });
      if (!module && !names.count(f))
        return support::failure(fmt::format("the role of {}.{} names '{}', which this source does not have", role.type, role.attribute, f),
                                {}, "plan");
    }
  }
  return true;
}

std::vector<std::string> roles_unread(const Plan& stated, const Plan& made, const model::Trace& trace) {
  using Key = std::pair<std::string, std::string>;
  const auto by_attribute = [](const Plan& p) {
    std::map<Key, std::set<std::string>> out;
    for (const Role& r : p.roles)
      out[{r.type, r.attribute}].insert(r.role + (r.layer.empty() ? "" : " (" + r.layer + ")") +
                                        (r.only.empty() ? "" : " of " + joined(r.only, ", ")));
    return out;
  };
  const auto said = by_attribute(stated), got = by_attribute(made);
  // The parameters that an attribute of a class stands for, over all objects.
  const auto parameters_of = [&](const Key& key) {
    std::vector<std::string> out;
    for (const auto& m : trace.modules) {
      const auto& [type, path] = site_of(trace, m.id);
      if (type != key.first) continue;
      for (const auto& n : model::named_tensors(trace))
        if (path == key.second && n.fqn.rfind(m.fqn + ".", 0) == 0) out.push_back(n.fqn);
      for (const auto& q : m.params)
        if ((path.empty() ? q.attr : path + "." + q.attr) == key.second) out.push_back(m.fqn.empty() ? q.attr : m.fqn + "." + q.attr);
    }
    return out;
  };
  std::set<Key> keys;
  for (const auto* roles : {&said, &got})
    for (const auto& [key, _] : *roles) keys.insert(key);
  std::vector<std::string> out;
  for (const Key& key : keys) {
    const auto a = said.find(key), b = got.find(key);
    if (a != said.end() && b != got.end() && a->second == b->second) continue;
    const auto names = parameters_of(key);
    const auto carries = [&](const Axis& x) {
      return std::any_of(x.parameters.begin(), x.parameters.end(),
                         [&](const auto& p) { return std::find(names.begin(), names.end(), p) != names.end(); });
    };
    // A pinned axis leaves the roles of the file behind: that is what pinning is for.
    if (std::any_of(stated.axes.begin(), stated.axes.end(), [&](const Axis& x) { return x.by == By::Pinned && carries(x); })) continue;
    // The one that is split is what makes the role.
    auto axis =
        std::find_if(stated.axes.begin(), stated.axes.end(), [&](const Axis& x) { return x.split == (b != got.end()) && carries(x); });
    if (axis == stated.axes.end()) axis = std::find_if(stated.axes.begin(), stated.axes.end(), carries);
    const auto text = [&](const auto& at, const auto& end) {
      return at == end ? std::string("replicated") : joined({at->second.begin(), at->second.end()}, "; ");
    };
    out.push_back(fmt::format(
        "the role of {}.{} stays '{}', not '{}' as the plan's `roles` say: roles follow from `axes`. Set `split` and "
        "`by: pinned` {}",
        key.first, key.second, text(b, got.end()), text(a, said.end()),
        axis == stated.axes.end() ? std::string("at an axis there")
                                  : fmt::format("at axes[{}] (size {}, with {})", axis - stated.axes.begin(), axis->size,
                                                *std::find_if(axis->parameters.begin(), axis->parameters.end(), [&](const auto& p) {
                                                  return std::find(names.begin(), names.end(), p) != names.end();
                                                }))));
  }
  return out;
}

std::vector<std::string> compare(const Plan& a, const Plan& b) {
  std::vector<std::string> out;
  auto differ = [&](const std::string& what, const std::string& x, const std::string& y) {
    if (x != y) out.push_back(what + ": " + (x.empty() ? "nothing" : x) + " → " + (y.empty() ? "nothing" : y));
  };
  differ("model", a.model, b.model);
  auto grid = [](const Grid& g) {
    return fmt::format("tp {} × pp {} × dp {}, {} micro-batches, {}{}", g.tp, g.pp, g.dp, g.micro_batches, g.schedule,
                       g.virtual_stages > 1 ? fmt::format(", {} virtual stages", g.virtual_stages) : "");
  };
  differ("grid", grid(a.grid), grid(b.grid));
  differ("objective", a.objective, b.objective);
  std::map<std::string, std::pair<std::string, std::string>> roles;
  auto role_key = [](const Role& r) { return r.type + "." + r.attribute; };
  auto role_text = [](const Role& r) {
    return r.role + (r.layer.empty() ? "" : " (" + r.layer + ")") + (r.only.empty() ? "" : " in " + joined(r.only, ", "));
  };
  auto put = [](std::string& into, const std::string& s) { into += (into.empty() ? "" : "; ") + s; };
  for (const Role& r : a.roles) put(roles[role_key(r)].first, role_text(r));
  for (const Role& r : b.roles) put(roles[role_key(r)].second, role_text(r));
  for (const auto& [k, v] : roles) differ("role of " + k, v.first, v.second);
  std::map<std::string, std::pair<std::string, std::string>> axes;
  std::map<std::string, std::string> axis_name;
  auto axis_text = [](const Axis& x) { return std::string(x.split ? "split" : "whole") + (x.by == By::Pinned ? " (pinned)" : ""); };
  for (const Axis& x : a.axes) axes[x.key].first = axis_text(x), axis_name[x.key] = x.parameters.empty() ? x.key : x.parameters[0];
  for (const Axis& x : b.axes) axes[x.key].second = axis_text(x), axis_name[x.key] = x.parameters.empty() ? x.key : x.parameters[0];
  for (const auto& [k, v] : axes) differ("axis of " + axis_name[k], v.first, v.second);
  for (std::size_t k = 0; k < std::max(a.stages.size(), b.stages.size()); ++k) {
    const Cut* x = k < a.stages.size() && !a.stages[k].cut.empty() ? &a.stages[k].cut[0] : nullptr;
    const Cut* y = k < b.stages.size() && !b.stages[k].cut.empty() ? &b.stages[k].cut[0] : nullptr;
    if (!x && !y) continue;
    const std::string what = fmt::format("cut {}", k);
    if (!x || !y || x->key != y->key) differ(what, x ? x->at : "", y ? y->at + " [" + joined(y->key, ", ") + "]" : "");
    else differ(what + " sends", sent(*x), sent(*y));
  }
  std::map<std::string, std::pair<double, double>> bytes;
  for (const auto& c : a.collectives) bytes[c.tag].first += c.bytes;
  for (const auto& c : b.collectives) bytes[c.tag].second += c.bytes;
  for (const auto& [tag, v] : bytes)
    if (v.first != v.second) out.push_back("bytes of " + tag + ": " + human_bytes(v.first) + " → " + human_bytes(v.second));
  differ("job", a.job, b.job);
  return out;
}

}  // namespace shardwright::plan
