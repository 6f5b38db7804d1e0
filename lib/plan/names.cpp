#include <fmt/format.h>

#include <cmath>

#include "plan/plan.h"

namespace shardwright::plan {
namespace {

std::string scaled(double v, double step, const char* const* units, int n) {
  int u = 0;
  while (u + 1 < n && std::fabs(v) >= step) v /= step, ++u;
  if (u == 0) return fmt::format("{:.0f} {}", v, units[0]);
  return fmt::format("{:.{}f} {}", v, v < 10 ? 2 : v < 100 ? 1 : 0, units[u]);
}

}  // namespace

std::string human_bytes(double bytes) {
  static const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  return scaled(bytes, 1024, units, 6);
}

std::string human_flops(double flops) {
  static const char* const units[] = {"FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP"};
  return scaled(flops, 1000, units, 7);
}

std::pair<std::string, std::string> site_of(const model::Trace& t, model::ModuleId id) {
  if (id < 0) return {"", ""};
  std::string path;
  model::ModuleId m = id;
  for (int guard = 0; guard < 200 && t.module(m).builtin && t.module(m).parent >= 0; ++guard, m = t.module(m).parent)
    path = t.module(m).attr + (path.empty() ? "" : "." + path);
  const std::string& type = t.module(m).type;
  return {type.substr(type.find_last_of('.') + 1), path};
}

std::string name_of(const model::Trace& t, model::TensorId id) {
  const model::Tensor& x = t.tensor(id);
  if (!x.name.empty()) return x.name;
  const model::VarWrite* last = nullptr;
  for (const auto& w : t.var_writes)
    if (w.value.kind == model::Binding::Tensor && w.value.tensor == id && !t.frame(w.frame).builtin && (!last || w.clock >= last->clock))
      last = &w;
  if (last) return last->name;
  if (x.producer < 0) return "value";
  const std::string& op = t.op(x.producer).name;
  return op.substr(op.find_last_of('.') + 1);
}

std::string role_of(const model::Trace& t, const sharding::Result& r, model::ModuleId id) {
  const model::Module& m = t.module(id);
  std::string role;
  for (const model::ParamRef& p : m.params) {
    if (p.tensor < 0) continue;
    const int dim = r.sharded_dim(p.tensor);
    if (dim < 0) {
      for (model::TensorId g : r.grad_summed)
        if (g == p.tensor && role.empty()) role = "replicated, gradient summed";
      continue;
    }
    if (role != "column" && role != "row") role = "sharded";
    if (!m.builtin || p.buffer) continue;
    // A layer of the library: does the operation that reads the weight contract the axis, or hand it on?
    for (const model::Op& op : t.ops) {
      if (op.prim != model::Prim::Labelled || op.clock < t.forward_begin) continue;
      for (std::size_t i = 0; i < op.inputs.size() && i < op.in.size(); ++i) {
        if (op.inputs[i].tensor != p.tensor || op.inputs[i].is_bias || static_cast<std::size_t>(dim) >= op.in[i].size()) continue;
        const int label = op.in[i][static_cast<std::size_t>(dim)];
        bool out = false, other = false;
        for (const auto& o : op.out)
          for (int l : o) out |= l == label;
        for (std::size_t k = 0; k < op.in.size(); ++k)
          if (k != i)
            for (int l : op.in[k]) other |= l == label;
        if (label < 0) continue;
        if (out && !other) return "column";
        if (!out) return "row";
      }
    }
  }
  return role;
}

}  // namespace shardwright::plan
