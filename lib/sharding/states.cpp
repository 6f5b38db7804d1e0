// States follow from the chosen axes. A tensor that carries one is V. An operation that sums over one leaves a partial sum,
// reduced at once (P→I): nothing later then has to be linear. What remains is the backward side: a tensor that needs a
// gradient, does not carry the axis, and meets it in an operation gets a partial gradient there.
//
//   - An activation goes through copy-to-region (I→R) at exactly those operands; one copy, hence one all-reduce, however
//     many operands read it. Its other uses (a residual) keep reading the original.
//   - What depends on parameters and buffers alone is replicated state: where *every* use is partial, the whole computation
//     is left partial back to the parameters, whose gradients are summed once after backward. Where some use is full, the
//     partial ones go through copy-to-region instead: the sum would count the full ones tp times.
#include "sharding/states.h"

#include <algorithm>
#include <map>
#include <set>

namespace shardwright::sharding {

using model::Op;
using model::OpId;
using model::Origin;
using model::Prim;
using model::Tensor;
using model::Trace;

namespace {

std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }

struct Edge {
  OpId op = -1;
  int operand = 0;
  friend bool operator<(const Edge& a, const Edge& b) { return std::pair(a.op, a.operand) < std::pair(b.op, b.operand); }
};

/// Operations that make every entry along a new dimension the same: doing it to the local size is the same as slicing.
bool repeats_values(const Op& op) {
  static const std::set<std::string> names{"expand", "expand_as", "broadcast_to", "repeat", "repeat_interleave", "tile", "broadcast_tensors", "unsqueeze"};
  const auto dot = op.name.rfind('.');
  return names.count(dot == std::string::npos ? op.name : op.name.substr(dot + 1)) > 0;
}

/// Created with one value everywhere.
bool is_fill(const Op& op) {
  static const std::set<std::string> names{"zeros", "ones", "full", "empty", "zeros_like", "ones_like", "full_like", "empty_like",
                                           "new_zeros", "new_ones", "new_full", "new_empty"};
  const auto dot = op.name.rfind('.');
  return names.count(dot == std::string::npos ? op.name : op.name.substr(dot + 1)) > 0;
}

class Placer {
 public:
  Placer(const Trace& trace, const AxisTable& table, Result& result) : trace_(trace), table_(table), result_(result) {}

  void run() {
    varying();
    uses();
    forward_side();
    backward_side();
    std::stable_sort(result_.conversions.begin(), result_.conversions.end(), [](const Conversion& a, const Conversion& b) { return a.op < b.op; });
    std::sort(result_.grad_summed.begin(), result_.grad_summed.end());
  }

 private:
  void varying() {
    result_.states.assign(trace_.tensors.size(), State::I);
    result_.axis_of.assign(trace_.tensors.size(), -1);
    for (const Axis& a : result_.axes) {
      if (!a.chosen) continue;
      for (TensorId t : table_.carriers[index(a.id)]) {
        result_.states[index(t)] = State::V;
        result_.axis_of[index(t)] = a.id;
      }
    }
    // Two chosen axes never meet in an operation, so there is one at most.
    context_.assign(trace_.ops.size(), -1);
    for (const Op& op : trace_.ops) {
      if (at_construction(op)) continue;
      for (int a : table_.touched[index(op.id)])
        if (result_.axes[index(a)].chosen) context_[index(op.id)] = a;
    }
  }

  /// What __init__ computes, it computes in full: parameters and buffers are cut by their layout afterwards, anything else is sliced where forward reads it.
  bool at_construction(const Op& op) const { return op.clock < trace_.forward_begin; }
  bool cut_by_layout(TensorId t) const { return trace_.tensor(t).origin == Origin::Parameter || trace_.tensor(t).origin == Origin::Buffer; }
  bool made_whole(TensorId t) const {
    if (cut_by_layout(t)) return false;
    const Tensor& x = trace_.tensor(t);
    return x.producer < 0 || at_construction(trace_.op(x.producer));
  }

  void uses() {
    uses_.resize(trace_.tensors.size());
    for (const Op& op : trace_.ops)
      for (std::size_t k = 0; k < op.inputs.size() && !at_construction(op); ++k)
        if (op.inputs[k].tensor >= 0) uses_[index(op.inputs[k].tensor)].push_back({op.id, static_cast<int>(k)});
    output_.assign(trace_.tensors.size(), 0);
    for (TensorId t : model::tensors_of(trace_.output)) output_[index(t)] = 1;
  }

  int dim_of(TensorId t, int axis) const { return carrying_dim(table_.tensors[index(t)], axis); }
  static int carrying_dim(const Factored& f, int axis) {
    for (std::size_t i = 0; i < f.size(); ++i)
      if (carries(f[i], axis)) return static_cast<int>(i);
    return -1;
  }
  static bool carries(const Dim& d, int axis) {
    return std::any_of(d.begin(), d.end(), [&](const Term& t) {
      return t.axis == axis || std::any_of(t.segments.begin(), t.segments.end(), [&](const Dim& s) { return carries(s, axis); });
    });
  }

