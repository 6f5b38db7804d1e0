// Classes: definition, metaclasses, method resolution order, the built-in types.
#include <algorithm>

#include "eval/impl.h"

namespace shardwright::eval {

/// C3 linearization; false when there is none.
bool In::Impl::linearize(ClassObj* c) {
  std::vector<std::vector<ClassObj*>> seqs;
  for (auto* b : c->bases) seqs.push_back(b->mro);
  seqs.push_back(c->bases);
  c->mro = {c};
  while (true) {
    std::erase_if(seqs, [](const auto& s) { return s.empty(); });
    if (seqs.empty()) return true;
    ClassObj* next = nullptr;
    for (const auto& s : seqs) {
      ClassObj* cand = s.front();
      bool in_tail =
          std::any_of(seqs.begin(), seqs.end(), [&](const auto& t) { return std::find(t.begin() + 1, t.end(), cand) != t.end(); });
      if (!in_tail) {
        next = cand;
        break;
      }
    }
    if (!next) return false;
    c->mro.push_back(next);
    for (auto& s : seqs)
      if (s.front() == next) s.erase(s.begin());
  }
}

ClassObj* In::Impl::create_class(const std::string& name, std::vector<Value> bases, NameMap dict, ClassObj* meta,
                                 std::vector<Keyword> keywords, const program::ClassDef* def, ModuleObj* globals) {
  auto* c = in.make<ClassObj>(name);
  c->def = def;
  c->globals = globals;
  c->module = globals ? globals->name : "";
  c->builtin = globals && globals->builtin;
  c->dict = std::move(dict);
  for (const auto& b : bases) {
    if (b.is(Kind::Class)) {
      if (std::find(c->bases.begin(), c->bases.end(), b.as<ClassObj>()) == c->bases.end()) c->bases.push_back(b.as<ClassObj>());
      if (b.as<ClassObj>()->unknown_base.is_unknown()) c->unknown_base = b.as<ClassObj>()->unknown_base;
    } else if (b.is_unknown()) {
      c->unknown_base = b;
    } else {
      Value entries = in.getattr_or(b, "__mro_entries__");
      if (entries.set()) {
        for (const auto& x : in.to_vector(in.call(entries, {in.tuple(bases)})))
          if (x.is(Kind::Class)) c->bases.push_back(x.as<ClassObj>());
      } else {
        in.raise("TypeError", "bases must be types", def && !def->bases.empty() ? def->bases[0].value : nullptr);
      }
    }
  }
  if (c->bases.empty()) c->bases.push_back(object_);
  // `object` may stand anywhere among the bases of generated code; C3 needs it last.
  if (c->bases.size() > 1) {
    auto it = std::find(c->bases.begin(), c->bases.end(), object_);
    if (it != c->bases.end() && it + 1 != c->bases.end()) std::rotate(it, it + 1, c->bases.end());
  }
  if (!linearize(c)) in.raise("TypeError", "Cannot create a consistent method resolution order (MRO) for bases of " + name);
  c->metaclass = meta;
  if (!meta)
    for (auto* b : c->bases)
      if (b->metaclass && (!c->metaclass || b->metaclass->derives_from(c->metaclass))) c->metaclass = b->metaclass;
  if (const Value* m = c->dict.find("__module__"); m && m->is(Kind::Str)) c->module = m->str();
  for (const auto& i : std::vector<NameMap::Item>(c->dict.begin(), c->dict.end())) {
    if (i.value.is(Kind::Function) && !i.value.as<FunctionObj>()->owner) i.value.as<FunctionObj>()->owner = c;
    if (i.name == "__new__" && i.value.is(Kind::Function)) c->dict.set("__new__", in.make<WrapperObj>(Kind::StaticMethod, i.value));
    if ((i.name == "__init_subclass__" || i.name == "__class_getitem__") && i.value.is(Kind::Function))
      c->dict.set(i.name, in.make<WrapperObj>(Kind::ClassMethod, i.value));
    if (i.value.is(Kind::Instance) || i.value.is(Kind::Host)) {
      Value sn = in.type_of(i.value)->lookup("__set_name__");
      if (sn.set()) in.call(sn, {i.value, c, in.str(i.name)});
    }
  }
  for (std::size_t k = 1; k < c->mro.size(); ++k) {
    if (const Value* h = c->mro[k]->dict.find("__init_subclass__")) {
      CallInfo info;
      info.call = def && !def->decorators.empty() ? nullptr : nullptr;
      info.kwargs = keywords;
      Value f = bind(*h, Value(), c);
      if (f.is(Kind::Native)) info.add(c);
      in.call(f, info);
      break;
    }
  }
  return c;
}

Value In::Impl::define_class(const Stmt* s, Env* env) {
  const program::ClassDef* d = s->class_def;
  std::vector<Value> bases;
  std::vector<Keyword> keywords;
  Value meta;
  for (const auto& a : d->bases) {
    Value v = eval(a.value, env);
    if (a.star) {
      for (auto& x : in.to_vector(v, a.value)) bases.push_back(x);
      continue;
    }
    if (a.double_star) continue;
    if (a.keyword == "metaclass") {
      meta = v;
      continue;
    }
    if (!a.keyword.empty()) {
      keywords.push_back({a.keyword, v, a.value});
      continue;
    }
    if (v.is_unknown()) in.note_incomplete(a.range, "base class of " + d->name + " is not followed: " + v.as<UnknownObj>()->why);
    bases.push_back(v);
  }
  Env* body = new_env(env, env->globals);
  body->is_class = true;
  const Value said = env->globals->demand ? global(env->globals, "__name__") : Value();
  body->vars.set("__module__", said.is(Kind::Str) ? said : in.str(env->globals->name));
  body->vars.set("__qualname__", in.str(d->name));
  exec_block(d->body, body);
  body->vars.erase("__qualname__");
  Value cls;
  ClassObj* m = meta.is(Kind::Class) ? meta.as<ClassObj>() : nullptr;
  ClassObj* derived = m;
  for (const auto& b : bases)
    if (b.is(Kind::Class) && b.as<ClassObj>()->metaclass && (!derived || b.as<ClassObj>()->metaclass->derives_from(derived)))
      derived = b.as<ClassObj>()->metaclass;
  bool custom = false;
  if (derived) {
    Value nw = derived->lookup("__new__");
    custom = nw.is(Kind::StaticMethod) || nw.is(Kind::Function);
  }
  if (custom) {
    auto* ns = in.make<DictObj>();
    for (const auto& i : body->vars) ns->set(in, in.str(i.name), i.value);
    CallInfo info;
    info.call = nullptr;
    info.add(derived);
    info.add(in.str(d->name));
    info.add(in.tuple(bases));
    info.add(ns);
    info.kwargs = keywords;
    Value nw = derived->lookup("__new__");
    if (nw.is(Kind::StaticMethod)) nw = nw.as<WrapperObj>()->function;
    cls = in.call(nw, info);
    if (cls.is(Kind::Class)) {
      cls.as<ClassObj>()->def = d;
      cls.as<ClassObj>()->globals = env->globals;
      cls.as<ClassObj>()->builtin = env->globals->builtin;
    }
  } else {
    cls = create_class(d->name, bases, body->vars, derived, keywords, d, env->globals);
  }
  if (cls.is(Kind::Class)) class_of_scope[body] = cls.as<ClassObj>();
  if (derived && cls.is(Kind::Class)) {
    Value init = derived->lookup("__init__");
    if (init.is(Kind::Function)) {
      auto* ns = in.make<DictObj>();
      for (const auto& i : body->vars) ns->set(in, in.str(i.name), i.value);
      CallInfo info;
      info.args = {cls, in.str(d->name), in.tuple(bases), ns};
      info.kwargs = keywords;
      in.call(init, info);
    }
  }
  return d->decorators.empty() ? cls : decorate(d->decorators, cls, env);
}

ClassObj* In::make_class(std::string module, std::string name, std::vector<ClassObj*> bases) {
  auto* c = make<ClassObj>(std::move(name));
  c->module = std::move(module);
  c->builtin = true;
  c->bases = std::move(bases);
  if (c->bases.empty() && impl_->object_) c->bases.push_back(impl_->object_);
  impl_->linearize(c);
  for (auto* b : c->bases)
    if (b->metaclass) c->metaclass = b->metaclass;
  return c;
}

void In::method(ClassObj* c, std::string name, NativeFn fn) {
  std::string full = c->qualified() + "." + name;
  c->dict.set(name, make<NativeObj>(full, std::move(fn)));
}

void In::property(ClassObj* c, std::string name, NativeFn get, NativeFn set) {
  auto* p = make<PropertyObj>();
  p->get = native(c->qualified() + "." + name, std::move(get));
  if (set) p->set = native(c->qualified() + "." + name, std::move(set));
  c->dict.set(name, p);
}

void In::def(ModuleObj& m, std::string name, NativeFn fn) {
  auto* f = make<NativeObj>(m.name + "." + name, std::move(fn));
  f->binds = false;  // as functions in C: a class that holds one as an attribute does not make a method of it
  m.env.vars.set(name, f);
}

ClassObj* In::builtin_class(std::string_view name) {
  auto it = impl_->types.find(std::string(name));
  return it == impl_->types.end() ? nullptr : it->second;
}

void In::Impl::make_types() {
  auto mk = [&](const char* name, ClassObj* base = nullptr, bool visible = true) {
    auto* c = in.make_class("builtins", name, base ? std::vector<ClassObj*>{base} : std::vector<ClassObj*>{});
    types[name] = c;
    if (visible) builtins.set(name, c);
    return c;
  };
  object_ = mk("object");
  object_->bases.clear();
  object_->mro = {object_};
  type_ = mk("type");
  int_ = mk("int");
  float_ = mk("float");
  complex_ = mk("complex");
  bool_ = mk("bool", int_);
  str_ = mk("str");
  bytes_ = mk("bytes");
  tuple_ = mk("tuple");
  list_ = mk("list");
  dict_ = mk("dict");
  set_ = mk("set");
  frozenset_ = mk("frozenset");
  slice_ = mk("slice");
  range_ = mk("range");
  property_ = mk("property");
  staticmethod_ = mk("staticmethod");
  classmethod_ = mk("classmethod");
  super_ = mk("super");
  function_ = mk("function", nullptr, false);
  method_ = mk("method", nullptr, false);
  native_ = mk("builtin_function_or_method", nullptr, false);
  module_ = mk("module", nullptr, false);
  iterator_ = mk("generator", nullptr, false);
  none_ = mk("NoneType", nullptr, false);
  notimpl_ = mk("NotImplementedType", nullptr, false);
  ellipsis_ = mk("ellipsis", nullptr, false);
  unknown_ = mk("<unknown>", nullptr, false);
}

}  // namespace shardwright::eval
