// Element-wise operations whose linearity depends on their arguments, casts, dropout, point-wise losses.
#include <algorithm>
#include <cmath>

#include "eval/torch/compute.h"

namespace shardwright::eval::torch {
namespace {

using model::Linearity;

bool zero(const Value& v) { return v.is_number() && v.as_double() == 0; }

/// x + y is linear in both; x + 1 is not linear: under a partial sum the 1 would be counted once a rank.
Value add(Call& c) {
  Value a = c.arg("input"), b = c.arg("other");
  bool reversed = c.name.ends_with("rsub");
  if (reversed) std::swap(a, b);
  bool both = a.is(Kind::Tensor) && b.is(Kind::Tensor);
  Linearity lin = both || zero(a) || zero(b) ? Linearity::Linear : Linearity::Nonlinear;
  std::vector<std::string> params = {"input", "other"};
  Value alpha = c.arg("alpha");
  if (alpha.is_number() && alpha.as_double() != 1 && !reversed) {
    // Numbers that scale one operand keep the operation linear, but its values are not those of a plain sum.
    Value v = c.d.elementwise(c, params, lin);
    if (v.is(Kind::Tensor)) c.d.values.erase(c.d.id(v));
    return v;
  }
  return c.d.elementwise(c, params, lin);
}

Value multiply(Call& c) {
  bool both = c.is_tensor("input") && c.is_tensor("other");
  return c.d.elementwise(c, {"input", "other"}, both ? Linearity::Bilinear : Linearity::Linear);
}

Value divide(Call& c) {
  std::string mode = c.text("rounding_mode", "");
  bool plain = mode.empty();
  DType p = c.d.promote({c.arg("input"), c.arg("other")});
  std::optional<DType> type;
  if (plain && !model::is_floating(p)) type = c.d.default_dtype;
  // A number below the line scales; a tensor below it does not keep sums.
  Linearity lin = plain && c.is_tensor("input") && !c.is_tensor("other") ? Linearity::Linear : Linearity::Nonlinear;
  if (plain && c.is_tensor("input") && c.is_tensor("other")) lin = Linearity::Nonlinear;
  Value v = c.d.elementwise(c, {"input", "other"}, lin, type);
  if (v.is(Kind::Tensor) && !plain)
    if (const Values* k = c.d.known(c.d.id(v))) {
      Values rounded = *k;
      for (double& x : rounded) x = mode == "floor" ? std::floor(x) : std::trunc(x);
      c.d.know(c.d.id(v), std::move(rounded));
    }
  return v;
}

Value clamp(Call& c) {
  std::vector<std::string> params = {"input"};
  for (const char* p : {"min", "max"})
    if (c.is_tensor(p)) params.emplace_back(p);
  Value v = c.d.elementwise(c, params, Linearity::Nonlinear);
  if (v.is(Kind::Tensor) && params.size() == 1)
    if (const Values* k = c.d.known(c.tensor("input"))) {
      Values out = *k;
      for (double& x : out) {
        if (c.has("min")) x = std::max(x, c.real("min", x));
        if (c.has("max")) x = std::min(x, c.real("max", x));
      }
      c.d.know(c.d.id(v), std::move(out));
    }
  return v;
}

Value where(Call& c) {
  if (!c.has("input")) return c.in.unknown("torch.where(condition) has a size that depends on data", c.info.call);
  auto keeps = [&](const char* p) { return c.is_tensor(p) || zero(c.arg(p)); };
  return c.d.elementwise(c, {"condition", "input", "other"}, keeps("input") && keeps("other") ? Linearity::Linear : Linearity::Nonlinear,
                         c.d.promote({c.arg("input"), c.arg("other")}));
}

Value where_method(Call& c) {
  std::vector<Value> v = {c.arg("condition"), c.arg("input"), c.arg("other")};
  return c.d.elementwise(c, "torch.where", v, {"condition", "input", "other"}, {c.expr("condition"), c.expr("input"), c.expr("other")},
                         Linearity::Nonlinear, c.d.promote({v[1], v[2]}));
}

Value masked_fill(Call& c) {
  std::vector<Value> v = {c.arg("input"), c.arg("mask")};
  std::vector<std::string> p = {"input", "mask"};
  std::vector<const program::Expr*> e = {c.expr("input"), c.expr("mask")};
  if (c.is_tensor("value")) {
    v.push_back(c.arg("value"));
    p.emplace_back("value");
    e.push_back(c.expr("value"));
  }
  Value filled = c.d.elementwise(c, c.name, v, p, e, zero(c.arg("value")) ? Linearity::Linear : Linearity::Nonlinear,
                                 c.d.tensor(c.tensor("input")).dtype);
  if (filled.is(Kind::Tensor) && !c.is_tensor("value"))
    known::elementwise(c.d, "masked_fill", {c.arg("input"), c.arg("mask"), c.arg("value")}, c.d.id(filled));
  return filled;
}

Value dropout(Call& c) {
  double p = c.real("p", 0.5);
  Value v = c.d.elementwise(c, {"input"}, Linearity::Nonlinear);
  if (p > 0 && v.is(Kind::Tensor)) {
    c.in.trace.ops.back().random = "dropout";
    if (c.d.observer)
      c.d.observer->noticed("dropout", c.name, {c.tensor("input")}, c.site, c.d.module_stack.empty() ? -1 : c.d.module_stack.back());
  }
  return v;
}

/// One weight per channel (dimension 1), or a single one.
Value prelu(Call& c) {
  Domain& d = c.d;
  TensorId x = c.tensor("input"), w = c.tensor("weight");
  Build b = c.build(model::Prim::Labelled);
  std::vector<int> labels = b.fresh(x);
  b.operand(x, "input", c.expr("input"));
  b.operand(w, "weight", c.expr("weight"));
  b.op.in.push_back(labels);
  bool single = model::numel(d.tensor(w)) == 1 || labels.size() < 2;
  b.op.in.push_back(d.shape(w).empty() ? std::vector<int>{} : std::vector<int>{single ? -1 : labels[1]});
  b.op.out.push_back(labels);
  const model::Tensor source = d.tensor(x);
  b.op.flops = count_of(source.shape);
  return d.wrap(b.done({{source.shape, source.dtype, source.literal_one}})[0]);
}

Value pointwise_loss(Call& c) {
  std::vector<std::string> params = {"input", "target"};
  for (const char* p : {"weight", "pos_weight", "var"})
    if (c.is_tensor(p)) params.emplace_back(p);
  Value loss = c.d.elementwise(c, params, Linearity::Nonlinear, c.d.tensor(c.tensor("input")).dtype);
  std::string how = c.text("reduction", "mean");
  if (!loss.is(Kind::Tensor) || how == "none") return loss;
  TensorId t = c.d.id(loss);
  std::vector<int> all;
  for (std::size_t i = 0; i < c.d.shape(t).size(); ++i) all.push_back(static_cast<int>(i));
  DType type = c.d.tensor(t).dtype;
  return c.d.wrap(c.d.reduce(how == "sum" ? "torch.sum" : "torch.mean", c.site, t, all, false, Linearity::Linear, false, how != "sum", "",
                             type, nullptr));
}

Value cast_to(Call& c) {
  std::optional<DType> type = c.dtype();
  bool wants = c.has("dtype");
  for (const Value& v : c.args.rest) {
    if (auto t = c.d.as_dtype(v)) type = t;
    else if (v.is(Kind::Tensor)) type = c.d.tensor(c.d.id(v)).dtype;
    else if (v.is_unknown()) return v;
  }
  Value self = c.arg("input");
  if (!type && wants) return c.in.unknown("type of a cast is not known", c.info.call);
  if (!type) {
    if (c.name == "torch.Tensor.type" && c.args.rest.empty()) return c.in.str("torch.FloatTensor");
    return self;
  }
  TensorId t = c.d.cast("torch.Tensor.to", c.site, c.d.id(self), *type, c.expr("input"));
  return t == c.d.id(self) ? self : c.d.wrap(t);
}

Value type_as(Call& c) {
  TensorId t = c.d.cast("torch.Tensor.to", c.site, c.tensor("input"), c.d.tensor(c.tensor("other")).dtype, c.expr("input"));
  return t == c.tensor("input") ? c.arg("input") : c.d.wrap(t);
}

Value cast_named(Call& c) {
  static const std::unordered_map<std::string_view, DType> types = {
      {"float", DType::F32}, {"double", DType::F64}, {"half", DType::F16},   {"bfloat16", DType::BF16},
      {"long", DType::I64},  {"int", DType::I32},    {"short", DType::I16},  {"char", DType::I8},
      {"byte", DType::U8},   {"bool", DType::Bool},  {"cfloat", DType::C64}, {"cdouble", DType::C128}};
  auto at = types.find(last_name(c.name));
  TensorId t = c.d.cast("torch.Tensor.to", c.site, c.tensor("input"), at == types.end() ? DType::F32 : at->second, c.expr("input"));
  return t == c.tensor("input") ? c.arg("input") : c.d.wrap(t);
}

Value same_value(Call& c) { return c.arg("input"); }

}  // namespace

Table pointwise_functions() {
  return {{"add", add},
          {"multiply", multiply},
          {"divide", divide},
          {"clamp", clamp},
          {"where", where},
          {"where_method", where_method},
          {"masked_fill", masked_fill},
          {"dropout", dropout},
          {"prelu", prelu},
          {"pointwise_loss", pointwise_loss},
          {"cast_to", cast_to},
          {"type_as", type_as},
          {"cast_named", cast_named},
          {"same_value", same_value}};
}

}  // namespace shardwright::eval::torch
