// Operators: numbers (with the provenance of sizes), sequences, dunder methods, comparison, hashing, truth.
#include <algorithm>
#include <cmath>

#include "eval/impl.h"

namespace shardwright::eval {

namespace {

struct OpName {
  std::string_view op, method, reflected;
};
constexpr OpName kOps[] = {
    {"+", "__add__", "__radd__"},
    {"-", "__sub__", "__rsub__"},
    {"*", "__mul__", "__rmul__"},
    {"/", "__truediv__", "__rtruediv__"},
    {"//", "__floordiv__", "__rfloordiv__"},
    {"%", "__mod__", "__rmod__"},
    {"**", "__pow__", "__rpow__"},
    {"@", "__matmul__", "__rmatmul__"},
    {"&", "__and__", "__rand__"},
    {"|", "__or__", "__ror__"},
    {"^", "__xor__", "__rxor__"},
    {"<<", "__lshift__", "__rlshift__"},
    {">>", "__rshift__", "__rrshift__"},
    {"<", "__lt__", "__gt__"},
    {"<=", "__le__", "__ge__"},
    {">", "__gt__", "__lt__"},
    {">=", "__ge__", "__le__"},
    {"==", "__eq__", "__eq__"},
    {"!=", "__ne__", "__ne__"},
};

model::Sym::Kind sym_kind(std::string_view op) {
  using S = model::Sym;
  if (op == "+") return S::Add;
  if (op == "-") return S::Sub;
  if (op == "*") return S::Mul;
  if (op == "//") return S::FloorDiv;
  if (op == "/") return S::TrueDiv;
  if (op == "%") return S::Mod;
  if (op == "**") return S::Pow;
  return S::Other;
}

bool int_pow(std::int64_t a, std::int64_t b, std::int64_t& out) {
  out = 1;
  while (b > 0) {
    if (b & 1)
      if (__builtin_mul_overflow(out, a, &out)) return false;
    b >>= 1;
    if (b && __builtin_mul_overflow(a, a, &a)) return false;
  }
  return true;
}

}  // namespace

std::string_view method_for(std::string_view op, bool reflected) {
  for (const auto& o : kOps)
    if (o.op == op) return reflected ? o.reflected : o.method;
  return {};
}

const model::Sym* In::sym(model::Sym::Kind k, const Value& a, const Value& b, double value) {
  if (!a.sym() && !b.sym()) return nullptr;
  auto leaf = [&](const Value& v) -> const model::Sym* {
    if (v.sym()) return v.sym();
    if (!v.is_number()) return nullptr;
    model::Sym s;
    s.value = v.as_double();
    trace.syms.push_back(s);
    return &trace.syms.back();
  };
  model::Sym s;
  s.kind = k;
  s.value = value;
  s.a = leaf(a);
  s.b = leaf(b);
  trace.syms.push_back(s);
  return &trace.syms.back();
}

const model::Sym* In::dim_sym(model::TensorId t, int dim, std::int64_t size, Range read) {
  model::Sym s;
  s.kind = model::Sym::Dim;
  s.value = static_cast<double>(size);
  s.tensor = t;
  s.dim = dim;
  s.read = read;
  trace.syms.push_back(s);
  return &trace.syms.back();
}

void In::guard(std::string_view op, const Value& a, const Value& b, bool taken, Range where) {
  if (!a.sym() && !b.sym()) return;
  model::Guard g;
  g.range = where;
  g.op = std::string(op);
  g.a = a.sym();
  g.b = b.sym();
  g.a_value = a.is_number() ? a.as_double() : 0;
  g.b_value = b.is_number() ? b.as_double() : 0;
  g.taken = taken;
  g.clock = tick();
  trace.guards.push_back(g);
}

Value In::Impl::number_binary(std::string_view op, const Value& a, const Value& b) {
  if (a.is(Kind::Complex) || b.is(Kind::Complex)) return in.unknown("arithmetic on complex numbers");
  auto done_int = [&](std::int64_t v) { return Value::integer(v, in.sym(sym_kind(op), a, b, static_cast<double>(v))); };
  auto done_real = [&](double v) { return Value::real(v, in.sym(sym_kind(op), a, b, v)); };
  if (a.is_integral() && b.is_integral()) {
    std::int64_t x = a.as_int(), y = b.as_int(), r = 0;
    if (op == "+") {
      if (__builtin_add_overflow(x, y, &r)) return in.unknown("integer wider than 64 bits");
      return done_int(r);
    }
    if (op == "-") {
      if (__builtin_sub_overflow(x, y, &r)) return in.unknown("integer wider than 64 bits");
      return done_int(r);
    }
    if (op == "*") {
      if (__builtin_mul_overflow(x, y, &r)) return in.unknown("integer wider than 64 bits");
      return done_int(r);
    }
    if (op == "//" || op == "%") {
      if (y == 0) in.raise("ZeroDivisionError", op == "//" ? "integer division or modulo by zero" : "integer modulo by zero");
      if (y == -1) return done_int(op == "//" ? -x : 0);
      std::int64_t q = x / y, m = x % y;
      if (m != 0 && ((m < 0) != (y < 0))) {
        --q;
        m += y;
      }
      return done_int(op == "//" ? q : m);
    }
    if (op == "/") {
      if (y == 0) in.raise("ZeroDivisionError", "division by zero");
      return done_real(static_cast<double>(x) / static_cast<double>(y));
    }
    if (op == "**") {
      if (y < 0) {
        if (x == 0) in.raise("ZeroDivisionError", "0.0 cannot be raised to a negative power");
        return done_real(std::pow(static_cast<double>(x), static_cast<double>(y)));
      }
      if (!int_pow(x, y, r)) return in.unknown("integer wider than 64 bits");
      return done_int(r);
    }
    bool both = a.is(Kind::Bool) && b.is(Kind::Bool);
    if (op == "&") return both ? Value::boolean((x & y) != 0) : done_int(x & y);
    if (op == "|") return both ? Value::boolean((x | y) != 0) : done_int(x | y);
    if (op == "^") return both ? Value::boolean((x ^ y) != 0) : done_int(x ^ y);
    if (op == "<<") {
      if (y < 0) in.raise("ValueError", "negative shift count");
      if (y > 62 || (x != 0 && std::abs(static_cast<double>(x)) * std::pow(2.0, static_cast<double>(y)) > 9e18))
        return in.unknown("integer wider than 64 bits");
      return done_int(x << y);
    }
    if (op == ">>") {
      if (y < 0) in.raise("ValueError", "negative shift count");
      return done_int(x >> std::min<std::int64_t>(y, 63));
    }
    return {};
  }
  double x = a.as_double(), y = b.as_double();
  if (op == "+") return done_real(x + y);
  if (op == "-") return done_real(x - y);
  if (op == "*") return done_real(x * y);
  if (op == "/" || op == "//" || op == "%") {
    if (y == 0) in.raise("ZeroDivisionError", "float division by zero");
    if (op == "/") return done_real(x / y);
    if (op == "//") return done_real(std::floor(x / y));
    double m = std::fmod(x, y);
    if (m != 0 && ((m < 0) != (y < 0))) m += y;
    return done_real(m);
  }
  if (op == "**") {
    if (x == 0 && y < 0) in.raise("ZeroDivisionError", "0.0 cannot be raised to a negative power");
    return done_real(std::pow(x, y));
  }
  return {};
}

Value In::Impl::seq_binary(std::string_view op, const Value& a, const Value& b, bool inplace) {
  auto is_seq = [](const Value& v) { return v.is(Kind::Tuple) || v.is(Kind::List); };
  if (op == "+") {
    if (a.is(Kind::Str) && b.is(Kind::Str)) return in.str(a.str() + b.str());
    if (a.is(Kind::Bytes) && b.is(Kind::Bytes)) return in.make<StrObj>(a.str() + b.str(), Kind::Bytes);
    if (a.is(Kind::List) && inplace) {
      auto more = in.to_vector(b);
      auto& items = a.as<SeqObj>()->items;
      items.insert(items.end(), more.begin(), more.end());
      return a;
    }
    if (is_seq(a) && a.kind() == b.kind()) {
      std::vector<Value> items = a.as<SeqObj>()->items;
      const auto& more = b.as<SeqObj>()->items;
      items.insert(items.end(), more.begin(), more.end());
      return in.make<SeqObj>(a.kind(), std::move(items),
                             a.kind() == Kind::Tuple && a.obj()->cls && a.obj()->cls->builtin && !a.obj()->cls->lookup("_fields").set()
                                 ? a.obj()->cls
                                 : nullptr);
    }
    return {};
  }
  if (op == "*") {
    const Value& s = is_seq(a) || a.is(Kind::Str) || a.is(Kind::Bytes) ? a : b;
    const Value& n = &s == &a ? b : a;
    if (!n.is_integral()) return {};
    if (n.as_int() > 10'000'000) return in.unknown("very long repetition");
    if (s.is(Kind::Str) || s.is(Kind::Bytes)) {
      std::string out;
      for (std::int64_t i = 0; i < n.as_int(); ++i) out += s.str();
      return in.make<StrObj>(out, s.kind());
    }
    if (is_seq(s)) {
      std::vector<Value> out;
      const auto& items = s.as<SeqObj>()->items;
      in.guard("repeat", n, Value::none(), true, {});  // how long the list is
      for (std::int64_t i = 0; i < n.as_int(); ++i) {
        steps += static_cast<std::int64_t>(items.size());
        out.insert(out.end(), items.begin(), items.end());
      }
      if (inplace && s.is(Kind::List)) {
        s.as<SeqObj>()->items = std::move(out);
        return s;
      }
      return in.make<SeqObj>(s.kind(), std::move(out));
    }
    return {};
  }
  if (op == "%" && a.is(Kind::Str)) return percent_format(a.str(), b);
  auto is_set = [](const Value& v) { return v.is(Kind::Set) || v.is(Kind::FrozenSet); };
  if (op == "|" && a.is(Kind::Dict) && b.is(Kind::Dict)) {
    auto* d = inplace ? a.as<DictObj>() : in.make<DictObj>();
    if (!inplace)
      for (auto& x : a.as<DictObj>()->entries)
        if (x.alive) d->set(in, x.key, x.value);
    for (auto& x : std::vector<DictObj::Entry>(b.as<DictObj>()->entries))
      if (x.alive) d->set(in, x.key, x.value);
    return d;
  }
  if (is_set(a) && is_seq(b) && (op == "|" || op == "&" || op == "-" || op == "^")) {  // dict.keys() | [...]
    auto* other = in.make<DictObj>(Kind::Set);
    for (const auto& v : b.as<SeqObj>()->items) other->set(in, v, Value::none());
    return seq_binary(op, a, other, inplace);
  }
  if (is_set(a) && is_set(b)) {
    auto* x = a.as<DictObj>();
    auto* y = b.as<DictObj>();
    auto* d = in.make<DictObj>(a.kind());
    for (auto& e : x->entries) {
      if (!e.alive) continue;
      bool other = y->find(in, e.key) != nullptr;
      if (op == "|" || (op == "&" && other) || (op == "-" && !other) || (op == "^" && !other)) d->set(in, e.key, Value::none());
    }
    if (op == "|" || op == "^")
      for (auto& e : y->entries)
        if (e.alive && (op == "|" || !x->find(in, e.key))) d->set(in, e.key, Value::none());
    if (inplace && a.is(Kind::Set)) {
      x->entries = d->entries;
      x->index = d->index;
      x->live = d->live;
      return a;
    }
    return d;
  }
  return {};
}

Value In::Impl::dunder_binary(std::string_view op, const Value& a, const Value& b, bool inplace) {
  std::string_view m = method_for(op, false), r = method_for(op, true);
  auto try_call = [&](const Value& self, std::string_view name, const Value& other) -> Value {
    if (!self.is_object() || self.is(Kind::Unknown)) return {};
    ClassObj* c = self.is(Kind::Class) ? self.as<ClassObj>()->metaclass : self.obj()->cls;
    if (!c) return {};
    Value f = c->lookup(name);
    if (!f.set() || f.is_none()) return {};
    Value v = in.call(bind(f, self, c), {other});
    return v.is(Kind::NotImplemented) ? Value() : v;
  };
  if (inplace) {
    std::string name = "__i" + std::string(m.substr(2));
    Value v = try_call(a, name, b);
    if (v.set()) return v;
  }
  // A subclass on the right goes first.
  if (a.is_object() && b.is_object() && b.obj()->cls && a.obj()->cls && b.obj()->cls != a.obj()->cls &&
      b.obj()->cls->derives_from(a.obj()->cls)) {
    Value v = try_call(b, r, a);
    if (v.set()) return v;
  }
  Value v = try_call(a, m, b);
  if (v.set()) return v;
  return try_call(b, r, a);
}

Value In::binary(std::string_view op, const Value& a, const Value& b, const Expr* site, const Expr* ea, const Expr* eb, bool inplace) {
  if (a.is_number() && b.is_number()) {
    Value v;
    try {
      v = impl_->number_binary(op, a, b);
    } catch (PyError&) { throw; }
    if (v.set()) return v;
  }
  if (a.is(Kind::Tensor) || b.is(Kind::Tensor)) {
    const Value& other = a.is(Kind::Tensor) ? b : a;
    if (tensors && (other.is_number() || other.is(Kind::Tensor) || other.is_unknown() || other.is(Kind::Complex) || other.is(Kind::Host)))
      return tensors->binary(*this, op, a, b, site, ea, eb, inplace);
    if (tensors && !(other.is(Kind::Instance))) return tensors->binary(*this, op, a, b, site, ea, eb, inplace);
  }
  if (a.is_unknown()) return a;
  if (b.is_unknown()) return b;
  if ((a.is(Kind::Complex) || b.is(Kind::Complex)) && (a.is_number() || a.is(Kind::Complex)) && (b.is_number() || b.is(Kind::Complex))) {
    if (op == "*" && a.is_number()) return Value::imaginary(a.as_double() * b.as_double());
    if (op == "*" && b.is_number()) return Value::imaginary(a.as_double() * b.as_double());
    return unknown("arithmetic on complex numbers", site);
  }
  Value v = impl_->dunder_binary(op, a, b, inplace);
  if (v.set()) return v;
  // Members of IntEnum and the like count as their numbers.
  auto base = [](const Value& x) { return x.is(Kind::Instance) && x.as<InstanceObj>()->base.set() ? x.as<InstanceObj>()->base : x; };
  if (base(a).kind() != a.kind() || base(b).kind() != b.kind()) return binary(op, base(a), base(b), site, ea, eb, inplace);
  for (const Value* h : {&a, &b})
    if (h->is(Kind::Host)) {
      v = h->as<HostObj>()->binary(*this, op, a, b);
      if (v.set()) return v;
    }
  v = impl_->seq_binary(op, a, b, inplace);
  if (v.set()) return v;
  // X | Y on types: an annotation
  if (op == "|" && (a.is(Kind::Class) || a.is_none() || b.is(Kind::Class))) return tuple({a, b});
  for (const Value* x : {&a, &b})
    if (x->is_object() && type_of(*x)->unknown_base.is_unknown()) return unknown("operator on an object whose class is not followed", site);
  raise("TypeError",
        "unsupported operand type(s) for " + std::string(op) + (inplace ? "=" : "") + ": '" + type_of(a)->name + "' and '" +
            type_of(b)->name + "'",
        site);
}

Value In::unary(std::string_view op, const Value& a, const Expr* site, const Expr* ea) {
  if (a.is(Kind::Tensor) && tensors) return tensors->unary(*this, op, a, site, ea);
  if (a.is_integral()) {
    if (op == "-") return Value::integer(-a.as_int(), sym(model::Sym::Neg, a, Value::none(), static_cast<double>(-a.as_int())));
    if (op == "+") return Value::integer(a.as_int(), a.sym());
    if (op == "~") return Value::integer(~a.as_int());
  }
  if (a.is(Kind::Float)) {
    if (op == "-") return Value::real(-a.as_double(), sym(model::Sym::Neg, a, Value::none(), -a.as_double()));
    if (op == "+") return a;
  }
  if (a.is(Kind::Complex)) return op == "-" ? Value::imaginary(-a.as_double()) : a;
  if (a.is_unknown()) return a;
  if (a.is_object() && a.obj()->cls && !a.is(Kind::Class)) {
    Value f = a.obj()->cls->lookup(op == "-" ? "__neg__" : op == "+" ? "__pos__" : "__invert__");
    if (f.set()) return call(f, {a}, site);
    if (a.is(Kind::Host) && op == "-") {
      Value v = a.as<HostObj>()->binary(*this, "*", a, Value::integer(-1));
      if (v.set()) return v;
    }
    if (a.is(Kind::Instance) && a.as<InstanceObj>()->base.set()) return unary(op, a.as<InstanceObj>()->base, site, ea);
  }
  raise("TypeError", "bad operand type for unary " + std::string(op) + ": '" + type_of(a)->name + "'", site);
}

// ---- comparison -------------------------------------------------------------------------------------------------------

bool In::identical(const Value& a, const Value& b) {
  if (a.kind() != b.kind()) return false;
  if (a.is(Kind::Unknown)) return a.obj() == b.obj();
  if (a.is_object()) {
    if (a.obj() == b.obj()) return true;
    if (a.is(Kind::BoundMethod)) return false;
    return a.is(Kind::Str) && !a.obj()->cls && a.str() == b.str();  // interned, nearly always
  }
  if (a.is(Kind::Float) || a.is(Kind::Complex)) return a.as_double() == b.as_double();
  if (a.is(Kind::Int) || a.is(Kind::Bool)) return a.as_int() == b.as_int();
  return true;
}

Value In::compare(std::string_view op, const Value& a, const Value& b, const Expr* site, const Expr* ea, const Expr* eb) {
  if (op == "is" || op == "is not") {
    if (a.is_unknown() || b.is_unknown()) {
      if (a.is_unknown() && b.is_unknown() && a.obj() == b.obj()) return Value::boolean(op == "is");
      return a.is_unknown() ? a : b;
    }
    return Value::boolean(identical(a, b) == (op == "is"));
  }
  if (op == "in" || op == "not in") {
    if (b.is_unknown()) return b;
    Value r = impl_->contains(b, a);
    if (op == "in") return r;
    if (r.is_unknown()) return r;
    return Value::boolean(!truthy(r, site));
  }
  if (a.is(Kind::Tensor) || b.is(Kind::Tensor)) {
    const Value& other = a.is(Kind::Tensor) ? b : a;
    if (tensors && (other.is_number() || other.is(Kind::Tensor) || other.is_unknown() || other.is(Kind::Host)))
      return tensors->compare(*this, op, a, b, site, ea, eb);
    if (op == "==" || op == "!=") return Value::boolean(op == "!=");
  }
  if (a.is_unknown()) return a;
  if (b.is_unknown()) return b;
  if (a.is_number() && b.is_number()) {
    bool r;
    if (a.is_integral() && b.is_integral()) {
      auto x = a.as_int(), y = b.as_int();
      r = op == "<" ? x < y : op == "<=" ? x <= y : op == ">" ? x > y : op == ">=" ? x >= y : op == "==" ? x == y : x != y;
    } else {
      auto x = a.as_double(), y = b.as_double();
      r = op == "<" ? x < y : op == "<=" ? x <= y : op == ">" ? x > y : op == ">=" ? x >= y : op == "==" ? x == y : x != y;
    }
    guard(op, a, b, r, site ? site->range : here());
    return Value::boolean(r);
  }
  if (a.is_object() || b.is_object()) {
    bool plain = a.is_object() && b.is_object() && !a.obj()->cls && !b.obj()->cls;
    if (!plain) {
      Value r = impl_->dunder_binary(op, a, b, false);
      if (r.set()) return r;
      if (op == "!=") {
        r = impl_->dunder_binary("==", a, b, false);
        if (r.set()) {
          if (r.is_unknown()) return r;
          return Value::boolean(!truthy(r, site));
        }
      }
    }
    for (const Value* h : {&a, &b})
      if (h->is(Kind::Host)) {
        Value r = h->as<HostObj>()->compare(*this, op, a, b);
        if (r.set()) return r;
        if (op == "==" || op == "!=") return Value::boolean(h->as<HostObj>()->equals(*this, h == &a ? b : a) == (op == "=="));
      }
    auto base = [](const Value& x) { return x.is(Kind::Instance) && x.as<InstanceObj>()->base.set() ? x.as<InstanceObj>()->base : x; };
    if (base(a).kind() != a.kind() || base(b).kind() != b.kind()) return compare(op, base(a), base(b), site, ea, eb);
  }
  if (op == "==" || op == "!=") {
    bool by_identity = a.is(Kind::Instance) || b.is(Kind::Instance) || a.is(Kind::Host) || b.is(Kind::Host);
    return Value::boolean((by_identity ? identical(a, b) : equal(a, b)) == (op == "=="));
  }
  bool r;
  auto order = [&](int c) { return op == "<" ? c < 0 : op == "<=" ? c <= 0 : op == ">" ? c > 0 : c >= 0; };
  auto is_set = [](const Value& v) { return v.is(Kind::Set) || v.is(Kind::FrozenSet); };
  if (a.is(Kind::Str) && b.is(Kind::Str)) {
    r = order(a.str().compare(b.str()));
  } else if ((a.is(Kind::Tuple) && b.is(Kind::Tuple)) || (a.is(Kind::List) && b.is(Kind::List))) {
    const auto& x = a.as<SeqObj>()->items;
    const auto& y = b.as<SeqObj>()->items;
    for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (x[i].sym() || y[i].sym()) guard("==", x[i], y[i], equal(x[i], y[i]), site ? site->range : here());
      if (!equal(x[i], y[i])) return compare(op, x[i], y[i], site);
    }
    r = order(x.size() < y.size() ? -1 : x.size() > y.size() ? 1 : 0);
  } else if (is_set(a) && is_set(b)) {
    auto subset = [&](DictObj* x, DictObj* y) {
      for (auto& e : x->entries)
        if (e.alive && !y->find(*this, e.key)) return false;
      return true;
    };
    auto* x = a.as<DictObj>();
    auto* y = b.as<DictObj>();
    r = op == "<="   ? subset(x, y)
        : op == ">=" ? subset(y, x)
        : op == "<"  ? subset(x, y) && x->live < y->live
                     : subset(y, x) && y->live < x->live;
  } else {
    for (const Value* x : {&a, &b})
      if (x->is_object() && type_of(*x)->unknown_base.is_unknown())
        return unknown("comparison with an object whose class is not followed", site);
    raise("TypeError",
          "'" + std::string(op) + "' not supported between instances of '" + type_of(a)->name + "' and '" + type_of(b)->name + "'", site);
  }
  return Value::boolean(r);
}

