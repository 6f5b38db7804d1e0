// Builds traces by hand, in the words of the operations that models use.
#pragma once
#include <algorithm>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "model/trace.h"

namespace builder {

using namespace shardwright;
using model::TensorId;
using Shape = std::vector<std::int64_t>;

struct TraceBuilder {
  model::Trace t;
  TraceBuilder() {
    t.modules.emplace_back();
    t.modules[0].id = 0;
    t.modules[0].type = "Net";
  }

  TensorId tensor(Shape shape, model::Origin origin, std::string name = "", model::DType dtype = model::DType::F32) {
    model::Tensor x;
    x.id = static_cast<TensorId>(t.tensors.size());
    x.shape = std::move(shape);
    x.origin = origin;
    x.name = std::move(name);
    x.dtype = dtype;
    x.from_input = origin == model::Origin::Input;
    x.from_parameter = x.requires_grad = origin == model::Origin::Parameter;
    t.tensors.push_back(x);
    return x.id;
  }
  /// Float inputs ask no gradient here, as a batch does in training.
  TensorId input(const std::string& name, Shape s, model::DType d = model::DType::F32) {
    const TensorId x = tensor(std::move(s), model::Origin::Input, name, d);
    model::Binding b;
    b.kind = model::Binding::Tensor;
    b.tensor = x;
    t.inputs.emplace_back(name, b);
    return x;
  }
  TensorId param(const std::string& name, Shape s) { return registered(name, std::move(s), false); }
  TensorId buffer(const std::string& name, Shape s) { return registered(name, std::move(s), true); }
  TensorId constant(Shape s) { return tensor(std::move(s), model::Origin::Constant); }

  const Shape& shape(TensorId x) const { return t.tensors[static_cast<std::size_t>(x)].shape; }

  model::Op& op(const std::string& name, model::Prim prim, model::Linearity lin, const std::vector<TensorId>& ins,
                const std::vector<Shape>& outs) {
    model::Op o;
    o.id = static_cast<model::OpId>(t.ops.size());
    o.name = name;
    o.prim = prim;
    o.linearity = lin;
    o.clock = ++clock;
    bool grad = false, in = false, par = false;
    for (TensorId i : ins) {
      model::Operand operand;
      operand.tensor = i;
      o.inputs.push_back(operand);
      const auto& x = t.tensors[static_cast<std::size_t>(i)];
      grad = grad || x.requires_grad;
      in = in || x.from_input;
      par = par || x.from_parameter;
    }
    for (const Shape& s : outs) {
      const TensorId y = tensor(s, model::Origin::Result);
      auto& x = t.tensors[static_cast<std::size_t>(y)];
      x.producer = o.id;
      x.requires_grad = grad;
      x.from_input = in;
      x.from_parameter = par;
      o.outputs.push_back(y);
    }
    t.ops.push_back(std::move(o));
    return t.ops.back();
  }

