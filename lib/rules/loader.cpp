#include "rules/loader.h"

#include <algorithm>
#include <set>

namespace shardwright::rules {
namespace {

std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      std::size_t up = row[j];
      row[j] = std::min({up + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1] ? 1 : 0)});
      diagonal = up;
    }
  }
  return row[b.size()];
}

std::string quoted(const std::vector<std::string>& words) {
  std::string s;
  for (const auto& w : words) s += (s.empty() ? "" : ", ") + w;
  return s;
}

std::string choice(const YAML::Node& at, const std::string& value, std::initializer_list<const char*> allowed) {
  std::vector<std::string> words(allowed.begin(), allowed.end());
  if (std::find(words.begin(), words.end(), value) != words.end()) return value;
  std::string near = nearest(value, words);
  fail(at, "\"" + value + "\" is not one of " + quoted(words) + (near.empty() ? "" : " (did you mean \"" + near + "\"?)"));
}

ResultType result_type(const YAML::Node& at, const std::string& s) {
  choice(at, s, {"promote", "same", "float", "bool", "int64", "real", "complex"});
  if (s == "same") return ResultType::Same;
  if (s == "float") return ResultType::Float;
  if (s == "bool") return ResultType::Bool;
  if (s == "int64") return ResultType::Int64;
  if (s == "real") return ResultType::Real;
  if (s == "complex") return ResultType::Complex;
  return ResultType::Promote;
}

}  // namespace

std::string nearest(std::string_view key, const std::vector<std::string>& allowed) {
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(key.size() / 3, 1) + 1;
  for (const auto& a : allowed)
    if (std::size_t d = distance(key, a); d < best_distance) {
      best = a;
      best_distance = d;
    }
  return best;
}

void fail(const YAML::Node& at, std::string message) {
  YAML::Mark mark = at.IsDefined() ? at.Mark() : YAML::Mark::null_mark();
  throw RuleError{std::move(message), mark.line + 1, mark.column + 1};
}

Fields::Fields(const YAML::Node& node, std::string_view what, std::initializer_list<const char*> allowed) : node_(node), what_(what) {
  if (!node.IsMap()) fail(node, "expected a mapping with the keys of " + what_);
  std::vector<std::string> words(allowed.begin(), allowed.end());
  std::set<std::string> seen;
  for (const auto& entry : node) {
    std::string key = entry.first.as<std::string>("");
    if (std::find(words.begin(), words.end(), key) == words.end()) {
      std::string near = nearest(key, words);
      fail(entry.first,
           "unknown key \"" + key + "\" in " + what_ + (near.empty() ? "; known: " + quoted(words) : " (did you mean \"" + near + "\"?)"));
    }
    if (!seen.insert(key).second) fail(entry.first, "key \"" + key + "\" occurs twice in " + what_);
  }
}

YAML::Node Fields::required(const char* key) const {
  if (!has(key)) fail(node_, what_ + " needs the key \"" + key + "\"");
  return node_[key];
}

std::string Fields::text(const char* key, std::string fallback) const {
  YAML::Node n = node_[key];
  if (!n) return fallback;
  if (!n.IsScalar()) fail(n, std::string("\"") + key + "\" must be a string");
  return n.Scalar();
}

bool Fields::flag(const char* key, bool fallback) const {
  YAML::Node n = node_[key];
  if (!n) return fallback;
  try {
    return n.as<bool>();
  } catch (const YAML::Exception&) { fail(n, std::string("\"") + key + "\" must be true or false"); }
}

double Fields::number(const char* key, double fallback) const {
  YAML::Node n = node_[key];
  if (!n) return fallback;
  try {
    return n.as<double>();
  } catch (const YAML::Exception&) { fail(n, std::string("\"") + key + "\" must be a number"); }
}

int Fields::integer(const char* key, int fallback) const {
  YAML::Node n = node_[key];
  if (!n) return fallback;
  try {
    return n.as<int>();
  } catch (const YAML::Exception&) { fail(n, std::string("\"") + key + "\" must be a whole number"); }
}

std::vector<std::string> Fields::list(const char* key) const {
  std::vector<std::string> out;
  YAML::Node n = node_[key];
  if (!n) return out;
  if (n.IsScalar()) return {n.Scalar()};
  if (!n.IsSequence()) fail(n, std::string("\"") + key + "\" must be a string or a list of strings");
  for (const auto& item : n) {
    if (!item.IsScalar()) fail(item, std::string("\"") + key + "\" must hold strings only");
    out.push_back(item.Scalar());
  }
  return out;
}

