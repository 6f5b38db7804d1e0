// The tensor domain of the abstract interpreter: tensors are shapes and types, and every operation on them becomes a
// model::Op. What an operation does is said by rules/ops (by name); where a rule says `compute: NAME`, NAME is a function of
// this folder (see compute.h). Compound operations that are easier in Python are written in rules/layers/torch.
//
// Three habits:
//  - An operation never fails for want of knowledge: what is not understood gives an Unknown value or an Opaque operation.
//  - Small tensors made from constants keep their numbers (`values`), because schedules are computed with tensors.
//  - In-place operations make a new tensor and bind the Python object to it: the trace is functional.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "eval/interpreter.h"
#include "eval/observer.h"
#include "model/trace.h"
#include "rules/rules.h"

namespace shardwright::eval {
struct Watch;
}

namespace shardwright::eval::torch {

using model::DType;
using model::TensorId;
using Shape = std::vector<std::int64_t>;
using Values = std::vector<double>;
constexpr std::int64_t max_values = 4096;  ///< elements up to which numbers are kept

/// A result's description.
struct Out {
  Shape shape;
  DType dtype = DType::F32;
  std::vector<char> ones;  ///< Tensor::literal_one; empty: all 0
};

class Domain;

/// An operation being built. `site` is where it stands in user code.
struct Build {
  Build(Domain& d, std::string name, model::Prim prim, const Site& site);
  Domain& d;
  model::Op op;
  bool gradient = true;
  /// Adds an operand; its expression is kept only when it is written in user code.
  void operand(TensorId t, std::string param, const program::Expr* e = nullptr, bool bias = false);
  int label(std::int64_t size, bool blocked = false, std::string why = "");
  /// Labels of `t`'s dimensions, new ones; a literal 1 gets -1.
  std::vector<int> fresh(TensorId t);
  /// Records it; ids of the results.
  std::vector<TensorId> done(std::vector<Out> outs);
  bool view = false;  ///< the results share memory with the first operand
  bool direct = false;
};

/// A call of an operation, arguments bound.
struct Call {
  Domain& d;
  Interpreter& in;
  const rules::OpRule& rule;
  const std::string& name;  ///< canonical
  const Signature& signature;
  CallInfo& info;
  Signature::Bound args;
  Site site;
  bool inplace = false;

  bool has(std::string_view param) const;                   ///< given and not None
  Value arg(std::string_view param) const;                  ///< None when there is no such parameter
  const program::Expr* expr(std::string_view param) const;  ///< user's expression or nullptr
  bool is_tensor(std::string_view param) const;
  TensorId tensor(std::string_view param) const;  ///< raises TypeError when it is none
  std::int64_t integer(std::string_view param, std::int64_t fallback) const;
  double real(std::string_view param, double fallback) const;
  bool flag(std::string_view param, bool fallback) const;
  std::string text(std::string_view param, std::string fallback) const;
  int dim(std::string_view param, std::size_t rank, int fallback) const;  ///< normalised
  /// A dimension or several, normalised; nullopt: None (all).
  std::optional<std::vector<int>> dims(std::string_view param, std::size_t rank) const;
  std::optional<DType> dtype(std::string_view param = "dtype") const;
  model::Linearity linearity() const;
  Build build(model::Prim prim) const;
};

using Compute = Value (*)(Call&);
const std::unordered_map<std::string_view, Compute>& compute_functions();

class Domain final : public TensorHooks {
 public:
  Domain(Interpreter& in, std::shared_ptr<const rules::Database> rules);

  Interpreter& in;
  std::shared_ptr<const rules::Database> rules;
  ClassObj* tensor_class = nullptr;
  ClassObj* parameter_class = nullptr;
  ClassObj* buffer_class = nullptr;
  ClassObj* size_class = nullptr;
  ClassObj* dtype_class = nullptr;
  ClassObj* device_class = nullptr;
  ClassObj* module_class = nullptr;
  std::set<const Obj*> initialised;  ///< modules whose nn.Module.__init__ has run
  DType default_dtype = DType::F32;
  bool grad_enabled = true;
  std::vector<model::ModuleId> module_stack;  ///< modules whose forward is running
  std::vector<std::string> custom_functions;  ///< custom autograd functions we are in
  std::vector<InstanceObj*> instances;        ///< by ModuleId
  std::unordered_map<TensorId, std::shared_ptr<const Values>> values;
  std::map<DType, Value> dtype_objects;
  /// Memory that tensors share: a view's source, and tensors whose memory was written through a view of them (with what was
  /// written). Reading one of the latter is an opaque operation on both: the functional trace has no other word for it.
  std::unordered_map<TensorId, TensorId> view_of;
  std::unordered_map<TensorId, std::vector<TensorId>> views;
  std::unordered_map<TensorId, TensorId> overwritten;
  Observer* observer = nullptr;
  /// The ranks that descriptions of parallel layers see (rules/layers/shardwright, rules/parallel): see parallel.cpp.
  struct Parallel {
    int tp = 1, rank = 0;
    TensorId tp_size = -1, tp_rank = -1;
    ClassObj* result_class = nullptr;
  } parallel;

