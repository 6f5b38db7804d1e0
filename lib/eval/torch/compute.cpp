#include "eval/torch/compute.h"

#include <algorithm>

namespace shardwright::eval::torch {

double count_of(const Shape& s) {
  double n = 1;
  for (auto d : s) n *= static_cast<double>(d);
  return n;
}

std::string last_name(const std::string& q) { return q.substr(q.rfind('.') + 1); }

std::optional<std::vector<Value>> tensor_list(Call& c, std::string_view param) {
  Value v = c.arg(param);
  std::vector<Value> items;
  if (v.is(Kind::Tuple) || v.is(Kind::List)) items = v.as<SeqObj>()->items;
  else if (v.is(Kind::Tensor)) items = c.d.iterate(c.in, v, nullptr);
  else if (v.is_unknown()) return std::nullopt;
  else items = c.in.to_vector(v, c.info.call);
  for (Value& x : items) {
    take_first(c.d, x, c.info.call);
    if (x.is_unknown()) return std::nullopt;
    if (!x.is(Kind::Tensor))
      c.in.raise("TypeError", "expected Tensor as element in argument 0, but got " + c.in.type_of(x)->name, c.info.call);
  }
  return items;
}

std::vector<const program::Expr*> element_exprs(const program::Expr* list, std::size_t n) {
  std::vector<const program::Expr*> out(n, nullptr);
  if (!list || (list->kind != program::ExprKind::Tuple && list->kind != program::ExprKind::List) || list->kids.size() != n) return out;
  for (const program::Expr* kid : list->kids)
    if (kid->kind == program::ExprKind::Starred) return out;
  return {list->kids.begin(), list->kids.end()};
}

std::optional<Shape> spatial(Domain& d, const Value& v, std::size_t rank, std::int64_t fallback) {
  if (v.is_none()) return Shape(rank, fallback);
  auto list = d.integers(v);
  if (!list) return std::nullopt;
  if (list->size() == 1) return Shape(rank, (*list)[0]);
  if (list->size() != rank) return std::nullopt;
  return *list;
}

TensorId resized(Call& c, TensorId t, const std::vector<int>& whole, const Shape& shape, std::optional<DType> dtype) {
  Domain& d = c.d;
  Build b = c.build(model::Prim::Labelled);
  std::vector<int> labels = b.fresh(t);
  const model::Tensor source = d.tensor(t);
  std::vector<int> out = labels;
  const std::string why = c.rule.why.empty() ? last_name(c.name) : c.rule.why;
  for (int i : whole) {
    std::size_t k = static_cast<std::size_t>(i);
    if (labels[k] >= 0) {
      b.op.labels[static_cast<std::size_t>(labels[k])].blocked = true;
      b.op.labels[static_cast<std::size_t>(labels[k])].why = why;
    }
    if (shape[k] != source.shape[k] || labels[k] < 0) out[k] = b.label(shape[k], true, why);
  }
  b.operand(t, c.rule.signature[0].name, c.expr(c.rule.signature[0].name));
  b.op.in.push_back(labels);
  b.op.out.push_back(out);
  b.op.flops = count_of(shape);
  std::vector<char> ones = source.literal_one;
  for (int i : whole) ones[static_cast<std::size_t>(i)] = 0;
  return b.done({{shape, dtype.value_or(source.dtype), ones}})[0];
}

const std::unordered_map<std::string_view, Compute>& compute_functions() {
  static const std::unordered_map<std::string_view, Compute> table = [] {
    std::unordered_map<std::string_view, Compute> t;
    for (const Table& part : {pointwise_functions(), shape_functions(), reduce_functions(), linalg_functions(), spatial_functions(),
                              index_functions(), create_functions()})
      for (const auto& [name, f] : part) t.emplace(name, f);
    return t;
  }();
  return table;
}

}  // namespace shardwright::eval::torch