  /// "a b, b c -> a c"; "1" is a broadcast dimension; "!" after a letter blocks it.
  TensorId labelled(const std::string& name, const std::string& rule, const std::vector<TensorId>& ins, model::Linearity lin,
                    std::map<std::string, std::int64_t> sizes = {}) {
    std::vector<std::vector<std::string>> in(1), out(1);
    auto* side = &in;
    std::map<std::string, bool> blocked;
    std::string word;
    const auto flush = [&] {
      if (word.empty()) return;
      if (word.back() == '!') {
        word.pop_back();
        blocked[word] = true;
      }
      side->back().push_back(word);
      word.clear();
    };
    for (std::size_t i = 0; i < rule.size(); ++i) {
      if (rule[i] == '-' && rule[i + 1] == '>') {
        flush();
        ++i;
        side = &out;
      } else if (rule[i] == ',') {
        flush();
        side->emplace_back();
      } else if (rule[i] == ' ') {
        flush();
      } else {
        word += rule[i];
      }
    }
    flush();
    for (std::size_t k = 0; k < ins.size(); ++k)
      for (std::size_t d = 0; d < in[k].size(); ++d)
        if (in[k][d] != "1") sizes[in[k][d]] = shape(ins[k])[d];
    std::map<std::string, int> number;
    std::vector<model::Label> labels;
    const auto label = [&](const std::string& w) {
      if (w == "1") return -1;
      const auto [it, added] = number.try_emplace(w, static_cast<int>(labels.size()));
      if (added) {
        model::Label l;
        l.size = sizes.at(w);
        l.blocked = blocked[w];
        if (l.blocked) l.why = name;
        labels.push_back(l);
      }
      return it->second;
    };
    std::vector<std::vector<int>> in_labels, out_labels;
    for (const auto& words : in) {
      in_labels.emplace_back();
      for (const auto& w : words) in_labels.back().push_back(label(w));
    }
    std::vector<Shape> shapes;
    for (const auto& words : out) {
      out_labels.emplace_back();
      shapes.emplace_back();
      for (const auto& w : words) {
        out_labels.back().push_back(label(w));
        shapes.back().push_back(w == "1" ? 1 : sizes.at(w));
      }
    }
    auto& o = op(name, model::Prim::Labelled, lin, ins, shapes);
    o.in = in_labels;
    o.out = out_labels;
    o.labels = labels;
    for (const auto& s : shapes) {
      double f = 2;
      for (const auto& [w, n] : sizes) f *= static_cast<double>(n);
      o.flops += lin == model::Linearity::Bilinear ? f : 0;
      (void)s;
    }
    return o.outputs[0];
  }

