// States follow from the chosen axes. A tensor that carries one is V. An operation that sums over one leaves a partial sum,
// reduced at once (P→I): nothing later then has to be linear. What remains is the backward side: a tensor that needs a
// gradient, does not carry the axis, and meets it in an operation gets a partial gradient there.
//
//   - An activation goes through copy-to-region (I→R) at exactly those operands; one copy, hence one all-reduce, however
//     many operands read it. Its other uses (a residual) keep reading the original.
//   - Two partial sums that nothing reads but their sum (attention and MLP side by side) are left partial until then: one
//     reduction instead of two. Only where no bias was added to either: it would count once a rank.
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
  int axis = -1;  ///< for whose region the gradient is partial
  friend bool operator<(const Edge& a, const Edge& b) { return std::pair(a.op, a.operand) < std::pair(b.op, b.operand); }
};

/// Operations that make every entry along a new dimension the same: doing it to the local size is the same as slicing.
bool repeats_values(const Op& op) {
  static const std::set<std::string> names{"expand", "expand_as",         "broadcast_to", "repeat", "repeat_interleave",
                                           "tile",   "broadcast_tensors", "unsqueeze"};
  const auto dot = op.name.rfind('.');
  return names.count(dot == std::string::npos ? op.name : op.name.substr(dot + 1)) > 0;
}

/// Created with one value everywhere.
bool is_fill(const Op& op) {
  static const std::set<std::string> names{"zeros",     "ones",       "full",      "empty",    "zeros_like", "ones_like",
                                           "full_like", "empty_like", "new_zeros", "new_ones", "new_full",   "new_empty"};
  const auto dot = op.name.rfind('.');
  return names.count(dot == std::string::npos ? op.name : op.name.substr(dot + 1)) > 0;
}

/// A mask that is the same on all ranks, as for any whole tensor: linear in its operand. (Alpha dropout adds to it.)
bool is_dropout(const Op& op) {
  const auto dot = op.name.rfind('.');
  const std::string name = dot == std::string::npos ? op.name : op.name.substr(dot + 1);
  return name == "dropout" || name == "dropout_" || name == "dropout1d" || name == "dropout2d" || name == "dropout3d";
}

class Placer {
 public:
  Placer(const Trace& trace, const Options& options, const AxisTable& table, Result& result)
      : trace_(trace), options_(options), table_(table), result_(result) {}