bool In::equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    bool r = a.is_integral() && b.is_integral() ? a.as_int() == b.as_int() : a.as_double() == b.as_double();
    if (a.sym() || b.sym()) guard("==", a, b, r, here());
    return r;
  }
  if (a.is_unknown() || b.is_unknown()) return false;
  if (a.is(Kind::Instance) || b.is(Kind::Instance) || a.is(Kind::Host) || b.is(Kind::Host)) {
    if (a.is_object() && b.is_object() && a.obj() == b.obj()) return true;
    Value r = compare("==", a, b);
    if (r.is(Kind::Bool)) return r.as_bool();
    if (a.is(Kind::Instance) && !(a.as<InstanceObj>()->base.set())) return r.set() && !r.is_unknown() && truth(r).value_or(false);
    return truth(r).value_or(false);
  }
  auto is_set = [](const Value& v) { return v.is(Kind::Set) || v.is(Kind::FrozenSet); };
  if (is_set(a) && is_set(b)) {
    auto* x = a.as<DictObj>();
    auto* y = b.as<DictObj>();
    if (x->live != y->live) return false;
    for (auto& e : x->entries)
      if (e.alive && !y->find(*this, e.key)) return false;
    return true;
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::Str:
    case Kind::Bytes: return a.str() == b.str();
    case Kind::Tuple:
    case Kind::List: {
      const auto& x = a.as<SeqObj>()->items;
      const auto& y = b.as<SeqObj>()->items;
      if (x.size() != y.size()) return false;
      for (std::size_t i = 0; i < x.size(); ++i)
        if (!identical(x[i], y[i]) && !equal(x[i], y[i])) return false;
        else if (x[i].sym() || y[i].sym()) guard("==", x[i], y[i], true, here());
      return true;
    }
    case Kind::Dict: {
      auto* x = a.as<DictObj>();
      auto* y = b.as<DictObj>();
      if (x->live != y->live) return false;
      for (auto& e : x->entries) {
        if (!e.alive) continue;
        Value* v = y->find(*this, e.key);
        if (!v || (!identical(*v, e.value) && !equal(e.value, *v))) return false;
      }
      return true;
    }
    case Kind::Range:
      return a.as<RangeObj>()->start == b.as<RangeObj>()->start && a.as<RangeObj>()->stop == b.as<RangeObj>()->stop &&
          a.as<RangeObj>()->step == b.as<RangeObj>()->step;
    case Kind::Slice:
      return equal(a.as<SliceObj>()->start, b.as<SliceObj>()->start) && equal(a.as<SliceObj>()->stop, b.as<SliceObj>()->stop) &&
          equal(a.as<SliceObj>()->step, b.as<SliceObj>()->step);
    case Kind::BoundMethod:
      return identical(a.as<BoundMethodObj>()->self, b.as<BoundMethodObj>()->self) &&
          identical(a.as<BoundMethodObj>()->function, b.as<BoundMethodObj>()->function);
    default: return identical(a, b);
  }
}

