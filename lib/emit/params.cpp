// params.yaml: every generated parameter and buffer as a stated slice of an original one (semantics §4). Written by hand rather
// than through an emitter: flow-style entries, one a line, sorted as PyTorch names them, so that a diff of two plans reads well.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "emit/package.h"
#include "sharding/layout.h"

namespace shardwright::emit {

std::string params_yaml(const PackageInput& in, const std::vector<std::vector<std::string>>& held) {
  const auto& t = in.traced.trace;
  std::string out =
      "# Where every parameter of the parallel model comes from. `shard` names the factor that is cut over tensor-parallel ranks,\n"
      "# `stage` the pipeline stages that hold it. Slices for any tp that the factor allows follow from it.\nversion: 1\n";
  out += fmt::format("stages: {}\ntensors:\n", in.grid.pp);
  std::map<std::string, std::set<int>> stages_of;
  for (std::size_t k = 0; k < held.size(); ++k)
    for (const auto& n : held[k]) stages_of[n].insert(static_cast<int>(k));
  auto named = model::named_tensors(t, true);
  std::map<model::TensorId, std::vector<std::string>> names;
  for (const auto& n : named) names[n.ref.tensor].push_back(n.fqn);
  std::set<model::TensorId> done;
  for (const auto& n : named) {
    if (!done.insert(n.ref.tensor).second) continue;
    const auto& x = t.tensor(n.ref.tensor);
    auto layout = sharding::layout(in.sharding, t, n.ref.tensor);
    std::string e;
    auto add = [&](const std::string& text) { e += (e.empty() ? "" : ", ") + text; };
    if (!layout.shard.empty()) {
      if (!layout.segments.empty()) {
        std::string s;
        for (const auto& g : layout.segments) {
          s += (s.empty() ? "" : ", ") + fmt::format("{{rows: [{}, {}], dims: \"{}\"", g.begin, g.end, g.dims);
          if (g.dim != 0) s += fmt::format(", dim: {}", g.dim);
          s += "}";
        }
        add("segments: [" + s + "]");
      } else {
        add("dims: \"" + layout.dims + "\"");
      }
      std::string sizes;
      for (const auto& [letter, size] : layout.sizes) sizes += (sizes.empty() ? "" : ", ") + fmt::format("{}: {}", letter, size);
      add("sizes: {" + sizes + "}");
      add("shard: " + layout.shard);
    } else {
      add("shard: null");
    }
    if (layout.grad_sum && in.grid.tp > 1 && !in.in_place()) add("grad_sum: tp");
    std::string shape;
    for (auto s : x.shape) shape += (shape.empty() ? "" : ", ") + std::to_string(s);
    add("shape: [" + shape + "]");
    if (n.ref.buffer) { add("kind: buffer"); }
    std::set<int> stages;
    for (const auto& alias : names[n.ref.tensor])
      if (auto it = stages_of.find(alias); it != stages_of.end()) stages.insert(it->second.begin(), it->second.end());
    std::string list;
    for (int s : stages) list += (list.empty() ? "" : ", ") + std::to_string(s);
    add("stage: [" + list + "]");
    if (names[n.ref.tensor].size() > 1) {
      std::string tied;
      for (std::size_t i = 1; i < names[n.ref.tensor].size(); ++i) tied += (i > 1 ? ", " : "") + names[n.ref.tensor][i];
      add("tied: [" + tied + "]");
    }
    out += "  " + n.fqn + ": {" + e + "}\n";
  }
  return out;
}

}  // namespace shardwright::emit
