// The numpy that constructors use for schedules and tables: small dense arrays of concrete numbers, computed for real.
// Everything else of numpy is unknown.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "eval/impl.h"
#include "eval/ndarray.h"
#include "eval/npy.h"

namespace shardwright::eval {

std::string NdArrayObj::repr(In& in) const { return "array(" + in.to_repr(tolist(in)) + ")"; }

Value NdArrayObj::element(std::size_t i) const {
  if (type == 'b') return Value::boolean(data[i] != 0);
  if (type == 'i') return Value::integer(static_cast<std::int64_t>(data[i]));
  return Value::real(data[i]);
}

Value NdArrayObj::tolist(In& in) const {
  std::function<Value(std::size_t, std::size_t)> go = [&](std::size_t dim, std::size_t at) -> Value {
    if (dim == shape.size()) return element(at);
    std::size_t inner = 1;
    for (std::size_t k = dim + 1; k < shape.size(); ++k) inner *= static_cast<std::size_t>(shape[k]);
    std::vector<Value> l;
    for (std::int64_t k = 0; k < shape[dim]; ++k) l.push_back(go(dim + 1, at + static_cast<std::size_t>(k) * inner));
    return in.list(std::move(l));
  };
  return go(0, 0);
}

namespace {

using A = NdArrayObj;

ClassObj* array_class(In& in) { return in.builtin_class("<ndarray>"); }

A* make(In& in, std::vector<std::int64_t> shape, std::vector<double> data, char type) {
  auto* a = in.make<A>(array_class(in));
  a->shape = std::move(shape);
  a->data = std::move(data);
  a->type = type;
  return a;
}

A* array_of(const Value& v) { return v.is(Kind::Host) ? dynamic_cast<A*>(v.obj()) : nullptr; }

/// Converts numbers, nested lists and arrays; nullptr when something in it is not a number.
A* to_array(In& in, const Value& v) {
  if (A* a = array_of(v)) return a;
  if (v.is_number()) return make(in, {}, {v.as_double()}, v.is(Kind::Bool) ? 'b' : v.is(Kind::Int) ? 'i' : 'f');
  if (!v.is(Kind::List) && !v.is(Kind::Tuple) && !v.is(Kind::Range) && !v.is(Kind::Iterator)) return nullptr;
  std::vector<std::int64_t> shape;
  std::vector<double> data;
  char type = 'b';
  auto items = in.to_vector(v);
  if (items.empty()) type = 'f';
  for (const auto& x : items) {
    A* a = to_array(in, x);
    if (!a) return nullptr;
    if (&x == &items[0]) shape = a->shape;
    else if (shape != a->shape) return nullptr;
    data.insert(data.end(), a->data.begin(), a->data.end());
    if (a->type == 'f' || (a->type == 'i' && type == 'b')) type = a->type;
  }
  shape.insert(shape.begin(), static_cast<std::int64_t>(items.size()));
  return make(in, shape, data, type);
}

Value scalar_or(In& in, A* a) {
  (void)in;
  return a->shape.empty() ? a->element(0) : Value(a);
}

A* broadcast2(In& in, A* a, A* b, const std::function<double(double, double)>& f, char type) {
  std::size_t n = std::max(a->shape.size(), b->shape.size());
  std::vector<std::int64_t> shape(n, 1);
  auto dim = [&](A* x, std::size_t i) {
    std::size_t off = n - x->shape.size();
    return i < off ? 1 : x->shape[i - off];
  };
  for (std::size_t i = 0; i < n; ++i) {
    if (dim(a, i) != dim(b, i) && dim(a, i) != 1 && dim(b, i) != 1) in.raise("ValueError", "operands could not be broadcast together");
    shape[i] = std::max(dim(a, i), dim(b, i));
    if (dim(a, i) == 0 || dim(b, i) == 0) shape[i] = 0;
  }
  std::size_t total = 1;
  for (auto s : shape) total *= static_cast<std::size_t>(s);
  std::vector<double> out(total);
  for (std::size_t k = 0; k < total; ++k) {
    std::size_t rest = k, ia = 0, ib = 0, sa = 1, sb = 1;
    for (std::size_t i = n; i-- > 0;) {
      auto idx = rest % static_cast<std::size_t>(shape[i]);
      rest /= static_cast<std::size_t>(shape[i]);
      if (dim(a, i) != 1) ia += idx * sa;
      if (dim(b, i) != 1) ib += idx * sb;
      sa *= static_cast<std::size_t>(dim(a, i));
      sb *= static_cast<std::size_t>(dim(b, i));
    }
    out[k] = f(a->data[ia], b->data[ib]);
  }
  return make(in, shape, out, type);
}

Value reduce(In& in, A* a, const Value& axis, const std::function<double(double, double)>& f, double start, bool mean, char type) {
  if (axis.is_none() || !axis.set()) {
    double acc = start;
    for (double d : a->data) acc = f(acc, d);
    if (mean) acc /= static_cast<double>(a->data.size());
    return make(in, {}, {acc}, type)->element(0);
  }
  std::int64_t ax = in.to_int(axis);
  if (ax < 0) ax += static_cast<std::int64_t>(a->shape.size());
  std::vector<std::int64_t> shape = a->shape;
  auto n = static_cast<std::size_t>(shape.at(static_cast<std::size_t>(ax)));
  std::size_t inner = 1, outer = 1;
  for (std::size_t k = static_cast<std::size_t>(ax) + 1; k < shape.size(); ++k) inner *= static_cast<std::size_t>(shape[k]);
  for (std::size_t k = 0; k < static_cast<std::size_t>(ax); ++k) outer *= static_cast<std::size_t>(shape[k]);
  shape.erase(shape.begin() + ax);
  std::vector<double> out(outer * inner, start);
  for (std::size_t o = 0; o < outer; ++o)
    for (std::size_t k = 0; k < n; ++k)
      for (std::size_t i = 0; i < inner; ++i) {
        double& d = out[o * inner + i];
        d = f(d, a->data[(o * n + k) * inner + i]);
      }
  if (mean)
    for (double& d : out) d /= static_cast<double>(n);
  return scalar_or(in, make(in, shape, out, type));
}

/// Numbers in a value that were made from sizes of tensors.
void sized(In& in, const Value& v, std::vector<Value>& out) {
  if (v.is_number() && v.sym()) out.push_back(v);
  else if (v.is(Kind::Tuple) || v.is(Kind::List))
    for (const Value& x : in.to_vector(v)) sized(in, x, out);
}

/// Arrays hold numbers only: that a size went into one is noted, as a question whose answer depends on it.
void note_sizes(In& in, const std::vector<Value>& from, Range where) {
  for (const Value& v : from) in.guard("numpy", v, Value::none(), true, where);
}

/// What numpy made of numbers, some of which came from sizes, is one that came from them.
Value with_sizes(In& in, const std::string& name, const CallInfo& c, const Value& result) {
  using S = model::Sym;
  std::vector<Value> from;
  for (const Value& v : c.args) sized(in, v, from);
  for (const auto& k : c.kwargs) sized(in, k.value, from);
  if (from.empty() || result.is_unknown()) return result;
  if (!result.is_number()) {
    if (array_of(result)) note_sizes(in, from, in.range_of(c.call));
    return result;
  }
  if (result.sym()) return result;
  const double r = result.as_double();
  const model::Sym* s = nullptr;
  static const std::map<std::string, S::Kind> binary{
      {"add", S::Add},   {"subtract", S::Sub}, {"multiply", S::Mul},          {"divide", S::TrueDiv}, {"true_divide", S::TrueDiv},
      {"power", S::Pow}, {"mod", S::Mod},      {"floor_divide", S::FloorDiv}, {"maximum", S::Max},    {"minimum", S::Min}};
  const bool one = c.args.size() == 1 && c.kwargs.empty();
  if (name == "sqrt" && one) s = in.sym(S::Pow, c.args[0], Value::real(0.5), r);
  else if (auto b = binary.find(name); b != binary.end() && c.args.size() == 2 && c.args[0].is_number() && c.args[1].is_number())
    s = in.sym(b->second, c.args[0], c.args[1], r);
  else if ((name == "prod" || name == "sum") && one && (c.args[0].is(Kind::Tuple) || c.args[0].is(Kind::List))) {
    const auto items = in.to_vector(c.args[0]);
    Value all = items.front();
    for (std::size_t i = 1; i < items.size() && all.is_number() && items[i].is_number(); ++i) {
      const double v = name == "prod" ? all.as_double() * items[i].as_double() : all.as_double() + items[i].as_double();
      all = Value::real(v, in.sym(name == "prod" ? S::Mul : S::Add, all, items[i], v));
    }
    if (all.is_number() && all.as_double() == r) s = all.sym();
  }
  return In::Impl::with_sym(result, s ? s : in.impl()->made_of(from, r));
}

Value arithmetic(In& in, std::string_view op, const Value& x, const Value& y) {
  if (array_of(x) || array_of(y)) {
    std::vector<Value> from;
    sized(in, x, from);
    sized(in, y, from);
    note_sizes(in, from, {});
  }
  A *a = to_array(in, x), *b = to_array(in, y);
  if (!a || !b) return {};
  bool ints = a->type != 'f' && b->type != 'f';
  auto go = [&](const std::function<double(double, double)>& f, char t) { return Value(scalar_or(in, broadcast2(in, a, b, f, t))); };
  char t = ints ? 'i' : 'f';
  if (op == "+") return go([](double p, double q) { return p + q; }, t);
  if (op == "-") return go([](double p, double q) { return p - q; }, t);
  if (op == "*") return go([](double p, double q) { return p * q; }, t);
  if (op == "/") return go([](double p, double q) { return p / q; }, 'f');
  if (op == "//") return go([](double p, double q) { return std::floor(p / q); }, t);
  if (op == "%")
    return go(
        [](double p, double q) {
          double m = std::fmod(p, q);
          return m != 0 && (m < 0) != (q < 0) ? m + q : m;
        },
        t);
  if (op == "**") return go([](double p, double q) { return std::pow(p, q); }, t);
  if (op == "&")
    return go([](double p, double q) { return static_cast<double>(static_cast<std::int64_t>(p) & static_cast<std::int64_t>(q)); },
              a->type == 'b' ? 'b' : 'i');
  if (op == "|")
    return go([](double p, double q) { return static_cast<double>(static_cast<std::int64_t>(p) | static_cast<std::int64_t>(q)); },
              a->type == 'b' ? 'b' : 'i');
  if (op == "<") return go([](double p, double q) { return p < q; }, 'b');
  if (op == "<=") return go([](double p, double q) { return p <= q; }, 'b');
  if (op == ">") return go([](double p, double q) { return p > q; }, 'b');
  if (op == ">=") return go([](double p, double q) { return p >= q; }, 'b');
  if (op == "==") return go([](double p, double q) { return p == q; }, 'b');
  if (op == "!=") return go([](double p, double q) { return p != q; }, 'b');
  return {};
}

Value index(In& in, A* a, const Value& key) {
  std::vector<Value> keys = key.is(Kind::Tuple) ? key.as<SeqObj>()->items : std::vector<Value>{key};
  if (keys.size() == 1 && array_of(keys[0]) && !a->shape.empty()) {  // fancy index along the first dimension
    A* k = array_of(keys[0]);
    std::size_t inner = a->shape[0] ? a->data.size() / static_cast<std::size_t>(a->shape[0]) : 0;
    std::vector<double> out;
    std::int64_t n = 0;
    for (std::size_t i = 0; i < k->data.size(); ++i) {
      auto at = k->type == 'b' ? static_cast<std::int64_t>(i) : static_cast<std::int64_t>(k->data[i]);
      if (k->type == 'b' && k->data[i] == 0) continue;
      if (at < 0) at += a->shape[0];
      if (at < 0 || at >= a->shape[0]) in.raise("IndexError", "index is out of bounds");
      for (std::size_t j = 0; j < inner; ++j) out.push_back(a->data[static_cast<std::size_t>(at) * inner + j]);
      ++n;
    }
    std::vector<std::int64_t> shape = a->shape;
    shape[0] = n;
    return make(in, shape, out, a->type);
  }
  std::size_t used = 0;
  for (auto& k : keys) used += !k.is_none() && !k.is(Kind::Ellipsis);
  if (used > a->shape.size()) in.raise("IndexError", "too many indices for array");
  std::vector<std::vector<std::int64_t>> picks;
  std::vector<std::int64_t> shape;
  std::size_t dim = 0;
  for (auto& k : keys) {
    if (k.is_none()) {
      shape.push_back(1);
      continue;
    }
    if (k.is(Kind::Ellipsis)) {
      for (std::size_t n = a->shape.size() - used; n > 0; --n) {
        picks.emplace_back(static_cast<std::size_t>(a->shape[dim]));
        std::iota(picks.back().begin(), picks.back().end(), 0);
        shape.push_back(a->shape[dim++]);
      }
      continue;
    }
    std::int64_t n = a->shape[dim++];
    if (k.is(Kind::Slice)) {
      Value r = in.getitem(in.make<RangeObj>(0, n, 1), k);
      picks.emplace_back();
      for (auto& x : in.to_vector(r)) picks.back().push_back(x.as_int());
      shape.push_back(static_cast<std::int64_t>(picks.back().size()));
    } else {
      std::int64_t i = in.to_int(k, "index");
      if (i < 0) i += n;
      if (i < 0 || i >= n)
        in.raise("IndexError", "index " + std::to_string(i) + " is out of bounds for axis with size " + std::to_string(n));
      picks.push_back({i});
    }
  }
  for (; dim < a->shape.size(); ++dim) {
    picks.emplace_back(static_cast<std::size_t>(a->shape[dim]));
    std::iota(picks.back().begin(), picks.back().end(), 0);
    shape.push_back(a->shape[dim]);
  }
  std::vector<double> out;
  std::function<void(std::size_t, std::size_t)> go = [&](std::size_t d, std::size_t at) {
    if (d == picks.size()) {
      out.push_back(a->data[at]);
      return;
    }
    for (auto i : picks[d]) go(d + 1, at * static_cast<std::size_t>(a->shape[d]) + static_cast<std::size_t>(i));
  };
  go(0, 0);
  return scalar_or(in, make(in, shape, out, a->type));
}

char dtype_char(In& in, const Value& v, char dflt) {
  if (!v.set() || v.is_none()) return dflt;
  std::string n = v.is(Kind::Class) ? v.as<ClassObj>()->name : v.is(Kind::Str) ? v.str() : in.to_repr(v);
  if (n.find("bool") != std::string::npos) return 'b';
  return n.find("int") != std::string::npos ? 'i' : n.find("complex") != std::string::npos ? 0 : 'f';
}

std::vector<std::int64_t> shape_of(In& in, const Value& v) {
  if (v.is_integral()) return {v.as_int()};
  std::vector<std::int64_t> s;
  for (auto& x : in.to_vector(v)) s.push_back(in.to_int(x, "shape"));
  return s;
}

std::size_t count(In& in, const std::vector<std::int64_t>& s) {
  std::size_t n = 1;
  for (auto d : s) n *= static_cast<std::size_t>(std::max<std::int64_t>(0, d));
  if (n > 2'000'000) in.raise("MemoryError", "array too large to be computed in the analysis");
  return n;
}

/// Anything in the arguments that is unknown or a tensor makes the result unknown.
Value unsure(In& in, CallInfo& c, const char* name) {
  for (auto& a : c.args)
    if (a.is_unknown()) return a;
    else if (a.is(Kind::Tensor)) return in.unknown(std::string("numpy.") + name + " of a tensor", c.call);
  return {};
}

}  // namespace

Value NdArrayObj::binary(In& in, std::string_view op, const Value& a, const Value& b) { return arithmetic(in, op, a, b); }
Value NdArrayObj::compare(In& in, std::string_view op, const Value& a, const Value& b) { return arithmetic(in, op, a, b); }
Value NdArrayObj::truth(In& in) {
  if (data.size() != 1)
    in.raise("ValueError", "The truth value of an array with more than one element is ambiguous. Use a.any() or a.all()");
  return Value::boolean(data[0] != 0);
}
Value NdArrayObj::getattr(In& in, std::string_view n) {
  if (n == "shape") {
    std::vector<Value> l;
    for (auto s : shape) l.push_back(Value::integer(s));
    return in.tuple(std::move(l));
  }
  if (n == "ndim") return Value::integer(static_cast<std::int64_t>(shape.size()));
  if (n == "size") return Value::integer(static_cast<std::int64_t>(data.size()));
  if (n == "dtype") return in.str(type == 'f' ? "float64" : type == 'i' ? "int64" : "bool");
  if (n == "T") {
    if (shape.size() != 2) return this;
    std::vector<double> out;
    for (std::int64_t j = 0; j < shape[1]; ++j)
      for (std::int64_t i = 0; i < shape[0]; ++i) out.push_back(data[static_cast<std::size_t>(i * shape[1] + j)]);
    return make(in, {shape[1], shape[0]}, out, type);
  }
  return {};
}

void register_numpy(Interpreter& in) {
  auto* cls = in.make_class("numpy", "ndarray");
  in.impl()->types["<ndarray>"] = cls;
  auto self = [](CallInfo& c) { return static_cast<A*>(c.args.at(0).obj()); };
  in.method(cls, "tolist", [self](In& i, CallInfo& c) { return self(c)->tolist(i); });
  in.method(cls, "item", [self](In& i, CallInfo& c) { return c.args.size() > 1 ? index(i, self(c), c.args[1]) : self(c)->element(0); });
  in.method(cls, "__len__", [self](In& i, CallInfo& c) {
    if (self(c)->shape.empty()) i.raise("TypeError", "len() of unsized object");
    return Value::integer(self(c)->shape[0]);
  });
  in.method(cls, "__getitem__", [self](In& i, CallInfo& c) { return index(i, self(c), c.args.at(1)); });
  in.method(cls, "__setitem__", [self](In& i, CallInfo& c) -> Value {
    A* a = self(c);
    // Which elements: index an array of positions the same way.
    std::vector<double> pos(a->data.size());
    std::iota(pos.begin(), pos.end(), 0.0);
    Value which = index(i, make(i, a->shape, pos, 'i'), c.args.at(1));
    A* w = to_array(i, which);
    A* v = to_array(i, c.args.at(2));
    if (!v || !w) {
      i.note_incomplete(i.range_of(c.call), "numpy assignment of a value that is not known");
      return Value::none();
    }
    A* vals = broadcast2(
        i, w, v, [](double, double q) { return q; }, v->type);
    for (std::size_t k = 0; k < w->data.size(); ++k) a->data[static_cast<std::size_t>(w->data[k])] = vals->data[k];
    return Value::none();
  });
  in.method(cls, "__iter__", [self](In& i, CallInfo& c) {
    std::vector<Value> l;
    for (std::int64_t k = 0; k < (self(c)->shape.empty() ? 0 : self(c)->shape[0]); ++k) l.push_back(index(i, self(c), Value::integer(k)));
    return i.iter(i.list(std::move(l)));
  });
  for (const char* n : {"__float__", "__int__", "__index__"}) {
    bool f = n[2] == 'f';
    in.method(cls, n, [self, f](In&, CallInfo& c) {
      double d = self(c)->data.at(0);
      return f ? Value::real(d) : Value::integer(static_cast<std::int64_t>(d));
    });
  }
  in.method(cls, "astype", [self](In& i, CallInfo& c) -> Value {
    char t = dtype_char(i, c.args.at(1), 'f');
    if (!t) return i.unknown("complex numpy array", c.call);
    auto d = self(c)->data;
    if (t == 'i')
      for (double& x : d) x = std::trunc(x);
    if (t == 'b')
      for (double& x : d) x = x != 0;
    return make(i, self(c)->shape, d, t);
  });
  for (const char* n : {"copy", "squeeze"}) {
    bool sq = n[0] == 's';
    in.method(cls, n, [self, sq](In& i, CallInfo& c) -> Value {
      auto s = self(c)->shape;
      if (sq) std::erase(s, 1);
      return make(i, s, self(c)->data, self(c)->type);
    });
  }
  for (const char* n : {"flatten", "ravel"})
    in.method(cls, n, [self](In& i, CallInfo& c) -> Value {
      return make(i, {static_cast<std::int64_t>(self(c)->data.size())}, self(c)->data, self(c)->type);
    });
  auto reshape = [](In& i, A* a, std::vector<std::int64_t> s) -> Value {
    std::int64_t known = 1, hole = -1;
    for (std::size_t k = 0; k < s.size(); ++k)
      if (s[k] < 0) hole = static_cast<std::int64_t>(k);
      else known *= s[k];
    auto n = static_cast<std::int64_t>(a->data.size());
    if (hole >= 0 && known) s[static_cast<std::size_t>(hole)] = n / known, known *= n / known;
    if (known != n) i.raise("ValueError", "cannot reshape array of size " + std::to_string(n));
    return make(i, s, a->data, a->type);
  };
  in.method(cls, "reshape", [self, reshape](In& i, CallInfo& c) {
    std::vector<std::int64_t> s;
    if (c.args.size() == 2) s = shape_of(i, c.args[1]);
    else
      for (std::size_t k = 1; k < c.args.size(); ++k) s.push_back(i.to_int(c.args[k]));
    return reshape(i, self(c), s);
  });
  auto axis_of = [](CallInfo& c, std::size_t at) {
    if (auto* k = c.keyword("axis")) return k->value;
    return c.args.size() > at ? c.args[at] : Value::none();
  };
  struct Red {
    const char* name;
    double start;
    std::function<double(double, double)> f;
    bool mean;
    char type;
  };
  std::vector<Red> reds = {{"sum", 0, [](double a, double b) { return a + b; }, false, 0},
                           {"prod", 1, [](double a, double b) { return a * b; }, false, 0},
                           {"mean", 0, [](double a, double b) { return a + b; }, true, 'f'},
                           {"max", -INFINITY, [](double a, double b) { return std::max(a, b); }, false, 0},
                           {"min", INFINITY, [](double a, double b) { return std::min(a, b); }, false, 0},
                           {"any", 0, [](double a, double b) { return static_cast<double>(a != 0 || b != 0); }, false, 'b'},
                           {"all", 1, [](double a, double b) { return static_cast<double>(a != 0 && b != 0); }, false, 'b'}};
  for (auto& r : reds)
    in.method(cls, r.name, [self, r, axis_of](In& i, CallInfo& c) {
      A* a = self(c);
      return reduce(i, a, axis_of(c, 1), r.f, r.start, r.mean, r.type ? r.type : a->type == 'b' ? 'i' : a->type);
    });
  auto cum = [](In& i, A* a, bool prod) -> Value {
    std::vector<double> d = a->data;
    for (std::size_t k = 1; k < d.size(); ++k) d[k] = prod ? d[k] * d[k - 1] : d[k] + d[k - 1];
    return make(i, {static_cast<std::int64_t>(d.size())}, d, a->type == 'b' ? 'i' : a->type);
  };
  in.method(cls, "cumsum", [self, cum](In& i, CallInfo& c) { return cum(i, self(c), false); });

  in.modules.native("numpy", [reds, axis_of, cum, reshape, cls](In& i, ModuleObj& m) {
    m.env.vars.set("ndarray", cls);
    m.env.vars.set("pi", Value::real(M_PI));
    m.env.vars.set("e", Value::real(M_E));
    m.env.vars.set("inf", Value::real(INFINITY));
    m.env.vars.set("nan", Value::real(NAN));
    m.env.vars.set("newaxis", Value::none());
    m.env.vars.set("__version__", i.str("2.0.0"));
    for (const char* n : {"float32", "float64", "float16", "double", "single"}) {
      auto* k = i.make_class("numpy", n, {i.builtin_class("float")});
      m.env.vars.set(n, k);
    }
    for (const char* n : {"int64", "int32", "int16", "int8", "uint8", "intp"}) {
      auto* k = i.make_class("numpy", n, {i.builtin_class("int")});
      m.env.vars.set(n, k);
    }
    m.env.vars.set("bool_", i.builtin_class("bool"));
    m.env.vars.set("complex64", i.make_class("numpy", "complex64"));
    m.env.vars.set("complex128", i.make_class("numpy", "complex128"));
    for (const char* n : {"integer", "floating", "number", "generic", "dtype"}) m.env.vars.set(n, i.make_class("numpy", n));
    // Scalars of numpy are plain numbers here.
    for (const char* n : {"float32", "float64", "float16", "double", "single", "int64", "int32", "int16", "int8", "uint8", "intp"}) {
      Value base = std::string(n).find("int") != std::string::npos ? i.builtin_class("int") : i.builtin_class("float");
      auto* nw = i.make<NativeObj>(std::string("numpy.") + n, [base](In& in, CallInfo& c) {
        return in.call(base, std::vector<Value>(c.args.begin() + 1, c.args.end()), c.call);
      });
      m.env.vars.get(n).as<ClassObj>()->dict.set("__new__", nw);
    }
    auto def = [&](const std::string& name, std::function<Value(In&, CallInfo&)> f) {
      i.def(m, name, [f, name](In& in, CallInfo& c) -> Value {
        Value u = unsure(in, c, name.c_str());
        if (u.set()) return u;
        if (c.args.empty() && c.kwargs.empty()) in.raise("TypeError", name + "() missing required arguments", c.call);
        return with_sizes(in, name, c, f(in, c));
      });
    };
    auto arr = [](In& in, CallInfo& c, std::size_t k) -> A* { return k < c.args.size() ? to_array(in, c.args[k]) : nullptr; };
    auto opaque = [](In& in, CallInfo& c) { return in.unknown("numpy value that is not followed", c.call); };
    for (const char* n : {"array", "asarray", "ascontiguousarray", "atleast_1d"})
      def(n, [arr, opaque, least = std::string(n) == "atleast_1d"](In& in, CallInfo& c) -> Value {
        A* a = arr(in, c, 0);
        if (!a) return opaque(in, c);
        if (least && a->shape.empty()) return make(in, {1}, a->data, a->type);
        Value dt = c.keyword("dtype") ? c.keyword("dtype")->value : c.args.size() > 1 ? c.args[1] : Value();
        char t = dtype_char(in, dt, a->type);
        if (!t) return opaque(in, c);
        auto d = a->data;
        if (t == 'i')
          for (double& x : d) x = std::trunc(x);
        return make(in, a->shape, d, t);
      });
    def("load", [](In& in, CallInfo& c) -> Value {
      if (!c.args.empty() && c.args[0].is(Kind::Str))
        if (auto a = read_npy(std::string(c.args[0].str()), 2'000'000)) return make(in, a->shape, std::move(a->data), a->type);
      return in.unknown("numpy.load of a file that is not here", c.call);
    });
    def("linspace", [](In& in, CallInfo& c) -> Value {
      static const Signature sig("numpy.linspace", "start, stop, num=50, endpoint=True, retstep=False, dtype=None, axis=0");
      auto b = sig.bind(in, c);
      for (std::size_t k = 0; k < 3; ++k)
        if (b[k].is_unknown()) return b[k];
      if (!b[0].is_number() || !b[1].is_number()) return in.unknown("numpy.linspace of arrays", c.call);
      std::int64_t n = in.to_int(b[2]);
      double lo = b[0].as_double(), hi = b[1].as_double();
      bool end = in.truthy(b[3]);
      if (n < 0) in.raise("ValueError", "Number of samples, " + std::to_string(n) + ", must be non-negative.", c.call);
      count(in, {n});
      std::vector<double> d;
      double div = static_cast<double>(end ? n - 1 : n);
      for (std::int64_t k = 0; k < n; ++k) d.push_back(div > 0 ? static_cast<double>(k) * ((hi - lo) / div) + lo : lo);
      if (end && n > 1) d.back() = hi;
      char t = dtype_char(in, b[5], 'f');
      if (t == 'i')
        for (double& x : d) x = std::floor(x);
      return make(in, {n}, d, t ? t : 'f');
    });
    def("logspace", [](In& in, CallInfo& c) -> Value {
      std::int64_t n = c.args.size() > 2 ? in.to_int(c.args[2]) : 50;
      double a = c.args.at(0).as_double(), b = c.args.at(1).as_double();
      std::vector<double> d;
      for (std::int64_t k = 0; k < n; ++k)
        d.push_back(std::pow(10.0, n > 1 ? a + (b - a) * static_cast<double>(k) / static_cast<double>(n - 1) : a));
      return make(in, {n}, d, 'f');
    });
    def("arange", [](In& in, CallInfo& c) -> Value {
      for (auto& a : c.args)
        if (!a.is_number()) return in.unknown("numpy.arange of something that is no number", c.call);
      bool ints = std::all_of(c.args.begin(), c.args.end(), [](const Value& v) { return v.is_integral(); });
      double lo = c.args.size() > 1 ? c.args[0].as_double() : 0, hi = c.args[c.args.size() > 1 ? 1 : 0].as_double(),
             st = c.args.size() > 2 ? c.args[2].as_double() : 1;
      std::vector<double> d;
      auto n = static_cast<std::int64_t>(std::max(0.0, std::ceil((hi - lo) / st)));
      count(in, {n});
      for (std::int64_t k = 0; k < n; ++k) d.push_back(lo + static_cast<double>(k) * st);
      Value dt = c.keyword("dtype") ? c.keyword("dtype")->value : Value();
      return make(in, {n}, d, dtype_char(in, dt, ints ? 'i' : 'f'));
    });
    for (auto [name, value] : {std::pair{"zeros", 0.0}, {"ones", 1.0}, {"empty", 0.0}})
      def(name, [value = value](In& in, CallInfo& c) -> Value {
        auto s = shape_of(in, c.args.empty() ? c.kwargs[0].value : c.args[0]);
        Value dt = c.keyword("dtype") ? c.keyword("dtype")->value : c.args.size() > 1 ? c.args[1] : Value();
        char t = dtype_char(in, dt, 'f');
        if (!t) return in.unknown("complex numpy array", c.call);
        return make(in, s, std::vector<double>(count(in, s), value), t);
      });
    for (auto [name, value] : {std::pair{"zeros_like", 0.0}, {"ones_like", 1.0}})
      def(name, [value = value, arr, opaque](In& in, CallInfo& c) -> Value {
        A* a = arr(in, c, 0);
        return a ? Value(make(in, a->shape, std::vector<double>(a->data.size(), value), a->type)) : opaque(in, c);
      });
    def("full", [](In& in, CallInfo& c) -> Value {
      auto s = shape_of(in, c.args.at(0));
      return make(in, s, std::vector<double>(count(in, s), c.args.at(1).as_double()), c.args[1].is(Kind::Float) ? 'f' : 'i');
    });
    def("eye", [](In& in, CallInfo& c) -> Value {
      std::int64_t n = in.to_int(c.args.at(0));
      std::vector<double> d(count(in, {n, n}));
      for (std::int64_t k = 0; k < n; ++k) d[static_cast<std::size_t>(k * n + k)] = 1;
      return make(in, {n, n}, d, 'f');
    });
    for (auto& r : reds)
      for (std::string n : {std::string(r.name), "a" + std::string(r.name)})
        if (n[0] != 'a' || n == "any" || n == "all" || n == "amax" || n == "amin")
          def(n, [r, arr, axis_of, opaque](In& in, CallInfo& c) -> Value {
            A* a = arr(in, c, 0);
            return a ? reduce(in, a, axis_of(c, 1), r.f, r.start, r.mean, r.type ? r.type : a->type == 'b' ? 'i' : a->type) : opaque(in, c);
          });
    struct Fn {
      const char* name;
      double (*f)(double);
      char type;
    };
    for (auto& f : std::vector<Fn>{{"sqrt", std::sqrt, 'f'},
                                   {"exp", std::exp, 'f'},
                                   {"log", std::log, 'f'},
                                   {"log2", std::log2, 'f'},
                                   {"log10", std::log10, 'f'},
                                   {"log1p", std::log1p, 'f'},
                                   {"sin", std::sin, 'f'},
                                   {"cos", std::cos, 'f'},
                                   {"tan", std::tan, 'f'},
                                   {"tanh", std::tanh, 'f'},
                                   {"arctan", std::atan, 'f'},
                                   {"arcsin", std::asin, 'f'},
                                   {"arccos", std::acos, 'f'},
                                   {"floor", std::floor, 'f'},
                                   {"ceil", std::ceil, 'f'},
                                   {"round", std::nearbyint, 'f'},
                                   {"rint", std::nearbyint, 'f'},
                                   {"abs", std::fabs, 0},
                                   {"absolute", std::fabs, 0},
                                   {"square", [](double x) { return x * x; }, 0},
                                   {"negative", [](double x) { return -x; }, 0},
                                   {"sign", [](double x) { return static_cast<double>((x > 0) - (x < 0)); }, 0},
                                   {"deg2rad", [](double x) { return x * M_PI / 180; }, 'f'},
                                   {"rad2deg", [](double x) { return x * 180 / M_PI; }, 'f'},
                                   {"radians", [](double x) { return x * M_PI / 180; }, 'f'},
                                   {"degrees", [](double x) { return x * 180 / M_PI; }, 'f'},
                                   {"isnan", [](double x) { return static_cast<double>(std::isnan(x)); }, 'b'},
                                   {"isinf", [](double x) { return static_cast<double>(std::isinf(x)); }, 'b'}})
      def(f.name, [f, arr, opaque](In& in, CallInfo& c) -> Value {
        A* a = arr(in, c, 0);
        if (!a) return opaque(in, c);
        auto d = a->data;
        for (double& x : d) x = f.f(x);
        return scalar_or(in, make(in, a->shape, d, f.type ? f.type : a->type));
      });
    for (auto [name, op] : {std::pair{"add", "+"},
                            {"subtract", "-"},
                            {"multiply", "*"},
                            {"divide", "/"},
                            {"power", "**"},
                            {"mod", "%"},
                            {"floor_divide", "//"}}) {
      std::string o = op;
      def(name, [o, opaque](In& in, CallInfo& c) -> Value {
        Value v = arithmetic(in, o, c.args.at(0), c.args.at(1));
        return v.set() ? v : opaque(in, c);
      });
    }
    for (auto [name, mx] : {std::pair{"maximum", true}, {"minimum", false}})
      def(name, [arr, opaque, mx = mx](In& in, CallInfo& c) -> Value {
        A *a = arr(in, c, 0), *b = arr(in, c, 1);
        if (!a || !b) return opaque(in, c);
        return scalar_or(in,
                         broadcast2(
                             in, a, b, [mx](double p, double q) { return mx ? std::max(p, q) : std::min(p, q); },
                             a->type == 'f' || b->type == 'f' ? 'f' : 'i'));
      });
    def("clip", [arr, opaque](In& in, CallInfo& c) -> Value {
      A* a = arr(in, c, 0);
      if (!a) return opaque(in, c);
      auto d = a->data;
      for (double& x : d) {
        if (c.args.size() > 1 && c.args[1].is_number()) x = std::max(x, c.args[1].as_double());
        if (c.args.size() > 2 && c.args[2].is_number()) x = std::min(x, c.args[2].as_double());
      }
      return scalar_or(in, make(in, a->shape, d, a->type));
    });
    for (const char* n : {"cumsum", "cumprod"}) {
      bool p = n[3] == 'p';
      def(n, [arr, opaque, cum, p](In& in, CallInfo& c) -> Value {
        A* a = arr(in, c, 0);
        return a ? cum(in, a, p) : opaque(in, c);
      });
    }
    def("reshape", [arr, opaque, reshape](In& in, CallInfo& c) -> Value {
      A* a = arr(in, c, 0);
      return a ? reshape(in, a, shape_of(in, c.args.at(1))) : opaque(in, c);
    });
    def("concatenate", [opaque](In& in, CallInfo& c) -> Value {
      Value ax = c.keyword("axis") ? c.keyword("axis")->value : c.args.size() > 1 ? c.args[1] : Value::integer(0);
      std::vector<A*> parts;
      for (auto& x : in.to_vector(c.args.at(0))) {
        A* a = to_array(in, x);
        if (!a || a->shape.empty()) return opaque(in, c);
        parts.push_back(a);
      }
      if (parts.empty()) in.raise("ValueError", "need at least one array to concatenate");
      std::int64_t axis = in.to_int(ax);
      if (axis < 0) axis += static_cast<std::int64_t>(parts[0]->shape.size());
      std::size_t outer = 1;
      for (std::int64_t k = 0; k < axis; ++k) outer *= static_cast<std::size_t>(parts[0]->shape[static_cast<std::size_t>(k)]);
      std::vector<std::int64_t> shape = parts[0]->shape;
      shape[static_cast<std::size_t>(axis)] = 0;
      std::vector<double> d;
      for (auto* a : parts) shape[static_cast<std::size_t>(axis)] += a->shape[static_cast<std::size_t>(axis)];
      for (std::size_t o = 0; o < outer; ++o)
        for (auto* a : parts) {
          std::size_t n = a->data.size() / outer;
          d.insert(d.end(), a->data.begin() + static_cast<std::ptrdiff_t>(o * n),
                   a->data.begin() + static_cast<std::ptrdiff_t>((o + 1) * n));
        }
      return make(in, shape, d, parts[0]->type);
    });
    for (const char* n : {"argmax", "argmin"}) {
      bool mx = n[3] == 'm' && n[4] == 'a';
      def(n, [arr, opaque, mx](In& in, CallInfo& c) -> Value {
        A* a = arr(in, c, 0);
        if (!a || a->data.empty()) return opaque(in, c);
        auto it = mx ? std::max_element(a->data.begin(), a->data.end()) : std::min_element(a->data.begin(), a->data.end());
        return Value::integer(it - a->data.begin());
      });
    }
    def("isscalar", [](In&, CallInfo& c) { return Value::boolean(c.args.at(0).is_number()); });
  });
  in.modules.native("numpy.random", [](In& i, ModuleObj& m) {
    i.def(m, "seed", [](In&, CallInfo&) { return Value::none(); });
    for (const char* n :
         {"rand", "randn", "randint", "uniform", "normal", "choice", "random", "permutation", "default_rng", "RandomState", "shuffle"})
      i.def(m, n, [](In& in, CallInfo& c) { return in.unknown("a random number", c.call); });
  });
  for (const char* n : {"numpy.typing", "numpy.linalg", "numpy.fft", "numpy.lib"}) in.modules.native(n, [](In&, ModuleObj&) {});
}

}  // namespace shardwright::eval
