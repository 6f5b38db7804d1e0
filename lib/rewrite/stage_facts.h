// What the trace says about values, for the stage slicer: which sizes are the same dimension, which are constant, what can be
// computed again in another stage. Internal to the stage slicer.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "model/trace.h"
#include "rewrite/stage_syntax.h"

namespace shardwright::rewrite::stage {

using model::Binding;
using model::Clock;
using model::FrameId;
using model::ModuleId;
using model::OpId;
using model::StepId;
using model::Sym;
using model::TensorId;
using model::Trace;

/// Equality of dimensions: operations tie dimensions of their operands and results together (same label, same place in a
/// reshape). A class that holds a dimension of a parameter, or one that was written as a constant, has a constant size.
class Dims {
 public:
  /// A size as a polynomial in sizes that are not known to be constant: sorted factors → coefficient.
  using Poly = std::map<std::vector<int>, double>;
  explicit Dims(const Trace& t);
  const Poly& poly(TensorId t, int d) const;
  Poly poly(const Sym* s) const;
  static bool constant(const Poly& p) { return p.empty() || (p.size() == 1 && p.begin()->first.empty()); }
  /// The same size for every input: one dimension, or equal polynomials.
  bool equal(TensorId a, int da, TensorId b, int db) const { return same(a, da, b, db) || poly(a, da) == poly(b, db); }
  bool same(TensorId a, int da, TensorId b, int db) const;
  bool constant(TensorId t, int d) const;
  bool constant(const Sym* s) const;  ///< nullptr: true
  /// The same at another batch size, as far as a second trace of the same steps tells: may be written as a number when nothing
  /// better gives it. False without such a trace.
  bool fixed(const Sym* s) const;
  void compare_with(const Trace* other);

 private:
  int id(TensorId t, int d) const;
  int find(int a) const;
  void join(int a, int b);
  void reshape(const model::Op& op);
  const Poly& poly_of(int cls) const;
  int atom(const std::string& key) const;
  /// Where a dimension's size comes from, when it is no dimension of its own: a sum or product of others, or what was written.
  struct Made {
    enum { Sum, Product, Written } how = Sum;
    std::vector<int> parts;
    const Sym* sym = nullptr;
  };
  const Trace& trace_;
  const Trace* other_ = nullptr;
  std::map<int, Made> made_;
  mutable std::map<int, Poly> polys_;
  mutable std::map<std::string, int> atoms_;
  std::vector<std::int64_t> size_;
  std::vector<int> offset_;
  mutable std::vector<int> up_;
  std::vector<char> constant_, input_;
};

/// One executed frame's variables and statements.
struct FrameFacts {
  std::unordered_map<std::string, std::vector<int>> contents;  ///< indices of Trace::content_writes by name, in order
  std::vector<int> writes;                                     ///< indices of Trace::var_writes, in order
  std::unordered_map<std::string, std::vector<int>> by_name;
  std::vector<StepId> steps;
  std::unordered_map<const Stmt*, std::vector<StepId>> by_stmt;
  std::vector<FrameId> callees;   ///< direct, in order
  std::vector<int> module_calls;  ///< indices of Trace::calls made by this frame
  std::vector<OpId> ops;
};

class Facts {
 public:
  explicit Facts(const Trace& t);
  const Trace& trace;
  Dims dims;

  const FrameFacts& frame(FrameId f) const { return frames_[static_cast<std::size_t>(f)]; }
  /// The write that `name` holds just before `clock`; -1: unbound.
  int version(FrameId f, const std::string& name, Clock clock) const;
  /// A parameter's value at entry?
  bool at_entry(int write) const { return trace.var_writes[static_cast<std::size_t>(write)].step < 0; }
  /// Did the statement run in [from, to)?
  bool executed(FrameId f, const Stmt* s, Clock from, Clock to) const;
  StepId step_at(FrameId f, const Stmt* s, Clock from, Clock to) const;     ///< first such; -1
  int iterations(FrameId f, const Stmt* loop, Clock from, Clock to) const;  ///< of a loop in that interval of the frame

  /// Depends on an input of forward or a parameter, or was drawn at random: must be sent.
  bool flows(TensorId t) const { return flows_[static_cast<std::size_t>(t)] != 0; }
  bool flows(const Binding& b) const;
  /// Is the tensor's value used by an operation at or after `clock`, or part of the result?
  bool used_after(TensorId t, Clock clock) const { return last_use_[static_cast<std::size_t>(t)] >= clock; }
  Clock born(TensorId t) const;
  /// Operations in a clock interval (all frames): indices into trace.ops, [first, last).
  std::pair<std::size_t, std::size_t> ops_between(Clock from, Clock to) const;
  /// True when everything computed in the interval can be computed again: no tensor that flows is made.
  bool repeatable(Clock from, Clock to) const;
  /// Attribute writes in a clock interval: indices into trace.attr_writes, [first, last).
  std::pair<std::size_t, std::size_t> attr_writes_between(Clock from, Clock to) const;

  /// Value of an expression evaluated during a step, as far as the trace knows.
  std::optional<Binding> value(FrameId f, const Expr* e, StepId step) const;
  /// Value of a variable at a time, with what was done to a list or dict since it was bound; nullopt: cannot be followed.
  std::optional<Binding> contents(FrameId f, const std::string& name, Clock clock) const;
  /// Does the step call user code or a module inside `e`?
  bool calls_inside(FrameId f, StepId step, const Expr* e) const;
  std::vector<OpId> ops_inside(FrameId f, StepId step, const Expr* e) const;

 private:
  std::vector<FrameFacts> frames_;
  std::vector<char> flows_;
  std::vector<Clock> last_use_;
};

/// A Python literal for a plain value (None, bool, int, float, str); nullopt for others.
std::optional<std::string> literal(const Binding& b);
std::string python_string(const std::string& s);

}  // namespace shardwright::rewrite::stage
