// Expressions.
#include <algorithm>

#include "eval/impl.h"

namespace shardwright::eval {

Value In::eval(const Expr* e, Env* env) { return impl_->eval(e, env); }

Value In::Impl::lookup_name(const std::string& name, Env* env, const Expr* where) {
  bool first = true;
  for (Env* s = env; s; s = s->parent, first = false) {
    if (s->is_class && !first) continue;
    if (!s->global_names.empty() && std::find(s->global_names.begin(), s->global_names.end(), name) != s->global_names.end()) break;
    if (s == &s->globals->env) break;
    if (const Value* v = s->vars.find(name)) {
      if (v->set()) return *v;
      in.raise("UnboundLocalError", "cannot access local variable '" + name + "' where it is not associated with a value", where);
    }
    if (s->locals && std::find(s->locals->begin(), s->locals->end(), name) != s->locals->end() &&
        std::find(s->nonlocals.begin(), s->nonlocals.end(), name) == s->nonlocals.end()) {
      if (first)
        in.raise("UnboundLocalError", "cannot access local variable '" + name + "' where it is not associated with a value", where);
      in.raise("NameError", "cannot access free variable '" + name + "' where it is not associated with a value in enclosing scope", where);
    }
  }
  ModuleObj* m = env->globals;
  // Top-level code sees what the statements above it left; code in functions sees the finished module.
  bool top = env == &m->env || (env->is_class && env->parent == &m->env);
  Value v = global(m, name, top && m->demand ? m->demand->running : -1);
  if (v.set()) {
    in.state_read(m, name, v);
    return v;
  }
  if (const Value* b = builtins.find(name)) return *b;
  if (top && m->demand) {
    v = global(m, name);
    if (v.set()) return v;
  }
  in.raise("NameError", "name '" + name + "' is not defined", where);
}

Value In::Impl::lookup(const Expr* e, Env* env) { return lookup_name(e->text, env, e); }

Value In::Impl::eval(const Expr* e, Env* env) {
  switch (e->kind) {
    case ExprKind::Name: return lookup(e, env);
    case ExprKind::None: return Value::none();
    case ExprKind::True: return Value::boolean(true);
    case ExprKind::False: return Value::boolean(false);
    case ExprKind::Ellipsis: return Value::ellipsis();
    case ExprKind::Int:
      if (!e->text.empty()) return in.unknown("integer wider than 64 bits", e);
      return Value::integer(e->integer);
    case ExprKind::Float: return Value::real(e->number);
    case ExprKind::Imaginary: return Value::imaginary(e->number);
    case ExprKind::String: return in.str(e->text);
    case ExprKind::Bytes: return in.make<StrObj>(e->text, Kind::Bytes);
    case ExprKind::FString: return eval_fstring(e, env);
    case ExprKind::FormattedValue: return in.str(in.to_str(eval(e->kids[0], env)));
    case ExprKind::Attribute: {
      Value v = eval(e->kids[0], env);
      return in.getattr(v, e->text, e);
    }
    case ExprKind::Subscript: {
      Value v = eval(e->kids[0], env);
      Value k = eval(e->kids[1], env);
      return in.getitem(v, k, e, e->kids[0], e->kids[1]);
    }
    case ExprKind::Slice: return eval_slice(e, env);
    case ExprKind::Call: return eval_call(e, env);
    case ExprKind::Unary: {
      Value v = eval(e->kids[0], env);
      if (e->text == "not") {
        if (v.is_unknown()) return v;
        if (v.is(Kind::Tensor) && in.tensors) {
          Value t = in.tensors->truth(in, v);
          if (!t.is(Kind::Bool)) return t;
          return Value::boolean(!t.as_bool());
        }
        auto t = in.truth(v);
        if (!t) return in.unknown("truth of an unknown value", e);
        if (v.sym()) in.guard("!=", v, Value::integer(0), *t, e->range);
        return Value::boolean(!*t);
      }
      return in.unary(e->text, v, e, e->kids[0]);
    }
    case ExprKind::Binary: {
      Value a = eval(e->kids[0], env);
      Value b = eval(e->kids[1], env);
      return in.binary(e->text, a, b, e, e->kids[0], e->kids[1]);
    }
    case ExprKind::BoolOp: return eval_boolop(e, env);
    case ExprKind::Compare: return eval_compare(e, env);
    case ExprKind::Conditional: return eval_conditional(e, env);
    case ExprKind::Tuple:
    case ExprKind::List:
    case ExprKind::Set: {
      std::vector<Value> items;
      items.reserve(e->kids.size());
      for (const Expr* k : e->kids) {
        if (k->kind == ExprKind::Starred) {
          Value v = eval(k->kids[0], env);
          if (v.is_unknown()) return v;
          for (auto& x : in.to_vector(v, k)) items.push_back(x);
        } else {
          items.push_back(eval(k, env));
        }
      }
      if (e->kind == ExprKind::Tuple) return in.tuple(std::move(items));
      if (e->kind == ExprKind::List) return in.list(std::move(items));
      auto* s = in.make<DictObj>(Kind::Set);
      for (auto& x : items) s->set(in, x, Value::none());
      return s;
    }
    case ExprKind::Dict: {
      auto* d = in.make<DictObj>();
      for (std::size_t i = 0; i + 1 < e->kids.size(); i += 2) {
        Value v;
        if (!e->kids[i]) {
          v = eval(e->kids[i + 1], env);
          if (v.is_unknown()) return v;
          if (v.is(Kind::Dict)) {
            auto copy = v.as<DictObj>()->entries;
            for (auto& x : copy)
              if (x.alive) d->set(in, x.key, x.value);
          } else {
            for (auto& k : in.to_vector(in.call(in.getattr(v, "keys"), {}), e)) d->set(in, k, in.getitem(v, k));
          }
          continue;
        }
        Value k = eval(e->kids[i], env);
        v = eval(e->kids[i + 1], env);
        if (k.is_unknown()) {
          in.note_incomplete(e->kids[i]->range, "unknown key of a dict: " + k.as<UnknownObj>()->why);
          continue;
        }
        d->set(in, k, v);
      }
      return d;
    }
    case ExprKind::Lambda: return make_function(e->function, env);
    case ExprKind::ListComp:
    case ExprKind::SetComp:
    case ExprKind::DictComp:
    case ExprKind::GeneratorExp: return eval_comprehension(e, env);
    case ExprKind::Starred: in.raise("SyntaxError", "can't use starred expression here", e);
    case ExprKind::Walrus: {
      Value v = eval(e->kids[1], env);
      Env* s = env;
      while (s->parent && !s->locals && s->parent != &s->globals->env && s != &s->globals->env && !s->is_class)
        s = s->parent;  // comprehension scopes pass it outwards
      store(e->kids[0]->text, v, s);
      return v;
    }
    case ExprKind::Await: return eval(e->kids[0], env);
    case ExprKind::Yield: return yield_value(e->kids.empty() || !e->kids[0] ? Value::none() : eval(e->kids[0], env));
    case ExprKind::YieldFrom: {
      Value it = in.iter(eval(e->kids[0], env), e);
      if (it.is_unknown()) return it;
      while (true) {
        Value v = in.next(it);
        if (!v.set()) break;
        tick_step(e);
        yield_value(v);
      }
      if (auto* g = it.is(Kind::Iterator) ? dynamic_cast<GeneratorObj*>(it.obj()) : nullptr)
        return g->result.set() ? g->result : Value::none();
      return Value::none();
    }
    case ExprKind::Opaque: return in.unknown("syntax that is not understood (" + e->text + ")", e);
  }
  return in.unknown("expression that is not understood", e);
}

Value In::Impl::eval_slice(const Expr* e, Env* env) {
  auto part = [&](std::size_t i) { return i < e->kids.size() && e->kids[i] ? eval(e->kids[i], env) : Value::none(); };
  Value a = part(0), b = part(1), c = part(2);
  auto* s = in.make<SliceObj>(a, b, c);
  s->expr = e;
  return s;
}

Value In::Impl::eval_boolop(const Expr* e, Env* env) {
  bool is_and = e->text == "and";
  Value v, unknown;
  for (std::size_t i = 0; i < e->kids.size(); ++i) {
    v = eval(e->kids[i], env);
    if (i + 1 == e->kids.size()) break;
    auto t = in.truth(v);
    if (!t) {  // the result may be this one or a later one
      unknown = v.is_unknown() ? v : in.unknown("truth of an unknown value", e->kids[i]);
      continue;
    }
    if (v.sym()) in.guard("!=", v, Value::integer(0), *t, e->kids[i]->range);
    if (*t != is_and) {
      // False decides an `and` whatever the unknown ones are; only its own value is then uncertain.
      if (unknown.set()) return Value::boolean(!is_and);
      return v;
    }
  }
  if (unknown.set()) {
    auto t = in.truth(v);
    if (t && *t != is_and) return Value::boolean(*t);
    return unknown;
  }
  return v;
}

Value In::Impl::eval_compare(const Expr* e, Env* env) {
  Value a = eval(e->kids[0], env), r = Value::boolean(true);
  for (std::size_t i = 0; i < e->ops.size(); ++i) {
    Value b = eval(e->kids[i + 1], env);
    r = in.compare(e->ops[i], a, b, e, e->kids[i], e->kids[i + 1]);
    if (i + 1 < e->ops.size()) {
      auto t = in.truth(r);
      if (!t) return r;
      if (!*t) return r;
    }
    a = b;
  }
  return r;
}

Value In::Impl::eval_conditional(const Expr* e, Env* env) {
  Value c = eval(e->kids[1], env);
  auto t = in.truth(c);
  if (t) {
    if (c.sym()) in.guard("!=", c, Value::integer(0), *t, e->kids[1]->range);
    return eval(e->kids[*t ? 0 : 2], env);
  }
  std::string why = c.is_unknown() ? c.as<UnknownObj>()->why : "truth of an unknown value";
  std::optional<Value> a, b;
  std::optional<PyError> err;
  try {
    a = eval(e->kids[0], env);
  } catch (PyError& x) { err = x; }
  try {
    b = eval(e->kids[2], env);
  } catch (PyError& x) { err = x; }
  if (!a && !b) throw PyError(*err);
  if (!a) return *b;
  if (!b) return *a;
  if (in.identical(*a, *b) || (a->is_number() && b->is_number() && a->kind() == b->kind() && in.equal(*a, *b))) return *a;
  in.note_incomplete(e->range, "depends on an unknown condition: " + why);
  return in.unknown("depends on an unknown condition: " + why, e);
}

Value In::Impl::eval_fstring(const Expr* e, Env* env) {
  std::string out;
  for (const Expr* k : e->kids) {
    if (k->kind != ExprKind::FormattedValue) {
      out += k->text;
      continue;
    }
    Value v = eval(k->kids[0], env);
    if (v.is_unknown()) return v;
    if (v.is_number() && v.sym()) in.guard("text", v, Value::none(), true, k->range);
    std::string spec = k->text, conv;
    // "=": self-documenting
    if (!spec.empty() && spec[0] == '=') {
      out += std::string(in.sources.text(k->kids[0]->range)) + "=";
      spec.erase(0, 1);
      if (spec.empty()) spec = "!r";
    }
    if (spec.size() >= 2 && spec[0] == '!') {
      conv = spec.substr(1, 1);
      spec.erase(0, 2);
    }
    if (!spec.empty() && spec[0] == ':') spec.erase(0, 1);
    // nested fields of the spec, "{width}": the front end hands them over as further kids
    std::size_t next = 1;
    for (std::size_t b = spec.find('{'); b != std::string::npos; b = spec.find('{', b)) {
      std::size_t c = spec.find('}', b);
      if (c == std::string::npos) break;
      std::string inner = spec.substr(b + 1, c - b - 1), text;
      if (next < k->kids.size()) text = in.to_str(eval(k->kids[next++], env));
      else {
        const program::Module* m = in.loader.parse("<format>", "<format>", inner);
        if (m && !m->body.empty() && m->body[0]->value) text = in.to_str(eval(m->body[0]->value, env));
      }
      spec.replace(b, c - b + 1, text);
      b += text.size();
    }
    if (conv == "r" || conv == "a") v = in.str(in.to_repr(v));
    else if (conv == "s") v = in.str(in.to_str(v));
    out += in.format(v, spec);
  }
  return in.str(out);
}

// ---- comprehensions ---------------------------------------------------------------------------------------------------

void In::Impl::comprehend(const Expr* e, std::size_t clause, Env* scope, const std::function<void(Env*)>& body) {
  if (clause == e->clauses.size()) {
    body(scope);
    return;
  }
  const program::Clause& c = e->clauses[clause];
  Value it = eval(c.iterable, clause == 0 ? scope->parent : scope);
  if (it.is_unknown()) {
    in.note_incomplete(c.iterable->range, "loop over an unknown value: " + it.as<UnknownObj>()->why);
    throw Value(it);
  }
  ActiveFrame* f = frame();
  std::size_t depth = f ? f->iters.size() : 0;
  if (f) f->iters.push_back({e, 0, static_cast<int>(clause)});
  struct Pop {
    ActiveFrame* f;
    std::size_t n;
    ~Pop() {
      if (f) f->iters.resize(n);
    }
  } pop{f, depth};
  int i = 0;
  for_each(in, it, c.iterable, [&](const Value& v) {
    tick_step(e);
    if (f) f->iters[depth].index = i;
    ++i;
    Restore<Value> keep(ret);
    assign(c.target, v, scope);
    for (const Expr* cond : c.conditions) {
      Value t = eval(cond, scope);
      auto known = in.truth(t);
      if (!known) {
        in.note_incomplete(cond->range, "unknown condition");
        throw Value(t.is_unknown() ? t : in.unknown("unknown condition", cond));
      }
      if (t.sym()) in.guard("!=", t, Value::integer(0), *known, cond->range);
      if (!*known) return true;
    }
    comprehend(e, clause + 1, scope, body);
    return true;
  });
}

namespace {

/// A generator expression: the clauses as a stack of iterators, advanced on demand in the frame that created it.
struct GenExp : IteratorObj {
  const Expr* e;
  Env* scope;
  ActiveFrame frame;
  bool has_frame = false;
  Value first;  // the outermost iterable is evaluated at once
  std::vector<Value> its;
  bool done = false;

