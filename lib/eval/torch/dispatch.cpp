// From a rule to an operation: binds arguments, then runs the pattern, the `like`, or the named function.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "eval/torch/domain.h"

namespace shardwright::eval::torch {

using model::Linearity;
using model::Prim;

namespace {

/// Result type of a rule, given the promoted type of its operands.
DType result_type(const Domain& d, rules::ResultType type, DType promoted, DType first) {
  switch (type) {
    case rules::ResultType::Promote: return promoted;
    case rules::ResultType::Same: return first;
    case rules::ResultType::Float: return model::is_floating(promoted) ? promoted : d.default_dtype;
    case rules::ResultType::Bool: return DType::Bool;
    case rules::ResultType::Int64: return DType::I64;
    case rules::ResultType::Real: return first == DType::C64 ? DType::F32 : first == DType::C128 ? DType::F64 : first;
    case rules::ResultType::Complex: return first == DType::F64 || first == DType::C128 ? DType::C128 : DType::C64;
  }
  return promoted;
}

std::string last_part(const std::string& name) {
  std::string s = name.substr(name.rfind('.') + 1);
  return s;
}

/// "5 * prod(out)", "2 * prod(out) * k": numbers, prod(out) and label names joined by *.
double flops_of(const std::string& text, double out, const std::vector<std::pair<std::string, std::int64_t>>& labels) {
  double product = 1;
  std::size_t at = 0;
  while (at <= text.size()) {
    std::size_t star = text.find('*', at);
    std::string term = text.substr(at, star == std::string::npos ? std::string::npos : star - at);
    term.erase(std::remove(term.begin(), term.end(), ' '), term.end());
    if (term == "prod(out)") product *= out;
    else if (auto l = std::find_if(labels.begin(), labels.end(), [&](const auto& p) { return p.first == term; }); l != labels.end())
      product *= static_cast<double>(l->second);
    else if (!term.empty() && (std::isdigit(static_cast<unsigned char>(term[0])) != 0)) product *= std::stod(term);
    if (star == std::string::npos) break;
    at = star + 1;
  }
  return product;
}

double count(const Shape& s) {
  double n = 1;
  for (auto d : s) n *= static_cast<double>(d);
  return n;
}

}  // namespace

Value Domain::native_for(const std::string& qualified) {
  auto at = natives_.find(qualified);
  if (at != natives_.end()) return at->second;
  const rules::OpRule* rule = rules->op(qualified);
  Value v = rule ? in.native(qualified, [this, rule, qualified](Interpreter&, CallInfo& info) { return run(*rule, qualified, info); })
                 : Value::unset();
  natives_.emplace(qualified, v);
  return v;
}

Value Domain::call_op(const std::string& qualified, CallInfo& info) {
  const rules::OpRule* rule = rules->op(qualified);
  return rule ? run(*rule, qualified, info) : Value::unset();
}

Value Domain::call_op(const std::string& qualified, std::vector<Value> args, const program::Expr* site,
                      std::vector<const program::Expr*> exprs, std::vector<Keyword> kwargs) {
  CallInfo info;
  info.call = site;
  info.args = std::move(args);
  info.exprs = std::move(exprs);
  info.kwargs = std::move(kwargs);
  return call_op(qualified, info);
}

Value Domain::run(const rules::OpRule& rule, const std::string& qualified, CallInfo& info) {
  if (!observer) return execute(rule, qualified, info);
  // Sizes of one rank and of the whole may meet here: the observer says which operands to take as whole, once.
  for (Value& v : info.args) take_first(*this, v, info.call);
  for (Keyword& k : info.kwargs) take_first(*this, k.value, info.call);
  std::optional<PyError> error;
  CallInfo again = info;
  try {
    return execute(rule, qualified, info);
  } catch (PyError& e) {
    if (repairing_ || !in.isinstance(e.exception, in.builtin_class("RuntimeError"))) throw;
    error = e;
  }
  if (auto result = repair(rule, qualified, again, *error)) return *result;
  throw PyError(*error);
}

std::optional<Value> Domain::repair(const rules::OpRule& rule, const std::string& qualified, CallInfo& info, const PyError& error) {
  Failure f;
  f.name = rule.names[0];
  f.site = in.site(info.call);
  f.module = module_stack.empty() ? -1 : module_stack.back();
  f.message = in.describe(error);
  const bool direct = f.site.direct;
  auto collect = [&](const Value& v, const std::string& param, const program::Expr* e) {
    if (v.is(Kind::Tensor)) f.operands.push_back({id(v), param, direct ? e : nullptr, false});
    else if (v.is(Kind::Tuple) || v.is(Kind::List))
      for (const Value& x : v.as<SeqObj>()->items)
        if (x.is(Kind::Tensor)) f.operands.push_back({id(x), param, nullptr, false});
  };
  std::vector<Value> numbers;
  std::vector<const program::Expr*> number_exprs;
  for (std::size_t i = 0; i < info.args.size(); ++i) {
    collect(info.args[i], i < rule.signature.size() ? rule.signature[i].name : "", info.expr(i));
    if (i > 0 && !info.args[i].is(Kind::Tensor)) numbers.push_back(info.args[i]), number_exprs.push_back(direct ? info.expr(i) : nullptr);
  }
  for (const Keyword& k : info.kwargs) collect(k.value, k.name, k.expr);
  if (Sizes s = sizes(numbers, number_exprs); !s.unknown) {
    f.sizes = size_args(s);
    // unflatten(dim, sizes): the first number is no size.
    if (f.name.ends_with("unflatten") && numbers.size() == 2)
      if (Sizes inner = sizes({numbers[1]}, {number_exprs[1]}); !inner.unknown) f.sizes = size_args(inner);
  }
  auto shapes = observer->repair(f);
  if (shapes.empty()) return std::nullopt;
  std::map<TensorId, Value> instead;
  for (auto& [t, shape] : shapes) {
    Build b(*this, "shardwright.assumed", Prim::Opaque, f.site);
    b.operand(t, "input");
    instead[t] = wrap(b.done({{shape, tensor(t).dtype, {}}})[0]);
  }
  auto replace = [&](Value& v) {
    if (v.is(Kind::Tensor)) {
      if (auto at = instead.find(id(v)); at != instead.end()) v = at->second;
    } else if (v.is(Kind::Tuple) || v.is(Kind::List)) {
      std::vector<Value> items = v.as<SeqObj>()->items;
      bool any = false;
      for (Value& x : items)
        if (x.is(Kind::Tensor))
          if (auto at = instead.find(id(x)); at != instead.end()) x = at->second, any = true;
      if (any) v = in.list(std::move(items));
    }
  };
  for (Value& v : info.args) replace(v);
  for (Keyword& k : info.kwargs) replace(k.value);
  struct Flag {
    bool& f;
    explicit Flag(bool& x) : f(x) { f = true; }
    ~Flag() { f = false; }
  } flag(repairing_);
  try {
    Value result = execute(rule, qualified, info);
    std::vector<TensorId> ids;
    if (result.is(Kind::Tensor)) ids.push_back(id(result));
    else if (result.is(Kind::Tuple) || result.is(Kind::List))
      for (const Value& x : result.as<SeqObj>()->items)
        if (x.is(Kind::Tensor)) ids.push_back(id(x));
    observer->repaired(f, ids);
    return result;
  } catch (PyError&) { return std::nullopt; }
}

/// Tensors that meet a value that is not known: what comes of them is not known either.
void Domain::escape(const CallInfo& info) {
  if (in.init_phase) return;
  auto note = [&](const Value& v) {
    if (v.is(Kind::Tensor)) in.trace.escaped.insert(id(v));
    else if (v.is(Kind::Tuple) || v.is(Kind::List))
      for (const Value& x : v.as<SeqObj>()->items)
        if (x.is(Kind::Tensor)) in.trace.escaped.insert(id(x));
  };
  for (const Value& v : info.args) note(v);
  for (const Keyword& k : info.kwargs) note(k.value);
}

Value Domain::execute(const rules::OpRule& rule, const std::string& qualified, CallInfo& info) {
  const auto matters = [&](const std::string& param) {
    return std::find(rule.any_value.begin(), rule.any_value.end(), param) == rule.any_value.end();
  };
  for (Keyword& k : info.kwargs)
    if (k.value.is_unknown() && !matters(k.name)) k.value = Value::none();
  for (std::size_t i = 0; i < info.args.size() && i < rule.signature.size() && rule.signature[i].kind == rules::Parameter::Positional; ++i)
    if (info.args[i].is_unknown() && !matters(rule.signature[i].name)) info.args[i] = Value::none();
  Value not_known;
  for (const Keyword& k : info.kwargs)
    if (k.value.is_unknown()) not_known = k.value;
  for (const Value& v : info.args)
    if (v.is_unknown()) not_known = v;
  if (not_known.set()) {
    escape(info);
    return not_known;
  }
  auto& signature = signatures_[&rule];
  if (!signature) signature = std::make_unique<Signature>(last_part(rule.names[0]), rule.signature_text);
  // NumPy's spellings are accepted everywhere.
  for (Keyword& k : info.kwargs) {
    if (k.name == "axis" && signature->index("axis") < 0) k.name = "dim";
    else if (k.name == "keepdims" && signature->index("keepdims") < 0) k.name = "keepdim";
    else if (k.name == "split_size_or_sections") k.name = signature->index("split_size") >= 0 ? "split_size" : "split_sizes";
    else if (k.name == "tensor" && signature->index("tensor") < 0) k.name = "input";
    else if (k.name == "self" && signature->index("self") < 0) k.name = "input";
  }
  bool inplace = qualified.back() == '_' && qualified.ends_with("__") == false;
  Call c{*this, in, rule, rule.names[0], *signature, info, signature->bind(in, info), in.site(info.call), inplace};
  const std::size_t before = in.trace.ops.size();
  Value result;
  if (!rule.compute.empty()) {
    auto at = compute_functions().find(rule.compute);
    if (at == compute_functions().end())
      return in.unknown("rule " + rule.where + " names an unknown function \"" + rule.compute + "\"", info.call);
    result = at->second(c);
  } else if (rule.has_pattern) {
    result = pattern(c);
  } else if (rule.like == rules::Like::Elementwise) {
    std::vector<std::string> params = rule.operands;
    if (params.empty())
      for (const auto& p : rule.signature) params.push_back(p.name);
    result = elementwise(c, params, c.linearity());
  } else {
    const std::string first = rule.operands.empty() ? rule.signature[0].name : rule.operands[0];
    TensorId t = c.tensor(first);
    std::size_t rank = shape(t).size();
    DType same = tensor(t).dtype;
    std::vector<int> whole;
    bool all = rule.full.empty();
    for (const auto& param : rule.full) {
      auto dims = c.dims(param, rank);
      if (!dims || (dims->empty() && rule.like == rules::Like::Reduce)) all = true;
      else whole.insert(whole.end(), dims->begin(), dims->end());
    }
    if (all)
      for (std::size_t i = 0; i < rank; ++i) whole.push_back(static_cast<int>(i));
    DType type = c.dtype().value_or(result_type(*this, rule.type, same, same));
    if (rule.type == rules::ResultType::Promote && !c.dtype() && !model::is_floating(same) &&
        (rule.like == rules::Like::Reduce || rule.linear == "linear"))
      type = DType::I64;  // integer sums are 64 bit
    if (rule.like == rules::Like::Reduce) {
      bool linear = rule.linear == "linear";
      TensorId out = reduce(c.name, c.site, t, whole, c.flag("keepdim", false), c.linearity(), !linear, rule.mean,
                            rule.why.empty() ? last_part(c.name) : rule.why, type, c.expr(first), rule.gradient);
      known::reduce(*this, last_part(c.name), t, whole, out);
      result = wrap(out);
    } else {
      std::vector<DType> types(static_cast<std::size_t>(rule.outputs), DType::I64);
      types[0] = type;
      std::vector<TensorId> outs = keep(c, t, whole, types);
      if (last_part(c.name) == "cumsum" && whole.size() == 1 && rank > 0)
        if (const Values* k = known(t)) {
          Values sums = *k;
          std::size_t inner = 1, n = static_cast<std::size_t>(shape(t)[static_cast<std::size_t>(whole[0])]);
          for (std::size_t i = static_cast<std::size_t>(whole[0]) + 1; i < rank; ++i) inner *= static_cast<std::size_t>(shape(t)[i]);
          for (std::size_t i = 0; i < sums.size(); ++i)
            if ((i / inner) % n != 0) sums[i] += sums[i - inner];
          know(outs[0], std::move(sums));
        }
      result = outs.size() == 1 ? wrap(outs[0]) : values_and_indices(outs);
    }
  }
  static const std::set<std::string> numbers_enter{
      "masked_fill", "clamp", "fill_", "where",
      "tensor",      "add",   "rsub",  "baddbmm"};  // the others take sizes, too, and say themselves what enters
  note_constants(c, before);
  if (in.trace.ops.size() > before && (rule.compute.empty() || numbers_enter.count(rule.compute))) note_numbers(c, before);
  if (c.inplace && result.is(Kind::Tensor) && !c.args.values.empty() && c.args.values[0].is(Kind::Tensor)) {
    Value target = c.args.values[0];
    if (target.obj() != result.obj()) {
      // While the model is built the numbers of parameters do not matter: initialisation leaves no operation on them behind.
      if (target.as<TensorObj>()->cls == parameter_class && in.init_phase) return target;
      rebind(target, id(result));
    }
    return target;
  }
  return result;
}

/// Numbers made from sizes that enter the operations recorded since `first` and that none of them speaks of yet.
void Domain::note_numbers(Call& c, std::size_t first) {
  auto known = [&](const model::Sym* s) {
    for (std::size_t o = first; o < in.trace.ops.size(); ++o) {
      const model::Op& op = in.trace.ops[o];
      for (const auto& a : op.size_args)
        if (std::find(a.syms.begin(), a.syms.end(), s) != a.syms.end()) return true;
      for (const auto& a : op.scalar_args)
        if (a.sym == s) return true;
    }
    return false;
  };
  auto note = [&](const Value& v, const program::Expr* e) {
    for (auto& s : scalars(v, c.site.direct ? e : nullptr))
      if (!known(s.sym)) in.trace.ops.back().scalar_args.push_back(s);
  };
  for (std::size_t i = 0; i < c.args.values.size(); ++i) note(c.args.values[i], i < c.args.exprs.size() ? c.args.exprs[i] : nullptr);
}

namespace {

void constant_text(const Value& v, std::string& out) {
  switch (v.kind()) {
    case Kind::Bool:
    case Kind::Int:
    case Kind::Float: out += fmt::format("{:.9g}", v.as_double()); break;
    case Kind::Str: out += v.str(); break;
    case Kind::Tuple:
    case Kind::List:
      out += '(';
      for (const Value& x : v.as<SeqObj>()->items) constant_text(x, out), out += ',';
      out += ')';
      break;
    default: break;
  }
}

}  // namespace

/// What besides tensors decided the operations recorded since `first`, as text. Numbers that set a result's sizes are left out:
/// the shape says them, and they differ between the whole and one rank.
void Domain::note_constants(const Call& c, std::size_t first) {
  static const std::set<std::string_view> sizes{"groups",      "num_groups", "normalized_shape", "size",    "shape",
                                                "num_classes", "dtype",      "requires_grad",    "training"};
  static const std::set<std::string_view> fills{"fill_value", "low", "high", "diagonal", "mean", "std", "data", "base", "value"};
  if (in.tensors_only || in.trace.ops.size() == first) return;
  std::string all;
  bool written = false;
  for (std::size_t o = first; o < in.trace.ops.size(); ++o) {
    model::Op& op = in.trace.ops[o];
    if (!op.constants.empty() || op.prim == Prim::Reshape || op.prim == Prim::Split) continue;
    if (op.prim == Prim::Labelled && !op.size_args.empty()) continue;
    if (!written) {
      written = true;
      for (std::size_t i = 0; i < c.args.values.size() && i < c.signature.size(); ++i) {
        const std::string& name = c.signature.parameter(i);
        if (op.prim == Prim::Create ? !fills.count(name) : sizes.count(name) > 0) continue;
        std::string text;
        constant_text(c.args.values[i], text);
        if (!text.empty()) all += name + "=" + text + ";";
      }
      if (op.prim != Prim::Create)
        for (const Value& v : c.args.rest) constant_text(v, all), all += ',';
    }
    op.constants = all;
  }
}

Value Domain::elementwise(Call& c, const std::vector<std::string>& params, Linearity linearity, std::optional<DType> dtype) {
  std::vector<Value> operands;
  std::vector<std::string> names;
  std::vector<const program::Expr*> exprs;
  for (const auto& p : params) {
    Value v = c.arg(p);
    if (!v.is(Kind::Tensor) && !v.is_number() && !v.is(Kind::Complex)) continue;
    // Numbers that only configure the function (alpha, eps) are kept apart from operands: they never set a type.
    if (!v.is(Kind::Tensor) && operands.size() >= 2 && !c.rule.compute.size()) continue;
    operands.push_back(v);
    names.push_back(p);
    exprs.push_back(c.expr(p));
  }
  bool any = false;
  for (const Value& v : operands) any = any || v.is(Kind::Tensor);
  if (!any) {
    // torch.sqrt(2.0) raises in PyTorch; a number given where a tensor was unknown stays unknown.
    return in.unknown("no tensor among the arguments of " + c.name, c.info.call);
  }
  return elementwise(c, c.name, operands, names, exprs, linearity, dtype);
}

Value Domain::elementwise(const Call& c, const std::string& name, const std::vector<Value>& operands,
                          const std::vector<std::string>& params, const std::vector<const program::Expr*>& exprs, Linearity linearity,
                          std::optional<DType> dtype) {
  std::vector<Shape> shapes;
  DType first = default_dtype;
  bool has_first = false;
  for (const Value& v : operands)
    if (v.is(Kind::Tensor)) {
      shapes.push_back(shape(id(v)));
      if (!has_first) first = tensor(id(v)).dtype;
      has_first = true;
    }
  Out out;
  out.shape = broadcast(shapes, c.info.call);
  const std::size_t rank = out.shape.size();
  // A unary function's configuration never changes its type.
  std::vector<Value> typed;
  for (const Value& v : operands)
    if (v.is(Kind::Tensor) || operands.size() == 2 || &v == &operands[0]) typed.push_back(v);
  out.dtype = dtype.value_or(result_type(*this, c.rule.type, promote(typed), first));
  out.ones.assign(rank, 1);
  Build b(*this, name, Prim::Labelled, c.site);
  b.op.linearity = linearity;
  b.op.random = c.rule.random;
  b.gradient = c.rule.gradient;
  for (const auto& s : operands)
    if (s.is(Kind::Tensor)) {
      const model::Tensor& t = tensor(id(s));
      for (std::size_t i = 0; i < t.shape.size(); ++i)
        if (!t.literal_one[i]) out.ones[rank - t.shape.size() + i] = 0;
    }
  std::vector<int> labels(rank, -1);
  for (std::size_t i = 0; i < rank; ++i)
    if (out.shape[i] != 1 || !out.ones[i]) labels[i] = b.label(out.shape[i]);
  for (std::size_t k = 0; k < operands.size(); ++k) {
    const Value& v = operands[k];
    if (!v.is(Kind::Tensor)) {
      for (auto& s : scalars(v, exprs[k])) b.op.scalar_args.push_back(s);
      continue;
    }
    const model::Tensor& t = tensor(id(v));
    std::vector<int> in_labels;
    for (std::size_t i = 0; i < t.shape.size(); ++i) {
      std::size_t j = rank - t.shape.size() + i;
      bool wide = t.shape[i] == 1 && (out.shape[j] != 1 || t.literal_one[i]);
      in_labels.push_back(wide ? -1 : labels[j]);
    }
    b.op.in.push_back(std::move(in_labels));
    b.operand(id(v), params[k], exprs[k]);
  }
  b.op.out.push_back(labels);
  b.op.flops = c.rule.flops.empty() ? count(out.shape) : flops_of(c.rule.flops, count(out.shape), {});
  TensorId result = b.done({out})[0];
  known::elementwise(*this, last_part(name), operands, result);
  return wrap(result);
}

TensorId Domain::reduce(const std::string& name, const Site& site, TensorId t, const std::vector<int>& dims, bool keepdim,
                        Linearity linearity, bool blocked, bool mean, std::string why, DType dtype, const program::Expr* operand,
                        bool gradient) {
  Build b(*this, name, Prim::Labelled, site);
  b.op.linearity = linearity;
  b.op.mean = mean;
  b.gradient = gradient;
  std::vector<int> labels = b.fresh(t);
  Out out;
  out.dtype = dtype;
  std::vector<int> kept;
  const model::Tensor source = tensor(t);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    bool gone = std::find(dims.begin(), dims.end(), static_cast<int>(i)) != dims.end();
    if (gone && blocked && labels[i] >= 0) {
      b.op.labels[static_cast<std::size_t>(labels[i])].blocked = true;
      b.op.labels[static_cast<std::size_t>(labels[i])].why = why;
    }
    if (gone && !keepdim) continue;
    kept.push_back(gone ? -1 : labels[i]);
    out.shape.push_back(gone ? 1 : source.shape[i]);
    out.ones.push_back(gone ? 1 : source.literal_one[i]);
  }
  b.operand(t, "input", operand);
  b.op.in.push_back(labels);
  b.op.out.push_back(kept);
  b.op.flops = count(source.shape);
  return b.done({out})[0];
}

