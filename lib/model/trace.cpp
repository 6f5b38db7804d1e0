#include "model/trace.h"

#include <algorithm>
#include <array>
#include <map>

namespace shardwright::model {
namespace {

struct DTypeFacts {
  std::string_view short_name, torch_name;
  int bytes;
  bool floating;
};
// In the order of the enumeration.
constexpr std::array<DTypeFacts, 12> dtypes{{
    {"f16", "torch.float16", 2, true},
    {"bf16", "torch.bfloat16", 2, true},
    {"f32", "torch.float32", 4, true},
    {"f64", "torch.float64", 8, true},
    {"c64", "torch.complex64", 8, true},
    {"c128", "torch.complex128", 16, true},
    {"i8", "torch.int8", 1, false},
    {"u8", "torch.uint8", 1, false},
    {"i16", "torch.int16", 2, false},
    {"i32", "torch.int32", 4, false},
    {"i64", "torch.int64", 8, false},
    {"bool", "torch.bool", 1, false},
}};
const DTypeFacts& facts(DType d) { return dtypes[static_cast<std::size_t>(d)]; }

void collect(const Trace& t, ModuleId id, const std::string& prefix, bool buffers, int depth, std::vector<NamedTensor>& out) {
  if (depth > 200) return;  // a module that contains itself: PyTorch would not return either
  const Module& m = t.module(id);
  for (int pass = 0; pass < (buffers ? 2 : 1); ++pass)
    for (const ParamRef& p : m.params)
      if (p.buffer == (pass == 1) && p.tensor >= 0) out.push_back({prefix + p.attr, id, p});
  for (const auto& [name, child] : m.children)
    if (child >= 0) collect(t, child, prefix + name + ".", buffers, depth + 1, out);
}

void collect(const Binding& b, std::vector<TensorId>& out) {
  if (b.kind == Binding::Tensor && b.tensor >= 0) out.push_back(b.tensor);
  for (const auto& item : b.items) collect(item.second, out);
}

}  // namespace

std::string_view short_name(DType d) { return facts(d).short_name; }
std::string_view torch_name(DType d) { return facts(d).torch_name; }
int bytes_of(DType d) { return facts(d).bytes; }
bool is_floating(DType d) { return facts(d).floating; }

std::vector<NamedTensor> named_tensors(const Trace& t, bool buffers) {
  std::vector<NamedTensor> out;
  if (!t.modules.empty()) collect(t, 0, "", buffers, 0, out);
  return out;
}

std::vector<TensorId> tensors_of(const Binding& b) {
  std::vector<TensorId> out;
  collect(b, out);
  return out;
}

std::int64_t numel(const Tensor& t) {
  std::int64_t n = 1;
  for (std::int64_t d : t.shape) n *= d;
  return n;
}

void fold_wrappers(Trace& t) {
  if (t.wrapping.empty()) return;
  std::vector<Clock> clocks;
  for (const Op& op : t.ops) clocks.push_back(op.clock);
  auto computes = [&](Clock from, Clock to) {
    const auto at = std::lower_bound(clocks.begin(), clocks.end(), from);
    return at != clocks.end() && *at < to;
  };
  for (Frame& method : t.frames) {
    if (!method.function || !method.function->owner || method.init || method.builtin) continue;
    const auto& decorators = method.function->decorators;
    if (std::none_of(decorators.begin(), decorators.end(), [&](const auto* d) { return t.wrapping.count(d) > 0; })) continue;
    FrameId inside = method.id;
    while (method.parent >= 0) {
      const Frame& around = t.frame(method.parent);
      const Frame& call = t.frame(inside);
      if (around.builtin || around.init || !around.function || around.function->owner || around.hands_back != inside ||
          computes(around.begin, call.begin) || computes(call.end, around.end))
        break;
      inside = around.id;
      method.parent = around.parent;
      method.call = around.call;
      method.step = around.step;
      method.iters = around.iters;
      method.via_partial = around.via_partial;
    }
  }
}

void partition_slices(Trace& t) {
  std::map<std::pair<TensorId, int>, std::vector<OpId>> of;  // a tensor's dimension: its slices
  for (Op& op : t.ops)
    if (op.prim == Prim::Labelled && !op.sizes.empty()) of[{op.inputs[0].tensor, op.dim}].push_back(op.id);
  for (const auto& [where, slices] : of) {
    std::set<std::pair<std::int64_t, std::int64_t>> parts;
    for (OpId o : slices) parts.emplace(t.op(o).sizes[0], t.op(o).sizes[1]);
    std::int64_t end = 0;
    std::vector<std::int64_t> sizes;
    bool whole = true;
    for (const auto& [start, stop] : parts) {
      whole = whole && start == end && stop > start;
      sizes.push_back(stop - start);
      end = stop;
    }
    whole = whole && sizes.size() > 1 && end == t.tensor(where.first).shape[static_cast<std::size_t>(where.second)];
    for (OpId o : slices) {
      Op& op = t.ops[static_cast<std::size_t>(o)];
      if (!whole) {
        op.sizes.clear();
        op.size_args.clear();
        continue;
      }
      const auto mine = static_cast<std::size_t>(std::distance(parts.begin(), parts.find({op.sizes[0], op.sizes[1]})));
      const Tensor piece = t.tensor(op.outputs[0]);
      op.prim = Prim::Split;
      op.constants = "piece " + std::to_string(mine) + " of " + std::to_string(sizes.size());
      op.sizes = sizes;
      op.in.clear();
      op.out.clear();
      op.labels.clear();
      op.outputs.clear();
      for (std::size_t k = 0; k < sizes.size(); ++k) {
        Tensor x = piece;
        if (k != mine) {
          x.id = static_cast<TensorId>(t.tensors.size());
          x.shape[static_cast<std::size_t>(op.dim)] = sizes[k];
          t.tensors.push_back(x);
        }
        t.tensors[static_cast<std::size_t>(x.id)].output_index = static_cast<int>(k);
        op.outputs.push_back(x.id);
      }
      for (SizeArg& a : op.size_args) a.dim = static_cast<int>(mine);
    }
  }
}

}  // namespace shardwright::model
