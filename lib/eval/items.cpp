// Containers: indexing, membership, length, iteration.
#include <algorithm>

#include "eval/impl.h"

namespace shardwright::eval {

namespace {

/// A method that replaces what the built-in containers do (theirs are natives named after them).
bool overrides(const Value& m) {
  if (!m.is(Kind::Native)) return m.is(Kind::Function);
  const std::string& n = m.as<NativeObj>()->name;
  for (const char* b : {"dict.", "list.", "tuple.", "str.", "bytes.", "set.", "frozenset.", "object."})
    if (n.compare(0, std::char_traits<char>::length(b), b) == 0) return false;
  return true;
}

struct Bounds {
  std::int64_t start, stop, step;
};

Bounds slice_bounds(In& in, SliceObj* s, std::int64_t n) {
  std::int64_t step = s->step.is_none() ? 1 : in.to_int(s->step, "slice step");
  if (step == 0) in.raise("ValueError", "slice step cannot be zero");
  auto clip = [&](const Value& v, std::int64_t dflt) {
    if (v.is_none()) return dflt;
    std::int64_t i = in.to_int(v, "slice index");
    if (i < 0) i += n;
    if (step > 0) return std::clamp<std::int64_t>(i, 0, n);
    return std::clamp<std::int64_t>(i, -1, n - 1);
  };
  return step > 0 ? Bounds{clip(s->start, 0), clip(s->stop, n), step} : Bounds{clip(s->start, n - 1), clip(s->stop, -1), step};
}

bool slice_unknown(SliceObj* s) { return s->start.is_unknown() || s->stop.is_unknown() || s->step.is_unknown(); }

}  // namespace

std::int64_t In::to_int(const Value& v, std::string_view what) {
  if (v.is_integral()) return v.as_int();
  if (v.is(Kind::Instance)) {
    if (v.as<InstanceObj>()->base.is_integral()) return v.as<InstanceObj>()->base.as_int();
    Value f = v.obj()->cls->lookup("__index__");
    if (f.set()) return to_int(call(f, {v}), what);
  }
  if (v.is(Kind::Host)) {
    Value f = getattr_or(v, "__index__");
    if (f.set()) return to_int(call(f, {}), what);
  }
  if (v.is(Kind::Tensor) && tensors) {
    Value i = tensors->to_number(*this, v, "int");
    if (i.is_integral()) return i.as_int();
    if (i.is_unknown()) raise("TypeError", std::string(what) + " is not known: " + i.as<UnknownObj>()->why);
  }
  if (v.is_unknown()) raise("TypeError", std::string(what) + " is not known: " + v.as<UnknownObj>()->why);
  raise("TypeError", "'" + type_of(v)->name + "' object cannot be interpreted as an integer");
}

Value In::getitem(const Value& v, const Value& key, const Expr* site, const Expr* v_expr, const Expr* key_expr) {
  if (v.is(Kind::Tensor) && tensors) return tensors->getitem(*this, v, key, site, v_expr, key_expr);
  if (v.is_unknown()) return v;
  if (v.is(Kind::Class)) {
    auto* c = v.as<ClassObj>();
    if (c->metaclass) {
      Value m = c->metaclass->lookup("__getitem__");
      if (m.set()) return call(m, {v, key}, site);
    }
    Value g = c->lookup("__class_getitem__");
    if (g.set()) {
      Value f = impl_->bind(g, Value(), c);
      if (f.is(Kind::Native)) return call(f, {v, key}, site);
      return call(f, {key}, site);
    }
    return v;  // Foo[int]: an annotation, or a generic class
  }
  if (v.is_object() && v.obj()->cls) {
    Value m = v.obj()->cls->lookup("__getitem__");
    if (overrides(m) || (m.set() && (v.is(Kind::Instance) || v.is(Kind::Host)))) {
      CallInfo info;
      info.call = site;
      info.add(v, v_expr);
      info.add(key, key_expr);
      return call(m, info);
    }
  }
  if (key.is_unknown()) return key;
  switch (v.kind()) {
    case Kind::Tuple:
    case Kind::List:
    case Kind::Str:
    case Kind::Bytes:
    case Kind::Range: {
      bool text = v.is(Kind::Str) || v.is(Kind::Bytes);
      std::int64_t n =
          v.is(Kind::Range) ? v.as<RangeObj>()->size() : static_cast<std::int64_t>(text ? v.str().size() : v.as<SeqObj>()->items.size());
      if (key.is(Kind::Slice)) {
        auto* s = key.as<SliceObj>();
        if (slice_unknown(s)) return unknown("slice with unknown bounds", site);
        Bounds b = slice_bounds(*this, s, n);
        if (v.is(Kind::Range)) {
          auto* r = v.as<RangeObj>();
          return make<RangeObj>(r->start + b.start * r->step, r->start + b.stop * r->step, r->step * b.step);
        }
        std::string out;
        std::vector<Value> items;
        for (std::int64_t i = b.start; b.step > 0 ? i < b.stop : i > b.stop; i += b.step) {
          if (text) out += v.str()[static_cast<std::size_t>(i)];
          else items.push_back(v.as<SeqObj>()->items[static_cast<std::size_t>(i)]);
        }
        if (text) return make<StrObj>(out, v.kind());
        ClassObj* c = v.obj()->cls;
        return make<SeqObj>(v.kind(), std::move(items), c && c->builtin && v.is(Kind::Tuple) && !c->lookup("_fields").set() ? c : nullptr);
      }
      if (!key.is_integral() && !key.is(Kind::Instance) && !key.is(Kind::Tensor) && !key.is(Kind::Host))
        raise("TypeError", type_of(v)->name + " indices must be integers or slices, not " + type_of(key)->name, site);
      std::int64_t i = to_int(key, "index");
      if (i < 0) i += n;
      if (i < 0 || i >= n) raise("IndexError", (text ? "string" : type_of(v)->name) + " index out of range", site);
      if (v.is(Kind::Range)) return Value::integer(v.as<RangeObj>()->start + i * v.as<RangeObj>()->step);
      if (v.is(Kind::Bytes)) return Value::integer(static_cast<unsigned char>(v.str()[static_cast<std::size_t>(i)]));
      if (text) return str(std::string(1, v.str()[static_cast<std::size_t>(i)]));
      return v.as<SeqObj>()->items[static_cast<std::size_t>(i)];
    }
    case Kind::Dict: {
      auto* d = v.as<DictObj>();
      if (Value* x = d->find(*this, key)) return *x;
      if (d->cls) {
        Value m = d->cls->lookup("__missing__");
        if (m.set()) return call(m, {v, key}, site);
      }
      if (d->default_factory.set() && !d->default_factory.is_none()) {
        Value x = call(d->default_factory, {}, site);
        d->set(*this, key, x);
        return x;
      }
      // A registry filled by decorators in modules that only had to be imported: let those run, then look again.
      if (d->global && key.is(Kind::Str) && impl_->run_effects(key.str()))
        if (Value* x = d->find(*this, key)) return *x;
      Value e = call(builtin_class("KeyError"), {key});
      raise_value(e, range_of(site));
    }
    case Kind::Function:
    case Kind::Native: return v;
    case Kind::Instance:
      if (v.as<InstanceObj>()->base.set()) return getitem(v.as<InstanceObj>()->base, key, site);
      break;
    default: break;
  }
  if (v.is_object() && type_of(v)->unknown_base.is_unknown()) return unknown("index of an object whose class is not followed", site);
  raise("TypeError", "'" + type_of(v)->name + "' object is not subscriptable", site);
}

void In::setitem(const Value& v, const Value& key, const Value& x, const Expr* site) {
  if (v.is(Kind::Tensor) && tensors) {
    tensors->setitem(*this, v, key, x, site);
    return;
  }
  if (v.is_unknown()) return;
  if (v.is_object() && v.obj()->cls && !v.is(Kind::Class)) {
    Value m = v.obj()->cls->lookup("__setitem__");
    if (overrides(m) || (m.set() && (v.is(Kind::Instance) || v.is(Kind::Host)))) {
      call(m, {v, key, x}, site);
      return;
    }
  }
  if (key.is_unknown()) {
    note_incomplete(range_of(site), "item of unknown index assigned: " + key.as<UnknownObj>()->why);
    return;
  }
  if (v.is(Kind::Dict)) {
    if (v.obj() == impl_->sys_modules && x.is(Kind::Module) && key.is(Kind::Str)) impl_->loaded[key.str()] = x.as<ModuleObj>();
    v.as<DictObj>()->set(*this, key, x);
    return;
  }
  if (v.is(Kind::List)) {
    auto& items = v.as<SeqObj>()->items;
    auto n = static_cast<std::int64_t>(items.size());
    if (key.is(Kind::Slice)) {
      Bounds b = slice_bounds(*this, key.as<SliceObj>(), n);
      auto more = to_vector(x, site);
      if (b.step == 1) {
        auto from = items.begin() + b.start;
        auto to = items.begin() + std::max(b.start, b.stop);
        from = items.erase(from, to);
        items.insert(from, more.begin(), more.end());
      } else {
        std::size_t k = 0;
        for (std::int64_t i = b.start; (b.step > 0 ? i < b.stop : i > b.stop) && k < more.size(); i += b.step)
          items[static_cast<std::size_t>(i)] = more[k++];
      }
      return;
    }
    std::int64_t i = to_int(key, "index");
    if (i < 0) i += n;
    if (i < 0 || i >= n) raise("IndexError", "list assignment index out of range", site);
    items[static_cast<std::size_t>(i)] = x;
    return;
  }
  raise("TypeError", "'" + type_of(v)->name + "' object does not support item assignment", site);
}

void In::delitem(const Value& v, const Value& key) {
  if (v.is_unknown() || key.is_unknown()) return;
  if (v.is_object() && v.obj()->cls) {
    Value m = v.obj()->cls->lookup("__delitem__");
    if (overrides(m) || (m.set() && (v.is(Kind::Instance) || v.is(Kind::Host)))) {
      call(m, {v, key});
      return;
    }
  }
  if (v.is(Kind::Dict)) {
    if (!v.as<DictObj>()->erase(*this, key)) raise_value(call(builtin_class("KeyError"), {key}));
    return;
  }
  if (v.is(Kind::List)) {
    auto& items = v.as<SeqObj>()->items;
    auto n = static_cast<std::int64_t>(items.size());
    if (key.is(Kind::Slice)) {
      Bounds b = slice_bounds(*this, key.as<SliceObj>(), n);
      std::vector<std::int64_t> gone;
      for (std::int64_t i = b.start; b.step > 0 ? i < b.stop : i > b.stop; i += b.step) gone.push_back(i);
      std::sort(gone.rbegin(), gone.rend());
      for (auto i : gone) items.erase(items.begin() + i);
      return;
    }
    std::int64_t i = to_int(key, "index");
    if (i < 0) i += n;
    if (i < 0 || i >= n) raise("IndexError", "list assignment index out of range");
    items.erase(items.begin() + i);
    return;
  }
  raise("TypeError", "'" + type_of(v)->name + "' object doesn't support item deletion");
}

Value In::Impl::contains(const Value& c, const Value& item) {
  if (c.is_object() && c.obj()->cls) {
    Value m = c.obj()->cls->lookup("__contains__");
    if (overrides(m) || (m.set() && (c.is(Kind::Instance) || c.is(Kind::Host)))) {
      Value r = in.call(bind(m, c, c.obj()->cls), {item});
      auto t = in.truth(r);
      return t ? Value::boolean(*t) : r;
    }
  }
  if (c.is(Kind::Class) && c.as<ClassObj>()->metaclass) {
    Value m = c.as<ClassObj>()->metaclass->lookup("__contains__");
    if (m.set()) return in.call(m, {c, item});
  }
  switch (c.kind()) {
    case Kind::Str:
    case Kind::Bytes:
      if (item.is_unknown()) return item;
      if (!item.is(Kind::Str) && !item.is(Kind::Bytes))
        in.raise("TypeError", "'in <string>' requires string as left operand, not " + in.type_of(item)->name);
      return Value::boolean(c.str().find(item.str()) != std::string::npos);
    case Kind::Dict:
    case Kind::Set:
    case Kind::FrozenSet: {
      if (item.is_unknown()) return item;
      if (c.as<DictObj>()->find(in, item)) return Value::boolean(true);
      if (c.is(Kind::Dict) && c.as<DictObj>()->global && item.is(Kind::Str) && run_effects(item.str()))
        return Value::boolean(c.as<DictObj>()->find(in, item) != nullptr);
      return Value::boolean(false);
    }
    case Kind::Range: {
      if (!item.is_number()) return item.is_unknown() ? item : Value::boolean(false);
      auto* r = c.as<RangeObj>();
      double d = item.as_double();
      auto i = static_cast<std::int64_t>(d);
      if (static_cast<double>(i) != d) return Value::boolean(false);
      bool inside = r->step > 0 ? i >= r->start && i < r->stop : i <= r->start && i > r->stop;
      return Value::boolean(inside && (i - r->start) % r->step == 0);
    }
    case Kind::Instance:
      if (c.as<InstanceObj>()->base.set()) return contains(c.as<InstanceObj>()->base, item);
      break;
    default: break;
  }
  bool found = false;
  Value unsure;
  for_each(in, c, nullptr, [&](const Value& x) {
    if (x.is_unknown() || item.is_unknown()) {
      if (!in.identical(x, item)) {
        unsure = x.is_unknown() ? x : item;
        return true;
      }
    }
    if (in.identical(x, item) || (!(x.is(Kind::Tensor) || item.is(Kind::Tensor)) && in.equal(x, item))) {
      found = true;
      return false;
    }
    return true;
  });
  if (!found && unsure.set()) return unsure;
  return Value::boolean(found);
}

Value In::length(const Value& v) {
  if (v.is(Kind::Tensor) && tensors) return tensors->length(*this, v);
  if (v.is_unknown()) return v;
  if (v.is(Kind::Class) && v.as<ClassObj>()->metaclass) {
    Value m = v.as<ClassObj>()->metaclass->lookup("__len__");
    if (m.set()) return call(m, {v});
  }
  if (v.is_object() && v.obj()->cls && !v.is(Kind::Class)) {
    Value m = v.obj()->cls->lookup("__len__");
    if (overrides(m) || (m.set() && (v.is(Kind::Instance) || v.is(Kind::Host)))) return call(m, {v});
  }
  switch (v.kind()) {
    case Kind::Str:
    case Kind::Bytes: {
      std::int64_t n = 0;
      for (char c : v.str()) n += v.is(Kind::Bytes) || (static_cast<unsigned char>(c) & 0xC0) != 0x80;
      return Value::integer(n);
    }
    case Kind::Tuple:
    case Kind::List: return Value::integer(static_cast<std::int64_t>(v.as<SeqObj>()->items.size()));
    case Kind::Dict:
    case Kind::Set:
    case Kind::FrozenSet: return Value::integer(static_cast<std::int64_t>(v.as<DictObj>()->live));
    case Kind::Range: return Value::integer(v.as<RangeObj>()->size());
    default: break;
  }
  if (v.is_object() && type_of(v)->unknown_base.is_unknown()) return unknown("length of an object whose class is not followed");
  raise("TypeError", "object of type '" + type_of(v)->name + "' has no len()");
}

// ---- iteration --------------------------------------------------------------------------------------------------------

namespace {

struct IndexIter : IteratorObj {  // lists may grow while they are walked, as in Python
  Value seq;
  std::size_t i = 0;
  Value next(In& in) override {
    switch (seq.kind()) {
      case Kind::Range: {
        auto* r = seq.as<RangeObj>();
        if (static_cast<std::int64_t>(i) >= r->size()) return {};
        return Value::integer(r->start + static_cast<std::int64_t>(i++) * r->step);
      }
      case Kind::Str: {
        const std::string& s = seq.str();
        if (i >= s.size()) return {};
        std::size_t n = 1;
        while (i + n < s.size() && (static_cast<unsigned char>(s[i + n]) & 0xC0) == 0x80) ++n;
        i += n;
        return in.str(s.substr(i - n, n));
      }
      case Kind::Bytes: {
        if (i >= seq.str().size()) return {};
        return Value::integer(static_cast<unsigned char>(seq.str()[i++]));
      }
      default: {
        auto& items = seq.as<SeqObj>()->items;
        return i < items.size() ? items[i++] : Value();
      }
    }
  }
};

struct KeyIter : IteratorObj {
  DictObj* d = nullptr;
  std::size_t i = 0;
  Value next(In&) override {
    while (i < d->entries.size() && !d->entries[i].alive) ++i;
    return i < d->entries.size() ? d->entries[i++].key : Value();
  }
};

struct ItemIter : IteratorObj {  // the old protocol: __getitem__ with 0, 1, 2… until IndexError
  Value v;
  std::int64_t i = 0;
  Value next(In& in) override {
    try {
      return in.getitem(v, Value::integer(i++));
    } catch (PyError& e) {
      if (!in.isinstance(e.exception, in.builtin_class("IndexError"))) throw;
    }
    return {};
  }
};

}  // namespace

Value In::iter(const Value& v, const Expr* site) {
  if (v.is(Kind::Iterator) || v.is_unknown()) return v;
  if (v.is(Kind::Tensor) && tensors) {
    auto* it = make<IndexIter>();
    it->seq = list(tensors->iterate(*this, v, site));
    return it;
  }
  if (v.is(Kind::Class) && v.as<ClassObj>()->metaclass) {
    Value m = v.as<ClassObj>()->metaclass->lookup("__iter__");
    if (m.set()) return iter(call(m, {v}, site));
  }
  if (v.is_object() && v.obj()->cls && !v.is(Kind::Class)) {
    Value m = v.obj()->cls->lookup("__iter__");
    if (overrides(m) || (m.set() && (v.is(Kind::Instance) || v.is(Kind::Host)))) {
      Value it = call(m, {v}, site);
      if (it.is(Kind::Iterator) || it.is_unknown()) return it;
      if (it.is_object() && it.obj() == v.obj()) return it;
      return it.is(Kind::Instance) ? it : iter(it, site);
    }
  }
  switch (v.kind()) {
    case Kind::Tuple:
    case Kind::List:
    case Kind::Range:
    case Kind::Str:
    case Kind::Bytes: {
      auto* it = make<IndexIter>();
      it->seq = v;
      return it;
    }
    case Kind::Dict:
    case Kind::Set:
    case Kind::FrozenSet: {
      auto* it = make<KeyIter>();
      it->d = v.as<DictObj>();
      return it;
    }
    default: break;
  }
  if (v.is(Kind::Instance) || v.is(Kind::Host)) {
    if (type_of(v)->lookup("__getitem__").set()) {
      auto* it = make<ItemIter>();
      it->v = v;
      return it;
    }
    if (type_of(v)->lookup("__next__").set()) return v;
    if (type_of(v)->unknown_base.is_unknown()) return unknown("iteration over an object whose class is not followed", site);
  }
  raise("TypeError", "'" + type_of(v)->name + "' object is not iterable", site);
}

Value In::next(const Value& it) {
  impl_->tick_step(nullptr);
  if (it.is(Kind::Iterator)) return it.as<IteratorObj>()->next(*this);
  if (it.is_unknown()) return {};
  Value m = type_of(it)->lookup("__next__");
  if (!m.set()) raise("TypeError", "'" + type_of(it)->name + "' object is not an iterator");
  try {
    return call(m, {it});
  } catch (PyError& e) {
    if (!isinstance(e.exception, builtin_class("StopIteration"))) throw;
  }
  return {};
}

void for_each(In& in, const Value& v, const Expr* site, const std::function<bool(const Value&)>& body) {
  Value it = in.iter(v, site);
  if (it.is_unknown()) {
    in.note_incomplete(in.range_of(site), "loop over an unknown value: " + it.as<UnknownObj>()->why);
    return;
  }
  while (true) {
    Value x = in.next(it);
    if (!x.set() || !body(x)) return;
  }
}

std::vector<Value> In::to_vector(const Value& v, const Expr* site) {
  if ((v.is(Kind::Tuple) || v.is(Kind::List)) && (!v.obj()->cls || !v.obj()->cls->lookup("__iter__").is(Kind::Function)))
    return v.as<SeqObj>()->items;
  std::vector<Value> out;
  for_each(*this, v, site, [&](const Value& x) {
    out.push_back(x);
    return true;
  });
  return out;
}

}  // namespace shardwright::eval
