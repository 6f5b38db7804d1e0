// One stage's part of the frames that a cut divides: what is kept, what crosses, what is computed again. Internal to the
// stage slicer.
//
// A cut is seen from every frame on its path (Boundary). The part of a frame between two boundaries is a tree of Pieces. What the
// part needs from before its first boundary (live variables, by the statements that were executed) is provided, by version
// of a variable, in one of these ways: it crosses; it is an input or an argument; its original statement is kept; it is
// written as a size of something that crosses, or as a literal. docs/generation.md §2.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "pipeline/pipeline.h"
#include "rewrite/stage_facts.h"
#include "rewrite/stage_syntax.h"

namespace shardwright::rewrite::stage {

/// How evaluation stands inside the statement of a boundary.
enum class At : std::uint8_t {
  Statement,   ///< before the statement
  Inner,       ///< inside the frame that `call` entered
  BeforeCall,  ///< the arguments of `call` are evaluated
  AfterCall,   ///< `call` has returned
  Container,   ///< between two children of the built-in container that `call` calls
};

/// A sub-expression that is evaluated before the cut inside a statement and kept in a variable.
struct Temp {
  const Expr* expr = nullptr;
  std::string name;
};

/// Something that crosses a cut, as one frame sees it.
struct Slot {
  std::string name;     ///< variable behind the cut
  std::string produce;  ///< expression before the cut ("x", "skips[0]", "pack.mask")
  std::string base;     ///< variable that `produce` reads
  TensorId tensor = -1;
};

/// An argument of the inner frame that is evaluated again behind the cut.
struct Passed {
  std::string param;
  const Expr* expr = nullptr;  ///< in the outer frame
  std::string keyword;
};

/// A cut as seen from one frame of its path.
struct Boundary {
  const pipeline::Cut* cut = nullptr;
  int level = 0;
  FrameId frame = -1, inner = -1;
  StepId step = -1;
  std::vector<const Stmt*> chain;  ///< statements down to the one cut, that last
  std::vector<int> iteration;      ///< beside chain: iteration of a loop, else 0
  At at = At::Statement;
  const Expr* call = nullptr;
  bool through_container = false;  ///< Inner: the inner frame is called by a built-in container
  std::vector<Temp> temps;
  std::string value_name;        ///< AfterCall, Container: the variable that holds the call's value
  bool value_is_target = false;  ///< … and that is the statement's own target: nothing of the statement is left
  // Found by the analysis of the stage behind the cut:
  std::vector<Slot> own;                   ///< what this frame holds
  std::vector<std::string> inner_names;    ///< names in this frame for what the inner frame carries
  std::vector<Passed> passed;              ///< to the inner frame
  std::vector<std::string> kept_defaults;  ///< parameters of the inner frame that keep their default
};

/// All boundaries of one cut, outermost frame first.
struct CutView {
  pipeline::Cut cut;
  std::vector<Boundary> levels;
  /// What frame `level` receives or returns: names behind, expressions before, tensors.
  std::vector<Slot> carried(std::size_t level) const;
};

struct Piece {
  enum Kind { Whole, Far, Near, FarNear, Loop, If, With, Prefix } kind = Whole;
  const Stmt* stmt = nullptr;
  const Block* block = nullptr;  ///< Prefix
  std::size_t upto = 0;          ///< Prefix: statements before this one
  int from = 0, to = -1;         ///< Loop: iterations; -1: to the end
  bool sliced = false;           ///< Loop: from/to apply
  bool on_path = false;          ///< Loop, If, With: entered before the first boundary
  bool in_orelse = false;        ///< If
  bool header = true;            ///< If: keep the condition
  bool guard_other = false;      ///< If: the other branch raises
  std::vector<Piece> body;
};

/// What is provided to one frame of a stage at its beginning.
struct Provided {
  std::map<std::string, int> top;                  ///< name → version that it holds after unpacking (crossing, inputs, arguments, lines)
  std::set<const Stmt*> keep;                      ///< statements before the boundary that are kept
  std::vector<const Stmt*> early;                  ///< kept ones that come before unpacking: they read inputs whose names are used again
  std::map<const Stmt*, std::vector<Edit>> edits;  ///< in kept statements
  std::vector<std::pair<std::string, std::string>> lines;  ///< name = text, after unpacking
  std::set<int> by_statement;                              ///< versions made by kept statements
  std::vector<std::string> inputs;                         ///< root: inputs read; inner: parameters that stay
  std::vector<Slot> own;
  std::vector<Passed> passed;  ///< from the outer frame to this one
  std::vector<std::string> defaults;
  std::vector<const Stmt*> dropped_headers;  ///< conditions that cannot be evaluated again
};

/// One frame in one stage.
struct FrameSlice {
  FrameId frame = -1;
  const Boundary* lo = nullptr;  ///< the cut at the beginning of the stage
  const Boundary* hi = nullptr;  ///< the cut at its end
  std::vector<Piece> pieces;
  Provided provided;
};

struct StageSlice {
  int stage = 0;
  Clock from = 0, to = 0;
  std::map<FrameId, FrameSlice> frames;
  std::string error;
  std::vector<std::pair<Clock, Clock>> recomputed;  ///< intervals of what kept statements computed before the stage
};

/// Shared by the parts of the slicer.
class Context {
 public:
  Context(const Trace& t, const support::SourceManager& s) : trace(t), sources(s), facts(t) {}
  const Trace& trace;
  const support::SourceManager& sources;
  Facts facts;
  bool contiguous = false;    ///< what a stage returns is made contiguous
  std::set<int> built_whole;  ///< stages whose constructors build all that the original's do and drop it at the end
  const FunctionIndex& index(const Function* f) const;
  const FunctionIndex& index(FrameId f) const { return index(trace.frame(f).function); }
  const Layout& layout(const Function* f) const;
  std::string text(const Range& r) const { return std::string(sources.text(r)); }

 private:
  mutable std::map<const Function*, std::unique_ptr<FunctionIndex>> indices_;
  mutable std::map<const Function*, std::unique_ptr<Layout>> layouts_;
};

/// Places a cut in its frames. `error` when it lies where text cannot be divided.
CutView view(const Context& c, const pipeline::Cut& cut, std::string& error);

/// The pieces of a frame between two boundaries (either may be absent).
std::vector<Piece> pieces(const Context& c, FrameId f, const Boundary* lo, const Boundary* hi, std::string& error);

/// Names read before written in the pieces, by what was executed in [from, to); `out`: names read after them.
std::set<std::string> live_in(const Context& c, FrameId f, const std::vector<Piece>& p, std::set<std::string> out, Clock from, Clock to,
                              const Boundary* lo, const Boundary* hi);

/// Sub-expressions of a boundary's statement that are replaced behind the cut (temps, the call's arguments or the call).
bool replaced_behind(const Boundary& b, const Expr* e);

/// Analyses one stage. Fills the first cut's boundaries (own, inner_names, passed), so stages are analysed from the last.
StageSlice analyse(const Context& c, int stage, CutView* lo, CutView* hi);

/// A name not used in the function.
std::string fresh_name(const Context& c, FrameId f, const std::string& wish, const std::set<std::string>& taken = {});

}  // namespace shardwright::rewrite::stage
