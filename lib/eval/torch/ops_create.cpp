// Values made from sizes, random draws, Fourier transforms.
#include <algorithm>
#include <cmath>

#include "eval/torch/compute.h"

namespace shardwright::eval::torch {

using model::Linearity;
using model::Prim;
using model::SizeArg;

Value created(Call& c, const Domain::Sizes& sizes, DType dtype, std::optional<double> fill, int first_dim,
              const std::vector<model::ScalarArg>& scalars) {
  for (auto n : sizes.values)
    if (n < 0) c.in.raise("RuntimeError", "Trying to create tensor with negative dimension " + std::to_string(n), c.info.call);
  Build b = c.build(Prim::Create);
  b.op.linearity = Linearity::Nonlinear;
  b.gradient = false;
  b.op.size_args = c.d.size_args(sizes, SizeArg::Dim, first_dim);
  b.op.scalar_args = scalars;
  if (!c.site.direct) {
    for (auto& a : b.op.size_args) a.expr = nullptr;
    for (auto& a : b.op.scalar_args) a.expr = nullptr;
  }
  Out out{sizes.values, dtype, {}};
  for (std::size_t i = 0; i < sizes.values.size(); ++i)
    out.ones.push_back(sizes.values[i] == 1 && !sizes.syms[i] && sizes.exprs[i] && sizes.exprs[i]->kind == program::ExprKind::Int);
  TensorId t = b.done({out})[0];
  if (fill && count_of(sizes.values) <= static_cast<double>(max_values))
    c.d.know(t, Values(static_cast<std::size_t>(count_of(sizes.values)), *fill));
  if (c.flag("requires_grad", false)) c.in.trace.tensors[static_cast<std::size_t>(t)].requires_grad = true;
  return c.d.wrap(t);
}

namespace {

Value unknown_size(Call& c) { return c.in.unknown("a size given to " + c.name + " is not known", c.info.call); }

/// Sizes that PyTorch refuses, too: a text, a fraction, None.
void refuse_sizes(Call& c, const std::vector<Value>& given) {
  for (const Value& v : given) {
    if ((v.is(Kind::Tuple) || v.is(Kind::List)) && given.size() == 1) return refuse_sizes(c, v.as<SeqObj>()->items);
    const bool fraction = v.is(Kind::Float) && v.as_double() != static_cast<double>(static_cast<std::int64_t>(v.as_double()));
    if (v.is(Kind::Str) || fraction || v.is_none() || v.is(Kind::Tuple) || v.is(Kind::List))
      c.in.raise("TypeError", last_name(c.name) + "(): sizes must be ints, but found an element of type " + c.in.type_of(v)->name,
                 c.info.call);
  }
}

std::optional<double> fill_of(const std::string& name) {
  if (name.find("zeros") != std::string::npos) return 0;
  if (name.find("ones") != std::string::npos) return 1;
  return std::nullopt;
}

Value create(Call& c) {
  Domain::Sizes s;
  if (!c.args.rest.empty()) s = c.d.sizes(c.args.rest, c.args.rest_exprs);
  for (const Keyword& k : c.args.keywords)
    if (k.name == "size") s = c.d.sizes({k.value}, {k.expr});
  if (s.unknown) refuse_sizes(c, c.args.rest);
  if (s.unknown) return unknown_size(c);
  return created(c, s, c.dtype().value_or(c.d.default_dtype), fill_of(last_name(c.name)));
}

Domain::Sizes named_sizes(Call& c, const char* param) {
  return c.d.sizes({c.arg(param)}, {c.args.exprs[static_cast<std::size_t>(c.signature.index(param))]});
}

DType type_of_number(Call& c, const Value& v) {
  if (v.is(Kind::Bool)) return DType::Bool;
  if (v.is(Kind::Int)) return DType::I64;
  if (v.is(Kind::Tensor)) return c.d.tensor(c.d.id(v)).dtype;
  return c.d.default_dtype;
}

Value full(Call& c) {
  Domain::Sizes s = named_sizes(c, "size");
  if (s.unknown) return unknown_size(c);
  return created(c, s, c.dtype().value_or(type_of_number(c, c.arg("fill_value"))), c.d.number(c.arg("fill_value")), 0,
                 c.d.scalars(c.arg("fill_value"), c.expr("fill_value")));
}

Value randint(Call& c) {
  // randint(high, size) and randint(low, high, size).
  bool two = !c.has("size");
  Domain::Sizes s = named_sizes(c, two ? "high" : "size");
  if (s.unknown) return unknown_size(c);
  return created(c, s, c.dtype().value_or(DType::I64), std::nullopt);
}

/// A one-dimensional tensor of known numbers.
Value line(Call& c, std::int64_t n, DType dtype, std::vector<SizeArg> sizes, const std::vector<const char*>& numbers,
           const std::function<double(std::int64_t)>& at) {
  Build b = c.build(Prim::Create);
  b.op.linearity = Linearity::Nonlinear;
  b.gradient = false;
  b.op.size_args = std::move(sizes);
  for (const char* p : numbers)
    for (const auto& s : c.d.scalars(c.arg(p), c.expr(p))) b.op.scalar_args.push_back(s);
  if (!c.site.direct) {
    for (auto& a : b.op.size_args) a.expr = nullptr;
    for (auto& a : b.op.scalar_args) a.expr = nullptr;
  }
  TensorId t = b.done({{{n}, dtype, {}}})[0];
  if (n <= max_values) {
    Values v;
    for (std::int64_t i = 0; i < n; ++i) v.push_back(dtype == DType::F32 ? static_cast<double>(static_cast<float>(at(i))) : at(i));
    c.d.know(t, std::move(v));
  }
  return c.d.wrap(t);
}

Value arange(Call& c) {
  Value a = c.arg("start"), z = c.arg("end"), st = c.arg("step");
  bool one = z.is_none();
  auto start = one ? std::optional<double>(0) : c.d.number(a), end = one ? c.d.number(a) : c.d.number(z), step = c.d.number(st);
  if (!start || !end || !step || *step == 0) return unknown_size(c);
  DType type = DType::I64;
  for (const Value* v : {&a, &z, &st})
    if (v->is(Kind::Float) || (v->is(Kind::Tensor) && model::is_floating(c.d.tensor(c.d.id(*v)).dtype))) type = c.d.default_dtype;
  std::int64_t n = std::max<std::int64_t>(0, static_cast<std::int64_t>(std::ceil((*end - *start) / *step - 1e-12)));
  if (last_name(c.name) == "range") ++n;
  std::vector<SizeArg> sizes;
  const char* param = one ? "start" : "end";
  const Value& limit = one ? a : z;
  if (n > 0 && *start == 0 && *step == 1)
    sizes.push_back({SizeArg::Dim, 0, {n}, {limit.sym()}, c.args.exprs[static_cast<std::size_t>(c.signature.index(param))]});
  double s = *start, k = *step;
  std::vector<const char*> numbers;
  if (sizes.empty()) numbers = {"start", "end", "step"};
  Value v =
      line(c, n, c.dtype().value_or(type), std::move(sizes), numbers, [s, k](std::int64_t i) { return s + static_cast<double>(i) * k; });
  return v;
}

Value linspace(Call& c) {
  auto a = c.d.number(c.arg("start")), z = c.d.number(c.arg("end"));
  auto n = c.d.integer(c.arg("steps"));
  if (!n) return unknown_size(c);
  std::vector<SizeArg> sizes = {
      {SizeArg::Dim, 0, {*n}, {c.arg("steps").sym()}, c.args.exprs[static_cast<std::size_t>(c.signature.index("steps"))]}};
  bool logs = last_name(c.name) == "logspace";
  double base = c.real("base", 10.0);
  DType type = c.dtype().value_or(c.d.default_dtype);
  if (!a || !z) {
    Value v = line(c, *n, type, std::move(sizes), {"start", "end"}, [](std::int64_t) { return 0.0; });
    c.d.values.erase(c.d.id(v));
    return v;
  }
  double lo = *a, hi = *z, last = static_cast<double>(std::max<std::int64_t>(*n - 1, 1));
  std::int64_t count = *n;
  return line(c, *n, type, std::move(sizes), {"start", "end"}, [=](std::int64_t i) {
    // As PyTorch does it: from the start in the first half, from the end in the second.
    double step = (hi - lo) / last;
    double x = i < count / 2 || count == 1 ? lo + static_cast<double>(i) * step : hi - static_cast<double>(count - 1 - i) * step;
    return logs ? std::pow(base, x) : x;
  });
}

Value eye(Call& c) {
  auto n = c.d.integer(c.arg("n"));
  auto m = c.has("m") ? c.d.integer(c.arg("m")) : n;
  if (!n || !m) return unknown_size(c);
  Domain::Sizes s;
  s.values = {*n, *m};
  s.syms = {c.arg("n").sym(), c.has("m") ? c.arg("m").sym() : c.arg("n").sym()};
  s.exprs = {nullptr, nullptr};
  return created(c, s, c.dtype().value_or(c.d.default_dtype), std::nullopt);
}

struct Flat {
  Shape shape;
  Values values;
  bool known = true;
  bool floats = false, bools = true, complex = false;
  std::vector<TensorId> tensors;
};

/// Nested lists of numbers → shape and numbers.
void flatten(Call& c, const Value& v, std::size_t depth, Flat& f) {
  if (v.is(Kind::Tuple) || v.is(Kind::List)) {
    const auto& items = v.as<SeqObj>()->items;
    if (f.shape.size() == depth) f.shape.push_back(static_cast<std::int64_t>(items.size()));
    for (const Value& x : items) flatten(c, x, depth + 1, f);
    return;
  }
  if (v.is(Kind::Tensor)) {
    TensorId t = c.d.id(v);
    f.tensors.push_back(t);
    if (model::is_floating(c.d.tensor(t).dtype)) f.floats = true;
    if (c.d.tensor(t).dtype != DType::Bool) f.bools = false;
    if (f.shape.size() == depth) f.shape.insert(f.shape.end(), c.d.shape(t).begin(), c.d.shape(t).end());
    if (const Values* k = c.d.known(t)) f.values.insert(f.values.end(), k->begin(), k->end());
    else f.known = false;
    return;
  }
  if (v.is(Kind::Complex)) f.complex = true;
  if (!v.is(Kind::Bool)) f.bools = false;
  if (v.is(Kind::Float)) f.floats = true;
  if (v.is_number()) f.values.push_back(v.as_double());
  else f.known = false;
}

Value tensor(Call& c) {
  Value data = c.arg("data");
  if (data.is_unknown()) return data;
  if (data.is(Kind::Tensor)) {
    if (auto type = c.dtype()) {
      TensorId t = c.d.cast("torch.Tensor.to", c.site, c.d.id(data), *type, c.expr("data"));
      return t == c.d.id(data) ? data : c.d.wrap(t);
    }
    return last_name(c.name) == "tensor" ? c.d.wrap(c.d.id(data)) : data;
  }
  Flat f;
  if (data.is(Kind::Host)) {
    // An array: shape and, when small, its numbers through tolist().
    Value shape = c.in.getattr_or(data, "shape", c.info.call);
    auto sizes = shape.set() ? c.d.integers(shape) : std::nullopt;
    if (!sizes) return c.in.unknown("tensor from an object that is not understood", c.info.call);
    Value list = count_of(*sizes) <= static_cast<double>(max_values) ? c.in.getattr_or(data, "tolist", c.info.call) : Value::unset();
    if (list.set()) {
      Value items = c.in.call(list, {}, c.info.call);
      if (!items.is_unknown()) flatten(c, items, 0, f);
      else f.known = false;
    } else {
      f.known = false;
    }
    f.shape = *sizes;
    Value type = c.in.getattr_or(data, "dtype", c.info.call);
    std::string name = type.set() ? c.in.to_str(type) : "float64";
    f.bools = name.find("bool") != std::string::npos;
    f.floats = name.find("float") != std::string::npos;
    DType dt = f.bools                              ? DType::Bool
        : name.find("float32") != std::string::npos ? DType::F32
        : f.floats                                  ? DType::F64
        : name.find("complex") != std::string::npos ? DType::C128
        : name.find("int32") != std::string::npos   ? DType::I32
                                                    : DType::I64;
    Build b = c.build(Prim::Create);
    b.gradient = false;
    TensorId t = b.done({{f.shape, c.dtype().value_or(dt), {}}})[0];
    if (f.known) c.d.know(t, std::move(f.values));
    return c.d.wrap(t);
  }
  if (data.is(Kind::Range)) data = c.in.list(c.in.to_vector(data));
  if (!data.is_number() && !data.is(Kind::Complex) && !data.is(Kind::Tuple) && !data.is(Kind::List))
    return c.in.unknown("tensor from an object that is not understood", c.info.call);
  flatten(c, data, 0, f);
  DType type = f.complex                      ? DType::C64
      : f.floats                              ? c.d.default_dtype
      : f.bools && !f.values.empty()          ? DType::Bool
      : f.values.empty() && f.tensors.empty() ? c.d.default_dtype
                                              : DType::I64;
  Build b = c.build(Prim::Create);
  b.gradient = false;
  for (std::size_t i = 0; i < f.tensors.size(); ++i) b.operand(f.tensors[i], std::to_string(i));
  if (!f.tensors.empty()) {
    b.op.prim = Prim::Opaque;
    b.op.note = "tensor made from a list of tensors";
  }
  type = c.dtype().value_or(type);
  TensorId t = b.done({{f.shape, type, {}}})[0];
  if (f.known) {
    if (type == DType::Bool)
      for (double& x : f.values) x = x != 0;
    c.d.know(t, std::move(f.values));
  }
  return c.d.wrap(t);
}

Value randperm(Call& c) {
  Domain::Sizes s = named_sizes(c, "n");
  if (s.unknown) return unknown_size(c);
  return created(c, s, c.dtype().value_or(DType::I64), std::nullopt);
}

/// zeros_like and friends: a new tensor whose dimensions are those of the input.
Value like(Call& c) {
  TensorId t = c.tensor("input");
  const model::Tensor source = c.d.tensor(t);
  Build b = c.build(Prim::Labelled);
  b.op.linearity = Linearity::Nonlinear;
  b.gradient = false;
  std::vector<int> labels = b.fresh(t);
  b.operand(t, "input", c.expr("input"));
  b.op.in = {labels};
  b.op.out = {labels};
  b.op.note = "values do not depend on the operand";
  if (last_name(c.name) == "full_like") b.op.scalar_args = c.d.scalars(c.arg("fill_value"), c.expr("fill_value"));
  TensorId r = b.done({{source.shape, c.dtype().value_or(source.dtype), source.literal_one}})[0];
  std::optional<double> fill = fill_of(last_name(c.name));
  if (last_name(c.name) == "full_like") fill = c.d.number(c.arg("fill_value"));
  if (fill && model::numel(source) <= max_values) c.d.know(r, Values(static_cast<std::size_t>(model::numel(source)), *fill));
  model::Tensor& out = c.in.trace.tensors[static_cast<std::size_t>(r)];
  out.from_input = out.from_parameter = false;
  return c.d.wrap(r);
}

Value new_like(Call& c) {
  Domain::Sizes s = !c.args.rest.empty() ? c.d.sizes(c.args.rest, c.args.rest_exprs) : Domain::Sizes{};
  for (const Keyword& k : c.args.keywords)
    if (k.name == "size") s = c.d.sizes({k.value}, {k.expr});
  if (s.unknown) return unknown_size(c);
  return created(c, s, c.dtype().value_or(c.d.tensor(c.tensor("input")).dtype), fill_of(last_name(c.name)));
}

Value new_full(Call& c) {
  Domain::Sizes s = named_sizes(c, "size");
  if (s.unknown) return unknown_size(c);
  return created(c, s, c.dtype().value_or(c.d.tensor(c.tensor("input")).dtype), c.d.number(c.arg("fill_value")), 0,
                 c.d.scalars(c.arg("fill_value"), c.expr("fill_value")));
}

Value new_tensor(Call& c) {
  return c.d.call_op("torch.tensor", {c.arg("data")}, c.info.call, {},
                     {{"dtype", c.d.dtype_value(c.dtype().value_or(c.d.tensor(c.tensor("input")).dtype)), nullptr}});
}

Value triangle_indices(Call& c) {
  auto rows = c.d.integer(c.arg("row")), cols = c.d.integer(c.arg("col"));
  if (!rows || !cols) return unknown_size(c);
  std::int64_t offset = c.integer("offset", 0), n = 0;
  bool upper = last_name(c.name).starts_with("triu");
  for (std::int64_t i = 0; i < *rows; ++i)
    n += upper ? std::clamp<std::int64_t>(*cols - (i + offset), 0, *cols) : std::clamp<std::int64_t>(i + offset + 1, 0, *cols);
  Domain::Sizes s;
  s.values = {2, n};
  s.syms = {nullptr, nullptr};
  s.exprs = {nullptr, nullptr};
  return created(c, s, c.dtype().value_or(DType::I64), std::nullopt);
}

Value window(Call& c) {
  Domain::Sizes s = named_sizes(c, "window_length");
  if (s.unknown) return unknown_size(c);
  return created(c, s, c.dtype().value_or(c.d.default_dtype), std::nullopt);
}

// ---- Fourier transforms ------------------------------------------------------------------------------------------------------------

DType complex_of(DType d) { return d == DType::F64 || d == DType::C128 ? DType::C128 : DType::C64; }
DType real_of(DType d) { return d == DType::C128 || d == DType::F64 ? DType::F64 : DType::F32; }

Value fft(Call& c) {
  TensorId t = c.tensor("input");
  const model::Tensor source = c.d.tensor(t);
  std::size_t rank = source.shape.size();
  const std::string which = last_name(c.name);
  const char* size_param = c.signature.index("n") >= 0 ? "n" : "s";
  std::vector<std::int64_t> lengths;
  if (c.has(size_param)) {
    auto list = c.d.integers(c.arg(size_param));
    if (!list) return unknown_size(c);
    lengths = *list;
  }
  std::vector<int> dims;
  if (c.has("dim")) dims = c.dims("dim", rank).value_or(std::vector<int>{});
  else {
    std::size_t n = lengths.empty() ? rank : lengths.size();
    for (std::size_t i = rank - n; i < rank; ++i) dims.push_back(static_cast<int>(i));
  }
  Shape s = source.shape;
  for (std::size_t i = 0; i < dims.size() && i < lengths.size(); ++i)
    if (lengths[i] != -1) s[static_cast<std::size_t>(dims[i])] = lengths[i];
  bool half = which.starts_with("rfft") || which == "ihfft", whole = which.starts_with("irfft") || which == "hfft";
  if (!dims.empty()) {
    std::size_t last = static_cast<std::size_t>(dims.back());
    if (half) s[last] = s[last] / 2 + 1;
    if (whole && lengths.size() < dims.size()) s[last] = 2 * (source.shape[last] - 1);
  }
  TensorId r = resized(c, t, dims, s, whole ? real_of(source.dtype) : complex_of(source.dtype));
  double n = count_of(s);
  c.in.trace.ops.back().flops = 5 * n * std::log2(std::max(n, 2.0));
  return c.d.wrap(r);
}

Value fftshift(Call& c) {
  TensorId t = c.tensor("input");
  std::size_t rank = c.d.shape(t).size();
  auto dims = c.dims("dim", rank);
  std::vector<int> whole = dims.value_or(std::vector<int>{});
  if (!dims)
    for (std::size_t i = 0; i < rank; ++i) whole.push_back(static_cast<int>(i));
  return c.d.wrap(c.d.keep(c, t, whole, {c.d.tensor(t).dtype})[0]);
}

/// Of numbers that are known: schedules and stage widths are computed with it.
Value unique(Call& c) {
  TensorId t = c.tensor("input");
  const Values* known = c.d.known(t);
  if (!known || c.has("dim")) return c.in.unknown("the size of the result of " + c.name + " depends on data", c.info.call);
  const Values source = *known;
  Values values = source;
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  Values inverse, counts(values.size(), 0);
  for (double x : source) {
    auto at = std::lower_bound(values.begin(), values.end(), x) - values.begin();
    inverse.push_back(static_cast<double>(at));
    counts[static_cast<std::size_t>(at)] += 1;
  }
  std::vector<Value> out;
  auto result = [&](Shape shape, DType type, Values v) {
    Build b = c.build(Prim::Opaque);
    b.operand(t, "input", c.expr("input"));
    b.op.note = "unique values";
    b.gradient = false;
    TensorId r = b.done({{std::move(shape), type, {}}})[0];
    c.d.know(r, std::move(v));
    out.push_back(c.d.wrap(r));
  };
  std::int64_t n = static_cast<std::int64_t>(values.size());
  result({n}, c.d.tensor(t).dtype, values);
  if (c.flag("return_inverse", false)) result(c.d.shape(t), DType::I64, inverse);
  if (c.flag("return_counts", false)) result({n}, DType::I64, counts);
  return out.size() == 1 ? out[0] : c.in.tuple(std::move(out));
}

Value fftfreq(Call& c) {
  auto n = c.d.integer(c.arg("n"));
  if (!n) return unknown_size(c);
  Domain::Sizes s = named_sizes(c, "n");
  if (last_name(c.name) == "rfftfreq") {
    s.values = {*n / 2 + 1};
    s.syms = {nullptr};
    s.exprs = {nullptr};
  }
  return created(c, s, c.dtype().value_or(c.d.default_dtype), std::nullopt);
}

}  // namespace

Table create_functions() {
  return {{"create", create},
          {"full", full},
          {"randint", randint},
          {"arange", arange},
          {"linspace", linspace},
          {"eye", eye},
          {"tensor", tensor},
          {"randperm", randperm},
          {"like", like},
          {"new", new_like},
          {"new_full", new_full},
          {"new_tensor", new_tensor},
          {"triangle_indices", triangle_indices},
          {"unique", unique},
          {"window", window},
          {"fft", fft},
          {"fftshift", fftshift},
          {"fftfreq", fftfreq}};
}

}  // namespace shardwright::eval::torch
