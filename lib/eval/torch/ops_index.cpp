// Indexing: functions of rules/ops/index.yaml and tensor[key], tensor[key] = value.
//
// A key is read from left to right: integers drop a dimension (needed whole), slices keep it (needed whole, unless they take
// everything), None adds one, an Ellipsis stands for the rest, tensors of integers or booleans gather (all indexed dimensions
// needed whole, the index's own dimensions take their place).
#include <fmt/format.h>

#include <algorithm>

#include "eval/torch/compute.h"

namespace shardwright::eval::torch {

using model::Linearity;
using model::Prim;

namespace {

void block(Build& b, int label, const std::string& why) {
  if (label < 0) return;
  b.op.labels[static_cast<std::size_t>(label)].blocked = true;
  b.op.labels[static_cast<std::size_t>(label)].why = why;
}

std::int64_t ravel(const Shape& at, const Shape& shape) {
  std::int64_t index = 0;
  for (std::size_t i = 0; i < shape.size(); ++i) index = index * shape[i] + at[i];
  return index;
}

/// One entry of a key.
struct Item {
  enum Kind { Int, Slice, New, Tensor, Mask } kind = Slice;
  std::int64_t start = 0, stop = 0, step = 1;  ///< Int: start; Slice: normalised
  bool all = true;                             ///< Slice: everything
  TensorId tensor = -1;
  std::size_t dims = 1;                ///< dimensions of the source it consumes
  std::vector<model::SizeArg> bounds;  ///< Slice: its bounds as written; empty where one cannot be edited
  bool edits = false;                  ///< Slice: `bounds` are all that it has
  const model::Sym* length = nullptr;  ///< Slice: how much it takes, where that is told by another tensor's size
};

struct Key {
  std::vector<Item> items;
  std::string unknown;  ///< why it cannot be read
};

std::optional<std::int64_t> bound(Domain& d, const Value& v, std::int64_t fallback, std::int64_t n, bool& ok) {
  if (v.is_none()) return fallback;
  auto i = d.integer(v);
  if (!i) {
    ok = false;
    return std::nullopt;
  }
  std::int64_t x = *i < 0 ? *i + n : *i;
  return std::clamp<std::int64_t>(x, 0, n);
}

/// The bounds of a slice as written, into `i`; false where an edit of them would not do.
bool bounds_of(Domain& d, const SliceObj& s, std::int64_t n, Item& i) {
  if (i.step != 1) return true;
  const program::Expr* e = s.expr;
  const std::pair<const Value*, model::SizeArg::Role> given[] = {{&s.start, model::SizeArg::PieceStart},
                                                                 {&s.stop, model::SizeArg::PieceStop}};
  for (std::size_t k = 0; k < 2; ++k) {
    const Value& v = *given[k].first;
    if (v.is_none()) continue;
    const std::int64_t x = *d.integer(v);
    if (x < -n || x > n) return false;
    i.bounds.push_back({given[k].second, 0, {x}, {v.sym()}, e && k < e->kids.size() ? e->kids[k] : nullptr});
  }
  return true;
}

/// Is this size read from a tensor that forward was given or computed, not from `t` itself or from what the model holds? A slice that
/// stops there takes all of `t` for these inputs only: `self.mask[:, :, :n, :n]` where n happens to be the largest length there is.
bool varies(const Domain& d, TensorId t, const model::Sym* s) {
  if (!s) return false;
  if (s->kind != model::Sym::Dim) return varies(d, t, s->a) || varies(d, t, s->b);
  if (s->tensor < 0 || s->tensor == t) return false;
  const model::Origin from = d.in.trace.tensor(s->tensor).origin;
  return from == model::Origin::Input || from == model::Origin::Result;
}

Key read_key(Domain& d, TensorId t, const Value& key, const program::Expr* site) {
  Key k;
  const Shape shape = d.shape(t);
  std::vector<Value> parts;
  if (key.is(Kind::Tuple)) parts = key.as<SeqObj>()->items;
  else parts = {key};
  std::size_t consumed = 0;
  for (const Value& p : parts) {
    if (p.is_none() || p.is(Kind::Ellipsis) || (p.is(Kind::Bool))) continue;
    if (p.is(Kind::Tensor) && d.tensor(d.id(p)).dtype == DType::Bool) consumed += std::max<std::size_t>(d.shape(d.id(p)).size(), 1);
    else ++consumed;
  }
  if (consumed > shape.size()) d.in.raise("IndexError", "too many indices for tensor of dimension " + std::to_string(shape.size()), site);
  bool dots = false;
  std::size_t at = 0;
  auto fill = [&](std::size_t n) {
    for (std::size_t i = 0; i < n; ++i, ++at) k.items.push_back({});
  };
  for (const Value& p : parts) {
    if (p.is_none()) {
      Item i;
      i.kind = Item::New;
      i.dims = 0;
      k.items.push_back(i);
    } else if (p.is(Kind::Ellipsis)) {
      if (!dots) fill(shape.size() - consumed);
      dots = true;
    } else if (p.is(Kind::Slice)) {
      const auto* s = p.as<SliceObj>();
      Item i;
      bool ok = true;
      auto step = s->step.is_none() ? std::optional<std::int64_t>(1) : d.integer(s->step);
      auto start = bound(d, s->start, 0, shape[at], ok), stop = bound(d, s->stop, shape[at], shape[at], ok);
      if (!ok || !step || *step <= 0) {
        k.unknown = "bounds of a slice are not known";
        return k;
      }
      i.start = *start;
      i.stop = std::max(*stop, *start);
      i.step = *step;
      i.all = i.start == 0 && i.stop == shape[at] && i.step == 1;
      i.edits = bounds_of(d, *s, shape[at], i);
      const bool as_written = (s->stop.is_none() || d.integer(s->stop) == i.stop) && (s->start.is_none() || d.integer(s->start) == i.start);
      if (i.step == 1 && as_written && varies(d, t, s->stop.sym())) {
        i.length = s->start.sym() ? d.in.sym(model::Sym::Sub, s->stop, s->start, static_cast<double>(i.stop - i.start)) : s->stop.sym();
        if (i.all) i.all = i.edits = false;
      }
      k.items.push_back(i);
      ++at;
    } else if (p.is(Kind::Tensor)) {
      TensorId x = d.id(p);
      const model::Tensor& index = d.tensor(x);
      if (index.dtype == DType::Bool) {
        Item i;
        i.kind = Item::Mask;
        i.tensor = x;
        i.dims = std::max<std::size_t>(index.shape.size(), 1);
        k.items.push_back(i);
        at += i.dims;
      } else if (index.shape.empty() && d.known(x)) {
        Item i;
        i.kind = Item::Int;
        i.start = static_cast<std::int64_t>((*d.known(x))[0]);
        if (i.start < 0) i.start += shape[at];
        k.items.push_back(i);
        ++at;
      } else {
        Item i;
        i.kind = Item::Tensor;
        i.tensor = x;
        k.items.push_back(i);
        ++at;
      }
    } else if (p.is(Kind::List) || p.is(Kind::Tuple) || p.is(Kind::Range)) {
      Value made = d.call_op("torch.tensor", {p.is(Kind::Range) ? d.in.list(d.in.to_vector(p)) : p}, site);
      if (!made.is(Kind::Tensor)) {
        k.unknown = "an index is not known";
        return k;
      }
      Item i;
      i.kind = Item::Tensor;
      i.tensor = d.id(made);
      if (d.tensor(i.tensor).dtype == DType::Bool) {
        i.kind = Item::Mask;
        i.dims = d.shape(i.tensor).size();
      }
      k.items.push_back(i);
      at += i.dims;
    } else if (auto n = d.integer(p); n && !p.is(Kind::Bool)) {
      Item i;
      i.kind = Item::Int;
      i.start = *n < 0 ? *n + shape[at] : *n;
      if (i.start < 0 || i.start >= shape[at])
        d.in.raise("IndexError",
                   "index " + std::to_string(*n) + " is out of bounds for dimension " + std::to_string(at) + " with size " +
                       std::to_string(shape[at]),
                   site);
      k.items.push_back(i);
      ++at;
    } else {
      k.unknown = p.is_unknown() ? "an index is not known" : "an index of this type is not understood";
      return k;
    }
  }
  fill(shape.size() - at);
  return k;
}

/// The key's numbers, for Op::constants.
std::string text_of(const std::vector<Item>& items) {
  std::string out;
  for (const Item& i : items)
    if (i.kind == Item::Int) out += std::to_string(i.start) + ",";
    else if (i.kind == Item::Slice && !i.all)
      out += std::to_string(i.start) + ":" + std::to_string(i.stop) + ":" + std::to_string(i.step) + ",";
    else if (i.kind == Item::New) out += "None,";
    else out += i.kind == Item::Slice ? ":," : "[],";
  return out;
}

TensorId basic(Domain& d, const Site& site, TensorId t, const std::vector<Item>& items, const program::Expr* operand) {
  const model::Tensor source = d.tensor(t);
  std::vector<std::size_t> fresh;
  bool changes = false;
  std::size_t result_at = 0;
  for (const Item& i : items) {
    if (i.kind == Item::New) fresh.push_back(result_at);
    else changes = changes || i.kind == Item::Int || !i.all;
    if (i.kind != Item::Int) ++result_at;
  }
  // y[..., ::2] of n = 2m: the first of each pair of (m, 2).
  const auto strided = [&](const Item& i, std::int64_t n) {
    return i.kind == Item::Slice && i.step > 1 && i.start < i.step && n % i.step == 0 &&
        (i.stop - i.start + i.step - 1) / i.step == n / i.step;
  };
  std::size_t changed = 0, only = 0, dim = 0;
  for (const Item& i : items) {
    if (i.kind == Item::New) continue;
    if (i.kind == Item::Int || !i.all) ++changed, only = dim;
    ++dim;
  }
  if (changed == 1 && dim == items.size() && strided(items[only], source.shape[only])) {
    const std::int64_t step = items[only].step;
    const auto at = static_cast<std::ptrdiff_t>(only);
    Shape pairs = source.shape;
    pairs[only] /= step;
    pairs.insert(pairs.begin() + at + 1, step);
    std::vector<Item> pick(pairs.size());
    pick[only + 1].kind = Item::Int;
    pick[only + 1].start = items[only].start;
    std::vector<char> ones = source.literal_one;
    ones.insert(ones.begin() + at + 1, 0);
    return basic(d, site, d.reshape("torch.Tensor.__getitem__", site, t, pairs, ones, {}, operand), pick, nullptr);
  }
  if (changes) {
    Build b(d, "torch.Tensor.__getitem__", Prim::Labelled, site);
    b.view = true;
    b.op.linearity = Linearity::Linear;
    b.op.constants = text_of(items);
    std::vector<int> labels = b.fresh(t), out;
    Out o{{}, source.dtype, {}};
    std::size_t at = 0;
    std::vector<std::pair<std::int64_t, std::int64_t>> map;  // start, step per source dimension; step 0: dropped
    for (const Item& i : items) {
      if (i.kind == Item::New) continue;
      if (i.kind == Item::Int) {
        block(b, labels[at], "index");
        map.emplace_back(i.start, 0);
      } else if (i.all) {
        out.push_back(labels[at]);
        o.shape.push_back(source.shape[at]);
        o.ones.push_back(source.literal_one[at]);
        map.emplace_back(0, 1);
      } else {
        block(b, labels[at], "slice");
        std::int64_t n = (i.stop - i.start + i.step - 1) / i.step;
        if (i.length && n == static_cast<std::int64_t>(i.length->value) && !i.edits)
          b.op.size_args.push_back({model::SizeArg::Dim, static_cast<int>(out.size()), {n}, {i.length}, nullptr});
        out.push_back(b.label(n, true, "slice"));
        o.shape.push_back(n);
        o.ones.push_back(0);
        map.emplace_back(i.start, i.step);
      }
      ++at;
    }
    if (const Item& i = items[only];
        changed == 1 && dim == items.size() && i.kind == Item::Slice && i.step == 1 && i.edits && site.direct) {
      b.op.dim = static_cast<int>(only);
      b.op.sizes = {i.start, i.stop};
      b.op.size_args = i.bounds;
    }
    b.operand(t, "input", operand);
    b.op.in = {labels};
    b.op.out = {out};
    TensorId r = b.done({o})[0];
    known::gather(d, t, r, [&](const Shape& pos) {
      Shape from;
      std::size_t p = 0;
      for (const auto& [start, step] : map) from.push_back(step == 0 ? start : start + step * pos[p++]);
      return ravel(from, source.shape);
    });
    t = r;
    operand = nullptr;
  }
  return fresh.empty() ? t : d.insert_ones("torch.Tensor.__getitem__", site, t, fresh);
}

}  // namespace

Value Domain::getitem(Interpreter&, const Value& object, const Value& key, const program::Expr* site_expr, const program::Expr* t_expr,
                      const program::Expr*) {
  TensorId t = id(object);
  if (key.is_unknown()) {
    in.trace.escaped.insert(t);
    return key;
  }
  if (shape(t).empty() && !key.is_none() && !key.is(Kind::Ellipsis) && !key.is(Kind::Tuple) && !key.is(Kind::Tensor))
    in.raise(
        "IndexError",
        "invalid index of a 0-dim tensor. Use `tensor.item()` in Python or `tensor.item<T>()` in C++ to convert a 0-dim tensor to a number",
        site_expr);
  Site site = in.site(site_expr);
  Key k = read_key(*this, t, key, site_expr);
  if (!k.unknown.empty()) {
    in.trace.escaped.insert(t);
    return in.unknown(k.unknown, site_expr);
  }
  bool advanced = false;
  for (const Item& i : k.items) {
    if (i.kind == Item::Mask) {
      // A mask picks a number of elements that depends on data.
      return in.unknown("indexing by a boolean mask has a size that depends on data", site_expr);
    }
    advanced = advanced || i.kind == Item::Tensor;
  }
  if (!advanced) {
    TensorId r = basic(*this, site, t, k.items, t_expr);
    return wrap(r);
  }
  // Basic part first (slices, new dimensions), then the gather. Integers beside tensors are indices like them.
  std::vector<Item> first;
  for (Item i : k.items) {
    if (i.kind == Item::Tensor) i = Item{};
    else if (i.kind == Item::Int) {
      i.kind = Item::Slice;
      i.all = false;
      i.stop = i.start + 1;
    }
    first.push_back(i);
  }
  TensorId base = basic(*this, site, t, first, t_expr);
  const model::Tensor source = tensor(base);
  std::vector<std::size_t> where;
  std::vector<TensorId> index;
  std::vector<char> dropped(source.shape.size(), 0);
  for (std::size_t i = 0; i < k.items.size(); ++i) {
    if (k.items[i].kind == Item::Tensor) {
      where.push_back(i);
      index.push_back(k.items[i].tensor);
      dropped[i] = 1;
    } else if (k.items[i].kind == Item::Int) {
      dropped[i] = 1;
      where.push_back(i);
      index.push_back(-1);
    }
  }
  std::sort(where.begin(), where.end());
  bool adjacent = where.back() - where.front() + 1 == where.size();
  std::vector<Shape> shapes;
  for (TensorId x : index)
    if (x >= 0) shapes.push_back(shape(x));
  Shape picked = broadcast(shapes, site_expr);
  Build b(*this, "torch.Tensor.__getitem__", Prim::Labelled, site);
  b.op.linearity = Linearity::Linear;
  b.op.constants = text_of(k.items);
  std::vector<int> labels = b.fresh(base), index_labels;
  for (std::size_t w : where) block(b, labels[w], "index");
  for (std::int64_t n : picked) index_labels.push_back(b.label(n));
  b.operand(base, "input", base == t ? t_expr : nullptr);
  b.op.in.push_back(labels);
  for (TensorId x : index) {
    if (x < 0) continue;
    b.operand(x, "index");
    std::vector<int> own;
    const Shape s = shape(x);
    for (std::size_t i = 0; i < s.size(); ++i) {
      std::size_t j = picked.size() - s.size() + i;
      own.push_back(s[i] == 1 && picked[j] != 1 ? -1 : index_labels[j]);
    }
    b.op.in.push_back(own);
  }
  std::vector<int> out;
  Out o{{}, source.dtype, {}};
  auto put_index = [&] {
    for (std::size_t i = 0; i < picked.size(); ++i) {
      out.push_back(index_labels[i]);
      o.shape.push_back(picked[i]);
      o.ones.push_back(0);
    }
  };
  if (!adjacent) put_index();
  for (std::size_t i = 0; i < source.shape.size(); ++i) {
    if (adjacent && i == where.front()) put_index();
    if (dropped[i]) continue;
    out.push_back(labels[i]);
    o.shape.push_back(source.shape[i]);
    o.ones.push_back(source.literal_one[i]);
  }
  b.op.out = {out};
  TensorId r = b.done({o})[0];
  if (index.size() == 1 && index[0] >= 0)
    if (const Values* ks = known(index[0])) {
      const Values which = *ks;
      const Shape own = shape(index[0]);
      std::size_t at = where[0];
      known::gather(*this, base, r, [&](const Shape& pos) {
        Shape from, ipos(pos.begin() + static_cast<std::ptrdiff_t>(at), pos.begin() + static_cast<std::ptrdiff_t>(at + own.size()));
        for (std::size_t i = 0; i < at; ++i) from.push_back(pos[i]);
        std::int64_t v = static_cast<std::int64_t>(which[static_cast<std::size_t>(ravel(ipos, own))]);
        from.push_back(v < 0 ? v + source.shape[at] : v);
        for (std::size_t i = at + own.size(); i < pos.size(); ++i) from.push_back(pos[i]);
        return ravel(from, source.shape);
      });
    }
  return wrap(r);
}

void Domain::setitem(Interpreter&, const Value& object, const Value& key, const Value& v, const program::Expr* site_expr) {
  TensorId t = id(object);
  // While the model is built, what fills a buffer does not matter: only its numbers are forgotten.
  if (in.init_phase) {
    values.erase(t);
    return;
  }
  Site site = in.site(site_expr);
  auto give_up = [&](const std::string& why) {
    std::vector<TensorId> ids = {t};
    if (v.is(Kind::Tensor)) ids.push_back(id(v));
    Out out{shape(t), tensor(t).dtype, tensor(t).literal_one};
    rebind(object, opaque("torch.Tensor.__setitem__", site, ids, out, why));
  };
  if (key.is_unknown() || v.is_unknown()) {
    give_up("assignment into a part that is not known");
    return;
  }
  Key k = read_key(*this, t, key, site_expr);
  if (!k.unknown.empty()) {
    give_up(k.unknown);
    return;
  }
  const model::Tensor source = tensor(t);
  Build b(*this, "torch.Tensor.__setitem__", Prim::Labelled, site);
  b.op.constants = text_of(k.items) + (v.is(Kind::Tensor) ? "" : fmt::format("{:.9g}", v.is_number() ? v.as_double() : 0));
  std::vector<int> labels = b.fresh(t), part;  // part: labels of the assigned region
  Shape part_shape;
  std::size_t at = 0;
  bool gathered = false;
  for (const Item& i : k.items) {
    if (i.kind == Item::New) {
      part.push_back(-1);
      part_shape.push_back(1);
      continue;
    }
    if (i.kind == Item::Tensor || i.kind == Item::Mask) {
      for (std::size_t j = 0; j < i.dims && at < labels.size(); ++j) block(b, labels[at++], "indexed assignment");
      gathered = true;
      continue;
    }
    if (i.kind == Item::Int) {
      block(b, labels[at], "assignment into a part");
    } else if (i.all) {
      part.push_back(labels[at]);
      part_shape.push_back(source.shape[at]);
    } else {
      block(b, labels[at], "assignment into a part");
      std::int64_t n = (i.stop - i.start + i.step - 1) / i.step;
      part.push_back(b.label(n, true, "assignment into a part"));
      part_shape.push_back(n);
    }
    ++at;
  }
  if (gathered && v.is(Kind::Tensor) && !shape(id(v)).empty()) {
    give_up("indexed assignment");
    return;
  }
  b.operand(t, "input");
  b.op.in.push_back(labels);
  b.op.linearity = Linearity::Linear;
  if (v.is(Kind::Tensor)) {
    const Shape s = shape(id(v));
    std::vector<int> own;
    for (std::size_t i = 0; i < s.size(); ++i) {
      if (s.size() > part.size()) {
        // Leading ones are dropped by the assignment.
        if (i < s.size() - part.size()) {
          own.push_back(-1);
          continue;
        }
      }
      std::size_t j = part.size() - std::min(part.size(), s.size()) + (s.size() > part.size() ? i - (s.size() - part.size()) : i);
      if (s[i] != 1 && s[i] != part_shape[j]) {
        const std::string message = "The expanded size of the tensor (" + std::to_string(part_shape[j]) +
            ") must match the existing size (" + std::to_string(s[i]) + ")";
        if (observer) {
          Failure f;
          f.name = b.op.name;
          f.site = site;
          f.module = module_stack.empty() ? -1 : module_stack.back();
          f.operands = {{t, "input", nullptr, false}, {id(v), "value", nullptr, false}};
          f.message = message;
          if (!observer->repair(f).empty()) {
            observer->repaired(f, {});
            give_up("assignment of another size");
            return;
          }
        }
        in.raise("RuntimeError", message, site_expr);
      }
      own.push_back(s[i] == 1 && part_shape[j] != 1 ? -1 : part[j]);
    }
    b.operand(id(v), "value");
    b.op.in.push_back(own);
  } else if (!v.is_number() || v.as_double() != 0) {
    b.op.linearity = Linearity::Nonlinear;
  }
  b.op.out = {labels};
  rebind(object, b.done({{source.shape, source.dtype, source.literal_one}})[0]);
}

Value select_at(Call& c, TensorId t, int dim, std::int64_t index, const program::Expr* operand) {
  const Shape s = c.d.shape(t);
  std::vector<Item> items(s.size());
  items[static_cast<std::size_t>(dim)].kind = Item::Int;
  items[static_cast<std::size_t>(dim)].start = index < 0 ? index + s[static_cast<std::size_t>(dim)] : index;
  return c.d.wrap(basic(c.d, c.site, t, items, operand));
}

Value narrow_to(Call& c, TensorId t, int dim, std::int64_t start, std::int64_t length, const program::Expr* operand,
                std::vector<model::SizeArg> bounds) {
  const Shape s = c.d.shape(t);
  std::vector<Item> items(s.size());
  Item& i = items[static_cast<std::size_t>(dim)];
  i.start = start < 0 ? start + s[static_cast<std::size_t>(dim)] : start;
  i.stop = i.start + length;
  if (i.stop > s[static_cast<std::size_t>(dim)])
    c.in.raise("RuntimeError",
               "start (" + std::to_string(start) + ") + length (" + std::to_string(length) + ") exceeds dimension size (" +
                   std::to_string(s[static_cast<std::size_t>(dim)]) + ").",
               c.info.call);
  i.all = i.start == 0 && length == s[static_cast<std::size_t>(dim)];
  i.edits = !bounds.empty();
  i.bounds = std::move(bounds);
  return c.d.wrap(basic(c.d, c.site, t, items, operand));
}

namespace {

Value index_select(Call& c) {
  TensorId t = c.tensor("input"), x = c.tensor("index");
  const model::Tensor source = c.d.tensor(t);
  std::size_t at = static_cast<std::size_t>(c.dim("dim", source.shape.size(), 0));
  Build b = c.build(Prim::Labelled);
  std::vector<int> labels = b.fresh(t), out = labels;
  block(b, labels[at], "index");
  int picked = b.label(model::numel(c.d.tensor(x)));
  out[at] = picked;
  b.operand(t, "input", c.expr("input"));
  b.operand(x, "index", c.expr("index"));
  b.op.in = {labels, c.d.shape(x).empty() ? std::vector<int>{} : std::vector<int>{picked}};
  b.op.out = {out};
  Shape s = source.shape;
  s[at] = model::numel(c.d.tensor(x));
  return c.d.wrap(b.done({{s, source.dtype, {}}})[0]);
}

/// out[i][j] = in[index[i][j]][j]: dimensions other than `dim` go along only where sizes agree.
Value gather(Call& c) {
  const char* index_param = c.signature.index("index") >= 0 ? "index" : "indices";
  TensorId t = c.tensor("input"), x = c.tensor(index_param);
  const model::Tensor source = c.d.tensor(t), index = c.d.tensor(x);
  if (!c.has("dim")) return c.d.wrap(c.d.opaque(c.name, c.site, {t, x}, {index.shape, source.dtype, {}}, "gather from a flattened tensor"));
  std::size_t at = static_cast<std::size_t>(c.dim("dim", source.shape.size(), 0));
  bool broadcast = last_name(c.name) == "take_along_dim";
  Build b = c.build(Prim::Labelled);
  std::vector<int> labels = b.fresh(t), out, own;
  Shape s;
  for (std::size_t i = 0; i < index.shape.size(); ++i) {
    if (i == at) {
      block(b, labels[i], "gather");
      own.push_back(b.label(index.shape[i]));
      out.push_back(own.back());
      s.push_back(index.shape[i]);
      continue;
    }
    bool same = source.shape[i] == index.shape[i];
    if (!same && broadcast && index.shape[i] == 1) {
      own.push_back(-1);
      out.push_back(labels[i]);
      s.push_back(source.shape[i]);
      continue;
    }
    if (!same) {
      block(b, labels[i], "gather");
      own.push_back(b.label(index.shape[i], true, "gather"));
    } else {
      own.push_back(labels[i]);
    }
    out.push_back(own.back());
    s.push_back(index.shape[i]);
  }
  b.operand(t, "input", c.expr("input"));
  b.operand(x, index_param, c.expr(index_param));
  b.op.in = {labels, own};
  b.op.out = {out};
  return c.d.wrap(b.done({{s, source.dtype, {}}})[0]);
}

/// Writes along `dim`: it is needed whole, and so are dimensions where source and target differ in size.
Value scatter(Call& c) {
  TensorId t = c.tensor("input");
  const model::Tensor target = c.d.tensor(t);
  std::size_t at = target.shape.empty() ? 0 : static_cast<std::size_t>(c.dim("dim", target.shape.size(), 0));
  Build b = c.build(Prim::Labelled);
  std::vector<int> labels = b.fresh(t);
  if (at < labels.size()) block(b, labels[at], c.rule.why);
  b.operand(t, "input", c.expr("input"));
  b.op.in.push_back(labels);
  int moved = -1;
  for (const char* p : {"index", "src", "source"}) {
    if (!c.is_tensor(p)) continue;
    const Shape s = c.d.shape(c.tensor(p));
    std::vector<int> own;
    for (std::size_t i = 0; i < s.size(); ++i) {
      if (s.size() != target.shape.size()) {  // index_add: a one-dimensional index along `dim`
        if (moved < 0) moved = b.label(s[i], true, c.rule.why);
        own.push_back(moved);
      } else if (i == at) {
        if (moved < 0) moved = b.label(s[i], true, c.rule.why);
        own.push_back(moved);
      } else if (s[i] == target.shape[i]) {
        own.push_back(labels[i]);
      } else {
        block(b, labels[i], c.rule.why);
        own.push_back(b.label(s[i], true, c.rule.why));
      }
    }
    b.operand(c.tensor(p), p, c.expr(p));
    b.op.in.push_back(own);
  }
  b.op.out = {labels};
  return c.d.wrap(b.done({{target.shape, target.dtype, target.literal_one}})[0]);
}

Value opaque_like(Call& c) {
  TensorId t = c.tensor("input");
  std::vector<TensorId> ids;
  for (const Value& v : c.args.values)
    if (v.is(Kind::Tensor)) ids.push_back(c.d.id(v));
  return c.d.wrap(c.d.opaque(c.name, c.site, ids, {c.d.shape(t), c.d.tensor(t).dtype, {}}, "elements are chosen by data"));
}

Value opaque_unknown(Call& c) { return c.in.unknown("the size of the result of " + c.name + " depends on data", c.info.call); }

Value take(Call& c) {
  TensorId t = c.tensor("input"), x = c.tensor("index");
  return c.d.wrap(c.d.opaque(c.name, c.site, {t, x}, {c.d.shape(x), c.d.tensor(t).dtype, {}}, "take from a flattened tensor"));
}

Value bucketize(Call& c) {
  TensorId x = c.tensor(last_name(c.name) == "searchsorted" ? "boundaries" : "input");
  Build b = c.build(Prim::Labelled);
  std::vector<int> labels = b.fresh(x);
  b.operand(x, "input", c.expr("input"));
  b.op.in = {labels};
  b.op.out = {labels};
  return c.d.wrap(b.done({{c.d.shape(x), DType::I64, c.d.tensor(x).literal_one}})[0]);
}

/// x.copy_(y): x becomes y, broadcast, in x's type.
Value copy_(Call& c) {
  Value self = c.arg("input"), other = c.arg("other");
  if (c.in.init_phase || !other.is(Kind::Tensor)) {
    c.d.values.erase(c.d.id(self));
    return self;
  }
  TensorId y = c.d.id(other);
  const model::Tensor target = c.d.tensor(c.d.id(self));
  if (c.d.shape(y) != target.shape) y = c.d.expand(c.name, c.site, y, target.shape, {}, c.expr("other"));
  return c.d.wrap(c.d.cast(c.name, c.site, y, target.dtype, c.expr("other")));
}

/// Fills in place. While building, only the numbers kept for small tensors change.
Value fill_(Call& c) {
  Value self = c.arg("input");
  TensorId t = c.d.id(self);
  const model::Tensor target = c.d.tensor(t);
  const std::string which = last_name(c.name);
  std::optional<double> fill;
  if (which == "zero_") fill = 0;
  if (which == "fill_") fill = c.d.number(c.arg("value"));
  if (c.in.init_phase) {
    c.d.values.erase(t);
    if (fill && model::numel(target) <= max_values) c.d.know(t, Values(static_cast<std::size_t>(model::numel(target)), *fill));
    return self;
  }
  Build b = c.build(Prim::Labelled);
  b.op.linearity = Linearity::Nonlinear;
  std::vector<int> labels = b.fresh(t);
  b.operand(t, "input", c.expr("input"));
  b.op.in = {labels};
  b.op.out = {labels};
  b.gradient = false;
  return c.d.wrap(b.done({{target.shape, target.dtype, target.literal_one}})[0]);
}

}  // namespace

Table index_functions() {
  return {{"index_select", index_select},
          {"gather", gather},
          {"scatter", scatter},
          {"opaque_like", opaque_like},
          {"opaque_unknown", opaque_unknown},
          {"take", take},
          {"bucketize", bucketize},
          {"copy_", copy_},
          {"fill_", fill_}};
}

}  // namespace shardwright::eval::torch