void Loader::read(std::string_view folder, const std::string& display, std::string_view text) {
  display_ = display;
  YAML::Node root;
  try {
    root = YAML::Load(std::string(text));
  } catch (const YAML::Exception& e) { throw RuleError{e.msg, e.mark.line + 1, e.mark.column + 1}; }
  if (!root || root.IsNull()) return;
  if (!root.IsSequence()) fail(root, "a rules file is a list of rules (\"- op: …\", \"- layer: …\", \"- kind: …\", \"- device: …\")");
  for (const auto& item : root) {
    if (!item.IsMap()) fail(item, "a rule is a mapping");
    if (folder.empty() ? static_cast<bool>(item["op"]) : folder == "ops") op(item);
    else if (folder.empty() ? static_cast<bool>(item["layer"]) : folder == "layers") layer(item);
    else if (folder.empty() ? static_cast<bool>(item["kind"]) : folder == "kinds") kind(item);
    else if (folder.empty() ? static_cast<bool>(item["device"]) : folder == "devices") device(item);
    else fail(item, "a rule starts with one of op, layer, kind, device");
  }
}

void Loader::op(const YAML::Node& node) {
  Fields f(node, "an operation rule",
           {"op",     "in",   "alias", "signature", "rule", "like",   "compute", "operands", "full",     "any_value",
            "linear", "mean", "type",  "outputs",   "why",  "random", "flops",   "inplace",  "gradient", "test"});
  f.required("op");
  OpRule base;
  base.where = display_ + ":" + std::to_string(node.Mark().line + 1);
  base.signature_text = f.text("signature", "input");
  if (auto e = parse_signature(base.signature_text, base.signature); !e.empty()) fail(f.at("signature"), e);
  int ways = f.has("rule") + f.has("like") + f.has("compute");
  if (ways != 1) fail(node, "an operation rule needs exactly one of rule, like, compute");
  if (f.has("rule")) {
    base.has_pattern = true;
    if (auto e = parse_pattern(f.text("rule"), base.pattern); !e.empty()) fail(f.at("rule"), e);
  }
  if (f.has("like")) {
    std::string like = choice(f.at("like"), f.text("like"), {"elementwise", "reduce", "keep"});
    base.like = like == "elementwise" ? Like::Elementwise : like == "reduce" ? Like::Reduce : Like::Keep;
  }
  base.compute = f.text("compute");
  auto parameter = [&](const char* key) {
    std::vector<std::string> names = f.list(key);
    std::vector<std::string> known;
    for (const auto& p : base.signature) known.push_back(p.name);
    for (const auto& n : names)
      if (std::find(known.begin(), known.end(), n) == known.end()) {
        std::string near = nearest(n, known);
        fail(f.at(key), "\"" + n + "\" is not a parameter of the signature" + (near.empty() ? "" : " (did you mean \"" + near + "\"?)"));
      }
    return names;
  };
  base.operands = parameter("operands");
  base.full = parameter("full");
  base.any_value = parameter("any_value");
  if (base.has_pattern && base.operands.empty())
    for (std::size_t i = 0; i < base.pattern.inputs.size() && i < base.signature.size(); ++i)
      base.operands.push_back(base.signature[i].name);
  if (base.has_pattern && base.operands.size() != base.pattern.inputs.size())
    fail(node,
         "the rule has " + std::to_string(base.pattern.inputs.size()) + " operands, the signature or \"operands\" names " +
             std::to_string(base.operands.size()));
  base.linear = f.has("linear") ? choice(f.at("linear"), f.text("linear"), {"linear", "bilinear", "nonlinear"}) : "nonlinear";
  base.mean = f.flag("mean", false);
  if (f.has("type")) base.type = result_type(f.at("type"), f.text("type"));
  base.outputs = f.integer("outputs", 1);
  base.why = f.text("why");
  base.random = f.text("random");
  base.flops = f.text("flops");
  base.inplace = f.flag("inplace", false);
  base.gradient = f.flag("gradient", true);
  base.test = f.list("test");
  std::vector<std::string> prefixes = f.list("in");
  if (prefixes.empty()) prefixes = {"torch", "torch.Tensor"};
  auto expand = [&](const std::string& name, std::vector<std::string>& out) {
    if (name.find('.') != std::string::npos && !f.has("in")) {
      out.push_back(name);
      return;
    }
    for (const auto& p : prefixes) out.push_back(p + "." + name);
  };
  std::vector<std::string> aliases = f.list("alias");
  std::vector<std::string> names = f.list("op");
  if (names.empty()) fail(f.at("op"), "\"op\" names no operation");
  if (!aliases.empty() && names.size() > 1) fail(f.at("alias"), "\"alias\" needs a single \"op\"");
  for (const auto& name : names) {
    auto rule = std::make_unique<OpRule>(base);
    expand(name, rule->names);
    for (const auto& a : aliases) expand(a, rule->names);
    if (rule->inplace) {
      std::vector<std::string> more;
      for (const auto& n : rule->names) more.push_back(n + "_");
      rule->names.insert(rule->names.end(), more.begin(), more.end());
    }
    db_.ops_.push_back(std::move(rule));
  }
}

