// State shared by the parts of tp_edits: decisions on places, refusals, layouts.
//
// A place is (frame, range, purpose). Every purpose decides once a place; the same place met again in a loop of the same
// frame must decide the same, else the axis of the edit is refused. At the end decisions on one range are merged (the purpose
// is the nesting order, inner first) and frames of the same function that ran the statement without an edit say Keep.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "rewrite/class_tests.h"
#include "rewrite/rewrite.h"
#include "rewrite/tp_index.h"
#include "rules/rules.h"
#include "rules/target.h"

namespace shardwright::rewrite::tp {

using model::Binding;
using model::Op;
using model::Sym;
using sharding::Conversion;

/// Order of nesting of what is written around one range, inner first.
enum class Purpose : std::uint8_t {
  Callee,     ///< class of a constructor call, callee of an operation
  Size,       ///< size expressions made local
  Construct,  ///< shard_module / shard_parameter around a construction
  GradSum,    ///< sum_gradients_over_tp around a construction
  Unpack,     ///< [0] after a layer's call
  Output,     ///< conversion of a result
  Copy,       ///< a result that enters a region wherever it is read
  Operand,    ///< conversion of an operand
  Rank,       ///< brought to a rank that the layer takes
  Argument,   ///< arguments appended to a call
  Config,     ///< the configuration passed on
  Statement,  ///< statements before or after
};

/// How the sharded factor lies in a dimension: outer × axis × inner, or a concatenation of such segments.
struct Layout {
  struct Segment {
    std::int64_t rows = 0;
    bool carries = false;
    std::int64_t outer = 1, axis = 1, inner = 1;
  };
  int dim = -1;
  int axis_id = -1;
  std::int64_t outer = 1, axis = 1, inner = 1;
  std::vector<Segment> segments;
  bool expressible = true;  ///< false: nested concatenations, or the axis occurs twice
  bool plain() const { return segments.empty() && outer == 1; }
  /// "None" or "3": the value of `factors=` (only the outer factor is written, so that other constructor sizes work too).
  std::string factors() const;
  /// "[64, (32, 2)]": the value of `segments=`: rows, or (rows, outer factor).
  std::string segment_list() const;
  std::string keywords(bool with_dim) const;  ///< ", dim=1, factors=3" for shard_parameter
  std::string as_value() const;               ///< "(1, 3)" for shard_module
  std::string as_sizes() const;               ///< ", 1, (3, 0)" for local_slice and gather_from…
  bool operator==(const Layout& o) const { return dim == o.dim && factors() == o.factors() && segment_list() == o.segment_list(); }
};

class Context {
 public:
  Context(const model::Trace& t, const sharding::Result& r, const support::SourceManager& s, const rules::Database& d,
          const rules::Target& target_)
      : trace(t), result(r), sources(s), rules(d), target(target_), tp(r.tp), index(t, s) {}

  const model::Trace& trace;
  const sharding::Result& result;
  const support::SourceManager& sources;
  const rules::Database& rules;
  const rules::Target& target;
  const int tp;
  const Index index;
  const model::Trace* other = nullptr;  ///< at another batch size: the same tensors with other sizes
  std::set<const Sym*> settled;         ///< values whose computation was edited so that ranks get the full value
  TpEdits out;

  // ---- placements --------------------------------------------------------------------------------------------------
  int axis_of(TensorId t) const {
    return t < 0 || static_cast<std::size_t>(t) >= result.axis_of.size() ? -1 : result.axis_of[static_cast<std::size_t>(t)];
  }
  std::int64_t local_size(TensorId t, int dim) const;
  Layout layout(TensorId t) const;
  Layout layout(TensorId t, int dim, int axis) const;  ///< of an axis that the tensor has but is not cut on
  /// Value of a Sym when sharded dimensions are local; nullopt: it cannot be computed again.
  std::optional<double> local(const Sym* s) const;
  /// The same at the other batch size, and the full value there; nullopt also where there is no other batch size.
  std::optional<double> local_there(const Sym* s) const;
  std::optional<double> full_there(const Sym* s) const;
  /// A chosen axis that a Sym depends on; -1: none.
  int axis_in(const Sym* s) const;
  std::string axis_name(int axis) const;

