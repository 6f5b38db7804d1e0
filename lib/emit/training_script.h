// A training script as text: what its names are, and its statements moved elsewhere with the comments above them.
#pragma once
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "program/program.h"
#include "support/source.h"

namespace shardwright::emit {

using Names = std::set<std::string>;
using Statements = std::vector<const program::Stmt*>;

Names names_read(const program::Stmt* s);
Names names_read(const program::Expr* e);
Names names_written(const program::Stmt* s);
/// Names that a statement reads before it binds them itself: not a loop's target.
Names names_needed(const program::Stmt* s);
/// Names that a target binds: x, (x, *y).
Names target_names(const program::Expr* target);
/// The value, where a statement binds just this name to one; else nullptr.
const program::Expr* value_bound(const program::Stmt* s, const std::string& name);
bool meets(const Names& a, const Names& b);
/// The first expression in a statement that `is`; nullptr: none.
const program::Expr* find_expr(const program::Stmt* s, const std::function<bool(const program::Expr*)>& is);
/// `c` of a.b.c and of c, else "".
std::string last_name(const program::Expr* callee);
/// An argument by keyword, or by its place among the positional ones (`at` < 0: by keyword only).
const program::Expr* call_argument(const program::Expr* call, const std::string& keyword, int at = -1);
/// The call of range or trange that a loop goes over, perhaps inside of tqdm; nullptr: another iterable.
const program::Expr* counting_call(const program::Stmt* loop);
/// Is there a break, continue or return that leaves what is around the statement?
bool jumps(const program::Stmt* s);

class TrainingScript {
 public:
  TrainingScript(const program::Module& m, support::SourceManager& sources) : m_(m), sources_(sources) {}
  const program::Module& module() const { return m_; }
  std::string path() const { return sources_.file(m_.file).path; }
  std::string text(const support::Range& r) const { return std::string(sources_.text(r)); }
  /// "train.py:88"
  std::string line(const support::Range& r) const;
  /// The first line, cut to a readable length.
  std::string shortened(const support::Range& r) const;
  /// Statements at column 0, one after the other, with the comment lines directly above. A parser of arguments gets none, and the first
  /// device is this rank's.
  std::string lines(const Statements& list) const;
  const program::Stmt* import_of(const std::string& name) const;
  bool imported(const std::string& name) const { return import_of(name) != nullptr; }
  /// The function or class of the script's top level.
  const program::Stmt* definition_of(const std::string& name) const;
  static bool main_guard(const program::Stmt* s);
  /// Names whose objects a statement changes, at any depth: x[0] = …, x.a = …, x.append(…), x.clamp_(0).
  Names changed(const program::Stmt* s) const;
  /// Every name that the script says anywhere.
  Names all_names() const;

 private:
  const program::Module& m_;
  support::SourceManager& sources_;
};

}  // namespace shardwright::emit