  void forward_side() {
    for (const Op& op : trace_.ops) {
      const int a = context_[index(op.id)];
      if (a < 0) continue;
      const bool sums = table_.contracts(op.id, a);
      bool any_input = false;
      for (std::size_t k = 0; k < op.inputs.size(); ++k) {
        const TensorId t = op.inputs[k].tensor;
        if (!table_.carries(t, a)) continue;
        any_input = true;
        if (made_whole(t)) {
          Conversion c;
          c.kind = Conversion::Slice;
          c.op = op.id;
          c.operand = static_cast<int>(k);
          c.tensor = t;
          c.dim = dim_of(t, a);
          c.axis = a;
          result_.conversions.push_back(c);
        }
      }
      for (std::size_t k = 0; k < op.outputs.size(); ++k) {
        const TensorId t = op.outputs[k];
        Conversion c;
        c.op = op.id;
        c.operand = static_cast<int>(k);
        c.on_output = true;
        c.tensor = t;
        c.axis = a;
        if (cut_by_layout(t)) continue;
        if (table_.carries(t, a)) {
          if (!op.random.empty()) note_random(op.id);
          if (any_input || repeats_values(op)) continue;
          c.kind = Conversion::Slice;
          c.dim = dim_of(t, a);
          c.fill = op.prim == Prim::Create && is_fill(op);
          result_.conversions.push_back(c);
        } else if (sums) {
          c.kind = Conversion::ReduceFrom;
          c.mean = op.mean;
          result_.conversions.push_back(c);
        }
      }
    }
  }
  void note_random(OpId op) {
    if (result_.sharded_random.empty() || result_.sharded_random.back() != op) result_.sharded_random.push_back(op);
  }

  void backward_side() {
    // Operands with partial gradients, found from the end: a replicated result that is left partial makes its producer's operands partial.
    std::map<TensorId, std::vector<Edge>> partial;
    for (const Op& op : trace_.ops) {
      const int a = context_[index(op.id)];
      if (a < 0) continue;
      for (std::size_t k = 0; k < op.inputs.size(); ++k)
        if (is_entry(trace_, table_, op, k, a)) partial[op.inputs[k].tensor].push_back({op.id, static_cast<int>(k)});
    }
    for (auto op = trace_.ops.rbegin(); op != trace_.ops.rend(); ++op) {
      if (context_[index(op->id)] >= 0 || in_custom_function(*op) || op->prim == Prim::Opaque) continue;
      bool push = !op->outputs.empty();
      bool any = false;
      for (TensorId t : op->outputs) {
        const Tensor& out = trace_.tensor(t);
        if (out.from_input || !only_partial(t, partial)) push = false;
        any = any || partial.count(t) > 0;
      }
      if (!push || !any) continue;
      for (TensorId t : op->outputs) {
        partial.erase(t);
        if (trace_.tensor(t).requires_grad) result_.states[index(t)] = State::R;
      }
      for (std::size_t k = 0; k < op->inputs.size(); ++k) {
        const TensorId t = op->inputs[k].tensor;
        if (t >= 0 && trace_.tensor(t).requires_grad) partial[t].push_back({op->id, static_cast<int>(k)});
      }
    }
    for (auto& [t, edges] : partial) {
      std::sort(edges.begin(), edges.end());
      if (trace_.tensor(t).origin == Origin::Parameter && only_partial(t, partial)) {
        result_.states[index(t)] = State::R;
        result_.grad_summed.push_back(t);
        continue;
      }
      Conversion c;
      c.kind = Conversion::CopyTo;
      c.op = edges.front().op;
      c.operand = edges.front().operand;
      c.tensor = t;
      c.axis = context_[index(c.op)];
      for (std::size_t i = 1; i < edges.size(); ++i) c.also.emplace_back(edges[i].op, edges[i].operand);
      result_.conversions.push_back(c);
    }
  }
  /// Every use that can bring a gradient is partial (a result of which nobody asks a gradient cannot).
  bool only_partial(TensorId t, const std::map<TensorId, std::vector<Edge>>& partial) const {
    if (output_[index(t)]) return false;
    const auto it = partial.find(t);
    for (const Edge& e : uses_[index(t)]) {
      const Op& op = trace_.op(e.op);
      if (std::none_of(op.outputs.begin(), op.outputs.end(), [&](TensorId o) { return trace_.tensor(o).requires_grad; })) continue;
      if (it == partial.end()) return false;
      if (std::none_of(it->second.begin(), it->second.end(), [&](const Edge& p) { return p.op == e.op && p.operand == e.operand; })) return false;
    }
    return true;
  }

  const Trace& trace_;
  const AxisTable& table_;
  Result& result_;
  std::vector<std::vector<Edge>> uses_;
  std::vector<int> context_;
  std::vector<char> output_;
};

}  // namespace

void assign_states(const Trace& trace, const AxisTable& table, Result& result) { Placer(trace, table, result).run(); }

}  // namespace shardwright::sharding
