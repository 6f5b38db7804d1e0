#include "sharding/infer.h"

#include <algorithm>
#include <map>
#include <set>

namespace shardwright::sharding {

using model::Op;
using model::Prim;
using model::Tensor;
using model::TensorId;
using model::Trace;

bool in_custom_function(const Op& op) { return op.note.rfind("custom autograd function", 0) == 0; }

namespace {

class Inferrer {
 public:
  Inferrer(const Trace& trace, const std::set<model::OpId>& gathered) : trace_(trace), gathered_(gathered) {}

  Inference run() {
    inf_.tensors.resize(trace_.tensors.size());
    known_.assign(trace_.tensors.size(), false);
    for (const Tensor& t : trace_.tensors)
      if (t.producer < 0) make_fresh(t.id);
    for (const Op& op : trace_.ops) apply(op);
    for (const Tensor& t : trace_.tensors)
      if (!known_[index(t.id)]) make_fresh(t.id);
    return std::move(inf_);
  }

 private:
  static std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }
  FactorStore& store() { return inf_.store; }
  std::vector<FactorList>& dims(TensorId t) {
    if (!known_[index(t)]) make_fresh(t);
    return inf_.tensors[index(t)];
  }
  const std::vector<std::int64_t>& shape(TensorId t) const { return trace_.tensor(t).shape; }

  void make_fresh(TensorId t) {
    auto& d = inf_.tensors[index(t)];
    d.clear();
    for (std::int64_t n : shape(t)) d.push_back({store().fresh(n)});
    known_[index(t)] = true;
  }
  /// An operation may write into one of its operands (in place): its factors are the operand's then, unified.
  void set(TensorId t, std::vector<FactorList> d, const Reason& why) {
    if (known_[index(t)]) {
      auto& old = inf_.tensors[index(t)];
      for (std::size_t i = 0; i < old.size() && i < d.size(); ++i) store().unify(old[i], d[i], why);
      return;
    }
    inf_.tensors[index(t)] = std::move(d);
    known_[index(t)] = true;
  }

  Reason reason(const Op& op, std::string why, bool unknown = false) const {
    return Reason{std::move(why), op.site != nullptr ? op.site->range : support::Range{}, unknown};
  }
  static std::string short_of(const Op& op) {
    const auto dot = op.name.rfind('.');
    if (op.name.compare(dot + 1, std::string::npos, "__getitem__") == 0) return "a slice";
    return dot == std::string::npos ? op.name : op.name.substr(dot + 1);
  }

  /// The rules' one word for why an operation needs a dimension whole, so that a reader sees what happens to it.
  static std::string sentence(const Op& op, const std::string& why) {
    static const std::map<std::string, std::string> said{{"norm", "a norm is computed over it"},
                                                         {"softmax", "a softmax is computed over it"},
                                                         {"slice", "a slice takes part of it"},
                                                         {"index", "an index picks from it"},
                                                         {"convolution", "a convolution runs along it"}};
    const auto at = said.find(why);
    if (at != said.end()) return at->second;
    return why.empty() ? short_of(op) + " needs it whole" : why;
  }

  void apply(const Op& op) {
    bool ok = is_complete(op);
    if (ok) {
      switch (op.prim) {
        case Prim::Labelled: ok = labelled(op); break;
        case Prim::Reshape: ok = reshape(op); break;
        case Prim::Split: ok = split(op); break;
        case Prim::Concat: ok = concat(op); break;
        case Prim::Create:
          for (TensorId t : op.outputs) dims(t);
          break;
        case Prim::Opaque: ok = false; break;
      }
    }
    if (!ok) opaque(op);
  }
  static bool is_complete(const Op& op) {
    return !op.outputs.empty() && std::all_of(op.inputs.begin(), op.inputs.end(), [](const model::Operand& o) { return o.tensor >= 0; }) &&
        std::all_of(op.outputs.begin(), op.outputs.end(), [](TensorId t) { return t >= 0; });
  }

  /// Not understood: everything it touches must be whole.
  void opaque(const Op& op) {
    const Reason why = reason(op, op.note.empty() ? op.name + " is not understood" : op.name + ": " + op.note, true);
    for (const auto& in : op.inputs) {
      if (in.tensor < 0) continue;
      for (const FactorList& d : dims(in.tensor)) store().block(d, why);
    }
    for (TensorId t : op.outputs) {
      if (t < 0) continue;
      for (const FactorList& d : dims(t)) store().block(d, why);
    }
  }

