// Statements.
#include <algorithm>

#include "eval/impl.h"
#include "program/visit.h"

namespace shardwright::eval {

std::vector<ActiveFrame*>& StackAccess::of(Interpreter& in) { return const_cast<std::vector<ActiveFrame*>&>(in.stack()); }

void In::Impl::tick_step(const Expr* where) {
  if (++steps > in.max_steps)
    throw Abort{"step budget exhausted (--max-steps " + std::to_string(in.max_steps) + ")", where ? where->range : in.here()};
}

void In::Impl::check_stack(const Expr* where) {
  char here = 0;
  if (making_error || !((stack_limit && &here < stack_limit) || in.stack().size() > 950)) return;
  Restore<bool> once(making_error, true);  // building the exception calls its class: that must not fail again
  in.raise("RecursionError", "maximum recursion depth exceeded", where);
}

void In::Impl::var_write(const std::string& name, const Value& v) {
  ActiveFrame* f = frame();
  if (in.tensors_only && !v.is(Kind::Tensor)) return;
  in.trace.var_writes.push_back({f->id, f->step, name, in.bind_summary(v), in.tick()});
}

void In::Impl::store(const std::string& name, const Value& v, Env* env) {
  auto listed = [&](const std::vector<std::string>& l) { return !l.empty() && std::find(l.begin(), l.end(), name) != l.end(); };
  if (listed(env->global_names)) {
    env->globals->env.vars.set(name, v);
    in.state_written(env->globals, name);
    return;
  }
  if (listed(env->nonlocals)) {
    for (Env* s = env->parent; s; s = s->parent) {
      if (s->is_class || s == &s->globals->env) continue;
      if (s->vars.find(name) || (s->locals && std::find(s->locals->begin(), s->locals->end(), name) != s->locals->end())) {
        s->vars.set(name, v);
        return;
      }
    }
  }
  env->vars.set(name, v);
  if (env == &env->globals->env || env->is_class) {
    if (v.is(Kind::Dict)) v.as<DictObj>()->global = true;
    if (v.is(Kind::Instance) && v.obj()->attrs)  // a registry that is an object
      for (const auto& a : *v.obj()->attrs)
        if (a.value.is(Kind::Dict)) a.value.as<DictObj>()->global = true;
  }
  if (env != &env->globals->env && !env->is_class && recording() && frame()->function) var_write(name, v);
}

void In::Impl::assign(const Expr* t, const Value& v, Env* env) {
  switch (t->kind) {
    case ExprKind::Name: store(t->text, v, env); return;
    case ExprKind::Attribute: {
      Value o = eval(t->kids[0], env);
      in.setattr(o, t->text, v, t);
      return;
    }
    case ExprKind::Subscript: {
      Value o = eval(t->kids[0], env);
      Value k = eval(t->kids[1], env);
      in.setitem(o, k, v, t);
      return;
    }
    case ExprKind::Starred: assign(t->kids[0], v, env); return;
    case ExprKind::Tuple:
    case ExprKind::List: {
      if (v.is_unknown()) {
        for (const Expr* k : t->kids) assign(k, v, env);
        return;
      }
      std::vector<Value> items = in.to_vector(v, t);
      std::size_t star = t->kids.size();
      for (std::size_t i = 0; i < t->kids.size(); ++i)
        if (t->kids[i]->kind == ExprKind::Starred) star = i;
      std::size_t n = t->kids.size();
      if (star == n) {
        if (items.size() < n)
          in.raise("ValueError",
                   "not enough values to unpack (expected " + std::to_string(n) + ", got " + std::to_string(items.size()) + ")", t);
        if (items.size() > n) in.raise("ValueError", "too many values to unpack (expected " + std::to_string(n) + ")", t);
        for (std::size_t i = 0; i < n; ++i) assign(t->kids[i], items[i], env);
        return;
      }
      if (items.size() + 1 < n)
        in.raise("ValueError",
                 "not enough values to unpack (expected at least " + std::to_string(n - 1) + ", got " + std::to_string(items.size()) + ")",
                 t);
      std::size_t tail = n - star - 1;
      for (std::size_t i = 0; i < star; ++i) assign(t->kids[i], items[i], env);
      auto b = items.begin() + static_cast<std::ptrdiff_t>(star), e = items.end() - static_cast<std::ptrdiff_t>(tail);
      assign(t->kids[star]->kids[0], in.list(std::vector<Value>(b, e)), env);
      for (std::size_t i = 0; i < tail; ++i) assign(t->kids[star + 1 + i], items[items.size() - tail + i], env);
      return;
    }
    default: in.raise("SyntaxError", "cannot assign to this expression", t);
  }
}

Flow In::Impl::exec_block(const std::vector<Stmt*>& body, Env* env) {
  for (const Stmt* s : body) {
    Flow f = exec(s, env);
    if (f != Flow::Next) return f;
  }
  return Flow::Next;
}

/// Runs one statement and records it as a Step when the frame is the user's.
Flow In::Impl::exec(const Stmt* s, Env* env) {
  tick_step(nullptr);
  ActiveFrame* f = frame();
  if (!f) return exec_plain(s, env);
  const Stmt* before = f->stmt;
  f->stmt = s;
  if (!recording()) {
    struct Back {
      ActiveFrame* f;
      const Stmt* s;
      ~Back() { f->stmt = s; }
    } back{f, before};
    return exec_plain(s, env);
  }
  model::StepId id = static_cast<model::StepId>(in.trace.steps.size());
  model::StepId outer = f->step;
  in.trace.steps.push_back({id, f->id, s, f->iters, in.tick(), 0, -1});
  f->step = id;
  struct End {
    In& in;
    ActiveFrame* f;
    const Stmt *before, *stmt;
    model::StepId id, outer;
    ~End() {
      auto& steps = in.trace.steps;
      // An abandoned generator unwinds when the interpreter goes: its trace may be another one by then (start_over).
      if (const auto at = static_cast<std::size_t>(id); at < steps.size() && steps[at].stmt == stmt) {
        steps[at].end = in.tick();
        steps[at].end_step = static_cast<model::StepId>(steps.size());
      }
      f->step = outer;
      f->stmt = before;
    }
  } end{in, f, before, s, id, outer};
  const Flow flow = exec_plain(s, env);
  contents_written(s, env);
  return flow;
}

Flow In::Impl::exec_plain(const Stmt* s, Env* env) {
  switch (s->kind) {
    case StmtKind::Expression: eval(s->value, env); return Flow::Next;
    case StmtKind::Assign: {
      Value v = eval(s->value, env);
      for (const Expr* t : s->targets) {
        Restore<const Expr*> r(in.assigning_, t->kind == ExprKind::Attribute ? s->value : nullptr);
        assign(t, v, env);
      }
      return Flow::Next;
    }
    case StmtKind::AugAssign: {
      const Expr* t = s->targets[0];
      Value o, k, old;
      if (t->kind == ExprKind::Attribute) {
        o = eval(t->kids[0], env);
        old = in.getattr(o, t->text, t);
      } else if (t->kind == ExprKind::Subscript) {
        o = eval(t->kids[0], env);
        k = eval(t->kids[1], env);
        old = in.getitem(o, k, t, t->kids[0], t->kids[1]);
      } else old = eval(t, env);
      Value rhs = eval(s->value, env);
      std::string op = !s->op.empty() && s->op.back() == '=' ? s->op.substr(0, s->op.size() - 1) : s->op;
      // The statement has no expression of its own: the right-hand side stands for the site.
      Value v = in.binary(op, old, rhs, s->value, t, s->value, true);
      if (t->kind == ExprKind::Attribute) {
        Restore<const Expr*> r(in.assigning_, s->value);
        in.setattr(o, t->text, v, t);
      } else if (t->kind == ExprKind::Subscript) in.setitem(o, k, v, t);
      else assign(t, v, env);
      return Flow::Next;
    }
    case StmtKind::AnnAssign: {
      if (env->is_class && s->targets[0]->kind == ExprKind::Name) {
        Value ann = env->vars.get("__annotations__");
        if (!ann.set()) {
          ann = in.dict();
          env->vars.set("__annotations__", ann);
        }
        ann.as<DictObj>()->set(in, in.str(s->targets[0]->text),
                               in.str(s->annotation ? std::string(in.sources.text(s->annotation->range)) : ""));
      }
      if (s->value) {
        Value v = eval(s->value, env);
        Restore<const Expr*> r(in.assigning_, s->targets[0]->kind == ExprKind::Attribute ? s->value : nullptr);
        assign(s->targets[0], v, env);
      }
      return Flow::Next;
    }
    case StmtKind::Return: ret = s->value ? eval(s->value, env) : Value::none(); return Flow::Return;
    case StmtKind::If: return exec_if(s, env);
    case StmtKind::For: return exec_for(s, env);
    case StmtKind::While: return exec_while(s, env);
    case StmtKind::With: return exec_with(s, 0, env);
    case StmtKind::Try: return exec_try(s, env);
    case StmtKind::Raise: exec_raise(s, env); return Flow::Next;
    case StmtKind::Assert: {
      Value c = eval(s->value, env);
      auto t = in.truth(c);
      if (t && c.sym()) in.guard("!=", c, Value::integer(0), *t, s->value->range);
      if (t && !*t) in.raise("AssertionError", s->extra ? in.to_str(eval(s->extra, env)) : "", s->value);
      return Flow::Next;
    }
    case StmtKind::Delete:
      for (const Expr* t : s->targets) exec_delete(t, env);
      return Flow::Next;
    case StmtKind::Global: env->global_names.insert(env->global_names.end(), s->names.begin(), s->names.end()); return Flow::Next;
    case StmtKind::Nonlocal: env->nonlocals.insert(env->nonlocals.end(), s->names.begin(), s->names.end()); return Flow::Next;
    case StmtKind::Pass: return Flow::Next;
    case StmtKind::Break: return Flow::Break;
    case StmtKind::Continue: return Flow::Continue;
    case StmtKind::FunctionDef: {
      Value v = make_function(s->function, env);
      if (!s->function->decorators.empty()) v = decorate(s->function->decorators, v, env);
      store(s->function->name, v, env);
      return Flow::Next;
    }
    case StmtKind::ClassDef: {
      Value v = define_class(s, env);
      store(s->class_def->name, v, env);
      return Flow::Next;
    }
    case StmtKind::Import:
    case StmtKind::ImportFrom: exec_import(s, env); return Flow::Next;
    case StmtKind::Match: return exec_match(s, env);
    case StmtKind::TypeAlias: return Flow::Next;
    case StmtKind::Opaque: in.note_incomplete(s->range, "statement that is not understood (" + s->text + ")"); return Flow::Next;
  }
  return Flow::Next;
}

// ---- conditions -------------------------------------------------------------------------------------------------------

Flow In::Impl::exec_if(const Stmt* s, Env* env) {
  Value c = eval(s->value, env);
  if (c.is(Kind::Tensor) && in.tensors) c = in.tensors->truth(in, c);
  auto t = in.truth(c);
  if (!t) return branch_unknown(s, c, env);
  if (c.sym()) in.guard("!=", c, Value::integer(0), *t, s->value->range);
  return exec_block(*t ? s->body : s->orelse, env);
}

/// Data decides whether code that follows runs at all.
void In::Impl::may_leave(Flow flow, support::Range where, model::Clock since) {
  const auto kind = flow == Flow::Break ? model::Exit::Break : flow == Flow::Continue ? model::Exit::Continue : model::Exit::Return;
  in.trace.exits.push_back({kind, where, since, 0});
}

/// Sets when the code ends that exits of this kind, made since, may leave out.
struct In::Impl::Exits {
  In& in;
  model::Exit::Kind kind;
  std::size_t from = in.trace.exits.size();
  ~Exits() {
    for (std::size_t i = from; i < in.trace.exits.size(); ++i) {
      auto& e = in.trace.exits[i];
      if (e.until == 0 && e.kind == kind) e.until = in.tick();
    }
  }
};

/// Both branches run, one after the other from the same variables; what differs afterwards is unknown. Objects that the
/// branches change stay changed, so the place is noted as incomplete. A branch that raises is taken as the one not taken.
Flow In::Impl::branch_unknown(const Stmt* s, const Value& cond, Env* env) {
  std::string why = "depends on a condition that is not known: " +
      (cond.is_unknown() ? cond.as<UnknownObj>()->why : std::string("truth of ") + in.type_of(cond)->name);
  in.note_incomplete(s->value->range, why);
  // A function that calls itself under such conditions would run for every combination of their answers.
  constexpr std::ptrdiff_t kDeepest = 8;
  if (const auto* f = frame(); f && f->function &&
      std::count_if(in.stack_.begin(), in.stack_.end(), [&](const ActiveFrame* g) { return g->function == f->function; }) > kDeepest) {
    ret = in.unknown(why, s->value->range);
    return Flow::Return;
  }
  const model::Clock since = in.clock();
  NameMap start = env->vars;
  Value ret1, ret2;
  Flow f1 = Flow::Next, f2 = Flow::Next;
  bool raised1 = false, raised2 = false;
  std::optional<PyError> err;
  try {
    f1 = exec_block(s->body, env);
    ret1 = ret;
  } catch (PyError& e) {
    raised1 = true;
    err = e;
  }
  NameMap vars1 = env->vars;
  env->vars = start;
  try {
    f2 = exec_block(s->orelse, env);
    ret2 = ret;
  } catch (PyError& e) {
    raised2 = true;
    if (!err) err = e;
  }
  if (raised1 && raised2) throw PyError(*err);
  if (raised1) {
    ret = ret2;
    return f2;
  }
  if (raised2) {
    env->vars = vars1;
    ret = ret1;
    return f1;
  }
  auto join = [&](const Value& a, const Value& b) {
    if (a.set() && b.set() &&
        (in.identical(a, b) || (a.kind() == b.kind() && !a.is(Kind::Tensor) && !a.is(Kind::Instance) && in.equal(a, b))))
      return a;
    return in.unknown(why, s->value->range);
  };
  if (f1 == Flow::Return && f2 == Flow::Return) {
    ret = join(ret1, ret2);
    return Flow::Return;
  }
  // One side leaves (return, break, continue): what follows runs as if it had not.
  if (f1 != Flow::Next && f2 == Flow::Next) {
    may_leave(f1, s->range, since);
    return Flow::Next;
  }
  if (f2 != Flow::Next && f1 == Flow::Next) {
    may_leave(f2, s->range, since);
    env->vars = vars1;
    return Flow::Next;
  }
  for (const auto& i : vars1) {
    Value b = env->vars.get(i.name);
    env->vars.set(i.name, join(i.value, b));
  }
  std::vector<std::string> only2;
  for (const auto& i : env->vars)
    if (!vars1.find(i.name)) only2.push_back(i.name);
  for (const auto& n : only2) env->vars.set(n, in.unknown(why, s->value->range));
  ret = ret1;
  return f1;
}

namespace {

void bound_names(const Expr* t, std::vector<std::string>& out) {
  if (!t) return;
  if (t->kind == ExprKind::Name) out.push_back(t->text);
  else if (t->kind == ExprKind::Tuple || t->kind == ExprKind::List || t->kind == ExprKind::Starred)
    for (const Expr* k : t->kids) bound_names(k, out);
}

/// Names whose objects a statement changes: `out.append(x)`, `x.add_(y)`, `rows[i] = x`.
void changed_names(const Stmt* s, std::vector<std::string>& out) {
  static const std::set<std::string> methods{"append", "extend", "insert",     "add",     "update",    "pop",
                                             "remove", "clear",  "setdefault", "popleft", "appendleft"};
  const auto name = [&](const Expr* e) {
    if (e && e->kind == ExprKind::Name) out.push_back(e->text);
  };
  for (const Expr* t : s->targets)
    if (t->kind == ExprKind::Subscript) name(t->kids[0]);
  if (s->kind == StmtKind::Expression && s->value)
    program::walk(s->value, [&](const Expr* e) {
      if (e->kind != ExprKind::Call || e->kids[0]->kind != ExprKind::Attribute) return true;
      const std::string& method = e->kids[0]->text;
      if (methods.count(method) || method.ends_with("_")) name(e->kids[0]->kids[0]);
      return true;
    });
}

void bound_names(const std::vector<Stmt*>& body, std::vector<std::string>& out) {
  for (const Stmt* s : body) {
    changed_names(s, out);
    for (const Expr* t : s->targets)
      if (s->kind != StmtKind::Delete) bound_names(t, out);
    for (const auto& w : s->items) bound_names(w.target, out);
    bound_names(s->body, out);
    bound_names(s->orelse, out);
    bound_names(s->finally, out);
    for (const auto& h : s->handlers) bound_names(h.body, out);
  }
}

}  // namespace

void In::Impl::poison(const std::vector<Stmt*>& body, Env* env, const Value& why) {
  std::vector<std::string> names;
  bound_names(body, names);
  for (const auto& n : names) store(n, why, env);
}

// ---- loops ------------------------------------------------------------------------------------------------------------

Flow In::Impl::exec_for(const Stmt* s, Env* env) {
  Value it = eval(s->value, env);
  if (it.is_unknown()) {
    std::string why = "loop over an unknown value: " + it.as<UnknownObj>()->why;
    in.note_incomplete(s->value->range, why);
    Value u = in.unknown(why, s->value);
    assign(s->targets[0], u, env);
    poison(s->body, env, u);
    return Flow::Next;
  }
  const Exits loop{in, model::Exit::Break};
  ActiveFrame* f = frame();
  std::size_t depth = f ? f->iters.size() : 0;
  if (f) f->iters.push_back({s, 0, 0});
  struct Pop {
    ActiveFrame* f;
    std::size_t n;
    void now() {
      if (f) f->iters.resize(n);
      f = nullptr;
    }
    ~Pop() { now(); }
  } pop{f, depth};
  int i = 0;
  Flow result = Flow::Next;
  bool broke = false;
  for_each(in, it, s->value, [&](const Value& v) {
    tick_step(s->value);
    if (f) f->iters[depth].index = i;
    ++i;
    assign(s->targets[0], v, env);
    const Exits iteration{in, model::Exit::Continue};
    Flow r = exec_block(s->body, env);
    if (r == Flow::Break) {
      broke = true;
      return false;
    }
    if (r == Flow::Return) {
      result = r;
      return false;
    }
    return true;
  });
  pop.now();
  if (result == Flow::Return || broke) return result;
  return exec_block(s->orelse, env);
}

Flow In::Impl::exec_while(const Stmt* s, Env* env) {
  const Exits loop{in, model::Exit::Break};
  ActiveFrame* f = frame();
  std::size_t depth = f ? f->iters.size() : 0;
  if (f) f->iters.push_back({s, 0, 0});
  struct Pop {
    ActiveFrame* f;
    std::size_t n;
    void now() {
      if (f) f->iters.resize(n);
      f = nullptr;
    }
    ~Pop() { now(); }
  } pop{f, depth};
  for (int i = 0;; ++i) {
    tick_step(s->value);
    if (f) f->iters[depth].index = i;
    Value c = eval(s->value, env);
    auto t = in.truth(c);
    if (!t) {
      std::string why = "loop with a condition that is not known";
      if (c.is_unknown()) why += ": " + c.as<UnknownObj>()->why;
      in.note_incomplete(s->value->range, why);
      poison(s->body, env, in.unknown(why, s->value));
      return Flow::Next;
    }
    if (c.sym()) in.guard("!=", c, Value::integer(0), *t, s->value->range);
    if (!*t) break;
    const Exits iteration{in, model::Exit::Continue};
    Flow r = exec_block(s->body, env);
    if (r == Flow::Break) return Flow::Next;
    if (r == Flow::Return) return r;
  }
  pop.now();
  return exec_block(s->orelse, env);
}

// ---- with, try, raise -------------------------------------------------------------------------------------------------

Flow In::Impl::exec_with(const Stmt* s, std::size_t n, Env* env) {
  if (n == s->items.size()) return exec_block(s->body, env);
  const auto& item = s->items[n];
  Value cm = eval(item.value, env);
  if (cm.is_unknown()) {
    in.note_incomplete(item.value->range, "context manager is not followed: " + cm.as<UnknownObj>()->why);
    if (item.target) assign(item.target, cm, env);
    return exec_with(s, n + 1, env);
  }
  Value enter = in.getattr_or(cm, "__enter__"), exit = in.getattr_or(cm, "__exit__");
  if (!enter.set() || !exit.set())
    in.raise("TypeError", "'" + in.type_of(cm)->name + "' object does not support the context manager protocol", item.value);
  Value v = in.call(enter, {}, item.value);
  std::optional<PyError> err;
  Flow f = Flow::Next;
  try {
    if (item.target) assign(item.target, v, env);
    f = exec_with(s, n + 1, env);
  } catch (PyError& e) { err = e; }
  Value keep = ret;
  if (!err) {
    in.call(exit, {Value::none(), Value::none(), Value::none()}, item.value);
    ret = keep;
    return f;
  }
  Value suppress = in.call(exit, {in.type_of(err->exception), err->exception, Value::none()}, item.value);
  auto t = in.truth(suppress);
  if (t && *t) return Flow::Next;
  throw PyError(*err);
}

bool In::Impl::matches_exception(const PyError& e, const Value& type) {
  if (type.is(Kind::Tuple)) {
    for (const auto& t : type.as<SeqObj>()->items)
      if (matches_exception(e, t)) return true;
    return false;
  }
  if (type.is_unknown()) return false;
  return type.is(Kind::Class) && in.isinstance(e.exception, type.as<ClassObj>());
}

namespace {

bool names_import_error(const Expr* t) {
  if (!t) return true;
  if (t->kind == ExprKind::Name || t->kind == ExprKind::Attribute)
    return t->text == "ImportError" || t->text == "ModuleNotFoundError" || t->text == "Exception" || t->text == "BaseException" ||
        t->text == "AttributeError";
  if (t->kind == ExprKind::Tuple) return std::any_of(t->kids.begin(), t->kids.end(), [](const Expr* k) { return names_import_error(k); });
  return true;
}

}  // namespace

Flow In::Impl::exec_try(const Stmt* s, Env* env) {
  std::optional<PyError> err;
  Flow f = Flow::Next;
  bool guard = std::any_of(s->handlers.begin(), s->handlers.end(), [](const auto& h) { return names_import_error(h.type); });
  bool in_body = true;
  std::size_t iters = frame() ? frame()->iters.size() : 0;
  try {
    Restore<bool> g(import_guard, guard || import_guard);
    f = exec_block(s->body, env);
  } catch (PyError& e) { err = e; }
  if (frame()) frame()->iters.resize(std::min(iters, frame()->iters.size()));
  if (!err && f == Flow::Next && !s->orelse.empty()) {
    in_body = false;
    try {
      f = exec_block(s->orelse, env);
    } catch (PyError& e) { err = e; }
  }
  if (err && in_body) {
    for (const auto& h : s->handlers) {
      bool match = !h.type;
      if (h.type) {
        Value type;
        try {
          type = eval(h.type, env);
        } catch (PyError& e) {
          err = e;
          break;
        }
        match = matches_exception(*err, type);
      }
      if (!match) continue;
      PyError caught = *err;
      err.reset();
      ActiveFrame* fr = frame();
      Value outer = fr ? fr->handling : Value();
      if (fr) fr->handling = caught.exception;
      if (!h.name.empty()) store(h.name, caught.exception, env);
      try {
        f = exec_block(h.body, env);
      } catch (PyError& e) { err = e; }
      if (fr) fr->handling = outer;
      break;
    }
  }
  if (!s->finally.empty()) {
    Value keep = ret;
    Flow g = exec_block(s->finally, env);
    if (g != Flow::Next) return g;  // return or break in finally wins, as in Python
    ret = keep;
  }
  if (err) throw PyError(*err);
  return f;
}

void In::Impl::exec_raise(const Stmt* s, Env* env) {
  if (!s->value) {
    ActiveFrame* f = frame();
    if (f && f->handling.set()) in.raise_value(f->handling, s->range);
    in.raise("RuntimeError", "No active exception to re-raise");
  }
  Value v = eval(s->value, env);
  if (v.is(Kind::Class)) v = in.call(v, {}, s->value);
  if (v.is_unknown()) in.raise("Exception", "raises an exception that is not followed (" + v.as<UnknownObj>()->why + ")", s->value);
  if (!in.isinstance(v, in.builtin_class("BaseException"))) in.raise("TypeError", "exceptions must derive from BaseException", s->value);
  in.raise_value(v, s->range);
}

void In::Impl::exec_delete(const Expr* t, Env* env) {
  if (t->kind == ExprKind::Name) {
    if (!env->vars.erase(t->text) && env != &env->globals->env) in.raise("NameError", "name '" + t->text + "' is not defined", t);
  } else if (t->kind == ExprKind::Attribute) {
    in.delattr(eval(t->kids[0], env), t->text);
  } else if (t->kind == ExprKind::Subscript) {
    Value o = eval(t->kids[0], env);
    in.delitem(o, eval(t->kids[1], env));
  } else {
    for (const Expr* k : t->kids) exec_delete(k, env);
  }
}

// ---- match ------------------------------------------------------------------------------------------------------------

bool In::Impl::match_pattern(const Expr* p, const Value& v, Env* env) {
  switch (p->kind) {
    case ExprKind::Name:
      if (p->text != "_") store(p->text, v, env);
      return true;
    case ExprKind::None: return v.is_none();
    case ExprKind::True:
    case ExprKind::False: return v.is(Kind::Bool) && v.as_bool() == (p->kind == ExprKind::True);
    case ExprKind::Binary:  // alternatives: a | b
      if (p->text == "|") return match_pattern(p->kids[0], v, env) || match_pattern(p->kids[1], v, env);
      return in.equal(eval(p, env), v);
    case ExprKind::Tuple:
    case ExprKind::List: {
      if (!v.is(Kind::Tuple) && !v.is(Kind::List)) return false;
      const auto& items = v.as<SeqObj>()->items;
      std::size_t star = p->kids.size();
      for (std::size_t i = 0; i < p->kids.size(); ++i)
        if (p->kids[i]->kind == ExprKind::Starred) star = i;
      if (star == p->kids.size() ? items.size() != star : items.size() + 1 < p->kids.size()) return false;
      std::size_t tail = star == p->kids.size() ? 0 : p->kids.size() - star - 1;
      for (std::size_t i = 0; i < std::min(star, items.size()); ++i)
        if (!match_pattern(p->kids[i], items[i], env)) return false;
      if (star == p->kids.size()) return true;
      std::vector<Value> mid(items.begin() + static_cast<std::ptrdiff_t>(star), items.end() - static_cast<std::ptrdiff_t>(tail));
      if (!match_pattern(p->kids[star]->kids[0], in.list(mid), env)) return false;
      for (std::size_t i = 0; i < tail; ++i)
        if (!match_pattern(p->kids[star + 1 + i], items[items.size() - tail + i], env)) return false;
      return true;
    }
    case ExprKind::Call: {  // Class(attr=pattern)
      Value c = eval(p->kids[0], env);
      if (!c.is(Kind::Class) || !in.isinstance(v, c.as<ClassObj>())) return false;
      std::size_t pos = 0;
      Value names = in.getattr_or(c, "__match_args__");
      for (const auto& a : p->args) {
        Value x;
        if (a.keyword.empty()) {
          if (!names.set()) x = v;  // int(x), str(x)
          else if (auto l = in.to_vector(names); pos < l.size()) x = in.getattr_or(v, l[pos].str());
          ++pos;
        } else {
          x = in.getattr_or(v, a.keyword);
        }
        if (!x.set() || !match_pattern(a.value, x, env)) return false;
      }
      return true;
    }
    case ExprKind::Dict:
      if (!v.is(Kind::Dict)) return false;
      for (std::size_t i = 0; i + 1 < p->kids.size(); i += 2) {
        if (!p->kids[i]) continue;
        Value* x = v.as<DictObj>()->find(in, eval(p->kids[i], env));
        if (!x || !match_pattern(p->kids[i + 1], *x, env)) return false;
      }
      return true;
    case ExprKind::Walrus:  // pattern as name
      if (!match_pattern(p->kids[1], v, env)) return false;
      store(p->kids[0]->text, v, env);
      return true;
    case ExprKind::Opaque: return false;
    default: return in.equal(eval(p, env), v);
  }
}

Flow In::Impl::exec_match(const Stmt* s, Env* env) {
  Value v = eval(s->value, env);
  if (v.is_unknown()) {
    in.note_incomplete(s->value->range, "match on an unknown value: " + v.as<UnknownObj>()->why);
    for (const auto& c : s->cases) {
      poison(c.body, env, v);
      program::walk(c.body, [&](const Stmt* k) {
        if (k->kind == StmtKind::Return) may_leave(Flow::Return, k->range, in.clock());
        if (k->kind == StmtKind::Break) may_leave(Flow::Break, k->range, in.clock());
        return k->kind != StmtKind::FunctionDef && k->kind != StmtKind::ClassDef;
      });
    }
    return Flow::Next;
  }
  for (const auto& c : s->cases) {
    if (!match_pattern(c.pattern, v, env)) continue;
    if (c.guard && !in.truthy(eval(c.guard, env), c.guard)) continue;
    return exec_block(c.body, env);
  }
  return Flow::Next;
}

}  // namespace shardwright::eval
