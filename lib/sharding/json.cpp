#include "sharding/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

namespace shardwright::sharding {

namespace {

using Json = nlohmann::ordered_json;

std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }

Json show(const Dim& d, int axis) {
  Json out = Json::array();
  for (const Term& t : d) {
    if (!t.segments.empty()) {
      Json segments = Json::array();
      for (const Dim& s : t.segments) segments.push_back(show(s, axis));
      out.push_back(std::move(segments));
    } else if (t.axis == axis) {
      out.push_back(std::to_string(t.size) + "*");
    } else {
      out.push_back(t.size);
    }
  }
  return out;
}

}  // namespace

std::string to_json(const model::Trace& trace, const Result& result) {
  Json out;
  out["axes"] = Json::array();
  std::set<TensorId> covered;
  for (const Axis& a : result.axes) {
    if (!a.legal || a.parameter_elements <= 0) continue;
    Json parameters = Json::object();
    std::vector<TensorId> sorted;
    for (TensorId p : a.parameters)
      if (trace.tensor(p).origin == model::Origin::Parameter) sorted.push_back(p);
    std::sort(sorted.begin(), sorted.end(), [&](TensorId x, TensorId y) { return trace.tensor(x).name < trace.tensor(y).name; });
    for (TensorId p : sorted) {
      Json dims = Json::array();
      for (const Dim& d : result.tensors[index(p)]) dims.push_back(show(d, a.id));
      parameters[trace.tensor(p).name] = std::move(dims);
      if (a.chosen) covered.insert(p);
    }
    Json axis;
    axis["size"] = a.size;
    axis["parameters"] = std::move(parameters);
    axis["forward_elements"] = static_cast<std::int64_t>(a.forward_elements);
    axis["entry_elements"] = static_cast<std::int64_t>(a.entry_elements);
    axis["chosen"] = a.chosen;
    if (a.vocabulary) axis["vocabulary"] = true;
    out["axes"].push_back(std::move(axis));
  }
  std::vector<std::string> sums, left;
  for (TensorId t : result.grad_summed) sums.push_back(trace.tensor(t).name);
  for (const auto& n : model::named_tensors(trace, false))
    if (!n.ref.buffer && covered.count(n.ref.tensor) == 0) left.push_back(n.fqn);
  std::sort(sums.begin(), sums.end());
  std::sort(left.begin(), left.end());
  out["gradient_summed"] = sums;
  out["left"] = left;
  return out.dump(1);
}

}  // namespace shardwright::sharding
