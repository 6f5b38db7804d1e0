// Names of torch and its submodules: operations from the rules, types, devices, and the few functions that are no operations.
// What is easier in Python is in rules/layers/torch/**.py.
#include <algorithm>
#include <set>
#include <string_view>
#include <unordered_map>

#include "eval/torch/compute.h"

namespace shardwright::eval::torch {
namespace {

struct DTypeObj final : HostObj {
  DType type;
  DTypeObj(ClassObj* c, DType t) : HostObj(c), type(t) {}
  std::string repr(Interpreter&) const override { return std::string(model::torch_name(type)); }
  Value getattr(Interpreter&, std::string_view name) override {
    bool complex = type == DType::C64 || type == DType::C128;
    if (name == "is_floating_point") return Value::boolean(model::is_floating(type) && !complex);
    if (name == "is_complex") return Value::boolean(complex);
    if (name == "is_signed") return Value::boolean(type != DType::U8 && type != DType::Bool);
    if (name == "itemsize") return Value::integer(model::bytes_of(type));
    return {};
  }
};

struct DeviceObj final : HostObj {
  std::string type;
  Value index;
  DeviceObj(ClassObj* c, std::string t, Value i) : HostObj(c), type(std::move(t)), index(i) {}
  std::string repr(Interpreter&) const override {
    return "device(type='" + type + "'" + (index.is_none() ? "" : ", index=" + std::to_string(index.as_int())) + ")";
  }
  bool equals(Interpreter&, const Value& other) const override {
    return other.is(Kind::Host) && other.obj()->cls == cls && static_cast<DeviceObj*>(other.obj())->type == type;
  }
  std::size_t hash() const override { return std::hash<std::string>()(type); }
  Value getattr(Interpreter& in, std::string_view name) override {
    if (name == "type") return in.str(type);
    if (name == "index") return index;
    return {};
  }
};

Value make_device(Domain& d, std::string text, Value index = Value::none()) {
  if (std::size_t colon = text.find(':'); colon != std::string::npos) {
    index = Value::integer(std::atoll(text.c_str() + colon + 1));
    text.resize(colon);
  }
  return d.in.make<DeviceObj>(d.device_class, text, index);
}

void define_types(Domain& d, Interpreter& in) {
  d.dtype_class = in.make_class("torch", "dtype");
  d.device_class = in.make_class("torch", "device");
  d.size_class = in.make_class("torch", "Size", {in.builtin_class("tuple")});
  d.tensor_class = in.make_class("torch", "Tensor");
  d.parameter_class = in.make_class("torch.nn.parameter", "Parameter", {d.tensor_class});
  d.buffer_class = in.make_class("torch.nn.parameter", "Buffer", {d.tensor_class});
  for (int i = 0; i < 12; ++i) {
    DType t = static_cast<DType>(i);
    d.dtype_objects[t] = in.make<DTypeObj>(d.dtype_class, t);
  }
  in.method(d.device_class, "__new__", [&d](Interpreter& in, CallInfo& info) -> Value {
    Value first = info.args.size() > 1 ? info.args[1] : info.keyword("type") ? info.keyword("type")->value : Value::none();
    Value index = info.args.size() > 2 ? info.args[2] : info.keyword("index") ? info.keyword("index")->value : Value::none();
    if (first.is(Kind::Host) && first.obj()->cls == d.device_class) return first;
    if (first.is(Kind::Str)) return make_device(d, first.str(), index);
    if (first.is_number()) return make_device(d, "cuda", first);
    return in.unknown("device that is not known", info.call);
  });
  in.method(d.device_class, "__init__", [](Interpreter&, CallInfo&) { return Value::none(); });
  in.method(d.device_class, "__enter__", [](Interpreter&, CallInfo& info) { return info.args[0]; });
  in.method(d.device_class, "__exit__", [](Interpreter&, CallInfo&) { return Value::none(); });
  in.method(d.device_class, "__str__", [](Interpreter& in, CallInfo& info) {
    auto* o = static_cast<DeviceObj*>(info.args[0].obj());
    return in.str(o->type + (o->index.is_none() ? "" : ":" + std::to_string(o->index.as_int())));
  });
  in.method(d.size_class, "numel", [](Interpreter& in, CallInfo& info) {
    Value n = Value::integer(1);
    for (const Value& v : info.args[0].as<SeqObj>()->items) n = in.binary("*", n, v);
    return n;
  });
  // torch.Tensor(2, 3): uninitialised; torch.Tensor([1, 2]): of these numbers.
  in.method(d.tensor_class, "__new__", [&d](Interpreter&, CallInfo& info) -> Value {
    std::vector<Value> rest(info.args.begin() + 1, info.args.end());
    if (rest.size() == 1 && !rest[0].is_number()) {
      if (rest[0].is(Kind::Tensor)) return d.wrap(d.id(rest[0]));
      if (rest[0].is(Kind::Tuple) && rest[0].obj()->cls == d.size_class) return d.call_op("torch.empty", rest, info.call);
      return d.call_op("torch.tensor", rest, info.call, {}, {{"dtype", d.dtype_value(d.default_dtype), nullptr}});
    }
    if (rest.empty()) rest.push_back(Value::integer(0));
    return d.call_op("torch.empty", rest, info.call);
  });
  in.method(d.tensor_class, "__init__", [](Interpreter&, CallInfo&) { return Value::none(); });
  in.method(d.tensor_class, "_make_subclass",
            [](Interpreter& in, CallInfo& info) { return info.args.size() > 2 ? info.args[2] : in.unknown("tensor subclass", info.call); });
  in.method(d.parameter_class, "__new__", [&d](Interpreter& in, CallInfo& info) -> Value {
    Value data = info.args.size() > 1 ? info.args[1] : info.keyword("data") ? info.keyword("data")->value : Value::none();
    Value grad = info.args.size() > 2   ? info.args[2]
        : info.keyword("requires_grad") ? info.keyword("requires_grad")->value
                                        : Value::boolean(true);
    // A parameter of unknown size would be missing everywhere after this: no plan without it is right.
    if (data.is_unknown() && in.init_phase && !d.observer)
      in.raise("RuntimeError", "the size of this parameter cannot be told: " + data.as<UnknownObj>()->why, info.call);
    if (data.is_unknown()) return data;
    Out out{{0}, d.default_dtype, {}};
    if (data.is(Kind::Tensor)) {
      const model::Tensor& t = d.tensor(d.id(data));
      out = {t.shape, t.dtype, {}};
    }
    TensorId id = d.new_tensor(out, model::Origin::Parameter);
    model::Tensor& t = in.trace.tensors[static_cast<std::size_t>(id)];
    t.requires_grad = in.truth(grad).value_or(true) && model::is_floating(t.dtype);
    t.from_parameter = true;
    if (d.observer && data.is(Kind::Tensor)) d.observer->became(id, d.id(data));
    Value cls = info.args.empty() ? Value::none() : info.args[0];
    return d.wrap(id, cls.is(Kind::Class) ? cls.as<ClassObj>() : d.parameter_class);
  });
  in.method(d.parameter_class, "__init__", [](Interpreter&, CallInfo&) { return Value::none(); });
  // A tensor that becomes a buffer where it is set on a module.
  in.method(d.buffer_class, "__new__", [&d](Interpreter& in, CallInfo& info) -> Value {
    static const Signature signature("Buffer", "cls, data=None, *, persistent=True");
    auto b = signature.bind(in, info);
    if (!b[1].is(Kind::Tensor)) return b[1].is_unknown() ? b[1] : in.unknown("an empty Buffer", info.call);
    Value v = d.wrap(d.id(b[1]), d.buffer_class);
    in.plain_setattr(v.obj(), "persistent", b[2]);
    return v;
  });
  in.method(d.buffer_class, "__init__", [](Interpreter&, CallInfo&) { return Value::none(); });
  for (const rules::OpRule* rule : d.rules->ops())
    for (const std::string& name : rule->names)
      if (name.starts_with("torch.Tensor.")) {
        const std::string last = name.substr(13);
        in.method(d.tensor_class, last, [&d, name](Interpreter&, CallInfo& info) { return d.call_op(name, info); });
      }
}

/// torch.broadcast_shapes(*shapes)
Value broadcast_shapes(Domain& d, CallInfo& info) {
  std::vector<Shape> shapes;
  for (const Value& v : info.args) {
    auto s = d.integers(v);
    if (!s) return d.in.unknown("shape that is not known", info.call);
    shapes.push_back(*s);
  }
  std::vector<Value> out;
  for (auto n : d.broadcast(shapes, info.call)) out.push_back(Value::integer(n));
  return d.in.make<SeqObj>(Kind::Tuple, std::move(out), d.size_class);
}

/// A method of tensors as a function: torch.numel(x), torch.is_floating_point(x).
void forward_method(Domain& d, ModuleObj& m, const char* name) {
  d.in.def(m, name, [name](Interpreter& in, CallInfo& info) {
    if (info.args.empty()) return in.unknown(std::string("torch.") + name + " without an argument", info.call);
    CallInfo rest;
    rest.call = info.call;
    for (std::size_t i = 1; i < info.args.size(); ++i) rest.add(info.args[i], info.expr(i));
    rest.kwargs = info.kwargs;
    return in.call(in.getattr(info.args[0], name, info.call), rest);
  });
}

void fill_torch(Domain& d, ModuleObj& m) {
  Interpreter& in = d.in;
  NameMap& names = m.env.vars;
  for (auto& [type, value] : d.dtype_objects) names.set(std::string(model::torch_name(type)).substr(6), value);
  for (auto [alias, type] : std::initializer_list<std::pair<const char*, DType>>{{"float", DType::F32},
                                                                                 {"double", DType::F64},
                                                                                 {"half", DType::F16},
                                                                                 {"long", DType::I64},
                                                                                 {"int", DType::I32},
                                                                                 {"short", DType::I16},
                                                                                 {"cfloat", DType::C64},
                                                                                 {"cdouble", DType::C128},
                                                                                 {"chalf", DType::C64},
                                                                                 {"complex32", DType::C64},
                                                                                 {"uint16", DType::I16},
                                                                                 {"uint32", DType::I32},
                                                                                 {"uint64", DType::I64},
                                                                                 {"float8_e4m3fn", DType::I8},
                                                                                 {"float8_e5m2", DType::I8}})
    names.set(alias, d.dtype_objects.at(type));
  names.set("Tensor", d.tensor_class);
  names.set("Size", d.size_class);
  names.set("dtype", d.dtype_class);
  names.set("device", d.device_class);
  in.def(m, "is_tensor", [](Interpreter&, CallInfo& info) { return Value::boolean(!info.args.empty() && info.args[0].is(Kind::Tensor)); });
  for (const char* name : {"numel", "is_floating_point", "is_complex"}) forward_method(d, m, name);
  in.def(m, "broadcast_shapes", [&d](Interpreter&, CallInfo& info) { return broadcast_shapes(d, info); });
  in.def(m, "result_type", [&d](Interpreter&, CallInfo& info) { return d.dtype_value(d.promote(info.args)); });
  in.def(m, "promote_types", [&d](Interpreter& in, CallInfo& info) {
    if (info.args.size() != 2) return in.unknown("promote_types", info.call);
    auto a = d.as_dtype(info.args[0]), b = d.as_dtype(info.args[1]);
    if (!a || !b) return in.unknown("promote_types of something that is no type", info.call);
    Value x = d.wrap(d.new_tensor({{1}, *a, {}}, model::Origin::Constant)),
          y = d.wrap(d.new_tensor({{1}, *b, {}}, model::Origin::Constant));
    return d.dtype_value(d.promote({x, y}));
  });
  in.def(m, "get_default_dtype", [&d](Interpreter&, CallInfo&) { return d.dtype_value(d.default_dtype); });
  in.def(m, "set_default_dtype", [&d](Interpreter&, CallInfo& info) {
    if (!info.args.empty())
      if (auto t = d.as_dtype(info.args[0])) d.default_dtype = *t;
    return Value::none();
  });
  in.def(m, "is_grad_enabled", [&d](Interpreter&, CallInfo&) { return Value::boolean(d.grad_enabled); });
  in.def(m, "_set_grad_enabled", [&d](Interpreter& in, CallInfo& info) {
    bool old = d.grad_enabled;
    if (!info.args.empty()) d.grad_enabled = in.truth(info.args[0]).value_or(true);
    return Value::boolean(old);
  });
  // By a call rather than by `with`: until the next such call the mode belongs to nobody's block.
  in.def(m, "_grad_mode_left", [&d](Interpreter& in, CallInfo& info) {
    auto& exits = in.trace.exits;
    for (auto& e : exits)
      if (e.kind == model::Exit::Mode && e.until == 0 && d.grad_enabled) e.until = in.tick();
    const eval::Site at = in.site(info.call);
    if (!d.grad_enabled && !in.init_phase) exits.push_back({model::Exit::Mode, at.expr ? at.expr->range : support::Range{}, in.tick(), 0});
    return Value::none();
  });
  in.def(m, "_differentiated", [](Interpreter& in, CallInfo& info) {
    const eval::Site at = in.site(info.call);
    if (!in.init_phase)
      in.trace.exits.push_back({model::Exit::Gradient, at.expr ? at.expr->range : support::Range{}, in.trace.forward_begin, in.tick()});
    return Value::none();
  });
  in.def(m, "_enter_custom", [&d](Interpreter& in, CallInfo& info) {
    d.custom_functions.push_back(in.to_str(info.args.at(0)));
    return Value::none();
  });
  in.def(m, "_leave_custom", [&d](Interpreter&, CallInfo&) {
    if (!d.custom_functions.empty()) d.custom_functions.pop_back();
    return Value::none();
  });
  /// Unknown with a reason, from Python descriptions.
  in.def(m, "_unknown",
         [](Interpreter& in, CallInfo& info) { return in.unknown(info.args.empty() ? "not known" : in.to_str(info.args[0]), info.call); });
  /// Opaque operation: _opaque(name, shape, dtype, *tensors).
  in.def(m, "_opaque", [&d](Interpreter& in, CallInfo& info) -> Value {
    if (info.args.size() < 3) return in.unknown("opaque operation", info.call);
    auto shape = d.integers(info.args[1]);
    auto type = d.as_dtype(info.args[2]);
    if (!shape || !type) return in.unknown("opaque operation of a size that is not known", info.call);
    std::vector<TensorId> ids;
    for (std::size_t i = 3; i < info.args.size(); ++i)
      if (info.args[i].is(Kind::Tensor)) ids.push_back(d.id(info.args[i]));
    return d.wrap(
        d.opaque(in.to_str(info.args[0]), in.site(info.call), ids, {*shape, *type, {}}, "no rule says how it can be computed in parts"));
  });
}

}  // namespace

Value Domain::device_value(const std::string& type) { return make_device(*this, type); }

void register_namespace(Domain& d) {
  Interpreter& in = d.in;
  define_types(d, in);
  in.modules.native("torch", [&d](Interpreter&, ModuleObj& m) { fill_torch(d, m); });
  in.modules.native("torch.nn.parameter", [&d](Interpreter&, ModuleObj& m) {
    m.env.vars.set("Parameter", d.parameter_class);
    m.env.vars.set("Buffer", d.buffer_class);
  });
  // Operations, by the module they live in.
  std::unordered_map<std::string_view, std::vector<const std::string*>> modules;
  for (const rules::OpRule* rule : d.rules->ops())
    for (const std::string& name : rule->names) {
      const auto module = std::string_view(name).substr(0, name.rfind('.'));
      if (module != "torch.Tensor") modules[module].push_back(&name);
    }
  for (auto& [module, names] : modules)
    in.modules.native(std::string(module), [&d, names = std::move(names)](Interpreter& in, ModuleObj& m) {
      for (const std::string* name : names)
        in.def(m, name->substr(name->rfind('.') + 1), [&d, name](Interpreter&, CallInfo& info) { return d.call_op(*name, info); });
    });
}

}  // namespace shardwright::eval::torch
