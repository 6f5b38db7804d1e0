// Numbers of small tensors made from constants: drop-path schedules, window sizes, frequency tables are computed with tensors
// and read back as Python numbers, so the values must come out as they would.
#include <algorithm>
#include <cmath>

#include "eval/torch/domain.h"

namespace shardwright::eval::torch::known {
namespace {

Shape unravel(std::int64_t index, const Shape& shape) {
  Shape at(shape.size());
  for (std::size_t i = shape.size(); i-- > 0;) {
    at[i] = index % shape[i];
    index /= shape[i];
  }
  return at;
}

std::int64_t ravel(const Shape& at, const Shape& shape) {
  std::int64_t index = 0;
  for (std::size_t i = 0; i < shape.size(); ++i) index = index * shape[i] + at[i];
  return index;
}

double floor_mod(double a, double b) {
  double r = std::fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

}  // namespace

std::optional<double> evaluate(std::string_view op, const std::vector<double>& v) {
  const double a = v[0];
  if (v.size() == 1) {
    if (op == "neg" || op == "negative") return -a;
    if (op == "positive" || op == "clone" || op == "contiguous" || op == "detach") return a;
    if (op == "exp") return std::exp(a);
    if (op == "log") return std::log(a);
    if (op == "log2") return std::log2(a);
    if (op == "log10") return std::log10(a);
    if (op == "log1p") return std::log1p(a);
    if (op == "sin") return std::sin(a);
    if (op == "cos") return std::cos(a);
    if (op == "tan") return std::tan(a);
    if (op == "tanh") return std::tanh(a);
    if (op == "sqrt") return std::sqrt(a);
    if (op == "rsqrt") return 1 / std::sqrt(a);
    if (op == "reciprocal") return 1 / a;
    if (op == "square") return a * a;
    if (op == "abs" || op == "absolute") return std::fabs(a);
    if (op == "floor") return std::floor(a);
    if (op == "ceil") return std::ceil(a);
    if (op == "round") return std::nearbyint(a);
    if (op == "trunc") return std::trunc(a);
    if (op == "sign") return (a > 0) - (a < 0);
    if (op == "sigmoid") return 1 / (1 + std::exp(-a));
    if (op == "isnan") return std::isnan(a);
    if (op == "isinf") return std::isinf(a);
    if (op == "isfinite") return std::isfinite(a);
    if (op == "logical_not") return a == 0;
    if (op == "bitwise_not") return -a - 1;
    return std::nullopt;
  }
  const double b = v[1];
  if (v.size() == 2) {
    if (op == "add") return a + b;
    if (op == "sub" || op == "subtract") return a - b;
    if (op == "rsub") return b - a;
    if (op == "mul" || op == "multiply") return a * b;
    if (op == "div" || op == "divide" || op == "true_divide") return a / b;
    if (op == "floor_divide") return std::floor(a / b);
    if (op == "remainder") return floor_mod(a, b);
    if (op == "fmod") return std::fmod(a, b);
    if (op == "pow") return std::pow(a, b);
    if (op == "maximum") return std::max(a, b);
    if (op == "minimum") return std::min(a, b);
    if (op == "eq") return a == b;
    if (op == "ne") return a != b;
    if (op == "lt") return a < b;
    if (op == "le") return a <= b;
    if (op == "gt") return a > b;
    if (op == "ge") return a >= b;
    if (op == "logical_and") return a != 0 && b != 0;
    if (op == "logical_or") return a != 0 || b != 0;
    if (op == "bitwise_and") return static_cast<double>(static_cast<std::int64_t>(a) & static_cast<std::int64_t>(b));
    if (op == "bitwise_or") return static_cast<double>(static_cast<std::int64_t>(a) | static_cast<std::int64_t>(b));
    if (op == "bitwise_xor") return static_cast<double>(static_cast<std::int64_t>(a) ^ static_cast<std::int64_t>(b));
    if (op == "clamp_min") return std::max(a, b);
    if (op == "clamp_max") return std::min(a, b);
  }
  if (v.size() == 3 && op == "where") return a != 0 ? b : v[2];
  if (v.size() == 3 && op == "masked_fill") return b != 0 ? v[2] : a;
  return std::nullopt;
}

void elementwise(Domain& d, std::string_view op, const std::vector<Value>& operands, TensorId out) {
  if (op == "bitwise_not" && d.tensor(out).dtype == DType::Bool) op = "logical_not";
  const Shape shape = d.shape(out);
  std::int64_t n = model::numel(d.tensor(out));
  if (n > max_values) return;
  std::vector<const Values*> tables;
  for (const Value& v : operands) {
    if (v.is(Kind::Tensor)) {
      const Values* k = d.known(d.id(v));
      if (!k) return;
      tables.push_back(k);
    } else if (v.is_number()) {
      tables.push_back(nullptr);
    } else {
      return;
    }
  }
  Values result;
  result.reserve(static_cast<std::size_t>(n));
  std::vector<double> args(operands.size());
  for (std::int64_t i = 0; i < n; ++i) {
    Shape at = unravel(i, shape);
    for (std::size_t k = 0; k < operands.size(); ++k) {
      if (!tables[k]) {
        args[k] = operands[k].as_double();
        continue;
      }
      const Shape& s = d.shape(d.id(operands[k]));
      Shape own(s.size());
      for (std::size_t j = 0; j < s.size(); ++j) own[j] = s[j] == 1 ? 0 : at[shape.size() - s.size() + j];
      args[k] = (*tables[k])[static_cast<std::size_t>(ravel(own, s))];
    }
    auto x = evaluate(op, args);
    if (!x) return;
    result.push_back(*x);
  }
  if (!model::is_floating(d.tensor(out).dtype))
    for (double& x : result) x = std::trunc(x);
  d.know(out, std::move(result));
}

void reduce(Domain& d, std::string_view op, TensorId in, const std::vector<int>& dims, TensorId out) {
  const Values* k = d.known(in);
  if (!k || k->empty()) return;
  const Shape shape = d.shape(in);
  Shape kept;
  std::int64_t n = 1, per = 1;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    bool gone = std::find(dims.begin(), dims.end(), static_cast<int>(i)) != dims.end();
    kept.push_back(gone ? 1 : shape[i]);
    n *= kept.back();
    if (gone) per *= shape[i];
  }
  Values result(static_cast<std::size_t>(n));
  std::vector<char> seen(static_cast<std::size_t>(n), 0);
  for (std::size_t i = 0; i < k->size(); ++i) {
    Shape at = unravel(static_cast<std::int64_t>(i), shape);
    for (std::size_t j = 0; j < at.size(); ++j)
      if (kept[j] == 1) at[j] = 0;
    std::size_t o = static_cast<std::size_t>(ravel(at, kept));
    double x = (*k)[i];
    if (!seen[o]) {
      seen[o] = 1;
      result[o] = op == "any" || op == "all" ? x != 0 : x;
      continue;
    }
    if (op == "sum" || op == "mean") result[o] += x;
    else if (op == "prod") result[o] *= x;
    else if (op == "max" || op == "amax") result[o] = std::max(result[o], x);
    else if (op == "min" || op == "amin") result[o] = std::min(result[o], x);
    else if (op == "any") result[o] = result[o] != 0 || x != 0;
    else if (op == "all") result[o] = result[o] != 0 && x != 0;
    else return;
  }
  if (op == "mean")
    for (double& x : result) x /= static_cast<double>(per);
  else if (op != "sum" && op != "prod" && op != "max" && op != "amax" && op != "min" && op != "amin" && op != "any" && op != "all") return;
  d.know(out, std::move(result));
}

void gather(Domain& d, TensorId in, TensorId out, const std::function<std::int64_t(const Shape&)>& source) {
  const Values* k = d.known(in);
  const Shape shape = d.shape(out);
  std::int64_t n = model::numel(d.tensor(out));
  if (!k || n > max_values) return;
  Values result;
  for (std::int64_t i = 0; i < n; ++i) {
    std::int64_t s = source(unravel(i, shape));
    if (s < 0 || s >= static_cast<std::int64_t>(k->size())) return;
    result.push_back((*k)[static_cast<std::size_t>(s)]);
  }
  d.know(out, std::move(result));
}

void permute(Domain& d, TensorId in, const std::vector<int>& order, TensorId out) {
  const Shape shape = d.shape(in);
  gather(d, in, out, [&](const Shape& at) {
    Shape from(shape.size());
    for (std::size_t i = 0; i < order.size(); ++i) from[static_cast<std::size_t>(order[i])] = at[i];
    return ravel(from, shape);
  });
}

void concat(Domain& d, const std::vector<TensorId>& in, int dim, TensorId out) {
  const Shape shape = d.shape(out);
  std::int64_t n = model::numel(d.tensor(out));
  if (n > max_values) return;
  for (TensorId t : in)
    if (!d.known(t)) return;
  Values result;
  for (std::int64_t i = 0; i < n; ++i) {
    Shape at = unravel(i, shape);
    for (TensorId t : in) {
      std::int64_t size = d.shape(t)[static_cast<std::size_t>(dim)];
      if (at[static_cast<std::size_t>(dim)] < size) {
        result.push_back((*d.known(t))[static_cast<std::size_t>(ravel(at, d.shape(t)))]);
        break;
      }
      at[static_cast<std::size_t>(dim)] -= size;
    }
  }
  d.know(out, std::move(result));
}

}  // namespace shardwright::eval::torch::known
