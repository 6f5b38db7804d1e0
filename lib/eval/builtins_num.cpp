// int, float, bool, complex, and the exception classes.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "eval/impl.h"

namespace shardwright::eval {

namespace {

Value number_base(const Value& v) { return v.is(Kind::Instance) && v.as<InstanceObj>()->base.set() ? v.as<InstanceObj>()->base : v; }

std::string trimmed(std::string s) {
  std::erase(s, '_');
  std::size_t b = s.find_first_not_of(" \t\n\r"), e = s.find_last_not_of(" \t\n\r");
  return b == std::string::npos ? "" : s.substr(b, e - b + 1);
}

Value wrap(In& in, ClassObj* cls, ClassObj* exact, const Value& v) {
  if (cls == exact) return v;
  auto* o = in.make<InstanceObj>(cls);
  o->base = v;
  return o;
}

}  // namespace

void register_numbers(Interpreter& in) {
  auto& m = *in.impl();
  in.method(m.int_, "__new__", [](In& i, CallInfo& c) -> Value {
    auto* cls = c.args.at(0).as<ClassObj>();
    Value v = c.args.size() > 1 ? number_base(c.args[1]) : Value::integer(0);
    auto done = [&](const Value& x) { return wrap(i, cls, i.impl()->int_, x); };
    if (v.is_unknown()) return v;
    if (v.is(Kind::Tensor)) return i.tensors ? i.tensors->to_number(i, v, "int") : i.unknown("int() of a tensor");
    if (v.is_integral()) return done(Value::integer(v.as_int(), v.sym()));
    if (v.is(Kind::Float)) {
      double d = v.as_double();
      if (std::isnan(d)) i.raise("ValueError", "cannot convert float NaN to integer", c.call);
      if (std::isinf(d)) i.raise("OverflowError", "cannot convert float infinity to integer", c.call);
      if (std::fabs(d) > 9.2e18) return i.unknown("integer wider than 64 bits", c.call);
      // Truncation of an exact value keeps the provenance; a rounded one is still computed from it.
      const model::Sym* s = v.sym() ? (d == std::trunc(d) ? v.sym() : i.sym(model::Sym::Other, v, Value::none(), std::trunc(d))) : nullptr;
      return done(Value::integer(static_cast<std::int64_t>(d), s));
    }
    if (v.is(Kind::Str) || v.is(Kind::Bytes)) {
      std::string t = trimmed(v.str());
      int base = c.args.size() > 2 ? static_cast<int>(i.to_int(c.args[2])) : 10;
      if (auto* k = c.keyword("base")) base = static_cast<int>(i.to_int(k->value));
      std::string u = t;
      bool neg = false;
      if (!u.empty() && (u[0] == '-' || u[0] == '+')) {
        neg = u[0] == '-';
        u.erase(0, 1);
      }
      if (u.size() > 2 && u[0] == '0' && (base == 0 || base == 16) && (u[1] == 'x' || u[1] == 'X')) {
        u.erase(0, 2);
        base = 16;
      } else if (u.size() > 2 && u[0] == '0' && (base == 0 || base == 2) && (u[1] == 'b' || u[1] == 'B')) {
        u.erase(0, 2);
        base = 2;
      } else if (u.size() > 2 && u[0] == '0' && (base == 0 || base == 8) && (u[1] == 'o' || u[1] == 'O')) {
        u.erase(0, 2);
        base = 8;
      }
      if (base == 0) base = 10;
      std::int64_t r = 0;
      auto [p, ec] = std::from_chars(u.data(), u.data() + u.size(), r, base);
      if (ec != std::errc() || p != u.data() + u.size() || u.empty())
        i.raise("ValueError", "invalid literal for int() with base " + std::to_string(base) + ": " + i.to_repr(v), c.call);
      return done(Value::integer(neg ? -r : r));
    }
    if (v.is_object()) {
      for (const char* n : {"__int__", "__index__", "__trunc__"}) {
        Value f = i.getattr_or(v, n);
        if (f.set() && !f.is_unknown()) return done(i.call(f, {}));
      }
    }
    i.raise("TypeError", "int() argument must be a string, a bytes-like object or a real number, not '" + i.type_of(v)->name + "'", c.call);
  });
  in.method(m.float_, "__new__", [](In& i, CallInfo& c) -> Value {
    auto* cls = c.args.at(0).as<ClassObj>();
    Value v = c.args.size() > 1 ? number_base(c.args[1]) : Value::real(0);
    auto done = [&](const Value& x) { return wrap(i, cls, i.impl()->float_, x); };
    if (v.is_unknown()) return v;
    if (v.is(Kind::Tensor)) return i.tensors ? i.tensors->to_number(i, v, "float") : i.unknown("float() of a tensor");
    if (v.is_number()) return done(Value::real(v.as_double(), v.sym()));
    if (v.is(Kind::Str)) {
      std::string t = trimmed(v.str());
      std::transform(t.begin(), t.end(), t.begin(), [](char ch) { return static_cast<char>(tolower(static_cast<unsigned char>(ch))); });
      char* end = nullptr;
      double d = std::strtod(t.c_str(), &end);
      if (t.empty() || *end || t.find('x') != std::string::npos)
        i.raise("ValueError", "could not convert string to float: " + i.to_repr(v), c.call);
      return done(Value::real(d));
    }
    if (v.is_object()) {
      Value f = i.getattr_or(v, "__float__");
      if (f.set() && !f.is_unknown()) return done(i.call(f, {}));
    }
    i.raise("TypeError", "float() argument must be a string or a real number, not '" + i.type_of(v)->name + "'", c.call);
  });
  in.method(m.bool_, "__new__", [](In& i, CallInfo& c) -> Value {
    if (c.args.size() < 2) return Value::boolean(false);
    if (c.args[1].is(Kind::Tensor) && i.tensors) return i.tensors->to_number(i, c.args[1], "bool");
    auto t = i.truth(c.args[1]);
    if (!t) return c.args[1].is_unknown() ? c.args[1] : i.unknown("truth of an unknown value", c.call);
    if (c.args[1].sym()) i.guard("!=", c.args[1], Value::integer(0), *t, i.range_of(c.call));
    return Value::boolean(*t);
  });
  in.method(m.complex_, "__new__", [](In& i, CallInfo& c) -> Value { return i.unknown("complex number", c.call); });
  for (ClassObj* k : {m.int_, m.float_}) {
    in.method(k, "is_integer", [](In&, CallInfo& c) {
      double d = c.args.at(0).as_double();
      return Value::boolean(d == std::floor(d));
    });
    in.method(k, "conjugate", [](In&, CallInfo& c) { return c.args.at(0); });
    in.method(k, "__index__", [](In&, CallInfo& c) { return number_base(c.args.at(0)); });
    in.method(k, "__int__", [](In&, CallInfo& c) {
      Value v = number_base(c.args.at(0));
      return v.is(Kind::Float) ? Value::integer(static_cast<std::int64_t>(v.as_double())) : Value::integer(v.as_int(), v.sym());
    });
    in.method(k, "__float__", [](In&, CallInfo& c) {
      Value v = number_base(c.args.at(0));
      return Value::real(v.as_double(), v.sym());
    });
    in.method(k, "__str__", [](In& i, CallInfo& c) { return i.str(i.to_repr(number_base(c.args.at(0)))); });
    in.method(k, "__hash__",
              [](In& i, CallInfo& c) { return Value::integer(static_cast<std::int64_t>(i.hash(number_base(c.args.at(0))) >> 1)); });
    for (const char* op : {"+", "-", "*", "/", "//", "%", "**", "&", "|", "^", "<<", ">>", "==", "!=", "<", "<=", ">", ">="}) {
      std::string o = op;
      bool cmp = o[0] == '=' || o[0] == '!' || o == "<" || o == ">" || o == "<=" || o == ">=";
      auto f = [o, cmp](In& i, const Value& a, const Value& b) -> Value {
        if (b.is_unknown()) return b;
        if (!a.is_number() || !b.is_number()) return Value::not_implemented();
        return cmp ? i.compare(o, a, b) : i.binary(o, a, b);
      };
      in.method(k, std::string(method_for(op, false)),
                [f](In& i, CallInfo& c) { return f(i, number_base(c.args.at(0)), number_base(c.args.at(1))); });
      if (!cmp)
        in.method(k, std::string(method_for(op, true)),
                  [f](In& i, CallInfo& c) { return f(i, number_base(c.args.at(1)), number_base(c.args.at(0))); });
    }
    in.method(k, "__neg__", [](In& i, CallInfo& c) { return i.unary("-", number_base(c.args.at(0))); });
  }
  in.method(m.int_, "bit_length", [](In&, CallInfo& c) {
    std::int64_t v = std::abs(number_base(c.args.at(0)).as_int()), n = 0;
    for (; v; v >>= 1) ++n;
    return Value::integer(n);
  });
  in.method(m.int_, "bit_count", [](In&, CallInfo& c) {
    return Value::integer(__builtin_popcountll(static_cast<unsigned long long>(std::abs(number_base(c.args.at(0)).as_int()))));
  });
  in.method(m.float_, "hex", [](In& i, CallInfo& c) { return i.str(float_repr(c.args.at(0).as_double())); });
}

void register_exceptions(Interpreter& in) {
  auto& m = *in.impl();
  auto mk = [&](const char* name, const char* base) {
    auto* c = in.make_class("builtins", name, {base ? m.types.at(base) : m.object_});
    m.types[name] = c;
    m.builtins.set(name, c);
    return c;
  };
  ClassObj* be = mk("BaseException", nullptr);
  be->allocate = [](In& i, ClassObj* c, CallInfo& info) -> Obj* {
    auto* o = i.make<InstanceObj>(c);
    o->attrs = &i.impl()->new_env(nullptr, nullptr)->vars;
    o->attrs->set("args", i.tuple(info.args));
    o->attrs->set("__cause__", Value::none());
    o->attrs->set("__context__", Value::none());
    o->attrs->set("__traceback__", Value::none());
    return o;
  };
  in.method(be, "__init__", [](In& i, CallInfo& c) {
    std::vector<Value> rest(c.args.begin() + 1, c.args.end());
    if (!c.args[0].obj()->attrs) c.args[0].obj()->attrs = &i.impl()->new_env(nullptr, nullptr)->vars;
    c.args[0].obj()->attrs->set("args", i.tuple(std::move(rest)));
    return Value::none();
  });
  in.method(be, "__str__", [](In& i, CallInfo& c) -> Value {
    Value a = i.plain_getattr(c.args.at(0), "args");
    if (!a.is(Kind::Tuple)) return i.str("");
    auto& l = a.as<SeqObj>()->items;
    if (l.empty()) return i.str("");
    if (l.size() == 1) return i.str(i.isinstance(c.args[0], i.builtin_class("KeyError")) ? i.to_repr(l[0]) : i.to_str(l[0]));
    return i.str(i.to_repr(a));
  });
  in.method(be, "with_traceback", [](In&, CallInfo& c) { return c.args.at(0); });
  in.method(be, "add_note", [](In&, CallInfo&) { return Value::none(); });
  for (const char* n : {"Exception", "KeyboardInterrupt", "SystemExit", "GeneratorExit"}) mk(n, "BaseException");
  for (const char* n : {"ArithmeticError", "AssertionError", "AttributeError", "BufferError", "EOFError", "ImportError", "LookupError",
                        "MemoryError", "NameError", "OSError", "ReferenceError", "RuntimeError", "StopIteration", "StopAsyncIteration",
                        "SyntaxError", "SystemError", "TypeError", "ValueError", "Warning"})
    mk(n, "Exception");
  for (auto [n, b] : {std::pair{"ZeroDivisionError", "ArithmeticError"},
                      {"OverflowError", "ArithmeticError"},
                      {"FloatingPointError", "ArithmeticError"},
                      {"ModuleNotFoundError", "ImportError"},
                      {"IndexError", "LookupError"},
                      {"KeyError", "LookupError"},
                      {"UnboundLocalError", "NameError"},
                      {"FileNotFoundError", "OSError"},
                      {"FileExistsError", "OSError"},
                      {"PermissionError", "OSError"},
                      {"NotADirectoryError", "OSError"},
                      {"IsADirectoryError", "OSError"},
                      {"ConnectionError", "OSError"},
                      {"TimeoutError", "OSError"},
                      {"NotImplementedError", "RuntimeError"},
                      {"RecursionError", "RuntimeError"},
                      {"IndentationError", "SyntaxError"},
                      {"UnicodeError", "ValueError"},
                      {"UnicodeDecodeError", "UnicodeError"},
                      {"UnicodeEncodeError", "UnicodeError"},
                      {"UserWarning", "Warning"},
                      {"DeprecationWarning", "Warning"},
                      {"FutureWarning", "Warning"},
                      {"RuntimeWarning", "Warning"},
                      {"PendingDeprecationWarning", "Warning"},
                      {"ImportWarning", "Warning"},
                      {"ResourceWarning", "Warning"},
                      {"SyntaxWarning", "Warning"},
                      {"BytesWarning", "Warning"},
                      {"UnicodeWarning", "Warning"}})
    mk(n, b);
  m.builtins.set("IOError", m.types.at("OSError"));
  m.builtins.set("EnvironmentError", m.types.at("OSError"));
  in.property(m.types.at("StopIteration"), "value", [](In& i, CallInfo& c) -> Value {
    Value a = i.plain_getattr(c.args.at(0), "args");
    return a.is(Kind::Tuple) && !a.as<SeqObj>()->items.empty() ? a.as<SeqObj>()->items[0] : Value::none();
  });
  in.method(m.types.at("ImportError"), "__init__", [](In& i, CallInfo& c) {
    std::vector<Value> rest(c.args.begin() + 1, c.args.end());
    c.args[0].obj()->attrs->set("args", i.tuple(rest));
    for (const char* n : {"name", "path", "msg"}) {
      auto* k = c.keyword(n);
      c.args[0].obj()->attrs->set(n, k ? k->value : Value::none());
    }
    return Value::none();
  });
}

}  // namespace shardwright::eval
