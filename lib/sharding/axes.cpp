#include "sharding/axes.h"

#include <algorithm>
#include <map>
#include <set>

#include "rules/layers.h"

namespace shardwright::sharding {

using model::Op;
using model::OpId;
using model::Origin;
using model::Tensor;
using model::Trace;

namespace {

std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }

bool has(const std::vector<int>& sorted, int x) { return std::binary_search(sorted.begin(), sorted.end(), x); }

void normalise(std::vector<int>& v) {
  std::sort(v.begin(), v.end());
  v.erase(std::unique(v.begin(), v.end()), v.end());
}

/// How often an axis occurs along one path through a product: the parts of a concatenation are alternatives.
int multiplicity(const Dim& d, int axis) {
  int n = 0;
  for (const Term& t : d) {
    if (t.segments.empty()) {
      n += t.axis == axis;
    } else {
      int most = 0;
      for (const Dim& s : t.segments) most = std::max(most, multiplicity(s, axis));
      n += most;
    }
  }
  return n;
}

/// A concatenation in which one part carries the axis and another does not: the local tensor would mix slices with wholes.
bool partial(const Dim& d, int axis) {
  for (const Term& t : d) {
    if (t.segments.empty()) continue;
    std::size_t with = 0;
    for (const Dim& s : t.segments) {
      if (partial(s, axis)) return true;
      with += multiplicity(s, axis) > 0;
    }
    if (with != 0 && with != t.segments.size()) return true;
  }
  return false;
}

class Builder {
 public:
  Builder(const Trace& trace, Inference& inf, const Options& options, const std::set<OpId>& gathered)
      : trace_(trace), inf_(inf), options_(options) {
    table_.gathered = gathered;
  }

  /// Operations whose result can be gathered so that an axis becomes legal.
  std::set<OpId> heads() {
    std::set<OpId> out;
    for (const Axis& a : table_.axes) {
      if (a.legal) continue;
      TensorId weight = -1;
      int matrices = 0;
      for (TensorId p : a.parameters)
        if (trace_.tensor(p).shape.size() >= 2) ++matrices, weight = p;
      if (matrices != 1 || !pays(weight, a.id)) continue;
      bool whole = std::any_of(inf_.store.reasons(leaf_[index(a.id)]).begin(), inf_.store.reasons(leaf_[index(a.id)]).end(),
                               [](const Reason& r) { return r.why == "vocabulary"; });
      for (TensorId t : model::tensors_of(trace_.output)) whole = whole || table_.carries(t, a.id);
      std::set<OpId> found;
      for (OpId o : table_.ops[index(a.id)]) {
        const Op& op = trace_.op(o);
        whole = whole || is_lookup(op);
        if (op.prim != model::Prim::Labelled || is_lookup(op) || in_custom_function(op) || table_.contracts(o, a.id) ||
            op.outputs.size() != 1)
          continue;
        if (!table_.carries(op.outputs[0], a.id) || !trace_.tensor(op.outputs[0]).from_input) continue;
        bool weights = false, others = false;
        for (const auto& in : op.inputs)
          if (table_.carries(in.tensor, a.id)) (trace_.tensor(in.tensor).from_input ? others : weights) = true;
        if (weights && !others && contracts_something(op)) found.insert(o);
      }
      if (whole) out.insert(found.begin(), found.end());
    }
    return out;
  }

  AxisTable run() {
    // A parameter that was replaced (weight tying) is still there as a tensor; only registered ones are the model's.
    for (const auto& n : model::named_tensors(trace_)) registered_.insert(n.ref.tensor);
    number();
    collect();
    legality();
    costs();
    keys();
    return table_;
  }

