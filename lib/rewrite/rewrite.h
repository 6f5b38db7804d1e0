// From placements and cuts to edited source. Three parts, each one concern:
//   tp_edits     what must change where so that every rank computes its slice (verdicts on places in the source, per frame)
//   StageSlicer  the text of methods cut to what one stage executes
//   specialize   groups module instances by the edits they need into as few class variants as possible
// docs/generation.md is the design.
#pragma once
#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "model/trace.h"
#include "pipeline/pipeline.h"
#include "sharding/sharding.h"
#include "support/diagnostic.h"

namespace shardwright::rules {
class Database;
struct Target;
}  // namespace shardwright::rules

namespace shardwright::rewrite {

using model::FrameId;
using model::ModuleId;
using support::Range;

/// What one executed frame wants at one place of its function. `Keep` is a real verdict: two frames of one variant that
/// disagree about a place (one edits, one keeps) cannot share code.
struct Verdict {
  enum Kind : std::uint8_t {
    Keep,
    Replace,         ///< range := text
    Wrap,            ///< prefix + range + suffix
    InsertBefore,    ///< text at range.begin (whole lines: before the statement, its indentation is added)
    InsertAfter,     ///< text at range.end
    AppendArgument,  ///< `text` as a further argument of the Call whose range is `range`
  };
  Kind kind = Keep;
  FrameId frame = -1;  ///< the user frame whose function holds the place
  Range range;
  std::string text, prefix, suffix;
  std::vector<std::string> imports;  ///< names of the target's that the new text uses
  std::string why;                   ///< for plan --explain and conflicts
  int axis = -1;
};

/// A statement to add at the end of a module's __init__ (e.g. cutting a parameter that was made out of sight).
struct InitStatement {
  ModuleId module = -1;
  ModuleId of = -1;       ///< what it changes: stages without it do without the statement
  std::string parameter;  ///< of `of`; "": the module
  std::string text;
  std::vector<std::string> imports;
  int axis = -1;
};

/// An axis that cannot be expressed in the source: it is given up, named, and the plan is made again without it.
struct Refusal {
  int axis = -1;
  Range where;
  std::string message;
  std::vector<ModuleId> sliced = {};  ///< not an axis: these modules need classes of their own because a cut lies in them
  bool differ = false;                ///< one text would have to be two: others of its kind are edited otherwise
};

/// Role of a layer in the generated program, for plan, tree and tables.
struct LayerRole {
  ModuleId module = -1;
  std::string role;             ///< "column" | "row" | "sharded" | "replicated, gradient summed"
  std::string generated_class;  ///< "ColumnParallelLinear", … or "" when cut in place
  std::string reason;
};

struct TpEdits {
  std::vector<Verdict> verdicts;
  std::vector<InitStatement> init_statements;
  std::vector<LayerRole> roles;
  std::vector<Refusal> refusals;
  std::vector<int> copies;  ///< beside Result::conversions: how many all-reduces its readers need as the text is written
};

/// `target`: whose layers the text uses (rules/targets); without one, those of shardwright.parallel. `other`: the model at another
/// batch size; what is written for a size has to be right there, too.
TpEdits tp_edits(const model::Trace&, const sharding::Result&, const support::SourceManager&, const rules::Database&,
                 const rules::Target* target = nullptr, const model::Trace* other = nullptr);

/// Text of a source range with all TP edits of the current variant applied (and child classes renamed).
/// With replacements: what lies in their ranges is theirs, edits around them (a wrap of a call whose arguments are replaced) stay.
class Render {
 public:
  using Replacements = std::vector<std::pair<Range, std::string>>;
  Render() = default;
  template <class F>
  requires std::invocable<F&, Range, const Replacements&> Render(F f) : full_(std::move(f)) {}  // NOLINT: implicit on purpose
  template <class F>
  requires(std::invocable<F&, Range> && !std::invocable<F&, Range, const Replacements&> && !std::same_as<std::remove_cvref_t<F>, Render>)
      Render(F f)
      : plain_(std::move(f)) {}  // NOLINT: implicit on purpose
  std::string operator()(Range r) const { return full_ ? full_(r, {}) : plain_(r); }
  std::string operator()(Range r, const Replacements& with) const { return full_(r, with); }
  /// Can it place replacements itself? (A plain function of ranges cannot: the text around them is printed piece by piece.)
  bool places() const { return static_cast<bool>(full_); }

 private:
  std::function<std::string(Range, const Replacements&)> full_;
  std::function<std::string(Range)> plain_;
};

/// One stage's interface.
struct StageInterface {
  std::vector<model::TensorId> receives;  ///< order of the incoming tuple
  std::vector<model::TensorId> returns;   ///< order of the outgoing tuple (empty for the last stage)
  std::vector<std::string> needs_inputs;  ///< names of forward's inputs it reads
  /// Entries of `receives` that it returns unread, with their place in `returns`: the runtime sends them past the stage.
  std::vector<std::pair<int, int>> passes;
  std::vector<model::TensorId> tied;  ///< parameters that another stage holds, too
};

/// Slices __init__ and forward (and the methods between) of the modules that lie on a cut.
class StageSlicer {
 public:
  /// `other`: the same model traced at another batch size (or null): sizes that are the same in both may become numbers.
  StageSlicer(const model::Trace&, const support::SourceManager&, const model::Trace* other = nullptr);
  ~StageSlicer();
  /// What a stage returns is made contiguous: the library sends it as it is, which other layouts do not allow.
  void send_contiguous();
  /// Constructors of these stages build all that the original's build, and drop at the end what the stage does not hold: where a
  /// constructor reads what it has built before (widths of other modules, a list that it fills), leaving a part out is not enough.
  void build_whole(std::set<int> stages);
  /// Can generation express this cut? Empty: yes; else the reason.
  std::string refuses(const pipeline::Cut&) const;
  /// Fixes the partition that the following calls speak of. Returns why it cannot be written, empty when fine; `refused` is
  /// then the index of the cut it is about.
  std::string set_partition(const pipeline::Partition&, int* refused = nullptr);
  /// Modules that stage k holds only in part, root first; each gets a class of its own.
  std::vector<ModuleId> partial_modules(int k) const;
  /// Does stage k hold the module at all?
  bool holds(int k, ModuleId) const;
  bool holds(int k, ModuleId, const std::string& parameter) const;
  StageInterface interface(int k) const;
  /// New text of a method (from `def` to its end, decorators excluded, indentation of the original) of a partial module in
  /// stage k; nullopt when the method stays as it is. `render` gives edited text of original ranges.
  std::optional<std::string> method(int k, ModuleId, const program::Function*, const Render& render) const;
  /// Name of the variable that counts a loop's iterations in the sliced text (which adds one to the loop's header where objects
  /// made in it need different classes and the header has none); "": the loop is as it was.
  std::string loop_counter(int k, ModuleId, const void* loop) const;
  /// Names that the sliced text needs beyond the original's: "from itertools import islice", "Absent" (shardwright.parallel).
  std::vector<std::string> extra_imports(int k, ModuleId) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shardwright::rewrite