std::size_t In::hash(const Value& v) {
  switch (v.kind()) {
    case Kind::Bool:
    case Kind::Int: return std::hash<std::int64_t>()(v.as_int());
    case Kind::Float: {
      double d = v.as_double();
      if (d == std::floor(d) && std::abs(d) < 9e18) return std::hash<std::int64_t>()(static_cast<std::int64_t>(d));
      return std::hash<double>()(d);
    }
    case Kind::Str:
    case Kind::Bytes: return std::hash<std::string_view>()(v.str());
    case Kind::Tuple: {
      std::size_t h = 0x345678;
      for (const auto& x : v.as<SeqObj>()->items) h = h * 1000003 ^ hash(x);
      return h;
    }
    case Kind::FrozenSet: {
      std::size_t h = 7;
      for (const auto& e : v.as<DictObj>()->entries)
        if (e.alive) h ^= hash(e.key);
      return h;
    }
    case Kind::List:
    case Kind::Dict:
    case Kind::Set:
      if (v.obj()->cls && v.obj()->cls->lookup("__hash__").is(Kind::Function)) return hash(call(v.obj()->cls->lookup("__hash__"), {v}));
      raise("TypeError", "unhashable type: '" + type_of(v)->name + "'");
    case Kind::Instance: {
      if (v.as<InstanceObj>()->base.set()) return hash(v.as<InstanceObj>()->base);
      Value f = v.obj()->cls->lookup("__hash__");
      if (f.is(Kind::Function)) return hash(call(f, {v}));
      return std::hash<const void*>()(v.obj());
    }
    case Kind::Host: return v.as<HostObj>()->hash();
    case Kind::BoundMethod:
      return std::hash<const void*>()(v.as<BoundMethodObj>()->self.is_object() ? v.as<BoundMethodObj>()->self.obj() : nullptr);
    default: return v.is_object() ? std::hash<const void*>()(v.obj()) : static_cast<std::size_t>(v.kind()) * 7919;
  }
}

