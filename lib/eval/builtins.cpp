// The functions of Python's builtins module, object and type.
#include <algorithm>
#include <cmath>

#include "eval/impl.h"

namespace shardwright::eval {

Value sort_values(Interpreter& in, std::vector<Value> items, const Value& key, bool reverse);

namespace {

struct ZipIter : IteratorObj {
  std::vector<Value> its;
  bool strict = false, done = false;
  Value next(In& in) override {
    if (done || its.empty()) return {};
    std::vector<Value> row;
    for (std::size_t k = 0; k < its.size(); ++k) {
      Value v = in.next(its[k]);
      if (!v.set()) {
        done = true;
        if (strict && k > 0)
          in.raise("ValueError",
                   "zip() argument " + std::to_string(k + 1) + " is shorter than argument" + (k > 1 ? "s 1-" + std::to_string(k) : " 1"));
        if (strict)
          for (std::size_t r = 1; r < its.size(); ++r)
            if (in.next(its[r]).set()) in.raise("ValueError", "zip() argument " + std::to_string(r + 1) + " is longer than argument 1");
        return {};
      }
      row.push_back(v);
    }
    return in.tuple(std::move(row));
  }
};

struct MapIter : IteratorObj {
  Value f, it;
  bool star = false;  // rows are argument tuples
  const Expr* site = nullptr;
  Value next(In& in) override {
    Value v = in.next(it);
    if (!v.set()) return {};
    if (!star) return in.call(f, {v}, site);
    return in.call(f, v.as<SeqObj>()->items, site);
  }
};

struct FilterIter : IteratorObj {
  Value f, it;
  Value next(In& in) override {
    while (true) {
      Value v = in.next(it);
      if (!v.set()) return {};
      if (in.truthy(f.is_none() ? v : in.call(f, {v}))) return v;
    }
  }
};

struct EnumerateIter : IteratorObj {
  Value it;
  std::int64_t n = 0;
  Value next(In& in) override {
    Value v = in.next(it);
    return v.set() ? in.tuple({Value::integer(n++), v}) : Value();
  }
};

struct CallIter : IteratorObj {  // iter(callable, sentinel)
  Value f, sentinel;
  Value next(In& in) override {
    Value v = in.call(f, {});
    return in.equal(v, sentinel) ? Value() : v;
  }
};

Value arg(In& in, CallInfo& c, std::size_t i, const char* f) {
  if (i >= c.args.size())
    in.raise("TypeError",
             std::string(f) + "() expected at least " + std::to_string(i + 1) + " argument" + (i ? "s" : "") + ", got " +
                 std::to_string(c.args.size()),
             c.call);
  return c.args[i];
}

/// Private names are written `self.__x` and stored so; Python stores `_Class__x`. A *string* "__x" therefore names something
/// else, and a string "_Class__x" what the attribute syntax wrote.
std::string named_by_string(const std::string& n) {
  if (n.size() > 2 && n.compare(0, 2, "__") == 0 && n.compare(n.size() - 2, 2, "__") != 0) return n + " (unmangled)";
  if (n.size() > 4 && n[0] == '_' && n[1] != '_')
    if (std::size_t p = n.find("__", 1);
        p != std::string::npos && isupper(static_cast<unsigned char>(n[1])) && n.compare(n.size() - 2, 2, "__") != 0)
      return n.substr(p);
  return n;
}

Value extreme(In& in, CallInfo& c, bool max) {
  const char* name = max ? "max" : "min";
  auto* key = c.keyword("key");
  auto* dflt = c.keyword("default");
  if (c.args.empty()) in.raise("TypeError", std::string(name) + " expected at least 1 argument, got 0", c.call);
  if (c.args.size() == 1 && c.args[0].is_unknown()) return c.args[0];
  std::vector<Value> items = c.args.size() == 1 ? in.to_vector(c.args[0], c.call) : c.args;
  for (auto& x : items)
    if (x.is_unknown()) return x;
  if (items.empty()) {
    if (dflt) return dflt->value;
    in.raise("ValueError", std::string(name) + "() iterable argument is empty", c.call);
  }
  auto k = [&](const Value& v) { return key && !key->value.is_none() ? in.call(key->value, {v}) : v; };
  Value best = items[0], bk = k(best);
  bool symbolic = best.sym() != nullptr;
  for (std::size_t i = 1; i < items.size(); ++i) {
    Value v = items[i], vk = k(v);
    symbolic |= v.sym() != nullptr;
    Value r = vk.is_number() && bk.is_number() ? Value::boolean(max ? vk.as_double() > bk.as_double() : vk.as_double() < bk.as_double())
                                               : in.compare(max ? ">" : "<", vk, bk, c.call);
    if (r.is_unknown()) return r;
    if (symbolic && v.is_number() && best.is_number()) {
      Value w = in.truthy(r) ? v : best;
      const auto* s = in.sym(max ? model::Sym::Max : model::Sym::Min, best, v, w.as_double());
      best = w.is(Kind::Float) ? Value::real(w.as_double(), s) : Value::integer(w.as_int(), s);
      bk = k(best);
      continue;
    }
    if (in.truthy(r)) {
      best = v;
      bk = vk;
    }
  }
  return best;
}

double round_half_even(double x, int digits) {
  if (digits > 15 || !std::isfinite(x)) return x;
  char buf[400];
  if (digits >= 0) {
    std::snprintf(buf, sizeof buf, "%.*f", digits, x);
    return std::strtod(buf, nullptr);
  }
  double p = std::pow(10.0, -digits);
  return std::nearbyint(x / p) * p;
}

bool is_instance(In& in, const Value& v, const Value& c, std::optional<Value>& unsure) {
  if (c.is(Kind::Tuple)) {
    for (const auto& x : c.as<SeqObj>()->items)
      if (is_instance(in, v, x, unsure)) return true;
    return false;
  }
  if (c.is_unknown()) {
    unsure = c;
    return false;
  }
  if (c.is_none()) return v.is_none();
  if (!c.is(Kind::Class)) return false;
  auto* k = c.as<ClassObj>();
  if (k->metaclass) {
    Value f = k->metaclass->lookup("__instancecheck__");
    if (f.set()) {
      auto t = in.truth(in.call(f, {c, v}));
      return t.value_or(false);
    }
  }
  ClassObj* t = in.type_of(v);
  if (in.isinstance(v, k)) return true;
  // Abstract classes of collections and numbers: by what the value can do.
  Value check = k->builtin ? k->lookup("__abstract_check__") : Value();
  if (check.set()) return in.truthy(in.call(check, {v}));
  if (t->unknown_base.is_unknown() && !k->builtin) unsure = t->unknown_base;
  return false;
}

}  // namespace

void register_builtins(Interpreter& in) {
  auto& m = *in.impl();
  NameMap& b = m.builtins;
  auto def = [&](const char* name, NativeFn f) { b.set(name, in.native(std::string("builtins.") + name, std::move(f))); };
  b.set("NotImplemented", Value::not_implemented());
  b.set("Ellipsis", Value::ellipsis());
  b.set("__debug__", Value::boolean(true));
  b.set("__build_class__", Value::none());

  def("print", [](In&, CallInfo&) { return Value::none(); });
  def("len", [](In& i, CallInfo& c) { return i.length(arg(i, c, 0, "len")); });
  def("iter", [](In& i, CallInfo& c) -> Value {
    if (c.args.size() > 1) {
      auto* it = i.make<CallIter>();
      it->f = c.args[0];
      it->sentinel = c.args[1];
      return it;
    }
    return i.iter(arg(i, c, 0, "iter"), c.call);
  });
  def("next", [](In& i, CallInfo& c) -> Value {
    Value it = arg(i, c, 0, "next");
    if (it.is_unknown()) return it;
    Value v = i.next(it);
    if (v.set()) return v;
    if (c.args.size() > 1) return c.args[1];
    std::vector<Value> a;
    if (auto* g = it.is(Kind::Iterator) ? dynamic_cast<GeneratorObj*>(it.obj()) : nullptr; g && g->result.set() && !g->result.is_none())
      a.push_back(g->result);
    i.raise_value(i.call(i.builtin_class("StopIteration"), a), i.range_of(c.call));
  });
  def("zip", [](In& i, CallInfo& c) -> Value {
    auto* z = i.make<ZipIter>();
    for (auto& a : c.args) {
      Value it = i.iter(a, c.call);
      if (it.is_unknown()) return it;
      z->its.push_back(it);
    }
    if (auto* k = c.keyword("strict")) z->strict = i.truthy(k->value);
    return z;
  });
  def("enumerate", [](In& i, CallInfo& c) -> Value {
    auto* e = i.make<EnumerateIter>();
    e->it = i.iter(arg(i, c, 0, "enumerate"), c.call);
    if (e->it.is_unknown()) return e->it;
    if (c.args.size() > 1) e->n = i.to_int(c.args[1]);
    if (auto* k = c.keyword("start")) e->n = i.to_int(k->value);
    return e;
  });
  def("map", [](In& i, CallInfo& c) -> Value {
    auto* e = i.make<MapIter>();
    e->f = arg(i, c, 0, "map");
    e->site = c.call;
    if (c.args.size() > 2) {
      auto* z = i.make<ZipIter>();
      for (std::size_t k = 1; k < c.args.size(); ++k) {
        Value it = i.iter(c.args[k], c.call);
        if (it.is_unknown()) return it;
        z->its.push_back(it);
      }
      e->it = z;
      e->star = true;
    } else {
      e->it = i.iter(arg(i, c, 1, "map"), c.call);
      if (e->it.is_unknown()) return e->it;
    }
    return e;
  });
  def("filter", [](In& i, CallInfo& c) -> Value {
    auto* e = i.make<FilterIter>();
    e->f = arg(i, c, 0, "filter");
    e->it = i.iter(arg(i, c, 1, "filter"), c.call);
    return e->it.is_unknown() ? e->it : Value(e);
  });
  def("sorted", [](In& i, CallInfo& c) -> Value {
    Value v = arg(i, c, 0, "sorted");
    if (v.is_unknown()) return v;
    auto* key = c.keyword("key");
    auto* rev = c.keyword("reverse");
    return sort_values(i, i.to_vector(v, c.call), key ? key->value : Value(), rev && i.truthy(rev->value));
  });
  def("reversed", [](In& i, CallInfo& c) -> Value {
    Value v = arg(i, c, 0, "reversed");
    if (v.is_unknown()) return v;
    if (v.is_object() && v.obj()->cls) {
      Value f = v.obj()->cls->lookup("__reversed__");
      if (f.set()) return i.iter(i.call(f, {v}));
      if (v.is(Kind::Instance) && !v.obj()->cls->lookup("__iter__").set()) {
        std::vector<Value> out;
        for (std::int64_t n = i.to_int(i.length(v)) - 1; n >= 0; --n) out.push_back(i.getitem(v, Value::integer(n)));
        return i.iter(i.list(std::move(out)));
      }
    }
    auto l = i.to_vector(v, c.call);
    std::reverse(l.begin(), l.end());
    return i.iter(i.list(std::move(l)));
  });
  def("sum", [](In& i, CallInfo& c) -> Value {
    Value v = arg(i, c, 0, "sum");
    if (v.is_unknown()) return v;
    Value acc = c.args.size() > 1 ? c.args[1] : Value::integer(0);
    if (auto* k = c.keyword("start")) acc = k->value;
    bool first = true;
    for_each(i, v, c.call, [&](const Value& x) {
      // 0 + tensor is not something the program wrote
      acc = first && acc.is(Kind::Int) && acc.as_int() == 0 && !acc.sym() && (x.is_number() || x.is(Kind::Tensor))
          ? x
          : i.binary("+", acc, x, c.call);
      if (acc.is(Kind::Bool)) acc = Value::integer(acc.as_int());
      first = false;
      return true;
    });
    return acc;
  });
  def("min", [](In& i, CallInfo& c) { return extreme(i, c, false); });
  def("max", [](In& i, CallInfo& c) { return extreme(i, c, true); });
  def("any", [](In& i, CallInfo& c) -> Value {
    Value v = arg(i, c, 0, "any");
    if (v.is_unknown()) return v;
    Value r = Value::boolean(false);
    for_each(i, v, c.call, [&](const Value& x) {
      auto t = i.truth(x);
      if (!t) {
        r = x.is_unknown() ? x : i.unknown("truth of an unknown value");
        return true;
      }
      if (x.sym()) i.guard("!=", x, Value::integer(0), *t, i.range_of(c.call));
      if (*t) {
        r = Value::boolean(true);
        return false;
      }
      return true;
    });
    return r;
  });
  def("all", [](In& i, CallInfo& c) -> Value {
    Value v = arg(i, c, 0, "all");
    if (v.is_unknown()) return v;
    Value r = Value::boolean(true);
    for_each(i, v, c.call, [&](const Value& x) {
      auto t = i.truth(x);
      if (!t) {
        r = x.is_unknown() ? x : i.unknown("truth of an unknown value");
        return true;
      }
      if (x.sym()) i.guard("!=", x, Value::integer(0), *t, i.range_of(c.call));
      if (!*t) {
        r = Value::boolean(false);
        return false;
      }
      return true;
    });
    return r;
  });
  def("abs", [](In& i, CallInfo& c) -> Value {
    Value v = arg(i, c, 0, "abs");
    if (v.is(Kind::Instance) && v.as<InstanceObj>()->base.set()) v = v.as<InstanceObj>()->base;
    if (v.is_integral())
      return Value::integer(std::abs(v.as_int()),
                            v.as_int() >= 0 ? v.sym() : i.sym(model::Sym::Neg, v, Value::none(), std::abs(v.as_double())));
    if (v.is(Kind::Float)) return Value::real(std::fabs(v.as_double()), v.as_double() >= 0 ? v.sym() : nullptr);
    if (v.is_unknown()) return v;
    return i.call(i.getattr(v, "__abs__"), {}, c.call);
  });
  def("round", [](In& i, CallInfo& c) -> Value {
    Value v = arg(i, c, 0, "round");
    Value n = c.args.size() > 1 ? c.args[1] : c.keyword("ndigits") ? c.keyword("ndigits")->value : Value::none();
    if (v.is_unknown()) return v;
    if (v.is_integral()) return v;
    if (v.is(Kind::Float)) {
      if (n.is_none()) {
        double d = std::nearbyint(v.as_double());
        return Value::integer(static_cast<std::int64_t>(d), i.sym(model::Sym::Other, v, Value::none(), d));
      }
      double d = round_half_even(v.as_double(), static_cast<int>(i.to_int(n)));
      return Value::real(d, i.sym(model::Sym::Other, v, Value::none(), d));
    }
    return i.call(i.getattr(v, "__round__"), n.is_none() ? std::vector<Value>{} : std::vector<Value>{n}, c.call);
  });
  def("divmod", [](In& i, CallInfo& c) {
    return i.tuple({i.binary("//", arg(i, c, 0, "divmod"), arg(i, c, 1, "divmod"), c.call), i.binary("%", c.args[0], c.args[1], c.call)});
  });
  def("pow", [](In& i, CallInfo& c) {
    Value r = i.binary("**", arg(i, c, 0, "pow"), arg(i, c, 1, "pow"), c.call, c.expr(0), c.expr(1));
    return c.args.size() > 2 ? i.binary("%", r, c.args[2], c.call) : r;
  });
  def("isinstance", [](In& i, CallInfo& c) -> Value {
    Value v = arg(i, c, 0, "isinstance"), k = arg(i, c, 1, "isinstance");
    if (v.is_unknown()) return v;
    std::optional<Value> unsure;
    bool r = is_instance(i, v, k, unsure);
    if (!r && unsure) {
      // A class that could not be imported has no instances here.
      if (unsure->is_unknown() && unsure->as<UnknownObj>()->why.find("is not found") != std::string::npos) return Value::boolean(false);
      return *unsure;
    }
    return Value::boolean(r);
  });
  def("issubclass", [](In& i, CallInfo& c) -> Value {
    Value v = arg(i, c, 0, "issubclass"), k = arg(i, c, 1, "issubclass");
    if (v.is_unknown()) return v;
    if (k.is_unknown()) return k;
    if (!v.is(Kind::Class)) i.raise("TypeError", "issubclass() arg 1 must be a class", c.call);
    std::vector<Value> ks = k.is(Kind::Tuple) ? k.as<SeqObj>()->items : std::vector<Value>{k};
    for (auto& x : ks)
      if (x.is(Kind::Class) && v.as<ClassObj>()->derives_from(x.as<ClassObj>())) return Value::boolean(true);
    return Value::boolean(false);
  });
  def("callable", [](In& i, CallInfo& c) { return Value::boolean(i.callable(arg(i, c, 0, "callable"))); });
  def("getattr", [](In& i, CallInfo& c) -> Value {
    Value v = arg(i, c, 0, "getattr"), n = arg(i, c, 1, "getattr");
    if (n.is_unknown()) return n;
    if (!n.is(Kind::Str)) i.raise("TypeError", "attribute name must be string, not '" + i.type_of(n)->name + "'", c.call);
    if (c.args.size() < 3) return i.getattr(v, named_by_string(n.str()), c.call);
    Value x = i.getattr_or(v, named_by_string(n.str()), c.call);
    return x.set() ? x : c.args[2];
  });
  def("hasattr", [](In& i, CallInfo& c) -> Value {
    Value v = arg(i, c, 0, "hasattr"), n = arg(i, c, 1, "hasattr");
    if (v.is_unknown()) return v;
    if (n.is_unknown()) return n;
    Value x;
    try {
      x = i.getattr_or(v, named_by_string(n.str()), c.call);
    } catch (PyError& e) {
      if (!i.isinstance(e.exception, i.builtin_class("AttributeError"))) throw;
    }
    if (x.is_unknown() && v.is(Kind::Instance)) return x.as<UnknownObj>()->why.empty() ? x : x;
    return Value::boolean(x.set());
  });
  def("setattr", [](In& i, CallInfo& c) {
    Value n = arg(i, c, 1, "setattr");
    if (n.is_unknown()) {
      i.note_incomplete(i.range_of(c.call), "setattr with an unknown name");
      return Value::none();
    }
    i.setattr(c.args[0], named_by_string(n.str()), arg(i, c, 2, "setattr"), nullptr);
    return Value::none();
  });
  def("delattr", [](In& i, CallInfo& c) {
    i.delattr(arg(i, c, 0, "delattr"), arg(i, c, 1, "delattr").str());
    return Value::none();
  });
  def("id", [](In& i, CallInfo& c) {
    Value v = arg(i, c, 0, "id");
    return Value::integer(v.is_object() ? static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(v.obj()))
                                        : static_cast<std::int64_t>(v.kind()) * 1000 + (v.is_integral() ? v.as_int() : 0));
  });
  def("hash", [](In& i, CallInfo& c) { return Value::integer(static_cast<std::int64_t>(i.hash(arg(i, c, 0, "hash")) >> 2)); });
  def("repr", [](In& i, CallInfo& c) -> Value {
    Value v = arg(i, c, 0, "repr");
    return v.is_unknown() ? v : i.str(i.to_repr(v));
  });
  def("ascii", [](In& i, CallInfo& c) -> Value { return i.str(i.to_repr(arg(i, c, 0, "ascii"))); });
  def("format", [](In& i, CallInfo& c) -> Value {
    Value v = arg(i, c, 0, "format");
    return v.is_unknown() ? v : i.str(i.format(v, c.args.size() > 1 ? c.args[1].str() : ""));
  });
  def("chr", [](In& i, CallInfo& c) -> Value {
    auto u = static_cast<std::uint32_t>(i.to_int(arg(i, c, 0, "chr")));
    std::string s;
    if (u < 0x80) s += static_cast<char>(u);
    else if (u < 0x800) {
      s += static_cast<char>(0xC0 | u >> 6);
      s += static_cast<char>(0x80 | (u & 63));
    } else if (u < 0x10000) {
      s += static_cast<char>(0xE0 | u >> 12);
      s += static_cast<char>(0x80 | (u >> 6 & 63));
      s += static_cast<char>(0x80 | (u & 63));
    } else {
      s += static_cast<char>(0xF0 | u >> 18);
      s += static_cast<char>(0x80 | (u >> 12 & 63));
      s += static_cast<char>(0x80 | (u >> 6 & 63));
      s += static_cast<char>(0x80 | (u & 63));
    }
    return i.str(s);
  });
  def("ord", [](In& i, CallInfo& c) -> Value {
    const auto& s = arg(i, c, 0, "ord").str();
    if (s.empty()) i.raise("TypeError", "ord() expected a character", c.call);
    return Value::integer(static_cast<unsigned char>(s[0]));
  });
  for (auto [name, spec] : {std::pair{"bin", "#b"}, {"oct", "#o"}, {"hex", "#x"}}) {
    std::string s = spec, n = name;
    def(name, [s, n](In& i, CallInfo& c) { return i.str(i.format(Value::integer(i.to_int(arg(i, c, 0, n.c_str()))), s)); });
  }
  def("vars", [](In& i, CallInfo& c) -> Value {
    if (c.args.empty()) return i.call(i.impl()->builtins.get("locals"), {});
    return i.getattr(c.args[0], "__dict__", c.call);
  });
  def("dir", [](In& i, CallInfo& c) -> Value {
    std::vector<std::string> names;
    Value v = c.args.empty() ? Value() : c.args[0];
    if (v.is(Kind::Module)) names = i.impl()->public_names(v.as<ModuleObj>());
    else if (v.set()) {
      if (v.is_object() && v.obj()->attrs)
        for (const auto& a : *v.obj()->attrs) names.push_back(a.name);
      ClassObj* k = v.is(Kind::Class) ? v.as<ClassObj>() : i.type_of(v);
      for (auto* x : k->mro)
        for (const auto& a : x->dict) names.push_back(a.name);
    }
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    std::vector<Value> l;
    for (auto& n : names) l.push_back(i.str(n));
    return i.list(std::move(l));
  });
  def("locals", [](In& i, CallInfo&) -> Value {
    auto* d = i.make<DictObj>();
    if (auto* f = i.frame(); f && f->env)
      for (const auto& v : f->env->vars) d->set(i, i.str(v.name), v.value);
    return d;
  });
  // A live dictionary of a module would need every write mirrored; reads through it go to the module on demand.
  def("globals", [](In& i, CallInfo&) -> Value {
    ModuleObj* mod = i.frame() && i.frame()->env ? i.frame()->env->globals : nullptr;
    if (!mod) return i.dict();
    ClassObj* k = i.builtin_class("<globals>");
    auto* o = i.make<InstanceObj>(k);
    o->native = std::shared_ptr<void>(mod, [](void*) {});
    return o;
  });
  auto* gl = in.make_class("builtins", "dict");
  m.types["<globals>"] = gl;
  auto mod_of = [](CallInfo& c) { return static_cast<ModuleObj*>(c.args.at(0).as<InstanceObj>()->native.get()); };
  in.method(gl, "__getitem__", [mod_of](In& i, CallInfo& c) -> Value {
    Value v = i.impl()->global(mod_of(c), c.args.at(1).str());
    if (!v.set()) i.raise_value(i.call(i.builtin_class("KeyError"), {c.args[1]}), i.range_of(c.call));
    return v;
  });
  in.method(gl, "get", [mod_of](In& i, CallInfo& c) -> Value {
    Value v = i.impl()->global(mod_of(c), c.args.at(1).str());
    return v.set() ? v : c.args.size() > 2 ? c.args[2] : Value::none();
  });
  in.method(gl, "__setitem__", [mod_of](In&, CallInfo& c) -> Value {
    mod_of(c)->env.vars.set(c.args.at(1).str(), c.args.at(2));
    return Value::none();
  });
  in.method(gl, "__contains__", [mod_of](In& i, CallInfo& c) -> Value {
    return Value::boolean(c.args.at(1).is(Kind::Str) && i.impl()->global(mod_of(c), c.args[1].str()).set());
  });
  auto names = [mod_of](In& i, CallInfo& c) {
    std::vector<Value> l;
    for (auto& n : i.impl()->public_names(mod_of(c))) l.push_back(i.str(n));
    return l;
  };
  in.method(gl, "__iter__", [names](In& i, CallInfo& c) { return i.iter(i.list(names(i, c))); });
  in.method(gl, "keys", [names](In& i, CallInfo& c) { return i.list(names(i, c)); });
  in.method(gl, "items", [names, mod_of](In& i, CallInfo& c) {
    std::vector<Value> l;
    for (auto& n : names(i, c)) {
      Value v = i.impl()->global(mod_of(c), n.str());
      if (v.set()) l.push_back(i.tuple({n, v}));
    }
    return i.list(std::move(l));
  });
  in.method(gl, "update", [mod_of](In& i, CallInfo& c) {
    for (auto& kv : i.to_vector(i.call(i.getattr(c.args.at(1), "items"), {})))
      mod_of(c)->env.vars.set(kv.as<SeqObj>()->items[0].str(), kv.as<SeqObj>()->items[1]);
    return Value::none();
  });
  for (const char* n : {"open", "input", "eval", "exec", "compile", "memoryview", "bytearray", "breakpoint"}) {
    std::string s = n;
    def(n, [s](In& i, CallInfo& c) { return i.unknown(s + "() is not followed", c.call); });
  }
  def("__import__", [](In& i, CallInfo& c) -> Value {
    std::string n = arg(i, c, 0, "__import__").str();
    if (auto* mod = i.import(n)) {
      (void)mod;
      return i.import(n.substr(0, n.find('.')));
    }
    i.raise("ModuleNotFoundError", "No module named '" + n + "'", c.call);
  });

