// Products: matmul in all its ranks, einsum, attention, embedding.
#include <algorithm>
#include <map>

#include "eval/torch/compute.h"

namespace shardwright::eval::torch {
namespace {

using model::Linearity;
using model::Prim;

/// "2x3", as torch writes the operands of a product.
std::string product_text(const Shape& s) {
  std::string t;
  for (auto d : s) t += (t.empty() ? "" : "x") + std::to_string(d);
  return t;
}

/// Labels of the broadcast leading dimensions of several operands.
struct Batch {
  Shape shape;
  std::vector<char> ones;
  std::vector<int> labels;
  Batch(Call& c, Build& b, const std::vector<std::pair<Shape, std::vector<char>>>& leads) {
    std::vector<Shape> shapes;
    for (const auto& l : leads) shapes.push_back(l.first);
    shape = c.d.broadcast(shapes, c.info.call);
    ones.assign(shape.size(), 1);
    for (const auto& [s, o] : leads)
      for (std::size_t i = 0; i < s.size(); ++i)
        if (!o[i]) ones[shape.size() - s.size() + i] = 0;
    for (std::size_t i = 0; i < shape.size(); ++i) labels.push_back(shape[i] == 1 && ones[i] ? -1 : b.label(shape[i]));
  }
  std::vector<int> of(const Shape& s, const std::vector<char>& o) const {
    std::vector<int> out;
    for (std::size_t i = 0; i < s.size(); ++i) {
      std::size_t j = shape.size() - s.size() + i;
      out.push_back(s[i] == 1 && (shape[j] != 1 || o[i]) ? -1 : labels[j]);
    }
    return out;
  }
};

Value matmul_of(Call& c, const std::string& first, const std::string& second) {
  TensorId x = c.tensor(first), y = c.tensor(second);
  const model::Tensor a = c.d.tensor(x), z = c.d.tensor(y);
  if (a.shape.empty() || z.shape.empty())
    c.in.raise("RuntimeError",
               "both arguments to matmul need to be at least 1D, but they are " + std::to_string(a.shape.size()) + "D and " +
                   std::to_string(z.shape.size()) + "D",
               c.info.call);
  bool row = a.shape.size() == 1, column = z.shape.size() == 1;
  std::int64_t k = a.shape.back(), k2 = column ? z.shape[0] : z.shape[z.shape.size() - 2];
  if (k != k2)
    c.in.raise("RuntimeError",
               "mat1 and mat2 shapes cannot be multiplied (" + product_text(a.shape) + " and " + product_text(z.shape) + ")", c.info.call);
  Build b = c.build(Prim::Labelled);
  auto lead = [](const model::Tensor& t, std::size_t n) {
    return std::make_pair(Shape(t.shape.begin(), t.shape.end() - static_cast<std::ptrdiff_t>(n)),
                          std::vector<char>(t.literal_one.begin(), t.literal_one.end() - static_cast<std::ptrdiff_t>(n)));
  };
  auto la = lead(a, row ? 1 : 2), lz = lead(z, column ? 1 : 2);
  Batch batch(c, b, {la, lz});
  int lk = b.label(k);
  std::vector<int> ia = batch.of(la.first, la.second), iz = batch.of(lz.first, lz.second), out = batch.labels;
  Out o{batch.shape, c.d.promote({c.arg(first), c.arg(second)}), batch.ones};
  if (!row) {
    const std::size_t r = a.shape.size() - 2;
    int m = a.shape[r] == 1 && a.literal_one[r] ? -1 : b.label(a.shape[r]);
    ia.push_back(m);
    out.push_back(m);
    o.shape.push_back(a.shape[r]);
    o.ones.push_back(a.literal_one[r]);
  }
  ia.push_back(lk);
  iz.push_back(lk);
  if (!column) {
    const std::size_t r = z.shape.size() - 1;
    int n = z.shape[r] == 1 && z.literal_one[r] ? -1 : b.label(z.shape[r]);
    iz.push_back(n);
    out.push_back(n);
    o.shape.push_back(z.shape[r]);
    o.ones.push_back(z.literal_one[r]);
  }
  b.operand(x, first, c.expr(first));
  b.operand(y, second, c.expr(second));
  b.op.in = {ia, iz};
  b.op.out = {out};
  b.op.flops = 2 * count_of(o.shape) * static_cast<double>(k);
  return c.d.wrap(b.done({o})[0]);
}

Value matmul(Call& c) { return matmul_of(c, "input", "other"); }

Value baddbmm(Call& c) {
  // beta * input + alpha * batch1 @ batch2: the first operand is an ordinary one (it has a batch), so two operations.
  Value product = matmul_of(c, "batch1", "batch2");
  if (!product.is(Kind::Tensor) || (c.d.number(c.arg("beta")) && c.real("beta", 1) == 0)) return product;
  return c.d.elementwise(c, "torch.add", {c.arg("input"), product}, {"input", "other"}, {c.expr("input"), nullptr}, Linearity::Linear,
                         std::nullopt);
}

Value einsum(Call& c) {
  Domain& d = c.d;
  Value eq = c.arg("equation");
  if (!eq.is(Kind::Str)) return c.in.unknown("einsum with an equation that is not known (or as lists of dimensions)", c.info.call);
  std::vector<Value> operands = c.args.rest;
  std::vector<const program::Expr*> exprs = c.args.rest_exprs;
  exprs.resize(operands.size(), nullptr);
  if (operands.size() == 1 && (operands[0].is(Kind::Tuple) || operands[0].is(Kind::List))) {
    const program::Expr* e = exprs[0];
    operands = std::vector<Value>(operands[0].as<SeqObj>()->items);
    exprs = element_exprs(e, operands.size());
  }
  for (const Value& v : operands) {
    if (v.is_unknown()) return v;
    if (!v.is(Kind::Tensor)) c.in.raise("TypeError", "einsum(): operands must be tensors", c.info.call);
  }
  std::string text = eq.str();
  text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
  std::string right;
  bool explicit_out = false;
  if (std::size_t arrow = text.find("->"); arrow != std::string::npos) {
    right = text.substr(arrow + 2);
    text = text.substr(0, arrow);
    explicit_out = true;
  }
  std::vector<std::string> parts(1);
  for (char ch : text) {
    if (ch == ',') parts.emplace_back();
    else parts.back() += ch;
  }
  if (parts.size() != operands.size())
    c.in.raise("ValueError",
               "einsum(): the number of operands (" + std::to_string(operands.size()) + ") does not match the equation's " +
                   std::to_string(parts.size()),
               c.info.call);
  // "..." stands for dimensions broadcast from the right.
  std::size_t ellipsis = 0;
  std::vector<std::size_t> widths;
  for (std::size_t k = 0; k < parts.size(); ++k) {
    std::size_t rank = d.shape(d.id(operands[k])).size(), letters = 0;
    bool dots = parts[k].find("...") != std::string::npos;
    for (char ch : parts[k]) letters += ch != '.';
    if (dots ? rank < letters : rank != letters)
      c.in.raise("RuntimeError",
                 "einsum(): the number of subscripts in the equation (" + std::to_string(letters) +
                     ") does not match the number of dimensions (" + std::to_string(rank) + ") for operand " + std::to_string(k),
                 c.info.call);
    widths.push_back(dots ? rank - letters : 0);
    ellipsis = std::max(ellipsis, widths.back());
  }
  Build b = c.build(Prim::Labelled);
  std::map<std::string, int> label;
  auto at = [&](const std::string& key, std::int64_t size) {
    auto [it, fresh] = label.emplace(key, -1);
    if (fresh) it->second = b.label(size);
    model::Label& l = b.op.labels[static_cast<std::size_t>(it->second)];
    if (l.size == 1) l.size = size;
    if (size != 1 && l.size != size)
      c.in.raise("RuntimeError",
                 "einsum(): subscript " + key + " has size " + std::to_string(size) +
                     " which does not broadcast with previously seen size " + std::to_string(l.size),
                 c.info.call);
    return it->second;
  };
  std::vector<std::vector<std::string>> keys;
  std::map<char, int> uses;
  for (std::size_t k = 0; k < parts.size(); ++k) {
    std::vector<std::string> ks;
    for (std::size_t i = 0; i < parts[k].size(); ++i) {
      if (parts[k][i] == '.') {
        for (std::size_t w = 0; w < widths[k]; ++w) ks.push_back("." + std::to_string(ellipsis - widths[k] + w));
        i += 2;
        continue;
      }
      ++uses[parts[k][i]];
      ks.emplace_back(1, parts[k][i]);
    }
    const Shape s = d.shape(d.id(operands[k]));
    for (std::size_t i = 0; i < ks.size(); ++i) at(ks[i], s[i]);
    keys.push_back(std::move(ks));
  }
  for (std::size_t k = 0; k < parts.size(); ++k) {
    const Shape s = d.shape(d.id(operands[k]));
    std::vector<int> labels;
    std::vector<std::string> seen;
    for (std::size_t i = 0; i < keys[k].size(); ++i) {
      int l = label[keys[k][i]];
      bool again = std::find(seen.begin(), seen.end(), keys[k][i]) != seen.end();
      seen.push_back(keys[k][i]);
      if (again) {  // a diagonal
        b.op.labels[static_cast<std::size_t>(l)].blocked = true;
        b.op.labels[static_cast<std::size_t>(l)].why = "einsum diagonal";
      }
      labels.push_back(s[i] == 1 && b.op.labels[static_cast<std::size_t>(l)].size != 1 ? -1 : l);
    }
    b.op.in.push_back(std::move(labels));
    b.operand(d.id(operands[k]), std::to_string(k), exprs[k]);
  }
  std::vector<std::string> out_keys;
  if (explicit_out) {
    for (std::size_t i = 0; i < right.size(); ++i) {
      if (right[i] == '.') {
        for (std::size_t w = 0; w < ellipsis; ++w) out_keys.push_back("." + std::to_string(w));
        i += 2;
      } else {
        out_keys.emplace_back(1, right[i]);
      }
    }
  } else {
    for (std::size_t w = 0; w < ellipsis; ++w) out_keys.push_back("." + std::to_string(w));
    for (const auto& [ch, n] : uses)
      if (n == 1) out_keys.emplace_back(1, ch);
  }
  Out out;
  out.dtype = d.promote(operands);
  std::vector<int> labels;
  for (const auto& key : out_keys) {
    auto it = label.find(key);
    if (it == label.end())
      c.in.raise("RuntimeError", "einsum(): output subscript " + key + " does not appear in the equation for any input operand",
                 c.info.call);
    labels.push_back(it->second);
    out.shape.push_back(b.op.labels[static_cast<std::size_t>(it->second)].size);
  }
  b.op.out = {labels};
  double all = 1;
  for (const auto& l : b.op.labels) all *= static_cast<double>(l.size);
  b.op.flops = operands.size() > 1 ? 2 * all : all;
  if (operands.size() == 1) b.op.linearity = Linearity::Linear;
  return d.wrap(b.done({out})[0]);
}

/// Sums over pairs of dimensions, `da` of the first operand with `db` of the second; the others follow in order.
Value contract(Call& c, const std::string& first, const std::string& second, const std::vector<int>& da, const std::vector<int>& db) {
  TensorId x = c.tensor(first), y = c.tensor(second);
  const model::Tensor a = c.d.tensor(x), z = c.d.tensor(y);
  Build b = c.build(Prim::Labelled);
  std::vector<int> ia(a.shape.size(), -1), iz(z.shape.size(), -1), out;
  Out o{{}, c.d.promote({c.arg(first), c.arg(second)}), {}};
  double all = 1;
  for (std::size_t i = 0; i < da.size(); ++i) {
    const auto p = static_cast<std::size_t>(da[i]), q = static_cast<std::size_t>(db[i]);
    if (a.shape[p] != z.shape[q])
      c.in.raise("RuntimeError",
                 "contracted dimensions need to match, but first has size " + std::to_string(a.shape[p]) + " in dim " + std::to_string(p) +
                     " and second has size " + std::to_string(z.shape[q]) + " in dim " + std::to_string(q),
                 c.info.call);
    ia[p] = iz[q] = b.label(a.shape[p]);
    all *= static_cast<double>(a.shape[p]);
  }
  auto rest = [&](const model::Tensor& t, std::vector<int>& labels) {
    for (std::size_t i = 0; i < labels.size(); ++i)
      if (labels[i] < 0) {
        labels[i] = b.label(t.shape[i]);
        out.push_back(labels[i]);
        o.shape.push_back(t.shape[i]);
      }
  };
  rest(a, ia);
  rest(z, iz);
  b.operand(x, first, c.expr(first));
  b.operand(y, second, c.expr(second));
  b.op.in = {ia, iz};
  b.op.out = {out};
  b.op.flops = 2 * all * count_of(o.shape);
  return c.d.wrap(b.done({o})[0]);
}

/// Sums over the last dimension of both operands.
Value inner(Call& c) {
  const Shape& a = c.d.shape(c.tensor("input"));
  const Shape& z = c.d.shape(c.tensor("other"));
  if (a.empty() || z.empty())
    return c.d.elementwise(c, c.name, {c.arg("input"), c.arg("other")}, {"input", "other"}, {c.expr("input"), c.expr("other")},
                           Linearity::Bilinear, c.d.promote({c.arg("input"), c.arg("other")}));
  return contract(c, "input", "other", {static_cast<int>(a.size()) - 1}, {static_cast<int>(z.size()) - 1});
}

Value tensordot(Call& c) {
  const model::Tensor a = c.d.tensor(c.tensor("a")), z = c.d.tensor(c.tensor("b"));
  std::vector<int> da, db;
  Value dims = c.arg("dims");
  if (auto n = c.d.integer(dims); n && dims.is_number()) {
    for (std::int64_t i = 0; i < *n; ++i) {
      da.push_back(static_cast<int>(static_cast<std::int64_t>(a.shape.size()) - *n + i));
      db.push_back(static_cast<int>(i));
    }
  } else if (dims.is(Kind::Tuple) || dims.is(Kind::List)) {
    const auto& items = dims.as<SeqObj>()->items;
    if (items.size() != 2) return c.in.unknown("dims of tensordot are not known", c.info.call);
    auto p = c.d.integers(items[0]), q = c.d.integers(items[1]);
    if (!p || !q || p->size() != q->size()) return c.in.unknown("dims of tensordot are not known", c.info.call);
    for (auto i : *p) da.push_back(static_cast<int>(i < 0 ? i + static_cast<std::int64_t>(a.shape.size()) : i));
    for (auto i : *q) db.push_back(static_cast<int>(i < 0 ? i + static_cast<std::int64_t>(z.shape.size()) : i));
  } else {
    return c.in.unknown("dims of tensordot are not known", c.info.call);
  }
  return contract(c, "a", "b", da, db);
}

Value cross(Call& c) {
  std::vector<std::string> params = {"input", "other"};
  Value v = c.d.elementwise(c, params, Linearity::Nonlinear);
  if (!v.is(Kind::Tensor)) return v;
  model::Op& op = c.in.trace.ops.back();
  const Shape& s = c.d.shape(c.d.id(v));
  std::size_t at = 0;
  if (c.has("dim")) at = static_cast<std::size_t>(c.dim("dim", s.size(), -1));
  else
    while (at + 1 < s.size() && s[at] != 3) ++at;
  if (at < op.out[0].size() && op.out[0][at] >= 0) {
    op.labels[static_cast<std::size_t>(op.out[0][at])].blocked = true;
    op.labels[static_cast<std::size_t>(op.out[0][at])].why = "cross product";
  }
  return v;
}

Value opaque_kron(Call& c) {
  TensorId x = c.tensor("input"), y = c.tensor("other");
  Shape a = c.d.shape(x), z = c.d.shape(y);
  while (a.size() < z.size()) a.insert(a.begin(), 1);
  while (z.size() < a.size()) z.insert(z.begin(), 1);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] *= z[i];
  return c.d.wrap(c.d.opaque(c.name, c.site, {x, y}, {a, c.d.tensor(x).dtype, {}}, "Kronecker product"));
}

/// softmax(q kᵀ) v: leading dimensions and heads are free; the width of q·k and the keys are needed whole.
Value attention(Call& c) {
  Domain& d = c.d;
  TensorId q = c.tensor("query"), k = c.tensor("key"), v = c.tensor("value");
  const model::Tensor tq = d.tensor(q), tk = d.tensor(k), tv = d.tensor(v);
  std::size_t rank = tq.shape.size();
  if (rank < 2 || tk.shape.size() < 2 || tv.shape.size() < 2)
    return c.in.unknown("attention on tensors with fewer than two dimensions", c.info.call);
  if (tq.shape.back() != tk.shape.back())
    c.in.raise("RuntimeError",
               "scaled_dot_product_attention: query and key have widths " + std::to_string(tq.shape.back()) + " and " +
                   std::to_string(tk.shape.back()),
               c.info.call);
  // Grouped queries: fewer key/value heads, each repeated for a run of query heads.
  if (c.flag("enable_gqa", false) && rank >= 3 && tk.shape.size() == rank && tk.shape[rank - 3] != tq.shape[rank - 3]) {
    std::int64_t repeat = tq.shape[rank - 3] / std::max<std::int64_t>(tk.shape[rank - 3], 1);
    auto widen = [&](TensorId t) {
      return d.id(d.call_op("torch.repeat_interleave", {d.wrap(t), Value::integer(repeat), Value::integer(-3)}, c.info.call));
    };
    k = widen(k);
    v = widen(v);
  }
  auto lead = [&](TensorId t) {
    const model::Tensor& x = d.tensor(t);
    return std::make_pair(Shape(x.shape.begin(), x.shape.end() - 2), std::vector<char>(x.literal_one.begin(), x.literal_one.end() - 2));
  };
  Build b = c.build(Prim::Labelled);
  auto lq = lead(q), lk = lead(k), lv = lead(v);
  Batch batch(c, b, {lq, lk, lv});
  int n = b.label(tq.shape[rank - 2]), m = b.label(tk.shape[tk.shape.size() - 2], true, "attention keys"),
      w = b.label(tq.shape.back(), true, "attention width"), e = b.label(tv.shape.back());
  auto with = [](std::vector<int> x, int a, int z) {
    x.push_back(a);
    x.push_back(z);
    return x;
  };
  b.op.in = {with(batch.of(lq.first, lq.second), n, w), with(batch.of(lk.first, lk.second), m, w),
             with(batch.of(lv.first, lv.second), m, e)};
  b.operand(q, "query", c.expr("query"));
  b.operand(k, "key", c.expr("key"));
  b.operand(v, "value", c.expr("value"));
  if (c.is_tensor("attn_mask")) {
    TensorId t = c.tensor("attn_mask");
    const model::Tensor mask = d.tensor(t);
    std::vector<int> target = with(batch.labels, n, m), labels;
    Shape full = batch.shape;
    full.push_back(tq.shape[rank - 2]);
    full.push_back(tk.shape[tk.shape.size() - 2]);
    if (mask.shape.size() > full.size())
      return c.in.unknown("attention with a mask of more dimensions than its operands have", c.info.call);
    for (std::size_t i = 0; i < mask.shape.size(); ++i) {
      const std::size_t j = full.size() + i - mask.shape.size();
      labels.push_back(mask.shape[i] == 1 && (full[j] != 1 || mask.literal_one[i]) ? -1 : target[j]);
    }
    b.op.in.push_back(labels);
    b.operand(t, "attn_mask", c.expr("attn_mask"));
  }
  Out out{batch.shape, tq.dtype, batch.ones};
  out.shape.push_back(tq.shape[rank - 2]);
  out.shape.push_back(tv.shape.back());
  b.op.out = {with(batch.labels, n, e)};
  for (auto& s : d.scalars(c.arg("scale"), c.expr("scale"))) b.op.scalar_args.push_back(s);
  if (c.real("dropout_p", 0) > 0) b.op.random = "dropout";
  double lead_count = count_of(batch.shape);
  b.op.flops = 2 * lead_count * static_cast<double>(tq.shape[rank - 2]) * static_cast<double>(tk.shape[tk.shape.size() - 2]) *
      static_cast<double>(tq.shape.back() + tv.shape.back());
  return d.wrap(b.done({out})[0]);
}

/// A look-up is a product with a one-hot matrix: the vocabulary is contracted. It is marked as needed whole, with the reason
/// "vocabulary", which those who can split vocabularies look for.
Value embedding(Call& c) {
  TensorId x = c.tensor("input"), w = c.tensor("weight");
  const model::Tensor index = c.d.tensor(x), table = c.d.tensor(w);
  if (table.shape.size() != 2) c.in.raise("RuntimeError", "'weight' must be 2-D", c.info.call);
  Build b = c.build(Prim::Labelled);
  std::vector<int> out = b.fresh(x);
  std::vector<int> rows = out;
  // Rows that are rescaled in place or whose gradient counts ids look at the whole table.
  bool plain = !c.has("max_norm") && !c.flag("scale_grad_by_freq", false) && !c.flag("sparse", false);
  int v = b.label(table.shape[0], true, plain ? "vocabulary" : "embedding with max_norm, scale_grad_by_freq or sparse"),
      width = b.label(table.shape[1]);
  b.operand(x, "input", c.expr("input"));
  b.operand(w, "weight", c.expr("weight"));
  b.op.in = {rows, {v, width}};
  out.push_back(width);
  b.op.out = {out};
  Out o{index.shape, table.dtype, index.literal_one};
  o.shape.push_back(table.shape[1]);
  o.ones.push_back(0);
  b.op.flops = count_of(o.shape);
  return c.d.wrap(b.done({o})[0]);
}

Value one_hot(Call& c) {
  TensorId x = c.tensor("input");
  const model::Tensor index = c.d.tensor(x);
  std::int64_t n = c.integer("num_classes", -1);
  if (n < 0) return c.in.unknown("one_hot without num_classes has a size that depends on data", c.info.call);
  Build b = c.build(Prim::Labelled);
  std::vector<int> labels = b.fresh(x), out = labels;
  out.push_back(b.label(n, true, "one-hot"));
  b.operand(x, "input", c.expr("input"));
  b.op.in = {labels};
  b.op.out = {out};
  Shape s = index.shape;
  std::vector<char> ones = index.literal_one;
  s.push_back(n);
  ones.push_back(0);
  return c.d.wrap(b.done({{s, DType::I64, ones}})[0]);
}

/// Cross entropy and its kin: classes in dimension 1 (or 0); the rest is averaged.
Value class_loss(Call& c) {
  Domain& d = c.d;
  TensorId x = c.tensor("input"), y = c.tensor("target");
  const model::Tensor logits = d.tensor(x), target = d.tensor(y);
  std::size_t classes = logits.shape.size() > 1 ? 1 : 0;
  Build b = c.build(Prim::Labelled);
  std::string how = c.text("reduction", "mean");
  std::vector<int> labels = b.fresh(x), rest, out;
  Out o{{}, logits.dtype, {}};
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (i == classes) {
      if (labels[i] >= 0) {
        b.op.labels[static_cast<std::size_t>(labels[i])].blocked = true;
        b.op.labels[static_cast<std::size_t>(labels[i])].why = c.rule.why;
      }
      continue;
    }
    rest.push_back(labels[i]);
    if (how == "none") {
      out.push_back(labels[i]);
      o.shape.push_back(logits.shape[i]);
      o.ones.push_back(logits.literal_one[i]);
    }
  }
  b.operand(x, "input", c.expr("input"));
  b.op.in.push_back(labels);
  b.operand(y, "target", c.expr("target"));
  if (target.shape.size() == logits.shape.size()) b.op.in.push_back(labels);
  else if (target.shape.size() == rest.size()) b.op.in.push_back(rest);
  else
    c.in.raise("ValueError",
               c.name + ": Expected target to have " + std::to_string(rest.size()) + " or " + std::to_string(logits.shape.size()) +
                   " dimensions, got " + std::to_string(target.shape.size()),
               c.info.call);
  for (std::size_t i = 0, j = 0; target.shape.size() == rest.size() && i < logits.shape.size(); ++i) {
    if (i == classes) continue;
    if (target.shape[j] != logits.shape[i])
      c.in.raise("ValueError",
                 "Expected input batch_size (" + std::to_string(logits.shape[i]) + ") to match target batch_size (" +
                     std::to_string(target.shape[j]) + ").",
                 c.info.call);
    ++j;
  }
  if (c.has("weight")) {
    b.operand(c.tensor("weight"), "weight", c.expr("weight"));
    b.op.in.push_back({labels.empty() ? -1 : labels[classes]});
  }
  b.op.out = {out};
  // Averages over targets that are not ignored: the loss of a part is no part of the loss, so what is averaged stays whole.
  if (how != "none")
    for (int l : rest)
      if (l >= 0) {
        b.op.labels[static_cast<std::size_t>(l)].blocked = true;
        b.op.labels[static_cast<std::size_t>(l)].why = "averaged by the loss";
      }
  b.op.flops = 5 * count_of(logits.shape);
  return d.wrap(b.done({o})[0]);
}

Value scalar_opaque(Call& c) {
  std::vector<TensorId> ids;
  for (const Value& v : c.args.values)
    if (v.is(Kind::Tensor)) ids.push_back(c.d.id(v));
  for (const Value& v : c.args.rest)
    if (v.is(Kind::Tensor)) ids.push_back(c.d.id(v));
  DType type = ids.empty() ? c.d.default_dtype : c.d.tensor(ids[0]).dtype;
  return c.d.wrap(c.d.opaque(c.name, c.site, ids, {{}, type, {}}, "loss over whole tensors"));
}

}  // namespace

Table linalg_functions() {
  return {{"matmul", matmul},       {"baddbmm", baddbmm}, {"einsum", einsum},           {"inner", inner},
          {"tensordot", tensordot}, {"cross", cross},     {"opaque_kron", opaque_kron}, {"attention", attention},
          {"embedding", embedding}, {"one_hot", one_hot}, {"class_loss", class_loss},   {"scalar_opaque", scalar_opaque}};
}

}  // namespace shardwright::eval::torch
