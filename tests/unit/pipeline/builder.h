// A small builder of traces for tests: no source text, only what lib/pipeline reads. Statements are recorded as a program would
// run them; every operation belongs to the statement that is running.
#pragma once
#include <string>
#include <vector>

#include "model/trace.h"

namespace shardwright::testing {

using namespace model;

class TraceBuilder {
 public:
  Trace t;
  program::Arena arena;

  TraceBuilder() {
    module("", "Net", -1);
    t.forward_begin = tick();
    root_ = enter(nullptr, 0);
    t.root_frame = root_;
  }

  Clock tick() { return ++clock_; }

  ModuleId module(const std::string& fqn, const std::string& type, ModuleId parent, bool builtin = false) {
    Module m;
    m.id = static_cast<ModuleId>(t.modules.size());
    m.parent = parent;
    m.fqn = fqn;
    m.type = type;
    m.builtin = builtin;
    m.attr = fqn.substr(fqn.find_last_of('.') + 1);
    t.modules.push_back(m);
    if (parent >= 0) t.modules[static_cast<std::size_t>(parent)].children.push_back({m.attr, m.id});
    return m.id;
  }

  TensorId tensor(std::vector<std::int64_t> shape, Origin origin, const std::string& name = "", DType d = DType::F32) {
    Tensor x;
    x.id = static_cast<TensorId>(t.tensors.size());
    x.shape = std::move(shape);
    x.origin = origin;
    x.name = name;
    x.dtype = d;
    x.from_input = origin == Origin::Input;
    x.from_parameter = x.requires_grad = origin == Origin::Parameter;
    t.tensors.push_back(x);
    if (origin == Origin::Input) {
      Binding b;
      b.kind = Binding::Tensor;
      b.tensor = x.id;
      t.inputs.push_back({name, b});
    }
    return x.id;
  }

  TensorId parameter(ModuleId m, std::vector<std::int64_t> shape, const std::string& attr, bool buffer = false) {
    const TensorId id =
        tensor(std::move(shape), buffer ? Origin::Buffer : Origin::Parameter, t.modules[static_cast<std::size_t>(m)].fqn + "." + attr);
    t.modules[static_cast<std::size_t>(m)].params.push_back({attr, id, buffer, true});
    return id;
  }

  /// An operation with the given cost. Labels: all inputs and the output share nothing (contracting), unless `elementwise`.
  TensorId op(const std::vector<TensorId>& inputs, std::vector<std::int64_t> shape, double flops, const std::string& name = "op",
              Prim prim = Prim::Labelled, bool elementwise = false) {
    return ops(inputs, {std::move(shape)}, flops, name, prim, elementwise)[0];
  }

  std::vector<TensorId> ops(const std::vector<TensorId>& inputs, std::vector<std::vector<std::int64_t>> shapes, double flops,
                            const std::string& name, Prim prim, bool elementwise = false) {
    Op o;
    o.id = static_cast<OpId>(t.ops.size());
    o.name = name;
    o.prim = prim;
    o.flops = flops;
    o.linearity = Linearity::Linear;
    bool from_input = false, from_parameter = false, grad = false, floating = true;
    for (TensorId i : inputs) {
      Operand x;
      x.tensor = i;
      o.inputs.push_back(x);
      from_input |= t.tensor(i).from_input;
      from_parameter |= t.tensor(i).from_parameter;
      grad |= t.tensor(i).requires_grad;
      floating &= is_floating(t.tensor(i).dtype);
    }
    if (prim == Prim::Labelled && !elementwise) {
      o.labels.push_back({8, false, ""});  // one label that only the inputs have: contracted
      o.in.assign(inputs.size(), {0});
      o.out.assign(shapes.size(), {});
    }
    o.module = module_;
    o.frame = frame_;
    o.step = step_;
    for (auto& s : shapes) {
      const TensorId out = tensor(std::move(s), Origin::Result, "", floating ? DType::F32 : t.tensor(inputs[0]).dtype);
      Tensor& x = t.tensors.back();
      x.producer = o.id;
      x.output_index = static_cast<int>(o.outputs.size());
      x.from_input = from_input;
      x.from_parameter = from_parameter;
      x.requires_grad = grad;
      o.outputs.push_back(out);
    }
    o.clock = tick();
    t.ops.push_back(o);
    return t.ops.back().outputs;
  }

  /// Runs `body` as one statement of the current frame.
  template <class F>
  void statement(F body, IterPath iters = {}, program::StmtKind kind = program::StmtKind::Assign) {
    Step s;
    s.id = static_cast<StepId>(t.steps.size());
    s.frame = frame_;
    program::Stmt* stmt = arena.stmt(kind, {});
    s.stmt = stmt;
    if (step_ >= 0 && t.step(step_).frame == frame_) const_cast<program::Stmt*>(t.step(step_).stmt)->body.push_back(stmt);
    else functions_[static_cast<std::size_t>(frame_)]->body.push_back(stmt);
    s.iters = std::move(iters);
    s.begin = tick();
    t.steps.push_back(s);
    const StepId outer = step_;
    step_ = s.id;
    body();
    step_ = outer;
    t.steps[static_cast<std::size_t>(s.id)].end = tick();
    t.steps[static_cast<std::size_t>(s.id)].end_step = static_cast<StepId>(t.steps.size());
  }

  /// Calls a module: a frame, a ModuleCall, and `body` inside. `frame_builtin`: the callee's code is a layer description.
  template <class F>
  void call(ModuleId m, F body, bool frame_builtin = false) {
    program::Expr* e = arena.expr(program::ExprKind::Call, {});
    const std::size_t index = t.calls.size();
    ModuleCall c;
    c.module = m;
    c.caller = frame_;
    c.call = e;
    c.step = step_;
    t.calls.push_back(c);
    const FrameId outer = frame_;
    const StepId outer_step = step_;
    const ModuleId outer_module = module_;
    const FrameId f = enter(e, m);
    t.frames.back().builtin = frame_builtin;
    t.calls[index].callee = f;
    t.calls[index].begin = t.frame(f).begin;
    body();
    t.frames[static_cast<std::size_t>(f)].end = t.calls[index].end = tick();
    frame_ = outer;
    step_ = outer_step;
    module_ = outer_module;
  }

  void output(const std::vector<TensorId>& out) {
    t.output.kind = Binding::Sequence;
    for (TensorId o : out) {
      Binding b;
      b.kind = Binding::Tensor;
      b.tensor = o;
      t.output.items.push_back({"", b});
    }
    t.frames[static_cast<std::size_t>(root_)].end = tick();
  }

  FrameId frame() const { return frame_; }

 private:
  FrameId enter(const program::Expr* call, ModuleId self) {
    Frame f;
    f.id = static_cast<FrameId>(t.frames.size());
    f.parent = call ? frame_ : -1;
    f.self = self;
    f.call = call;
    f.step = step_;
    f.begin = tick();
    program::Function* fn = arena.function();
    fn->name = "forward";
    f.function = fn;
    functions_.push_back(fn);
    t.frames.push_back(f);
    frame_ = f.id;
    module_ = self;
    return f.id;
  }

  Clock clock_ = 0;
  FrameId frame_ = -1, root_ = -1;
  StepId step_ = -1;
  ModuleId module_ = 0;
  std::vector<program::Function*> functions_;  // by frame
};

}  // namespace shardwright::testing
