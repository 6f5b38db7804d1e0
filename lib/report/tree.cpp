#include "report/tree.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "pipeline/pipeline.h"

namespace shardwright::report {
namespace {

using model::ModuleId;
using model::Prim;
using model::TensorId;
using model::Trace;

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }
std::string last_part(const std::string& dotted) { return dotted.substr(dotted.find_last_of('.') + 1); }

bool contracts(const model::Op& op) {
  if (op.prim != Prim::Labelled) return false;
  for (std::size_t l = 0; l < op.labels.size(); ++l) {
    if (op.labels[l].blocked) continue;
    int in = 0;
    bool out = false;
    for (const auto& d : op.in) in += std::find(d.begin(), d.end(), static_cast<int>(l)) != d.end();
    for (const auto& d : op.out) out |= std::find(d.begin(), d.end(), static_cast<int>(l)) != d.end();
    if (in >= 2 && !out) return true;
  }
  return false;
}

/// A product of two computed tensors that keeps at least two dimensions of both: attention scores by batch and head.
bool over_heads(const Trace& t, const model::Op& op) {
  if (!contracts(op) || op.in.size() < 2) return false;
  for (std::size_t i = 0; i < 2 && i < op.inputs.size(); ++i)
    if (op.inputs[i].tensor < 0 || t.tensor(op.inputs[i].tensor).origin != model::Origin::Result) return false;
  int kept = 0;
  for (std::size_t l = 0; l < op.labels.size(); ++l) {
    bool all = true;
    for (std::size_t i = 0; i < 2; ++i) all &= std::find(op.in[i].begin(), op.in[i].end(), static_cast<int>(l)) != op.in[i].end();
    bool out = false;
    for (const auto& d : op.out) out |= std::find(d.begin(), d.end(), static_cast<int>(l)) != d.end();
    kept += all && out;
  }
  return kept >= 2;
}

bool activates(const model::Op& op) {
  if (op.prim != Prim::Labelled || op.linearity != model::Linearity::Nonlinear || op.in.size() != 1 || op.out.size() != 1 ||
      op.in[0] != op.out[0])
    return false;
  return std::none_of(op.labels.begin(), op.labels.end(), [](const model::Label& l) { return l.blocked; });
}

class Builder {
 public:
  Builder(const Trace& t, const support::SourceManager& sm, const TreeOptions& o) : t_(t), sm_(sm), o_(o) {
    facts_.resize(t.modules.size());
    for (const model::Op& op : t.ops) {
      if (op.clock < t.forward_begin) continue;
      for (ModuleId m = op.module; m >= 0; m = t.module(m).parent) {
        Facts& f = facts_[at(m)];
        f.flops += op.flops;
        f.activation |= activates(op);
        f.heads |= over_heads(t, op);
        // A softmax between two contractions: 0 nothing yet, 1 a contraction, 2 then a softmax, 3 then a contraction.
        if (op.name.find("scaled_dot_product_attention") != std::string::npos) f.softmax = 3;
        if (op.name.find("softmax") != std::string::npos && f.softmax == 1) f.softmax = 2;
        else if (contracts(op) && f.softmax != 1 && f.softmax < 3) ++f.softmax;
      }
    }
    for (const model::ModuleCall& c : t.calls) {
      if (c.begin < t.forward_begin) continue;
      ++facts_[at(c.module)].calls;
      for (ModuleId m = c.module; m >= 0; m = t.module(m).parent) facts_[at(m)].first = std::min(facts_[at(m)].first, c.begin);
    }
    if (o.partition)
      for (std::size_t k = 0; k < o.partition->stages.size(); ++k)
        for (ModuleId m : o.partition->stages[k].modules) facts_[at(m)].stages.push_back(static_cast<int>(k));
  }

  Node root() {
    std::set<TensorId> parameters, buffers;
    Node n = build(0, parameters, buffers, 0);
    n.name = last_part(n.type);
    return n;
  }

