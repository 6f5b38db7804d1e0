// Calls: binding of arguments, running functions and generators, making instances.
#include <algorithm>
#include <stdexcept>

#include "eval/impl.h"

namespace shardwright::eval {

namespace {

std::string joined(const std::vector<std::string>& names) {
  std::string out;
  for (std::size_t i = 0; i < names.size(); ++i)
    out += (i == 0 ? "" : i + 1 == names.size() ? (names.size() > 2 ? ", and " : " and ") : ", ") + ("'" + names[i] + "'");
  return out;
}

std::string plural(std::size_t n, const char* what) { return std::to_string(n) + " " + what + (n == 1 ? "" : "s"); }

}  // namespace

void In::Impl::bind_function(FunctionObj* f, const CallInfo& info, NameMap& vars, std::vector<const Expr*>* exprs) {
  const auto& ps = f->def->parameters;
  std::vector<Value> values(ps.size());
  std::vector<const Expr*> from(ps.size(), nullptr);
  std::size_t pos = 0, positional = 0;
  bool missing_from_unknown = false;
  for (const auto& p : ps)
    if (p.kind == program::Parameter::Positional || p.kind == program::Parameter::PositionalOnly) ++positional;
  std::string name = f->qualname.empty() ? f->def->name : f->def->name;
  const Expr* where = info.call;
  std::vector<Value> rest;
  for (std::size_t i = 0; i < ps.size(); ++i) {
    if (ps[i].kind != program::Parameter::Positional && ps[i].kind != program::Parameter::PositionalOnly) continue;
    if (pos < info.args.size()) {
      values[i] = info.args[pos];
      from[i] = info.expr(pos);
      ++pos;
    }
  }
  for (; pos < info.args.size(); ++pos) rest.push_back(info.args[pos]);
  auto* extra = static_cast<DictObj*>(nullptr);
  std::size_t var_args = ps.size(), var_kw = ps.size();
  for (std::size_t i = 0; i < ps.size(); ++i) {
    if (ps[i].kind == program::Parameter::VarArgs && !ps[i].name.empty()) var_args = i;
    if (ps[i].kind == program::Parameter::VarKeywords) var_kw = i;
  }
  if (!rest.empty() && var_args == ps.size()) {
    std::size_t required = 0;
    for (std::size_t i = 0; i < ps.size(); ++i)
      if ((ps[i].kind == program::Parameter::Positional || ps[i].kind == program::Parameter::PositionalOnly) && !f->defaults[i].set())
        ++required;
    std::string takes = required == positional ? plural(positional, "positional argument")
                                               : "from " + std::to_string(required) + " to " + plural(positional, "positional argument");
    in.raise(
        "TypeError",
        name + "() takes " + takes + " but " + std::to_string(info.args.size()) + (info.args.size() == 1 ? " was given" : " were given"),
        where);
  }
  for (const auto& k : info.kwargs) {
    std::size_t at = ps.size();
    for (std::size_t i = 0; i < ps.size(); ++i)
      if (ps[i].name == k.name && (ps[i].kind == program::Parameter::Positional || ps[i].kind == program::Parameter::KeywordOnly)) at = i;
    if (at < ps.size()) {
      if (values[at].set()) in.raise("TypeError", name + "() got multiple values for argument '" + k.name + "'", where);
      values[at] = k.value;
      from[at] = k.expr;
    } else if (var_kw < ps.size()) {
      if (!extra) extra = in.make<DictObj>();
      extra->set(in, in.str(k.name), k.value);
    } else {
      in.raise("TypeError", name + "() got an unexpected keyword argument '" + k.name + "'", where);
    }
  }
  std::vector<std::string> missing, missing_kw;
  for (std::size_t i = 0; i < ps.size(); ++i) {
    if (values[i].set()) continue;
    if (i == var_args) {
      values[i] = in.tuple(std::move(rest));
      continue;
    }
    if (i == var_kw) {
      values[i] = extra ? Value(extra) : in.dict();
      continue;
    }
    if (ps[i].name.empty() || (ps[i].kind == program::Parameter::VarArgs)) continue;  // bare *
    if (f->defaults[i].set()) {
      values[i] = f->defaults[i];
      continue;
    }
    (ps[i].kind == program::Parameter::KeywordOnly ? missing_kw : missing).push_back(ps[i].name);
  }
  // A call with *unknown arguments was noted; what they would have filled is unknown.
  if (info.partial && (!missing.empty() || !missing_kw.empty())) missing_from_unknown = true;
  if (missing_from_unknown) {
    for (std::size_t i = 0; i < ps.size(); ++i)
      if (!values[i].set() && !ps[i].name.empty() && ps[i].kind != program::Parameter::VarArgs)
        values[i] = in.unknown("argument out of an unknown * or **", where);
  } else if (!missing.empty()) {
    in.raise("TypeError", name + "() missing " + plural(missing.size(), "required positional argument") + ": " + joined(missing), where);
  } else if (!missing_kw.empty()) {
    in.raise("TypeError", name + "() missing " + plural(missing_kw.size(), "required keyword-only argument") + ": " + joined(missing_kw),
             where);
  }
  for (std::size_t i = 0; i < ps.size(); ++i) {
    if (ps[i].name.empty() || !values[i].set()) continue;
    vars.set(ps[i].name, values[i]);
    if (exprs) exprs->push_back(from[i]);
  }
}

std::vector<In::BoundParam> In::bind_arguments(const FunctionObj& f, const CallInfo& info) {
  NameMap vars;
  std::vector<const Expr*> exprs;
  impl_->bind_function(const_cast<FunctionObj*>(&f), info, vars, &exprs);
  std::vector<BoundParam> out;
  std::size_t i = 0;
  for (const auto& v : vars) {
    out.push_back({v.name, v.value, i < exprs.size() ? exprs[i] : nullptr});
    ++i;
  }
  return out;
}

Value In::Impl::call_function(FunctionObj* f, CallInfo& info) {
  tick_step(info.call);
  check_stack(info.call);
  Env* env = new_env(f->closure == &f->module->env ? nullptr : f->closure, f->module);
  env->locals = &f->def->locals;
  bind_function(f, info, env->vars, nullptr);

  ActiveFrame* caller = frame();
  ActiveFrame fr;
  fr.function = f->def;
  fr.env = env;
  fr.call = info.call;
  fr.builtin = f->module->builtin;
  fr.name = f->qualname;
  int object = -1;
  if (!info.args.empty() && info.args[0].is(Kind::Instance) && f->def->owner) {
    fr.self = info.args[0].as<InstanceObj>()->module_id;
    object = info.args[0].as<InstanceObj>()->object_id;
  }
  fr.id = static_cast<model::FrameId>(in.trace.frames.size());
  {
    model::Frame t;
    t.id = fr.id;
    t.parent = caller ? caller->id : -1;
    t.function = f->def;
    t.self = fr.self;
    t.object = object;
    t.call = info.call;
    t.step = caller ? caller->step : -1;
    if (caller) t.iters = caller->iters;
    t.builtin = fr.builtin;
    t.via_partial = info.via_partial;
    t.init = in.init_phase;
    t.begin = in.tick();
    in.trace.frames.push_back(std::move(t));
  }
  if (fr.self >= 0 && !fr.builtin && f->def->name == "__init__") {
    auto& m = in.trace.modules[static_cast<std::size_t>(fr.self)];
    if (m.init_frame < 0) m.init_frame = fr.id;
  }
  auto enter = [&](ActiveFrame& a) {
    if (a.builtin) return;
    for (const auto& v : env->vars)
      if (!in.tensors_only || v.value.is(Kind::Tensor))
        in.trace.var_writes.push_back({a.id, -1, v.name, in.bind_summary(v.value), in.tick()});
  };
  if (f->def->is_generator) {
    auto* g = in.make<GeneratorObj>();
    g->frame = fr;
    enter(g->frame);
    const program::Function* def = f->def;
    g->co = std::make_unique<Coroutine>(
        [this, g, def, env] {
          try {
            Flow flow = exec_block(def->body, env);
            g->result = flow == Flow::Return ? ret : Value::none();
          } catch (PyError& e) { g->thrown = e; } catch (Abort& a) {
            g->aborted = a;
          }
        },
        16u << 20);
    return g;
  }
  FrameScope scope(in.stack_, &fr);
  Restore<bool> guard(import_guard, false);
  struct End {
    In& in;
    model::FrameId id;
    std::size_t exits = in.trace.exits.size();
    ~End() {
      const model::Clock now = in.trace.frames[static_cast<std::size_t>(id)].end = in.tick();
      for (; exits < in.trace.exits.size(); ++exits)
        if (auto& e = in.trace.exits[exits]; e.kind == model::Exit::Return && e.until == 0) e.until = now;
    }
  } end{in, fr.id};
  enter(fr);
  Flow flow = exec_block(f->def->body, env);
  const Value result = flow == Flow::Return ? ret : Value::none();
  if (fr.builtin) return result;
  for (const auto& [id, value] : fr.came_back)
    if (in.identical(result, value)) in.trace.frames[static_cast<std::size_t>(fr.id)].hands_back = id;
  if (caller && !caller->builtin && caller->function && !caller->function->owner && result.is_object())
    caller->came_back.emplace_back(fr.id, result);
  return result;
}

// ---- generators -------------------------------------------------------------------------------------------------------

Value GeneratorObj::next(In& in) {
  auto* impl = in.impl();
  if (co->done()) return {};
  // Of an earlier run whose trace is gone (start_over): it gives nothing more.
  const auto& frames = in.trace.frames;
  if (frame.id >= 0 &&
      (static_cast<std::size_t>(frame.id) >= frames.size() || frames[static_cast<std::size_t>(frame.id)].function != frame.function))
    return {};
  if (running) in.raise("ValueError", "generator already executing");
  running = true;
  impl->check_stack(nullptr);
  FrameScope scope(StackAccess::of(in), &frame);
  Restore<const char*> limit(impl->stack_limit);
  Restore<bool> guard(impl->import_guard, false);
  impl->generators.push_back(this);
  out = Value();
  std::size_t depth = in.stack().size();
  impl->stack_limit = co->stack_limit();
  co->resume();
  StackAccess::of(in).resize(depth);
  impl->generators.pop_back();
  running = false;
  if (aborted) throw Abort(*aborted);
  if (co->done()) {
    auto& t = in.trace.frames[static_cast<std::size_t>(frame.id)];
    t.end = in.tick();
    if (thrown) {
      PyError e = *thrown;
      thrown.reset();
      throw PyError(e);
    }
    return {};
  }
  return out;
}

Value In::Impl::yield_value(const Value& v) {
  if (generators.empty()) in.raise("SyntaxError", "'yield' outside function");
  GeneratorObj* g = generators.back();
  g->out = v;
  g->co->suspend();
  if (g->thrown) {
    PyError e = *g->thrown;
    g->thrown.reset();
    throw PyError(e);
  }
  Value s = g->sent.set() ? g->sent : Value::none();
  g->sent = Value();
  return s;
}

// ---- instances --------------------------------------------------------------------------------------------------------

Value In::Impl::construct(ClassObj* c, CallInfo& info) {
  tick_step(info.call);
  check_stack(info.call);
  Value nw = c->lookup("__new__");
  Value init = c->lookup("__init__");
  Value self;
  CallInfo first = info;
  if (nw.set() && !(nw.is(Kind::Native) && nw.as<NativeObj>()->name == "object.__new__")) {
    if (nw.is(Kind::StaticMethod)) nw = nw.as<WrapperObj>()->function;
    first.args.insert(first.args.begin(), c);
    first.exprs.resize(info.args.size());
    first.exprs.insert(first.exprs.begin(), nullptr);
    self = in.call(nw, first);
    if (!self.is_object() || self.is_unknown()) return self;
    ClassObj* t = in.type_of(self);
    if (!t->derives_from(c)) return self;
    init = t->lookup("__init__");
  } else {
    bool default_init = !init.set() || (init.is(Kind::Native) && init.as<NativeObj>()->name == "object.__init__");
    if (default_init && (!info.args.empty() || !info.kwargs.empty()) && !c->unknown_base.is_unknown())
      in.raise("TypeError", c->name + "() takes no arguments", info.call);
    for (ClassObj* k : c->mro)
      if (k->allocate) {
        self = k->allocate(in, c, info);
        break;
      }
    if (!self.set()) self = in.make<InstanceObj>(c);
  }
  if (self.is(Kind::Instance) && c->def && !c->builtin) note_object(*self.as<InstanceObj>(), info);
  if (init.set() && !(init.is(Kind::Native) && init.as<NativeObj>()->name == "object.__init__")) {
    CallInfo second = info;
    second.args.insert(second.args.begin(), self);
    second.exprs.resize(info.args.size());
    second.exprs.insert(second.exprs.begin(), nullptr);
    Value f = bind(init, Value(), c);
    if (f.is(Kind::BoundMethod)) f = f.as<BoundMethodObj>()->function;
    in.call(f, second);
  }
  return self;
}

/// A new object of a class that is no module's.
void In::Impl::note_object(InstanceObj& o, const CallInfo& info) {
  if (o.module_id >= 0 || o.object_id >= 0) return;
  model::PlainObject p;
  for (const ClassObj* k : o.cls->mro)
    if (k->def && !k->builtin) p.mro.push_back(k->def);
  p.construct_call = info.call;
  p.construct_partial = info.via_partial;
  if (const ActiveFrame* f = frame()) {
    p.construct_frame = f->id;
    p.construct_iters = f->iters;
  }
  o.object_id = static_cast<int>(in.trace.objects.size());
  in.trace.objects.push_back(std::move(p));
}

/// A number that came out of a function written in C++ comes from the sizes among its arguments, unless the function says how.
Value In::Impl::from_sizes(Value result, const CallInfo& info) {
  if ((!result.is(Kind::Int) && !result.is(Kind::Float)) || result.sym()) return result;
  std::vector<Value> from;
  auto see = [&](const Value& v) {
    if (v.is_number() && v.sym()) from.push_back(v);
  };
  for (const Value& v : info.args) see(v);
  for (const auto& k : info.kwargs) see(k.value);
  return from.empty() ? result : with_sym(result, made_of(from, result.as_double()));
}

const model::Sym* In::Impl::made_of(const std::vector<Value>& from, double value) {
  Value all = from.front();
  for (std::size_t i = 1; i < from.size(); ++i) all = Value::real(value, in.sym(model::Sym::Other, all, from[i], value));
  return in.sym(model::Sym::Other, all, Value::none(), value);
}

Value In::Impl::with_sym(const Value& number, const model::Sym* s) {
  if (number.is(Kind::Float)) return Value::real(number.as_double(), s);
  return number.is(Kind::Bool) ? Value::boolean(number.as_bool(), s) : Value::integer(number.as_int(), s);
}

Value In::call(const Value& f, CallInfo& info) {
  switch (f.kind()) {
    case Kind::Function: return impl_->call_function(f.as<FunctionObj>(), info);
    case Kind::Native:
      impl_->tick_step(info.call);
      try {
        return impl_->from_sizes(f.as<NativeObj>()->fn(*this, info), info);
      } catch (const std::out_of_range&) {}  // a native that took a missing argument with at()
      raise("TypeError", f.as<NativeObj>()->name + "() is missing an argument", info.call);
    case Kind::BoundMethod: {
      auto* m = f.as<BoundMethodObj>();
      info.exprs.resize(info.args.size());
      info.args.insert(info.args.begin(), m->self);
      info.exprs.insert(info.exprs.begin(), nullptr);
      return call(m->function, info);
    }
    case Kind::Class: {
      auto* c = f.as<ClassObj>();
      if (c->metaclass) {
        Value m = c->metaclass->lookup("__call__");
        if (m.set() && !(m.is(Kind::Native) && m.as<NativeObj>()->name == "type.__call__")) {
          info.exprs.resize(info.args.size());
          info.args.insert(info.args.begin(), f);
          info.exprs.insert(info.exprs.begin(), nullptr);
          return call(m, info);
        }
      }
      if (c->unknown_base.is_unknown() && c->unknown_base.as<UnknownObj>()->why.empty()) return c->unknown_base;
      return impl_->construct(c, info);
    }
    case Kind::StaticMethod: return call(f.as<WrapperObj>()->function, info);
    case Kind::Unknown: {
      if (tensors) tensors->escape(info);
      note_incomplete(range_of(info.call), "call of something that is not followed: " + f.as<UnknownObj>()->why);
      return f;
    }
    default: break;
  }
  if (f.is_object()) {
    ClassObj* c = type_of(f);
    Value m = c->lookup("__call__");
    if (m.set()) {
      info.exprs.resize(info.args.size());
      info.args.insert(info.args.begin(), f);
      info.exprs.insert(info.exprs.begin(), nullptr);
      if (m.is(Kind::Function) || m.is(Kind::Native)) return call(m, info);
      CallInfo rest = info;
      rest.args.erase(rest.args.begin());
      rest.exprs.erase(rest.exprs.begin());
      return call(impl_->bind(m, f, c), rest);
    }
    if (c->unknown_base.is_unknown()) return unknown("call of an object whose class has a base that is not followed", info.call);
  }
  raise("TypeError", "'" + type_of(f)->name + "' object is not callable", info.call);
}

Value In::call(const Value& f, std::vector<Value> args, const Expr* site) {
  CallInfo info;
  info.call = site;
  info.args = std::move(args);
  return call(f, info);
}

// ---- signatures of natives ----------------------------------------------------------------------------------------------

Signature::Signature(std::string name, std::string_view text) : name_(std::move(name)) {
  bool kw_only = false;
  std::size_t i = 0;
  while (i < text.size()) {
    std::size_t j = i;
    int depth = 0;
    char quote = 0;
    for (; j < text.size(); ++j) {
      char c = text[j];
      if (quote) {
        if (c == quote) quote = 0;
        continue;
      }
      if (c == '\'' || c == '"') quote = c;
      else if (c == '(' || c == '[') ++depth;
      else if (c == ')' || c == ']') --depth;
      else if (c == ',' && depth == 0) break;
    }
    std::string item(text.substr(i, j - i));
    i = j + 1;
    item.erase(0, item.find_first_not_of(" \n"));
    item.erase(item.find_last_not_of(" \n") + 1);
    if (item.empty()) continue;
    if (item == "*") {
      kw_only = true;
      continue;
    }
    if (item == "/") continue;
    if (item.substr(0, 2) == "**") {
      keywords_ = true;
      continue;
    }
    if (item[0] == '*') {
      rest_ = true;
      kw_only = true;
      continue;
    }
    Param p;
    auto eq = item.find('=');
    p.name = item.substr(0, eq);
    if (auto colon = p.name.find(':'); colon != std::string::npos) p.name.erase(colon);
    p.name.erase(p.name.find_last_not_of(' ') + 1);
    if (eq != std::string::npos) {
      p.has_default = true;
      p.literal = item.substr(eq + 1);
      p.literal.erase(0, p.literal.find_first_not_of(' '));
    }
    p.keyword_only = kw_only;
    params_.push_back(p);
  }
}

int Signature::index(std::string_view parameter) const {
  for (std::size_t i = 0; i < params_.size(); ++i)
    if (params_[i].name == parameter) return static_cast<int>(i);
  return -1;
}

Signature::Bound Signature::bind(Interpreter& in, const CallInfo& info) const {
  Bound b;
  b.values.resize(params_.size());
  b.exprs.resize(params_.size(), nullptr);
  b.given.resize(params_.size(), false);
  std::size_t pos = 0;
  std::string shown = name_.substr(name_.rfind('.') + 1);
  for (std::size_t i = 0; i < params_.size() && pos < info.args.size(); ++i) {
    if (params_[i].keyword_only) break;
    b.values[i] = info.args[pos];
    b.exprs[i] = info.expr(pos);
    b.given[i] = true;
    ++pos;
  }
  if (pos < info.args.size() && !rest_) {
    std::size_t n = 0;
    for (const auto& p : params_) n += p.keyword_only ? 0 : 1;
    in.raise("TypeError",
             shown + "() takes " + plural(n, "positional argument") + " but " + std::to_string(info.args.size()) +
                 (info.args.size() == 1 ? " was given" : " were given"),
             info.call);
  }
  for (; pos < info.args.size(); ++pos) {
    b.rest.push_back(info.args[pos]);
    b.rest_exprs.push_back(info.expr(pos));
  }
  for (const auto& k : info.kwargs) {
    int at = index(k.name);
    if (at < 0) {
      if (!keywords_) in.raise("TypeError", shown + "() got an unexpected keyword argument '" + k.name + "'", info.call);
      b.keywords.push_back(k);
      continue;
    }
    auto i = static_cast<std::size_t>(at);
    if (b.given[i]) in.raise("TypeError", shown + "() got multiple values for argument '" + k.name + "'", info.call);
    b.values[i] = k.value;
    b.exprs[i] = k.expr;
    b.given[i] = true;
  }
  std::vector<std::string> missing;
  for (std::size_t i = 0; i < params_.size(); ++i) {
    if (b.given[i]) continue;
    const auto& p = params_[i];
    if (!p.has_default) {
      missing.push_back(p.name);
      continue;
    }
    const std::string& l = p.literal;
    if (l == "None") b.values[i] = Value::none();
    else if (l == "True" || l == "False") b.values[i] = Value::boolean(l == "True");
    else if (l == "()") b.values[i] = in.tuple({});
    else if (l == "[]") b.values[i] = in.list({});
    else if (!l.empty() && (l[0] == '\'' || l[0] == '"')) b.values[i] = in.str(l.substr(1, l.size() - 2));
    else if (l.find_first_of(".eni") != std::string::npos) b.values[i] = Value::real(std::strtod(l.c_str(), nullptr));
    else b.values[i] = Value::integer(std::strtoll(l.c_str(), nullptr, 10));
  }
  if (!missing.empty())
    in.raise("TypeError", shown + "() missing " + plural(missing.size(), "required positional argument") + ": " + joined(missing),
             info.call);
  return b;
}

}  // namespace shardwright::eval