  Value step(In& in) {
    auto* impl = in.impl();
    if (its.empty()) {
      its.push_back(in.iter(first, e));
      frame.iters.push_back({e, -1, 0});
    }
    while (true) {
      std::size_t level = its.size() - 1;
      impl->tick_step(e);
      Value v = in.next(its[level]);
      if (!v.set()) {
        its.pop_back();
        frame.iters.pop_back();
        if (its.empty()) {
          done = true;
          return {};
        }
        continue;
      }
      frame.iters.back().index++;
      const program::Clause& c = e->clauses[level];
      impl->assign(c.target, v, scope);
      bool pass = true;
      for (const Expr* cond : c.conditions) {
        Value t = impl->eval(cond, scope);
        if (!in.truthy(t, cond)) {
          pass = false;
          break;
        }
      }
      if (!pass) continue;
      if (level + 1 == e->clauses.size()) return impl->eval(e->kids[0], scope);
      Value inner = impl->eval(e->clauses[level + 1].iterable, scope);
      if (inner.is_unknown()) {
        in.note_incomplete(e->range, "loop over an unknown value");
        continue;
      }
      its.push_back(in.iter(inner, e));
      frame.iters.push_back({e, -1, static_cast<int>(level + 1)});
    }
  }
  Value next(In& in) override {
    if (done) return {};
    if (!has_frame) return step(in);
    FrameScope scope_guard(StackAccess::of(in), &frame);
    return step(in);
  }
};

}  // namespace

Value In::Impl::eval_comprehension(const Expr* e, Env* env) {
  Env* scope = new_env(env, env->globals);
  scope->is_class = false;
  if (e->kind == ExprKind::GeneratorExp) {
    Value first = eval(e->clauses[0].iterable, env);
    if (first.is_unknown()) return first;
    auto* g = in.make<GenExp>();
    g->e = e;
    g->scope = scope;
    g->first = first;
    if (ActiveFrame* f = frame()) {
      g->frame = *f;
      g->has_frame = true;
    }
    return g;
  }
  try {
    if (e->kind == ExprKind::DictComp) {
      auto* d = in.make<DictObj>();
      comprehend(e, 0, scope, [&](Env* s) {
        Value k = eval(e->kids[0], s);
        d->set(in, k, eval(e->kids[1], s));
      });
      return d;
    }
    if (e->kind == ExprKind::SetComp) {
      auto* d = in.make<DictObj>(Kind::Set);
      comprehend(e, 0, scope, [&](Env* s) { d->set(in, eval(e->kids[0], s), Value::none()); });
      return d;
    }
    std::vector<Value> items;
    comprehend(e, 0, scope, [&](Env* s) { items.push_back(eval(e->kids[0], s)); });
    return in.list(std::move(items));
  } catch (const Value& unknown) { return unknown; }
}

// ---- calls and functions ----------------------------------------------------------------------------------------------

void In::Impl::collect_args(const Expr* call, Env* env, CallInfo& info) {
  for (const auto& a : call->args) {
    if (a.star) {
      Value v = eval(a.value, env);
      if (v.is_unknown()) {
        in.note_incomplete(a.range, "unknown *arguments: " + v.as<UnknownObj>()->why);
        info.partial = true;
        continue;
      }
      for (auto& x : in.to_vector(v, a.value)) info.add(x, nullptr);
    } else if (a.double_star) {
      Value v = eval(a.value, env);
      if (v.is_unknown()) {
        in.note_incomplete(a.range, "unknown **arguments: " + v.as<UnknownObj>()->why);
        info.partial = true;
        continue;
      }
      auto put = [&](const Value& k, const Value& x) {
        if (!k.is(Kind::Str)) in.raise("TypeError", "keywords must be strings", call);
        if (info.keyword(k.str())) in.raise("TypeError", "got multiple values for keyword argument '" + k.str() + "'", call);
        info.kwargs.push_back({k.str(), x, nullptr});
      };
      if (v.is(Kind::Dict)) {
        auto copy = v.as<DictObj>()->entries;
        for (auto& x : copy)
          if (x.alive) put(x.key, x.value);
      } else if (in.getattr_or(v, "keys").set()) {
        for (auto& k : in.to_vector(in.call(in.getattr(v, "keys"), {}), a.value)) put(k, in.getitem(v, k));
      } else {
        in.raise("TypeError", "argument after ** must be a mapping, not " + in.type_of(v)->name, call);
      }
    } else if (!a.keyword.empty()) {
      if (info.keyword(a.keyword)) in.raise("TypeError", "got multiple values for keyword argument '" + a.keyword + "'", call);
      info.kwargs.push_back({a.keyword, eval(a.value, env), a.value});
    } else {
      info.add(eval(a.value, env), a.value);
    }
  }
}

Value In::Impl::eval_call(const Expr* e, Env* env) {
  const Expr* callee = e->kids[0];
  CallInfo info;
  info.call = e;
  // super() without arguments means the class whose body holds this function, and the function's first argument.
  if (callee->kind == ExprKind::Name && callee->text == "super" && e->args.empty()) {
    for (Env* s = env; s; s = s->parent) {
      if (!s->parent || !s->parent->is_class || !s->locals) continue;
      auto it = class_of_scope.find(s->parent);
      if (it == class_of_scope.end()) break;
      if (s->vars.empty()) break;
      return in.make<SuperObj>(it->second, s->vars.begin()->value);
    }
    in.raise("RuntimeError", "super(): no arguments", e);
  }
  Value f = eval(callee, env);
  if (f.is(Kind::BoundMethod)) {
    // open it here, so that the receiver keeps its expression
    auto* m = f.as<BoundMethodObj>();
    info.add(m->self, callee->kind == ExprKind::Attribute ? callee->kids[0] : nullptr);
    f = m->function;
  }
  collect_args(e, env, info);
  return in.call(f, info);
}

Value In::Impl::make_function(const program::Function* f, Env* env) {
  auto* o = in.make<FunctionObj>();
  o->def = f;
  o->closure = env;
  o->module = env->globals;
  o->qualname = f->owner ? f->owner->name + "." + f->name : f->name;
  for (const auto& p : f->parameters) o->defaults.push_back(p.default_value ? eval(p.default_value, env) : Value::unset());
  return o;
}

Value In::Impl::decorate(const std::vector<Expr*>& decorators, Value v, Env* env) {
  for (auto it = decorators.rbegin(); it != decorators.rend(); ++it) {
    const Expr* d = *it;
    // Decorators that rewrite documentation (they read source text and doc strings at length) change nothing that runs.
    const Expr* callee = d->kind == ExprKind::Call ? d->kids[0] : d;
    if (callee->text.find("docstring") != std::string::npos) continue;
    Value f;
    try {
      f = eval(d, env);
    } catch (PyError& e) { f = in.unknown("decorator failed: " + in.describe(e), d); }
    if (f.is_unknown()) {
      in.note_incomplete(d->range, "decorator is not followed: " + f.as<UnknownObj>()->why);
      continue;
    }
    CallInfo info;
    info.call = d;
    info.add(v, nullptr);
    Value r;
    auto attributes = [](const Value& of) {
      if (of.is(Kind::Class)) return of.as<ClassObj>()->dict.size();
      return of.is_object() && of.obj()->attrs ? of.obj()->attrs->size() : 0;
    };
    const std::size_t before = attributes(v);
    // A decorator that fails here (it reads source text, the file system, …) is left out and named, not taken for the program's error.
    try {
      r = in.call(f, info);
    } catch (PyError& e) { r = in.unknown("it failed: " + in.describe(e), d); }
    if (r.is_unknown()) {
      in.note_incomplete(d->range, "decorator is not followed: " + r.as<UnknownObj>()->why);
      continue;
    }
    // torch.no_grad() and its like may run once for each part of what they decorate.
    auto ours = [](const Value& x) { return x.is(Kind::Function) && x.as<FunctionObj>()->module->builtin; };
    const bool own = f.is(Kind::Function) ? !ours(f)
        : f.is(Kind::BoundMethod)         ? !ours(f.as<BoundMethodObj>()->function)
                                          : f.is(Kind::Instance) && !f.obj()->cls->builtin;
    if (own && in.identical(r, v) && attributes(v) == before) in.trace.entering.insert(d);
    else if (own && !in.identical(r, v)) in.trace.wrapping.insert(d);
    v = r;
  }
  return v;
}

}  // namespace shardwright::eval