  TensorId linear(TensorId x, TensorId w, TensorId b = -1) {
    std::string lead;
    for (std::size_t i = 0; i + 1 < shape(x).size(); ++i) lead += std::string(1, static_cast<char>('r' + i)) + " ";
    std::vector<TensorId> ins{x, w};
    if (b >= 0) ins.push_back(b);
    const TensorId y = labelled("torch.nn.functional.linear", lead + "i, o i" + (b >= 0 ? ", o" : "") + " -> " + lead + "o", ins,
                                model::Linearity::Bilinear);
    if (b >= 0) t.ops.back().inputs[2].is_bias = true;
    return y;
  }
  /// A Linear layer with parameters `name.weight`, `name.bias`.
  TensorId dense(const std::string& name, TensorId x, std::int64_t out, bool bias = true) {
    const TensorId w = param(name + ".weight", {out, shape(x).back()});
    return linear(x, w, bias ? param(name + ".bias", {out}) : -1);
  }
  TensorId reshape(TensorId x, Shape s) {
    return op("torch.Tensor.reshape", model::Prim::Reshape, model::Linearity::Linear, {x}, {std::move(s)}).outputs[0];
  }
  std::vector<TensorId> split(TensorId x, Shape sizes, int dim) {
    if (dim < 0) dim += static_cast<int>(shape(x).size());
    std::vector<Shape> outs;
    for (auto s : sizes) {
      outs.push_back(shape(x));
      outs.back()[static_cast<std::size_t>(dim)] = s;
    }
    auto& o = op("torch.Tensor.split", model::Prim::Split, model::Linearity::Linear, {x}, outs);
    o.dim = dim;
    o.sizes = std::move(sizes);
    return o.outputs;
  }
  std::vector<TensorId> chunk(TensorId x, int n, int dim) {
    const auto d = static_cast<std::size_t>(dim < 0 ? dim + static_cast<int>(shape(x).size()) : dim);
    return split(x, Shape(static_cast<std::size_t>(n), shape(x)[d] / n), dim);
  }
  TensorId concat(std::vector<TensorId> xs, int dim) {
    if (dim < 0) dim += static_cast<int>(shape(xs[0]).size());
    Shape s = shape(xs[0]);
    s[static_cast<std::size_t>(dim)] = 0;
    for (TensorId x : xs) s[static_cast<std::size_t>(dim)] += shape(x)[static_cast<std::size_t>(dim)];
    auto& o = op("torch.cat", model::Prim::Concat, model::Linearity::Linear, xs, {s});
    o.dim = dim;
    return o.outputs[0];
  }
  TensorId permute(TensorId x, const std::vector<int>& order) {
    std::string rule, after;
    for (std::size_t i = 0; i < order.size(); ++i) rule += std::string(1, static_cast<char>('a' + i)) + " ";
    for (int i : order) after += std::string(1, static_cast<char>('a' + i)) + " ";
    return labelled("torch.Tensor.permute", rule + "-> " + after, {x}, model::Linearity::Linear);
  }
  /// Elementwise with broadcasting.
  TensorId elementwise(const std::string& name, std::vector<TensorId> xs, model::Linearity lin) {
    std::size_t rank = 0;
    for (TensorId x : xs) rank = std::max(rank, shape(x).size());
    Shape out(rank, 1);
    for (TensorId x : xs)
      for (std::size_t i = 0; i < shape(x).size(); ++i)
        out[rank - shape(x).size() + i] = std::max(out[rank - shape(x).size() + i], shape(x)[i]);
    std::string rule, res;
    for (std::size_t k = 0; k < xs.size(); ++k) {
      rule += k > 0 ? ", " : "";
      const std::size_t off = rank - shape(xs[k]).size();
      for (std::size_t i = off; i < rank; ++i)
        rule += (shape(xs[k])[i - off] == 1 && out[i] != 1 ? "1" : std::string(1, static_cast<char>('a' + i))) + " ";
    }
    for (std::size_t i = 0; i < rank; ++i) res += std::string(1, static_cast<char>('a' + i)) + " ";
    return labelled(name, rule + "-> " + res, xs, lin);
  }
  TensorId gelu(TensorId x) { return elementwise("torch.nn.functional.gelu", {x}, model::Linearity::Nonlinear); }
  TensorId add(TensorId x, TensorId y) { return elementwise("torch.add", {x, y}, model::Linearity::Linear); }
  TensorId mul(TensorId x, TensorId y) { return elementwise("torch.mul", {x, y}, model::Linearity::Bilinear); }
  TensorId dropout(TensorId x) {
    const TensorId y = elementwise("torch.nn.functional.dropout", {x}, model::Linearity::Linear);
    t.ops.back().random = "dropout";
    return y;
  }
  TensorId softmax(TensorId x) {
    std::string rule;
    for (std::size_t i = 0; i < shape(x).size(); ++i)
      rule += std::string(1, static_cast<char>('a' + i)) + (i + 1 == shape(x).size() ? "! " : " ");
    return labelled("torch.softmax", rule + "-> " + rule, {x}, model::Linearity::Nonlinear);
  }
  TensorId norm(const std::string& name, TensorId x) {
    std::string lead;
    for (std::size_t i = 0; i + 1 < shape(x).size(); ++i) lead += std::string(1, static_cast<char>('r' + i)) + " ";
    const TensorId w = param(name + ".weight", {shape(x).back()});
    return labelled("torch.nn.functional.layer_norm", lead + "c!, c! -> " + lead + "c!", {x, w}, model::Linearity::Nonlinear);
  }
  TensorId matmul(TensorId x, TensorId y) {  // (b h n k) (b h k m)
    return labelled("torch.matmul", "b h n k, b h k m -> b h n m", {x, y}, model::Linearity::Bilinear);
  }
  /// softmax(q kᵀ) v on (b h n d) tensors.
  TensorId attend(TensorId q, TensorId k, TensorId v, TensorId bias = -1) {
    TensorId s = matmul(q, permute(k, {0, 1, 3, 2}));
    if (bias >= 0) s = add(s, bias);
    return matmul(softmax(s), v);
  }
  void output(TensorId x) {
    t.output.kind = model::Binding::Tensor;
    t.output.tensor = x;
  }
  TensorId find(const std::string& name) const {
    for (const auto& x : t.tensors)
      if (x.name == name) return x.id;
    return -1;
  }
  model::OpId last() const { return static_cast<model::OpId>(t.ops.size()) - 1; }

 private:
  TensorId registered(const std::string& name, Shape s, bool is_buffer) {
    const TensorId x = tensor(std::move(s), is_buffer ? model::Origin::Buffer : model::Origin::Parameter, name);
    model::ParamRef r;
    r.attr = name;
    r.tensor = x;
    r.buffer = is_buffer;
    t.modules[0].params.push_back(r);
    return x;
  }
  model::Clock clock = 0;
};

}  // namespace builder
