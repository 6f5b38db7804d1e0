// Reductions and operations that need a dimension whole, where the rule alone does not say which.
#include <algorithm>

#include "eval/torch/compute.h"
#include "model/shape.h"

namespace shardwright::eval::torch {
namespace {

using model::Linearity;
using model::Prim;

std::vector<int> all_dims(std::size_t n) {
  std::vector<int> v;
  for (std::size_t i = 0; i < n; ++i) v.push_back(static_cast<int>(i));
  return v;
}

std::string why_of(const Call& c) { return c.rule.why.empty() ? last_name(c.name) : c.rule.why; }

/// Reduces `dims` in one operation with several results.
std::vector<TensorId> reduce_many(Call& c, TensorId t, const std::vector<int>& dims, bool keepdim, const std::vector<DType>& types) {
  Build b = c.build(Prim::Labelled);
  std::vector<int> labels = b.fresh(t), kept;
  const model::Tensor source = c.d.tensor(t);
  Out out;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    bool gone = std::find(dims.begin(), dims.end(), static_cast<int>(i)) != dims.end();
    if (gone && labels[i] >= 0) {
      b.op.labels[static_cast<std::size_t>(labels[i])].blocked = true;
      b.op.labels[static_cast<std::size_t>(labels[i])].why = why_of(c);
    }
    if (gone && !keepdim) continue;
    kept.push_back(gone ? -1 : labels[i]);
    out.shape.push_back(gone ? 1 : source.shape[i]);
    out.ones.push_back(gone ? 1 : source.literal_one[i]);
  }
  b.operand(t, "input", c.expr("input"));
  b.op.in.push_back(labels);
  b.op.flops = count_of(source.shape);
  std::vector<Out> outs;
  for (DType type : types) {
    b.op.out.push_back(kept);
    out.dtype = type;
    outs.push_back(out);
  }
  return b.done(std::move(outs));
}

/// max(t), max(t, dim) → (values, indices), max(a, b) element by element.
Value max(Call& c) {
  if (c.is_tensor("dim")) return c.d.elementwise(c, {"input", "dim"}, Linearity::Nonlinear);
  // max(input, other=…) arrives as a keyword the signature does not know: elementwise.
  TensorId t = c.tensor("input");
  DType type = c.d.tensor(t).dtype;
  std::size_t rank = c.d.shape(t).size();
  if (!c.has("dim")) {
    TensorId out =
        c.d.reduce(c.name, c.site, t, all_dims(rank), false, Linearity::Nonlinear, true, false, why_of(c), type, c.expr("input"));
    known::reduce(c.d, last_name(c.name), t, all_dims(rank), out);
    return c.d.wrap(out);
  }
  auto dims = c.dims("dim", rank).value_or(all_dims(rank));
  std::vector<TensorId> ids = reduce_many(c, t, dims, c.flag("keepdim", false), {type, DType::I64});
  known::reduce(c.d, last_name(c.name), t, dims, ids[0]);
  return c.d.values_and_indices(ids);
}

Value variance(Call& c) {
  TensorId t = c.tensor("input");
  std::size_t rank = c.d.shape(t).size();
  // var(input, unbiased) — a bool in the place of dim.
  auto dims = c.arg("dim").is(Kind::Bool) ? all_dims(rank) : c.dims("dim", rank).value_or(all_dims(rank));
  DType type = c.d.tensor(t).dtype;
  bool two = c.rule.outputs == 2;
  std::vector<TensorId> ids =
      reduce_many(c, t, dims, c.flag("keepdim", false), two ? std::vector<DType>{type, type} : std::vector<DType>{type});
  return two ? c.d.wrap(ids) : c.d.wrap(ids[0]);
}

Value norm(Call& c) {
  TensorId t = c.tensor("input");
  std::size_t rank = c.d.shape(t).size();
  auto dims = c.dims("dim", rank).value_or(all_dims(rank));
  DType type = c.d.tensor(t).dtype;
  if (type == DType::C64) type = DType::F32;
  if (type == DType::C128) type = DType::F64;
  return c.d.wrap(c.d.reduce(c.name, c.site, t, dims, c.flag("keepdim", false), Linearity::Nonlinear, true, false, why_of(c),
                             c.dtype().value_or(type), c.expr("input")));
}

Value quantile(Call& c) {
  TensorId t = c.tensor("input");
  std::size_t rank = c.d.shape(t).size();
  if (c.is_tensor("q") && !c.d.shape(c.tensor("q")).empty()) return c.in.unknown("quantile with several quantiles", c.info.call);
  auto dims = c.dims("dim", rank).value_or(all_dims(rank));
  return c.d.wrap(c.d.reduce(c.name, c.site, t, dims, c.flag("keepdim", false), Linearity::Nonlinear, true, false, why_of(c),
                             c.d.tensor(t).dtype, c.expr("input")));
}

/// F.softmax without dim: PyTorch's deprecated choice.
Value softmax(Call& c) {
  TensorId t = c.tensor("input");
  std::size_t rank = c.d.shape(t).size();
  int dim = c.has("dim") ? c.dim("dim", rank, -1) : (rank == 0 || rank == 1 || rank == 3 ? 0 : 1);
  return c.d.wrap(c.d.keep(c, t, {dim}, {c.dtype().value_or(c.d.tensor(t).dtype)})[0]);
}

Value topk(Call& c) {
  TensorId t = c.tensor("input");
  Shape s = c.d.shape(t);
  if (s.empty()) return c.in.unknown("topk of a scalar", c.info.call);
  int dim = c.dim("dim", s.size(), -1);
  auto k = c.d.integer(c.arg("k"));
  if (!k) return c.in.unknown("k of topk is not known", c.info.call);
  s[static_cast<std::size_t>(dim)] = *k;
  Build b = c.build(Prim::Labelled);
  std::vector<int> labels = b.fresh(t), out = labels;
  std::size_t at = static_cast<std::size_t>(dim);
  if (labels[at] >= 0) {
    b.op.labels[static_cast<std::size_t>(labels[at])].blocked = true;
    b.op.labels[static_cast<std::size_t>(labels[at])].why = "topk";
  }
  out[at] = b.label(*k, true, "topk");
  b.operand(t, "input", c.expr("input"));
  b.op.in = {labels};
  b.op.out = {out, out};
  return c.d.values_and_indices(b.done({{s, c.d.tensor(t).dtype, {}}, {s, DType::I64, {}}}));
}

/// Differences of neighbours, as two slices and a subtraction: numbers that are known stay known.
Value diff(Call& c) {
  TensorId t = c.tensor("input");
  std::size_t rank = c.d.shape(t).size();
  int dim = c.dim("dim", rank, -1);
  std::vector<Value> parts;
  if (c.has("prepend")) parts.push_back(c.arg("prepend"));
  parts.push_back(c.arg("input"));
  if (c.has("append")) parts.push_back(c.arg("append"));
  for (const Value& v : parts)
    if (!v.is(Kind::Tensor)) return c.in.unknown("diff of something that is no tensor", c.info.call);
  if (parts.size() > 1) t = concat_of(c, c.name, parts, dim, std::vector<const program::Expr*>(parts.size(), nullptr));
  for (std::int64_t i = 0; i < c.integer("n", 1); ++i) {
    std::int64_t size = c.d.shape(t)[static_cast<std::size_t>(dim)];
    if (size == 0) break;
    Value next = narrow_to(c, t, dim, 1, size - 1, nullptr), here = narrow_to(c, t, dim, 0, size - 1, nullptr);
    t = c.d.id(
        c.d.elementwise(c, "torch.sub", {next, here}, {"input", "other"}, {nullptr, nullptr}, Linearity::Linear, c.d.tensor(t).dtype));
  }
  return c.d.wrap(t);
}

Value roll(Call& c) {
  TensorId t = c.tensor("input");
  std::size_t rank = c.d.shape(t).size();
  auto dims = c.dims("dims", rank).value_or(all_dims(rank));
  return c.d.wrap(c.d.keep(c, t, dims.empty() ? all_dims(rank) : dims, {c.d.tensor(t).dtype})[0]);
}

Value flip(Call& c) {
  TensorId t = c.tensor("input");
  std::size_t rank = c.d.shape(t).size();
  std::vector<int> dims;
  const std::string which = last_name(c.name);
  if (which == "fliplr") dims = {1};
  else if (which == "flipud") dims = {0};
  else {
    std::vector<Value> given = c.args.rest;
    for (const Keyword& k : c.args.keywords)
      if (k.name == "dims") given.push_back(k.value);
    Domain::Sizes s = c.d.sizes(given, {});
    if (s.unknown) return c.in.unknown("dimensions of flip are not known", c.info.call);
    for (auto d : s.values) dims.push_back(static_cast<int>(d < 0 ? d + static_cast<std::int64_t>(rank) : d));
  }
  TensorId r = c.d.keep(c, t, dims, {c.d.tensor(t).dtype})[0];
  const Shape shape = c.d.shape(t);
  known::gather(c.d, t, r, [&](const Shape& at) {
    std::int64_t index = 0;
    for (std::size_t i = 0; i < shape.size(); ++i) {
      bool turned = std::find(dims.begin(), dims.end(), static_cast<int>(i)) != dims.end();
      index = index * shape[i] + (turned ? shape[i] - 1 - at[i] : at[i]);
    }
    return index;
  });
  return c.d.wrap(r);
}

Value rot90(Call& c) {
  TensorId t = c.tensor("input");
  std::size_t rank = c.d.shape(t).size();
  auto dims = c.dims("dims", rank).value_or(std::vector<int>{0, 1});
  if (dims.size() != 2) return c.in.unknown("rot90 needs two dimensions", c.info.call);
  Shape s = c.d.shape(t);
  if (c.integer("k", 1) % 2) std::swap(s[static_cast<std::size_t>(dims[0])], s[static_cast<std::size_t>(dims[1])]);
  Build b = c.build(Prim::Labelled);
  std::vector<int> labels = b.fresh(t), out = labels;
  for (int d : dims) {
    std::size_t at = static_cast<std::size_t>(d);
    if (labels[at] >= 0) {
      b.op.labels[static_cast<std::size_t>(labels[at])].blocked = true;
      b.op.labels[static_cast<std::size_t>(labels[at])].why = "rot90";
    }
    out[at] = b.label(s[at], true, "rot90");
  }
  b.operand(t, "input", c.expr("input"));
  b.op.in = {labels};
  b.op.out = {out};
  return c.d.wrap(b.done({{s, c.d.tensor(t).dtype, {}}})[0]);
}

/// A triangle looks at the last two dimensions' indices.
Value triangle(Call& c) {
  TensorId t = c.tensor("input");
  int rank = static_cast<int>(c.d.shape(t).size());
  std::vector<int> dims;
  if (rank >= 2) dims = {rank - 2, rank - 1};
  TensorId r = c.d.keep(c, t, dims, {c.d.tensor(t).dtype})[0];
  const Shape shape = c.d.shape(t);
  if (const Values* k = c.d.known(t); k && rank == 2) {
    Values v = *k;
    std::int64_t diagonal = c.integer("diagonal", 0);
    bool upper = last_name(c.name).starts_with("triu");
    for (std::int64_t i = 0; i < shape[0]; ++i)
      for (std::int64_t j = 0; j < shape[1]; ++j)
        if (upper ? j - i < diagonal : j - i > diagonal) v[static_cast<std::size_t>(i * shape[1] + j)] = 0;
    c.d.know(r, std::move(v));
  }
  return c.d.wrap(r);
}

void block(Build& b, int label, const std::string& why) {
  if (label < 0) return;
  b.op.labels[static_cast<std::size_t>(label)].blocked = true;
  b.op.labels[static_cast<std::size_t>(label)].why = why;
}

/// Adds weight/bias (shape: the dimensions `labels`), when given.
void affine(Call& c, Build& b, const char* param, const std::vector<int>& labels) {
  if (!c.has(param)) return;
  b.operand(c.tensor(param), param, c.expr(param));
  b.op.in.push_back(labels);
}

Value layer_norm(Call& c) {
  TensorId t = c.tensor("input");
  const model::Tensor source = c.d.tensor(t);
  auto normalized = c.d.integers(c.arg("normalized_shape"));
  std::size_t n = normalized ? normalized->size() : 1;
  if (normalized) {
    bool fits = n <= source.shape.size() && std::equal(normalized->rbegin(), normalized->rend(), source.shape.rbegin());
    if (!fits) {
      std::string want, got;
      for (auto d : *normalized) want += (want.empty() ? "" : ", ") + std::to_string(d);
      for (auto d : source.shape) got += (got.empty() ? "" : ", ") + std::to_string(d);
      c.in.raise("RuntimeError",
                 "Given normalized_shape=[" + want + "], expected input with shape [*, " + want + "], but got input of size[" + got + "]",
                 c.info.call);
    }
  }
  Build b = c.build(Prim::Labelled);
  std::vector<int> labels;
  for (std::size_t i = 0; i < source.shape.size(); ++i) {
    bool whole = i + n >= source.shape.size();
    labels.push_back(!whole && source.shape[i] == 1 && source.literal_one[i] ? -1 : b.label(source.shape[i], whole, whole ? "norm" : ""));
  }
  std::vector<int> trailing(labels.end() - static_cast<std::ptrdiff_t>(n), labels.end());
  b.operand(t, "input", c.expr("input"));
  b.op.in.push_back(labels);
  affine(c, b, "weight", trailing);
  affine(c, b, "bias", trailing);
  b.op.out = {labels};
  b.op.flops = 8 * count_of(source.shape);
  return c.d.wrap(b.done({{source.shape, source.dtype, source.literal_one}})[0]);
}

/// Statistics over the dimensions from `first` on; what each of `parameters` holds goes by channel.
Value norm_from(Call& c, std::size_t first, std::initializer_list<const char*> parameters) {
  TensorId t = c.tensor("input");
  const model::Tensor source = c.d.tensor(t);
  Build b = c.build(Prim::Labelled);
  std::vector<int> labels = b.fresh(t);
  for (std::size_t i = first; i < labels.size(); ++i) block(b, labels[i], "norm");
  b.operand(t, "input", c.expr("input"));
  b.op.in.push_back(labels);
  for (const char* p : parameters) affine(c, b, p, {labels.size() > 1 ? labels[1] : -1});
  b.op.out = {labels};
  b.op.flops = 8 * count_of(source.shape);
  return c.d.wrap(b.done({{source.shape, source.dtype, source.literal_one}})[0]);
}

/// Statistics within each group of channels: channels are (groups, channels of a group), of which the groups are free.
Value group_norm(Call& c) {
  const TensorId t = c.tensor("input");
  const model::Tensor source = c.d.tensor(t);
  const std::int64_t groups = c.integer("num_groups", 1);
  if (source.shape.size() < 2 || groups < 1 || source.shape[1] % groups != 0) {
    if (c.d.observer && source.shape.size() >= 2) return norm_from(c, 1, {"weight", "bias"});  // sizes that lint has made up
    c.in.raise("RuntimeError",
               "Expected number of channels in input to be divisible by num_groups, but got input of shape " +
                   model::shape_text(source.shape) + " and num_groups=" + std::to_string(groups),
               c.info.call);
  }
  Shape apart = source.shape;
  apart[1] = groups;
  apart.insert(apart.begin() + 2, source.shape[1] / groups);
  const program::Expr* written = c.site.direct ? c.expr("num_groups") : nullptr;
  const TensorId x = c.d.reshape(c.name, c.site, t, apart, std::vector<char>(apart.size(), 0),
                                 {{model::SizeArg::Dim, 1, {groups}, {c.arg("num_groups").sym()}, written}}, c.expr("input"));
  std::vector<std::pair<const char*, TensorId>> affine_ones;
  for (const char* p : {"weight", "bias"})
    if (c.arg(p).is(Kind::Tensor))
      affine_ones.emplace_back(
          p, c.d.reshape(c.name, c.site, c.tensor(p), {groups, source.shape[1] / groups}, std::vector<char>(2, 0), {}, c.expr(p)));
  Build b = c.build(Prim::Labelled);
  std::vector<int> labels = b.fresh(x);
  for (std::size_t i = 2; i < labels.size(); ++i) block(b, labels[i], "norm");
  b.operand(x, "input", nullptr);
  b.op.in.push_back(labels);
  for (const auto& [name, p] : affine_ones) {
    b.operand(p, name, nullptr);
    b.op.in.push_back({labels[1], labels[2]});
  }
  b.op.out = {labels};
  b.op.flops = 8 * count_of(source.shape);
  const TensorId y = b.done({{apart, source.dtype, std::vector<char>(apart.size(), 0)}})[0];
  return c.d.wrap(c.d.reshape(c.name, c.site, y, source.shape, source.literal_one));
}

/// Statistics over everything but the channels (batch included, when training): channels are free.
Value batch_norm(Call& c) {
  TensorId t = c.tensor("input");
  const model::Tensor source = c.d.tensor(t);
  Build b = c.build(Prim::Labelled);
  std::vector<int> labels = b.fresh(t);
  for (std::size_t i = 0; i < labels.size(); ++i)
    if (i != 1) block(b, labels[i], "norm");
  b.operand(t, "input", c.expr("input"));
  b.op.in.push_back(labels);
  for (const char* p : {"running_mean", "running_var", "weight", "bias"}) affine(c, b, p, {labels.size() > 1 ? labels[1] : -1});
  b.op.out = {labels};
  b.op.flops = 4 * count_of(source.shape);
  return c.d.wrap(b.done({{source.shape, source.dtype, source.literal_one}})[0]);
}

Value instance_norm(Call& c) { return norm_from(c, 2, {"running_mean", "running_var", "weight", "bias"}); }

Value channels_whole(Call& c) {
  TensorId t = c.tensor("input");
  return c.d.wrap(c.d.keep(c, t, {1}, {c.d.tensor(t).dtype})[0]);
}

/// Two tensors broadcast, one dimension reduced.
Value similarity(Call& c) {
  Value product = c.d.elementwise(c, c.name, {c.arg("x1"), c.arg("x2")}, {"x1", "x2"}, {c.expr("x1"), c.expr("x2")}, Linearity::Nonlinear,
                                  c.d.promote({c.arg("x1"), c.arg("x2")}));
  TensorId t = c.d.id(product);
  std::size_t rank = c.d.shape(t).size();
  int dim = c.signature.index("dim") >= 0 ? c.dim("dim", rank, 1) : static_cast<int>(rank) - 1;
  return c.d.wrap(c.d.reduce(c.name, c.site, t, {dim}, c.flag("keepdim", false), Linearity::Nonlinear, true, false, "norm",
                             c.d.tensor(t).dtype, nullptr));
}

}  // namespace

Table reduce_functions() {
  return {{"max", max},
          {"variance", variance},
          {"norm", norm},
          {"quantile", quantile},
          {"softmax", softmax},
          {"topk", topk},
          {"diff", diff},
          {"roll", roll},
          {"flip", flip},
          {"rot90", rot90},
          {"triangle", triangle},
          {"layer_norm", layer_norm},
          {"group_norm", group_norm},
          {"batch_norm", batch_norm},
          {"instance_norm", instance_norm},
          {"channels_whole", channels_whole},
          {"similarity", similarity}};
}

}  // namespace shardwright::eval::torch
