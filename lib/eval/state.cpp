// What forward changes on objects that were there before it: it outlives the call, so no stage behind a cut knows of it.
#include <algorithm>
#include <functional>

#include "eval/impl.h"
#include "program/visit.h"

namespace shardwright::eval {

static bool holds(const Value& v) {
  return v.is(Kind::List) || v.is(Kind::Dict) || (v.is(Kind::Instance) && v.as<InstanceObj>()->module_id < 0);
}

/// What a list, dict or object holds, to tell whether it was changed; `depth`: of what it holds, how far down.
static std::size_t contents_of(const Value& v, int depth = 1) {
  std::size_t h = 0;
  auto mix = [&](const Value& x) {
    h = h * 1000003 + (x.is_object() ? std::hash<const void*>()(x.obj()) : std::hash<double>()(x.is_number() ? x.as_double() : 0)) +
        static_cast<std::size_t>(x.kind()) + 1;
    if (depth > 1 && (holds(x) || x.is(Kind::Tuple))) h = h * 1000003 + contents_of(x, depth - 1);
  };
  if (v.is(Kind::List) || v.is(Kind::Tuple)) {
    for (const Value& x : v.as<SeqObj>()->items) mix(x);
  } else if (v.is(Kind::Dict)) {
    for (const auto& e : v.as<DictObj>()->entries)
      if (e.alive) mix(e.key), mix(e.value);
  } else if (const auto& attrs = v.as<InstanceObj>()->attrs) {
    for (const auto& a : *attrs) mix(a.value);
  }
  return h;
}

/// Variables of a statement whose contents it may change: what it stores into, calls a method of, or hands to a call.
static std::vector<std::string> changed_by(const Stmt* s) {
  std::vector<std::string> names;
  auto add = [&](const Expr* e) {
    while (e->kind == ExprKind::Subscript || e->kind == ExprKind::Attribute) e = e->kids[0];
    if (e->kind == ExprKind::Name && e->text != "self" && std::find(names.begin(), names.end(), e->text) == names.end())
      names.push_back(e->text);
  };
  std::function<void(const Expr*)> targets = [&](const Expr* t) {
    if (t->kind == ExprKind::Tuple || t->kind == ExprKind::List || t->kind == ExprKind::Starred)
      for (const Expr* k : t->kids) targets(k);
    else if (t->kind != ExprKind::Name) add(t);
  };
  for (const Expr* t : s->targets) targets(t);
  program::for_each_expr(s, [&](const Expr* e) {
    program::walk(e, [&](const Expr* x) {
      if (x->kind == ExprKind::Call) {
        if (x->kids[0]->kind == ExprKind::Attribute) add(x->kids[0]->kids[0]);
        for (const auto& a : x->args) add(a.value);
      }
      return true;
    });
  });
  return names;
}

/// Every name that a running function of the user's has for an object: call(frame, name).
template <class F>
static void names_for(const std::vector<ActiveFrame*>& stack, const Obj* object, F call) {
  for (const ActiveFrame* f : stack) {
    if (f->builtin || f->id < 0 || !f->env || !f->function) continue;
    for (const auto& v : f->env->vars)
      if (v.value.is_object() && v.value.obj() == object) call(*f, v.name);
  }
}

/// After a statement: what its variables' containers hold now, under every name that the running functions have for them.
void In::Impl::contents_written(const Stmt* s, Env* env) {
  if (in.tensors_only || in.init_phase || !s->body.empty()) return;
  auto [at, fresh] = may_change.try_emplace(s);
  if (fresh) at->second = changed_by(s);
  for (const auto& name : at->second) {
    const Value* v = env->vars.find(name);
    if (!v || !holds(*v)) continue;
    const std::size_t now = contents_of(*v, 3);
    auto [seen, first] = contents.try_emplace(v->obj(), now);
    if (!first && seen->second == now) continue;
    seen->second = now;
    const model::Binding held = in.bind_summary(*v);
    names_for(in.stack(), v->obj(), [&](const ActiveFrame& f, const std::string& known_as) {
      in.trace.content_writes.push_back({f.id, known_as, held, in.tick()});
    });
  }
}

void In::state_written(Obj* owner, std::string_view name) {
  if (init_phase && !at_top_level && frame() && frame()->function && !frame()->builtin &&
      (owner->kind == Kind::Class || owner->kind == Kind::Module) && name.substr(0, 2) != "__")
    trace.constructors.push_back({std::string(name), here(), tick(), 0});
  if (!init_phase && !at_top_level) impl_->change(owner, name);  // a module that is imported late is the same whenever it is
}

void In::Impl::change(Obj* owner, std::string_view name) {
  if (owner->late || (frame() && frame()->builtin)) return;
  Changed& c = changed[{owner, std::string(name)}];
  c.at = in.tick();
  c.where = in.here();
  c.state = static_cast<std::size_t>(-1);
  next_call(owner, std::string(name), c);
}

/// The next call of forward begins with what this one leaves: a stage that read it before a cut would not see a change behind it.
void In::Impl::next_call(const Obj* owner, const std::string& name, Changed& c) {
  const auto read = first_read.find({owner, name});
  if (read == first_read.end() || read->second >= c.at) return;
  if (c.next == static_cast<std::size_t>(-1)) {
    c.next = in.trace.states.size();
    in.trace.states.push_back({name.empty() ? "a tensor of the model" : name, c.where, c.at, read->second});
  }
  in.trace.states[c.next].changed = c.at;
  in.trace.states[c.next].where = c.where;
}

void In::forward_over() {
  for (auto& [key, c] : impl_->changed) {
    if (!c.held.set() || contents_of(c.held) == c.contents) continue;
    c.at = c.seen;  // whoever changed it reached it through its last read
    c.where = c.seen_where;
    impl_->next_call(key.first, key.second, c);
  }
}

void In::rebound(const Value& tensor) {
  names_for(stack(), tensor.obj(), [&](const ActiveFrame& f, const std::string& name) {
    trace.var_writes.push_back({f.id, f.step, name, bind_summary(tensor), tick()});
  });
  impl_->change(tensor.obj(), "");
}

void In::class_read(ClassObj* c, std::string_view name) {
  if (init_phase) return;  // most attributes are methods, and most are read while the model is built
  for (ClassObj* k : c->mro)
    if (const Value* x = k->dict.find(name)) return state_read(k, name, *x);
}

void In::asked(const Value& module) {
  const model::ModuleId id = module.as<InstanceObj>()->module_id;
  if (init_phase || id < 0 || !frame() || frame()->builtin || frame()->self == id) return;
  if (trace.asked.empty() || trace.asked.back() != std::pair(clock(), id)) trace.asked.emplace_back(clock(), id);
}

void In::state_read(Obj* owner, std::string_view name, const Value& value) {
  if (tensors_only || init_phase || owner->late) return;
  if (!value.is(Kind::Function) && !value.is(Kind::Native) && !value.is(Kind::Class))
    impl_->first_read.emplace(std::pair<const Obj*, std::string>(owner, name), clock());
  const bool container = (value.is(Kind::List) || value.is(Kind::Dict) || value.is(Kind::Set)) && !value.obj()->late;
  if (impl_->changed.empty() && !container) return;
  auto at = impl_->changed.find({owner, std::string(name)});
  if (at == impl_->changed.end()) {
    if (!container || (frame() && frame()->builtin)) return;
    at = impl_->changed.emplace(std::pair<const Obj*, std::string>(owner, name), Impl::Changed{}).first;
    at->second.contents = contents_of(value);
    at->second.held = value;
  }
  Impl::Changed& c = at->second;
  const model::Clock now = tick();
  if (container) {
    // Whoever changed it reached it through the read before this one.
    const std::size_t contents = contents_of(value);
    if (contents != c.contents) {
      c = {c.seen, c.seen_where, contents, 0, {}, static_cast<std::size_t>(-1), c.next, value};
      impl_->next_call(owner, std::string(name), c);
    }
    c.seen = now;
    c.seen_where = here();
  }
  if (c.at == 0) return;
  if (c.state == static_cast<std::size_t>(-1)) {
    c.state = trace.states.size();
    trace.states.push_back({name.empty() ? "a tensor of the model" : std::string(name), c.where, c.at, now});
  }
  trace.states[c.state].read = now;
}

}  // namespace shardwright::eval
