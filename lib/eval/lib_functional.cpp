// The parts of functools, copy and collections that must be natives: calls that pass their site on, copies of any object.
#include <algorithm>

#include "eval/impl.h"

namespace shardwright::eval {

namespace {

struct PartialObj : HostObj {
  Value func;
  std::vector<Value> args;
  std::vector<Keyword> kwargs;
  using HostObj::HostObj;
  std::string repr(In& in) const override { return "functools.partial(" + in.to_repr(func) + ")"; }
  Value getattr(In& in, std::string_view n) override {
    if (n == "func") return func;
    if (n == "args") return in.tuple(args);
    if (n == "keywords") {
      auto* d = in.make<DictObj>();
      for (auto& k : kwargs) d->set(in, in.str(k.name), k.value);
      return d;
    }
    return {};
  }
};

Value copy_of(In& in, const Value& v) {
  if (!v.is_object()) return v;
  if (v.obj()->cls && !v.is(Kind::Class)) {
    Value f = v.obj()->cls->lookup("__copy__");
    if (f.set()) return in.call(f, {v});
  }
  auto attrs = [&](Obj* o) {
    if (v.obj()->attrs) {
      o->attrs = &in.impl()->new_env(nullptr, nullptr)->vars;
      for (const auto& a : *v.obj()->attrs) o->attrs->set(a.name, a.value);
    }
    o->cls = v.obj()->cls;
    return Value(o);
  };
  switch (v.kind()) {
    case Kind::List: return attrs(in.make<SeqObj>(Kind::List, v.as<SeqObj>()->items));
    case Kind::Dict:
    case Kind::Set: {
      auto* d = in.make<DictObj>(v.kind());
      for (auto& e : v.as<DictObj>()->entries)
        if (e.alive) d->set(in, e.key, e.value);
      d->default_factory = v.as<DictObj>()->default_factory;
      return attrs(d);
    }
    case Kind::Instance: {
      auto* o = in.make<InstanceObj>(v.obj()->cls);
      o->base = v.as<InstanceObj>()->base;
      o->native = v.as<InstanceObj>()->native;
      o->object_id = v.as<InstanceObj>()->object_id;
      return attrs(o);
    }
    default: return v;
  }
}

}  // namespace

Value In::deepcopy(const Value& v, DictObj* memo) {
  if (!v.is_object()) return v;
  switch (v.kind()) {
    case Kind::Str:
    case Kind::Bytes:
    case Kind::Function:
    case Kind::Native:
    case Kind::Class:
    case Kind::Module:
    case Kind::Unknown:
    case Kind::Range:
    case Kind::Slice:
    case Kind::Property: return v;
    default: break;
  }
  if (!memo) memo = make<DictObj>();
  Value key = Value::integer(static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(v.obj())));
  if (Value* done = memo->find(*this, key)) return *done;
  impl_->check_stack(nullptr);
  if (v.obj()->cls) {
    Value f = v.obj()->cls->lookup("__deepcopy__");
    if (f.set()) {
      Value r = call(f, {v, memo});
      memo->set(*this, key, r);
      return r;
    }
  }
  if (v.is(Kind::Tensor)) {
    Value f = getattr_or(v, "__deepcopy__");
    if (f.set()) {
      Value r = call(f, {memo});
      memo->set(*this, key, r);
      return r;
    }
  }
  auto attrs = [&](Obj* o) {
    o->cls = v.obj()->cls;
    memo->set(*this, key, o);
    if (v.obj()->attrs) {
      o->attrs = &impl_->new_env(nullptr, nullptr)->vars;
      for (const auto& a : std::vector<NameMap::Item>(v.obj()->attrs->begin(), v.obj()->attrs->end()))
        o->attrs->set(a.name, deepcopy(a.value, memo));
    }
  };
  switch (v.kind()) {
    case Kind::Tuple: {
      std::vector<Value> items;
      for (auto& x : v.as<SeqObj>()->items) items.push_back(deepcopy(x, memo));
      auto* o = make<SeqObj>(Kind::Tuple, std::move(items));
      attrs(o);
      return o;
    }
    case Kind::List: {
      auto* o = make<SeqObj>(Kind::List, std::vector<Value>{});
      attrs(o);
      for (auto& x : std::vector<Value>(v.as<SeqObj>()->items)) o->items.push_back(deepcopy(x, memo));
      return o;
    }
    case Kind::Dict:
    case Kind::Set:
    case Kind::FrozenSet: {
      auto* o = make<DictObj>(v.kind());
      o->default_factory = v.as<DictObj>()->default_factory;
      attrs(o);
      for (auto& e : std::vector<DictObj::Entry>(v.as<DictObj>()->entries))
        if (e.alive) o->set(*this, deepcopy(e.key, memo), deepcopy(e.value, memo));
      return o;
    }
    case Kind::Instance: {
      auto* o = make<InstanceObj>(v.obj()->cls);
      o->base = v.as<InstanceObj>()->base;
      o->native = v.as<InstanceObj>()->native;
      o->object_id = v.as<InstanceObj>()->object_id;
      attrs(o);
      return o;
    }
    case Kind::BoundMethod: {
      auto* b = v.as<BoundMethodObj>();
      return make<BoundMethodObj>(deepcopy(b->self, memo), b->function);
    }
    case Kind::Host:
      if (auto* p = dynamic_cast<PartialObj*>(v.obj())) {
        auto* o = make<PartialObj>(p->cls);
        memo->set(*this, key, o);
        o->func = deepcopy(p->func, memo);
        for (auto& a : p->args) o->args.push_back(deepcopy(a, memo));
        for (auto& k : p->kwargs) o->kwargs.push_back({k.name, deepcopy(k.value, memo), nullptr});
        return o;
      }
      return v;
    default: return v;
  }
}