  // ---- object, type, descriptors
  in.method(m.object_, "__init__", [](In&, CallInfo&) { return Value::none(); });
  auto* nw = in.make<NativeObj>("object.__new__", [](In& i, CallInfo& c) -> Value {
    if (c.args.empty() || !c.args[0].is(Kind::Class)) i.raise("TypeError", "object.__new__(X): X is not a type object", c.call);
    auto* k = c.args[0].as<ClassObj>();
    CallInfo rest = c;
    rest.args.erase(rest.args.begin());
    for (ClassObj* x : k->mro)
      if (x->allocate) return x->allocate(i, k, rest);
    return i.make<InstanceObj>(k);
  });
  nw->binds = false;
  m.object_->dict.set("__new__", nw);
  in.method(m.object_, "__setattr__", [](In& i, CallInfo& c) {
    i.plain_setattr(c.args.at(0), c.args.at(1).str(), c.args.at(2));
    return Value::none();
  });
  in.method(m.object_, "__delattr__", [](In& i, CallInfo& c) {
    if (!c.args.at(0).is_object() || !c.args[0].obj()->attrs || !c.args[0].obj()->attrs->erase(c.args.at(1).str()))
      i.raise("AttributeError", c.args[1].str(), c.call);
    return Value::none();
  });
  in.method(m.object_, "__getattribute__", [](In& i, CallInfo& c) {
    Value v = i.plain_getattr(c.args.at(0), c.args.at(1).str(), c.call);
    if (!v.set())
      i.raise("AttributeError", "'" + i.type_of(c.args[0])->name + "' object has no attribute '" + c.args[1].str() + "'", c.call);
    return v;
  });
  in.method(m.object_, "__repr__", [](In& i, CallInfo& c) { return i.str("<" + i.type_of(c.args.at(0))->qualified() + " object>"); });
  in.method(m.object_, "__str__", [](In& i, CallInfo& c) { return i.str(i.to_repr(c.args.at(0))); });
  in.method(m.object_, "__dir__", [](In& i, CallInfo& c) { return i.call(i.impl()->builtins.get("dir"), {c.args.at(0)}); });
  in.method(m.object_, "__init_subclass__", [](In&, CallInfo&) { return Value::none(); });
  for (const char* op : {"__eq__", "__ne__"})
    in.method(m.object_, op, [](In& i, CallInfo& c) -> Value {
      if (i.identical(c.args.at(0), c.args.at(1))) return Value::boolean(true);
      return Value::not_implemented();
    });
  m.object_->dict.erase("__ne__");
  in.method(m.object_, "__hash__", [](In&, CallInfo& c) {
    return Value::integer(
        static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(c.args.at(0).is_object() ? c.args[0].obj() : nullptr) >> 4));
  });
  in.method(m.type_, "__new__", [](In& i, CallInfo& c) -> Value {
    if (c.args.size() == 2) return i.type_of(c.args[1]);
    if (c.args.size() < 4) i.raise("TypeError", "type() takes 1 or 3 arguments", c.call);
    NameMap ns;
    std::vector<std::pair<Value, Value>> l;
    if (c.args[3].is(Kind::Dict))
      for (const auto& e : c.args[3].as<DictObj>()->entries)
        if (e.alive && e.key.is(Kind::Str)) ns.set(e.key.str(), e.value);
    auto* meta = c.args[0].as<ClassObj>();
    ModuleObj* globals = i.frame() && i.frame()->env ? i.frame()->env->globals : nullptr;
    return i.impl()->create_class(c.args[1].str(), i.to_vector(c.args[2]), ns, meta == i.impl()->type_ ? nullptr : meta, c.kwargs, nullptr,
                                  globals);
  });
  in.method(m.type_, "__init__", [](In&, CallInfo&) { return Value::none(); });
  in.method(m.type_, "__call__", [](In& i, CallInfo& c) {
    Value cls = c.args.at(0);
    CallInfo rest = c;
    rest.args.erase(rest.args.begin());
    if (!rest.exprs.empty()) rest.exprs.erase(rest.exprs.begin());
    return i.impl()->construct(cls.as<ClassObj>(), rest);
  });
  in.method(m.type_, "__setattr__", [](In& i, CallInfo& c) {
    i.plain_setattr(c.args.at(0), c.args.at(1).str(), c.args.at(2));
    return Value::none();
  });
  in.method(m.type_, "__instancecheck__",
            [](In& i, CallInfo& c) { return Value::boolean(i.type_of(c.args.at(1))->derives_from(c.args[0].as<ClassObj>())); });
  in.method(m.property_, "__new__", [](In& i, CallInfo& c) -> Value {
    auto* p = i.make<PropertyObj>();
    if (c.args.size() > 1) p->get = c.args[1];
    if (c.args.size() > 2) p->set = c.args[2];
    if (auto* k = c.keyword("fget")) p->get = k->value;
    if (auto* k = c.keyword("fset")) p->set = k->value;
    return p;
  });
  in.method(m.staticmethod_, "__new__", [](In& i, CallInfo& c) -> Value { return i.make<WrapperObj>(Kind::StaticMethod, c.args.at(1)); });
  in.method(m.classmethod_, "__new__", [](In& i, CallInfo& c) -> Value { return i.make<WrapperObj>(Kind::ClassMethod, c.args.at(1)); });
  in.method(m.super_, "__new__", [](In& i, CallInfo& c) -> Value {
    if (c.args.size() < 2) i.raise("RuntimeError", "super(): no arguments", c.call);
    if (c.args[1].is_unknown()) return c.args[1];
    if (!c.args[1].is(Kind::Class)) i.raise("TypeError", "super() argument 1 must be a type", c.call);
    return i.make<SuperObj>(c.args[1].as<ClassObj>(), c.args.size() > 2 ? c.args[2] : Value::none());
  });
  in.method(m.iterator_, "send", [](In& i, CallInfo& c) -> Value {
    if (auto* g = dynamic_cast<GeneratorObj*>(c.args.at(0).obj())) g->sent = c.args.at(1);
    Value v = i.next(c.args[0]);
    if (!v.set()) i.raise_value(i.call(i.builtin_class("StopIteration"), {}));
    return v;
  });
  in.method(m.iterator_, "throw", [](In& i, CallInfo& c) -> Value {
    auto* g = dynamic_cast<GeneratorObj*>(c.args.at(0).obj());
    Value e = c.args.at(c.args.size() > 2 && !c.args[2].is_none() ? 2 : 1);
    if (e.is(Kind::Class)) e = i.call(e, {});
    if (!g || g->co->done()) i.raise_value(e);
    g->thrown = PyError{e, {}};
    Value v = i.next(c.args[0]);
    if (!v.set()) i.raise_value(i.call(i.builtin_class("StopIteration"), {}));
    return v;
  });
  in.method(m.iterator_, "close", [](In&, CallInfo&) { return Value::none(); });
  in.method(m.iterator_, "__next__", [](In& i, CallInfo& c) -> Value {
    Value v = i.next(c.args.at(0));
    if (!v.set()) i.raise_value(i.call(i.builtin_class("StopIteration"), {}));
    return v;
  });
  in.method(m.iterator_, "__iter__", [](In&, CallInfo& c) -> Value { return c.args.at(0); });
  in.method(m.function_, "__get__", [](In& i, CallInfo& c) -> Value {
    return c.args.size() > 1 && !c.args[1].is_none() ? Value(i.make<BoundMethodObj>(c.args[1], c.args[0])) : c.args.at(0);
  });
  m.function_->dict.erase("__get__");  // functions bind through Impl::bind

  in.modules.native("builtins", [](In& i, ModuleObj& mod) {
    for (const auto& x : i.impl()->builtins) mod.env.vars.set(x.name, x.value);
  });
}

}  // namespace shardwright::eval
