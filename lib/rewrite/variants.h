// Variants of definitions: what specialize.cpp finds and specialize_text.cpp prints. Internal to lib/rewrite.
#pragma once
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "rewrite/rewrite.h"
#include "rules/target.h"

namespace shardwright::rewrite {

/// A top-level class or function of a module: the unit of text.
struct Container {
  const program::Module* module = nullptr;
  const program::ClassDef* class_def = nullptr;
  const program::Function* function = nullptr;
  Range range;  ///< decorators included
  std::string name;
};

struct RangeLess {
  bool operator()(const Range& a, const Range& b) const {
    if (a.file != b.file) return a.file < b.file;
    if (a.begin != b.begin) return a.begin < b.begin;
    return a.end < b.end;
  }
};

/// A constructor call (or a call of a free function) that must reach a variant.
struct Redirect {
  const program::Expr* call = nullptr;
  const program::Expr* callee = nullptr;  ///< what names the class or function: `Net` of `Net(…)` and of `Net.from_config(…)`
  bool partial = false;                   ///< the callee's value is a functools.partial: its arguments must be kept
  int variant = -1;                       ///< of most iterations; -1: the original
  /// Iterations of `loop` that need another one. Empty: all the same.
  std::map<int, int> exceptions;  ///< iteration → variant
  const void* loop = nullptr;
  int clause = 0;
  std::vector<int> by_stage;  ///< of the expression that builds the model: variants where the stages need different ones
};

/// What a verdict does, for comparing: kind, text, prefix, suffix.
using EditKey = std::tuple<int, std::string, std::string, std::string>;

struct Variant {
  int id = -1;
  /// Every place that a frame had a verdict on, with the edits there (none: it stays). Two variants that agree on the places
  /// they share can be one: a place that a frame never ran is nobody's concern.
  std::map<Range, std::set<EditKey>, RangeLess> places;
  const Container* container = nullptr;  ///< of the class itself, or of the function
  std::vector<const Container*> chain;   ///< definitions that need a text of their own, the class first, then bases
  ModuleId module = -1;                  ///< an instance of it (−1: a free function)
  FrameId frame = -1;
  int stage = -1;                        ///< ≥ 0: only of this stage (a slice, or the root)
  bool sliced = false;                   ///< StageSlicer rewrites its methods
  std::vector<const Verdict*> verdicts;  ///< deduplicated, no Keep
  std::vector<Redirect> redirects;
  std::vector<const InitStatement*> init;
  std::string suffix;  ///< of the generated name
  const rules::Target* target = nullptr;
  /// A class that looks another one up by a name it is given (`REGISTRY[style](**kwargs)`) needs no text of its own: the caller
  /// gives the name of variant `registered`.
  int registered = -1;
  std::string style;  ///< the constructor's parameter that holds the name
  std::size_t style_position = 0;
};

/// The argument of a constructor call that is bound to a parameter; nullptr when it is not written out.
const program::Expr* argument_for(const program::Expr* call, const std::string& parameter, std::size_t position);

/// Text of one definition of a variant.
struct Printed {
  std::string text;
  std::set<std::string> runtime;
  std::set<std::string> plain_imports;
  std::map<std::string, int> refs;  ///< name → variant
  std::vector<std::string> why;
  std::string error;  ///< non-empty: edits that cannot be applied together
};

/// Name of a variant's definition.
std::string variant_name(const Variant& v, const Container& c);

/// `asked`: its text says what class `isinstance` is to take its objects for; `module`: which module the original's class is of.
Printed print_definition(const Variant& v, const Container& c, const std::vector<Variant>& all, const model::Trace& trace,
                         const StageSlicer* stages, const support::SourceManager& sources, const std::vector<std::string>& inputs,
                         bool asked, bool module);
/// Text of any expression (the build expression), given by its range, with redirects applied.
Printed print_expression(const Range& e, const std::vector<Redirect>& redirects, const std::vector<Variant>& all,
                         const support::SourceManager& sources);

}  // namespace shardwright::rewrite
