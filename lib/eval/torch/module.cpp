// torch.nn.Module in C++: attributes that are parameters, buffers and children, calls of forward, walks over the tree.
// The classes of torch.nn are Python of ours (rules/layers/torch/nn) deriving from it.
#include <algorithm>

#include "eval/torch/compute.h"
#include "eval/torch_link.h"

namespace shardwright::eval::torch {
namespace {

using model::AttrWrite;

InstanceObj* instance(Interpreter& in, const Value& v) {
  if (!v.is(Kind::Instance)) in.raise("TypeError", "expected a Module, got " + in.type_of(v)->name);
  return v.as<InstanceObj>();
}

DictObj* table(Interpreter& in, InstanceObj* m, const char* name) {
  if (m->attrs)
    if (Value* v = m->attrs->find(name); v && v->is(Kind::Dict)) return v->as<DictObj>();
  Value d = in.dict();
  in.plain_setattr(m, name, d);
  return d.as<DictObj>();
}

bool is_module(Domain& d, const Value& v) { return v.is(Kind::Instance) && v.obj()->cls && v.obj()->cls->derives_from(d.module_class); }
bool is_parameter(Domain& d, const Value& v) { return v.is(Kind::Tensor) && v.obj()->cls && v.obj()->cls->derives_from(d.parameter_class); }

/// "torch.nn.modules.linear.Linear" of ours is what people write as torch.nn.Linear.
std::string type_name(const ClassObj* c) {
  std::string q = c->qualified();
  if (c->builtin && q.starts_with("torch.nn.modules.")) return "torch.nn." + c->name;
  return q;
}

void record_write(Domain& d, InstanceObj* owner, const std::string& name, const Value& v, AttrWrite::Kind kind) {
  if (owner->module_id < 0) return;
  AttrWrite w;
  w.owner = owner->module_id;
  w.name = name;
  w.value = d.in.bind_summary(v);
  w.kind = kind;
  if (ActiveFrame* f = d.in.frame()) {
    w.frame = f->id;
    w.step = f->step;
    if (!f->builtin) w.value_expr = d.in.assigning();
  }
  w.clock = d.in.tick();
  d.in.trace.attr_writes.push_back(std::move(w));
}

/// A new module in the trace, constructed where we are.
model::ModuleId add_module_entry(Domain& d, InstanceObj* m, const program::Expr* call) {
  Interpreter& in = d.in;
  model::Module entry;
  entry.id = static_cast<model::ModuleId>(in.trace.modules.size());
  entry.type = type_name(m->cls);
  entry.class_def = m->cls->def;
  entry.builtin = m->cls->builtin;
  for (const ClassObj* k : m->cls->mro) {
    if (k->def != nullptr && !k->builtin) entry.mro.push_back(k->def);
    entry.patched = entry.patched || k->patched;
  }
  entry.construct_call = call;
  if (ActiveFrame* f = in.frame()) {
    entry.construct_frame = f->id;
    entry.construct_step = f->step;
    entry.construct_iters = f->iters;
  }
  m->module_id = entry.id;
  in.trace.modules.push_back(std::move(entry));
  d.instances.resize(in.trace.modules.size(), nullptr);
  d.instances[static_cast<std::size_t>(m->module_id)] = m;
  return m->module_id;
}

/// The call `Cls(…)` when Module.__new__ is reached through a user's `__new__(cls, *args, **kwargs)`: its arguments are those
/// that `__init__` gets afterwards.
CallInfo outer_call(const ActiveFrame& f, const CallInfo& info) {
  CallInfo call;
  call.call = f.call;
  call.args = {info.args[0]};
  call.exprs = {nullptr};
  const auto& params = f.function->parameters;
  for (std::size_t i = 1; i < params.size(); ++i) {
    Value v = f.env->vars.get(params[i].name);
    if (params[i].kind == program::Parameter::VarArgs && v.is(Kind::Tuple)) {
      for (const Value& x : v.as<SeqObj>()->items) call.add(x);
    } else if (params[i].kind == program::Parameter::VarKeywords && v.is(Kind::Dict)) {
      for (const auto& e : v.as<DictObj>()->entries)
        if (e.alive && e.key.is(Kind::Str)) call.kwargs.push_back({e.key.str(), e.value, nullptr});
    } else if (v.set()) {
      call.kwargs.push_back({params[i].name, v, nullptr});
    }
  }
  if (f.call && f.call->kind == program::ExprKind::Call) {
    std::size_t at = 1;
    for (const program::Argument& a : f.call->args) {
      if (a.star || a.double_star) break;
      if (a.keyword.empty()) {
        if (at < call.exprs.size()) call.exprs[at++] = a.value;
      } else if (Keyword* k = call.keyword(a.keyword)) {
        k->expr = a.value;
      }
    }
  }
  return call;
}

Value module_new(Domain& d, CallInfo& direct) {
  Interpreter& in = d.in;
  if (direct.args.empty() || !direct.args[0].is(Kind::Class)) in.raise("TypeError", "Module.__new__ needs a class");
  auto* m = in.make<InstanceObj>(direct.args[0].as<ClassObj>());
  const ActiveFrame* top = in.frame();
  bool through = top && top->function && top->function->name == "__new__" && top->env && in.stack().size() >= 2;
  CallInfo info = through ? outer_call(*top, direct) : direct;
  model::ModuleId id = add_module_entry(d, m, info.call);
  in.trace.modules[static_cast<std::size_t>(id)].construct_partial = direct.via_partial;
  if (through) {
    const ActiveFrame* caller = in.stack()[in.stack().size() - 2];
    model::Module& entry = in.trace.modules[static_cast<std::size_t>(id)];
    entry.construct_frame = caller->id;
    entry.construct_step = caller->step;
    entry.construct_iters = caller->iters;
  }
  in.plain_setattr(m, "training", Value::boolean(true));
  for (const char* name : {"_parameters", "_buffers", "_modules"}) in.plain_setattr(m, name, in.dict());
  Value init = m->cls->lookup("__init__");
  if (init.is(Kind::Function)) {
    CallInfo bound = info;
    bound.args[0] = m;
    std::vector<Interpreter::BoundParam> params;
    try {
      params = in.bind_arguments(*init.as<FunctionObj>(), bound);
    } catch (const PyError&) {
      // The call of __init__ says what is wrong, at its own place.
    }
    model::Module& entry = in.trace.modules[static_cast<std::size_t>(id)];
    for (std::size_t i = 1; i < params.size(); ++i) {
      entry.ctor_args.emplace_back(params[i].name, in.bind_summary(params[i].value));
      entry.ctor_exprs.push_back(params[i].expr);
    }
  }
  return m;
}

void remove_everywhere(Domain& d, InstanceObj* m, const std::string& name) {
  for (const char* t : {"_parameters", "_buffers", "_modules"}) table(d.in, m, t)->erase(d.in, d.in.str(name));
  if (m->attrs) m->attrs->erase(name);
}

void set_in(Domain& d, InstanceObj* m, const char* which, const std::string& name, const Value& v) {
  DictObj* t = table(d.in, m, which);
  if (!t->find(name)) remove_everywhere(d, m, name);
  t->set(d.in, d.in.str(name), v);
}

void set_buffer(Domain& d, InstanceObj* m, const std::string& name, const Value& v, const Value& persistent) {
  remove_everywhere(d, m, name);
  table(d.in, m, "_buffers")->set(d.in, d.in.str(name), v);
  if (!d.in.truth(persistent).value_or(true)) {
    Value set = d.in.getattr_or(m, "_non_persistent");
    if (!set.is(Kind::Dict)) {
      set = d.in.dict();
      d.in.plain_setattr(m, "_non_persistent", set);
    }
    set.as<DictObj>()->set(d.in, d.in.str(name), Value::boolean(true));
  }
  record_write(d, m, name, v, AttrWrite::Buffer);
}

/// torch refuses parameters and modules of a module whose own __init__ has not run. Nothing is said where a base could not be followed, and
/// of models in C++, whose bases need no call.
void expect_initialised(Domain& d, InstanceObj* m, const char* what, const CallInfo& info) {
  if (d.initialised.count(m) || !m->cls->def) return;
  const auto unknown = [](const ClassObj* c) { return c->unknown_base.is_unknown(); };
  if (std::any_of(m->cls->mro.begin(), m->cls->mro.end(), unknown)) return;
  if (!d.in.sources.file(m->cls->def->range.file).path.ends_with(".py")) return;
  d.in.raise("AttributeError", std::string("cannot assign ") + what + " before Module.__init__() call", info.call);
}

Value module_setattr(Domain& d, CallInfo& info) {
  Interpreter& in = d.in;
  InstanceObj* m = instance(in, info.args.at(0));
  const std::string name = in.to_str(info.args.at(1));
  const Value v = info.args.at(2);
  // Properties of the class come first.
  if (Value own = m->cls->lookup(name); own.is(Kind::Property)) {
    in.plain_setattr(m, name, v);
    return Value::none();
  }
  if (is_parameter(d, v)) {
    expect_initialised(d, m, "parameters", info);
    set_in(d, m, "_parameters", name, v);
    record_write(d, m, name, v, AttrWrite::Parameter);
  } else if (v.is(Kind::Tensor) && v.obj()->cls == d.buffer_class) {
    set_buffer(d, m, name, v, in.getattr_or(v, "persistent"));
  } else if (is_module(d, v)) {
    expect_initialised(d, m, "module", info);
    set_in(d, m, "_modules", name, v);
    record_write(d, m, name, v, AttrWrite::Child);
  } else if (table(in, m, "_parameters")->find(name)) {
    if (!v.is_none())
      in.raise("TypeError", "cannot assign '" + in.type_of(v)->name + "' as parameter '" + name + "' (torch.nn.Parameter or None expected)",
               info.call);
    table(in, m, "_parameters")->set(in, in.str(name), v);
    record_write(d, m, name, v, AttrWrite::Parameter);
  } else if (table(in, m, "_modules")->find(name)) {
    if (!v.is_none() && !v.is_unknown())
      in.raise("TypeError", "cannot assign '" + in.type_of(v)->name + "' as child module '" + name + "' (torch.nn.Module or None expected)",
               info.call);
    table(in, m, "_modules")->set(in, in.str(name), v);
    record_write(d, m, name, v, AttrWrite::Child);
  } else if (table(in, m, "_buffers")->find(name)) {
    table(in, m, "_buffers")->set(in, in.str(name), v);
    record_write(d, m, name, v, AttrWrite::Buffer);
    in.state_written(m, name);
  } else {
    in.plain_setattr(m, name, v);
    if (name != "training") record_write(d, m, name, v, AttrWrite::Plain);
  }
  return Value::none();
}

Value module_getattr(Domain& d, CallInfo& info) {
  Interpreter& in = d.in;
  InstanceObj* m = instance(in, info.args.at(0));
  const std::string name = in.to_str(info.args.at(1));
  for (const char* t : {"_parameters", "_buffers", "_modules"})
    if (Value* v = table(in, m, t)->find(name)) {
      in.state_read(m, name, *v);
      if (v->is(Kind::Tensor)) in.state_read(v->obj(), "", Value());  // written in place
      return *v;
    }
  if (m->cls->unknown_base.set())
    return in.unknown("attribute '" + name + "' of a class with a base that could not be followed", info.call);
  in.raise("AttributeError", "'" + m->cls->name + "' object has no attribute '" + name + "'", info.call);
}

Value module_delattr(Domain& d, CallInfo& info) {
  remove_everywhere(d, instance(d.in, info.args.at(0)), d.in.to_str(info.args.at(1)));
  return Value::none();
}

/// Tensors that a job's expression made (`x: "=torch.randn(1, 3)"`) are inputs like those given by their shape.
void adopt_inputs(Domain& d) {
  model::Trace& t = d.in.trace;
  for (const auto& [name, binding] : t.inputs)
    for (TensorId id : model::tensors_of(binding)) {
      model::Tensor& x = t.tensors[static_cast<std::size_t>(id)];
      if (x.origin != model::Origin::Result && x.origin != model::Origin::Constant) continue;
      x.origin = model::Origin::Input;
      x.name = name;
      x.producer = -1;
      x.from_input = true;
    }
}

Value module_call(Domain& d, CallInfo& info) {
  Interpreter& in = d.in;
  InstanceObj* m = instance(in, info.args.at(0));
  if (m->module_id < 0) add_module_entry(d, m, nullptr);  // of an earlier run (start_over)
  if (!in.init_phase && d.module_stack.empty()) adopt_inputs(d);
  Value forward = in.getattr(m, "forward", info.call);
  CallInfo rest;
  rest.call = info.call;
  rest.via_partial = info.via_partial;
  for (std::size_t i = 1; i < info.args.size(); ++i) rest.add(info.args[i], info.expr(i));
  rest.kwargs = info.kwargs;
  std::size_t index = in.trace.calls.size();
  model::ModuleCall c;
  c.module = m->module_id;
  c.call = info.call;
  if (ActiveFrame* f = in.frame()) {
    c.caller = f->id;
    c.step = f->step;
  }
  for (const Value& v : rest.args) c.arguments.push_back(in.bind_summary(v));
  for (const Keyword& k : rest.kwargs) c.arguments.push_back(in.bind_summary(k.value));
  c.begin = in.tick();
  in.trace.calls.push_back(std::move(c));
  std::size_t first_frame = in.trace.frames.size();
  struct Pop {
    Domain& d;
    ~Pop() { d.module_stack.pop_back(); }
  };
  d.module_stack.push_back(m->module_id);
  Value result;
  {
    Pop pop{d};
    result = in.call(forward, rest);
  }
  model::ModuleCall& done = in.trace.calls[index];
  done.result = in.bind_summary(result);
  done.end = in.tick();
  for (std::size_t i = first_frame; i < in.trace.frames.size(); ++i) {
    const model::Frame& f = in.trace.frames[i];
    if (f.self == m->module_id && f.function && f.function->name == "forward") {
      done.callee = f.id;
      break;
    }
  }
  return result;
}

// ---- walks -------------------------------------------------------------------------------------------------------------------

struct Visit {
  std::string name;
  InstanceObj* module;
};

/// Pre-order, each module once (unless `twice`).
void walk(Domain& d, InstanceObj* m, const std::string& prefix, bool twice, std::vector<InstanceObj*>& seen, std::vector<Visit>& out) {
  if (!twice && std::find(seen.begin(), seen.end(), m) != seen.end()) return;
  if (out.size() > 200000) return;
  seen.push_back(m);
  out.push_back({prefix, m});
  for (const auto& e : std::vector<DictObj::Entry>(table(d.in, m, "_modules")->entries))
    if (e.alive && is_module(d, e.value))
      walk(d, e.value.as<InstanceObj>(), prefix + (prefix.empty() ? "" : ".") + d.in.to_str(e.key), twice, seen, out);
}

std::vector<Visit> walk(Domain& d, InstanceObj* m, bool twice = false) {
  std::vector<InstanceObj*> seen;
  std::vector<Visit> out;
  walk(d, m, "", twice, seen, out);
  return out;
}

struct Options {
  std::string prefix;
  bool recurse = true;
  bool once = true;
};

Options options(Domain& d, CallInfo& info, bool named) {
  Options o;
  std::size_t at = 1;
  if (named) {
    if (info.args.size() > at && info.args[at].is(Kind::Str)) o.prefix = info.args[at].str();
    ++at;
  }
  if (info.args.size() > at) o.recurse = d.in.truth(info.args[at]).value_or(true);
  if (auto* k = info.keyword("prefix"); k && k->value.is(Kind::Str)) o.prefix = k->value.str();
  if (auto* k = info.keyword("recurse")) o.recurse = d.in.truth(k->value).value_or(true);
  if (auto* k = info.keyword("remove_duplicate")) o.once = d.in.truth(k->value).value_or(true);
  return o;
}

std::vector<std::pair<std::string, Value>> tensors(Domain& d, InstanceObj* m, const char* which, const Options& o) {
  std::vector<std::pair<std::string, Value>> out;
  std::vector<const Obj*> seen;
  std::vector<Visit> modules = o.recurse ? walk(d, m, !o.once) : std::vector<Visit>{{"", m}};
  for (const Visit& v : modules)
    for (const auto& e : table(d.in, v.module, which)->entries) {
      if (!e.alive || !e.value.is(Kind::Tensor)) continue;
      if (o.once && std::find(seen.begin(), seen.end(), e.value.obj()) != seen.end()) continue;
      seen.push_back(e.value.obj());
      std::string name = v.name + (v.name.empty() ? "" : ".") + d.in.to_str(e.key);
      out.emplace_back(o.prefix.empty() ? name : o.prefix + "." + name, e.value);
    }
  return out;
}

Value iterator(Domain& d, std::vector<Value> items) { return d.in.iter(d.in.list(std::move(items))); }

Value tensors_method(Domain& d, CallInfo& info, const char* which, bool named) {
  std::vector<Value> items;
  for (auto& [name, v] : tensors(d, instance(d.in, info.args.at(0)), which, options(d, info, named)))
    items.push_back(named ? d.in.tuple({d.in.str(name), v}) : v);
  return iterator(d, std::move(items));
}

Value modules_method(Domain& d, CallInfo& info, bool named) {
  std::vector<Value> items;
  for (const Visit& v : walk(d, instance(d.in, info.args.at(0))))
    items.push_back(named ? d.in.tuple({d.in.str(v.name), v.module}) : Value(v.module));
  return iterator(d, std::move(items));
}

Value children_method(Domain& d, CallInfo& info, bool named) {
  std::vector<Value> items;
  for (const auto& e : table(d.in, instance(d.in, info.args.at(0)), "_modules")->entries)
    if (e.alive && is_module(d, e.value)) items.push_back(named ? d.in.tuple({e.key, e.value}) : e.value);
  return iterator(d, std::move(items));
}

Value self_of(Domain&, CallInfo& info) { return info.args.at(0); }

/// f(child) for every child, then f(self), as PyTorch does.
void apply(Domain& d, const Value& m, const Value& f, const program::Expr* call, int depth) {
  if (depth > 200) return;
  for (const auto& e : std::vector<DictObj::Entry>(table(d.in, m.as<InstanceObj>(), "_modules")->entries))
    if (e.alive && is_module(d, e.value)) apply(d, e.value, f, call, depth + 1);
  d.in.call(f, {m}, call);
}

Value train(Domain& d, CallInfo& info) {
  InstanceObj* m = instance(d.in, info.args.at(0));
  bool mode = info.args.size() > 1 ? d.in.truth(info.args[1]).value_or(true)
      : info.keyword("mode")       ? d.in.truth(info.keyword("mode")->value).value_or(true)
                                   : true;
  d.in.plain_setattr(m, "training", Value::boolean(mode));
  if (m->module_id >= 0) d.in.trace.modules[static_cast<std::size_t>(m->module_id)].training = mode;
  for (const auto& e : std::vector<DictObj::Entry>(table(d.in, m, "_modules")->entries))
    if (e.alive && is_module(d, e.value)) d.in.call(d.in.getattr(e.value, "train"), {Value::boolean(mode)}, info.call);
  return m;
}

/// module.to(dtype), .half(), .double(): parameters and buffers of floating types change theirs.
Value convert(Domain& d, CallInfo& info, std::optional<DType> type) {
  InstanceObj* m = instance(d.in, info.args.at(0));
  if (!type) {
    for (std::size_t i = 1; i < info.args.size(); ++i)
      if (auto t = d.as_dtype(info.args[i])) type = t;
    if (auto* k = info.keyword("dtype")) type = d.as_dtype(k->value);
  }
  if (!type) return m;
  for (const Visit& v : walk(d, m))
    for (const char* which : {"_parameters", "_buffers"})
      for (const auto& e : table(d.in, v.module, which)->entries)
        if (e.alive && e.value.is(Kind::Tensor)) {
          model::Tensor& t = d.in.trace.tensors[static_cast<std::size_t>(d.id(e.value))];
          if (model::is_floating(t.dtype) && t.dtype != DType::C64 && t.dtype != DType::C128) t.dtype = *type;
        }
  return m;
}

Value register_buffer(Domain& d, CallInfo& info) {
  static const Signature signature("register_buffer", "self, name, tensor, persistent=True");
  auto b = signature.bind(d.in, info);
  InstanceObj* m = instance(d.in, b[0]);
  if (b[2].is_unknown() && d.in.init_phase && !d.observer &&
      d.in.truth(b[3]).value_or(true))  // it is in the state dict, under a size that nobody could say
    d.in.raise("RuntimeError", "the size of the buffer '" + d.in.to_str(b[1]) + "' cannot be told: " + b[2].as<UnknownObj>()->why,
               info.call);
  set_buffer(d, m, d.in.to_str(b[1]), b[2], b[3]);
  if (!d.in.trace.attr_writes.empty() && d.in.trace.attr_writes.back().owner == m->module_id) {
    const program::Expr* e = b.expr(2);
    ActiveFrame* f = d.in.frame();
    d.in.trace.attr_writes.back().value_expr = f && !f->builtin ? e : nullptr;
  }
  return Value::none();
}

Value register_parameter(Domain& d, CallInfo& info) {
  static const Signature signature("register_parameter", "self, name, param");
  auto b = signature.bind(d.in, info);
  InstanceObj* m = instance(d.in, b[0]);
  const std::string name = d.in.to_str(b[1]);
  set_in(d, m, "_parameters", name, b[2]);
  record_write(d, m, name, b[2], AttrWrite::Parameter);
  return Value::none();
}

Value add_module(Domain& d, CallInfo& info) {
  static const Signature signature("add_module", "self, name, module");
  auto b = signature.bind(d.in, info);
  InstanceObj* m = instance(d.in, b[0]);
  const std::string name = d.in.to_str(b[1]);
  if (!is_module(d, b[2]) && !b[2].is_none() && !b[2].is_unknown())
    d.in.raise("TypeError", d.in.to_repr(b[2]) + " is not a Module subclass", info.call);
  set_in(d, m, "_modules", name, b[2]);
  record_write(d, m, name, b[2], AttrWrite::Child);
  return Value::none();
}

Value get_submodule(Domain& d, CallInfo& info) {
  Value at = info.args.at(0);
  std::string path = info.args.size() > 1 ? d.in.to_str(info.args[1]) : "";
  for (std::size_t i = 0; i < path.size();) {
    std::size_t dot = std::min(path.find('.', i), path.size());
    at = d.in.getattr(at, path.substr(i, dot - i), info.call);
    i = dot + 1;
  }
  return at;
}

Value state_dict(Domain& d, CallInfo& info) {
  InstanceObj* m = instance(d.in, info.args.at(0));
  Value out = d.in.dict();
  Options o;
  o.once = false;
  if (auto* k = info.keyword("prefix")) o.prefix = d.in.to_str(k->value);
  for (const char* which : {"_parameters", "_buffers"})
    for (auto& [name, v] : tensors(d, m, which, o)) out.as<DictObj>()->set(d.in, d.in.str(name), v);
  return out;
}

Value module_dir(Domain& d, CallInfo& info) {
  InstanceObj* m = instance(d.in, info.args.at(0));
  std::vector<Value> names;
  if (m->attrs)
    for (const auto& item : *m->attrs) names.push_back(d.in.str(item.name));
  for (const char* t : {"_parameters", "_buffers", "_modules"})
    for (const auto& e : table(d.in, m, t)->entries)
      if (e.alive) names.push_back(e.key);
  return d.in.list(std::move(names));
}

/// copy.deepcopy(module): the copy stands where its original was constructed.
Value module_deepcopy(Domain& d, CallInfo& info) {
  Interpreter& in = d.in;
  InstanceObj* from = instance(in, info.args.at(0));
  DictObj* memo = info.args.size() > 1 && info.args[1].is(Kind::Dict) ? info.args[1].as<DictObj>() : in.dict().as<DictObj>();
  auto* to = in.make<InstanceObj>(from->cls);
  Value id = in.call(in.import_name("builtins.id"), {from});
  memo->set(in, id, to);
  model::ModuleId old = from->module_id;
  add_module_entry(d, to, nullptr);
  if (d.initialised.count(from)) d.initialised.insert(to);
  model::ModuleId fresh = to->module_id;
  {
    model::Module& a = in.trace.modules[static_cast<std::size_t>(fresh)];
    const model::Module& b = in.trace.modules[static_cast<std::size_t>(old)];
    a.cloned_from = old;
    a.construct_partial = b.construct_partial;
    a.construct_call = b.construct_call;
    a.construct_frame = b.construct_frame;
    a.construct_step = b.construct_step;
    a.construct_iters = b.construct_iters;
    a.init_frame = b.init_frame;
    a.ctor_args = b.ctor_args;
    a.ctor_exprs = b.ctor_exprs;
  }
  if (from->attrs)
    for (const auto& item : std::vector<NameMap::Item>(from->attrs->begin(), from->attrs->end()))
      in.plain_setattr(to, item.name, in.deepcopy(item.value, memo));
  // What is known of the original's attributes is known of the copy's.
  std::size_t n = in.trace.attr_writes.size();
  for (std::size_t i = 0; i < n; ++i) {
    if (in.trace.attr_writes[i].owner != old) continue;
    AttrWrite w = in.trace.attr_writes[i];
    w.owner = fresh;
    Value now = in.getattr_or(to, w.name);
    if (now.set()) w.value = in.bind_summary(now);
    w.clock = in.tick();
    in.trace.attr_writes.push_back(std::move(w));
  }
  return to;
}

Value requires_grad(Domain& d, CallInfo& info) {
  bool on = info.args.size() > 1      ? d.in.truth(info.args[1]).value_or(true)
      : info.keyword("requires_grad") ? d.in.truth(info.keyword("requires_grad")->value).value_or(true)
                                      : true;
  for (auto& [name, v] : tensors(d, instance(d.in, info.args.at(0)), "_parameters", {})) {
    model::Tensor& t = d.in.trace.tensors[static_cast<std::size_t>(d.id(v))];
    t.requires_grad = on && model::is_floating(t.dtype);
  }
  return info.args[0];
}

Value hook(Domain& d, CallInfo& info, const char* which) {
  d.in.note_incomplete(d.in.range_of(info.call), std::string(which) + ": hooks are not followed");
  for (auto& [name, v] : tensors(d, instance(d.in, info.args.at(0)), "_parameters", {})) d.in.trace.hooked.insert(d.id(v));
  return d.in.import_name("torch._handle");
}

/// Renumbers modules so that `root` is 0.
void swap_modules(Domain& d, model::ModuleId root) {
  model::Trace& t = d.in.trace;
  auto swapped = [root](model::ModuleId& m) { m = m == 0 ? root : m == root ? 0 : m; };
  std::function<void(model::Binding&)> in_binding = [&](model::Binding& b) {
    swapped(b.module);
    for (auto& item : b.items) in_binding(item.second);
  };
  std::swap(t.modules[0], t.modules[static_cast<std::size_t>(root)]);
  std::swap(d.instances[0], d.instances[static_cast<std::size_t>(root)]);
  for (InstanceObj* m : {d.instances[0], d.instances[static_cast<std::size_t>(root)]})
    if (m) swapped(m->module_id);
  for (auto& m : t.modules) {
    swapped(m.id);
    swapped(m.parent);
    swapped(m.cloned_from);
    for (auto& child : m.children) swapped(child.second);
    for (auto& arg : m.ctor_args) in_binding(arg.second);
  }
  for (auto& op : t.ops) swapped(op.module);
  for (auto& f : t.frames) swapped(f.self);
  for (auto& w : t.attr_writes) {
    swapped(w.owner);
    in_binding(w.value);
  }
  for (auto& w : t.var_writes) in_binding(w.value);
  for (auto& w : t.content_writes) in_binding(w.value);
  for (auto& c : t.calls) {
    swapped(c.module);
    for (auto& a : c.arguments) in_binding(a);
    in_binding(c.result);
  }
  for (auto& i : t.incomplete) swapped(i.module);
  for (ActiveFrame* f : d.in.stack()) swapped(f->self);
}

/// Fills Module::params, children, parent, attr, fqn and the names of tensors from the objects.
void label(Domain& d, InstanceObj* m, const std::string& fqn, std::vector<char>& seen) {
  std::size_t id = static_cast<std::size_t>(m->module_id);
  if (seen[id]) return;
  seen[id] = 1;
  Interpreter& in = d.in;
  {
    model::Module& entry = in.trace.modules[id];
    entry.fqn = fqn;
    entry.params.clear();
    entry.children.clear();
    Value off = m->attrs ? m->attrs->get("_non_persistent") : Value();
    for (const char* which : {"_parameters", "_buffers"}) {
      bool buffer = which[1] == 'b';
      for (const auto& e : table(in, m, which)->entries) {
        if (!e.alive || !e.value.is(Kind::Tensor)) continue;
        model::ParamRef ref;
        ref.attr = in.to_str(e.key);
        ref.tensor = d.id(e.value);
        ref.buffer = buffer;
        ref.persistent = !buffer || !off.is(Kind::Dict) || !off.as<DictObj>()->find(ref.attr);
        model::Tensor& t = in.trace.tensors[static_cast<std::size_t>(ref.tensor)];
        if (t.name.empty() || t.origin == model::Origin::Result || t.origin == model::Origin::Constant)
          t.name = (fqn.empty() ? "" : fqn + ".") + ref.attr;
        if (buffer && t.origin != model::Origin::Parameter) t.origin = model::Origin::Buffer;
        entry.params.push_back(std::move(ref));
      }
    }
    for (const auto& e : table(in, m, "_modules")->entries)
      if (e.alive && is_module(d, e.value) && e.value.as<InstanceObj>()->module_id >= 0)  // not one of an earlier run (start_over)
        entry.children.emplace_back(in.to_str(e.key), e.value.as<InstanceObj>()->module_id);
  }
  const auto children = in.trace.modules[id].children;
  for (const auto& [name, child] : children) {
    model::Module& c = in.trace.modules[static_cast<std::size_t>(child)];
    if (!seen[static_cast<std::size_t>(child)]) {
      c.parent = m->module_id;
      c.attr = name;
    }
    label(d, d.instances[static_cast<std::size_t>(child)], (fqn.empty() ? "" : fqn + ".") + name, seen);
  }
}

}  // namespace

void register_module_class(Domain& d) {
  Interpreter& in = d.in;
  ClassObj* c = in.make_class("torch.nn.modules.module", "Module");
  c->builtin = true;
  d.module_class = c;
  auto method = [&](const char* name, auto f) {
    in.method(c, name, [&d, f](Interpreter&, CallInfo& info) -> Value { return f(d, info); });
  };
  method("__new__", module_new);
  method("__init__", [](Domain& d, CallInfo& info) {
    d.initialised.insert(instance(d.in, info.args.at(0)));
    return Value::none();
  });
  method("__setattr__", module_setattr);
  method("__getattr__", module_getattr);
  method("__delattr__", module_delattr);
  method("__call__", module_call);
  method("_call_impl", module_call);
  method("__deepcopy__", module_deepcopy);
  method("__dir__", module_dir);
  method("register_buffer", register_buffer);
  method("register_parameter", register_parameter);
  method("add_module", add_module);
  method("register_module", add_module);
  method("parameters", [](Domain& d, CallInfo& i) { return tensors_method(d, i, "_parameters", false); });
  method("named_parameters", [](Domain& d, CallInfo& i) { return tensors_method(d, i, "_parameters", true); });
  method("buffers", [](Domain& d, CallInfo& i) { return tensors_method(d, i, "_buffers", false); });
  method("named_buffers", [](Domain& d, CallInfo& i) { return tensors_method(d, i, "_buffers", true); });
  method("modules", [](Domain& d, CallInfo& i) { return modules_method(d, i, false); });
  method("named_modules", [](Domain& d, CallInfo& i) { return modules_method(d, i, true); });
  method("children", [](Domain& d, CallInfo& i) { return children_method(d, i, false); });
  method("named_children", [](Domain& d, CallInfo& i) { return children_method(d, i, true); });
  method("apply", [](Domain& d, CallInfo& i) {
    apply(d, i.args.at(0), i.args.size() > 1 ? i.args[1] : i.kwargs.at(0).value, i.call, 0);
    return i.args[0];
  });
  method("train", train);
  method("eval", [](Domain& d, CallInfo& i) { return d.in.call(d.in.getattr(i.args.at(0), "train"), {Value::boolean(false)}, i.call); });
  method("to", [](Domain& d, CallInfo& i) { return convert(d, i, std::nullopt); });
  method("type", [](Domain& d, CallInfo& i) { return convert(d, i, std::nullopt); });
  method("half", [](Domain& d, CallInfo& i) { return convert(d, i, DType::F16); });
  method("bfloat16", [](Domain& d, CallInfo& i) { return convert(d, i, DType::BF16); });
  method("float", [](Domain& d, CallInfo& i) { return convert(d, i, DType::F32); });
  method("double", [](Domain& d, CallInfo& i) { return convert(d, i, DType::F64); });
  for (const char* name : {"cuda", "cpu", "npu", "xpu", "to_empty", "share_memory", "compile", "requires_grad_", "zero_grad"})
    method(name, self_of);
  method("requires_grad_", requires_grad);
  method("zero_grad", [](Domain&, CallInfo&) { return Value::none(); });
  method("get_submodule", get_submodule);
  method("get_parameter", get_submodule);
  method("get_buffer", get_submodule);
  method("state_dict", state_dict);
  method("load_state_dict", [](Domain& d, CallInfo&) { return d.in.import_name("torch._loaded_keys"); });
  method("extra_repr", [](Domain& d, CallInfo&) { return d.in.str(""); });
  method("_get_name", [](Domain& d, CallInfo& i) { return d.in.str(d.in.type_of(i.args.at(0))->name); });
  method("__repr__", [](Domain& d, CallInfo& i) { return d.in.str(d.in.type_of(i.args.at(0))->name + "(...)"); });
  method("_load_from_state_dict", [](Domain&, CallInfo&) { return Value::none(); });
  method("_save_to_state_dict", [](Domain&, CallInfo&) { return Value::none(); });
  method("set_extra_state", [](Domain&, CallInfo&) { return Value::none(); });
  method("_apply", self_of);
  static constexpr const char* changing[] = {"register_forward_hook", "register_forward_pre_hook"};
  for (const char* name : changing) method(name, [name](Domain& d, CallInfo& i) { return hook(d, i, name); });
  static constexpr const char* harmless[] = {"register_full_backward_hook",        "register_backward_hook",
                                             "register_full_backward_pre_hook",    "register_state_dict_pre_hook",
                                             "_register_state_dict_hook",          "_register_load_state_dict_pre_hook",
                                             "register_load_state_dict_post_hook", "register_load_state_dict_pre_hook",
                                             "register_state_dict_post_hook",      "_register_load_state_dict_post_hook"};
  for (const char* name : harmless) method(name, [](Domain& d, CallInfo&) { return d.in.import_name("torch._handle"); });
  in.modules.native("torch.nn.modules.module", [c](Interpreter&, ModuleObj& m) { m.env.vars.set("Module", c); });
}

}  // namespace shardwright::eval::torch

