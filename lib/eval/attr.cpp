// Attributes: Python's lookup order, descriptors, the special ones of each built-in kind.
#include "eval/impl.h"

namespace shardwright::eval {

/// An attribute found in a class, as seen through `self` (Unset self: through the class).
Value In::Impl::bind(const Value& attr, const Value& self, ClassObj* cls, const Expr* site) {
  switch (attr.kind()) {
    case Kind::Function: return self.set() ? Value(in.make<BoundMethodObj>(self, attr)) : attr;
    case Kind::Native: return self.set() && attr.as<NativeObj>()->binds ? Value(in.make<BoundMethodObj>(self, attr)) : attr;
    case Kind::StaticMethod: return attr.as<WrapperObj>()->function;
    case Kind::ClassMethod: {
      Value f = attr.as<WrapperObj>()->function;
      if (f.is(Kind::Property)) return in.call(f.as<PropertyObj>()->get, {cls}, site);
      return in.make<BoundMethodObj>(Value(cls), f);
    }
    case Kind::Property: {
      auto* p = attr.as<PropertyObj>();
      if (!self.set()) return attr;
      if (!p->get.set() || p->get.is_none()) in.raise("AttributeError", "unreadable attribute", site);
      return in.call(p->get, {self}, site);
    }
    case Kind::Instance:
    case Kind::Host: {
      Value get = in.type_of(attr)->lookup("__get__");
      if (!get.set()) return attr;
      return in.call(get, {attr, self.set() ? self : Value::none(), Value(cls)}, site);
    }
    default: return attr;
  }
}

Value In::Impl::special_attr(const Value& v, std::string_view name) {
  if (name == "__class__") return in.type_of(v);
  if (name == "__dict__" && v.is_object()) {
    auto* d = in.make<DictObj>();
    if (v.is(Kind::Instance) && !v.obj()->attrs) v.obj()->attrs = &new_env(nullptr, nullptr)->vars;
    const NameMap* m = v.is(Kind::Class) ? &v.as<ClassObj>()->dict : v.obj()->attrs;
    if (m)
      for (const auto& i : *m) d->set(in, in.str(i.name), i.value);
    if (!v.is(Kind::Class)) d->mirror = v.obj();
    return d;
  }
  if (name == "__doc__") return Value::none();
  switch (v.kind()) {
    case Kind::Module: {
      auto* m = v.as<ModuleObj>();
      if (name == "__name__") return in.str(m->name);
      if (name == "__file__") return in.str(m->source && m->source->file >= 0 ? in.sources.file(m->source->file).path : m->name);
      if (name == "__path__" && m->is_package) return in.list({in.str(m->name)});
      if (name == "__package__")
        return in.str(m->is_package ? m->name : m->name.substr(0, m->name.rfind('.') == std::string::npos ? 0 : m->name.rfind('.')));
      if (name == "__spec__" || name == "__loader__") return in.unknown("module." + std::string(name));
      if (name == "__builtins__") return in.unknown("__builtins__");
      return {};
    }
    case Kind::Class: {
      auto* c = v.as<ClassObj>();
      if (name == "__name__") return in.str(c->name);
      if (name == "__qualname__") return in.str(c->name);
      if (name == "__module__") return in.str(c->module);
      if (name == "__mro__" || name == "__bases__") {
        std::vector<Value> l;
        for (auto* k : name == "__mro__" ? c->mro : c->bases) l.push_back(k);
        return in.tuple(std::move(l));
      }
      if (name == "__base__") return c->bases.empty() ? Value::none() : Value(c->bases[0]);
      if (name == "__annotations__") return in.dict();
      if (name == "mro") {
        auto* f = in.make<NativeObj>("type.mro", [c](In& i, CallInfo&) {
          std::vector<Value> l;
          for (auto* k : c->mro) l.push_back(k);
          return i.list(std::move(l));
        });
        return f;
      }
      if (name == "__subclasses__") return in.native("type.__subclasses__", [](In& i, CallInfo&) { return i.list({}); });
      return {};
    }
    case Kind::Function: {
      auto* f = v.as<FunctionObj>();
      if (name == "__name__") return in.str(f->def->name == "<lambda>" ? "<lambda>" : f->def->name);
      if (name == "__qualname__") return in.str(f->qualname);
      if (name == "__module__") return in.str(f->module->name);
      if (name == "__defaults__") {
        std::vector<Value> l;
        for (std::size_t i = 0; i < f->defaults.size(); ++i)
          if (f->defaults[i].set() && f->def->parameters[i].kind != program::Parameter::KeywordOnly) l.push_back(f->defaults[i]);
        return l.empty() ? Value::none() : in.tuple(std::move(l));
      }
      if (name == "__globals__") return special_attr(f->module, "__dict__");
      if (name == "__annotations__") {
        auto* d = in.make<DictObj>();
        for (const auto& p : f->def->parameters)
          if (p.annotation) d->set(in, in.str(p.name), in.str(std::string(in.sources.text(p.annotation->range))));
        return d;
      }
      if (name == "__code__") {
        auto* o = in.make<InstanceObj>(object_);
        o->attrs = &new_env(nullptr, f->module)->vars;
        std::vector<Value> names;
        std::int64_t n = 0;
        for (const auto& p : f->def->parameters) {
          names.push_back(in.str(p.name));
          if (p.kind == program::Parameter::Positional || p.kind == program::Parameter::PositionalOnly) ++n;
        }
        o->attrs->set("co_varnames", in.tuple(std::move(names)));
        o->attrs->set("co_argcount", Value::integer(n));
        o->attrs->set("co_name", in.str(f->def->name));
        o->attrs->set("co_filename", in.str(f->def->range.file >= 0 ? in.sources.file(f->def->range.file).path : ""));
        o->attrs->set("co_flags", Value::integer(f->def->is_generator ? 32 : 0));
        o->attrs->set("co_firstlineno",
                      Value::integer(f->def->range.file >= 0 ? in.sources.position(f->def->range.file, f->def->range.begin).line : 0));
        return o;
      }
      if (name == "__get__")
        return in.native("function.__get__", [v](In& i, CallInfo& c) -> Value {
          if (c.args.empty() || c.args[0].is_none()) return v;
          return i.make<BoundMethodObj>(c.args[0], v);
        });
      if (name == "__call__") return v;
      return {};
    }
    case Kind::Native: {
      const std::string& n = v.as<NativeObj>()->name;
      if (name == "__name__" || name == "__qualname__") return in.str(n.substr(n.rfind('.') + 1));
      if (name == "__module__") return in.str(n.substr(0, n.rfind('.') == std::string::npos ? 0 : n.rfind('.')));
      if (name == "__call__") return v;
      return {};
    }
    case Kind::BoundMethod: {
      auto* m = v.as<BoundMethodObj>();
      if (name == "__self__") return m->self;
      if (name == "__func__") return m->function;
      if (name == "__call__") return v;
      return find_attr(m->function, name, nullptr, true);
    }
    case Kind::StaticMethod:
    case Kind::ClassMethod:
      if (name == "__func__" || name == "__wrapped__") return v.as<WrapperObj>()->function;
      return {};
    case Kind::Property: {
      auto* p = v.as<PropertyObj>();
      auto part = [&](Value PropertyObj::*which) {
        return in.native("property.setter", [p, which](In& i, CallInfo& c) -> Value {
          auto* q = i.make<PropertyObj>();
          q->get = p->get;
          q->set = p->set;
          q->del = p->del;
          q->cached = p->cached;
          q->*which = c.args.at(0);
          return q;
        });
      };
      if (name == "getter") return part(&PropertyObj::get);
      if (name == "setter") return part(&PropertyObj::set);
      if (name == "deleter") return part(&PropertyObj::del);
      if (name == "fget") return p->get.set() ? p->get : Value::none();
      if (name == "fset") return p->set.set() ? p->set : Value::none();
      if (name == "func") return p->get;
      return {};
    }
    case Kind::Slice: {
      auto* s = v.as<SliceObj>();
      if (name == "start") return s->start;
      if (name == "stop") return s->stop;
      if (name == "step") return s->step;
      return {};
    }
    case Kind::Range: {
      auto* r = v.as<RangeObj>();
      if (name == "start") return Value::integer(r->start);
      if (name == "stop") return Value::integer(r->stop, r->stop_sym);
      if (name == "step") return Value::integer(r->step);
      return {};
    }
    case Kind::Int:
    case Kind::Bool:
      if (name == "real" || name == "numerator") return v;
      if (name == "imag") return Value::integer(0);
      if (name == "denominator") return Value::integer(1);
      return {};
    case Kind::Float:
      if (name == "real") return v;
      if (name == "imag") return Value::real(0);
      return {};
    case Kind::Complex:
      if (name == "imag") return Value::real(v.as_double());
      if (name == "real") return Value::real(0);
      return {};
    default: return {};
  }
}

Value In::Impl::find_attr(const Value& v, std::string_view name, const Expr* site, bool hooks) {
  switch (v.kind()) {
    case Kind::Unknown: return v;
    case Kind::Unset: in.raise("SystemError", "attribute '" + std::string(name) + "' of no value", site);
    case Kind::Module: {
      Value x = in.module_attr(v.as<ModuleObj>(), name);
      if (x.set()) return x;
      return special_attr(v, name);
    }
    case Kind::Class: {
      auto* c = v.as<ClassObj>();
      if (c->metaclass) {
        Value d = c->metaclass->lookup(name);
        if (d.is(Kind::Property)) return bind(d, v, c->metaclass, site);
      }
      if (name == "__dict__" || name == "__name__" || name == "__module__" || name == "__qualname__" || name == "__class__") {
        if (name == "__class__") return c->metaclass ? Value(c->metaclass) : Value(type_);
        return special_attr(v, name);
      }
      for (ClassObj* k : c->mro) {
        if (const Value* x = k->dict.find(name)) {
          in.state_read(k, name, *x);
          return bind(*x, Value(), c, site);
        }
        if (k->unknown_base.is_unknown() && k != c && name.substr(0, 2) != "__") return k->unknown_base;
      }
      if (c->metaclass) {
        Value x = c->metaclass->lookup(name);
        if (x.set()) return bind(x, v, c->metaclass, site);
        Value ga = hooks ? c->metaclass->lookup("__getattr__") : Value();
        if (ga.set()) {
          try {
            return in.call(ga, {v, in.str(std::string(name))}, site);
          } catch (PyError& e) {
            if (!in.isinstance(e.exception, in.builtin_class("AttributeError"))) throw;
          }
        }
      }
      Value s = special_attr(v, name);
      if (s.set()) return s;
      if (c->unknown_base.is_unknown() && name.substr(0, 2) != "__") return c->unknown_base;
      Value t = type_->lookup(name);
      if (t.set()) return bind(t, v, type_, site);
      return {};
    }
    case Kind::Super: {
      auto* s = v.as<SuperObj>();
      bool through_class = s->self.is(Kind::Class);
      ClassObj* t = through_class ? s->self.as<ClassObj>() : in.type_of(s->self);
      if (through_class && !t->derives_from(s->start)) t = t->metaclass ? t->metaclass : type_;
      bool after = false;
      for (ClassObj* k : t->mro) {
        if (after)
          if (const Value* x = k->dict.find(name)) {
            if (x->is(Kind::Native) && name == "__new__") return *x;
            if (through_class && t == s->self.as<ClassObj>()) return bind(*x, Value(), t, site);
            return bind(*x, s->self, t, site);
          }
        if (k == s->start) after = true;
      }
      for (ClassObj* k : t->mro)
        if (k->unknown_base.is_unknown()) return k->unknown_base;
      return special_attr(s->self, name);
    }
    case Kind::Tensor:
      if (in.tensors) {
        Value x = in.tensors->getattr(in, v, name, site);
        if (x.set()) return x;
      }
      break;
    case Kind::Host: {
      Value x = v.as<HostObj>()->getattr(in, name);
      if (x.set()) return x;
      break;
    }
    default: break;
  }
  if (v.is(Kind::Instance)) in.asked(v);
  ClassObj* c = in.type_of(v);
  if (hooks && v.is_object() && v.obj()->cls && name != "__class__") {
    Value ga = c->lookup("__getattribute__");
    if (ga.is(Kind::Function)) {
      try {
        return in.call(ga, {v, in.str(std::string(name))}, site);
      } catch (PyError& e) {
        if (!in.isinstance(e.exception, in.builtin_class("AttributeError"))) throw;
      }
      Value gt = c->lookup("__getattr__");
      return gt.set() ? in.call(gt, {v, in.str(std::string(name))}, site) : Value();
    }
  }
  Value cv = c->lookup(name);
  if (cv.is(Kind::Property) && !cv.as<PropertyObj>()->cached) {
    // An AttributeError inside a property looks to Python as if the attribute were missing: __getattr__ is asked next.
    if (!hooks || !c->lookup("__getattr__").set()) return bind(cv, v, c, site);
    std::optional<PyError> err;
    try {
      return bind(cv, v, c, site);
    } catch (PyError& e) {
      if (!in.isinstance(e.exception, in.builtin_class("AttributeError"))) throw;
      err = e;
    }
    try {
      return in.call(c->lookup("__getattr__"), {v, in.str(std::string(name))}, site);
    } catch (PyError&) {}
    throw PyError(*err);
  }
  if ((cv.is(Kind::Instance) || cv.is(Kind::Host)) && in.type_of(cv)->lookup("__set__").set()) return bind(cv, v, c, site);
  if (v.is_object() && v.obj()->attrs)
    if (const Value* x = v.obj()->attrs->find(name)) {
      in.state_read(v.obj(), name, *x);
      if (x->is(Kind::Tensor)) in.state_read(x->obj(), "", Value());  // written in place
      return *x;
    }
  if (cv.is(Kind::Property)) {
    Value x = bind(cv, v, c, site);
    if (v.is_object()) {
      if (!v.obj()->attrs) v.obj()->attrs = &new_env(nullptr, nullptr)->vars;
      v.obj()->attrs->set(name, x);
    }
    return x;
  }
  if (cv.set()) {
    in.class_read(c, name);
    return bind(cv, v, c, site);
  }
  Value s = special_attr(v, name);
  if (s.set() && name != "__doc__") return s;
  if (hooks) {
    Value ga = c->lookup("__getattr__");
    if (ga.set()) {
      Value x;
      bool failed = false;
      try {
        x = in.call(bind(ga, v, c), {in.str(std::string(name))}, site);
      } catch (PyError& e) {
        if (!in.isinstance(e.exception, in.builtin_class("AttributeError"))) throw;
        failed = true;
      }
      if (!failed) return x;
    }
  }
  for (ClassObj* k : c->mro)
    if (k->unknown_base.is_unknown() && name.substr(0, 2) != "__") return k->unknown_base;
  return s;
}

Value In::getattr_or(const Value& v, std::string_view name, const Expr* site) { return impl_->find_attr(v, name, site, true); }
Value In::plain_getattr(const Value& v, std::string_view name, const Expr* site) { return impl_->find_attr(v, name, site, false); }

Value In::getattr(const Value& v, std::string_view name, const Expr* site) {
  Value x = impl_->find_attr(v, name, site, true);
  if (x.set()) return x;
  std::string n(name);
  if (v.is(Kind::Module)) {
    auto* m = v.as<ModuleObj>();
    // A native description of a package never covers all of it: what is missing there is not followed, rather than wrong.
    if (!m->source || m->builtin) return unknown("'" + m->name + "." + n + "' is not described", site);
    raise("AttributeError", "module '" + m->name + "' has no attribute '" + n + "'", site);
  }
  if (v.is(Kind::Class)) raise("AttributeError", "type object '" + v.as<ClassObj>()->name + "' has no attribute '" + n + "'", site);
  if (v.is(Kind::Super)) raise("AttributeError", "'super' object has no attribute '" + n + "'", site);
  // The message of a __getattr__ written in Python is the better one, but it was swallowed: ask again for the error.
  ClassObj* c = type_of(v);
  Value ga = c->lookup("__getattr__");
  if (ga.is(Kind::Function)) call(ga, {v, str(n)}, site);
  if (v.is(Kind::Host) || v.is(Kind::Tensor)) return unknown("attribute '" + n + "' of " + c->qualified() + " is not described", site);
  raise("AttributeError", "'" + c->name + "' object has no attribute '" + n + "'", site);
}

void In::plain_setattr(const Value& v, std::string_view name, const Value& x) {
  if (v.is(Kind::Class)) {
    // An answer that a constructor keeps for the next who asks: whoever comes first finds it out, and counts nothing.
    const bool answer = init_phase && (x.is(Kind::Bool) || x.is_none() || x.is(Kind::Str) || x.is(Kind::Function) || x.is_unknown()) &&
        !v.as<ClassObj>()->lookup(name).set();
    v.as<ClassObj>()->dict.set(name, x);
    if (!answer) state_written(v.obj(), name);
    return;
  }
  if (!v.is_object()) raise("AttributeError", "'" + type_of(v)->name + "' object has no attribute '" + std::string(name) + "'");
  ClassObj* c = type_of(v);
  Value cv = c->lookup(name);
  if (cv.is(Kind::Property) && !cv.as<PropertyObj>()->cached) {
    auto* p = cv.as<PropertyObj>();
    if (!p->set.set() || p->set.is_none())
      raise("AttributeError", "property '" + std::string(name) + "' of '" + c->name + "' object has no setter");
    call(p->set, {v, x});
    return;
  }
  if (cv.is(Kind::Instance)) {
    Value set = type_of(cv)->lookup("__set__");
    if (set.set()) {
      call(set, {cv, v, x});
      return;
    }
  }
  if (name == "__dict__" && x.is(Kind::Dict)) {
    v.obj()->attrs = &impl_->new_env(nullptr, nullptr)->vars;
    for (const auto& e : x.as<DictObj>()->entries)
      if (e.alive && e.key.is(Kind::Str)) v.obj()->attrs->set(e.key.str(), e.value);
    x.as<DictObj>()->mirror = v.obj();
    return;
  }
  if (name == "__class__" && x.is(Kind::Class)) {
    v.obj()->cls = x.as<ClassObj>();
    return;
  }
  if (!v.obj()->attrs) v.obj()->attrs = &impl_->new_env(nullptr, nullptr)->vars;
  v.obj()->attrs->set(name, x);
  state_written(v.obj(), name);
}

bool In::patched(const std::string& owner, std::string_view name) {
  const ActiveFrame* f = frame();
  if (!f || f->builtin || !f->stmt || owner.rfind("torch", 0) != 0 || owner.rfind("torch.backends", 0) == 0) return false;
  const ModuleObj* m = f->env ? f->env->globals : nullptr;
  if (!m || !m->source) return false;
  // What a function does while the model is built or runs, the generated package's does, too.
  if (f->function && !at_top_level) return true;
  const bool own = !f->function && std::find(m->source->body.begin(), m->source->body.end(), f->stmt) != m->source->body.end();
  trace.patches.push_back({f->stmt, m->name, owner + "." + std::string(name), !own});
  return true;
}

void In::setattr(const Value& v, std::string_view name, const Value& x, const Expr* site) {
  switch (v.kind()) {
    case Kind::Unknown: return;
    case Kind::Class: {
      auto* c = v.as<ClassObj>();
      // A new attribute of all modules, as a helper's `Module.smart_apply`, changes no layer.
      const bool new_to_all = c->builtin && c->name == "Module" && !c->lookup(name).set();
      if (c->builtin && patched(c->qualified(), name) && !new_to_all) c->patched = true;
      if (c->metaclass) {
        Value d = c->metaclass->lookup("__setattr__");
        if (d.is(Kind::Function)) {
          call(d, {v, str(std::string(name)), x}, site);
          return;
        }
      }
      plain_setattr(v, name, x);
      return;
    }
    case Kind::Tensor:
      if (tensors && tensors->setattr(*this, v, name, x)) return;
      break;
    case Kind::Host:
      if (v.as<HostObj>()->setattr(*this, name, x)) return;
      break;
    case Kind::Property:
    case Kind::StaticMethod:
    case Kind::ClassMethod:
    case Kind::Function:
    case Kind::Native: plain_setattr(v, name, x); return;
    case Kind::Module:
      if (const auto* m = v.as<ModuleObj>(); m->builtin || !m->source) patched(m->name, name);
      plain_setattr(v, name, x);
      return;
    case Kind::BoundMethod: raise("AttributeError", "'method' object has no attribute '" + std::string(name) + "'", site);
    default: break;
  }
  if (v.is_object() && v.obj()->cls) {
    Value sa = v.obj()->cls->lookup("__setattr__");
    if (sa.set() && !(sa.is(Kind::Native) && sa.as<NativeObj>()->name == "object.__setattr__")) {
      CallInfo info;
      info.call = site;
      info.add(v, site && site->kind == ExprKind::Attribute ? site->kids[0] : nullptr);
      info.add(str(std::string(name)));
      info.add(x, assigning_);
      call(sa, info);
      return;
    }
  }
  plain_setattr(v, name, x);
}

void In::delattr(const Value& v, std::string_view name) {
  if (v.is_unknown()) return;
  if (v.is(Kind::Class)) {
    v.as<ClassObj>()->dict.erase(name);
    return;
  }
  if (v.is_object() && v.obj()->cls) {
    Value d = v.obj()->cls->lookup("__delattr__");
    if (d.set() && !(d.is(Kind::Native) && d.as<NativeObj>()->name == "object.__delattr__")) {
      call(d, {v, str(std::string(name))});
      return;
    }
    Value p = v.obj()->cls->lookup(name);
    if (p.is(Kind::Property) && p.as<PropertyObj>()->del.set()) {
      call(p.as<PropertyObj>()->del, {v});
      return;
    }
  }
  if (!v.is_object() || !v.obj()->attrs || !v.obj()->attrs->erase(name))
    raise("AttributeError", "'" + type_of(v)->name + "' object has no attribute '" + std::string(name) + "'");
}

ClassObj* In::type_of(const Value& v) {
  auto& m = *impl_;
  if (v.is_object() && v.obj()->cls && !v.is(Kind::Class)) return v.obj()->cls;
  switch (v.kind()) {
    case Kind::None: return m.none_;
    case Kind::Bool: return m.bool_;
    case Kind::Int: return m.int_;
    case Kind::Float: return m.float_;
    case Kind::Complex: return m.complex_;
    case Kind::NotImplemented: return m.notimpl_;
    case Kind::Ellipsis: return m.ellipsis_;
    case Kind::Str: return m.str_;
    case Kind::Bytes: return m.bytes_;
    case Kind::Tuple: return m.tuple_;
    case Kind::List: return m.list_;
    case Kind::Dict: return m.dict_;
    case Kind::Set: return m.set_;
    case Kind::FrozenSet: return m.frozenset_;
    case Kind::Slice: return m.slice_;
    case Kind::Range: return m.range_;
    case Kind::Function: return m.function_;
    case Kind::BoundMethod: return m.method_;
    case Kind::Native: return m.native_;
    case Kind::Class: return v.as<ClassObj>()->metaclass ? v.as<ClassObj>()->metaclass : m.type_;
    case Kind::Module: return m.module_;
    case Kind::Property: return m.property_;
    case Kind::StaticMethod: return m.staticmethod_;
    case Kind::ClassMethod: return m.classmethod_;
    case Kind::Super: return m.super_;
    case Kind::Iterator: return m.iterator_;
    case Kind::Unknown: return m.unknown_;
    default: return m.object_;
  }
}

bool In::isinstance(const Value& v, const ClassObj* c) {
  const ClassObj* type = type_of(v);
  if (type->derives_from(c)) return true;
  if (!v.is(Kind::Instance) || c->builtin) return false;
  const Value other = type->lookup("__class__");  // set by generated classes: see stands_for in shardwright.parallel
  return other.is(Kind::Class) && other.as<ClassObj>()->derives_from(c);
}

bool In::callable(const Value& v) {
  switch (v.kind()) {
    case Kind::Function:
    case Kind::Native:
    case Kind::BoundMethod:
    case Kind::Class:
    case Kind::Unknown: return true;
    default: return v.is_object() && type_of(v)->lookup("__call__").set();
  }
}

}  // namespace shardwright::eval
