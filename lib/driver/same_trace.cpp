#include "driver/same_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "model/shape.h"

namespace shardwright::driver {
namespace {

std::string key_of(const std::string& name, const std::string& constants, const std::vector<std::pair<std::string, int>>& operands) {
  std::string key = name + "|" + constants;
  for (const auto& [param, value] : operands) key += fmt::format("|{}={}", param, value);
  return key;
}

/// How a rank adds the bias to the sum of the products.
std::string sum_key(int product, int bias) { return key_of("torch.add", "alpha=1;", {{"input", product}, {"other", bias}}); }

/// Operations that are a product and a sum, and the product's own name.
const std::map<std::string, std::pair<std::string, std::array<const char*, 2>>>& fused_sums() {
  static const std::map<std::string, std::pair<std::string, std::array<const char*, 2>>> all{
      {"torch.addmm", {"torch.mm", {"input", "mat2"}}},
      {"torch.baddbmm", {"torch.bmm", {"input", "mat2"}}},
      {"torch.addmv", {"torch.mv", {"input", "vec"}}}};
  return all;
}

/// Is the result the operand's value, although the original has no such operation?
bool is_its_operand(const model::Trace& s, const model::Op& op, int tp) {
  if (op.inputs.size() != 1) return false;
  if (op.name.starts_with("shardwright.")) return op.name != "shardwright.assumed";  // a region
  const auto& x = s.tensor(op.inputs[0].tensor);
  // The mean over a share, summed, over the number of ranks.
  if (op.name == "torch.div")
    return x.producer >= 0 && s.op(x.producer).name == "shardwright.reduce_from" &&
        op.constants.find(fmt::format("other={};", tp)) != std::string::npos;
  // A bias of a layer of ours, shaped so that it meets its channels: [n] as [n, 1, 1].
  return op.prim == model::Prim::Reshape && !op.inputs[0].expr && x.origin == model::Origin::Parameter && x.shape.size() == 1 &&
      s.tensor(op.outputs[0]).shape.front() == x.shape[0];
}

std::vector<model::TensorId> arguments_of(const model::ModuleCall& call) {
  std::vector<model::TensorId> out;
  for (const auto& a : call.arguments)
    for (auto t : model::tensors_of(a)) out.push_back(t);
  return out;
}

}  // namespace

SameTrace::SameTrace(const model::Trace& original, const sharding::Result& placed) : original_(original), placed_(placed) {
  value_.resize(original.tensors.size());
  for (std::size_t i = 0; i < value_.size(); ++i) value_[i] = static_cast<Value>(i);
  Value next = static_cast<Value>(value_.size());
  // What has a name is itself, whatever made it: training gives it other numbers.
  std::set<model::TensorId> named;
  for (const auto& n : model::named_tensors(original, true)) named.insert(n.ref.tensor);
  auto same_shapes = [&](const Made& m, const model::Op& op) {
    if (m.values.size() != op.outputs.size()) return false;
    for (std::size_t i = 0; i < op.outputs.size(); ++i) {
      if (named.count(op.outputs[i]) || named.count(m.values[i])) return false;
      const auto& a = original.tensor(m.values[i]);
      const auto& b = original.tensor(op.outputs[i]);
      if (a.shape != b.shape || a.dtype != b.dtype) return false;
    }
    return true;
  };
  for (const auto& op : original.ops) {
    std::vector<std::pair<std::string, int>> operands, product;
    Value bias = -1;
    for (const auto& x : op.inputs) {
      operands.emplace_back(x.param, value_[static_cast<std::size_t>(x.tensor)]);
      if (x.is_bias) bias = operands.back().second;
      else product.push_back(operands.back());
    }
    auto& same = made_[key_of(op.name, op.constants, operands)];
    auto first = op.random.empty() ? std::find_if(same.begin(), same.end(), [&](const Made& m) { return same_shapes(m, op); }) : same.end();
    if (first != same.end()) {
      for (std::size_t i = 0; i < op.outputs.size(); ++i) value_[static_cast<std::size_t>(op.outputs[i])] = first->values[i];
      continue;
    }
    Made m{std::vector<Value>(op.outputs.begin(), op.outputs.end()), !op.random.empty(), op.id};
    same.push_back(m);
    const auto fused = fused_sums().find(op.name);
    const bool plain = fused != fused_sums().end() && operands.size() == 3 && op.constants == "beta=1;alpha=1;";
    if (plain) {
      bias = operands[0].second;
      product = {{fused->second.second[0], operands[1].second}, {fused->second.second[1], operands[2].second}};
    }
    if (bias >= 0) {
      made_[plain ? key_of(fused->second.first, "", product) : key_of(op.name, op.constants, product)].push_back({{next}, false, op.id});
      made_[sum_key(next++, bias)].push_back(m);
    }
  }
  for (const auto& call : original.calls)
    if (call.module >= 0) calls_[original.module(call.module).fqn].push_back(&call);
}

bool SameTrace::fits(const Made& m, const model::Op& op, const model::Trace& stage, bool shares) const {
  if (m.values.size() != op.outputs.size()) return false;
  for (std::size_t i = 0; i < op.outputs.size(); ++i) {
    const auto& got = stage.tensor(op.outputs[i]);
    // A product before its bias has the sizes of its operation.
    const auto id = m.values[i] < static_cast<Value>(original_.tensors.size()) ? m.values[i] : original_.op(m.op).outputs[i];
    const auto& want = original_.tensor(id);
    if (got.dtype != want.dtype || got.shape.size() != want.shape.size()) return false;
    int shared = 0;  // a share of one dimension, where the whole is gathered right after
    for (std::size_t k = 0; k < want.shape.size(); ++k) {
      if (got.shape[k] == want.shape[k]) continue;
      if (!shares || got.shape[k] * placed_.tp != want.shape[k] || ++shared > 1) return false;
    }
  }
  return true;
}

const SameTrace::Made* SameTrace::counterpart(const std::vector<Made>& made, const model::Op& op, const model::Trace& stage,
                                              const std::set<model::OpId>& drawn) const {
  for (const bool shares : {false, true})  // the same sizes first: a short range is no share of a long one
    for (const auto& m : made)
      if (fits(m, op, stage, shares) && !(m.random && drawn.count(m.op))) return &m;
  return nullptr;
}

std::optional<Difference> SameTrace::compare(const model::Trace& s, const std::unordered_map<model::TensorId, model::TensorId>& known,
                                             const std::vector<model::TensorId>& returned) const {
  std::vector<Value> value(s.tensors.size(), -1);
  for (const auto& [mine, theirs] : known) value[static_cast<std::size_t>(mine)] = value_[static_cast<std::size_t>(theirs)];
  std::set<model::OpId> drawn;  // random operations of the original that have their counterpart
  struct Unlike {
    const model::Op* op;
    Difference what;
  };
  std::vector<Unlike> unlike;
  auto at = [&](model::TensorId t) -> Value& { return value[static_cast<std::size_t>(t)]; };
  // Whole layers of ours, when their forward is over: what they compute is said by the layer that they stand for.
  std::vector<const model::ModuleCall*> layers;
  for (const auto& call : s.calls)
    if (call.module >= 0 && s.module(call.module).builtin) layers.push_back(&call);
  std::sort(layers.begin(), layers.end(), [](const auto* a, const auto* b) { return a->end < b->end; });
  std::map<std::string, std::set<const model::ModuleCall*>> called;
  std::size_t over = 0;
  auto finish = [&](model::Clock now) {
    for (; over < layers.size() && layers[over]->end <= now; ++over) {
      const auto& call = *layers[over];
      const auto results = model::tensors_of(call.result);
      const auto others = calls_.find(s.module(call.module).fqn);
      if (others == calls_.end()) continue;
      std::vector<Value> given;
      for (auto t : arguments_of(call)) given.push_back(at(t));
      for (const auto* other : others->second) {
        if (called[others->first].count(other)) continue;
        const auto theirs = model::tensors_of(other->result);
        std::vector<Value> wanted;
        for (auto t : arguments_of(*other)) wanted.push_back(value_[static_cast<std::size_t>(t)]);
        if (wanted != given || theirs.size() < results.size()) continue;
        called[others->first].insert(other);
        bool any = false;
        for (std::size_t i = 0; i < results.size(); ++i)
          if (at(results[i]) < 0) at(results[i]) = value_[static_cast<std::size_t>(theirs[i])], any = true;
        if (any) std::erase_if(unlike, [&](const Unlike& u) { return u.op->clock > call.begin; });
        break;
      }
    }
  };
  for (const auto& op : s.ops) {
    finish(op.clock);
    if (op.outputs.empty()) continue;
    std::vector<std::pair<std::string, int>> operands;
    bool all = true;
    for (const auto& x : op.inputs) {
      operands.emplace_back(x.param, at(x.tensor));
      all = all && operands.back().second >= 0;
    }
    if (!all) continue;
    auto give = [&](const std::vector<Value>& values) {
      for (std::size_t i = 0; i < op.outputs.size(); ++i)
        if (at(op.outputs[i]) < 0) at(op.outputs[i]) = values[i];
    };
    const auto same = made_.find(key_of(op.name, op.constants, operands));
    if (const Made* found = same == made_.end() ? nullptr : counterpart(same->second, op, s, drawn)) {
      if (found->random) drawn.insert(found->op);
      std::vector<Value> values;
      for (auto v : found->values) values.push_back(v < static_cast<Value>(value_.size()) ? value_[static_cast<std::size_t>(v)] : v);
      give(values);
      continue;
    }
    if (is_its_operand(s, op, placed_.tp)) {
      give({operands[0].second});
      continue;
    }
    bool needed = false;
    for (auto t : op.outputs) needed = needed || at(t) < 0;
    if (!needed) continue;
    std::string what = op.name.substr(op.name.rfind('.') + 1);
    if (!op.constants.empty()) what += " (" + op.constants + ")";
    for (const auto& x : op.inputs) what += fmt::format(" {} {}", x.param, model::shape_text(s.tensor(x.tensor).shape));
    unlike.push_back({&op,
                      {op.site ? op.site->range : support::Range{},
                       same == made_.end() ? what + ": the original does this to other values, with other numbers, or not at all"
                                           : what +
                               fmt::format(": the original's result has another size or type, got {}",
                                           model::shape_text(s.tensor(op.outputs[0]).shape))}});
  }
  finish(std::numeric_limits<model::Clock>::max());
  const auto got = model::tensors_of(s.output);
  for (std::size_t i = 0; i < got.size() && i < returned.size(); ++i) {
    if (at(got[i]) == value_[static_cast<std::size_t>(returned[i])]) continue;
    // Back from there: what is unlike in its making, the earliest.
    std::set<model::OpId> making;
    std::vector<model::TensorId> open{got[i]};
    while (!open.empty()) {
      const auto& x = s.tensor(open.back());
      open.pop_back();
      if (x.producer < 0 || at(x.id) >= 0 || !making.insert(x.producer).second) continue;
      for (const auto& o : s.op(x.producer).inputs) open.push_back(o.tensor);
    }
    for (const auto& u : unlike)
      if (making.count(u.op->id)) return u.what;
    return Difference{{},
                      fmt::format("returned tensor {} is {} than the plan says", i,
                                  at(got[i]) < 0 ? "made of something else" : "another value of the original")};
  }
  return std::nullopt;
}

}  // namespace shardwright::driver