std::vector<TensorId> Domain::keep(Call& c, TensorId t, const std::vector<int>& whole, const std::vector<DType>& dtypes) {
  Build b = c.build(Prim::Labelled);
  std::vector<int> labels = b.fresh(t);
  for (int i : whole)
    if (static_cast<std::size_t>(i) < labels.size() && labels[static_cast<std::size_t>(i)] >= 0) {
      model::Label& l = b.op.labels[static_cast<std::size_t>(labels[static_cast<std::size_t>(i)])];
      l.blocked = true;
      l.why = c.rule.why.empty() ? last_part(c.name) : c.rule.why;
    }
  b.operand(t, c.rule.signature[0].name, c.expr(c.rule.signature[0].name));
  b.op.in.push_back(labels);
  const model::Tensor source = tensor(t);
  b.op.flops = c.rule.flops.empty() ? count(source.shape) : flops_of(c.rule.flops, count(source.shape), {});
  std::vector<Out> outs;
  for (DType type : dtypes) {
    b.op.out.push_back(labels);
    outs.push_back({source.shape, type, source.literal_one});
  }
  return b.done(std::move(outs));
}

/// `rule:` notation.
Value Domain::pattern(Call& c) {
  const rules::Pattern& p = c.rule.pattern;
  Build b = c.build(Prim::Labelled);
  std::vector<std::pair<std::string, int>> named;  // word → label
  std::vector<int> batch;                          // labels of "..."
  Shape batch_shape;
  std::vector<Value> operands;
  std::vector<const rules::PatternOperand*> used;
  for (std::size_t k = 0; k < p.inputs.size(); ++k) {
    const std::string& param = c.rule.operands[k];
    if (p.inputs[k].optional && !c.has(param)) continue;
    c.tensor(param);  // raises when it is none
    operands.push_back(c.arg(param));
    used.push_back(&p.inputs[k]);
  }
  // Sizes of the leading dimensions first: they are broadcast.
  std::vector<Shape> leads;
  std::vector<std::vector<char>> lead_ones;
  for (std::size_t k = 0; k < used.size(); ++k) {
    const model::Tensor& t = tensor(id(operands[k]));
    std::size_t fixed = 0;
    bool any = false;
    for (const auto& d : used[k]->dims) (d.name == "..." ? any = true : (++fixed, true));
    if (t.shape.size() < fixed || (!any && t.shape.size() != fixed))
      in.raise("RuntimeError",
               c.name + "(): expected " + (any ? "at least " : "") + std::to_string(fixed) + " dimensions for '" + c.rule.operands[k] +
                   "', got " + std::to_string(t.shape.size()),
               c.info.call);
    if (any && !used[k]->bias) {
      leads.emplace_back(t.shape.begin(), t.shape.end() - static_cast<std::ptrdiff_t>(fixed));
      lead_ones.emplace_back(t.literal_one.begin(), t.literal_one.end() - static_cast<std::ptrdiff_t>(fixed));
    }
  }
  batch_shape = broadcast(leads, c.info.call);
  std::vector<char> batch_ones(batch_shape.size(), 1);
  for (std::size_t k = 0; k < leads.size(); ++k)
    for (std::size_t i = 0; i < leads[k].size(); ++i)
      if (!lead_ones[k][i]) batch_ones[batch_shape.size() - leads[k].size() + i] = 0;
  for (std::size_t i = 0; i < batch_shape.size(); ++i) batch.push_back(batch_shape[i] == 1 && batch_ones[i] ? -1 : b.label(batch_shape[i]));
  auto label_of = [&](const rules::PatternDim& d, std::int64_t size) {
    for (auto& [name, l] : named)
      if (name == d.name) {
        model::Label& old = b.op.labels[static_cast<std::size_t>(l)];
        if (old.size == 1 && size != 1) old.size = size;
        if (size != old.size && size != 1)
          in.raise("RuntimeError",
                   c.name + "(): sizes of dimension '" + d.name + "' differ: " + std::to_string(old.size) + " and " + std::to_string(size),
                   c.info.call);
        return l;
      }
    int l = b.label(size, d.blocked, d.blocked ? (c.rule.why.empty() ? last_part(c.name) : c.rule.why) : "");
    named.emplace_back(d.name, l);
    return l;
  };
  // The bias comes last so that its sizes are known; operands keep their order in the operation.
  for (std::size_t k = 0; k < used.size(); ++k) {
    const model::Tensor t = tensor(id(operands[k]));
    std::vector<int> labels;
    std::size_t fixed = 0;
    for (const auto& d : used[k]->dims) fixed += d.name != "...";
    std::size_t at = 0;
    for (const auto& d : used[k]->dims) {
      if (d.name == "...") {
        std::size_t n = t.shape.size() - fixed;
        for (std::size_t i = 0; i < n; ++i, ++at) {
          std::size_t j = batch_shape.size() + i - std::min(n, batch_shape.size());
          bool wide = used[k]->bias || (t.shape[at] == 1 && (batch_shape[j] != 1 || t.literal_one[at]));
          labels.push_back(wide ? -1 : batch[j]);
        }
      } else {
        labels.push_back(label_of(d, t.shape[at]));
        ++at;
      }
    }
    b.op.in.push_back(std::move(labels));
    std::size_t which = static_cast<std::size_t>(used[k] - p.inputs.data());
    b.operand(id(operands[k]), c.rule.operands[which], c.expr(c.rule.operands[which]), used[k]->bias);
  }
  std::vector<Out> outs;
  DType type = result_type(*this, c.rule.type, promote(operands), tensor(id(operands[0])).dtype);
  for (const auto& o : p.outputs) {
    Out out;
    out.dtype = type;
    std::vector<int> labels;
    for (const auto& d : o.dims) {
      if (d.name == "...") {
        for (std::size_t i = 0; i < batch.size(); ++i) {
          labels.push_back(batch[i]);
          out.shape.push_back(batch_shape[i]);
          out.ones.push_back(batch_ones[i]);
        }
        continue;
      }
      auto known_label = std::find_if(named.begin(), named.end(), [&](const auto& n) { return n.first == d.name; });
      std::int64_t size = 1;
      if (known_label == named.end()) {
        // A result dimension without a source has the size of the input dimension in its place (matrix functions).
        const Shape& s = shape(id(operands[0]));
        size = out.shape.size() < s.size() ? s[out.shape.size()] : 1;
      }
      int l = label_of(d, size);
      labels.push_back(l);
      out.shape.push_back(b.op.labels[static_cast<std::size_t>(l)].size);
      out.ones.push_back(0);
    }
    b.op.out.push_back(std::move(labels));
    outs.push_back(std::move(out));
  }
  double out_count = count(outs[0].shape);
  bool contracted = false;
  double all = 1;
  for (std::size_t l = 0; l < b.op.labels.size(); ++l) {
    all *= static_cast<double>(b.op.labels[l].size);
    bool in_out = false;
    for (const auto& o : b.op.out) in_out = in_out || std::find(o.begin(), o.end(), static_cast<int>(l)) != o.end();
    contracted = contracted || !in_out;
  }
  std::vector<std::pair<std::string, std::int64_t>> sizes;
  for (auto& [name, l] : named) sizes.emplace_back(name, b.op.labels[static_cast<std::size_t>(l)].size);
  b.op.flops = !c.rule.flops.empty() ? flops_of(c.rule.flops, out_count, sizes) : contracted ? 2 * all : out_count;
  std::vector<TensorId> ids = b.done(std::move(outs));
  return ids.size() == 1 ? wrap(ids[0]) : wrap(ids);
}

