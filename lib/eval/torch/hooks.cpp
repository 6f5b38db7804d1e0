// Operators, attributes and methods of tensors.
#include <algorithm>

#include "eval/torch/compute.h"

namespace shardwright::eval::torch {
namespace {

const std::unordered_map<std::string_view, const char*>& operators() {
  static const std::unordered_map<std::string_view, const char*> table = {{"+", "torch.add"},
                                                                          {"-", "torch.sub"},
                                                                          {"*", "torch.mul"},
                                                                          {"/", "torch.div"},
                                                                          {"//", "torch.floor_divide"},
                                                                          {"%", "torch.remainder"},
                                                                          {"**", "torch.pow"},
                                                                          {"@", "torch.matmul"},
                                                                          {"&", "torch.bitwise_and"},
                                                                          {"|", "torch.bitwise_or"},
                                                                          {"^", "torch.bitwise_xor"},
                                                                          {"<<", "torch.bitwise_left_shift"},
                                                                          {">>", "torch.bitwise_right_shift"},
                                                                          {"<", "torch.lt"},
                                                                          {"<=", "torch.le"},
                                                                          {">", "torch.gt"},
                                                                          {">=", "torch.ge"},
                                                                          {"==", "torch.eq"},
                                                                          {"!=", "torch.ne"}};
  return table;
}

}  // namespace

Value Domain::binary(Interpreter&, std::string_view op, const Value& a0, const Value& b0, const program::Expr* site,
                     const program::Expr* a_expr, const program::Expr* b_expr, bool inplace) {
  Value a = a0, b = b0;
  if (a.is_unknown() || b.is_unknown()) {  // the other one is used for what is not known
    CallInfo both;
    both.args = {a, b};
    escape(both);
    return a.is_unknown() ? a : b;
  }
  auto at = operators().find(op);
  if (at == operators().end()) return Value::not_implemented();
  for (Value* v : {&a, &b}) take_first(*this, *v, site);
  for (Value* v : {&a, &b})
    if (v->is(Kind::Host)) {
      Value t = call_op("torch.as_tensor", {*v}, site);
      if (t.is_unknown()) return Value::not_implemented();
      *v = t;
    }
  for (const Value* v : {&a, &b})
    if (!v->is(Kind::Tensor) && !v->is_number() && !v->is(Kind::Complex)) return Value::not_implemented();
  Value r = call_op(at->second, {a, b}, site, {a_expr, b_expr});
  // x += y changes the object that x is bound to.
  if (inplace && r.is(Kind::Tensor) && a0.is(Kind::Tensor)) {
    if (a0.as<TensorObj>()->cls == parameter_class && in.init_phase) return a0;
    if (tensor(id(a0)).dtype == tensor(id(r)).dtype && shape(id(a0)) == shape(id(r))) {
      rebind(a0, id(r));
      return a0;
    }
  }
  return r;
}

Value Domain::unary(Interpreter&, std::string_view op, const Value& a, const program::Expr* site, const program::Expr* a_expr) {
  if (op == "+") return a;
  if (op == "-") return call_op("torch.neg", {a}, site, {a_expr});
  if (op == "~") return call_op("torch.bitwise_not", {a}, site, {a_expr});
  return Value::not_implemented();
}

Value Domain::compare(Interpreter&, std::string_view op, const Value& a, const Value& b, const program::Expr* site,
                      const program::Expr* a_expr, const program::Expr* b_expr) {
  if (a.is_unknown() || b.is_unknown()) {
    CallInfo both;
    both.args = {a, b};
    escape(both);
  }
  if (!a.is(Kind::Tensor) && !a.is_number())
    return a.is_unknown() ? a : op == "==" ? Value::boolean(false) : op == "!=" ? Value::boolean(true) : Value::not_implemented();
  if (!b.is(Kind::Tensor) && !b.is_number())
    return b.is_unknown() ? b : op == "==" ? Value::boolean(false) : op == "!=" ? Value::boolean(true) : Value::not_implemented();
  auto at = operators().find(op);
  if (at == operators().end()) return Value::not_implemented();
  return call_op(at->second, {a, b}, site, {a_expr, b_expr});
}

Value Domain::length(Interpreter&, const Value& t) {
  if (shape(id(t)).empty()) in.raise("TypeError", "len() of a 0-d tensor");
  return dim_of(id(t), 0, nullptr);
}

std::vector<Value> Domain::iterate(Interpreter&, const Value& t, const program::Expr* site) {
  if (shape(id(t)).empty()) in.raise("TypeError", "iteration over a 0-d tensor", site);
  if (shape(id(t))[0] > 100000) return {};
  Value parts = call_op("torch.unbind", {t}, site, {site});
  return parts.is(Kind::Tuple) ? parts.as<SeqObj>()->items : std::vector<Value>{};
}

Value Domain::truth(Interpreter&, const Value& t) {
  if (const Values* k = known(id(t)); k && k->size() == 1) return Value::boolean((*k)[0] != 0);
  if (model::numel(tensor(id(t))) != 1) in.raise("RuntimeError", "Boolean value of Tensor with more than one value is ambiguous");
  return in.unknown("a condition on the values of a tensor");
}

Value Domain::to_number(Interpreter&, const Value& t, std::string_view type) {
  if (model::numel(tensor(id(t))) != 1)
    in.raise("RuntimeError", "a Tensor with " + std::to_string(model::numel(tensor(id(t)))) + " elements cannot be converted to Scalar");
  const Values* k = known(id(t));
  if (!k) return in.unknown("the value of a tensor");
  if (type == "int") return Value::integer(static_cast<std::int64_t>((*k)[0]));
  if (type == "bool") return Value::boolean((*k)[0] != 0);
  return Value::real((*k)[0]);
}

namespace {

Value number_value(const Domain& d, TensorId t, double x) {
  DType type = d.tensor(t).dtype;
  if (type == DType::Bool) return Value::boolean(x != 0);
  return model::is_floating(type) ? Value::real(x) : Value::integer(static_cast<std::int64_t>(x));
}

Value nested(Domain& d, TensorId t, const Values& k, std::size_t depth, std::size_t& at) {
  const Shape& s = d.shape(t);
  if (depth == s.size()) return number_value(d, t, k[at++]);
  std::vector<Value> items;
  for (std::int64_t i = 0; i < s[depth]; ++i) items.push_back(nested(d, t, k, depth + 1, at));
  return d.in.list(std::move(items));
}

using Method = Value (*)(Domain&, CallInfo&);

Value m_size(Domain& d, CallInfo& info) {
  TensorId t = d.id(info.args[0]);
  Value which = info.args.size() > 1 ? info.args[1] : Value::none();
  if (Keyword* k = info.keyword("dim")) which = k->value;
  if (which.is_none()) return d.size_of(t, info.call);
  auto n = d.integer(which);
  if (!n) return d.in.unknown("size of a dimension that is not known", info.call);
  std::int64_t rank = static_cast<std::int64_t>(d.shape(t).size());
  if (*n < -rank || *n >= rank)
    d.in.raise("IndexError",
               "Dimension out of range (expected to be in range of [" + std::to_string(-rank) + ", " + std::to_string(rank - 1) +
                   "], but got " + std::to_string(*n) + ")",
               info.call);
  return d.dim_of(t, static_cast<int>(*n < 0 ? *n + rank : *n), info.call);
}
Value m_dim(Domain& d, CallInfo& info) { return Value::integer(static_cast<std::int64_t>(d.shape(d.id(info.args[0])).size())); }
Value m_numel(Domain& d, CallInfo& info) {
  TensorId t = d.id(info.args[0]);
  Value n = Value::integer(1);
  for (std::size_t i = 0; i < d.shape(t).size(); ++i) n = d.in.binary("*", n, d.dim_of(t, static_cast<int>(i), info.call));
  return n;
}
Value m_item(Domain& d, CallInfo& info) {
  TensorId t = d.id(info.args[0]);
  if (const Values* k = d.known(t); k && k->size() == 1) return number_value(d, t, (*k)[0]);
  return d.in.unknown("the value of a tensor (.item())", info.call);
}
Value m_tolist(Domain& d, CallInfo& info) {
  TensorId t = d.id(info.args[0]);
  const Values* k = d.known(t);
  if (!k) return d.in.unknown("the values of a tensor (.tolist())", info.call);
  std::size_t at = 0;
  return nested(d, t, *k, 0, at);
}
/// As an array of our own numpy: what is computed with it goes on as numbers.
Value m_numpy(Domain& d, CallInfo& info) {
  if (!d.known(d.id(info.args[0]))) return d.in.unknown("the values of a tensor leave it here", info.call);
  return d.in.call(d.in.import_name("numpy.array"), {m_tolist(d, info)}, info.call);
}
Value m_index(Domain& d, CallInfo& info) { return d.to_number(d.in, info.args[0], "int"); }
Value m_true(Domain&, CallInfo&) { return Value::boolean(true); }
Value m_false(Domain&, CallInfo&) { return Value::boolean(false); }
Value m_zero(Domain&, CallInfo&) { return Value::integer(0); }
Value m_none(Domain&, CallInfo&) { return Value::none(); }
Value m_hook(Domain& d, CallInfo& info) {
  if (const TensorId t = d.id(info.args[0]); d.tensor(t).origin == model::Origin::Parameter || d.in.init_phase) d.in.trace.hooked.insert(t);
  return Value::none();
}
Value m_self(Domain&, CallInfo& info) { return info.args[0]; }
Value m_floating(Domain& d, CallInfo& info) {
  DType t = d.tensor(d.id(info.args[0])).dtype;
  return Value::boolean(model::is_floating(t) && t != DType::C64 && t != DType::C128);
}
Value m_complex(Domain& d, CallInfo& info) {
  DType t = d.tensor(d.id(info.args[0])).dtype;
  return Value::boolean(t == DType::C64 || t == DType::C128);
}
Value m_element_size(Domain& d, CallInfo& info) { return Value::integer(model::bytes_of(d.tensor(d.id(info.args[0])).dtype)); }
Value m_stride(Domain& d, CallInfo& info) {
  const TensorId t = d.id(info.args[0]);
  const Shape s = d.shape(t);
  std::vector<Value> out(s.size());
  Value n = Value::integer(1);
  for (std::size_t i = s.size(); i-- > 0;) {
    out[i] = n;
    const Value size = d.dim_of(t, static_cast<int>(i), info.call);
    const std::int64_t product = n.as_int() * s[i];
    n = Value::integer(product, d.in.sym(model::Sym::Mul, n, size, static_cast<double>(product)));
  }
  if (info.args.size() > 1)
    if (auto k = d.integer(info.args[1]); k && !s.empty())
      return out[static_cast<std::size_t>(*k < 0 ? *k + static_cast<std::int64_t>(s.size()) : *k)];
  return d.in.tuple(std::move(out));
}
Value m_deepcopy(Domain& d, CallInfo& info) {
  Value self = info.args[0];
  model::Tensor copy = d.tensor(d.id(self));
  TensorId t = d.new_tensor({copy.shape, copy.dtype, copy.literal_one}, copy.origin);
  model::Tensor& fresh = d.in.trace.tensors[static_cast<std::size_t>(t)];
  fresh.requires_grad = copy.requires_grad;
  fresh.from_input = copy.from_input;
  fresh.from_parameter = copy.from_parameter;
  if (d.observer) d.observer->became(t, copy.id);
  if (const Values* k = d.known(copy.id)) d.know(t, *k);
  return d.wrap(t, self.as<TensorObj>()->cls);
}
Value m_unknown(Domain& d, CallInfo& info) { return d.in.unknown("the values of a tensor leave it here", info.call); }
/// x.apply_(f), x.map_…, x.set_: in place by something that is not an operation.
Value m_backward(Domain& d, CallInfo& info) {
  const Site at = d.in.site(info.call);
  if (!d.in.init_phase)
    d.in.trace.exits.push_back({model::Exit::Gradient, at.expr ? at.expr->range : support::Range{}, d.in.trace.forward_begin, d.in.tick()});
  return Value::none();
}

const std::unordered_map<std::string_view, Method>& methods() {
  static const std::unordered_map<std::string_view, Method> table = {{"size", m_size},
                                                                     {"dim", m_dim},
                                                                     {"ndimension", m_dim},
                                                                     {"numel", m_numel},
                                                                     {"nelement", m_numel},
                                                                     {"item", m_item},
                                                                     {"tolist", m_tolist},
                                                                     {"is_contiguous", m_true},
                                                                     {"is_floating_point", m_floating},
                                                                     {"is_complex", m_complex},
                                                                     {"element_size", m_element_size},
                                                                     {"stride", m_stride},
                                                                     {"data_ptr", m_zero},
                                                                     {"storage_offset", m_zero},
                                                                     {"get_device", m_zero},
                                                                     {"numpy", m_numpy},
                                                                     {"__array__", m_numpy},
                                                                     {"__index__", m_index},
                                                                     {"is_pinned", m_false},
                                                                     {"is_conj", m_false},
                                                                     {"is_neg", m_false},
                                                                     {"register_hook", m_hook},
                                                                     {"register_post_accumulate_grad_hook", m_hook},
                                                                     {"record_stream", m_none},
                                                                     {"__deepcopy__", m_deepcopy},
                                                                     {"backward", m_backward},
                                                                     {"__tensor_flatten__", m_unknown},
                                                                     {"rename", m_self},
                                                                     {"refine_names", m_self},
                                                                     {"apply_", m_self},
                                                                     {"set_", m_self},
                                                                     {"resize_", m_unknown},
                                                                     {"untyped_storage", m_unknown},
                                                                     {"storage", m_unknown}};
  return table;
}

}  // namespace

Value Domain::getattr(Interpreter&, const Value& t, std::string_view name, const program::Expr* site) {
  TensorId x = id(t);
  const model::Tensor& info = tensor(x);
  if (name == "shape") return size_of(x, site);
  if (name == "dtype") return dtype_value(info.dtype);
  if (name == "device") return device_value("cpu");
  if (name == "ndim") return Value::integer(static_cast<std::int64_t>(info.shape.size()));
  if (name == "T" || name == "mT" || name == "H" || name == "mH") {
    if (name == "T" && info.shape.size() != 2) {
      std::vector<Value> order;
      for (std::size_t i = info.shape.size(); i-- > 0;) order.push_back(Value::integer(static_cast<std::int64_t>(i)));
      return call_op("torch.permute", {t, in.tuple(std::move(order))}, site, {site && !site->kids.empty() ? site->kids[0] : nullptr});
    }
    return call_op("torch.t", {t}, site, {site && !site->kids.empty() ? site->kids[0] : nullptr});
  }
  if (name == "real" || name == "imag") {
    bool complex = info.dtype == DType::C64 || info.dtype == DType::C128;
    return complex || name == "imag" ? call_op("torch." + std::string(name), {t}, site) : t;
  }
  if (name == "data") return t;
  if (name == "requires_grad") return Value::boolean(info.requires_grad);
  if (name == "grad" || name == "grad_fn" || name == "names" || name == "_base" || name == "_backward_hooks") return Value::none();
  if (name == "is_cuda" || name == "is_sparse" || name == "is_quantized" || name == "is_mkldnn" || name == "is_xpu" ||
      name == "is_nested" || name == "is_mps" || name == "is_sparse_csr" || name == "is_vulkan")
    return Value::boolean(false);
  if (name == "is_meta") return Value::boolean(false);
  if (name == "is_cpu") return Value::boolean(true);
  if (name == "is_leaf") return Value::boolean(info.producer < 0);
  if (name == "itemsize") return Value::integer(model::bytes_of(info.dtype));
  if (name == "nbytes") return Value::integer(model::bytes_of(info.dtype) * model::numel(info));
  if (name == "layout") return in.import_name("torch.strided");
  if (name == "_version" || name == "output_nr") return Value::integer(0);
  std::string key = "torch.Tensor." + std::string(name);
  Value method;
  if (auto own = natives_.find(key); own != natives_.end() && own->second.set()) {
    method = own->second;
  } else if (auto at = methods().find(name); at != methods().end()) {
    Method f = at->second;
    method = in.native(key, [this, f](Interpreter&, CallInfo& call) { return f(*this, call); });
    natives_[key] = method;
  } else {
    method = native_for(key);
    if (!method.set()) {
      // __add__ and friends written out.
      static const std::unordered_map<std::string_view, const char*> dunder = {
          {"__add__", "torch.add"},  {"__radd__", "torch.add"},    {"__sub__", "torch.sub"}, {"__mul__", "torch.mul"},
          {"__rmul__", "torch.mul"}, {"__truediv__", "torch.div"}, {"__pow__", "torch.pow"}, {"__matmul__", "torch.matmul"},
          {"__neg__", "torch.neg"},  {"__eq__", "torch.eq"},       {"__ne__", "torch.ne"},   {"__lt__", "torch.lt"},
          {"__le__", "torch.le"},    {"__gt__", "torch.gt"},       {"__ge__", "torch.ge"}};
      auto d = dunder.find(name);
      if (d == dunder.end()) return {};
      method = native_for(d->second);
    }
  }
  return in.make<BoundMethodObj>(t, method);
}

bool Domain::setattr(Interpreter&, const Value& t, std::string_view name, const Value& v) {
  if (name == "data" && v.is(Kind::Tensor)) {
    // x.data = y: the object now holds y's value; a parameter keeps its identity.
    TensorObj* o = t.as<TensorObj>();
    if (o->cls == parameter_class) {
      model::Tensor& own = in.trace.tensors[static_cast<std::size_t>(o->id)];
      own.shape = tensor(id(v)).shape;
      own.dtype = tensor(id(v)).dtype;
      own.literal_one.assign(own.shape.size(), 0);
      if (observer) observer->became(own.id, id(v));
    } else {
      o->id = id(v);
    }
    return true;
  }
  if (name == "requires_grad") {
    in.trace.tensors[static_cast<std::size_t>(id(t))].requires_grad = in.truth(v).value_or(true);
    return true;
  }
  if (name == "grad") return true;
  if (!observer || v.is_none()) return false;
  // Zero is a dimension like any other.
  if (name.rfind("partition_", 0) == 0 && v.is(Kind::Int)) observer->marked(id(t), std::string(name) + " " + std::to_string(v.as_int()));
  else if (in.truth(v).value_or(true)) observer->marked(id(t), std::string(name));
  return false;
}

}  // namespace shardwright::eval::torch