  void run() {
    varying();
    uses();
    forward_side();
    merge_sums();
    backward_side();
    std::stable_sort(result_.conversions.begin(), result_.conversions.end(),
                     [](const Conversion& a, const Conversion& b) { return a.op < b.op; });
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

  /// What __init__ computes, it computes in full: parameters and buffers are cut by their layout afterwards, anything else is sliced where
  /// forward reads it.
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
        } else if (table_.gathers(op, a)) {
          c.kind = Conversion::Gather;
          c.dim = gathered_dim(op, k, a);
          result_.conversions.push_back(c);
        }
      }
    }
  }
  /// Dimension of a gathered result: the one that has the label of the axis in the weights.
  int gathered_dim(const Op& op, std::size_t output, int axis) const {
    for (std::size_t i = 0; i < op.in.size(); ++i) {
      const int d = table_.carries(op.inputs[i].tensor, axis) ? dim_of(op.inputs[i].tensor, axis) : -1;
      if (d < 0) continue;
      const auto& out = op.out[output];
      return static_cast<int>(std::find(out.begin(), out.end(), op.in[i][index(d)]) - out.begin());
    }
    return -1;
  }
  /// Position in result_.conversions of the reduction that makes `t` whole, where that can wait: -1 otherwise. `passed` collects the
  /// tensors from the sum to `t`, each read by the next alone.
  int waiting_sum(TensorId t, std::vector<TensorId>& passed) const {
    for (int hops = 0; hops < 16; ++hops) {
      const OpId producer = trace_.tensor(t).producer;
      if (producer < 0 || output_[index(t)] || uses_[index(t)].size() != 1) return -1;
      passed.push_back(t);
      const Op& op = trace_.op(producer);
      for (std::size_t i = 0; i < result_.conversions.size(); ++i) {
        const Conversion& c = result_.conversions[i];
        if (c.kind != Conversion::ReduceFrom || c.tensor != t) continue;
        const bool bias = std::any_of(op.inputs.begin(), op.inputs.end(), [](const auto& o) { return o.is_bias && o.tensor >= 0; });
        return bias || c.mean || is_lookup(op) || op.outputs.size() != 1 ? -1 : static_cast<int>(i);
      }
      const bool passes = (op.prim == Prim::Labelled || op.prim == Prim::Reshape) &&
          (op.linearity == model::Linearity::Linear || is_dropout(op)) && op.inputs.size() == 1 && op.outputs.size() == 1 &&
          !in_custom_function(op) && !at_construction(op) && op.inputs[0].tensor >= 0 &&
          model::numel(trace_.tensor(op.inputs[0].tensor)) == model::numel(trace_.tensor(t));
      if (!passes) return -1;
      t = op.inputs[0].tensor;
    }
    return -1;
  }
  void merge_sums() {
    for (const Op& op : trace_.ops) {
      // Written as `a + b` in code that can be edited.
      const bool sum = op.prim == Prim::Labelled && op.linearity == model::Linearity::Linear && op.inputs.size() == 2 &&
          op.outputs.size() == 1 && context_[index(op.id)] < 0 && op.site != nullptr && op.site->kind == program::ExprKind::Binary &&
          op.inputs[0].tensor != op.inputs[1].tensor;
      if (!sum || op.module < 0 || trace_.module(op.module).builtin) continue;
      std::vector<TensorId> passed;
      int waiting[2] = {-1, -1};
      for (int k = 0; k < 2; ++k) {
        const TensorId t = op.inputs[static_cast<std::size_t>(k)].tensor;
        if (t >= 0 && trace_.tensor(t).shape == trace_.tensor(op.outputs[0]).shape) waiting[k] = waiting_sum(t, passed);
      }
      if (waiting[0] < 0 || waiting[1] < 0) continue;
      Conversion c = result_.conversions[static_cast<std::size_t>(waiting[0])];
      c.op = op.id;
      c.operand = 0;
      c.tensor = op.outputs[0];
      for (TensorId t : passed) result_.states[index(t)] = State::P;
      for (int i : {std::max(waiting[0], waiting[1]), std::min(waiting[0], waiting[1])})
        result_.conversions.erase(result_.conversions.begin() + i);
      result_.conversions.push_back(c);
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
        if (is_entry(trace_, table_, op, k, a)) partial[op.inputs[k].tensor].push_back({op.id, static_cast<int>(k), a});
    }
    const std::vector<char> whole = replicated();
    std::set<TensorId> copied;
    for (const auto& call : trace_.calls)
      if (call.module >= 0 && options_.copy_arguments.count(trace_.module(call.module).type))
        for (const auto& a : call.arguments)
          for (TensorId t : model::tensors_of(a)) copied.insert(t);
    for (auto op = trace_.ops.rbegin(); op != trace_.ops.rend(); ++op) {
      if (context_[index(op->id)] >= 0 || in_custom_function(*op) || op->prim == Prim::Opaque) continue;
      bool push = options_.leave_partial && !op->outputs.empty();
      bool any = false;
      for (TensorId t : op->outputs) {
        const Tensor& out = trace_.tensor(t);
        if (out.from_input || !whole[index(t)] || copied.count(t) || !only_partial(t, partial)) push = false;
        any = any || partial.count(t) > 0;
      }
      if (!push || !any) continue;
      int axis = -1;
      for (TensorId t : op->outputs) {
        for (const Edge& e : partial[t]) axis = e.axis;
        partial.erase(t);
        if (trace_.tensor(t).requires_grad) result_.states[index(t)] = State::R;
      }
      for (std::size_t k = 0; k < op->inputs.size(); ++k) {
        const TensorId t = op->inputs[k].tensor;
        if (t >= 0 && trace_.tensor(t).requires_grad) partial[t].push_back({op->id, static_cast<int>(k), axis});
      }
    }
    for (auto& [t, edges] : partial) {
      std::sort(edges.begin(), edges.end());
      if (trace_.tensor(t).origin == Origin::Parameter && !copied.count(t) && only_partial(t, partial)) {
        result_.states[index(t)] = State::R;
        result_.grad_summed.push_back(t);
        continue;
      }
      Conversion c;
      c.kind = Conversion::CopyTo;
      c.op = edges.front().op;
      c.operand = edges.front().operand;
      c.tensor = t;
      c.axis = edges.front().axis;
      for (std::size_t i = 1; i < edges.size(); ++i) c.also.emplace_back(edges[i].op, edges[i].operand);
      result_.conversions.push_back(c);
    }
  }
  /// Tensors that are made of whole parameters and buffers alone, in no region: whose making can be left partial back to those. Behind a
  /// sum over tp it cannot, and the copy is best made where the region is entered.
  std::vector<char> replicated() const {
    std::vector<char> whole(trace_.tensors.size());
    for (std::size_t t = 0; t < whole.size(); ++t) whole[t] = trace_.tensors[t].producer < 0 && result_.axis_of[t] < 0;
    for (const Op& op : trace_.ops) {
      const bool made = context_[index(op.id)] < 0 &&
          std::all_of(op.inputs.begin(), op.inputs.end(), [&](const auto& i) { return i.tensor < 0 || whole[index(i.tensor)]; });
      for (TensorId t : op.outputs) whole[index(t)] = made && result_.axis_of[index(t)] < 0;
    }
    return whole;
  }

  /// Every use that can bring a gradient is partial (a result of which nobody asks a gradient cannot).
  bool only_partial(TensorId t, const std::map<TensorId, std::vector<Edge>>& partial) const {
    if (output_[index(t)]) return false;
    const auto it = partial.find(t);
    for (const Edge& e : uses_[index(t)]) {
      const Op& op = trace_.op(e.op);
      if (std::none_of(op.outputs.begin(), op.outputs.end(), [&](TensorId o) { return trace_.tensor(o).requires_grad; })) continue;
      if (it == partial.end()) return false;
      if (std::none_of(it->second.begin(), it->second.end(), [&](const Edge& p) { return p.op == e.op && p.operand == e.operand; }))
        return false;
    }
    return true;
  }

  const Trace& trace_;
  const Options& options_;
  const AxisTable& table_;
  Result& result_;
  std::vector<std::vector<Edge>> uses_;
  std::vector<int> context_;
  std::vector<char> output_;
};

}  // namespace

void assign_states(const Trace& trace, const Options& options, const AxisTable& table, Result& result) {
  Placer(trace, options, table, result).run();
}

}  // namespace shardwright::sharding