std::optional<bool> In::truth(const Value& v) {
  switch (v.kind()) {
    case Kind::None: return false;
    case Kind::Bool:
    case Kind::Int: return v.as_int() != 0;
    case Kind::Float:
    case Kind::Complex: return v.as_double() != 0;
    case Kind::Unknown:
    case Kind::Unset: return std::nullopt;
    case Kind::Tensor: {
      if (!tensors) return std::nullopt;
      Value t = tensors->truth(*this, v);
      if (t.is_number()) return t.as_double() != 0;
      return std::nullopt;
    }
    default: break;
  }
  if (v.is(Kind::Class)) return true;
  if (v.is_object() && v.obj()->cls) {
    Value f = v.obj()->cls->lookup("__bool__");
    if (f.set()) return truth(call(f, {v}));
    f = v.obj()->cls->lookup("__len__");
    if (f.is(Kind::Function) || (f.is(Kind::Native) && v.is(Kind::Instance))) return truth(call(f, {v}));
  }
  switch (v.kind()) {
    case Kind::Str:
    case Kind::Bytes: return !v.str().empty();
    case Kind::Tuple:
    case Kind::List: return !v.as<SeqObj>()->items.empty();
    case Kind::Dict:
    case Kind::Set:
    case Kind::FrozenSet: return v.as<DictObj>()->live != 0;
    case Kind::Range: return v.as<RangeObj>()->size() != 0;
    case Kind::Host: {
      Value t = v.as<HostObj>()->truth(*this);
      return t.is(Kind::Bool) ? std::optional<bool>(t.as_bool()) : std::nullopt;
    }
    case Kind::Instance:
      if (v.as<InstanceObj>()->base.set()) return truth(v.as<InstanceObj>()->base);
      return true;
    default: return true;
  }
}

bool In::truthy(const Value& v, const Expr* site) {
  auto t = truth(v);
  if (!t) {
    note_incomplete(range_of(site), "condition that is not known" + (v.is_unknown() ? ": " + v.as<UnknownObj>()->why : std::string()));
    return false;
  }
  if (v.sym()) guard("!=", v, Value::integer(0), *t, range_of(site));
  return *t;
}

}  // namespace shardwright::eval
