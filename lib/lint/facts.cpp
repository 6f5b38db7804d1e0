#include "lint/facts.h"

#include <cmath>
#include <set>

#include "lint/placement.h"
#include "lint/syntax_help.h"

namespace shardwright::lint {

using model::Origin;
using model::TensorId;

namespace {

/// Norms and what is not linear, by one name for functions and methods alike.
bool compared(const std::string& name) {
  static const std::set<std::string> names{
      "gelu",      "relu",          "silu",       "sigmoid", "tanh", "softmax",    "log_softmax",   "layer_norm",
      "rms_norm",  "group_norm",    "leaky_relu", "elu",     "mish", "softplus",   "hardswish",     "hardsigmoid",
      "normalize", "cross_entropy", "mse_loss",   "relu6",   "selu", "batch_norm", "instance_norm", "scaled_dot_product_attention",
      "exp",       "log",           "rsqrt"};
  return names.count(name) > 0;
}

std::string plain_name(std::string name) {
  name = last_part(name);
  while (name.size() > 1 && name.back() == '_') name.pop_back();
  return name;
}

bool digits(const std::string& s) { return !s.empty() && s.find_first_not_of("0123456789") == std::string::npos; }

/// Name of the container that a module is a numbered member of, without the path to it; "".
std::string container_of(const model::Trace& t, const model::Module& m) {
  if (!digits(m.attr) || m.parent < 0) return "";
  return t.module(m.parent).attr;
}

/// The one received tensor that a tensor is made of, and nothing else; -1.
int made_of(const model::Trace& trace, TensorId t, const std::map<TensorId, int>& received, std::string& by, support::Range& site) {
  std::vector<TensorId> todo{t};
  std::set<TensorId> seen;
  int found = -1;
  bool first = true;
  while (!todo.empty()) {
    const TensorId x = todo.back();
    todo.pop_back();
    if (!seen.insert(x).second) continue;
    if (seen.size() > 64) return -1;
    if (auto at = received.find(x); at != received.end()) {
      if (found >= 0 && found != at->second) return -1;
      found = at->second;
      continue;
    }
    const auto& tensor = trace.tensor(x);
    if (tensor.origin == Origin::Parameter || tensor.producer < 0) return -1;
    const auto& op = trace.op(tensor.producer);
    if (first && op.site) {
      by = plain_name(op.name);
      site = op.site->range;
      first = false;
    }
    for (const auto& i : op.inputs) todo.push_back(i.tensor);
  }
  return found;
}

}  // namespace

void collect_facts(Facts& f, const model::Trace& trace, const std::vector<TensorId>& received, const model::Binding& returned) {
  f.done = true;
  f.incomplete = !trace.incomplete.empty();
  std::map<TensorId, int> from;
  for (std::size_t i = 0; i < received.size(); ++i) from.emplace(received[i], static_cast<int>(i));
  const bool several = returned.kind == model::Binding::Sequence;
  f.bare = returned.kind == model::Binding::Tensor;
  for (std::size_t i = 0; i < (several ? returned.items.size() : 1); ++i) {
    const model::Binding& value = several ? returned.items[i].second : returned;
    Sent s;
    s.tensor = value.kind == model::Binding::Tensor;
    if (!s.tensor) {
      f.outputs.push_back(s);
      continue;
    }
    const TensorId t = value.tensor;
    const auto& x = trace.tensor(t);
    s.id = t;
    s.shape = x.shape;
    s.dtype = x.dtype;
    s.requires_grad = x.requires_grad;
    s.recomputable = !x.from_input && !x.from_parameter;
    s.received = made_of(trace, t, from, s.by, s.by_site);
    if (from.count(t)) s.by.clear();
    f.outputs.push_back(std::move(s));
  }
  for (const auto& op : trace.ops) {
    f.flops += op.flops;
    if (op.frame < 0 || trace.frame(op.frame).init || op.name.rfind("shardwright.", 0) == 0) continue;
    const std::string name = plain_name(op.name);
    if (compared(name)) f.nonlinear.push_back({name, op.site ? op.site->range : support::Range{}});
    if (op.module < 0 || !trace.module(op.module).builtin) ++f.plain_ops[name];
  }
  for (const auto& call : trace.calls) {
    if (call.module < 0) continue;
    const auto& m = trace.module(call.module);
    const std::string container = container_of(trace, m);
    if (!container.empty()) {
      ++f.elements[container];
      f.parts[container] += syntax::stage_number(m.type.substr(m.type.rfind('.') + 1)).has_value();
      if (m.construct_call) f.made_at.emplace(container, m.construct_call->range);
    }
    if (m.builtin) continue;
    for (std::size_t i = 0; i < m.ctor_args.size(); ++i) {
      const auto& [name, value] = m.ctor_args[i];
      if (value.kind != model::Binding::Float) continue;
      const program::Expr* e = i < m.ctor_exprs.size() ? m.ctor_exprs[i] : nullptr;
      f.rates.push_back({(container.empty() ? m.attr : container) + " " + name,
                         e                      ? e->range
                             : m.construct_call ? m.construct_call->range
                                                : support::Range{},
                         value.number});
    }
  }
  std::map<TensorId, std::vector<std::string>> names;
  for (const auto& n : model::named_tensors(trace, false)) {
    names[n.ref.tensor].push_back(n.fqn);
    f.parameters.insert(n.fqn);
  }
  for (auto& [t, n] : names)
    if (n.size() > 1) f.tied.push_back(std::move(n));
}

}  // namespace shardwright::lint
