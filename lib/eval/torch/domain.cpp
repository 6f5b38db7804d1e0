#include "eval/torch/domain.h"

#include <algorithm>

#include "eval/torch_link.h"

namespace shardwright::eval::torch {

using model::Linearity;
using model::Origin;
using model::Prim;

// ---- building operations -------------------------------------------------------------------------------------------------

Build::Build(Domain& dom, std::string name, Prim prim, const Site& site) : d(dom), direct(site.direct) {
  op.name = std::move(name);
  op.prim = prim;
  op.frame = site.frame;
  op.step = site.step;
  op.site = site.expr;
}

void Build::operand(TensorId t, std::string param, const program::Expr* e, bool bias) {
  if (auto written = d.overwritten.find(t); written != d.overwritten.end()) {
    TensorId by = written->second;
    d.overwritten.erase(written);
    const model::Tensor old = d.tensor(t);
    Site site;
    site.frame = op.frame;
    site.step = op.step;
    site.expr = op.site;
    t = d.opaque("torch.Tensor.write_through_view", site, {t, by}, {old.shape, old.dtype, old.literal_one},
                 "memory was written through a view");
  }
  op.inputs.push_back({t, std::move(param), direct ? e : nullptr, bias});
}

int Build::label(std::int64_t size, bool blocked, std::string why) {
  op.labels.push_back({size, blocked, std::move(why)});
  return static_cast<int>(op.labels.size()) - 1;
}

std::vector<int> Build::fresh(TensorId t) {
  std::vector<int> out;
  const Shape shape = d.shape(t);
  const std::vector<char> ones = d.tensor(t).literal_one;
  for (std::size_t i = 0; i < shape.size(); ++i) out.push_back(shape[i] == 1 && i < ones.size() && ones[i] ? -1 : label(shape[i]));
  return out;
}

std::vector<TensorId> Build::done(std::vector<Out> outs) {
  model::Trace& trace = d.in.trace;
  op.id = static_cast<model::OpId>(trace.ops.size());
  op.clock = d.in.tick();
  op.module = d.module_stack.empty() ? -1 : d.module_stack.back();
  if (!d.custom_functions.empty())
    op.note = "custom autograd function " + d.custom_functions.back() + (op.note.empty() ? "" : "; " + op.note);
  bool grad = false, input = false, parameter = false;
  for (const model::Operand& o : op.inputs) {
    const model::Tensor& t = trace.tensor(o.tensor);
    grad = grad || t.requires_grad;
    input = input || t.from_input;
    parameter = parameter || t.from_parameter;
  }
  std::vector<TensorId> ids;
  for (std::size_t i = 0; i < outs.size(); ++i) {
    model::Tensor t;
    t.id = static_cast<TensorId>(trace.tensors.size());
    t.shape = std::move(outs[i].shape);
    t.dtype = outs[i].dtype;
    t.producer = op.id;
    t.output_index = static_cast<int>(i);
    t.requires_grad = gradient && grad && d.grad_enabled && model::is_floating(t.dtype);
    t.from_input = input;
    t.from_parameter = parameter;
    t.literal_one = std::move(outs[i].ones);
    t.literal_one.resize(t.shape.size(), 0);
    for (std::size_t k = 0; k < t.shape.size(); ++k)
      if (t.shape[k] != 1) t.literal_one[k] = 0;
    if (view && !op.inputs.empty()) {
      d.view_of[t.id] = op.inputs[0].tensor;
      trace.shares[t.id] = op.inputs[0].tensor;
      d.views[op.inputs[0].tensor].push_back(t.id);
    }
    ids.push_back(t.id);
    trace.tensors.push_back(std::move(t));
  }
  op.outputs = ids;
  trace.ops.push_back(std::move(op));
  if (d.observer) d.observer->recorded(trace.ops.back());
  return ids;
}

// ---- calls -----------------------------------------------------------------------------------------------------------------

bool Call::has(std::string_view param) const {
  Value v = arg(param);
  return v.set() && !v.is_none();
}
Value Call::arg(std::string_view param) const {
  int i = signature.index(param);
  if (i < 0) return Value::none();
  std::size_t at = static_cast<std::size_t>(i);
  // Defaults that are tuples of numbers are read here: (-2, -1).
  auto declared = std::find_if(rule.signature.begin(), rule.signature.end(), [&](const rules::Parameter& p) { return p.name == param; });
  if (declared != rule.signature.end() && !args.given[at] && declared->default_text.size() > 2 && declared->default_text[0] == '(') {
    const std::string& text = declared->default_text;
    std::vector<Value> items;
    for (std::size_t k = 1; k < text.size();) {
      std::size_t end = text.find_first_of(",)", k);
      items.push_back(Value::integer(std::atoll(text.substr(k, end - k).c_str())));
      k = end == std::string::npos || text[end] == ')' ? text.size() : end + 1;
    }
    return in.tuple(std::move(items));
  }
  return args.values[at];
}
const program::Expr* Call::expr(std::string_view param) const {
  int i = signature.index(param);
  return i < 0 || !site.direct ? nullptr : args.exprs[static_cast<std::size_t>(i)];
}
bool Call::is_tensor(std::string_view param) const { return arg(param).is(Kind::Tensor); }
TensorId Call::tensor(std::string_view param) const {
  Value v = arg(param);
  if (!v.is(Kind::Tensor))
    in.raise("TypeError",
             name + "(): argument '" + std::string(param) + "' must be Tensor, not " + (v.is_none() ? "NoneType" : in.type_of(v)->name),
             info.call);
  return d.id(v);
}
std::int64_t Call::integer(std::string_view param, std::int64_t fallback) const {
  auto n = d.integer(arg(param));
  return n ? *n : fallback;
}
double Call::real(std::string_view param, double fallback) const {
  auto n = d.number(arg(param));
  return n ? *n : fallback;
}
bool Call::flag(std::string_view param, bool fallback) const {
  Value v = arg(param);
  if (v.is_none()) return fallback;
  auto t = in.truth(v);
  return t ? *t : fallback;
}
std::string Call::text(std::string_view param, std::string fallback) const {
  Value v = arg(param);
  return v.is(Kind::Str) ? v.str() : fallback;
}

namespace {
int normalise(const Call& c, std::int64_t d, std::size_t rank) {
  std::int64_t n = static_cast<std::int64_t>(std::max<std::size_t>(rank, 1));
  if (d < -n || d >= n)
    c.in.raise("IndexError",
               "Dimension out of range (expected to be in range of [" + std::to_string(-n) + ", " + std::to_string(n - 1) + "], but got " +
                   std::to_string(d) + ")",
               c.info.call);
  return static_cast<int>(d < 0 ? d + n : d);
}
}  // namespace

int Call::dim(std::string_view param, std::size_t rank, int fallback) const {
  return normalise(*this, has(param) ? integer(param, fallback) : fallback, rank);
}

std::optional<std::vector<int>> Call::dims(std::string_view param, std::size_t rank) const {
  Value v = arg(param);
  if (v.is_none()) return std::nullopt;
  std::vector<int> out;
  if (auto list = d.integers(v))
    for (auto i : *list) out.push_back(normalise(*this, i, rank));
  return out;
}
std::optional<DType> Call::dtype(std::string_view param) const { return d.as_dtype(arg(param)); }
Linearity Call::linearity() const {
  return rule.linear == "linear" ? Linearity::Linear : rule.linear == "bilinear" ? Linearity::Bilinear : Linearity::Nonlinear;
}
Build Call::build(Prim prim) const {
  Build b(d, name, prim, site);
  b.op.linearity = linearity();
  b.op.random = rule.random;
  b.gradient = rule.gradient;
  return b;
}

// ---- domain: tensors ---------------------------------------------------------------------------------------------------------

Domain::Domain(Interpreter& interpreter, std::shared_ptr<const rules::Database> database) : in(interpreter), rules(std::move(database)) {}

Domain& domain(Interpreter& in) { return *static_cast<Domain*>(in.tensors); }

TensorId Domain::new_tensor(Out out, Origin origin) {
  model::Tensor t;
  t.id = static_cast<TensorId>(in.trace.tensors.size());
  t.shape = std::move(out.shape);
  t.dtype = out.dtype;
  t.origin = origin;
  t.literal_one = std::move(out.ones);
  t.literal_one.resize(t.shape.size(), 0);
  in.trace.tensors.push_back(std::move(t));
  return in.trace.tensors.back().id;
}

Value Domain::wrap(TensorId t, ClassObj* cls) {
  auto* o = in.make<TensorObj>(cls ? cls : tensor_class);
  o->id = t;
  return o;
}
Value Domain::values_and_indices(const std::vector<TensorId>& ids) {
  const Value function = in.import_name("torch._values_indices");
  return function.set() ? in.call(function, {wrap(ids[0]), wrap(ids[1])}) : wrap(ids);
}

Value Domain::wrap(const std::vector<TensorId>& ts) {
  std::vector<Value> items;
  for (TensorId t : ts) items.push_back(wrap(t));
  return in.tuple(std::move(items));
}
const Values* Domain::known(TensorId t) const {
  auto at = values.find(t);
  return at == values.end() ? nullptr : at->second.get();
}
void Domain::know(TensorId t, Values v) {
  if (static_cast<std::int64_t>(v.size()) == model::numel(tensor(t))) values[t] = std::make_shared<const Values>(std::move(v));
}
void Domain::rebind(const Value& object, TensorId t) {
  TensorId old = id(object);
  object.as<TensorObj>()->id = t;
  if (in.init_phase || old == t) return;
  in.trace.shares[t] = old;
  in.trace.overwrites.emplace_back(in.tick(), t);
  in.rebound(object);
  // Views taken before see what is written now.
  std::vector<TensorId> below = {old};
  while (!below.empty()) {
    auto at = views.find(below.back());
    below.pop_back();
    if (at == views.end()) continue;
    for (TensorId v : at->second) {
      if (v == t) continue;
      overwritten[v] = t;
      below.push_back(v);
    }
  }
  auto source = view_of.find(old);
  if (source == view_of.end()) return;
  view_of[t] = source->second;
  for (auto at = source; at != view_of.end(); at = view_of.find(at->second)) overwritten[at->second] = t;
}

Value Domain::dim_of(TensorId t, int dim, const program::Expr* read) {
  std::int64_t n = shape(t)[static_cast<std::size_t>(dim)];
  return Value::integer(n, in.dim_sym(t, dim, n, in.range_of(read)));
}
Value Domain::size_of(TensorId t, const program::Expr* read) {
  std::vector<Value> items;
  for (std::size_t i = 0; i < shape(t).size(); ++i) items.push_back(dim_of(t, static_cast<int>(i), read));
  return in.make<SeqObj>(Kind::Tuple, std::move(items), size_class);
}

// ---- domain: arguments ---------------------------------------------------------------------------------------------------------

std::optional<std::int64_t> Domain::integer(const Value& v) const {
  if (v.is_integral()) return v.as_int();
  if (v.is(Kind::Float) && v.as_double() == static_cast<double>(static_cast<std::int64_t>(v.as_double())))
    return static_cast<std::int64_t>(v.as_double());
  if (v.is(Kind::Instance) && v.as<InstanceObj>()->base.is_number()) return integer(v.as<InstanceObj>()->base);
  if (v.is(Kind::Tensor))
    if (const Values* k = known(id(v)); k && k->size() == 1) return static_cast<std::int64_t>((*k)[0]);
  if ((v.is(Kind::Tuple) || v.is(Kind::List)) && v.as<SeqObj>()->items.size() == 1) return integer(v.as<SeqObj>()->items[0]);
  return std::nullopt;
}
std::optional<double> Domain::number(const Value& v) const {
  if (v.is_number()) return v.as_double();
  if (v.is(Kind::Tensor))
    if (const Values* k = known(id(v)); k && k->size() == 1) return (*k)[0];
  if (v.is(Kind::Instance) && v.as<InstanceObj>()->base.is_number()) return v.as<InstanceObj>()->base.as_double();
  return std::nullopt;
}
std::optional<std::vector<std::int64_t>> Domain::integers(const Value& v) const {
  std::vector<std::int64_t> out;
  if (v.is(Kind::Tuple) || v.is(Kind::List)) {
    for (const Value& item : v.as<SeqObj>()->items) {
      auto n = integer(item);
      if (!n) return std::nullopt;
      out.push_back(*n);
    }
    return out;
  }
  if (v.is(Kind::Range)) {
    const auto* r = v.as<RangeObj>();
    for (std::int64_t i = 0; i < r->size(); ++i) out.push_back(r->start + i * r->step);
    return out;
  }
  if (v.is(Kind::Tensor)) {
    const Values* k = known(id(v));
    if (!k) return std::nullopt;
    for (double x : *k) out.push_back(static_cast<std::int64_t>(x));
    return out;
  }
  auto n = integer(v);
  if (!n) return std::nullopt;
  return std::vector<std::int64_t>{*n};
}

Domain::Sizes Domain::sizes(const std::vector<Value>& given, const std::vector<const program::Expr*>& exprs) {
  Sizes s;
  std::vector<Value> items = given;
  std::vector<const program::Expr*> es = exprs;
  es.resize(items.size(), nullptr);
  if (items.size() == 1 && (items[0].is(Kind::Tuple) || items[0].is(Kind::List) || items[0].is(Kind::Tensor) || items[0].is(Kind::Range))) {
    const program::Expr* e = es[0];
    if (items[0].is(Kind::Tuple) || items[0].is(Kind::List)) {
      items = std::vector<Value>(items[0].as<SeqObj>()->items);
    } else if (auto list = integers(items[0])) {
      items.clear();
      for (auto i : *list) items.push_back(Value::integer(i));
    } else {
      s.unknown = true;
      return s;
    }
    es.assign(items.size(), nullptr);
    bool written = e && (e->kind == program::ExprKind::Tuple || e->kind == program::ExprKind::List) && e->kids.size() == items.size();
    if (written)
      for (std::size_t i = 0; i < items.size(); ++i)
        if (e->kids[i]->kind == program::ExprKind::Starred) written = false;
    if (written) es.assign(e->kids.begin(), e->kids.end());
    else s.whole = e;
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    auto n = integer(items[i]);
    if (!n) {
      s.unknown = true;
      return s;
    }
    s.values.push_back(*n);
    s.syms.push_back(items[i].sym());
    s.exprs.push_back(es[i]);
  }
  return s;
}

std::vector<model::SizeArg> Domain::size_args(const Sizes& s, model::SizeArg::Role role, int first_dim) {
  std::vector<model::SizeArg> out;
  if (s.whole) {
    model::SizeArg a;
    a.role = role == model::SizeArg::Dim ? model::SizeArg::Shape : role;
    a.dim = first_dim;
    a.values = s.values;
    a.syms = s.syms;
    a.expr = s.whole;
    out.push_back(std::move(a));
    return out;
  }
  for (std::size_t i = 0; i < s.values.size(); ++i) {
    model::SizeArg a;
    a.role = role;
    a.dim = first_dim + static_cast<int>(i);
    a.values = {s.values[i]};
    a.syms = {s.syms[i]};
    a.expr = s.exprs[i];
    out.push_back(std::move(a));
  }
  return out;
}

std::vector<model::ScalarArg> Domain::scalars(const Value& v, const program::Expr* e) const {
  if (v.is_number() && v.sym()) return {{e, v.as_double(), v.sym()}};
  std::vector<model::ScalarArg> out;
  if (!v.is(Kind::Tuple) && !v.is(Kind::List)) return out;
  const auto& items = v.as<SeqObj>()->items;
  // A place to write at is known where the list is written out.
  const bool literal = e && (e->kind == program::ExprKind::Tuple || e->kind == program::ExprKind::List) && e->kids.size() == items.size() &&
      std::none_of(e->kids.begin(), e->kids.end(), [](const auto* k) { return k->kind == program::ExprKind::Starred; });
  for (std::size_t i = 0; i < items.size(); ++i)
    for (auto& s : scalars(items[i], literal ? e->kids[i] : nullptr)) out.push_back(s);
  return out;
}

std::optional<DType> Domain::as_dtype(const Value& v) const {
  for (const auto& [d, value] : dtype_objects)
    if (v.is_object() && value.obj() == v.obj()) return d;
  if (v.is(Kind::Class)) {
    const std::string& n = v.as<ClassObj>()->name;
    if (n == "float") return default_dtype;
    if (n == "int") return DType::I64;
    if (n == "bool") return DType::Bool;
  }
  return std::nullopt;
}

namespace {
int category(DType d) {
  if (d == DType::C64 || d == DType::C128) return 3;
  if (model::is_floating(d)) return 2;
  return d == DType::Bool ? 0 : 1;
}
DType wider(DType a, DType b) {
  if (a == b) return a;
  if (category(a) != category(b)) {
    DType high = category(a) > category(b) ? a : b;
    DType low = category(a) > category(b) ? b : a;
    if (high == DType::C64 && low == DType::F64) return DType::C128;
    return high;
  }
  if ((a == DType::F16 && b == DType::BF16) || (a == DType::BF16 && b == DType::F16)) return DType::F32;
  if ((a == DType::I8 && b == DType::U8) || (a == DType::U8 && b == DType::I8)) return DType::I16;
  return model::bytes_of(a) >= model::bytes_of(b) ? a : b;
}
}  // namespace

/// torch.result_type: tensors with dimensions first, then tensors without, then numbers; a lower group counts only when its
/// category is higher.
DType Domain::promote(const std::vector<Value>& operands) const {
  std::optional<DType> groups[3];
  auto join = [](std::optional<DType>& g, DType d) { g = g ? wider(*g, d) : d; };
  for (const Value& v : operands) {
    if (v.is(Kind::Tensor)) {
      const model::Tensor& t = tensor(id(v));
      join(groups[t.shape.empty() ? 1 : 0], t.dtype);
    } else if (v.is(Kind::Bool)) {
      join(groups[2], DType::Bool);
    } else if (v.is(Kind::Int)) {
      join(groups[2], DType::I64);
    } else if (v.is(Kind::Float)) {
      join(groups[2], default_dtype);
    } else if (v.is(Kind::Complex)) {
      join(groups[2], default_dtype == DType::F64 ? DType::C128 : DType::C64);
    }
  }
  std::optional<DType> result;
  for (int g = 0; g < 3; ++g) {
    if (!groups[g]) continue;
    if (!result) {
      result = groups[g];
    } else if (category(*groups[g]) > category(*result)) {
      // A float number makes an integer tensor the default float, a complex one makes a float tensor complex.
      if (category(*groups[g]) == 3 && *result == DType::F64) result = DType::C128;
      else result = groups[g];
    }
  }
  return result.value_or(default_dtype);
}

Shape Domain::broadcast(const std::vector<Shape>& shapes, const program::Expr* where) const {
  std::size_t rank = 0;
  for (const auto& s : shapes) rank = std::max(rank, s.size());
  Shape out(rank, 1);
  for (const auto& s : shapes)
    for (std::size_t i = 0; i < s.size(); ++i) {
      std::int64_t& o = out[rank - s.size() + i];
      if (s[i] == o || s[i] == 1) continue;
      if (o != 1)
        in.raise("RuntimeError",
                 "The size of tensor a (" + std::to_string(o) + ") must match the size of tensor b (" + std::to_string(s[i]) +
                     ") at non-singleton dimension " + std::to_string(rank - s.size() + i),
                 where);
      o = s[i];
    }
  return out;
}

}  // namespace shardwright::eval::torch