  /// Dimensions by label: the same label is the same axis in every operand and result.
  bool labelled(const Op& op) {
    if (op.in.size() != op.inputs.size() || op.out.size() != op.outputs.size()) return false;
    const std::size_t n = op.labels.size();
    const auto fits = [&](TensorId t, const std::vector<int>& labels) {
      if (labels.size() != shape(t).size()) return false;
      for (std::size_t i = 0; i < labels.size(); ++i) {
        if (labels[i] < 0) continue;
        if (static_cast<std::size_t>(labels[i]) >= n) return false;
        const std::int64_t have = shape(t)[i];
        if (have != op.labels[index(labels[i])].size && have != 1) return false;
      }
      return true;
    };
    for (std::size_t k = 0; k < op.in.size(); ++k)
      if (!fits(op.inputs[k].tensor, op.in[k])) return false;
    for (std::size_t k = 0; k < op.out.size(); ++k)
      if (!fits(op.outputs[k], op.out[k])) return false;

    std::vector<FactorList> by_label(n);
    std::vector<char> bound(n, 0), in_output(n, 0), in_input(n, 0);
    const Reason same = reason(op, short_of(op));
    for (std::size_t k = 0; k < op.in.size(); ++k) {
      for (std::size_t i = 0; i < op.in[k].size(); ++i) {
        const int l = op.in[k][i];
        if (l < 0) continue;
        const FactorList d = dims(op.inputs[k].tensor)[i];
        if (shape(op.inputs[k].tensor)[i] != op.labels[index(l)].size) continue;  // size 1, broadcast
        in_input[index(l)] = 1;
        if (bound[index(l)]) {
          store().unify(by_label[index(l)], d, same);
        } else {
          by_label[index(l)] = d;
          bound[index(l)] = 1;
        }
      }
    }
    std::vector<std::vector<FactorList>> results;
    for (std::size_t k = 0; k < op.out.size(); ++k) {
      std::vector<FactorList> r;
      for (std::size_t i = 0; i < op.out[k].size(); ++i) {
        const int l = op.out[k][i];
        const std::int64_t have = shape(op.outputs[k])[i];
        if (l < 0 || have != op.labels[index(l)].size) {
          r.push_back({store().fresh(have)});
          continue;
        }
        in_output[index(l)] = 1;
        if (!bound[index(l)]) {
          by_label[index(l)] = {store().fresh(have)};
          bound[index(l)] = 1;
        }
        const bool joins = gathered_.count(op.id) > 0 && from_weights(op, l);
        r.push_back(joins ? FactorList{store().fresh(have)} : by_label[index(l)]);
      }
      results.push_back(std::move(r));
    }
    FactorList summed;
    for (std::size_t l = 0; l < n; ++l) {
      if (!bound[l]) continue;
      const bool contracted = in_input[l] && !in_output[l];
      if (contracted && is_lookup(op) && static_cast<int>(l) == op.in[1][0]) {
        summed.insert(summed.end(), by_label[l].begin(), by_label[l].end());
      } else if (op.labels[l].blocked) {
        store().block(by_label[l], reason(op, sentence(op, op.labels[l].why)));
      } else if (contracted && op.linearity == model::Linearity::Nonlinear) {
        store().block(by_label[l], reason(op, short_of(op) + " reduces it and is not a sum"));
      } else if (contracted && in_custom_function(op)) {
        store().block(by_label[l], reason(op, op.note + " reduces it, and its backward is written by hand", true));
      } else if (contracted) {
        summed.insert(summed.end(), by_label[l].begin(), by_label[l].end());
      }
    }
    for (std::size_t k = 0; k < op.outputs.size(); ++k) set(op.outputs[k], std::move(results[k]), same);
    if (!summed.empty()) inf_.contractions.push_back({op.id, std::move(summed)});
    return true;
  }

  /// Does every operand with this label come from parameters alone?
  bool from_weights(const Op& op, int label) const {
    for (std::size_t k = 0; k < op.in.size(); ++k)
      if (std::count(op.in[k].begin(), op.in[k].end(), label) > 0 && trace_.tensor(op.inputs[k].tensor).from_input) return false;
    return true;
  }

