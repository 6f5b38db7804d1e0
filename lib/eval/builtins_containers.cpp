// list, tuple, dict, set, frozenset, range, slice.
#include <algorithm>

#include "eval/impl.h"

namespace shardwright::eval {

namespace {

SeqObj* seq(In& in, CallInfo& c) {
  if (c.args.empty() || (!c.args[0].is(Kind::List) && !c.args[0].is(Kind::Tuple)))
    in.raise("TypeError", "descriptor requires a list or tuple", c.call);
  return c.args[0].as<SeqObj>();
}
DictObj* dict_of(In& in, CallInfo& c) {
  if (c.args.empty() || !(c.args[0].is(Kind::Dict) || c.args[0].is(Kind::Set) || c.args[0].is(Kind::FrozenSet)))
    in.raise("TypeError", "descriptor requires a dict or set", c.call);
  return c.args[0].as<DictObj>();
}
Value arg(In& in, CallInfo& c, std::size_t i) {
  if (i >= c.args.size())
    in.raise("TypeError",
             "expected at least " + std::to_string(i) + " argument" + (i == 1 ? "" : "s") + ", got " +
                 std::to_string(c.args.size() ? c.args.size() - 1 : 0),
             c.call);
  return c.args[i];
}

bool plain_dict(const Value& v) { return v.is(Kind::Dict) && !(v.obj()->cls && v.obj()->cls->lookup("keys").is(Kind::Function)); }

void fill_dict(In& in, DictObj* d, CallInfo& c, std::size_t from) {
  auto put = [&](const Value& k, const Value& v) {
    if (d->cls && d->cls->lookup("__setitem__").is(Kind::Function) && from == 99) in.setitem(d, k, v);
    else d->set(in, k, v);
  };
  if (c.args.size() > from && !c.args[from].is_none()) {
    Value src = c.args[from];
    if (src.is_unknown()) {
      in.note_incomplete(in.range_of(c.call), "dict of an unknown value: " + src.as<UnknownObj>()->why);
    } else if (plain_dict(src)) {
      for (auto& e : std::vector<DictObj::Entry>(src.as<DictObj>()->entries))
        if (e.alive) put(e.key, e.value);
    } else if (Value keys = in.getattr_or(src, "keys"); keys.set() && !src.is(Kind::List)) {
      for (auto& k : in.to_vector(in.call(keys, {}))) put(k, in.getitem(src, k));
    } else {
      for (auto& p : in.to_vector(src, c.call)) {
        auto kv = in.to_vector(p, c.call);
        if (kv.size() != 2)
          in.raise("ValueError", "dictionary update sequence element #0 has length " + std::to_string(kv.size()) + "; 2 is required",
                   c.call);
        put(kv[0], kv[1]);
      }
    }
  }
  for (auto& k : c.kwargs) put(in.str(k.name), k.value);
}

}  // namespace

Value sort_values(Interpreter& in, std::vector<Value> items, const Value& key, bool reverse) {
  std::vector<std::pair<Value, Value>> keyed;
  for (auto& x : items) {
    Value k = key.set() && !key.is_none() ? in.call(key, {x}) : x;
    if (k.is_unknown()) return k;
    keyed.emplace_back(k, x);
  }
  // A merge sort of our own: the comparison may raise, and std::sort wants a strict order that Python code need not keep.
  auto less = [&](const Value& a, const Value& b) { return in.truth(in.compare("<", a, b)).value_or(false); };
  std::vector<std::pair<Value, Value>> tmp(keyed.size());
  for (std::size_t w = 1; w < keyed.size(); w *= 2) {
    for (std::size_t lo = 0; lo < keyed.size(); lo += 2 * w) {
      std::size_t mid = std::min(lo + w, keyed.size()), hi = std::min(lo + 2 * w, keyed.size()), a = lo, b = mid, o = lo;
      while (a < mid || b < hi) {
        bool right = a >= mid || (b < hi && (reverse ? less(keyed[a].first, keyed[b].first) : less(keyed[b].first, keyed[a].first)));
        tmp[o++] = keyed[right ? b++ : a++];
      }
    }
    keyed.swap(tmp);
  }
  std::vector<Value> out;
  for (auto& k : keyed) out.push_back(k.second);
  return in.list(std::move(out));
}

void register_containers(Interpreter& in) {
  auto& m = *in.impl();
  // ---- list
  ClassObj* L = m.list_;
  L->allocate = [](In& i, ClassObj* c, CallInfo&) -> Obj* {
    auto* o = i.make<SeqObj>(Kind::List, std::vector<Value>{});
    if (c != i.impl()->list_) o->cls = c;
    return o;
  };
  in.method(L, "__init__", [](In& i, CallInfo& c) -> Value {
    auto* s = seq(i, c);
    if (c.args.size() > 1) s->items = i.to_vector(c.args[1], c.call);
    return Value::none();
  });
  in.method(L, "__new__", [](In& i, CallInfo& c) -> Value {
    auto* cls = c.args.at(0).as<ClassObj>();
    if (cls == i.impl()->list_ && c.args.size() > 1 && c.args[1].is_unknown()) return c.args[1];
    return cls->allocate ? cls->allocate(i, cls, c) : i.impl()->list_->allocate(i, cls, c);
  });
  in.method(L, "append", [](In& i, CallInfo& c) {
    seq(i, c)->items.push_back(arg(i, c, 1));
    return Value::none();
  });
  in.method(L, "extend", [](In& i, CallInfo& c) {
    auto v = i.to_vector(arg(i, c, 1), c.call);
    auto& l = seq(i, c)->items;
    l.insert(l.end(), v.begin(), v.end());
    return Value::none();
  });
  in.method(L, "insert", [](In& i, CallInfo& c) {
    auto& l = seq(i, c)->items;
    auto n = static_cast<std::int64_t>(l.size());
    std::int64_t at = i.to_int(arg(i, c, 1));
    if (at < 0) at = std::max<std::int64_t>(0, at + n);
    l.insert(l.begin() + std::min(at, n), arg(i, c, 2));
    return Value::none();
  });
  in.method(L, "pop", [](In& i, CallInfo& c) {
    auto& l = seq(i, c)->items;
    auto n = static_cast<std::int64_t>(l.size());
    std::int64_t at = c.args.size() > 1 ? i.to_int(c.args[1]) : -1;
    if (n == 0) i.raise("IndexError", "pop from empty list", c.call);
    if (at < 0) at += n;
    if (at < 0 || at >= n) i.raise("IndexError", "pop index out of range", c.call);
    Value v = l[static_cast<std::size_t>(at)];
    l.erase(l.begin() + at);
    return v;
  });
  in.method(L, "remove", [](In& i, CallInfo& c) {
    auto& l = seq(i, c)->items;
    Value x = arg(i, c, 1);
    for (std::size_t k = 0; k < l.size(); ++k)
      if (i.identical(l[k], x) || i.equal(l[k], x)) {
        l.erase(l.begin() + static_cast<std::ptrdiff_t>(k));
        return Value::none();
      }
    i.raise("ValueError", "list.remove(x): x not in list", c.call);
  });
  in.method(L, "clear", [](In& i, CallInfo& c) {
    seq(i, c)->items.clear();
    return Value::none();
  });
  in.method(L, "reverse", [](In& i, CallInfo& c) {
    auto& l = seq(i, c)->items;
    std::reverse(l.begin(), l.end());
    return Value::none();
  });
  in.method(L, "copy", [](In& i, CallInfo& c) { return i.list(seq(i, c)->items); });
  in.method(L, "sort", [](In& i, CallInfo& c) -> Value {
    auto* key = c.keyword("key");
    auto* rev = c.keyword("reverse");
    Value r = sort_values(i, seq(i, c)->items, key ? key->value : Value(), rev && i.truthy(rev->value));
    if (r.is(Kind::List)) seq(i, c)->items = r.as<SeqObj>()->items;
    return Value::none();
  });
  for (const char* name : {"__setitem__", "__getitem__", "__delitem__", "__len__", "__iter__", "__contains__", "__iadd__"}) {
    std::string n = name;
    NativeFn f = [n](In& i, CallInfo& c) -> Value {
      auto* s = seq(i, c);
      SeqObj* view = s;
      if (s->cls) {
        ClassObj* keep = s->cls;
        s->cls = nullptr;
        struct Back {
          SeqObj* s;
          ClassObj* c;
          ~Back() { s->cls = c; }
        } back{s, keep};
        if (n == "__getitem__") return i.getitem(view, arg(i, c, 1), c.call);
        if (n == "__setitem__") {
          i.setitem(view, arg(i, c, 1), arg(i, c, 2));
          return Value::none();
        }
        if (n == "__delitem__") {
          i.delitem(view, arg(i, c, 1));
          return Value::none();
        }
        if (n == "__len__") return i.length(view);
        if (n == "__contains__") return i.impl()->contains(view, arg(i, c, 1));
        if (n == "__iadd__") return i.impl()->seq_binary("+", view, arg(i, c, 1), true);
        return i.iter(view);
      }
      if (n == "__getitem__") return i.getitem(view, arg(i, c, 1), c.call);
      if (n == "__setitem__") {
        i.setitem(view, arg(i, c, 1), arg(i, c, 2));
        return Value::none();
      }
      if (n == "__delitem__") {
        i.delitem(view, arg(i, c, 1));
        return Value::none();
      }
      if (n == "__len__") return i.length(view);
      if (n == "__contains__") return i.impl()->contains(view, arg(i, c, 1));
      if (n == "__iadd__") return i.impl()->seq_binary("+", view, arg(i, c, 1), true);
      return i.iter(view);
    };
    in.method(L, name, f);
    if (n == "__getitem__" || n == "__len__" || n == "__iter__" || n == "__contains__") in.method(m.tuple_, name, f);
  }
  // ---- tuple
  ClassObj* T = m.tuple_;
  in.method(T, "__new__", [](In& i, CallInfo& c) -> Value {
    auto* cls = c.args.at(0).as<ClassObj>();
    if (c.args.size() > 1 && c.args[1].is_unknown() && cls == i.impl()->tuple_) return c.args[1];
    if (cls == i.impl()->tuple_ && c.args.size() > 1 && c.args[1].is(Kind::Tuple) && !c.args[1].obj()->cls) return c.args[1];
    auto* o = i.make<SeqObj>(Kind::Tuple, c.args.size() > 1 ? i.to_vector(c.args[1], c.call) : std::vector<Value>{});
    if (cls != i.impl()->tuple_) o->cls = cls;
    return o;
  });
  for (ClassObj* k : {L, T}) {
    in.method(k, "index", [](In& i, CallInfo& c) {
      auto& l = seq(i, c)->items;
      for (std::size_t n = 0; n < l.size(); ++n)
        if (i.identical(l[n], arg(i, c, 1)) || i.equal(l[n], arg(i, c, 1))) return Value::integer(static_cast<std::int64_t>(n));
      i.raise("ValueError", i.to_repr(arg(i, c, 1)) + " is not in list", c.call);
    });
    in.method(k, "count", [](In& i, CallInfo& c) {
      std::int64_t n = 0;
      for (auto& x : seq(i, c)->items) n += i.identical(x, arg(i, c, 1)) || i.equal(x, arg(i, c, 1));
      return Value::integer(n);
    });
  }
  // ---- dict
  ClassObj* D = m.dict_;
  D->allocate = [](In& i, ClassObj* c, CallInfo&) -> Obj* {
    auto* o = i.make<DictObj>();
    if (c != i.impl()->dict_) o->cls = c;
    return o;
  };
  in.method(D, "__new__", [](In& i, CallInfo& c) -> Value {
    auto* cls = c.args.at(0).as<ClassObj>();
    if (cls == i.impl()->dict_ && c.args.size() > 1 && c.args[1].is_unknown()) return c.args[1];
    return i.impl()->dict_->allocate(i, cls, c);
  });
  in.method(D, "__init__", [](In& i, CallInfo& c) {
    fill_dict(i, dict_of(i, c), c, 1);
    return Value::none();
  });
  in.method(D, "update", [](In& i, CallInfo& c) {
    fill_dict(i, dict_of(i, c), c, 1);
    return Value::none();
  });
  auto getter = [](In& i, CallInfo& c) -> Value {
    auto* d = dict_of(i, c);
    Value k = arg(i, c, 1);
    if (k.is_unknown()) return k;
    if (Value* v = d->find(i, k)) return *v;
    if (d->global && k.is(Kind::Str) && i.impl()->run_effects(k.str()))
      if (Value* v = d->find(i, k)) return *v;
    if (c.args.size() > 2) return c.args[2];
    auto* dflt = c.keyword("default");
    return dflt ? dflt->value : Value::none();
  };
  in.method(D, "get", getter);
  in.method(D, "setdefault", [](In& i, CallInfo& c) -> Value {
    auto* d = dict_of(i, c);
    if (Value* v = d->find(i, arg(i, c, 1))) return *v;
    Value x = c.args.size() > 2 ? c.args[2] : Value::none();
    i.setitem(d, c.args[1], x);
    return x;
  });
  in.method(D, "pop", [](In& i, CallInfo& c) -> Value {
    auto* d = dict_of(i, c);
    Value k = arg(i, c, 1);
    if (k.is_unknown()) return k;
    if (Value* v = d->find(i, k)) {
      Value x = *v;
      d->erase(i, k);
      return x;
    }
    if (c.args.size() > 2) return c.args[2];
    i.raise_value(i.call(i.builtin_class("KeyError"), {k}), i.range_of(c.call));
  });
  in.method(D, "popitem", [](In& i, CallInfo& c) -> Value {
    auto* d = dict_of(i, c);
    bool first = false;
    if (auto* k = c.keyword("last")) first = !i.truthy(k->value);
    for (std::size_t n = 0; n < d->entries.size(); ++n) {
      auto& e = d->entries[first ? n : d->entries.size() - 1 - n];
      if (!e.alive) continue;
      Value r = i.tuple({e.key, e.value});
      d->erase(i, Value(e.key));
      return r;
    }
    i.raise("KeyError", "popitem(): dictionary is empty", c.call);
  });
  in.method(D, "move_to_end", [](In& i, CallInfo& c) -> Value {
    auto* d = dict_of(i, c);
    Value* v = d->find(i, arg(i, c, 1));
    if (!v) i.raise_value(i.call(i.builtin_class("KeyError"), {c.args[1]}), i.range_of(c.call));
    Value x = *v;
    bool last = true;
    if (auto* k = c.keyword("last")) last = i.truthy(k->value);
    if (c.args.size() > 2) last = i.truthy(c.args[2]);
    d->erase(i, c.args[1]);
    if (last) {
      d->set(i, c.args[1], x);
      return Value::none();
    }
    auto rest = d->entries;
    d->clear();
    d->set(i, c.args[1], x);
    for (auto& e : rest)
      if (e.alive) d->set(i, e.key, e.value);
    return Value::none();
  });
  // Views are lists made on the spot: loops that change the dictionary meanwhile raise in Python anyway.
  in.method(D, "keys", [](In& i, CallInfo& c) -> Value {
    auto* s = i.make<DictObj>(Kind::Set);
    for (auto& e : dict_of(i, c)->entries)
      if (e.alive) s->set(i, e.key, Value::none());
    return s;
  });
  in.method(D, "values", [](In& i, CallInfo& c) {
    std::vector<Value> l;
    for (auto& e : dict_of(i, c)->entries)
      if (e.alive) l.push_back(e.value);
    return i.list(std::move(l));
  });
  in.method(D, "items", [](In& i, CallInfo& c) {
    std::vector<Value> l;
    for (auto& e : dict_of(i, c)->entries)
      if (e.alive) l.push_back(i.tuple({e.key, e.value}));
    return i.list(std::move(l));
  });
  auto copy = [](In& i, CallInfo& c) -> Value {
    auto* d = dict_of(i, c);
    auto* o = i.make<DictObj>(d->kind);
    o->cls = d->cls;
    o->default_factory = d->default_factory;
    for (auto& e : d->entries)
      if (e.alive) o->set(i, e.key, e.value);
    return o;
  };
  in.method(D, "copy", copy);
  auto clear = [](In& i, CallInfo& c) {
    dict_of(i, c)->clear();
    return Value::none();
  };
  in.method(D, "clear", clear);
  auto* fromkeys = in.make<NativeObj>("dict.fromkeys", [](In& i, CallInfo& c) -> Value {
    auto* o = i.make<DictObj>();
    for (auto& k : i.to_vector(arg(i, c, c.args[0].is(Kind::Class) ? 1 : 0), c.call))
      o->set(i, k, c.args.size() > (c.args[0].is(Kind::Class) ? 2u : 1u) ? c.args.back() : Value::none());
    return o;
  });
  D->dict.set("fromkeys", in.make<WrapperObj>(Kind::ClassMethod, fromkeys));
  for (const char* name : {"__setitem__", "__getitem__", "__delitem__", "__contains__", "__len__", "__iter__"}) {
    std::string n = name;
    in.method(D, name, [n](In& i, CallInfo& c) -> Value {
      auto* d = dict_of(i, c);
      if (n == "__setitem__") {
        d->set(i, arg(i, c, 1), arg(i, c, 2));
        return Value::none();
      }
      if (n == "__delitem__") {
        if (!d->erase(i, arg(i, c, 1))) i.raise_value(i.call(i.builtin_class("KeyError"), {c.args[1]}));
        return Value::none();
      }
      if (n == "__contains__") return Value::boolean(d->find(i, arg(i, c, 1)) != nullptr);
      if (n == "__len__") return Value::integer(static_cast<std::int64_t>(d->live));
      if (n == "__getitem__") {
        if (Value* v = d->find(i, arg(i, c, 1))) return *v;
        ClassObj* keep = d->cls;
        if (keep) {
          Value miss = keep->lookup("__missing__");
          if (miss.set()) return i.call(miss, {c.args[0], c.args[1]});
        }
        d->cls = nullptr;
        struct Back {
          DictObj* d;
          ClassObj* c;
          ~Back() { d->cls = c; }
        } back{d, keep};
        return i.getitem(d, c.args[1], c.call);
      }
      std::vector<Value> keys;
      for (auto& e : d->entries)
        if (e.alive) keys.push_back(e.key);
      return i.iter(i.list(std::move(keys)));
    });
  }
  // ---- sets
  for (ClassObj* S : {m.set_, m.frozenset_}) {
    Kind kind = S == m.set_ ? Kind::Set : Kind::FrozenSet;
    in.method(S, "__new__", [kind](In& i, CallInfo& c) -> Value {
      auto* cls = c.args.at(0).as<ClassObj>();
      if (c.args.size() > 1 && c.args[1].is_unknown()) return c.args[1];
      auto* o = i.make<DictObj>(kind);
      if (cls != i.impl()->set_ && cls != i.impl()->frozenset_) o->cls = cls;
      if (c.args.size() > 1)
        for (auto& x : i.to_vector(c.args[1], c.call)) o->set(i, x, Value::none());
      return o;
    });
    auto all_others = [](In& i, CallInfo& c) {
      auto* o = i.make<DictObj>(Kind::Set);
      for (std::size_t k = 1; k < c.args.size(); ++k)
        for (auto& x : i.to_vector(c.args[k], c.call)) o->set(i, x, Value::none());
      return o;
    };
    auto as_kind = [](In& i, const Value& v) -> Value {
      auto* o = i.make<DictObj>(Kind::Set);
      for (auto& x : i.to_vector(v)) o->set(i, x, Value::none());
      return o;
    };
    for (auto [name, op] : {std::pair{"union", "|"}, {"difference", "-"}, {"symmetric_difference", "^"}}) {
      std::string o = op;
      in.method(S, name, [o, all_others](In& i, CallInfo& c) {
        dict_of(i, c);
        return i.impl()->seq_binary(o, c.args[0], all_others(i, c), false);
      });
    }
    in.method(S, "intersection", [as_kind](In& i, CallInfo& c) {
      dict_of(i, c);
      Value r = c.args[0];
      for (std::size_t k = 1; k < c.args.size(); ++k) r = i.impl()->seq_binary("&", r, as_kind(i, c.args[k]), false);
      return r;
    });
    in.method(S, "issubset", [as_kind](In& i, CallInfo& c) { return i.compare("<=", as_kind(i, arg(i, c, 0)), as_kind(i, arg(i, c, 1))); });
    in.method(S, "issuperset",
              [as_kind](In& i, CallInfo& c) { return i.compare(">=", as_kind(i, arg(i, c, 0)), as_kind(i, arg(i, c, 1))); });
    in.method(S, "isdisjoint", [as_kind](In& i, CallInfo& c) {
      return Value::boolean(i.impl()->seq_binary("&", as_kind(i, arg(i, c, 0)), as_kind(i, arg(i, c, 1)), false).as<DictObj>()->live == 0);
    });
    in.method(S, "copy", copy);
    if (kind != Kind::Set) continue;
    in.method(S, "add", [](In& i, CallInfo& c) {
      dict_of(i, c)->set(i, arg(i, c, 1), Value::none());
      return Value::none();
    });
    in.method(S, "update", [](In& i, CallInfo& c) {
      auto* d = dict_of(i, c);
      for (std::size_t k = 1; k < c.args.size(); ++k)
        for (auto& x : i.to_vector(c.args[k], c.call)) d->set(i, x, Value::none());
      return Value::none();
    });
    in.method(S, "discard", [](In& i, CallInfo& c) {
      dict_of(i, c)->erase(i, arg(i, c, 1));
      return Value::none();
    });
    in.method(S, "remove", [](In& i, CallInfo& c) {
      if (!dict_of(i, c)->erase(i, arg(i, c, 1))) i.raise_value(i.call(i.builtin_class("KeyError"), {c.args[1]}));
      return Value::none();
    });
    in.method(S, "clear", clear);
    in.method(S, "pop", [](In& i, CallInfo& c) -> Value {
      auto* d = dict_of(i, c);
      for (auto& e : d->entries)
        if (e.alive) {
          Value k = e.key;
          d->erase(i, k);
          return k;
        }
      i.raise("KeyError", "pop from an empty set", c.call);
    });
    in.method(S, "difference_update", [](In& i, CallInfo& c) {
      auto* d = dict_of(i, c);
      for (std::size_t k = 1; k < c.args.size(); ++k)
        for (auto& x : i.to_vector(c.args[k])) d->erase(i, x);
      return Value::none();
    });
    in.method(S, "intersection_update", [as_kind](In& i, CallInfo& c) {
      i.impl()->seq_binary("&", arg(i, c, 0), as_kind(i, arg(i, c, 1)), true);
      return Value::none();
    });
  }
  // ---- range, slice
  in.method(m.range_, "__new__", [](In& i, CallInfo& c) -> Value {
    for (auto& a : c.args)
      if (a.is_unknown()) return a;
    std::size_t n = c.args.size() - 1;
    if (n < 1 || n > 3) i.raise("TypeError", "range expected at least 1 argument, got " + std::to_string(n), c.call);
    std::int64_t a = n == 1 ? 0 : i.to_int(c.args[1]), b = i.to_int(c.args[n == 1 ? 1 : 2]), s = n == 3 ? i.to_int(c.args[3]) : 1;
    if (s == 0) i.raise("ValueError", "range() arg 3 must not be zero", c.call);
    auto* r = i.make<RangeObj>(a, b, s);
    r->stop_sym = c.args[n == 1 ? 1 : 2].sym();
    if (r->stop_sym) i.guard("range", c.args[n == 1 ? 1 : 2], Value::integer(0), true, i.range_of(c.call));
    return r;
  });
  in.method(m.slice_, "__new__", [](In& i, CallInfo& c) -> Value {
    std::size_t n = c.args.size() - 1;
    if (n < 1) i.raise("TypeError", "slice expected at least 1 argument, got 0", c.call);
    return i.make<SliceObj>(n == 1 ? Value::none() : c.args[1], c.args[n == 1 ? 1 : 2], n > 2 ? c.args[3] : Value::none());
  });
  in.method(m.slice_, "indices", [](In& i, CallInfo& c) -> Value {
    Value r = i.getitem(i.make<RangeObj>(0, i.to_int(arg(i, c, 1)), 1), c.args[0]);
    auto* x = r.as<RangeObj>();
    return i.tuple({Value::integer(x->start), Value::integer(x->stop), Value::integer(x->step)});
  });
}

}  // namespace shardwright::eval