  /// Where a module was constructed: itself, or what it is a copy of.
  const model::Module& made(ModuleId m) const {
    while (trace.module(m).cloned_from >= 0) m = trace.module(m).cloned_from;
    return trace.module(m);
  }
  /// Is the layer made as an argument of a container that does not name its type (a sequential container's)?
  bool untyped(const model::Module& m) const;
  /// Is it part of the model (or at least called)? Not: what was built only to be copied.
  bool in_model(ModuleId m) const { return index.within(m, 0) || !index.calls_of(m).empty(); }

  // ---- decisions ---------------------------------------------------------------------------------------------------
  /// Records an edit at a place of user code. `at` is an expression in the same statement (for Keep of other frames).
  /// False when it contradicts an earlier decision there (the axis is refused then).
  bool decide(const Expr* at, Purpose purpose, Verdict v);
  /// Records that nothing is to be done at the place for this purpose.
  bool keep(FrameId frame, const Expr* at, Range range, Purpose purpose);
  void refuse(int axis, Range where, std::string message);
  bool refused(int axis) const { return refused_.count(axis) > 0; }
  /// Wraps `e` as one argument: prefix + text + suffix, around its parentheses.
  bool wrap(FrameId frame, const Expr* e, Purpose purpose, std::string prefix, std::string suffix, std::vector<std::string> imports,
            int axis, std::string why);
  /// f(a, b) → prefix f, a, b): hands the callee over to another function.
  bool hand_over(FrameId frame, const Expr* call, const std::string& function, int axis, std::string why);
  /// Sets out.verdicts from the decisions.
  void finish();

  std::string text(const Expr* e) const { return std::string(sources.text(e->range)); }
  bool editable(FrameId frame, const Expr* e) const;

  /// An expression for the target's configuration in a frame: the parameter that is threaded from the root's constructor to it, or
  /// what the target says where that cannot be done. Imports that it needs are appended.
  std::string config(FrameId frame, int axis, std::vector<std::string>& imports);

 private:
  struct Decision {
    std::optional<Verdict> verdict;  ///< nullopt: keep
    const Stmt* stmt = nullptr;
  };
  struct Key {
    FrameId frame;
    support::FileId file;
    std::uint32_t begin, end;
    Purpose purpose;
    auto operator<=>(const Key&) const = default;
  };
  bool thread_config(FrameId frame, int axis, std::string& name);

  std::map<Key, Decision> decisions_;
  std::map<FrameId, std::string> config_;  ///< name of the parameter in a frame, "" where there is none
  std::vector<Verdict> parameters_;        ///< added to signatures
  std::set<int> refused_;
};

/// Does `E // x` need parentheses around E?
bool binds_looser_than_product(const Expr* e);

// ---- the parts (each in its own file) ----------------------------------------------------------------------------------

/// What a layer becomes and which conversions it performs by itself.
struct LayerPlan {
  enum Form : std::uint8_t { None, Column, Row, Depthwise, Vocab, Attention, InPlace };
  Form form = None;
  ModuleId module = -1;
  int axis = -1;
  std::string generated_class;
  Layout layout;                     ///< of the weight
  bool returns_bias = false;         ///< calls give (output, bias): [0] after each
  std::string arguments;             ///< of the target's constructor, beyond what the original's call has
  std::vector<std::string> imports;  ///< that these use
  bool shared_input = false;         ///< its input was copied before: disable_grad_reduce=True
  bool input_is_parallel = true;
  bool gather_output = false;
  bool reduce_output = true;  ///< false: the sum over tp comes later, with others
  bool by_statement = false;  ///< constructed with others at one place: cut or replaced at the end of __init__
};

/// A conversion at one use: CopyTo of D's "also" lists is one entry per operand.
struct Need {
  Conversion c;
  bool done = false;       ///< a layer performs it, or it has been written
  std::size_t origin = 0;  ///< index into Result::conversions
  std::string copy;        ///< CopyTo: which of the written copies serves it
};

/// What is decided about layers and parameters. Calls in order: constructor, perform, [share_copies], settle, emit.
class Layers {
 public:
  explicit Layers(Context& c);
  /// Chooses forms; marks the needs that layers perform whatever else happens (sums, gathers, all of attention's).
  void perform(std::vector<Need>& needs);
  /// After share_copies: column layers do the copies that are left.
  void settle(std::vector<Need>& needs);
  void emit(const std::vector<Need>& needs);
  const LayerPlan& of(ModuleId m) const { return plans_[static_cast<std::size_t>(m)]; }
  LayerPlan& of(ModuleId m) { return plans_[static_cast<std::size_t>(m)]; }
  /// The module whose generated class does what `op` does (the layer itself, or the attention module above it); -1.
  ModuleId absorbing(const Op& op) const;
  /// Modules built by the same constructor call in the same frame (loops, copies), itself included.
  const std::vector<ModuleId>& together(ModuleId m) const;
  /// The column layer that reads this operand as its input; -1.
  ModuleId column_input(const Conversion& c) const;