  bool reshape(const Op& op) {
    if (op.inputs.size() != 1 || op.outputs.size() != 1) return false;
    const TensorId in = op.inputs[0].tensor, out = op.outputs[0];
    if (model::numel(trace_.tensor(in)) != model::numel(trace_.tensor(out))) return false;
    if (model::numel(trace_.tensor(in)) == 0) {
      // Nothing to align by: the leading dimensions that did not change are the same, the others new.
      std::vector<FactorList> r;
      bool same = true;
      for (std::size_t i = 0; i < shape(out).size(); ++i) {
        same = same && i < shape(in).size() && shape(in)[i] == shape(out)[i];
        if (same) r.push_back(dims(in)[i]);
        else r.push_back({store().fresh(shape(out)[i])});
      }
      set(out, std::move(r), reason(op, short_of(op)));
      return true;
    }
    FactorList flat;
    for (const FactorList& d : dims(in)) flat.insert(flat.end(), d.begin(), d.end());
    std::vector<FactorList> r;
    const Reason why = reason(op, short_of(op) + " cuts across it");
    if (!store().regroup(flat, shape(out), r, why)) {
      for (std::size_t i = r.size(); i < shape(out).size(); ++i) {
        r.push_back({store().fresh(shape(out)[i])});
        store().block(r.back(), why);
      }
    }
    set(out, std::move(r), why);
    return true;
  }

  bool split(const Op& op) {
    if (op.inputs.size() != 1 || op.sizes.size() != op.outputs.size()) return false;
    const TensorId in = op.inputs[0].tensor;
    const auto rank = static_cast<int>(shape(in).size());
    if (op.dim < 0 || op.dim >= rank) return false;
    std::int64_t total = 0;
    for (std::int64_t s : op.sizes) total += s;
    if (total != shape(in)[index(op.dim)]) return false;
    const Reason why = reason(op, short_of(op) + " takes parts of it");
    const std::vector<FactorList> pieces = cut(dims(in)[index(op.dim)], op.sizes, why);
    for (std::size_t j = 0; j < op.outputs.size(); ++j) {
      std::vector<FactorList> r = dims(in);
      r[index(op.dim)] = pieces[j];
      set(op.outputs[j], std::move(r), why);
    }
    return true;
  }

  /// The pieces of a dimension cut at `sizes`.
  std::vector<FactorList> cut(const FactorList& d, const std::vector<std::int64_t>& sizes, const Reason& why) {
    const std::size_t n = sizes.size();
    if (n == 1) return {d};
    if (std::count(sizes.begin(), sizes.end(), 0) > 0) {
      // Empty pieces (the rest of a slice that took everything) cut nothing.
      std::vector<std::int64_t> real;
      for (std::int64_t s : sizes)
        if (s != 0) real.push_back(s);
      const std::vector<FactorList> some = real.empty() ? std::vector<FactorList>{} : cut(d, real, why);
      std::vector<FactorList> parts;
      std::size_t next = 0;
      for (std::int64_t s : sizes) parts.push_back(s != 0 ? some[next++] : FactorList{store().fresh(0)});
      return parts;
    }
    if (std::set<std::int64_t>(sizes.begin(), sizes.end()).size() == 1) {
      const FactorId how_many = store().fresh(static_cast<std::int64_t>(n)), inner = store().fresh(sizes[0]);
      store().unify({how_many, inner}, d, why);
      store().block({how_many}, why);
      return std::vector<FactorList>(n, FactorList{inner});
    }
    const FactorList leaves = store().leaves(d);
    if (leaves.size() == 1) {
      if (store().segments(leaves[0]).empty()) {
        std::vector<FactorList> parts;
        for (std::int64_t s : sizes) parts.push_back({store().fresh(s)});
        store().concatenate(leaves[0], parts);
        return parts;
      }
      std::vector<FactorList> grouped;
      if (group(store().segments(leaves[0]), sizes, grouped)) return grouped;
    } else if (!leaves.empty()) {
      // Cut between steps of the outermost factor: the inner ones stay as they are.
      const std::int64_t inner = store().product(leaves) / store().size(leaves[0]);
      if (store().segments(leaves[0]).empty() && std::all_of(sizes.begin(), sizes.end(), [&](std::int64_t s) { return s % inner == 0; })) {
        store().block({leaves[0]}, why);
        std::vector<FactorList> parts;
        for (std::int64_t s : sizes) {
          FactorList p{store().fresh(s / inner)};
          store().block(p, why);
          p.insert(p.end(), leaves.begin() + 1, leaves.end());
          parts.push_back(std::move(p));
        }
        return parts;
      }
    }
    store().block(d, why);
    std::vector<FactorList> parts;
    for (std::int64_t s : sizes) {
      parts.push_back({store().fresh(s)});
      store().block(parts.back(), why);
    }
    return parts;
  }