 private:
  struct Facts {
    double flops = 0;
    bool activation = false, heads = false;
    int softmax = 0, calls = 0;
    model::Clock first = std::numeric_limits<model::Clock>::max();
    std::vector<int> stages;
  };

  std::int64_t elements(const std::set<TensorId>& s) const {
    std::int64_t n = 0;
    for (TensorId t : s) n += model::numel(t_.tensor(t));
    return n;
  }

  Node build(ModuleId id, std::set<TensorId>& parameters, std::set<TensorId>& buffers, int depth) {
    const model::Module& m = t_.module(id);
    Node n;
    n.module = id;
    n.name = m.attr;
    n.fqn = m.fqn;
    n.type = m.type;
    if (!m.builtin && m.class_def && m.class_def->range.valid()) {
      n.file = sm_.file(m.class_def->range.file).path;
      n.line = static_cast<int>(sm_.position(m.class_def->def_range.valid() ? m.class_def->def_range.file : m.class_def->range.file,
                                             m.class_def->def_range.valid() ? m.class_def->def_range.begin : m.class_def->range.begin)
                                    .line);
    }
    for (const model::ParamRef& p : m.params) {
      if (p.tensor < 0) continue;
      if (!p.buffer) n.own_parameters += model::numel(t_.tensor(p.tensor));
      (p.buffer ? buffers : parameters).insert(p.tensor);
    }
    const Facts& f = facts_[at(id)];
    n.flops = f.flops;
    n.calls = f.calls;
    n.stages = f.stages;
    if (o_.placement) n.role = plan::role_of(t_, *o_.placement, id);

    std::vector<std::pair<std::string, ModuleId>> kids;
    for (const auto& kid : m.children)
      if (kid.second >= 0) kids.push_back(kid);
    std::stable_sort(kids.begin(), kids.end(),
                     [&](const auto& a, const auto& b) { return facts_[at(a.second)].first < facts_[at(b.second)].first; });
    for (const auto& [name, child] : kids) {
      const model::Module& c = t_.module(child);
      if (depth > 200) break;
      std::set<TensorId> p, b;
      Node k = build(child, p, b, depth + 1);
      k.name = name;
      if (c.parent != id || c.attr != name) {  // registered elsewhere first
        k.shared_with = c.fqn.empty() ? c.type : c.fqn;
        k.fqn = m.fqn.empty() ? name : m.fqn + "." + name;
        k.children.clear();
      }
      parameters.insert(p.begin(), p.end());
      buffers.insert(b.begin(), b.end());
      n.children.push_back(std::move(k));
    }
    n.parameters = elements(parameters);
    n.buffers = elements(buffers);
    if (o_.rules) n.kind = kind(n, f);
    return n;
  }

  /// Children as a reader counts them: those of lists and sequences are the module's own.
  static void visible(const Node& n, std::vector<const Node*>& out, bool& listed, const std::string& of) {
    for (const Node& c : n.children) {
      if (c.kind == "container") {
        visible(c, out, listed, of);
        for (const Node& g : c.children) listed |= !of.empty() && g.kind == of;
      } else {
        out.push_back(&c);
      }
    }
  }

  static bool holds(const Node& n, const std::string& kind) {
    return std::any_of(n.children.begin(), n.children.end(), [&](const Node& c) { return c.kind == kind || holds(c, kind); });
  }

