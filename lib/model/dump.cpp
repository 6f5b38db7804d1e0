#include "model/dump.h"

#include <nlohmann/json.hpp>

namespace shardwright::model {
namespace {

using nlohmann::json;

constexpr const char* prim_names[] = {"labelled", "reshape", "split", "concat", "create", "opaque"};
constexpr const char* linearity_names[] = {"linear", "bilinear", "nonlinear"};
constexpr const char* origin_names[] = {"input", "parameter", "buffer", "constant", "result"};
constexpr const char* role_names[] = {"dim", "shape", "split_size", "split_sizes", "factor", "piece_start", "piece_stop"};

std::string place(const support::SourceManager* sm, const Range& r) {
  if (!r.valid()) return "";
  if (sm) return sm->describe(r);
  return std::to_string(r.file) + ":" + std::to_string(r.begin) + "-" + std::to_string(r.end);
}

std::string place(const support::SourceManager* sm, const program::Expr* e) { return e ? place(sm, e->range) : ""; }

std::string letter(int label) {
  if (label < 0) return "1";
  std::string s(1, static_cast<char>('a' + label % 26));
  if (label >= 26) s += std::to_string(label / 26);
  return s;
}

std::string sym_text(const Sym* s) {
  if (!s) return "";
  static constexpr const char* ops[] = {"", "", "+", "-", "*", "//", "/", "%", "**", "neg", "min", "max", "?"};
  if (s->kind == Sym::Const) return json(s->value).dump();
  if (s->kind == Sym::Dim) return "t" + std::to_string(s->tensor) + "." + std::to_string(s->dim);
  return "(" + sym_text(s->a) + " " + ops[static_cast<int>(s->kind)] + " " + sym_text(s->b) + ")";
}

json binding(const Binding& b) {
  switch (b.kind) {
    case Binding::None: return nullptr;
    case Binding::Bool: return b.integer != 0;
    case Binding::Int: return b.integer;
    case Binding::Float: return b.number;
    case Binding::Str: return b.text;
    case Binding::Tensor: return {{"tensor", b.tensor}};
    case Binding::Module: return {{"module", b.module}};
    case Binding::Function:
    case Binding::Other: return {{"other", b.text}};
    case Binding::Sequence: {
      json items = json::array();
      for (const auto& item : b.items) items.push_back(binding(item.second));
      return items;
    }
    case Binding::Mapping:
    case Binding::Object: {
      json items = json::object();
      for (const auto& item : b.items) items[item.first] = binding(item.second);
      return {{b.kind == Binding::Object ? b.text : std::string("dict"), items}};
    }
  }
  return nullptr;
}

json operation(const Trace& t, const Op& op, const support::SourceManager* sm) {
  json j{{"id", op.id},
         {"name", op.name},
         {"prim", prim_names[static_cast<int>(op.prim)]},
         {"linearity", linearity_names[static_cast<int>(op.linearity)]}};
  for (const Operand& o : op.inputs) {
    json in{{"tensor", o.tensor}, {"param", o.param}};
    if (o.is_bias) in["bias"] = true;
    if (o.expr) in["expr"] = place(sm, o.expr);
    j["inputs"].push_back(in);
  }
  j["outputs"] = op.outputs;
  if (op.prim == Prim::Labelled) {
    j["in"] = op.in;
    j["out"] = op.out;
    for (const Label& l : op.labels) {
      json label{{"size", l.size}};
      if (l.blocked) label["blocked"] = l.why;
      j["labels"].push_back(label);
    }
    if (op.mean) j["mean"] = true;
  }
  if (op.prim == Prim::Split || op.prim == Prim::Concat) j["dim"] = op.dim;
  if (op.prim == Prim::Split) j["sizes"] = op.sizes;
  for (const SizeArg& s : op.size_args) {
    json a{{"role", role_names[static_cast<int>(s.role)]}, {"dim", s.dim}, {"values", s.values}};
    for (const Sym* sym : s.syms) a["syms"].push_back(sym_text(sym));
    if (s.expr) a["expr"] = place(sm, s.expr);
    j["size_args"].push_back(a);
  }
  for (const ScalarArg& s : op.scalar_args)
    j["scalar_args"].push_back({{"value", s.value}, {"sym", sym_text(s.sym)}, {"expr", place(sm, s.expr)}});
  if (op.flops > 0) j["flops"] = op.flops;
  if (!op.random.empty()) j["random"] = op.random;
  if (!op.note.empty()) j["note"] = op.note;
  j["clock"] = op.clock;
  j["frame"] = op.frame;
  if (op.site) j["site"] = place(sm, op.site);
  if (op.module >= 0) j["module"] = t.module(op.module).fqn;
  j["step"] = op.step;
  return j;
}

}  // namespace

std::string describe(const Tensor& t) {
  std::string s(short_name(t.dtype));
  s += "[";
  for (std::size_t i = 0; i < t.shape.size(); ++i) s += (i ? "," : "") + std::to_string(t.shape[i]);
  return s + "]";
}

std::string dump_json(const Trace& t, const support::SourceManager* sm) {
  json j;
  for (const Tensor& x : t.tensors) {
    json e{{"id", x.id}, {"shape", x.shape}, {"dtype", short_name(x.dtype)}, {"origin", origin_names[static_cast<int>(x.origin)]}};
    if (!x.name.empty()) e["name"] = x.name;
    if (x.producer >= 0) e["producer"] = x.producer;
    e["requires_grad"] = x.requires_grad;
    e["from_input"] = x.from_input;
    e["from_parameter"] = x.from_parameter;
    j["tensors"].push_back(e);
  }
  for (const Op& op : t.ops) j["ops"].push_back(operation(t, op, sm));
  for (const Module& m : t.modules) {
    json e{{"id", m.id}, {"fqn", m.fqn}, {"type", m.type}, {"parent", m.parent}, {"builtin", m.builtin}, {"training", m.training}};
    for (const auto& p : m.params)
      e["params"].push_back({{"name", p.attr}, {"tensor", p.tensor}, {"buffer", p.buffer}, {"persistent", p.persistent}});
    for (const auto& [name, child] : m.children) e["children"].push_back({{"name", name}, {"module", child}});
    for (const auto& [name, value] : m.ctor_args) e["ctor"][name] = binding(value);
    e["construct"] = place(sm, m.construct_call);
    j["modules"].push_back(e);
  }
  j["named"] = json::array();
  for (const NamedTensor& n : named_tensors(t))
    j["named"].push_back({{"name", n.fqn},
                          {"tensor", n.ref.tensor},
                          {"buffer", n.ref.buffer},
                          {"persistent", n.ref.persistent},
                          {"shape", t.tensor(n.ref.tensor).shape},
                          {"dtype", short_name(t.tensor(n.ref.tensor).dtype)}});
  for (const ModuleCall& c : t.calls) {
    json args = json::array();
    for (const auto& a : c.arguments) args.push_back(binding(a));
    j["calls"].push_back({{"module", c.module},
                          {"fqn", c.module >= 0 ? t.module(c.module).fqn : ""},
                          {"arguments", args},
                          {"result", binding(c.result)},
                          {"call", place(sm, c.call)},
                          {"begin", c.begin},
                          {"end", c.end}});
  }
  for (const Guard& g : t.guards)
    j["guards"].push_back({{"at", place(sm, g.range)}, {"op", g.op}, {"a", sym_text(g.a)}, {"b", sym_text(g.b)}, {"taken", g.taken}});
  for (const Incomplete& i : t.incomplete) j["incomplete"].push_back({{"at", place(sm, i.range)}, {"why", i.why}});
  for (const auto& [name, value] : t.inputs) j["inputs"].push_back({{"name", name}, {"value", binding(value)}});
  j["output"] = binding(t.output);
  j["forward_begin"] = t.forward_begin;
  return j.dump();
}

std::string dump_ops(const Trace& t, const support::SourceManager* sm) {
  std::string s;
  for (const Op& op : t.ops) {
    s += std::to_string(op.id) + " " + op.name + " " + prim_names[static_cast<int>(op.prim)];
    for (const Operand& o : op.inputs)
      s += " t" + std::to_string(o.tensor) + ":" + describe(t.tensor(o.tensor)) + (o.is_bias ? "(bias)" : "");
    s += " ->";
    for (TensorId o : op.outputs) s += " t" + std::to_string(o) + ":" + describe(t.tensor(o));
    if (op.prim == Prim::Labelled) {
      s += "  ";
      for (std::size_t i = 0; i < op.in.size(); ++i) {
        if (i) s += ",";
        for (int l : op.in[i]) s += letter(l);
      }
      s += "->";
      for (std::size_t i = 0; i < op.out.size(); ++i) {
        if (i) s += ",";
        for (int l : op.out[i]) s += letter(l);
      }
      for (std::size_t i = 0; i < op.labels.size(); ++i)
        if (op.labels[i].blocked) s += " !" + letter(static_cast<int>(i)) + "(" + op.labels[i].why + ")";
    }
    if (!op.note.empty()) s += "  # " + op.note;
    if (op.module >= 0) s += "  @" + t.module(op.module).fqn;
    if (op.site) s += "  " + place(sm, op.site);
    s += "\n";
  }
  return s;
}

}  // namespace shardwright::model