TensorId Domain::opaque(const std::string& name, const Site& site, const std::vector<TensorId>& inputs, Out out, std::string why) {
  Build b(*this, name, Prim::Opaque, site);
  for (std::size_t i = 0; i < inputs.size(); ++i) b.operand(inputs[i], std::to_string(i));
  b.op.note = std::move(why);
  b.op.flops = count(out.shape);
  return b.done({std::move(out)})[0];
}

TensorId Domain::reshape(const std::string& name, const Site& site, TensorId t, Shape target, std::vector<char> ones,
                         std::vector<model::SizeArg> sizes, const program::Expr* operand, std::vector<int> into) {
  Build b(*this, name, Prim::Reshape, site);
  b.op.into = std::move(into);
  b.view = true;
  b.op.linearity = Linearity::Linear;
  b.operand(t, "input", operand);
  b.op.size_args = std::move(sizes);
  if (!site.direct)
    for (auto& s : b.op.size_args) s.expr = nullptr;
  DType type = tensor(t).dtype;
  TensorId out = b.done({{std::move(target), type, std::move(ones)}})[0];
  if (const Values* k = known(t)) know(out, *k);
  return out;
}

TensorId Domain::merge(const std::string& name, const Site& site, TensorId t, std::vector<int> into, std::size_t rank,
                       const program::Expr* operand) {
  const model::Tensor source = tensor(t);
  Shape target(rank, 1);
  std::vector<char> ones(rank, 1);
  std::vector<int> parts(rank, 0);
  for (std::size_t i = 0; i < into.size(); ++i) {
    if (into[i] < 0) continue;
    const auto to = static_cast<std::size_t>(into[i]);
    target[to] *= source.shape[i];
    ones[to] = parts[to]++ == 0 ? source.literal_one[i] : 0;
  }
  return reshape(name, site, t, std::move(target), std::move(ones), {}, operand, std::move(into));
}

