// Look-ups over a trace and its source that the TP edits need: parents of expressions, frames by time, calls by module,
// consumers of tensors. Built once; reads only.
#pragma once
#include <functional>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "model/trace.h"
#include "support/source.h"

namespace shardwright::rewrite::tp {

using model::Clock;
using model::FrameId;
using model::ModuleId;
using model::OpId;
using model::TensorId;
using program::Expr;
using program::ExprKind;
using program::Function;
using program::Stmt;
using program::StmtKind;
using support::Range;

/// Where an expression stands.
struct ExprInfo {
  const Expr* parent = nullptr;
  const Stmt* stmt = nullptr;          ///< innermost statement
  const Function* function = nullptr;  ///< innermost function or lambda; nullptr at the top level or in a class body
};

/// Where a statement stands.
struct StmtInfo {
  const Stmt* parent = nullptr;
  const std::vector<Stmt*>* block = nullptr;  ///< list that holds it
  const Function* function = nullptr;
};

/// One use of a tensor by an operation.
struct Use {
  OpId op = -1;
  int operand = 0;
};

class Index {
 public:
  Index(const model::Trace& trace, const support::SourceManager& sources);

  const ExprInfo* info(const Expr* e) const;
  const StmtInfo* info(const Stmt* s) const;
  /// The comparison with exactly this range; nullptr: none.
  const Expr* compare_at(Range r) const;
  /// All comparisons inside a range.
  std::vector<const Expr*> compares_in(Range r) const;
  /// Did `frame` execute `stmt` (an innermost statement)? Lambdas: always.
  bool executed(FrameId frame, const Stmt* stmt) const;
  const std::vector<FrameId>& frames_of(const Function* f) const;

  /// Innermost frame (built-in ones too) that was running at a time.
  FrameId frame_at(Clock clock) const;
  /// Is the operation executed by the user frame itself, not by a built-in layer or function that it called?
  bool direct(const model::Op& op) const;

  /// Operations of forward that read a tensor.
  const std::vector<Use>& uses(TensorId t) const;
  /// Indices into Trace::calls.
  const std::vector<int>& calls_of(ModuleId m) const;
  /// The call of module `m` that was running at a time; -1.
  int call_at(ModuleId m, Clock clock) const;
  /// Operations executed during [begin, end].
  void ops_between(Clock begin, Clock end, const std::function<void(const model::Op&)>& f) const;
  /// Is `m` equal to `ancestor` or below it?
  bool within(ModuleId m, ModuleId ancestor) const;

  /// Expression of `call`'s argument that is bound to parameter `name` of the frame's function; nullptr when it is not written.
  const Expr* argument(const model::Frame& callee, const std::string& name) const;
  /// Argument expression through which tensor `t` came into the frame, in the parent's code; nullptr if none.
  const Expr* argument_with(const model::Frame& callee, TensorId t) const;
  /// Value of variable `name` in `frame` at `clock` (the last write before); nullptr: never written.
  const model::VarWrite* variable(FrameId frame, const std::string& name, Clock clock) const;
  /// Writes of a variable in a frame, in order.
  const std::vector<int>& writes(FrameId frame, const std::string& name) const;

  const model::Trace& trace;
  const support::SourceManager& sources;

 private:
  void walk_block(const std::vector<Stmt*>& block, const Stmt* parent, const Function* f);
  void walk(const Stmt* s, const Stmt* parent, const std::vector<Stmt*>* block, const Function* f);
  void walk(const Expr* e, const Expr* parent, const Stmt* s, const Function* f);
  void walk_function(const Function* fn, const Stmt* s, const Function* outer);

  std::unordered_map<const Expr*, ExprInfo> exprs_;
  std::unordered_map<const Stmt*, StmtInfo> stmts_;
  std::set<const void*> seen_;
  std::map<std::tuple<support::FileId, std::uint32_t, std::uint32_t>, const Expr*> compares_;
  std::unordered_map<const Function*, std::vector<FrameId>> frames_of_;
  std::set<std::pair<FrameId, const Stmt*>> executed_;
  std::vector<FrameId> by_begin_;
  std::vector<OpId> by_clock_;
  std::vector<std::vector<Use>> uses_;
  std::vector<std::vector<int>> calls_of_;
  std::map<std::pair<FrameId, std::string>, std::vector<int>> writes_;
};

/// `self.a.b` for a chain of attributes, a name, or "" for anything else.
std::string dotted(const Expr* e);

}  // namespace shardwright::rewrite::tp