  // ---- tensors ---------------------------------------------------------------------------------------------------------
  const model::Tensor& tensor(TensorId t) const { return in.trace.tensor(t); }
  const Shape& shape(TensorId t) const { return in.trace.tensor(t).shape; }
  TensorId new_tensor(Out out, model::Origin origin = model::Origin::Result);
  Value wrap(TensorId t, ClassObj* cls = nullptr);
  Value wrap(const std::vector<TensorId>& ts);                 ///< tuple
  Value values_and_indices(const std::vector<TensorId>& ids);  ///< two results with names, as torch.return_types has them
  const Values* known(TensorId t) const;                       ///< nullptr: not known
  void know(TensorId t, Values v);
  bool is_tensor(const Value& v) const { return v.is(Kind::Tensor); }
  TensorId id(const Value& v) const { return v.as<TensorObj>()->id; }
  /// Rebinds the Python object to `t` (in-place operations); what it was a view of is then overwritten.
  void rebind(const Value& tensor_object, TensorId t);
  Value size_of(TensorId t, const program::Expr* read);  ///< torch.Size, with Syms
  Value dim_of(TensorId t, int dim, const program::Expr* read);

  // ---- operations --------------------------------------------------------------------------------------------------------
  /// By any name of a rule. Unset when there is no rule.
  Value call_op(const std::string& qualified, CallInfo& info);
  Value call_op(const std::string& qualified, std::vector<Value> args, const program::Expr* site = nullptr,
                std::vector<const program::Expr*> exprs = {}, std::vector<Keyword> kwargs = {});
  Value native_for(const std::string& qualified);  ///< a native function, Unset when there is no rule
  /// Everything it touches must be whole.
  TensorId opaque(const std::string& name, const Site& site, const std::vector<TensorId>& inputs, Out out, std::string why);
  /// Reshape of `t`; the caller gives `site` and size arguments.
  TensorId reshape(const std::string& name, const Site& site, TensorId t, Shape shape, std::vector<char> ones = {},
                   std::vector<model::SizeArg> sizes = {}, const program::Expr* operand = nullptr, std::vector<int> into = {});
  /// Reshape to `rank` dimensions that merges those of `t` with the same number in `into`, drops those of -1 (their size is 1) and inserts
  /// ones where none goes.
  TensorId merge(const std::string& name, const Site& site, TensorId t, std::vector<int> into, std::size_t rank,
                 const program::Expr* operand = nullptr);
  /// New dimensions of size 1 at `positions` of the result.
  TensorId insert_ones(const std::string& name, const Site& site, TensorId t, const std::vector<std::size_t>& positions,
                       const program::Expr* operand = nullptr);
  TensorId permute(const std::string& name, const Site& site, TensorId t, const std::vector<int>& order,
                   const program::Expr* operand = nullptr);
  TensorId expand(const std::string& name, const Site& site, TensorId t, Shape shape, std::vector<model::SizeArg> sizes = {},
                  const program::Expr* operand = nullptr);
  TensorId cast(const std::string& name, const Site& site, TensorId t, DType dtype, const program::Expr* operand = nullptr);
  /// What the call's arguments that are no tensors say, into the operations recorded since `first`: numbers made from sizes
  /// (Op::scalar_args), and all of them as text (Op::constants).
  void note_numbers(Call& c, std::size_t first);
  void note_constants(const Call& c, std::size_t first);
  /// Element-wise over operands (tensors or numbers), broadcast.
  Value elementwise(Call& c, const std::vector<std::string>& params, model::Linearity linearity, std::optional<DType> dtype = {});
  Value elementwise(const Call& c, const std::string& name, const std::vector<Value>& operands, const std::vector<std::string>& params,
                    const std::vector<const program::Expr*>& exprs, model::Linearity linearity, std::optional<DType> dtype);
  /// Sums or removes dimensions.
  TensorId reduce(const std::string& name, const Site& site, TensorId t, const std::vector<int>& dims, bool keepdim,
                  model::Linearity linearity, bool blocked, bool mean, std::string why, DType dtype, const program::Expr* operand,
                  bool gradient = true);
  /// Same shape as `t`, given dimensions needed whole.
  std::vector<TensorId> keep(Call& c, TensorId t, const std::vector<int>& whole, const std::vector<DType>& dtypes);