namespace shardwright::eval {

using torch::Domain;

Value make_input(Interpreter& in, const std::string& name, const InputSpec& spec) {
  Domain& d = torch::domain(in);
  model::TensorId id = d.new_tensor({spec.shape, spec.dtype, {}}, model::Origin::Input);
  model::Tensor& t = in.trace.tensors[static_cast<std::size_t>(id)];
  t.name = name;
  t.from_input = true;
  // A float input's gradient is of no use to anybody, but what depends on it may sit between two parameters.
  t.requires_grad = false;
  return d.wrap(id);
}

void finish_model(Interpreter& in, const Value& model, bool training) {
  Domain& d = torch::domain(in);
  if (!model.is(Kind::Instance) || !model.obj()->cls || !model.obj()->cls->derives_from(d.module_class))
    in.raise("TypeError", "the model is a " + in.type_of(model)->name + ", not a torch.nn.Module");
  auto* root = model.as<InstanceObj>();
  if (root->module_id != 0) torch::swap_modules(d, root->module_id);
  std::vector<char> seen(in.trace.modules.size(), 0);
  torch::label(d, root, "", seen);
  for (model::Frame& f : in.trace.frames)
    if (f.self >= 0 && f.function && f.function->name == "__init__" && !f.builtin) {
      model::Module& m = in.trace.modules[static_cast<std::size_t>(f.self)];
      if (m.init_frame < 0) m.init_frame = f.id;
    }
  // What was computed while building is there before forward starts: a constant, unless it is registered.
  for (model::Tensor& t : in.trace.tensors)
    if (t.origin == model::Origin::Result) t.origin = model::Origin::Constant;
  in.call(in.getattr(model, "train"), {Value::boolean(training)});
}

}  // namespace shardwright::eval