  /// Segments gathered into pieces of the given sizes; false where a piece would end inside a segment.
  bool group(const std::vector<FactorList>& segments, const std::vector<std::int64_t>& sizes, std::vector<FactorList>& out) {
    const std::vector<FactorList> all = segments;  // a copy: fresh() may move the store's memory
    std::size_t i = 0;
    for (std::int64_t s : sizes) {
      std::vector<FactorList> parts;
      std::int64_t have = 0;
      while (have < s && i < all.size()) {
        have += store().product(all[i]);
        parts.push_back(all[i++]);
      }
      if (have != s) return false;
      if (parts.size() == 1) {
        out.push_back(parts[0]);
      } else {
        const FactorId joined = store().fresh(s);
        store().concatenate(joined, parts);
        out.push_back({joined});
      }
    }
    return i == all.size();
  }

  bool concat(const Op& op) {
    if (op.outputs.size() != 1 || op.inputs.empty()) return false;
    const TensorId out = op.outputs[0];
    const std::size_t rank = shape(out).size();
    if (op.dim < 0 || index(op.dim) >= rank) return false;
    std::int64_t total = 0;
    for (const auto& in : op.inputs) {
      if (shape(in.tensor).size() != rank) return false;
      for (std::size_t i = 0; i < rank; ++i)
        if (i != index(op.dim) && shape(in.tensor)[i] != shape(out)[i]) return false;
      total += shape(in.tensor)[index(op.dim)];
    }
    if (total != shape(out)[index(op.dim)]) return false;
    const Reason why = reason(op, short_of(op) + " joins parts of it");
    std::vector<FactorList> r = dims(op.inputs[0].tensor);
    std::set<std::int64_t> sizes;
    std::vector<FactorList> parts;
    for (const auto& in : op.inputs) {
      for (std::size_t i = 0; i < rank; ++i)
        if (i != index(op.dim)) store().unify(r[i], dims(in.tensor)[i], why);
      if (shape(in.tensor)[index(op.dim)] == 0) continue;
      sizes.insert(shape(in.tensor)[index(op.dim)]);
      parts.push_back(dims(in.tensor)[index(op.dim)]);
    }
    auto& joined = r[index(op.dim)];
    if (parts.empty()) {
      joined = {store().fresh(0)};
    } else if (parts.size() == 1) {
      joined = parts[0];
    } else if (sizes.size() == 1) {
      const FactorId how_many = store().fresh(static_cast<std::int64_t>(parts.size())), inner = store().fresh(*sizes.begin());
      store().block({how_many}, why);
      for (const FactorList& p : parts) store().unify({inner}, p, why);
      joined = {how_many, inner};
    } else {
      const FactorId whole = store().fresh(total);
      store().concatenate(whole, parts);
      joined = {whole};
    }
    set(out, std::move(r), why);
    return true;
  }

  const Trace& trace_;
  const std::set<model::OpId>& gathered_;
  Inference inf_;
  std::vector<bool> known_;
};

}  // namespace

Inference infer(const Trace& trace, const std::set<model::OpId>& gathered) { return Inferrer(trace, gathered).run(); }

bool is_lookup(const Op& op) {
  return op.prim == Prim::Labelled && op.linearity != model::Linearity::Nonlinear && op.inputs.size() == 2 && op.in.size() == 2 &&
      op.in[1].size() == 2 && op.in[1][0] >= 0 && op.labels[static_cast<std::size_t>(op.in[1][0])].why == "vocabulary";
}

}  // namespace shardwright::sharding
