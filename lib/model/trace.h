// The waist of the design: what running a model's source on abstract tensors leaves behind. The interpreter (lib/eval) fills
// it; sharding, pipeline, plan, lint and rewrite read it and never the syntax alone. Another source of traces (a C++ front
// end, a traced graph) fills the same structures.
//
// Time. Everything that happens gets a strictly increasing `clock`, shared by operations, steps, variable writes, attribute
// writes and frames, so that "before" and "after" are plain comparisons.
#pragma once
#include <cstdint>
#include <deque>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "program/program.h"
#include "support/source.h"

namespace shardwright::model {

using support::Range;
using TensorId = std::int32_t;
using OpId = std::int32_t;
using ModuleId = std::int32_t;
using FrameId = std::int32_t;
using StepId = std::int32_t;
using Clock = std::int64_t;

enum class DType : std::uint8_t { F16, BF16, F32, F64, C64, C128, I8, U8, I16, I32, I64, Bool };
std::string_view short_name(DType);  ///< "f32", "i64", "bool", …
std::string_view torch_name(DType);  ///< "torch.float32", …
int bytes_of(DType);
bool is_floating(DType);  ///< floating or complex: can need a gradient

/// Where an integer (or a float computed from one) came from. Values that depend on no tensor's size have no Sym.
/// Lets later layers ask: what would this expression be if that dimension were local, or the batch another?
struct Sym {
  enum Kind : std::uint8_t { Const, Dim, Add, Sub, Mul, FloorDiv, TrueDiv, Mod, Pow, Neg, Min, Max, Other };
  Kind kind = Const;
  double value = 0;      ///< its value in this trace
  TensorId tensor = -1;  ///< Dim: size of dimension `dim` of `tensor`
  int dim = -1;
  const Sym* a = nullptr;
  const Sym* b = nullptr;
  Range read;  ///< Dim: the expression that read the size
};

enum class Origin : std::uint8_t { Input, Parameter, Buffer, Constant, Result };

struct Tensor {
  TensorId id = -1;
  std::vector<std::int64_t> shape;
  DType dtype = DType::F32;
  Origin origin = Origin::Result;
  std::string name;  ///< FQN of a parameter/buffer (first registration), name of an input
  OpId producer = -1;
  int output_index = 0;
  bool requires_grad = false;   ///< its value depends on a parameter (or on a float input) through differentiable operations
  bool from_input = false;      ///< depends on an input of forward
  bool from_parameter = false;  ///< depends on a parameter. Neither: constants and buffers only, can be computed again anywhere
  std::vector<char>
      literal_one;  ///< per dimension: this 1 was written as a literal / made by unsqueeze (no factor), not a size that happens to be 1
};

/// What an operation does to its dimensions. Nearly everything is Labelled.
enum class Prim : std::uint8_t {
  Labelled,  ///< dimensions named by labels, as in einsum: see Op::in/out/labels
  Reshape,   ///< one input, same elements in the same order, new shape (view, flatten, unflatten, squeeze, unsqueeze, …)
  Split,     ///< one input cut along `dim` into `sizes` (chunk, split, unbind before dropping the dimension)
  Concat,    ///< inputs joined along `dim` (cat; stack is Reshape then Concat)
  Create,    ///< no tensor operand decides the values' layout: zeros, arange, full, rand…
  Opaque,    ///< not understood: everything it touches must be whole
};

/// One dimension letter of a Labelled operation.
struct Label {
  std::int64_t size = 1;
  bool blocked = false;  ///< the operation needs this dimension whole (softmax, norm, roll, …)
  std::string why;       ///< reason when blocked
};

enum class Linearity : std::uint8_t {
  Linear,    ///< linear in all operands jointly (add, sub, neg, permute, sum, multiplication by a number)
  Bilinear,  ///< linear in each operand alone (mul, matmul, conv); div is linear in the first only: see Nonlinear operands
  Nonlinear,
};

struct Operand {
  TensorId tensor = -1;
  std::string param;                    ///< the operation's own parameter name: "input", "weight", "bias", "0", …
  const program::Expr* expr = nullptr;  ///< the argument's expression in user code; nullptr when the operand is not written at `site`
  bool is_bias = false;                 ///< added once after a contraction (linear, conv): not part of the partial sum
};

/// An integer (or tuple of integers) in user code that sets sizes of the result.
struct SizeArg {
  enum Role : std::uint8_t {
    Dim,         ///< sets dimension `dim` of output 0 (a -1 in the source has value -1 and needs no edit)
    Shape,       ///< a whole tuple/size expression; `values` from dimension `dim` on
    SplitSize,   ///< size of one piece along Op::dim
    SplitSizes,  ///< list of the pieces' sizes
    Factor,      ///< a named length of an einops pattern: factor `dim` of the decomposed shape of output 0
    PieceStart,  ///< where output `dim` of a Split begins along Op::dim; negative: counted from the end
    PieceStop,   ///< where it ends
  };
  Role role = Dim;
  int dim = 0;
  std::vector<std::int64_t> values;
  std::vector<const Sym*> syms;  ///< beside values; entries may be nullptr
  const program::Expr* expr = nullptr;
};

/// A number in user code that enters the computation as a value (a scale, an eps), when it derives from a tensor's size.
struct ScalarArg {
  const program::Expr* expr = nullptr;
  double value = 0;
  const Sym* sym = nullptr;
};

struct Op {
  OpId id = -1;
  std::string name;  ///< canonical: "torch.nn.functional.linear", "torch.Tensor.view"
  Prim prim = Prim::Opaque;
  Linearity linearity = Linearity::Nonlinear;
  std::vector<Operand> inputs;
  std::vector<TensorId> outputs;
  // Labelled: label index per dimension, -1 for a dimension of size 1 that is broadcast. A label only in inputs is
  // contracted (summed) unless blocked; a label only in outputs is new.
  std::vector<std::vector<int>> in;
  std::vector<std::vector<int>> out;
  std::vector<Label> labels;
  bool mean = false;                ///< the contraction divides by the full size
  int dim = 0;                      ///< Split, Concat; see partition_slices
  std::vector<std::int64_t> sizes;  ///< Split; see partition_slices
  std::vector<int>
      into;  ///< Reshape that only merges, inserts or drops dimensions: where each one of the input goes, -1 for one dropped; else empty
  std::vector<SizeArg> size_args;
  std::vector<ScalarArg> scalar_args;
  std::string constants;  ///< arguments that are no tensors, "name=value;…", without those that only set sizes of the result
  double flops = 0;
  std::string random;  ///< "" or how it draws: "dropout", "rand": matters for RNG streams
  std::string note;    ///< Opaque: why
  Clock clock = 0;
  FrameId frame = -1;                   ///< innermost frame of *user* code (not of the built-in layer descriptions)
  const program::Expr* site = nullptr;  ///< the call/operator expression in that frame
  ModuleId module = -1;                 ///< innermost module whose forward is running (may be a built-in layer)
  StepId step = -1;                     ///< innermost user step
};

/// Position in the loops that enclose something: (For statement or comprehension, 0-based iteration), outermost first.
struct Iteration {
  const void* loop = nullptr;  ///< program::Stmt* (For/While) or program::Expr* (comprehension)
  int index = 0;
  int clause = 0;  ///< comprehensions: which `for`
  friend bool operator==(const Iteration&, const Iteration&) = default;
};
using IterPath = std::vector<Iteration>;

/// A call of a function of user code or of a built-in layer description.
struct Frame {
  FrameId id = -1;
  FrameId parent = -1;
  const program::Function* function = nullptr;
  ModuleId self = -1;                   ///< the module when it is a method (forward, __init__, helper) of one
  int object = -1;                      ///< or the object of `Trace::objects`, of a class that is no module's
  const program::Expr* call = nullptr;  ///< the Call expression in the parent's code; nullptr for the root
  StepId step = -1;                     ///< the parent's step
  IterPath iters;                       ///< loops of the parent's function around the call (comprehensions included)
  FrameId hands_back = -1;              ///< the call whose result it returned, the very same object
  bool via_partial = false;             ///< the callee's value was a functools.partial (or otherwise wrapped) function
  bool builtin = false;                 ///< code of rules/layers (torch.nn as described by us): nothing there is edited or cut
  bool init = false;                    ///< while building the model (before forward)
  Clock begin = 0, end = 0;
};

/// One executed statement. Compound statements are steps that contain the steps of their bodies (pre-order, `end_step` is one past the
/// last).
struct Step {
  StepId id = -1;
  FrameId frame = -1;
  const program::Stmt* stmt = nullptr;
  IterPath iters;  ///< loops of this function around the statement
  Clock begin = 0, end = 0;
  StepId end_step = -1;
};

/// A summary of a Python value, as far as later layers need it.
struct Binding {
  enum Kind : std::uint8_t { None, Bool, Int, Float, Str, Tensor, Module, Sequence, Mapping, Object, Function, Other };
  Kind kind = Other;
  TensorId tensor = -1;
  ModuleId module = -1;
  std::int64_t integer = 0;
  double number = 0;
  const Sym* sym = nullptr;
  std::string text;                                    ///< Str: value; Object: class name; Sequence: "tuple"/"list"; Other: type
  std::vector<std::pair<std::string, Binding>> items;  ///< Sequence ("" keys), Mapping, Object (attributes)
  std::vector<std::string> keys;  ///< Mapping with a key that is no string: each as a Python literal, "" for one that has none; else empty
  friend bool operator==(const Binding&, const Binding&) = default;
};

/// A local variable was bound (assignments, loop targets, parameters at entry).
struct VarWrite {
  FrameId frame = -1;
  StepId step = -1;
  std::string name;
  Binding value;
  Clock clock = 0;
};

/// What a local variable's container or object holds after a statement that changed it: `hs.append(x)`, `out[key] = y`, `collect(x, hs)`.
/// The variable is bound as before.
struct ContentWrite {
  FrameId frame = -1;
  std::string name;
  Binding value;
  Clock clock = 0;  ///< when the statement ended
};

/// An attribute of a module was bound: plain values, parameters, buffers, children.
struct AttrWrite {
  ModuleId owner = -1;
  std::string name;
  Binding value;
  enum Kind : std::uint8_t { Plain, Parameter, Buffer, Child } kind = Plain;
  FrameId frame = -1;
  StepId step = -1;
  const program::Expr* value_expr = nullptr;  ///< right-hand side, when written as an assignment in user code
  Clock clock = 0;
};

struct ModuleCall {
  ModuleId module = -1;
  FrameId caller = -1;                  ///< frame that made the call (may be built-in: Sequential)
  FrameId callee = -1;                  ///< frame of its forward
  const program::Expr* call = nullptr;  ///< in the caller's code
  StepId step = -1;
  std::vector<Binding> arguments;
  Binding result;
  Clock begin = 0, end = 0;
};

/// A parameter or buffer under one of its names.
struct ParamRef {
  std::string attr;
  TensorId tensor = -1;
  bool buffer = false;
  bool persistent = true;
};

struct Module {
  ModuleId id = -1;
  ModuleId parent = -1;  ///< first registration; -1 for the root and for modules never registered
  std::string attr;      ///< name in the parent
  std::string fqn;       ///< first registration: "layer1.blocks.0.attn"; "" for the root
  std::string type;      ///< qualified class: "package.layers.mlp.Mlp", "torch.nn.Linear"
  const program::ClassDef* class_def = nullptr;
  bool builtin = false;                           ///< class of rules/layers
  bool patched = false;                           ///< the source assigned to a built-in class of its MRO (nn.Linear.reset_parameters = …)
  std::vector<const program::ClassDef*> mro;      ///< user classes (with source) of its MRO, its own first; built-in ones left out
  ModuleId cloned_from = -1;                      ///< copy.deepcopy of this module: shares its constructor call
  bool construct_partial = false;                 ///< the callee's value was a functools.partial of the class
  FrameId construct_frame = -1;                   ///< frame that executed the constructor call
  const program::Expr* construct_call = nullptr;  ///< Call expression in that frame's code
  StepId construct_step = -1;
  IterPath construct_iters;
  FrameId init_frame = -1;                                 ///< frame of its __init__ (-1 if none ran in user code)
  std::vector<std::pair<std::string, Binding>> ctor_args;  ///< as bound to __init__'s parameters (built-in layers; for display otherwise)
  std::vector<const program::Expr*> ctor_exprs;            ///< beside ctor_args: the argument expression or nullptr
  std::vector<ParamRef> params;
  std::vector<std::pair<std::string, ModuleId>> children;
  bool training = false;
};

/// An object of a user's class that is no module: a processor that attention calls, a configuration with methods. Copies count as it.
struct PlainObject {
  std::vector<const program::ClassDef*> mro;      ///< user classes of its MRO, its own first
  const program::Expr* construct_call = nullptr;  ///< nullptr: made out of sight of the source
  FrameId construct_frame = -1;                   ///< −1: at the top level of a module, or where the model is built
  IterPath construct_iters;
  bool construct_partial = false;
};

/// A condition that was decided by sizes of tensors (so a plan for other sizes must ask again).
struct Guard {
  Range range;
  std::string op;
  const Sym* a = nullptr;
  const Sym* b = nullptr;
  double a_value = 0, b_value = 0;
  bool taken = false;
  Clock clock = 0;
};

/// State that outlives a call: an attribute of an object made while the model was built (or what is in a list or dict held by one),
/// changed by forward at `changed` and read at `read`. A stage that starts in between would read what the constructor left there; where
/// the read comes first, it is the next call's, and a stage that ends in between would not see the change.
struct State {
  std::string name;
  Range where;  ///< the change
  Clock changed = 0, read = 0;
};

/// A time in which no stage may start. `break`, `continue` or `return` under a condition that only data decides: what runs until then may
/// not run in a call, and the stage would not know. `Gradient`: forward differentiates what it has computed so far. `Mode`: gradients are
/// switched off by a call, and on again by another.
struct Exit {
  enum Kind : std::uint8_t { Break, Continue, Return, Gradient, Mode } kind = Return;
  Range where;
  Clock at = 0, until = 0;
};

/// What could not be followed, and where.
struct Incomplete {
  Range range;
  std::string why;
  ModuleId module = -1;
};

/// The source gives something of PyTorch's another attribute: `nn.Linear.reset_parameters = init`, `F.gelu = partial(F.gelu, …)`.
struct Patch {
  const program::Stmt* stmt = nullptr;
  std::string module;   ///< dotted name of the source that says so
  std::string what;     ///< "torch.nn.Linear.reset_parameters"
  bool inside = false;  ///< of a function or a block: no statement of the module's own
};

struct Trace {
  std::deque<Sym> syms;  ///< stable addresses
  std::vector<Tensor> tensors;
  std::vector<Op> ops;
  std::vector<Frame> frames;
  std::vector<Step> steps;
  std::vector<Module> modules;  ///< [0] is the root
  std::vector<PlainObject> objects;
  std::vector<VarWrite> var_writes;
  std::vector<ContentWrite> content_writes;
  std::vector<AttrWrite> attr_writes;
  std::vector<ModuleCall> calls;
  std::vector<Guard> guards;
  std::vector<Incomplete> incomplete;
  std::vector<State> states;
  std::vector<Exit> exits;
  std::vector<Patch> patches;
  std::vector<std::pair<Clock, ModuleId>> asked;  ///< forward looked at an attribute of a module from outside of that module's own methods
  std::set<TensorId> escaped;                     ///< given to something that is not followed, or met a value that is not known
  std::set<TensorId> hooked;                      ///< parameters with a hook of the program's own: what it is given must stay whole
  std::set<const program::Expr*>
      wrapping;                     ///< decorators of the program's own that put another function in the place of what they are given
  std::vector<State> constructors;  ///< what a constructor changes outside its object (a class's counter): `changed`, name, where
  std::unordered_map<TensorId, TensorId> shares;       ///< views and what in-place operations leave: the tensor whose memory they use
  std::vector<std::pair<Clock, TensorId>> overwrites;  ///< in-place operations of forward: when, what the memory holds then
  std::set<const program::Expr*> entering;  ///< decorators of the program's own that hand back what they are given: they enter it somewhere
  std::vector<std::pair<std::string, Binding>> inputs;  ///< forward's arguments in order
  Binding output;
  FrameId root_frame = -1;  ///< frame of the root's forward
  Clock forward_begin = 0;