 private:
  const ClassTests tests_;
  void choose(ModuleId m);
  void demote(ModuleId m);
  /// Owner and path for `self.path = …` at the end of an __init__; {-1, ""} when there is no such place.
  std::pair<ModuleId, std::string> late_place(ModuleId m) const;
  bool harmonise();
  std::string signature(ModuleId m) const;
  void decide_unpacking();
  std::string appended(const LayerPlan& p) const;
  bool missing_arguments(ModuleId id, std::string& text) const;
  void emit_constructor(const LayerPlan& p);
  void sharded_dropout_calls(ModuleId d);
  void emit_in_place(ModuleId m);
  void emit_parameters(ModuleId m);
  void emit_grad_sums();
  void emit_roles();
  bool called_directly(const model::ModuleCall& call) const;
  // tp_target.cpp: what the target's layers ask of their constructor's and forward's calls
  bool constructible(const LayerPlan& p) const;
  void adapt_constructor(LayerPlan& p);
  void adapt_calls();
  bool has_argument(const Expr* call, const std::string& name) const;
  bool made_by_user(ModuleId m, const model::ParamRef& p) const;
  const model::AttrWrite* written(ModuleId m, const model::ParamRef& p) const;
  const Expr* parameter_expr(const model::AttrWrite* w, const std::string& attr) const;
  std::string reason(const LayerPlan& p) const;

  Context& ctx_;
  std::vector<LayerPlan> plans_;
  std::vector<std::vector<const model::ParamRef*>> carriers_;  ///< by module: own parameters and buffers that carry an axis
  std::set<ModuleId> dropouts_;                                ///< modules that draw for a sharded tensor
  std::set<ModuleId> late_dropouts_;                           ///< of these, replaced at the end of __init__
  std::map<ModuleId, std::vector<ModuleId>> alone_;            ///< together() of layers that get a text of their own
  std::set<TensorId> summed_;
  std::set<const Expr*> high_rank_;  ///< calls of layers with inputs of too many dimensions
  std::map<std::pair<FrameId, const Expr*>, std::vector<ModuleId>> together_;
};

/// Path of a module below another in Python: "layers[3].attn"; "" when it cannot be written.
std::string attribute_path(const model::Trace& t, ModuleId from, ModuleId to);

/// Groups of uses that share one copied variable; writes conversions that no layer performs.
void share_copies(Context& ctx, Layers& layers, std::vector<Need>& needs);
void emit_conversions(Context& ctx, Layers& layers, std::vector<Need>& needs);

/// Size arguments, scalars and guards.
void emit_sizes(Context& ctx, Layers& layers, const std::vector<Need>& needs);

}  // namespace shardwright::rewrite::tp