 private:
  Dim dim_of(const FactorList& fs) {
    Dim d;
    for (FactorId f : inf_.store.leaves(fs)) {
      Term t;
      t.size = inf_.store.size(f);
      const std::vector<FactorList> segments = inf_.store.segments(f);
      if (segments.empty()) {
        t.axis = axis_of(f);
      } else {
        for (const FactorList& s : segments) t.segments.push_back(dim_of(s));
      }
      d.push_back(std::move(t));
    }
    return d;
  }
  int axis_of(FactorId leaf) {
    const auto [it, added] = numbers_.try_emplace(leaf, static_cast<int>(table_.axes.size()));
    if (added) {
      Axis a;
      a.id = it->second;
      a.size = inf_.store.size(leaf);
      table_.axes.push_back(std::move(a));
      leaf_.push_back(leaf);
    }
    return it->second;
  }
  /// Numbers go to parameters first, so that order (and with it every tie) follows the model's own order of parameters.
  void number() {
    table_.tensors.resize(trace_.tensors.size());
    for (const int pass : {0, 1}) {
      for (const Tensor& t : trace_.tensors) {
        if ((t.origin == Origin::Parameter) != (pass == 0)) continue;
        Factored f;
        for (const FactorList& d : inf_.tensors[index(t.id)]) f.push_back(dim_of(d));
        table_.tensors[index(t.id)] = std::move(f);
      }
    }
  }
  void collect_axes(const Dim& d, std::vector<int>& out) {
    for (const Term& t : d) {
      if (t.segments.empty()) out.push_back(t.axis);
      for (const Dim& s : t.segments) collect_axes(s, out);
    }
  }
  void collect() {
    const std::size_t n = table_.axes.size();
    table_.of_tensor.resize(trace_.tensors.size());
    table_.carriers.resize(n);
    for (const Tensor& t : trace_.tensors) {
      auto& list = table_.of_tensor[index(t.id)];
      for (const Dim& d : table_.tensors[index(t.id)]) collect_axes(d, list);
      normalise(list);
      for (int a : list) {
        table_.carriers[index(a)].push_back(t.id);
        if (registered_.count(t.id) > 0) table_.axes[index(a)].parameters.push_back(t.id);
      }
    }
    table_.contracted.resize(trace_.ops.size());
    for (const Contraction& c : inf_.contractions)
      for (FactorId f : inf_.store.deep(c.factors))
        if (const auto it = numbers_.find(f); it != numbers_.end()) table_.contracted[index(c.op)].push_back(it->second);
    table_.touched.resize(trace_.ops.size());
    table_.ops.resize(n);
    for (const Op& op : trace_.ops) {
      auto& touched = table_.touched[index(op.id)];
      const auto add = [&](TensorId t) {
        if (t >= 0) touched.insert(touched.end(), table_.of_tensor[index(t)].begin(), table_.of_tensor[index(t)].end());
      };
      for (const auto& in : op.inputs) add(in.tensor);
      for (TensorId t : op.outputs) add(t);
      normalise(touched);
      normalise(table_.contracted[index(op.id)]);
      for (int a : touched) table_.ops[index(a)].push_back(op.id);
    }
  }
  void legality() {
    const std::size_t n = table_.axes.size();
    table_.unknown_only.assign(n, 0);
    table_.divisibility_only.assign(n, 0);
    std::vector<char> twice(n, 0), incomplete(n, 0), input(n, 0), output(n, 0);
    for (const Tensor& t : trace_.tensors) {
      for (int a : table_.of_tensor[index(t.id)]) {
        int times = 0;
        for (const Dim& d : table_.tensors[index(t.id)]) {
          times += multiplicity(d, a);
          if (partial(d, a)) incomplete[index(a)] = 1;
        }
        if (times > 1) twice[index(a)] = 1;
        if (t.origin == Origin::Input) input[index(a)] = 1;
      }
    }
    for (TensorId t : model::tensors_of(trace_.output))
      for (int a : table_.of_tensor[index(t)]) output[index(a)] = 1;

    std::vector<char> escapes(table_.axes.size(), 0);
    for (TensorId t : trace_.escaped)
      for (int a : table_.of_tensor[index(t)]) escapes[index(a)] = 1;

    for (Axis& a : table_.axes) {
      const std::size_t i = index(a.id);
      a.divides = options_.tp < 1 || a.size % options_.tp == 0;
      const auto& reasons = inf_.store.reasons(leaf_[i]);
      if (!reasons.empty()) {
        const auto known = std::find_if(reasons.begin(), reasons.end(), [](const Reason& r) { return !r.unknown; });
        const Reason& r = known != reasons.end() ? *known : reasons.front();
        table_.unknown_only[i] = known == reasons.end() && !input[i] && !output[i] && !twice[i] && !incomplete[i];
        a.why_not = r.why;
        a.where = r.where;
      } else if (a.parameters.empty()) {
        a.why_not = "no parameter carries it";
      } else if (input[i]) {
        a.why_not = "it is a dimension of the model's input";
      } else if (escapes[i]) {
        a.why_not = "a tensor that has it goes into something that is not followed";
      } else if (output[i]) {
        a.why_not = "it is a dimension of the model's output";
      } else if (twice[i]) {
        a.why_not = "one tensor has it in two of its dimensions";
      } else if (incomplete[i]) {
        a.why_not = "only some parts of a concatenation carry it";
      } else if (custom_function_mixes(a) || !worth_looking_up(a)) {
        // why_not is set
      } else if (!a.divides) {
        table_.divisibility_only[i] = 1;
        a.why_not = "tp " + std::to_string(options_.tp) + " does not divide its size " + std::to_string(a.size);
      } else {
        a.legal = true;
      }
    }
  }
  /// Is the axis a whole dimension of the matrix, at least as long as the others together? Cutting less costs more than it saves.
  bool pays(TensorId t, int axis) const {
    const Factored& f = table_.tensors[index(t)];
    for (const Dim& d : f)
      if (d.size() == 1 && d[0].segments.empty() && d[0].axis == axis) return d[0].size * d[0].size >= model::numel(trace_.tensor(t));
    return false;
  }
  /// Tables that are looked up with data by their whole first dimension; those of positions are read in the same places every time
  /// and are small beside what a sum after each look-up sends.
  bool worth_looking_up(Axis& a) {
    for (OpId o : table_.ops[index(a.id)]) {
      const Op& op = trace_.op(o);
      if (!is_lookup(op) || !table_.contracts(o, a.id)) continue;
      a.vocabulary = true;
      if (op.site != nullptr) a.where = op.site->range;
      const TensorId weight = op.inputs[1].tensor;
      if (!trace_.tensor(op.inputs[0].tensor).from_input) a.why_not = "a table that is looked up with constants";
      else if (trace_.tensor(weight).origin != Origin::Parameter) a.why_not = "a look-up in a table that is computed";
      else if (!pays(weight, a.id)) a.why_not = "a table of fewer rows than columns is not worth a sum after each look-up";
      if (!a.why_not.empty()) return false;
      a.where = {};
    }
    return true;
  }
  /// A hand-written backward is trusted to be elementwise where its forward is; an operand without the axis would need its
  /// gradient summed inside it.
  bool custom_function_mixes(Axis& a) {
    for (OpId o : table_.ops[index(a.id)]) {
      const Op& op = trace_.op(o);
      if (!in_custom_function(op)) continue;
      for (std::size_t k = 0; k < op.inputs.size(); ++k) {
        if (!is_entry(trace_, table_, op, k, a.id)) continue;
        a.why_not = op.note + " mixes it with a tensor that does not have it, and its backward is written by hand";
        if (op.site != nullptr) a.where = op.site->range;
        table_.unknown_only[index(a.id)] = 1;
        return true;
      }
    }
    return false;
  }