  const Tensor& tensor(TensorId t) const { return tensors[static_cast<std::size_t>(t)]; }
  const Op& op(OpId o) const { return ops[static_cast<std::size_t>(o)]; }
  const Frame& frame(FrameId f) const { return frames[static_cast<std::size_t>(f)]; }
  const Step& step(StepId s) const { return steps[static_cast<std::size_t>(s)]; }
  const Module& module(ModuleId m) const { return modules[static_cast<std::size_t>(m)]; }
};

/// All names (FQNs) under which parameters/buffers are registered, in PyTorch's order (`named_parameters(remove_duplicate=False)`).
struct NamedTensor {
  std::string fqn;
  ModuleId module = -1;
  ParamRef ref;
};
std::vector<NamedTensor> named_tensors(const Trace&, bool buffers = true);

/// A decorator's function around a method that computes nothing and returns what the method returns is transparent: the method's frame
/// becomes a call of whoever called the decorated method. (Its arguments may differ from those written there.)
void fold_wrappers(Trace&);

/// Slices that together are a partition of a dimension (q, k, v = y[..., :d], y[..., d:2 * d], y[..., 2 * d:]) become Splits into all
/// the pieces, of which each uses one. Until then a slice of one dimension is Labelled with `dim` and `sizes` = {start, stop}, which those
/// that are no such part lose.
void partition_slices(Trace&);

/// Every tensor inside a Binding, depth first.
std::vector<TensorId> tensors_of(const Binding&);

std::int64_t numel(const Tensor&);

}  // namespace shardwright::model
