// Places in a function's syntax: which statement an expression belongs to, what a statement reads and writes, and the text
// around it. Internal to the stage slicer.
#pragma once
#include <functional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "program/program.h"
#include "rewrite/rewrite.h"
#include "support/source.h"

namespace shardwright::rewrite::stage {

using program::Expr;
using program::ExprKind;
using program::Function;
using program::Stmt;
using program::StmtKind;
using support::Range;

using Block = std::vector<Stmt*>;

/// Where every statement and expression of one function stands. Nested functions and classes are single statements here.
class FunctionIndex {
 public:
  struct Place {
    const Stmt* parent = nullptr;  ///< nullptr: the function's body
    const Block* block = nullptr;
    std::size_t index = 0;
  };
  explicit FunctionIndex(const Function& f);
  const Function& function;

  const Place* place(const Stmt* s) const;
  const Expr* parent(const Expr* e) const;     ///< enclosing expression, nullptr at the top
  const Stmt* statement(const Expr* e) const;  ///< nullptr: not in this function (or in a nested one)
  /// Statements from the function's body down to `s`, `s` last.
  std::vector<const Stmt*> chain(const Stmt* s) const;

 private:
  void block(const Block& b, const Stmt* parent);
  void expr(const Expr* e, const Expr* parent, const Stmt* s);
  std::unordered_map<const Stmt*, Place> places_;
  std::unordered_map<const Expr*, std::pair<const Expr*, const Stmt*>> exprs_;
};

/// A name that evaluating something reads from the function's scope; `expr` is nullptr when the reading place is inside a
/// nested definition.
struct Read {
  std::string name;
  const Expr* expr = nullptr;
};

/// Names read by an expression; sub-expressions for which `skip` says true are left out.
void reads(const Expr* e, std::vector<Read>& out, const std::function<bool(const Expr*)>& skip = {});
/// Names that a statement's own expressions read (not those of nested statements). Deleted names do not count.
std::vector<Read> own_reads(const Stmt* s, const std::function<bool(const Expr*)>& skip = {});
/// Names that the statement itself surely binds (targets, imports, definitions; for a loop its targets).
std::vector<std::string> own_writes(const Stmt* s);
/// Names bound anywhere at or below (nested functions excluded).
std::vector<std::string> all_writes(const Stmt* s);

/// Direct sub-expressions in Python's evaluation order (a conditional's test comes first).
std::vector<const Expr*> in_evaluation_order(const Expr* e);

bool is_docstring(const Function& f, const Stmt* s);
/// What a method calls its object.
inline std::string self_name(const Function* f) { return f->parameters.empty() ? "self" : f->parameters[0].name; }
/// Every statement at or below, nested definitions as one each.
void for_statements(const Block& b, const std::function<void(const Stmt*)>& visit);
/// One that holds no other statements and does not leave: an assignment, an expression, `del`, `assert`.
bool simple(const Stmt* s);
/// `nn.ModuleList()`, `nn.ModuleList([])`.
bool empty_container(const Expr* call);
/// `Base.forward(self, x)` in a method of the same object.
bool is_unbound_call(const model::Trace& t, const Expr* call, model::FrameId from, model::FrameId to);
/// How often a name stands in a text as a whole word (in comments and strings, too).
int times_named(const std::string& text, const std::string& name);
/// Is the variable only a list that things are put into and taken out of: `v = [`, `v.append(`, `v.pop(`, `v[1]` in a return?
bool only_holds(const std::string& text, const std::string& variable);

/// A piece of text to put in place of a range.
struct Edit {
  Range range;
  std::string text;
};

/// Text of a range: `render` for what is between the edits. Edits outside the range are ignored.
std::string with_edits(Range whole, std::vector<Edit> edits, const Render& render);

/// The layout around statements: own-line comments above, comment behind, indentation.
/// Every blank at the start of a line, outside of triple-quoted strings, as a tab.
std::string with_tabs(const std::string& text);

class Layout {
 public:
  Layout(const support::SourceManager& sources, const Function& f);
  /// From `def` through the colon, with a comment on the same line.
  Range header() const { return header_; }
  std::size_t column(const Stmt* s) const;
  /// Own-line comments and blank lines between the previous statement (or the header) and `s`; empty or ending in a newline.
  std::string above(const Stmt* s, const Block& block, std::size_t index, const Stmt* parent) const;
  /// "  # comment" behind the end of a range on its last line, or "".
  std::string behind(std::uint32_t end) const;
  /// Comments below the last statement of a block at its indentation; "" or text starting with a newline.
  std::string below(const Stmt* s) const;
  /// Header of a compound statement, from its first token through the colon.
  Range header_of(const Stmt* s, const Block& body) const;
  const support::SourceManager& sources() const { return sources_; }
  const std::string& text() const { return *text_; }
  /// Columns of one more level: one where the source is indented by tabs.
  std::size_t step() const { return tabs_ ? 1 : 4; }
  /// A method's new text, written with a blank for every column, as the source is indented.
  std::string as_indented(std::string text) const { return tabs_ ? with_tabs(text) : text; }

 private:
  std::uint32_t colon_before(std::uint32_t from, std::uint32_t limit) const;
  std::uint32_t line_start(std::uint32_t at) const;
  std::uint32_t line_end(std::uint32_t at) const;
  const support::SourceManager& sources_;
  const Function& function_;
  const std::string* text_;
  Range header_;
  bool tabs_ = false;
};

/// Moves all lines after the first by `delta` columns; lines inside triple-quoted strings stay.
std::string shift(const std::string& text, int delta);

}  // namespace shardwright::rewrite::stage
