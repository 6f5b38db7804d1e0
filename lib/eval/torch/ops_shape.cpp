// Views, permutations, splits and joins: where the factors of dimensions come from.
#include <algorithm>
#include <numeric>

#include "eval/torch/compute.h"
#include "model/shape.h"

namespace shardwright::eval::torch {

using model::Linearity;
using model::Prim;
using model::SizeArg;

namespace {

/// A method's sizes come as *args, a function's as one parameter.
Domain::Sizes sizes_of(Call& c, const char* param) {
  if (!c.args.rest.empty()) return c.d.sizes(c.args.rest, c.args.rest_exprs);
  for (const Keyword& k : c.args.keywords)
    if (k.name == param || k.name == "dims" || k.name == "dim" || k.name == "size" || k.name == "shape")
      return c.d.sizes({k.value}, {k.expr});
  if (c.signature.index(param) >= 0 && c.has(param))
    return c.d.sizes({c.arg(param)}, {c.args.exprs[static_cast<std::size_t>(c.signature.index(param))]});
  return {};
}

Value unknown_size(Call& c) { return c.in.unknown("a size given to " + c.name + " is not known", c.info.call); }

std::vector<int> order_of(std::size_t n) {
  std::vector<int> o(n);
  std::iota(o.begin(), o.end(), 0);
  return o;
}

int wrap_dim(Call& c, std::int64_t d, std::size_t rank) {
  std::int64_t n = static_cast<std::int64_t>(rank);
  if (d < -n || d >= n)
    c.in.raise("IndexError",
               "Dimension out of range (expected to be in range of [" + std::to_string(-n) + ", " + std::to_string(n - 1) + "], but got " +
                   std::to_string(d) + ")",
               c.info.call);
  return static_cast<int>(d < 0 ? d + n : d);
}

/// Fills in -1; raises like PyTorch when it does not fit.
void infer(Call& c, TensorId t, Shape& target) {
  std::int64_t n = model::numel(c.d.tensor(t)), known = 1;
  std::ptrdiff_t hole = -1;
  for (std::size_t i = 0; i < target.size(); ++i) {
    if (target[i] == -1) hole = static_cast<std::ptrdiff_t>(i);
    else known *= target[i];
  }
  bool fits = hole >= 0 ? known != 0 && n % known == 0 : known == n;
  if (!fits)
    c.in.raise("RuntimeError", "shape '" + model::shape_text(target) + "' is invalid for input of size " + std::to_string(n), c.info.call);
  if (hole >= 0) target[static_cast<std::size_t>(hole)] = n / known;
}

/// A 1 written as a literal has no factor; one that came from a size (it carries a Sym) has.
std::vector<char> literal_ones(const Domain::Sizes& s, const Shape& target) {
  std::vector<char> ones(target.size(), 0);
  for (std::size_t i = 0; i < target.size() && i < s.values.size(); ++i)
    ones[i] = s.values[i] == 1 && !s.syms[i] && s.exprs[i] && s.exprs[i]->kind == program::ExprKind::Int;
  return ones;
}

Value reshape(Call& c) {
  if (c.has("dtype")) return c.in.unknown("view as another type", c.info.call);
  if (c.args.rest.size() == 1 && c.d.as_dtype(c.args.rest[0]))
    return c.d.wrap(c.d.opaque(c.name, c.site, {c.tensor("input")}, {c.d.shape(c.tensor("input")), *c.d.as_dtype(c.args.rest[0]), {}},
                               "view as another type"));
  Domain::Sizes s = c.signature.index("size") >= 0 && c.has("size") ? sizes_of(c, "size") : sizes_of(c, "shape");
  if (s.unknown) return unknown_size(c);
  TensorId t = c.tensor("input");
  Shape target = s.values;
  infer(c, t, target);
  return c.d.wrap(c.d.reshape(c.name, c.site, t, target, literal_ones(s, target), c.d.size_args(s), c.expr("input")));
}

Value view_as(Call& c) {
  TensorId t = c.tensor("input");
  const Shape target = c.d.shape(c.tensor("other"));
  return c.d.wrap(c.d.reshape(c.name, c.site, t, target, {}, {}, c.expr("input")));
}

Value flatten(Call& c) {
  TensorId t = c.tensor("input");
  const int rank = static_cast<int>(c.d.shape(t).size());
  if (rank == 0) return c.d.wrap(c.d.merge(c.name, c.site, t, {}, 1, c.expr("input")));
  const int a = c.dim("start_dim", c.d.shape(t).size(), 0), b = std::max(a, c.dim("end_dim", c.d.shape(t).size(), -1));
  std::vector<int> into;
  for (int i = 0; i < rank; ++i) into.push_back(i <= a ? i : i <= b ? a : i - (b - a));
  return c.d.wrap(c.d.merge(c.name, c.site, t, into, static_cast<std::size_t>(rank - (b - a)), c.expr("input")));
}

Value unflatten(Call& c) {
  TensorId t = c.tensor("input");
  Shape s = c.d.shape(t);
  int at = c.dim("dim", s.size(), 0);
  Domain::Sizes sizes = sizes_of(c, "sizes");
  if (sizes.unknown) return unknown_size(c);
  Shape parts = sizes.values;
  std::int64_t known = 1;
  for (auto p : parts)
    if (p != -1) known *= p;
  for (auto& p : parts)
    if (p == -1 && known != 0) p = s[static_cast<std::size_t>(at)] / known;
  if (count_of(parts) != static_cast<double>(s[static_cast<std::size_t>(at)]))
    c.in.raise("RuntimeError",
               "unflatten: Provided sizes " + model::shape_text(parts) + " don't multiply up to the size of dim " + std::to_string(at) +
                   " (" + std::to_string(s[static_cast<std::size_t>(at)]) + ") in the input tensor",
               c.info.call);
  Shape target(s.begin(), s.begin() + at);
  std::vector<char> ones(c.d.tensor(t).literal_one.begin(), c.d.tensor(t).literal_one.begin() + at);
  target.insert(target.end(), parts.begin(), parts.end());
  for (char o : literal_ones(sizes, parts)) ones.push_back(o);
  target.insert(target.end(), s.begin() + at + 1, s.end());
  return c.d.wrap(c.d.reshape(c.name, c.site, t, target, ones, c.d.size_args(sizes, SizeArg::Dim, at), c.expr("input")));
}

Value squeeze(Call& c) {
  TensorId t = c.tensor("input");
  const model::Tensor source = c.d.tensor(t);
  std::vector<int> gone;
  std::vector<Value> given = c.args.rest;
  if (given.size() == 1 && (given[0].is(Kind::Tuple) || given[0].is(Kind::List))) given = std::vector<Value>(given[0].as<SeqObj>()->items);
  for (const Keyword& k : c.args.keywords)
    if (k.name == "dim") given.push_back(k.value);
  if (given.empty()) {
    for (std::size_t i = 0; i < source.shape.size(); ++i)
      if (source.shape[i] == 1) gone.push_back(static_cast<int>(i));
  } else {
    for (const Value& v : given)
      if (auto n = c.d.integers(v))
        for (auto d : *n)
          if (int k = wrap_dim(c, d, source.shape.size()); source.shape[static_cast<std::size_t>(k)] == 1) gone.push_back(k);
  }
  std::vector<int> into;
  int rank = 0;
  for (std::size_t i = 0; i < source.shape.size(); ++i)
    into.push_back(std::find(gone.begin(), gone.end(), static_cast<int>(i)) == gone.end() ? rank++ : -1);
  return c.d.wrap(c.d.merge(c.name, c.site, t, into, static_cast<std::size_t>(rank), c.expr("input")));
}

Value unsqueeze(Call& c) {
  TensorId t = c.tensor("input");
  const std::int64_t n = static_cast<std::int64_t>(c.d.shape(t).size()) + 1;
  std::int64_t at = c.integer("dim", 0);
  if (at < 0) at += n;
  if (at < 0 || at >= n)
    c.in.raise("IndexError",
               "Dimension out of range (expected to be in range of [" + std::to_string(-n) + ", " + std::to_string(n - 1) + "], but got " +
                   std::to_string(c.integer("dim", 0)) + ")",
               c.info.call);
  return c.d.wrap(c.d.insert_ones(c.name, c.site, t, {static_cast<std::size_t>(at)}, c.expr("input")));
}

Value permute(Call& c) {
  TensorId t = c.tensor("input");
  Domain::Sizes s = sizes_of(c, "dims");
  if (s.unknown) return unknown_size(c);
  std::size_t rank = c.d.shape(t).size();
  if (s.values.size() != rank)
    c.in.raise("RuntimeError",
               "permute(sparse_coo): number of dimensions in the tensor input does not match the length of the desired ordering of "
               "dimensions i.e. input.dim() = " +
                   std::to_string(rank) + " is not equal to len(dims) = " + std::to_string(s.values.size()),
               c.info.call);
  std::vector<int> order;
  for (auto d : s.values) order.push_back(wrap_dim(c, d, rank));
  return c.d.wrap(c.d.permute(c.name, c.site, t, order, c.expr("input")));
}

Value transpose(Call& c) {
  TensorId t = c.tensor("input");
  std::size_t rank = c.d.shape(t).size();
  std::vector<int> order = order_of(rank);
  if (rank) std::swap(order[static_cast<std::size_t>(c.dim("dim0", rank, 0))], order[static_cast<std::size_t>(c.dim("dim1", rank, 1))]);
  return c.d.wrap(c.d.permute(c.name, c.site, t, order, c.expr("input")));
}

Value matrix_transpose(Call& c) {
  TensorId t = c.tensor("input");
  std::vector<int> order = order_of(c.d.shape(t).size());
  if (order.size() >= 2) std::swap(order[order.size() - 1], order[order.size() - 2]);
  return c.d.wrap(c.d.permute(c.name, c.site, t, order, c.expr("input")));
}

Value movedim(Call& c) {
  TensorId t = c.tensor("input");
  std::size_t rank = c.d.shape(t).size();
  auto from = c.dims("source", rank), to = c.dims("destination", rank);
  if (!from || !to || from->size() != to->size()) return unknown_size(c);
  std::vector<int> order(rank, -1);
  for (std::size_t i = 0; i < from->size(); ++i) order[static_cast<std::size_t>((*to)[i])] = (*from)[i];
  std::size_t next = 0;
  for (std::size_t i = 0; i < rank; ++i) {
    if (order[i] >= 0) continue;
    while (std::find(from->begin(), from->end(), static_cast<int>(next)) != from->end()) ++next;
    order[i] = static_cast<int>(next++);
  }
  return c.d.wrap(c.d.permute(c.name, c.site, t, order, c.expr("input")));
}

Value expand(Call& c) {
  Domain::Sizes s = sizes_of(c, "size");
  if (s.unknown) return unknown_size(c);
  TensorId t = c.tensor("input");
  const Shape source = c.d.shape(t);
  Shape target = s.values;
  if (target.size() < source.size())
    c.in.raise("RuntimeError",
               "expand(): the number of sizes provided (" + std::to_string(target.size()) +
                   ") must be greater or equal to the number of dimensions in the tensor (" + std::to_string(source.size()) + ")",
               c.info.call);
  std::size_t shift = target.size() - source.size();
  for (std::size_t i = shift; i < target.size(); ++i) {
    if (target[i] == -1) target[i] = source[i - shift];
    if (source[i - shift] != 1 && source[i - shift] != target[i])
      c.in.raise("RuntimeError",
                 "The expanded size of the tensor (" + std::to_string(target[i]) + ") must match the existing size (" +
                     std::to_string(source[i - shift]) + ") at non-singleton dimension " + std::to_string(i),
                 c.info.call);
  }
  return c.d.wrap(c.d.expand(c.name, c.site, t, target, c.d.size_args(s), c.expr("input")));
}

/// Labels shared with `other`, so that what is known of its dimensions is known of the result.
Value expand_as(Call& c) {
  TensorId t = c.tensor("input"), o = c.tensor("other");
  const model::Tensor source = c.d.tensor(t), like = c.d.tensor(o);
  Build b = c.build(Prim::Labelled);
  std::vector<int> labels = b.fresh(o), mine;
  for (std::size_t i = 0; i < source.shape.size(); ++i) {
    std::size_t j = like.shape.size() - source.shape.size() + i;
    mine.push_back(source.shape[i] == 1 && like.shape[j] != 1 ? -1 : labels[j]);
  }
  b.operand(t, "input", c.expr("input"));
  b.operand(o, "other", c.expr("other"));
  b.op.in = {mine, labels};
  b.op.out = {labels};
  b.op.linearity = Linearity::Linear;
  return c.d.wrap(b.done({{like.shape, source.dtype, like.literal_one}})[0]);
}

Value broadcast_tensors(Call& c) {
  std::vector<Shape> shapes;
  std::vector<Value> items = c.args.rest;
  if (items.size() == 1 && (items[0].is(Kind::Tuple) || items[0].is(Kind::List))) items = std::vector<Value>(items[0].as<SeqObj>()->items);
  for (const Value& v : items) {
    if (!v.is(Kind::Tensor)) return c.in.unknown("broadcast_tensors of something that is no tensor", c.info.call);
    shapes.push_back(c.d.shape(c.d.id(v)));
  }
  Shape target = c.d.broadcast(shapes, c.info.call);
  std::vector<Value> out;
  for (const Value& v : items) out.push_back(c.d.wrap(c.d.expand(c.name, c.site, c.d.id(v), target)));
  return c.in.tuple(std::move(out));
}

/// [a, b] → expand to [r0, a, r1, b] and merge: the repeats are the outer factor.
Value repeat(Call& c) {
  Domain::Sizes s = sizes_of(c, "repeats");
  if (s.unknown) return unknown_size(c);
  TensorId t = c.tensor("input");
  Shape times = s.values;
  model::Tensor source = c.d.tensor(t);
  while (times.size() < source.shape.size()) {
    if (c.name.ends_with("repeat"))
      c.in.raise("RuntimeError", "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor", c.info.call);
    times.insert(times.begin(), 1);
  }
  std::size_t shift = times.size() - source.shape.size();
  Shape padded(shift, 1);
  padded.insert(padded.end(), source.shape.begin(), source.shape.end());
  Shape merged;
  Build b = c.build(Prim::Labelled);
  b.op.linearity = Linearity::Linear;
  std::vector<int> in_labels = b.fresh(t), out_labels;
  Out wide{{}, source.dtype, {}};
  for (std::size_t i = 0; i < times.size(); ++i) {
    merged.push_back(padded[i] * times[i]);
    bool plain = i < shift || (padded[i] == 1 && source.literal_one[i - shift]);  // nothing there to keep: the repeats are the dimension
    if (times[i] != 1 || (i < shift)) {
      out_labels.push_back(b.label(times[i]));
      wide.shape.push_back(times[i]);
      wide.ones.push_back(0);
      if (plain) {
        if (i >= shift) in_labels[i - shift] = -1;
        continue;
      }
    }
    if (i < shift) continue;
    out_labels.push_back(in_labels[i - shift]);
    wide.shape.push_back(padded[i]);
    wide.ones.push_back(source.literal_one[i - shift]);
  }
  b.operand(t, "input", c.expr("input"));
  b.op.size_args = c.d.size_args(s);
  for (auto& a : b.op.size_args) {
    if (!c.site.direct) a.expr = nullptr;
    a.role = SizeArg::Dim;
  }
  b.op.in = {in_labels};
  b.op.out = {out_labels};
  bool merge = wide.shape != merged;
  TensorId r = b.done({wide})[0];
  if (const Values* k = c.d.known(t); k && source.shape.size() <= 1 && times.size() == 1) {
    Values v;
    for (std::int64_t i = 0; i < times[0]; ++i) v.insert(v.end(), k->begin(), k->end());
    c.d.know(r, std::move(v));
  }
  if (merge) r = c.d.reshape(c.name, c.site, r, merged);
  return c.d.wrap(r);
}

/// [.., n, ..] → expand to [.., n, r, ..] and merge: the repeats are the inner factor.
Value repeat_interleave(Call& c) {
  TensorId t = c.tensor("input");
  auto times = c.d.integer(c.arg("repeats"));
  if (!times) return c.in.unknown("repeat_interleave with a tensor of repeats has a size that depends on data", c.info.call);
  model::Tensor source = c.d.tensor(t);
  if (!c.has("dim")) {
    t = c.d.reshape(c.name, c.site, t, {model::numel(source)}, {}, {}, c.expr("input"));
    source = c.d.tensor(t);
  }
  std::size_t at = static_cast<std::size_t>(c.dim("dim", source.shape.size(), 0));
  Build b = c.build(Prim::Labelled);
  b.op.linearity = Linearity::Linear;
  std::vector<int> labels = b.fresh(t), wide = labels;
  Shape shape = source.shape, merged = source.shape;
  std::vector<char> ones = source.literal_one;
  merged[at] *= *times;
  wide.insert(wide.begin() + static_cast<std::ptrdiff_t>(at) + 1, b.label(*times));
  shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(at) + 1, *times);
  ones.insert(ones.begin() + static_cast<std::ptrdiff_t>(at) + 1, 0);
  b.operand(t, "input", c.expr("input"));
  b.op.in = {labels};
  b.op.out = {wide};
  TensorId r = b.done({{shape, source.dtype, ones}})[0];
  return c.d.wrap(c.d.reshape(c.name, c.site, r, merged));
}

Value cat(Call& c) {
  auto items = tensor_list(c, "tensors");
  if (!items) return c.in.unknown("torch.cat of something that is not known", c.info.call);
  if (items->empty()) c.in.raise("RuntimeError", "torch.cat(): expected a non-empty list of Tensors", c.info.call);
  auto exprs = element_exprs(c.expr("tensors"), items->size());
  // An empty one-dimensional tensor is dropped, as PyTorch does.
  for (std::size_t i = 0; i < items->size() && items->size() > 1;)
    if (c.d.shape(c.d.id((*items)[i])) == Shape{0}) {
      items->erase(items->begin() + static_cast<std::ptrdiff_t>(i));
      exprs.erase(exprs.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  std::size_t rank = c.d.shape(c.d.id((*items)[0])).size();
  int dim = c.has("axis") ? c.dim("axis", rank, 0) : c.dim("dim", rank, 0);
  return c.d.wrap(concat_of(c, c.name, *items, dim, exprs));
}

Value stack(Call& c) {
  auto items = tensor_list(c, "tensors");
  if (!items) return c.in.unknown("torch.stack of something that is not known", c.info.call);
  if (items->empty()) c.in.raise("RuntimeError", "stack expects a non-empty TensorList", c.info.call);
  auto exprs = element_exprs(c.expr("tensors"), items->size());
  std::size_t rank = c.d.shape(c.d.id((*items)[0])).size() + 1;
  std::size_t at = static_cast<std::size_t>(c.dim("dim", rank, 0));
  std::vector<Value> wide;
  for (std::size_t i = 0; i < items->size(); ++i) {
    TensorId t = c.d.id((*items)[i]);
    wide.push_back(c.d.wrap(c.d.insert_ones(c.name, c.site, t, {at}, exprs[i])));
  }
  return c.d.wrap(concat_of(c, c.name, wide, static_cast<int>(at), std::vector<const program::Expr*>(wide.size(), nullptr)));
}

Value stack_nd(Call& c) {
  auto items = tensor_list(c, "tensors");
  if (!items || items->empty()) return c.in.unknown(c.name + " of something that is not known", c.info.call);
  const std::string which = last_name(c.name);
  std::size_t rank = c.d.shape(c.d.id((*items)[0])).size();
  std::size_t need = which == "hstack" ? 1 : which == "dstack" ? 3 : 2;
  for (Value& v : *items) {
    TensorId t = c.d.id(v);
    const std::size_t have = c.d.shape(t).size();
    if (have >= need) continue;
    const bool front = which == "vstack" || which == "row_stack";
    std::vector<int> into;
    for (std::size_t i = 0; i < have; ++i) into.push_back(static_cast<int>(front ? need - have + i : i));
    v = c.d.wrap(c.d.merge(c.name, c.site, t, into, need));
  }
  int dim = which == "vstack" || which == "row_stack" ? 0 : which == "dstack" ? 2 : which == "hstack" && rank <= 1 ? 0 : 1;
  return c.d.wrap(concat_of(c, c.name, *items, dim, std::vector<const program::Expr*>(items->size(), nullptr)));
}

Value chunk(Call& c) {
  TensorId t = c.tensor("input");
  const Shape s = c.d.shape(t);
  int dim = c.dim("dim", s.size(), 0);
  std::int64_t n = s[static_cast<std::size_t>(dim)], parts = c.integer("chunks", 1);
  if (parts <= 0) c.in.raise("RuntimeError", "chunk expects `chunks` to be greater than 0, got: " + std::to_string(parts), c.info.call);
  std::int64_t each = std::max<std::int64_t>((n + parts - 1) / parts, 1);
  Shape sizes;
  for (std::int64_t at = 0; at < n; at += each) sizes.push_back(std::min(each, n - at));
  if (sizes.empty()) sizes.push_back(0);
  return c.d.wrap(split_into(c, c.name, t, dim, sizes, {}, c.expr("input")));
}

Value split(Call& c) {
  TensorId t = c.tensor("input");
  const Shape s = c.d.shape(t);
  int dim = c.dim("dim", s.size(), 0);
  std::int64_t n = s[static_cast<std::size_t>(dim)];
  const char* param = c.signature.index("split_size") >= 0 ? "split_size" : "split_sizes";
  Value given = c.arg(param);
  // torch.split(t, split_size_or_sections, …) as a keyword.
  Domain::Sizes sizes = c.d.sizes({given}, {c.args.exprs[static_cast<std::size_t>(c.signature.index(param))]});
  if (sizes.unknown) return unknown_size(c);
  Shape parts;
  std::vector<SizeArg> args;
  if (given.is(Kind::Tuple) || given.is(Kind::List)) {
    parts = sizes.values;
    std::int64_t total = 0;
    for (auto p : parts) total += p;
    if (total != n)
      c.in.raise("RuntimeError",
                 "split_with_sizes expects split_sizes to sum exactly to " + std::to_string(n) + " (input tensor's size at dimension " +
                     std::to_string(dim) + "), but got split_sizes=" + model::shape_text(parts),
                 c.info.call);
    if (sizes.whole) {
      args = c.d.size_args(sizes, SizeArg::SplitSizes, dim);
    } else {
      for (std::size_t i = 0; i < parts.size(); ++i)
        args.push_back({SizeArg::SplitSize, static_cast<int>(i), {parts[i]}, {sizes.syms[i]}, sizes.exprs[i]});
    }
  } else {
    std::int64_t each = sizes.values[0];
    if (each <= 0) c.in.raise("RuntimeError", "split_size must be positive, got " + std::to_string(each), c.info.call);
    for (std::int64_t at = 0; at < n; at += each) parts.push_back(std::min(each, n - at));
    args.push_back({SizeArg::SplitSize, dim, {each}, {sizes.syms[0]}, sizes.exprs[0]});
  }
  if (!c.site.direct)
    for (auto& a : args) a.expr = nullptr;
  return c.d.wrap(split_into(c, c.name, t, dim, parts, std::move(args), c.expr("input")));
}

Value tensor_split(Call& c) {
  TensorId t = c.tensor("input");
  const Shape s = c.d.shape(t);
  int dim = c.dim("dim", s.size(), 0);
  std::int64_t n = s[static_cast<std::size_t>(dim)];
  Value given = c.arg("indices_or_sections");
  Shape parts;
  if (given.is(Kind::Tuple) || given.is(Kind::List)) {
    auto list = c.d.integers(given);
    if (!list) return unknown_size(c);
    std::int64_t at = 0;
    for (auto i : *list) {
      std::int64_t end = std::clamp<std::int64_t>(i < 0 ? i + n : i, at, n);
      parts.push_back(end - at);
      at = end;
    }
    parts.push_back(n - at);
  } else {
    auto k = c.d.integer(given);
    if (!k || *k <= 0) return unknown_size(c);
    for (std::int64_t i = 0; i < *k; ++i) parts.push_back(n / *k + (i < n % *k ? 1 : 0));
  }
  return c.d.wrap(split_into(c, c.name, t, dim, parts, {}, c.expr("input")));
}

Value unbind(Call& c) {
  TensorId t = c.tensor("input");
  const Shape s = c.d.shape(t);
  int dim = c.dim("dim", s.size(), 0);
  std::size_t at = static_cast<std::size_t>(dim);
  std::vector<TensorId> parts = split_into(c, c.name, t, dim, Shape(static_cast<std::size_t>(s[at]), 1), {}, c.expr("input"));
  std::vector<TensorId> out;
  for (TensorId p : parts) {
    std::vector<int> into;
    for (std::size_t i = 0; i < s.size(); ++i) into.push_back(i == at ? -1 : static_cast<int>(i - (i > at)));
    out.push_back(c.d.merge(c.name, c.site, p, into, s.size() - 1));
  }
  return c.d.wrap(out);
}

Value meshgrid(Call& c) {
  std::vector<Value> items = c.args.rest;
  if (items.size() == 1 && (items[0].is(Kind::Tuple) || items[0].is(Kind::List))) items = std::vector<Value>(items[0].as<SeqObj>()->items);
  std::string indexing = "ij";
  if (c.has("indexing")) indexing = c.text("indexing", "ij");
  Shape target;
  for (const Value& v : items) {
    if (!v.is(Kind::Tensor)) return c.in.unknown("meshgrid of something that is no tensor", c.info.call);
    target.push_back(model::numel(c.d.tensor(c.d.id(v))));
  }
  std::vector<Value> out;
  for (std::size_t i = 0; i < items.size(); ++i) {
    Shape line(target.size(), 1);
    std::vector<char> ones(target.size(), 1);
    line[i] = target[i];
    ones[i] = 0;
    TensorId t = c.d.reshape(c.name, c.site, c.d.id(items[i]), line, ones);
    t = c.d.expand(c.name, c.site, t, target);
    if (indexing == "xy" && target.size() >= 2) {
      std::vector<int> order = order_of(target.size());
      std::swap(order[0], order[1]);
      t = c.d.permute(c.name, c.site, t, order);
    }
    out.push_back(c.d.wrap(t));
  }
  return c.in.tuple(std::move(out));
}

Value cartesian_prod(Call& c) {
  std::int64_t n = 1;
  std::vector<TensorId> ids;
  for (const Value& v : c.args.rest) {
    if (!v.is(Kind::Tensor)) return c.in.unknown("cartesian_prod of something that is no tensor", c.info.call);
    ids.push_back(c.d.id(v));
    n *= c.d.shape(ids.back())[0];
  }
  if (ids.empty()) return c.in.unknown("cartesian_prod of nothing", c.info.call);
  Out out{{n, static_cast<std::int64_t>(ids.size())}, c.d.tensor(ids[0]).dtype, {}};
  if (ids.size() == 1) out.shape = {n};
  return c.d.wrap(c.d.opaque(c.name, c.site, ids, out, "cartesian product"));
}

Value view_as_real(Call& c) {
  TensorId t = c.tensor("input");
  Build b = c.build(Prim::Labelled);
  std::vector<int> labels = b.fresh(t), out = labels;
  out.push_back(b.label(2, true, "real and imaginary part"));
  const model::Tensor source = c.d.tensor(t);
  Shape s = source.shape;
  std::vector<char> ones = source.literal_one;
  s.push_back(2);
  ones.push_back(0);
  b.operand(t, "input", c.expr("input"));
  b.op.in = {labels};
  b.op.out = {out};
  return c.d.wrap(b.done({{s, source.dtype == DType::C128 ? DType::F64 : DType::F32, ones}})[0]);
}

Value view_as_complex(Call& c) {
  TensorId t = c.tensor("input");
  Build b = c.build(Prim::Labelled);
  std::vector<int> labels = b.fresh(t), out = labels;
  const model::Tensor source = c.d.tensor(t);
  if (labels.empty() || source.shape.back() != 2) c.in.raise("RuntimeError", "Tensor must have a last dimension of size 2", c.info.call);
  model::Label& last = b.op.labels[static_cast<std::size_t>(labels.back())];
  last.blocked = true;
  last.why = "real and imaginary part";
  out.pop_back();
  Shape s = source.shape;
  std::vector<char> ones = source.literal_one;
  s.pop_back();
  ones.pop_back();
  b.operand(t, "input", c.expr("input"));
  b.op.in = {labels};
  b.op.out = {out};
  return c.d.wrap(b.done({{s, source.dtype == DType::F64 ? DType::C128 : DType::C64, ones}})[0]);
}

Value atleast(Call& c) {
  TensorId t = c.tensor("input");
  std::size_t need = last_name(c.name) == "atleast_1d" ? 1 : last_name(c.name) == "atleast_2d" ? 2 : 3;
  const std::size_t have = c.d.shape(t).size();
  if (have >= need) return c.arg("input");
  // One dimension of two or three: the second; two of three: the first two.
  std::vector<int> into;
  for (std::size_t i = 0; i < have; ++i) into.push_back(static_cast<int>(have == 1 ? 1 : i));
  return c.d.wrap(c.d.merge(c.name, c.site, t, into, need));
}

Value as_strided(Call& c) {
  Domain::Sizes s = sizes_of(c, "size");
  if (s.unknown) return unknown_size(c);
  return c.d.wrap(c.d.opaque(c.name, c.site, {c.tensor("input")}, {s.values, c.d.tensor(c.tensor("input")).dtype, {}}, "as_strided"));
}

Value diagonal(Call& c) {
  TensorId t = c.tensor("input");
  const model::Tensor source = c.d.tensor(t);
  std::size_t rank = source.shape.size();
  std::size_t a = static_cast<std::size_t>(c.dim("dim1", rank, 0)), b2 = static_cast<std::size_t>(c.dim("dim2", rank, 1));
  std::int64_t offset = c.integer("offset", 0);
  std::int64_t n = std::max<std::int64_t>(
      0, offset >= 0 ? std::min(source.shape[a], source.shape[b2] - offset) : std::min(source.shape[a] + offset, source.shape[b2]));
  Build b = c.build(Prim::Labelled);
  std::vector<int> labels, out;
  Out o{{}, source.dtype, {}};
  for (std::size_t i = 0; i < rank; ++i) {
    bool on = i == a || i == b2;
    labels.push_back(b.label(source.shape[i], on, on ? "diagonal" : ""));
    if (on) continue;
    out.push_back(labels.back());
    o.shape.push_back(source.shape[i]);
    o.ones.push_back(source.literal_one[i]);
  }
  out.push_back(b.label(n, true, "diagonal"));
  o.shape.push_back(n);
  o.ones.push_back(0);
  b.operand(t, "input", c.expr("input"));
  b.op.in = {labels};
  b.op.out = {out};
  return c.d.wrap(b.done({o})[0]);
}

Value diag(Call& c) {
  TensorId t = c.tensor("input");
  const Shape s = c.d.shape(t);
  std::int64_t k = c.integer("diagonal", 0);
  Shape out;
  if (s.size() == 1) out = {s[0] + std::abs(k), s[0] + std::abs(k)};
  else if (s.size() == 2) out = {std::max<std::int64_t>(0, k >= 0 ? std::min(s[0], s[1] - k) : std::min(s[0] + k, s[1]))};
  else return c.in.unknown("diag of a tensor with " + std::to_string(s.size()) + " dimensions", c.info.call);
  return c.d.wrap(c.d.opaque(c.name, c.site, {t}, {out, c.d.tensor(t).dtype, {}}, "diag"));
}

Value diag_embed(Call& c) {
  TensorId t = c.tensor("input");
  const model::Tensor source = c.d.tensor(t);
  std::int64_t n = source.shape.back() + std::abs(c.integer("offset", 0));
  Build b = c.build(Prim::Labelled);
  std::vector<int> labels = b.fresh(t), out = labels;
  if (labels.back() >= 0) {
    b.op.labels[static_cast<std::size_t>(labels.back())].blocked = true;
    b.op.labels[static_cast<std::size_t>(labels.back())].why = "diagonal";
  }
  out.pop_back();
  out.push_back(b.label(n, true, "diagonal"));
  out.push_back(b.label(n, true, "diagonal"));
  Shape s = source.shape;
  s.back() = n;
  s.push_back(n);
  b.operand(t, "input", c.expr("input"));
  b.op.in = {labels};
  b.op.out = {out};
  if (c.integer("dim1", -2) != -2 || c.integer("dim2", -1) != -1)
    return c.d.wrap(c.d.opaque(c.name, c.site, {t}, {s, source.dtype, {}}, "diag_embed into other dimensions"));
  return c.d.wrap(b.done({{s, source.dtype, {}}})[0]);
}

/// Tensor.unfold(dimension, size, step): windows of a dimension; it is needed whole.
Value unfold(Call& c) {
  TensorId t = c.tensor("input");
  const model::Tensor source = c.d.tensor(t);
  std::size_t at = static_cast<std::size_t>(c.dim("dimension", source.shape.size(), 0));
  std::int64_t size = c.integer("size", 1), step = std::max<std::int64_t>(c.integer("step", 1), 1);
  std::int64_t n = (source.shape[at] - size) / step + 1;
  // Windows that do not overlap and cover everything are a reshape: factors survive.
  if (size == step && source.shape[at] % size == 0) {
    Shape s = source.shape;
    std::vector<char> ones = source.literal_one;
    s[at] = n;
    s.insert(s.begin() + static_cast<std::ptrdiff_t>(at) + 1, size);
    ones[at] = 0;
    ones.insert(ones.begin() + static_cast<std::ptrdiff_t>(at) + 1, 0);
    TensorId r = c.d.reshape(c.name, c.site, t, s, ones, {}, c.expr("input"));
    std::vector<int> order;
    for (std::size_t i = 0; i < s.size(); ++i)
      if (i != at + 1) order.push_back(static_cast<int>(i));
    order.push_back(static_cast<int>(at) + 1);
    return c.d.wrap(c.d.permute(c.name, c.site, r, order));
  }
  Build b = c.build(Prim::Labelled);
  std::vector<int> labels = b.fresh(t), out = labels;
  if (labels[at] >= 0) {
    b.op.labels[static_cast<std::size_t>(labels[at])].blocked = true;
    b.op.labels[static_cast<std::size_t>(labels[at])].why = "windows";
  }
  out[at] = b.label(n, true, "windows");
  out.push_back(b.label(size, true, "windows"));
  Shape s = source.shape;
  s[at] = n;
  s.push_back(size);
  b.operand(t, "input", c.expr("input"));
  b.op.in = {labels};
  b.op.out = {out};
  return c.d.wrap(b.done({{s, source.dtype, {}}})[0]);
}

Value narrow(Call& c) {
  TensorId t = c.tensor("input");
  std::size_t rank = c.d.shape(t).size();
  int dim = c.dim("dim", rank, 0);
  auto start = c.d.integer(c.arg("start")), length = c.d.integer(c.arg("length"));
  if (!start || !length) return unknown_size(c);
  return narrow_to(c, t, dim, *start, *length, c.expr("input"),
                   {{SizeArg::PieceStart, 0, {*start}, {c.arg("start").sym()}, c.expr("start")},
                    {SizeArg::SplitSize, 0, {*length}, {c.arg("length").sym()}, c.expr("length")}});
}

Value select(Call& c) {
  TensorId t = c.tensor("input");
  int dim = c.dim("dim", c.d.shape(t).size(), 0);
  auto index = c.d.integer(c.arg("index"));
  return select_at(c, t, dim, index.value_or(0), c.expr("input"));
}

}  // namespace

std::vector<TensorId> split_into(const Call& c, const std::string& name, TensorId t, int dim, const Shape& sizes, std::vector<SizeArg> args,
                                 const program::Expr* operand) {
  Build b(c.d, name, Prim::Split, c.site);
  b.view = true;
  b.op.linearity = Linearity::Linear;
  b.op.dim = dim;
  b.op.sizes = sizes;
  b.op.size_args = std::move(args);
  b.operand(t, "input", operand);
  const model::Tensor source = c.d.tensor(t);
  std::vector<Out> outs;
  for (auto n : sizes) {
    Out o{source.shape, source.dtype, source.literal_one};
    o.shape[static_cast<std::size_t>(dim)] = n;
    o.ones[static_cast<std::size_t>(dim)] = 1;
    outs.push_back(std::move(o));
  }
  std::vector<TensorId> ids = b.done(std::move(outs));
  std::int64_t start = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    known::gather(c.d, t, ids[i], [&](const Shape& at) {
      std::int64_t index = 0;
      for (std::size_t k = 0; k < at.size(); ++k) index = index * source.shape[k] + at[k] + (static_cast<int>(k) == dim ? start : 0);
      return index;
    });
    start += sizes[i];
  }
  return ids;
}

TensorId concat_of(const Call& c, const std::string& name, const std::vector<Value>& tensors, int dim,
                   const std::vector<const program::Expr*>& exprs) {
  Domain& d = c.d;
  Build b(d, name, Prim::Concat, c.site);
  b.op.linearity = Linearity::Linear;
  b.op.dim = dim;
  std::size_t at = static_cast<std::size_t>(dim);
  Out out{d.shape(d.id(tensors[0])), d.promote(tensors), d.tensor(d.id(tensors[0])).literal_one};
  out.shape[at] = 0;
  std::vector<TensorId> ids;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    TensorId t = d.id(tensors[i]);
    const model::Tensor& x = d.tensor(t);
    for (std::size_t k = 0; k < out.shape.size(); ++k)
      if (x.shape.size() != out.shape.size() || (k != at && x.shape[k] != out.shape[k]))
        c.in.raise("RuntimeError",
                   "Sizes of tensors must match except in dimension " + std::to_string(dim) + ". Got " + model::shape_text(out.shape) +
                       " and " + model::shape_text(x.shape) + " for tensor number " + std::to_string(i) + " in the list.",
                   c.info.call);
    for (std::size_t k = 0; k < out.shape.size(); ++k) out.ones[k] = static_cast<char>(out.ones[k] && x.literal_one[k]);
    out.shape[at] += x.shape[at];
    ids.push_back(t);
    b.operand(t, std::to_string(i), exprs[i]);
  }
  TensorId r = b.done({out})[0];
  known::concat(d, ids, dim, r);
  return r;
}

Table shape_functions() {
  return {{"reshape", reshape},
          {"view_as", view_as},
          {"flatten", flatten},
          {"unflatten", unflatten},
          {"squeeze", squeeze},
          {"unsqueeze", unsqueeze},
          {"permute", permute},
          {"transpose", transpose},
          {"matrix_transpose", matrix_transpose},
          {"movedim", movedim},
          {"expand", expand},
          {"expand_as", expand_as},
          {"broadcast_tensors", broadcast_tensors},
          {"repeat", repeat},
          {"repeat_interleave", repeat_interleave},
          {"cat", cat},
          {"stack", stack},
          {"stack_nd", stack_nd},
          {"chunk", chunk},
          {"split", split},
          {"tensor_split", tensor_split},
          {"unbind", unbind},
          {"meshgrid", meshgrid},
          {"cartesian_prod", cartesian_prod},
          {"view_as_real", view_as_real},
          {"view_as_complex", view_as_complex},
          {"atleast", atleast},
          {"as_strided", as_strided},
          {"diagonal", diagonal},
          {"diag", diag},
          {"diag_embed", diag_embed},
          {"unfold", unfold},
          {"narrow", narrow},
          {"select", select}};
}

}  // namespace shardwright::eval::torch
