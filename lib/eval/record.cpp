// Construction, unknown values, exceptions, and what goes into the trace besides frames and steps.
#include <sys/resource.h>

#include "eval/impl.h"

namespace shardwright::eval {

In::Impl::Impl(Interpreter& i) : in(i) {}

Interpreter::Interpreter(support::SourceManager& sm, ModuleSource& src, model::Trace& tr)
    : sources(sm), loader(src), trace(tr), impl_(std::make_unique<Impl>(*this)) {
  char here = 0;
  rlimit lim{};
  std::size_t size = 8u << 20;
  if (getrlimit(RLIMIT_STACK, &lim) == 0 && lim.rlim_cur != RLIM_INFINITY) size = lim.rlim_cur;
  impl_->stack_limit = &here - (size > (1u << 20) ? size - (1u << 20) + (1u << 18) : size / 2);
  impl_->make_types();
  register_exceptions(*this);
  register_stdlib(*this);
}

Interpreter::~Interpreter() {
  // Abandoned generators unwind through frames that touch the interpreter: they go first, while it is whole.
  for (std::size_t i = 0; i < heap_.size(); ++i)
    if (heap_[i]->kind == Kind::Iterator)
      if (auto* g = dynamic_cast<GeneratorObj*>(heap_[i].get())) g->co.reset();
  stack_.clear();
}

void register_stdlib(Interpreter& in) {
  register_builtins(in);
  register_numbers(in);
  register_str(in);
  register_containers(in);
  register_math(in);
  register_functional(in);
  register_system(in);
  register_regex(in);
  register_numpy(in);
  register_python_sources(in);
}

Range In::here() const {
  Range described;  // inside our own descriptions of a library, where no user's code is above
  for (auto it = stack_.rbegin(); it != stack_.rend(); ++it) {
    if (!(*it)->stmt) continue;
    if (!(*it)->builtin) return (*it)->stmt->range;
    if (!described.valid()) described = (*it)->stmt->range;
  }
  return described;
}

Value In::unknown(std::string why, const Expr* where) { return unknown(std::move(why), where ? where->range : here()); }
Value In::unknown(std::string why, Range where) { return make<UnknownObj>(std::move(why), where); }

void In::note_incomplete(Range where, std::string why) {
  // Inside our own descriptions it is the user's statement that is named.
  if (!where.valid() || (!stack_.empty() && stack_.back()->builtin && here().valid())) where = here();
  auto key = (static_cast<std::uint64_t>(static_cast<std::uint32_t>(where.file)) << 32) | where.begin;
  if (!impl_->noted.insert({key, why}).second) return;
  model::ModuleId m = -1;
  for (auto it = stack_.rbegin(); it != stack_.rend() && m < 0; ++it) m = (*it)->self;
  trace.incomplete.push_back({where, std::move(why), m});
}

void In::raise(std::string_view type, std::string message, const Expr* where) {
  ClassObj* c = builtin_class(type);
  if (!c) c = builtin_class("Exception");
  Value e = call(c, {str(std::move(message))});
  raise_value(e, where ? where->range : Range{});
}

void In::raise_value(Value e, Range where) {
  PyError err;
  err.exception = e;
  bool first = true;
  for (auto it = stack_.rbegin(); it != stack_.rend(); ++it) {
    ActiveFrame* f = *it;
    Range r = first && where.valid() ? where : f->stmt ? f->stmt->range : Range{};
    // A raise in our own descriptions is reported where the user's code called them.
    if (!first && !r.valid()) continue;
    if (!first && it != stack_.rbegin()) {
      ActiveFrame* callee = *(it - 1);
      if (callee->call) r = callee->call->range;
    }
    first = false;
    if (f->builtin) continue;
    err.trace.emplace_back(r, f->name);
  }
  if (err.trace.empty()) err.trace.emplace_back(where, "");
  throw PyError(err);
}

std::string In::describe(const PyError& e) {
  std::string name = type_of(e.exception)->name, text;
  try {
    text = to_str(e.exception);
  } catch (PyError&) { text = "?"; }
  return text.empty() ? name : name + ": " + text;
}

Site In::site(const Expr* expr) const {
  Site s;
  s.direct = true;
  for (auto it = stack_.rbegin(); it != stack_.rend(); ++it) {
    ActiveFrame* f = *it;
    if (f->id < 0) return s;  // top-level code of a module
    if (!f->builtin) {
      s.frame = f->id;
      s.step = f->step;
      s.expr = expr;
      s.iters = f->iters;
      return s;
    }
    s.direct = false;
    expr = f->call;
  }
  return s;
}

model::Binding In::bind_summary(const Value& v, int depth) {
  using B = model::Binding;
  B b;
  if (tensors_only) depth = std::min(depth, 1);
  switch (v.kind()) {
    case Kind::None: b.kind = B::None; return b;
    case Kind::Bool:
      b.kind = B::Bool;
      b.integer = v.as_int();
      b.sym = v.sym();
      return b;
    case Kind::Int:
      b.kind = B::Int;
      b.integer = v.as_int();
      b.number = v.as_double();
      b.sym = v.sym();
      return b;
    case Kind::Float:
      b.kind = B::Float;
      b.number = v.as_double();
      b.sym = v.sym();
      return b;
    case Kind::Str:
      b.kind = B::Str;
      b.text = v.str();
      return b;
    case Kind::Tensor:
      b.kind = B::Tensor;
      b.tensor = v.as<TensorObj>()->id;
      return b;
    case Kind::Function:
    case Kind::BoundMethod:
    case Kind::Native:
    case Kind::Class:
      b.kind = B::Function;
      b.text = v.is(Kind::Class) ? v.as<ClassObj>()->qualified() : v.is(Kind::Function) ? v.as<FunctionObj>()->qualname : "";
      if (v.is(Kind::BoundMethod) && depth > 0) b.items.emplace_back("self", bind_summary(v.as<BoundMethodObj>()->self, 0));
      return b;
    case Kind::Tuple:
    case Kind::List:
      b.kind = B::Sequence;
      b.text = v.is(Kind::Tuple) ? "tuple" : "list";
      // A named tuple carries its class instead, so that it can be built again.
      if (const Value fields = v.is(Kind::Tuple) ? type_of(v)->lookup("_fields") : Value(); fields.is(Kind::Tuple))
        b.text = type_of(v)->qualified();
      if (depth > 0)
        for (const auto& x : v.as<SeqObj>()->items) {
          if (b.items.size() >= 512) break;
          b.items.emplace_back("", bind_summary(x, depth - 1));
        }
      return b;
    case Kind::Dict:
      b.kind = B::Mapping;
      b.text = type_of(v)->name;
      if (depth > 0)
        for (const auto& e : v.as<DictObj>()->entries) {
          if (!e.alive) continue;
          if (b.items.size() >= 256) break;
          if (!e.key.is(Kind::Str) && b.keys.empty()) {
            b.keys.assign(b.items.size(), "");
            for (std::size_t i = 0; i < b.items.size(); ++i) b.keys[i] = to_repr(str(b.items[i].first));
          }
          b.items.emplace_back(e.key.is(Kind::Str)       ? e.key.str()
                                   : e.key.is_integral() ? std::to_string(e.key.as_int())
                                                         : type_of(e.key)->name,
                               bind_summary(e.value, depth - 1));
          if (!e.key.is(Kind::Str) || !b.keys.empty())
            b.keys.push_back(e.key.is(Kind::Str) || e.key.is_integral() || e.key.is(Kind::Float) || e.key.is_none() ? to_repr(e.key) : "");
        }
      return b;
    case Kind::Instance: {
      auto* o = v.as<InstanceObj>();
      if (o->module_id >= 0) {
        b.kind = B::Module;
        b.module = o->module_id;
        b.text = o->cls->qualified();
        return b;
      }
      b.kind = B::Object;
      b.text = o->cls->qualified();
      if (depth > 0 && o->attrs)
        for (const auto& a : *o->attrs) {
          if (b.items.size() >= 128) break;
          b.items.emplace_back(a.name, bind_summary(a.value, depth - 1));
        }
      return b;
    }
    default:
      b.kind = B::Other;
      b.text = v.is_unknown() ? "unknown: " + v.as<UnknownObj>()->why : type_of(v)->name;
      return b;
  }
}

}  // namespace shardwright::eval