  std::string kind(const Node& n, const Facts& f) const {
    rules::KindFacts k;
    k.type = n.type;
    k.has_children = !n.children.empty();
    // A list of modules is a list, whatever is in it.
    if (n.module != 0 && t_.module(n.module).builtin)
      if (std::string plain = o_.rules->kind(k); plain == "container") return plain;
    k.is_root = n.module == 0;
    k.contracts_with_softmax = f.softmax >= 3 && !holds(n, "attention");  // the innermost module that does it all
    k.contracts_over_heads = f.heads && !holds(n, "attention");
    k.has_activation = f.activation;
    std::vector<const Node*> seen;
    bool listed = false;
    visible(n, seen, listed, "");
    std::map<std::string, int> count;
    for (const Node* c : seen) {
      k.linears += c->kind == "linear";
      if (!c->kind.empty() && std::find(k.contains.begin(), k.contains.end(), c->kind) == k.contains.end()) k.contains.push_back(c->kind);
      ++count[c->kind];
    }
    // What is repeated: blocks before parts of blocks. A list of one is a repetition all the same: its length is an argument.
    for (const char* name : {"fuser", "transformer", "attention", "mlp"}) {
      if (!k.repeats.empty() || !count.count(name)) continue;
      std::vector<const Node*> unused;
      bool in_list = false;
      visible(n, unused, in_list, name);
      if (count[name] >= 2 || in_list) k.repeats = name;
    }
    if (k.repeats.empty())
      for (const auto& [name, c] : count)
        if (c >= 2 && !name.empty() && name != "linear" && name != "norm" && k.repeats.empty()) k.repeats = name;
    std::string found = o_.rules->kind(k);
    // A wrapper (a factory's shell around the real thing) is what it wraps.
    if (found.empty() && seen.size() == 1) found = seen[0]->kind;
    return found;
  }

  const Trace& t_;
  const support::SourceManager& sm_;
  const TreeOptions& o_;
  std::vector<Facts> facts_;
};

bool alike(const Node& a, const Node& b) {
  if (a.type != b.type || a.own_parameters != b.own_parameters || a.parameters != b.parameters || a.flops != b.flops || a.kind != b.kind ||
      a.role != b.role || a.calls != b.calls || a.shared_with != b.shared_with || a.stages != b.stages ||
      a.children.size() != b.children.size())
    return false;
  for (std::size_t i = 0; i < a.children.size(); ++i)
    if (a.children[i].name != b.children[i].name || !alike(a.children[i], b.children[i])) return false;
  return true;
}

bool number(const std::string& s, int& v) {
  if (s.empty() || s.size() > 8 || s.find_first_not_of("0123456789") != std::string::npos) return false;
  v = std::stoi(s);
  return true;
}

}  // namespace

Node tree(const Trace& t, const support::SourceManager& sm, const TreeOptions& o) {
  if (t.modules.empty()) return {};
  return Builder(t, sm, o).root();
}

Folded fold(const Node& n) {
  Folded out{&n, n.name, 1, {}};
  std::vector<char> done(n.children.size(), 0);
  for (std::size_t i = 0; i < n.children.size(); ++i) {
    if (done[i]) continue;
    // All numbered siblings like this one, also when they alternate with others (shifted and plain windows).
    std::vector<std::pair<int, int>> runs;
    int count = 1, v = 0;
    if (number(n.children[i].name, v)) {
      runs.push_back({v, v});
      for (std::size_t j = i + 1; j < n.children.size(); ++j) {
        if (done[j] || !number(n.children[j].name, v) || !alike(n.children[i], n.children[j])) continue;
        done[j] = 1;
        ++count;
        if (v == runs.back().second + 1) runs.back().second = v;
        else runs.push_back({v, v});
      }
    }
    Folded f = fold(n.children[i]);
    f.count = count;
    if (count > 1) {
      f.label.clear();
      for (std::size_t r = 0; r < runs.size(); ++r) {
        if (r == 4 && runs.size() > 5) {  // a long alternation: its beginning and its end
          f.label += ", …";
          r = runs.size() - 1;
        }
        f.label +=
            (r ? ", " : "") + std::to_string(runs[r].first) + (runs[r].second > runs[r].first ? "–" + std::to_string(runs[r].second) : "");
      }
    }
    out.children.push_back(std::move(f));
  }
  return out;
}

}  // namespace shardwright::report