  void costs() {
    for (Axis& a : table_.axes) {
      if (a.parameters.empty()) continue;
      for (TensorId p : a.parameters) {
        const Tensor& t = trace_.tensor(p);
        if (t.origin != Origin::Parameter) continue;
        a.parameter_elements += static_cast<double>(model::numel(t));
        a.parameter_bytes += static_cast<double>(model::numel(t)) * model::bytes_of(t.dtype);
      }
      std::set<TensorId> entering;
      for (OpId o : table_.ops[index(a.id)]) {
        const Op& op = trace_.op(o);
        a.flops += op.flops;
        if (table_.contracts(o, a.id)) {
          ++a.forward_sites;
          for (TensorId out : op.outputs) a.forward_elements += static_cast<double>(model::numel(trace_.tensor(out)));
        }
        if (table_.gathers(op, a.id)) {
          a.vocabulary = true;
          ++a.forward_sites;
          for (TensorId out : op.outputs)
            a.forward_elements += static_cast<double>(model::numel(trace_.tensor(out))) / 2;  // a gather sends half of what a sum does
        }
        for (std::size_t k = 0; k < op.inputs.size(); ++k)
          // Gradients of what depends on parameters alone are summed once a step, not an activation's all-reduce.
          if (is_entry(trace_, table_, op, k, a.id) && trace_.tensor(op.inputs[k].tensor).from_input) entering.insert(op.inputs[k].tensor);
      }
      a.entry_sites = static_cast<int>(entering.size());
      for (TensorId t : entering) a.entry_elements += static_cast<double>(model::numel(trace_.tensor(t)));
      for (TensorId t : table_.carriers[index(a.id)])
        if (trace_.tensor(t).origin == Origin::Result && trace_.tensor(t).requires_grad)
          a.activation_bytes += static_cast<double>(model::numel(trace_.tensor(t))) * model::bytes_of(trace_.tensor(t).dtype);
    }
  }

