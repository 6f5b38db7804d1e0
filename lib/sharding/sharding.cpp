#include "sharding/sharding.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "sharding/choose.h"
#include "sharding/states.h"

namespace shardwright::sharding {

using model::Module;
using model::ModuleId;
using model::Trace;

namespace {

std::size_t index(int i) { return static_cast<std::size_t>(i); }

bool carries(const Dim& d, int axis) {
  return std::any_of(d.begin(), d.end(), [&](const Term& t) {
    return t.axis == axis || std::any_of(t.segments.begin(), t.segments.end(), [&](const Dim& s) { return carries(s, axis); });
  });
}

std::string short_type(const std::string& type) {
  const auto dot = type.rfind('.');
  return dot == std::string::npos ? type : type.substr(dot + 1);
}

/// The innermost module of user code that owns the parameter.
const Module* owner(const Trace& trace, const std::map<TensorId, ModuleId>& owners, TensorId t) {
  const auto it = owners.find(t);
  if (it == owners.end()) return nullptr;
  ModuleId m = it->second;
  while (trace.module(m).builtin && trace.module(m).parent >= 0) m = trace.module(m).parent;
  return &trace.module(m);
}

std::string parameter_names(const Trace& trace, const Axis& a) {
  std::string out;
  int n = 0;
  for (TensorId p : a.parameters) {
    if (trace.tensor(p).origin != model::Origin::Parameter) continue;
    if (++n > 3) return out + ", …";
    out += (out.empty() ? "" : ", ") + trace.tensor(p).name;
  }
  return out;
}

std::string working_sizes(std::int64_t size) {
  std::string out;
  int n = 0;
  for (std::int64_t d = 2; d <= size && n < 8; ++d) {
    if (size % d != 0) continue;
    out += (out.empty() ? "" : ", ") + std::to_string(d);
    ++n;
  }
  return out;
}

Fallback fallback(const Trace& trace, const std::map<TensorId, ModuleId>& owners, const AxisTable& table, const Axis& a, int tp) {
  Fallback f;
  f.axis = a.id;
  std::string who = "the model";
  TensorId first = -1;
  std::set<ModuleId> of;
  for (TensorId p : a.parameters) {
    if (trace.tensor(p).origin != model::Origin::Parameter) continue;
    if (first < 0) first = p;
    if (const auto it = owners.find(p); it != owners.end()) of.insert(it->second);
  }
  const Module* m = first >= 0 ? owner(trace, owners, first) : nullptr;
  // The module that stays whole: a layer that is built in where it is only that one, or where nothing but the model itself is above.
  if (m != nullptr && owners.count(first) > 0 && (of.size() == 1 || m->id == 0)) m = &trace.module(owners.at(first));
  if (m != nullptr) {
    f.module = m->fqn;
    who = short_type(m->type) + (m->fqn.empty() ? "" : " (" + m->fqn + ")");
    if (m->construct_call != nullptr) f.where = m->construct_call->range;
    else if (m->class_def != nullptr) f.where = m->class_def->range;
  }
  if (table.divisibility_only[index(a.id)]) {
    f.message = who + " stays replicated: tp=" + std::to_string(tp) + " does not divide its axis of size " + std::to_string(a.size) + " (" +
        parameter_names(trace, a) + "); values of tp that do: " + working_sizes(a.size);
  } else {
    if (a.where.valid()) f.where = a.where;
    f.message = who + " stays replicated: its axis of size " + std::to_string(a.size) + " (" + parameter_names(trace, a) +
        ") is not split: " + a.why_not;
  }
  return f;
}

/// Returns the parameters that were spoken of.
std::set<TensorId> report_fallbacks(const Trace& trace, const AxisTable& table, const std::vector<int>& wanted, Result& r) {
  std::map<TensorId, ModuleId> owners;
  for (const auto& n : model::named_tensors(trace)) owners.emplace(n.ref.tensor, n.module);
  std::set<TensorId> said;
  std::set<std::pair<std::string, std::string>> reasons;  // of a module: once, however many axes it has
  const auto report = [&](const Axis& a, bool once) {
    Fallback f = fallback(trace, owners, table, a, r.tp);
    said.insert(a.parameters.begin(), a.parameters.end());
    if (reasons.emplace(f.module, a.why_not).second || !once) r.fallbacks.push_back(std::move(f));
  };
  for (int a : wanted) report(r.axes[index(a)], false);
  // What an operation that was not understood alone keeps whole: a region (two matrices at least) that could have been split.
  for (const Axis& a : r.axes) {
    if (!table.unknown_only[index(a.id)] || a.legal || a.size < 2) continue;
    const auto matrices = std::count_if(a.parameters.begin(), a.parameters.end(), [&](TensorId p) {
      return trace.tensor(p).origin == model::Origin::Parameter && trace.tensor(p).shape.size() >= 2;
    });
    if (matrices >= 1) report(a, true);
  }
  return said;
}

/// Layers that are given what is not known here (the rows that a mask picks): no operation shows what they compute, so none of it can be
/// split, and no axis speaks of it.
void report_unseen(const Trace& trace, Result& r) {
  std::set<TensorId> read;
  for (const auto& op : trace.ops)
    for (const auto& o : op.inputs)
      if (op.clock >= trace.forward_begin && o.tensor >= 0) read.insert(o.tensor);
  struct Unseen {
    const Module* first = nullptr;
    support::Range where;
    std::set<ModuleId> all;
  };
  std::map<std::string, Unseen> by_class;
  for (const auto& call : trace.calls) {
    if (call.begin < trace.forward_begin || call.module < 0 || !call.call) continue;
    const Module& m = trace.module(call.module);
    const bool matrices = std::any_of(m.params.begin(), m.params.end(), [&](const auto& p) {
      return !p.buffer && p.tensor >= 0 && trace.tensor(p.tensor).shape.size() >= 2 && !read.count(p.tensor);
    });
    const auto known = [](const model::Binding& b) { return !model::tensors_of(b).empty() || b.kind != model::Binding::Other; };
    if (!matrices || call.arguments.empty() || std::any_of(call.arguments.begin(), call.arguments.end(), known)) continue;
    const Module* of = &m;
    while (of->builtin && of->parent > 0) of = &trace.module(of->parent);
    if (of->builtin) of = &m;
    Unseen& u = by_class[of->type];
    if (!u.first) {
      u.first = of;
      const program::Expr* at = call.call;  // in code of the program's own
      for (model::FrameId f = call.caller; f >= 0 && trace.frame(f).builtin; f = trace.frame(f).parent) at = trace.frame(f).call;
      if (at) u.where = at->range;
    }
    u.all.insert(of->id);
  }
  for (const auto& [type, u] : by_class) {
    Fallback f;
    f.module = u.first->fqn;
    f.where = u.where;
    f.message = short_type(type) + " (" + f.module + (u.all.size() > 1 ? " and " + std::to_string(u.all.size() - 1) + " more" : "") +
        ") stays replicated: it is given values that are not known here (how many rows a mask picks, say), so what it computes cannot be "
        "followed";
    r.fallbacks.push_back(std::move(f));
  }
}

/// Dimensions that nobody wants split: a convolution's window, the pieces that a dimension is cut into (the 3 of q, k and v).
bool minor(const Trace& trace, TensorId t, const Factored& f, const Axis& a) {
  const std::string& why = a.why_not;
  const std::string parts = "takes parts of it";
  if (why.size() >= parts.size() && why.compare(why.size() - parts.size(), parts.size(), parts) == 0 && a.size <= 4) return true;
  if (why.rfind("an index picks", 0) == 0 || why == "real and imaginary part") return true;
  // Behind the channels of a matrix with windows.
  for (std::size_t i = 2; i < f.size(); ++i)
    if (carries(f[i], a.id) && why.find("convolution") != std::string::npos && trace.tensor(t).shape.size() > 2) return true;
  return false;
}

void report_whole(const Trace& trace, const AxisTable& table, std::set<TensorId> said, Result& r) {
  std::set<TensorId> matrices, seen;
  std::vector<TensorId> open;  // what multiplies, and what that is made of without an input: a weight that is normalised first
  for (const auto& op : trace.ops)
    for (const auto& o : op.inputs)
      if (o.tensor >= 0 && !o.is_bias && contracts_something(op)) open.push_back(o.tensor);
  while (!open.empty()) {
    const TensorId t = open.back();
    open.pop_back();
    if (!seen.insert(t).second) continue;
    const auto& x = trace.tensor(t);
    if (x.origin == model::Origin::Parameter) {
      if (x.shape.size() > 1 && r.axis_of[index(t)] < 0) matrices.insert(t);
    } else if (x.from_parameter && !x.from_input && x.producer >= 0) {
      for (const auto& o : trace.op(x.producer).inputs)
        if (o.tensor >= 0) open.push_back(o.tensor);
    }
  }
  std::map<int, std::vector<TensorId>> by_axis;
  for (TensorId t : matrices) {
    if (said.count(t)) continue;
    // Best is one that could have been split; windows and counts of pieces are not what a reader asks about. The axis that the fewest
    // share is the one that is this matrix's own matter: not the stream that runs through the model.
    const Axis* best = nullptr;
    for (int a : table.of_tensor[index(t)]) {
      const Axis& x = r.axes[index(a)];
      if (x.size < 2) continue;
      if (best == nullptr ||
          std::tuple(!x.legal, minor(trace, t, r.tensors[index(t)], x), !x.where.valid(), x.parameters.size(), -x.size) <
              std::tuple(!best->legal, minor(trace, t, r.tensors[index(t)], *best), !best->where.valid(), best->parameters.size(),
                         -best->size))
        best = &x;
    }
    by_axis[best ? best->id : -1].push_back(t);
  }
  for (const auto& [a, list] : by_axis) {
    Fallback f;
    f.axis = a;
    std::string names;
    for (std::size_t i = 0; i < list.size() && i < 3; ++i) names += (i ? ", " : "") + trace.tensor(list[i]).name;
    if (list.size() > 3) names += " and " + std::to_string(list.size() - 3) + " more";
    f.message = names + ": ";
    if (a < 0) {
      f.message += "no dimension can be followed";
    } else {
      const Axis& x = r.axes[index(a)];
      f.where = x.where;
      f.message += "the axis of size " + std::to_string(x.size) +
          " is not split: " + (x.why_not.empty() ? "it meets an axis that is split, or costs more than it gains" : x.why_not);
    }
    r.whole.push_back(std::move(f));
  }
}

void report(const Trace& trace, const AxisTable& table, const std::vector<int>& wanted, Result& r) {
  report_whole(trace, table, report_fallbacks(trace, table, wanted, r), r);
  report_unseen(trace, r);
}

Result place_axes(const Trace& trace, const Options& options, AxisTable& table, const std::vector<int>& chosen,
                  const std::vector<int>& wanted) {
  Result r;
  r.tp = options.tp;
  r.axes = table.axes;
  r.tensors = table.tensors;
  if (options.tp > 1)
    for (int a : chosen) r.axes[index(a)].chosen = true;
  assign_states(trace, options, table, r);
  if (options.tp > 1) report(trace, table, wanted, r);
  return r;
}

}  // namespace

int Result::sharded_dim(TensorId t) const {
  const int a = axis_of[index(t)];
  if (a < 0) return -1;
  const Factored& f = tensors[index(t)];
  for (std::size_t i = 0; i < f.size(); ++i)
    if (carries(f[i], a)) return static_cast<int>(i);
  return -1;
}

std::vector<std::int64_t> Result::local_shape(const Trace& trace, TensorId t) const {
  std::vector<std::int64_t> shape = trace.tensor(t).shape;
  if (const int d = sharded_dim(t); d >= 0) shape[index(d)] /= tp;
  return shape;
}

Result analyse(const Trace& trace, const Options& options, const Trace* other) {
  AxisTable table = build_table(trace, options);
  if (other != nullptr) require_agreement(table, build_table(*other, options));
  const Choice c = choose(trace, table, options);
  return place_axes(trace, options, table, c.chosen, c.wanted);
}

Result place(const Trace& trace, const Options& options, const std::vector<std::vector<std::string>>& chosen_by_parameters) {
  AxisTable table = build_table(trace, options);
  std::map<std::string, std::vector<const Axis*>> by_names, by_key;
  const auto join = [](const std::set<std::string>& names) {
    std::string s;
    for (const std::string& n : names) s += n + "\n";
    return s;
  };
  for (const Axis& a : table.axes) {
    std::set<std::string> all, own;
    for (TensorId p : a.parameters) {
      all.insert(trace.tensor(p).name);
      if (trace.tensor(p).origin == model::Origin::Parameter) own.insert(trace.tensor(p).name);
    }
    if (all.empty()) continue;
    by_names[join(all)].push_back(&a);
    if (own != all && !own.empty()) by_names[join(own)].push_back(&a);
    if (!a.key.empty()) by_key[a.key].push_back(&a);
  }
  std::vector<int> chosen;
  std::vector<std::string> errors;
  for (const auto& names : chosen_by_parameters) {
    std::string text;
    for (const std::string& n : names) text += (text.empty() ? "" : ", ") + n;
    const auto key = names.size() == 1 ? by_key.find(names[0]) : by_key.end();
    const std::vector<const Axis*>* found = nullptr;
    if (key != by_key.end()) {
      found = &key->second;
    } else if (const auto it = by_names.find(join({names.begin(), names.end()})); it != by_names.end()) {
      found = &it->second;
    }
    if (found == nullptr) {
      errors.push_back("no axis is carried by exactly these parameters: " + text);
      continue;
    }
    const Axis* best = nullptr;
    for (const Axis* a : *found)
      if (a->legal && (best == nullptr || score(*a, 1) > score(*best, 1))) best = a;
    if (best == nullptr) {
      errors.push_back("the axis of " + text + " cannot be split: " + found->front()->why_not);
      continue;
    }
    const auto meets = [&](int c) {
      const auto both = [&](const std::vector<int>& v) {
        return std::binary_search(v.begin(), v.end(), c) && std::binary_search(v.begin(), v.end(), best->id);
      };
      return std::any_of(table.touched.begin(), table.touched.end(), both) ||
          std::any_of(table.of_tensor.begin(), table.of_tensor.end(), both);
    };
    if (std::find(chosen.begin(), chosen.end(), best->id) != chosen.end()) continue;
    if (std::any_of(chosen.begin(), chosen.end(), meets)) {
      errors.push_back("the axis of " + text + " meets another chosen one in a tensor or an operation");
      continue;
    }
    chosen.push_back(best->id);
  }
  std::sort(chosen.begin(), chosen.end());
  Result r = place_axes(trace, options, table, chosen, {});
  r.errors = std::move(errors);
  return r;
}

}  // namespace shardwright::sharding
