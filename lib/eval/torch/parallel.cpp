// The native module `_shardwright`: what descriptions of parallel layers and of collectives are made of. Sizes are those of one rank.
//   tp(), rank()           numbers that remember that they are the tensor-parallel size and rank (a Sym of a tensor made for it)
//   plain_tp()             the size as a number like any other, for sizes that are made up
//   region(kind, x, dim)   an identity, gather or scatter, recorded as an operation "shardwright.<kind>"
//   layout(w, dim, outer)  the sharded dimension is `outer` whole blocks, each cut (Megatron's stride)
//   result(y, bias)        the pair that a parallel layer returns
//   note(code, text, …)    something noticed
#include "eval/torch/compute.h"
#include "eval/torch_link.h"

namespace shardwright::eval::torch {
namespace {

Value tracked(Domain& d, TensorId& holder, std::int64_t number, const char* name, const program::Expr* call) {
  if (holder < 0) {
    holder = d.new_tensor({{number}, DType::I64, {}}, model::Origin::Constant);
    d.in.trace.tensors[static_cast<std::size_t>(holder)].name = name;
  }
  const Site site = d.in.site(call);
  return Value::integer(number, d.in.dim_sym(holder, 0, number, site.expr ? site.expr->range : Range{}));
}

TensorId record(Domain& d, const std::string& kind, TensorId t, Shape shape, const program::Expr* call) {
  Build b(d, "shardwright." + kind, model::Prim::Labelled, d.in.site(call));
  b.op.linearity = model::Linearity::Linear;
  const Shape before = d.shape(t);
  std::vector<int> in, out;
  for (std::size_t i = 0; i < before.size(); ++i) {
    in.push_back(b.label(before[i]));
    out.push_back(before[i] == shape[i] ? in.back() : b.label(shape[i], true, kind));
  }
  b.operand(t, "input");
  b.op.in.push_back(in);
  b.op.out.push_back(out);
  return b.done({{std::move(shape), d.tensor(t).dtype, d.tensor(t).literal_one}})[0];
}

/// region(kind, x, dim=-1, size=None): `size` is the whole's size along dim.
Value region(Domain& d, CallInfo& info) {
  static const Signature signature("region", "kind, x, dim=-1, size=None");
  auto b = signature.bind(d.in, info);
  Value x = b[1];
  take_first(d, x, info.call);
  if (!x.is(Kind::Tensor) || d.parallel.tp == 1) return x;
  const std::string kind = d.in.to_str(b[0]);
  TensorId t = d.id(x);
  Shape shape = d.shape(t);
  if (shape.empty()) return kind == "gather" || kind == "scatter" ? x : d.wrap(record(d, kind, t, std::move(shape), info.call));
  const std::int64_t rank = static_cast<std::int64_t>(shape.size());
  std::int64_t dim = d.integer(b[2]).value_or(-1);
  if (dim < -rank || dim >= rank) dim = rank - 1;
  if (dim < 0) dim += rank;
  std::int64_t& n = shape[static_cast<std::size_t>(dim)];
  const std::int64_t tp = d.parallel.tp;
  if (kind == "gather") {
    n *= tp;
  } else if (kind == "scatter" || kind == "row_input" || kind == "reduce_scatter") {
    const auto whole = d.integer(b[3]);
    bool local = kind != "reduce_scatter" && d.observer && d.observer->sharded(t, static_cast<int>(dim));
    if (whole && n != *whole && n * tp == *whole) local = true;
    if (whole && !local && n != *whole)
      d.in.raise("RuntimeError",
                 "the layer expects " + std::to_string(*whole) + " in dimension " + std::to_string(dim) + ", got " + std::to_string(n),
                 info.call);
    if (!local) {
      if (n % tp != 0)
        return d.in.unknown("a dimension of size " + std::to_string(n) + " cannot be divided over " + std::to_string(tp) + " ranks",
                            info.call);
      n /= tp;
    }
  }
  return d.wrap(record(d, kind, t, std::move(shape), info.call));
}

}  // namespace

void take_first(Domain& d, Value& v, const program::Expr* at) {
  if (!v.is(Kind::Tuple) || !v.obj()->cls || v.obj()->cls != d.parallel.result_class) return;
  auto* pair = static_cast<LayerResultObj*>(v.obj());
  if (d.observer) d.observer->pair_used(*pair, d.in.site(at));
  v = pair->items[0];
}

void register_parallel(Domain& d) {
  Interpreter& in = d.in;
  d.parallel.result_class = in.make_class("_shardwright", "LayerResult", {in.builtin_class("tuple")});
  in.method(d.parallel.result_class, "__getattr__", [&d](Interpreter& in, CallInfo& info) -> Value {
    const std::string name = in.to_str(info.args.at(1));
    if (name.starts_with("__")) in.raise("AttributeError", "'tuple' object has no attribute '" + name + "'", info.call);
    Value first = info.args[0];
    take_first(d, first, info.call);
    return in.getattr(first, name, info.call);
  });
  // The pair in arithmetic, also with a number: its first element is meant.
  static constexpr const char* operators[][3] = {{"+", "__add__", "__radd__"},
                                                 {"-", "__sub__", "__rsub__"},
                                                 {"*", "__mul__", "__rmul__"},
                                                 {"/", "__truediv__", "__rtruediv__"},
                                                 {"**", "__pow__", "__rpow__"}};
  for (const auto& o : operators)
    for (bool reflected : {false, true})
      in.method(d.parallel.result_class, o[reflected ? 2 : 1],
                [&d, op = std::string(o[0]), reflected](Interpreter& in, CallInfo& info) -> Value {
                  Value first = info.args.at(0);
                  take_first(d, first, info.call);
                  return reflected ? in.binary(op, info.args.at(1), first, info.call) : in.binary(op, first, info.args.at(1), info.call);
                });
  in.modules.native("_shardwright", [&d](Interpreter& in, ModuleObj& m) {
    in.def(m, "tp", [&d](Interpreter&, CallInfo& info) { return tracked(d, d.parallel.tp_size, d.parallel.tp, tp_size_name, info.call); });
    in.def(m, "plain_tp", [&d](Interpreter&, CallInfo&) { return Value::integer(d.parallel.tp); });
    in.def(m, "rank",
           [&d](Interpreter&, CallInfo& info) { return tracked(d, d.parallel.tp_rank, d.parallel.rank, tp_rank_name, info.call); });
    in.def(m, "region", [&d](Interpreter&, CallInfo& info) { return region(d, info); });
    in.def(m, "layout", [&d](Interpreter&, CallInfo& info) -> Value {
      if (info.args.size() > 2 && info.args[0].is(Kind::Tensor) && d.observer) {
        std::string mark = "layout";
        for (std::size_t i = 1; i < info.args.size(); ++i) mark += " " + std::to_string(d.integer(info.args[i]).value_or(0));
        d.observer->marked(d.id(info.args[0]), mark);
      }
      return info.args.empty() ? Value::none() : info.args[0];
    });
    in.def(m, "mark", [&d](Interpreter& in, CallInfo& info) -> Value {
      if (info.args.size() > 1 && info.args[0].is(Kind::Tensor) && d.observer)
        d.observer->marked(d.id(info.args[0]), in.to_str(info.args[1]));
      return info.args.empty() ? Value::none() : info.args[0];
    });
    in.def(m, "result", [&d](Interpreter& in, CallInfo& info) -> Value {
      if (!d.observer) return in.tuple(info.args);
      auto* pair = in.make<LayerResultObj>(info.args, d.parallel.result_class);
      pair->site = in.site(info.call);
      pair->layer = d.module_stack.empty() ? -1 : d.module_stack.back();
      // layer(x) in user code: the frame below the description's forward is the user's.
      pair->own_call = in.stack().size() >= 2 && !in.stack()[in.stack().size() - 2]->builtin;
      return pair;
    });
    in.def(m, "note", [&d](Interpreter& in, CallInfo& info) -> Value {
      if (!d.observer || info.args.size() < 2) return Value::none();
      std::vector<TensorId> ids;
      for (std::size_t i = 2; i < info.args.size(); ++i)
        if (info.args[i].is(Kind::Tensor)) ids.push_back(d.id(info.args[i]));
      model::ModuleId module = d.module_stack.empty() ? -1 : d.module_stack.back();
      for (std::size_t i = 2; i < info.args.size(); ++i)
        if (info.args[i].is(Kind::Instance)) module = info.args[i].as<InstanceObj>()->module_id;
      d.observer->noticed(in.to_str(info.args[0]), in.to_str(info.args[1]), ids, in.site(info.call), module);
      return Value::none();
    });
  });
}

}  // namespace shardwright::eval::torch