  static void positions(const Dim& d, int axis, std::int64_t outer, const std::string& where, std::vector<std::string>& out) {
    for (const Term& t : d) {
      if (t.segments.empty()) {
        if (t.axis == axis) out.push_back(where + std::to_string(outer) + "*" + std::to_string(t.size));
      } else {
        for (std::size_t s = 0; s < t.segments.size(); ++s)
          positions(t.segments[s], axis, 1, where + std::to_string(outer) + "*" + "[" + std::to_string(s) + "]", out);
      }
      outer *= t.size;
    }
  }
  void keys() {
    for (Axis& a : table_.axes) {
      std::vector<std::string> parts;
      for (TensorId p : a.parameters) {
        const Tensor& t = trace_.tensor(p);
        if (t.origin != Origin::Parameter) continue;
        const Factored& f = table_.tensors[index(p)];
        for (std::size_t i = 0; i < f.size(); ++i) positions(f[i], a.id, 1, t.name + ":" + std::to_string(i) + ":", parts);
      }
      std::sort(parts.begin(), parts.end());
      for (const std::string& s : parts) a.key += (a.key.empty() ? "" : ";") + s;
    }
  }

  const Trace& trace_;
  Inference& inf_;
  const Options& options_;
  AxisTable table_;
  std::map<FactorId, int> numbers_;
  std::vector<FactorId> leaf_;
  std::set<TensorId> registered_;
};

}  // namespace

bool AxisTable::carries(TensorId t, int axis) const { return t >= 0 && has(of_tensor[index(t)], axis); }
bool AxisTable::contracts(OpId op, int axis) const { return has(contracted[index(op)], axis); }

bool AxisTable::gathers(const model::Op& op, int axis) const {
  return gathered.count(op.id) > 0 && !contracts(op.id, axis) &&
      std::any_of(op.inputs.begin(), op.inputs.end(), [&](const auto& in) { return carries(in.tensor, axis); }) &&
      std::none_of(op.outputs.begin(), op.outputs.end(), [&](TensorId t) { return carries(t, axis); });
}

AxisTable build_table(const Trace& trace, const Options& options) {
  Inference plain = infer(trace);
  Builder first(trace, plain, options, {});
  AxisTable table = first.run();
  for (std::set<OpId> heads = first.heads(); !heads.empty();) {
    Inference inf = infer(trace, heads);
    Builder next(trace, inf, options, heads);
    AxisTable with = next.run();
    // A head whose axis is needed whole elsewhere too stays as it was.
    std::set<OpId> good;
    for (OpId o : heads)
      for (const Axis& a : with.axes)
        if ((a.legal || with.divisibility_only[index(a.id)]) && with.gathers(trace.op(o), a.id)) good.insert(o);
    if (good.size() == heads.size()) return with;
    heads = good;
  }
  return table;
}

void require_agreement(AxisTable& table, const AxisTable& other) {
  std::map<std::string, const Axis*> theirs;
  for (const Axis& a : other.axes)
    if (!a.key.empty()) theirs.emplace(a.key, &a);
  for (Axis& a : table.axes) {
    const std::size_t i = index(a.id);
    if (!a.legal && !table.divisibility_only[i]) continue;
    const auto it = theirs.find(a.key);
    if (it != theirs.end() && (it->second->legal || other.divisibility_only[index(it->second->id)])) continue;
    a.legal = false;
    table.divisibility_only[i] = 0;
    a.why_not = it == theirs.end() ? "it comes out differently at another batch size" : "at another batch size: " + it->second->why_not;
  }
}

bool contracts_something(const Op& op) {
  for (std::size_t l = 0; l < op.labels.size(); ++l) {
    const auto has_label = [&](const std::vector<int>& v) { return std::count(v.begin(), v.end(), static_cast<int>(l)) > 0; };
    if (std::count_if(op.in.begin(), op.in.end(), has_label) > 1 && std::none_of(op.out.begin(), op.out.end(), has_label)) return true;
  }
  return false;
}

bool is_entry(const Trace& trace, const AxisTable& table, const Op& op, std::size_t operand, int axis) {
  const auto& in = op.inputs[operand];
  if (in.tensor < 0 || !trace.tensor(in.tensor).requires_grad || table.carries(in.tensor, axis)) return false;
  const auto grad = [&](TensorId t) { return t >= 0 && trace.tensor(t).requires_grad; };
  if (std::none_of(op.outputs.begin(), op.outputs.end(), grad)) return false;
  // The bias of a contraction is added once, after the sum.
  return !(in.is_bias && table.contracts(op.id, axis));
}

bool matches(const std::string& pattern, const std::string& text) { return rules::glob_match(pattern, text); }

}  // namespace shardwright::sharding