void Loader::layer(const YAML::Node& node) {
  Fields f(node, "a layer rule", {"layer", "params", "forward", "parallel", "heads", "replace_with", "sizes"});
  auto pairs = [&](const char* key) {
    std::vector<std::pair<std::string, std::string>> out;
    YAML::Node n = f.at(key);
    if (!n) return out;
    if (!n.IsMap()) fail(n, std::string("\"") + key + "\" must be a mapping");
    for (const auto& e : n) {
      if (!e.second.IsScalar()) fail(e.second, std::string("the values of \"") + key + "\" must be strings");
      out.emplace_back(e.first.as<std::string>(), e.second.Scalar());
    }
    return out;
  };
  LayerRule rule;
  f.required("layer");
  rule.where = display_ + ":" + std::to_string(node.Mark().line + 1);
  rule.params = pairs("params");
  rule.forward = f.text("forward");
  if (f.has("parallel")) {
    Fields(f.at("parallel"), "\"parallel\"", {"column", "row", "vocab", "channel"});
    for (auto& [k, v] : pairs("parallel")) rule.parallel[k] = v;
  }
  rule.heads = f.text("heads");
  rule.replace_with = f.text("replace_with");
  for (auto& [k, v] : pairs("sizes")) {
    rule.size_of[k] = v;
    rule.sizes.push_back(v);
  }
  // A factor of `parallel` must be one of a parameter's dimensions.
  for (const auto& [spelling, factor] : rule.parallel) {
    bool found = false;
    for (const auto& p : rule.params) found = found || (" " + p.second + " ").find(" " + factor + " ") != std::string::npos;
    if (!found) fail(f.at("parallel"), "factor \"" + factor + "\" of \"" + spelling + "\" is in no parameter");
  }
  for (const auto& name : f.list("layer")) {
    auto copy = std::make_unique<LayerRule>(rule);
    copy->name = name;
    db_.layers_.push_back(std::move(copy));
  }
}

Condition Loader::condition(const YAML::Node& node) {
  Fields f(node, "a condition",
           {"any", "all", "not", "name", "contracts_with_softmax", "contracts_over_heads", "root", "stage", "repeats", "contains",
            "linears", "activation", "leaf"});
  Condition all;
  for (const auto& entry : node) {
    std::string key = entry.first.as<std::string>();
    Condition c;
    if (key == "any" || key == "all") {
      c.kind = key == "any" ? Condition::Any : Condition::All;
      if (!entry.second.IsSequence()) fail(entry.second, "\"" + key + "\" must be a list of conditions");
      for (const auto& kid : entry.second) c.kids.push_back(condition(kid));
    } else if (key == "not") {
      c.kind = Condition::Not;
      c.kids.push_back(condition(entry.second));
    } else if (key == "name" || key == "repeats" || key == "contains") {
      c.kind = key == "name" ? Condition::Name : key == "repeats" ? Condition::Repeats : Condition::Contains;
      c.text = f.text(key.c_str());
    } else if (key == "linears") {
      c.kind = Condition::Linears;
      c.number = f.integer("linears", 0);
    } else {
      c.kind = key == "contracts_with_softmax" ? Condition::ContractsWithSoftmax
          : key == "contracts_over_heads"      ? Condition::ContractsOverHeads
          : key == "root"                      ? Condition::Root
          : key == "stage"                     ? Condition::Stage
          : key == "activation"                ? Condition::Activation
                                               : Condition::Leaf;
      c.flag = f.flag(key.c_str(), true);
    }
    all.kids.push_back(std::move(c));
  }
  if (all.kids.size() == 1) {
    Condition only = std::move(all.kids[0]);
    return only;
  }
  return all;
}

void Loader::kind(const YAML::Node& node) {
  Fields f(node, "a kind", {"kind", "when"});
  KindRule rule;
  f.required("kind");
  rule.kind = f.text("kind");
  rule.when = condition(f.required("when"));
  db_.kinds_.push_back(std::move(rule));
}

void Loader::device(const YAML::Node& node) {
  Fields f(node, "a device", {"device", "tflops", "memory_gib", "memory_gb_s", "link_gb_s", "link_latency_us"});
  Device d;
  f.required("device");
  d.name = f.text("device");
  for (const char* key : {"tflops", "memory_gib", "memory_gb_s", "link_gb_s"}) {
    f.required(key);
    if (f.number(key, 0) <= 0) fail(f.at(key), std::string("\"") + key + "\" must be positive");
  }
  d.flops = f.number("tflops", 0) * 1e12;
  d.memory = f.number("memory_gib", 0) * 1024 * 1024 * 1024;
  d.memory_bandwidth = f.number("memory_gb_s", 0) * 1e9;
  d.link_bandwidth = f.number("link_gb_s", 0) * 1e9;
  d.link_latency = f.number("link_latency_us", 10) * 1e-6;
  db_.devices_[d.name] = d;
}

void Loader::index() {
  for (const auto& rule : db_.ops_)
    for (const auto& name : rule->names) db_.op_index_[name] = rule.get();
  for (const auto& rule : db_.layers_) db_.layer_index_[rule->name] = rule.get();
}

}  // namespace shardwright::rules
