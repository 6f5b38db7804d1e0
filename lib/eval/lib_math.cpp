// The math module, on numbers that may come from tensors' sizes.
#include <cmath>
#include <numeric>

#include "eval/impl.h"

namespace shardwright::eval {

namespace {

Value number(In& in, CallInfo& c, std::size_t i) {
  if (i >= c.args.size())
    in.raise("TypeError", "expected " + std::to_string(i + 1) + " arguments, got " + std::to_string(c.args.size()), c.call);
  Value v = c.args[i];
  if (v.is(Kind::Instance) && v.as<InstanceObj>()->base.set()) v = v.as<InstanceObj>()->base;
  if (v.is_number() || v.is_unknown()) return v;
  if (v.is(Kind::Tensor) && in.tensors) return in.tensors->to_number(in, v, "float");
  if (v.is_object()) {
    Value f = in.getattr_or(v, "__float__");
    if (f.set()) return in.call(f, {});
  }
  in.raise("TypeError", "must be real number, not " + in.type_of(v)->name, c.call);
}

}  // namespace

void register_math(Interpreter& in) {
  in.modules.native("math", [](In& i, ModuleObj& m) {
    for (auto [n, v] : {std::pair{"pi", M_PI}, {"e", M_E}, {"tau", 2 * M_PI}, {"inf", INFINITY}, {"nan", NAN}})
      m.env.vars.set(n, Value::real(v));
    auto real1 = [&](const char* name, double (*f)(double), bool (*ok)(double) = nullptr) {
      i.def(m, name, [f, ok](In& in, CallInfo& c) -> Value {
        Value v = number(in, c, 0);
        if (v.is_unknown()) return v;
        if (ok && !ok(v.as_double())) in.raise("ValueError", "math domain error", c.call);
        double r = f(v.as_double());
        return Value::real(r, in.sym(model::Sym::Other, v, Value::none(), r));
      });
    };
    real1("exp", std::exp);
    real1("expm1", std::expm1);
    real1("sin", std::sin);
    real1("cos", std::cos);
    real1("tan", std::tan);
    real1("atan", std::atan);
    real1("sinh", std::sinh);
    real1("cosh", std::cosh);
    real1("tanh", std::tanh);
    real1("fabs", std::fabs);
    real1("erf", std::erf);
    real1("erfc", std::erfc);
    real1("gamma", std::tgamma);
    real1("lgamma", std::lgamma);
    real1("cbrt", std::cbrt);
    real1("asinh", std::asinh);
    auto in1 = [](double x) { return x >= -1 && x <= 1; };
    real1("asin", std::asin, in1);
    real1("acos", std::acos, in1);
    real1("atanh", std::atanh, [](double x) { return x > -1 && x < 1; });
    real1("acosh", std::acosh, [](double x) { return x >= 1; });
    real1("log2", std::log2, [](double x) { return x > 0; });
    real1("log10", std::log10, [](double x) { return x > 0; });
    real1("log1p", std::log1p, [](double x) { return x > -1; });
    real1("degrees", [](double x) { return x * 180 / M_PI; });
    real1("radians", [](double x) { return x * M_PI / 180; });
    real1("exp2", std::exp2);
    i.def(m, "sqrt", [](In& in, CallInfo& c) -> Value {
      Value v = number(in, c, 0);
      if (v.is_unknown()) return v;
      if (v.as_double() < 0) in.raise("ValueError", "math domain error", c.call);
      double r = std::sqrt(v.as_double());
      return Value::real(r, in.sym(model::Sym::Pow, v, Value::real(0.5), r));
    });
    i.def(m, "log", [](In& in, CallInfo& c) -> Value {
      Value v = number(in, c, 0);
      if (v.is_unknown()) return v;
      if (v.as_double() <= 0) in.raise("ValueError", "math domain error", c.call);
      double r = std::log(v.as_double());
      if (c.args.size() > 1) {
        Value b = number(in, c, 1);
        if (b.is_unknown()) return b;
        r /= std::log(b.as_double());
      }
      return Value::real(r, in.sym(model::Sym::Other, v, Value::none(), r));
    });
    i.def(m, "pow", [](In& in, CallInfo& c) -> Value {
      Value a = number(in, c, 0), b = number(in, c, 1);
      if (a.is_unknown()) return a;
      if (b.is_unknown()) return b;
      double r = std::pow(a.as_double(), b.as_double());
      return Value::real(r, in.sym(model::Sym::Pow, a, b, r));
    });
    auto real2 = [&](const char* name, double (*f)(double, double)) {
      i.def(m, name, [f](In& in, CallInfo& c) -> Value {
        Value a = number(in, c, 0), b = number(in, c, 1);
        if (a.is_unknown()) return a;
        if (b.is_unknown()) return b;
        double r = f(a.as_double(), b.as_double());
        return Value::real(r, in.sym(model::Sym::Other, a, b, r));
      });
    };
    real2("atan2", std::atan2);
    real2("fmod", std::fmod);
    real2("copysign", std::copysign);
    i.def(m, "hypot", [](In& in, CallInfo& c) -> Value {
      double s = 0;
      for (std::size_t k = 0; k < c.args.size(); ++k) {
        double d = number(in, c, k).as_double();
        s += d * d;
      }
      return Value::real(std::sqrt(s));
    });
    for (auto [name, f] : {std::pair<const char*, double (*)(double)>{"floor", std::floor}, {"ceil", std::ceil}, {"trunc", std::trunc}})
      i.def(m, name, [f = f](In& in, CallInfo& c) -> Value {
        Value v = number(in, c, 0);
        if (v.is_unknown() || v.is(Kind::Int)) return v;
        double d = v.as_double();
        if (!std::isfinite(d)) in.raise("OverflowError", "cannot convert float infinity or NaN to integer", c.call);
        double r = f(d);
        return Value::integer(static_cast<std::int64_t>(r), in.sym(model::Sym::Other, v, Value::none(), r));
      });
    for (auto [name, which] : {std::pair{"isnan", 0}, {"isinf", 1}, {"isfinite", 2}})
      i.def(m, name, [which = which](In& in, CallInfo& c) -> Value {
        Value v = number(in, c, 0);
        if (v.is_unknown()) return v;
        double d = v.as_double();
        return Value::boolean(which == 0 ? std::isnan(d) : which == 1 ? std::isinf(d) : std::isfinite(d));
      });
    i.def(m, "isclose", [](In& in, CallInfo& c) -> Value {
      double a = number(in, c, 0).as_double(), b = number(in, c, 1).as_double(), rel = 1e-9, abs = 0;
      if (auto* k = c.keyword("rel_tol")) rel = k->value.as_double();
      if (auto* k = c.keyword("abs_tol")) abs = k->value.as_double();
      return Value::boolean(a == b || std::fabs(a - b) <= std::max(rel * std::max(std::fabs(a), std::fabs(b)), abs));
    });
    i.def(m, "gcd", [](In& in, CallInfo& c) -> Value {
      std::int64_t g = 0;
      for (auto& a : c.args) {
        if (a.is_unknown()) return a;
        g = std::gcd(g, in.to_int(a));
      }
      return Value::integer(g);
    });
    i.def(m, "lcm", [](In& in, CallInfo& c) -> Value {
      std::int64_t g = 1;
      for (auto& a : c.args) {
        if (a.is_unknown()) return a;
        g = std::lcm(g, in.to_int(a));
      }
      return Value::integer(g);
    });
    i.def(m, "isqrt", [](In& in, CallInfo& c) -> Value {
      if (c.args.at(0).is_unknown()) return c.args[0];
      std::int64_t n = in.to_int(c.args.at(0));
      auto r = static_cast<std::int64_t>(std::sqrt(static_cast<double>(n)));
      while (r * r > n) --r;
      while ((r + 1) * (r + 1) <= n) ++r;
      return Value::integer(r, in.sym(model::Sym::Other, c.args[0], Value::none(), static_cast<double>(r)));
    });
    i.def(m, "factorial", [](In& in, CallInfo& c) -> Value {
      Value r = Value::integer(1);
      for (std::int64_t k = 2; k <= in.to_int(c.args.at(0)); ++k) r = in.binary("*", r, Value::integer(k));
      return r;
    });
    i.def(m, "comb", [](In& in, CallInfo& c) -> Value {
      std::int64_t n = in.to_int(c.args.at(0)), k = in.to_int(c.args.at(1));
      if (k > n) return Value::integer(0);
      Value r = Value::integer(1);
      for (std::int64_t j = 1; j <= k; ++j) r = in.binary("//", in.binary("*", r, Value::integer(n - k + j)), Value::integer(j));
      return r;
    });
    i.def(m, "prod", [](In& in, CallInfo& c) -> Value {
      if (c.args.at(0).is_unknown()) return c.args[0];
      Value r = Value::integer(1);
      if (auto* k = c.keyword("start")) r = k->value;
      bool first = !c.keyword("start");
      for_each(in, c.args[0], c.call, [&](const Value& x) {
        r = first ? x : in.binary("*", r, x, c.call);
        first = false;
        return true;
      });
      return r.is(Kind::Bool) ? Value::integer(r.as_int()) : r;
    });
    i.def(m, "fsum", [](In& in, CallInfo& c) -> Value {
      if (c.args.at(0).is_unknown()) return c.args[0];
      Value r = Value::real(0);
      for (auto& x : in.to_vector(c.args[0])) r = in.binary("+", r, x);
      return r;
    });
    i.def(m, "modf", [](In& in, CallInfo& c) -> Value {
      double w = 0, f = std::modf(number(in, c, 0).as_double(), &w);
      return in.tuple({Value::real(f), Value::real(w)});
    });
    i.def(m, "frexp", [](In& in, CallInfo& c) -> Value {
      int e = 0;
      double f = std::frexp(number(in, c, 0).as_double(), &e);
      return in.tuple({Value::real(f), Value::integer(e)});
    });
  });
}

}  // namespace shardwright::eval