void register_functional(Interpreter& in) {
  in.modules.native("functools", [](In& i, ModuleObj& m) {
    auto* pc = i.make_class("functools", "partial");
    auto* nw = i.make<NativeObj>("functools.partial.__new__", [](In& in, CallInfo& c) -> Value {
      if (c.args.size() < 2) in.raise("TypeError", "type 'partial' takes at least one argument", c.call);
      auto* p = in.make<PartialObj>(c.args[0].as<ClassObj>());
      p->func = c.args[1];
      if (p->func.is_unknown()) return p->func;
      if (!in.callable(p->func)) in.raise("TypeError", "the first argument must be callable", c.call);
      std::vector<Value> rest(c.args.begin() + 2, c.args.end());
      if (auto* q = p->func.is(Kind::Host) ? dynamic_cast<PartialObj*>(p->func.obj()) : nullptr) {
        p->func = q->func;
        p->args = q->args;
        p->kwargs = q->kwargs;
      }
      p->args.insert(p->args.end(), rest.begin(), rest.end());
      for (auto& k : c.kwargs) {
        auto it = std::find_if(p->kwargs.begin(), p->kwargs.end(), [&](auto& x) { return x.name == k.name; });
        if (it != p->kwargs.end()) it->value = k.value;
        else p->kwargs.push_back({k.name, k.value, nullptr});
      }
      return p;
    });
    nw->binds = false;
    pc->dict.set("__new__", nw);
    i.method(pc, "__call__", [](In& in, CallInfo& c) -> Value {
      auto* p = static_cast<PartialObj*>(c.args.at(0).obj());
      CallInfo d;
      d.call = c.call;
      d.partial = c.partial;
      d.via_partial = true;
      for (auto& a : p->args) d.add(a);
      for (std::size_t k = 1; k < c.args.size(); ++k) d.add(c.args[k], c.expr(k));
      for (auto& k : p->kwargs)
        if (!c.keyword(k.name)) d.kwargs.push_back(k);
      d.kwargs.insert(d.kwargs.end(), c.kwargs.begin(), c.kwargs.end());
      return in.call(p->func, d);
    });
    m.env.vars.set("partial", pc);
    m.env.vars.set("partialmethod", pc);
    i.def(m, "reduce", [](In& in, CallInfo& c) -> Value {
      if (c.args.at(1).is_unknown()) return c.args[1];
      Value acc = c.args.size() > 2 ? c.args[2] : Value();
      for_each(in, c.args[1], c.call, [&](const Value& x) {
        acc = acc.set() ? in.call(c.args[0], {acc, x}, c.call) : x;
        return true;
      });
      if (!acc.set()) in.raise("TypeError", "reduce() of empty iterable with no initial value", c.call);
      return acc;
    });
    auto identity = [](In& in, CallInfo& c) -> Value {
      // @cache and @cache(maxsize=…): results of pure functions are only computed again
      if (!c.args.empty() && in.callable(c.args[0]) && !c.args[0].is(Kind::Int)) return c.args[0];
      return in.native("functools.cache", [](In&, CallInfo& d) { return d.args.at(0); });
    };
    for (const char* n : {"lru_cache", "cache", "total_ordering", "wraps_"}) i.def(m, n, identity);
    auto copy_meta = [](In& in, const Value& wrapper, const Value& wrapped) {
      if (wrapper.is(Kind::Function)) {
        in.plain_setattr(wrapper, "__wrapped__", wrapped);
        for (const char* n : {"__name__", "__qualname__", "__doc__", "__module__"}) {
          Value x = in.getattr_or(wrapped, n);
          if (x.set() && !x.is_unknown()) in.plain_setattr(wrapper, n, x);
        }
      }
      return wrapper;
    };
    i.def(m, "wraps", [copy_meta](In& in, CallInfo& c) -> Value {
      Value f = c.args.at(0);
      return in.native("functools.wraps", [copy_meta, f](In& in2, CallInfo& d) { return copy_meta(in2, d.args.at(0), f); });
    });
    i.def(m, "update_wrapper", [copy_meta](In& in, CallInfo& c) -> Value { return copy_meta(in, c.args.at(0), c.args.at(1)); });
    i.def(m, "cached_property", [](In& in, CallInfo& c) -> Value {
      auto* p = in.make<PropertyObj>();
      p->get = c.args.at(0);
      p->cached = true;
      return p;
    });
    i.def(m, "cmp_to_key", [](In& in, CallInfo& c) -> Value {
      Value f = c.args.at(0);
      auto* k = in.make_class("functools", "K");
      in.method(k, "__init__", [](In& in2, CallInfo& d) {
        in2.plain_setattr(d.args.at(0), "obj", d.args.at(1));
        return Value::none();
      });
      in.method(k, "__lt__", [f](In& in2, CallInfo& d) {
        return in2.compare("<", in2.call(f, {in2.getattr(d.args.at(0), "obj"), in2.getattr(d.args.at(1), "obj")}), Value::integer(0));
      });
      return k;
    });
  });
  in.modules.native("copy", [](In& i, ModuleObj& m) {
    i.def(m, "copy", [](In& in, CallInfo& c) { return copy_of(in, c.args.at(0)); });
    i.def(m, "deepcopy", [](In& in, CallInfo& c) {
      return in.deepcopy(c.args.at(0), c.args.size() > 1 && c.args[1].is(Kind::Dict) ? c.args[1].as<DictObj>() : nullptr);
    });
  });
  in.modules.native("collections", [](In& i, ModuleObj& m) {
    auto* dd = i.make_class("collections", "defaultdict", {i.builtin_class("dict")});
    i.method(dd, "__init__", [](In& in, CallInfo& c) -> Value {
      auto* d = c.args.at(0).as<DictObj>();
      if (c.args.size() > 1) d->default_factory = c.args[1];
      CallInfo rest = c;
      if (c.args.size() > 1) {
        rest.args.erase(rest.args.begin() + 1);
        if (rest.exprs.size() > 1) rest.exprs.erase(rest.exprs.begin() + 1);
      }
      return in.call(in.builtin_class("dict")->lookup("__init__"), rest);
    });
    i.property(dd, "default_factory", [](In&, CallInfo& c) { return c.args.at(0).as<DictObj>()->default_factory; });
    m.env.vars.set("defaultdict", dd);
  });
}

}  // namespace shardwright::eval