TensorId Domain::insert_ones(const std::string& name, const Site& site, TensorId t, const std::vector<std::size_t>& positions,
                             const program::Expr* operand) {
  const std::size_t rank = shape(t).size() + positions.size();
  std::vector<int> into;
  for (std::size_t i = 0; i < rank; ++i)
    if (std::find(positions.begin(), positions.end(), i) == positions.end()) into.push_back(static_cast<int>(i));
  return merge(name, site, t, std::move(into), rank, operand);
}

TensorId Domain::permute(const std::string& name, const Site& site, TensorId t, const std::vector<int>& order,
                         const program::Expr* operand) {
  Build b(*this, name, Prim::Labelled, site);
  b.view = true;
  b.op.linearity = Linearity::Linear;
  std::vector<int> labels = b.fresh(t);
  const model::Tensor source = tensor(t);
  Out out;
  out.dtype = source.dtype;
  std::vector<int> moved;
  for (int i : order) {
    moved.push_back(labels[static_cast<std::size_t>(i)]);
    out.shape.push_back(source.shape[static_cast<std::size_t>(i)]);
    out.ones.push_back(source.literal_one[static_cast<std::size_t>(i)]);
  }
  b.operand(t, "input", operand);
  b.op.in.push_back(labels);
  b.op.out.push_back(moved);
  TensorId result = b.done({out})[0];
  known::permute(*this, t, order, result);
  return result;
}