  // ---- arguments ---------------------------------------------------------------------------------------------------------
  struct Sizes {
    Shape values;
    std::vector<const model::Sym*> syms;
    std::vector<const program::Expr*> exprs;
    const program::Expr* whole = nullptr;
    bool unknown = false;
  };
  /// Sizes given as (2, 3), [2, 3], one int or several arguments.
  Sizes sizes(const std::vector<Value>& values, const std::vector<const program::Expr*>& exprs);
  std::vector<model::SizeArg> size_args(const Sizes& s, model::SizeArg::Role role = model::SizeArg::Dim, int first_dim = 0);
  std::optional<std::int64_t> integer(const Value& v) const;
  std::optional<double> number(const Value& v) const;
  std::optional<std::vector<std::int64_t>> integers(const Value& v) const;
  /// Numbers in a value (lists and tuples, too) that come from sizes.
  std::vector<model::ScalarArg> scalars(const Value& v, const program::Expr* e) const;
  DType promote(const std::vector<Value>& operands) const;
  Value dtype_value(DType d) const { return dtype_objects.at(d); }
  std::optional<DType> as_dtype(const Value& v) const;
  Value device_value(const std::string& type);
  Shape broadcast(const std::vector<Shape>& shapes, const program::Expr* where) const;  ///< raises RuntimeError

  // ---- TensorHooks -------------------------------------------------------------------------------------------------------
  Value binary(Interpreter&, std::string_view op, const Value& a, const Value& b, const program::Expr* site, const program::Expr* a_expr,
               const program::Expr* b_expr, bool inplace) override;
  Value unary(Interpreter&, std::string_view op, const Value& a, const program::Expr* site, const program::Expr* a_expr) override;
  Value compare(Interpreter&, std::string_view op, const Value& a, const Value& b, const program::Expr* site, const program::Expr* a_expr,
                const program::Expr* b_expr) override;
  Value getitem(Interpreter&, const Value& t, const Value& key, const program::Expr* site, const program::Expr* t_expr,
                const program::Expr* key_expr) override;
  void setitem(Interpreter&, const Value& t, const Value& key, const Value& v, const program::Expr* site) override;
  Value getattr(Interpreter&, const Value& t, std::string_view name, const program::Expr* site) override;
  bool setattr(Interpreter&, const Value& t, std::string_view name, const Value& v) override;
  Value length(Interpreter&, const Value& t) override;
  std::vector<Value> iterate(Interpreter&, const Value& t, const program::Expr* site) override;
  Value truth(Interpreter&, const Value& t) override;
  Value to_number(Interpreter&, const Value& t, std::string_view type) override;
  void escape(const CallInfo& info) override;

 private:
  std::unordered_map<const rules::OpRule*, std::unique_ptr<Signature>> signatures_;
  std::unordered_map<std::string, Value> natives_;
  Value run(const rules::OpRule& rule, const std::string& qualified, CallInfo& info);
  Value execute(const rules::OpRule& rule, const std::string& qualified, CallInfo& info);
  Value pattern(Call& c);
  std::optional<Value> repair(const rules::OpRule& rule, const std::string& qualified, CallInfo& info, const PyError& error);
  bool repairing_ = false;
};

/// Where a parallel layer's pair stands for a tensor: its first element, and the observer is told.
void take_first(Domain& d, Value& v, const program::Expr* at);

/// Domain of an interpreter that register_torch has seen.
Domain& domain(Interpreter& in);

/// The numbers of element-wise operations, reductions and views, where operands are known.
namespace known {
std::optional<double> evaluate(std::string_view op, const std::vector<double>& operands);
void elementwise(Domain& d, std::string_view op, const std::vector<Value>& operands, TensorId out);
void reduce(Domain& d, std::string_view op, TensorId in, const std::vector<int>& dims, TensorId out);
void permute(Domain& d, TensorId in, const std::vector<int>& order, TensorId out);
/// out[i] = in[source(i)]: `source` maps an output index to an input index.
void gather(Domain& d, TensorId in, TensorId out, const std::function<std::int64_t(const Shape&)>& source);
void concat(Domain& d, const std::vector<TensorId>& in, int dim, TensorId out);
}  // namespace known

// Parts that register names (modules of torch) or classes.
void register_namespace(Domain& d);     ///< torch, torch.nn.functional, dtypes, devices, modes
void register_module_class(Domain& d);  ///< torch.nn.Module, Parameter
void register_einops(Domain& d);
void register_parallel(Domain& d);                              ///< _shardwright: what descriptions of parallel layers are made of
void watch_by(Domain& d, const Watch& watch);                   ///< sets the observer and the ranks that descriptions see
void register_sources(Domain& d, std::string_view folder);      ///< rules/<folder>**.py
void register_user_sources(Domain& d, const std::string& dir);  ///< dir/layers/**.py

}  // namespace shardwright::eval::torch
