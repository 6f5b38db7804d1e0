#include "sharding/communication.h"

#include <algorithm>

namespace shardwright::sharding {

double Communication::bytes(const std::string& tag) const {
  double b = 0;
  for (const Collective& c : sites)
    if (c.tag == tag) b += c.bytes;
  return b;
}

int Communication::count(const std::string& tag) const {
  return static_cast<int>(std::count_if(sites.begin(), sites.end(), [&](const Collective& c) { return c.tag == tag; }));
}

Communication communication(const model::Trace& trace, const Result& result) {
  Communication out;
  if (result.tp <= 1) return out;
  const auto add = [&](OpId op, TensorId t, const char* tag) {
    const model::Tensor& x = trace.tensor(t);
    const auto n = static_cast<double>(model::numel(x));
    out.sites.push_back({op, t, tag, "all_reduce", n, n * model::bytes_of(x.dtype)});
  };
  for (const Conversion& c : result.conversions) {
    // Both meet whole tensors: what a contraction leaves has lost the axis, what enters has not got it yet.
    if (c.kind == Conversion::ReduceFrom) add(c.op, c.tensor, "activation/forward");
    if (c.kind == Conversion::Gather) {  // each rank hands over its slice; backward each takes its own of the gradient
      add(c.op, c.tensor, "activation/forward");
      Collective& site = out.sites.back();
      site.kind = "all_gather";
      site.elements /= result.tp;
      site.bytes /= result.tp;
    }
    // An input's gradient is asked by nobody: what depends on inputs alone runs no backward.
    if (c.kind == Conversion::CopyTo && trace.tensor(c.tensor).from_parameter)
      for (int i = 0; i < c.copies; ++i) add(c.op, c.tensor, "activation/backward");
  }
  for (TensorId t : result.grad_summed) add(-1, t, "replicated-grad");
  return out;
}

}  // namespace shardwright::sharding