TensorId Domain::expand(const std::string& name, const Site& site, TensorId t, Shape target, std::vector<model::SizeArg> sizes,
                        const program::Expr* operand) {
  Build b(*this, name, Prim::Labelled, site);
  b.view = true;
  b.op.linearity = Linearity::Linear;
  const model::Tensor source = tensor(t);
  std::size_t shift = target.size() - source.shape.size();
  Out out{target, source.dtype, std::vector<char>(target.size(), 0)};
  std::vector<int> in_labels, out_labels;
  for (std::size_t j = 0; j < target.size(); ++j) {
    bool old = j >= shift;
    bool same = old && source.shape[j - shift] == target[j];
    if (same) {
      int l = source.shape[j - shift] == 1 && source.literal_one[j - shift] ? -1 : b.label(target[j]);
      in_labels.push_back(l);
      out_labels.push_back(l);
      out.ones[j] = source.literal_one[j - shift];
    } else {
      if (old) in_labels.push_back(-1);
      out_labels.push_back(b.label(target[j]));
    }
  }
  b.operand(t, "input", operand);
  b.op.size_args = std::move(sizes);
  if (!site.direct)
    for (auto& s : b.op.size_args) s.expr = nullptr;
  b.op.in.push_back(in_labels);
  b.op.out.push_back(out_labels);
  TensorId result = b.done({out})[0];
  known::gather(*this, t, result, [&](const Shape& at) {
    std::int64_t index = 0;
    for (std::size_t i = 0; i < source.shape.size(); ++i) index = index * source.shape[i] + (source.shape[i] == 1 ? 0 : at[i + shift]);
    return index;
  });
  return result;
}

TensorId Domain::cast(const std::string& name, const Site& site, TensorId t, DType dtype, const program::Expr* operand) {
  if (tensor(t).dtype == dtype) return t;
  Build b(*this, name, Prim::Labelled, site);
  // A cast to a shorter type rounds: a partial sum must be complete before it.
  b.op.linearity =
      model::is_floating(dtype) && model::is_floating(tensor(t).dtype) && model::bytes_of(dtype) >= model::bytes_of(tensor(t).dtype)
      ? Linearity::Linear
      : Linearity::Nonlinear;
  std::vector<int> labels = b.fresh(t);
  b.operand(t, "input", operand);
  b.op.in.push_back(labels);
  b.op.out.push_back(labels);
  const model::Tensor source = tensor(t);
  TensorId out = b.done({{source.shape, dtype, source.literal_one}})[0];
  if (const Values* k = known(t)) {
    Values v = *k;
    for (double& x : v) {
      if (dtype == DType::Bool) x = x != 0;
      else if (!model::is_floating(dtype)) x = std::trunc(x);
    }
    know(out, std::move(v));
  }
  return out;
}

}  // namespace shardwright::eval::torch
