// tree-sitter's concrete tree → program nodes. Internal to lib/python; parse.h is the public header.
//
// One Lowering per file. Children of a node are gathered with a cursor into a pool that works as a stack (indexed access to
// children in tree-sitter is linear, so walking by index would be quadratic for long lists). Comments are taken out here and
// recorded, so nothing below sees them. Names bound in a function are collected on the way down, in `scopes_`.
#pragma once
#include <tree_sitter/api.h>

#include <string_view>
#include <unordered_set>
#include <vector>

#include "program/program.h"
#include "python/outline.h"
#include "support/diagnostic.h"

namespace shardwright::python {

/// tree-sitter's tree of a text, or of parts of it (in order, [begin, end)) as if nothing were between them.
class Concrete {
 public:
  using Parts = std::vector<std::pair<std::uint32_t, std::uint32_t>>;
  explicit Concrete(std::string_view text, const Parts& parts = {});
  ~Concrete() {
    if (tree_) ts_tree_delete(tree_);
  }
  Concrete(const Concrete&) = delete;
  Concrete& operator=(const Concrete&) = delete;
  explicit operator bool() const { return tree_ != nullptr; }
  TSNode root() const { return ts_tree_root_node(tree_); }

 private:
  TSTree* tree_ = nullptr;
};

class Lowering {
 public:
  Lowering(const support::SourceFile& source, program::Arena& arena, program::Module& module, support::Diagnostics& diagnostics);
  ~Lowering();
  Lowering(const Lowering&) = delete;
  Lowering& operator=(const Lowering&) = delete;

  /// `outline`: of the bodies that `root` does not hold; they are read when asked for.
  void run(TSNode root, const Outline* outline = nullptr);
  /// The statements of a part of the file that `run` left out, whose comments are known.
  std::vector<program::Stmt*> run_part(TSNode root);

 private:
  using Expr = program::Expr;
  using Stmt = program::Stmt;
  using Range = support::Range;

  struct Child {
    TSNode node;
    std::uint16_t symbol;
    std::uint16_t field;
  };
  /// The children of one node without comments; lives on the pool until its scope ends.
  class Children {
   public:
    Children(Lowering& owner, TSNode node);
    ~Children() { pool_.resize(begin_); }
    Children(const Children&) = delete;
    Children& operator=(const Children&) = delete;
    std::size_t size() const { return end_ - begin_; }
    /// By value: the pool may move while a child is lowered.
    Child operator[](std::size_t i) const { return pool_[begin_ + i]; }
    /// The first child with a field, or a null node.
    TSNode field(std::uint16_t f) const;

   private:
    std::vector<Child>& pool_;
    std::size_t begin_, end_;
  };
  struct Scope {
    program::Function* function = nullptr;  ///< null for a class body and the top level
    program::ClassDef* class_def = nullptr;
    std::vector<std::string_view> order;
    std::unordered_set<std::string_view> bound, excluded;
  };
  struct Depth {
    explicit Depth(int& d) : d_(d) { ++d_; }
    ~Depth() { --d_; }
    int& d_;
  };

  // lower_expr.cpp
  Expr* expr(TSNode node);
  Expr* make(program::ExprKind kind, TSNode node) { return arena_.expr(kind, range(node)); }
  Expr* opaque(TSNode node);
  Expr* leaf(program::ExprKind kind, TSNode node);
  Expr* parenthesized(TSNode node);
  Expr* attribute(TSNode node);
  Expr* subscript(TSNode node);
  Expr* slice(TSNode node);
  Expr* call(TSNode node);
  Expr* unary(TSNode node);
  Expr* binary(TSNode node);
  Expr* regroup_and_xor(Expr* e);
  Expr* bool_op(TSNode node);
  Expr* compare(TSNode node);
  Expr* conditional(TSNode node);
  Expr* sequence(program::ExprKind kind, TSNode node);
  Expr* dictionary(TSNode node);
  Expr* comprehension(program::ExprKind kind, TSNode node);
  Expr* walrus(TSNode node);
  Expr* prefix_operator(program::ExprKind kind, TSNode node);
  Expr* yield(TSNode node);
  Expr* lambda(TSNode node);
  Expr* string(TSNode node);
  Expr* concatenated(TSNode node);
  void string_parts(TSNode node, Expr* into);
  void interpolation(TSNode node, Expr* into);
  Expr* generic_type(TSNode node);
  Expr* union_type(TSNode node);
  Expr* member_type(TSNode node);
  Expr* dotted(TSNode node);
  Expr* hoist_star(Expr* e);
  void arguments(TSNode node, std::vector<program::Argument>& out);
  Expr* comma_list(const std::vector<Expr*>& items, std::uint32_t begin, std::uint32_t end);

  // lower_pattern.cpp
  Expr* pattern(TSNode node);
  Expr* pattern_sequence(program::ExprKind kind, TSNode node);
  Expr* pattern_class(TSNode node);
  Expr* pattern_dict(TSNode node);
  Expr* pattern_number(const Children& c, std::uint32_t begin, std::uint32_t end);

  // lower_stmt.cpp
  void block(TSNode node, std::vector<Stmt*>& out);
  void stmt(TSNode node, std::vector<Stmt*>& out);
  Stmt* make_stmt(program::StmtKind kind, TSNode node, std::vector<Stmt*>& out);
  void expression_statement(TSNode node, std::vector<Stmt*>& out);
  void assignment(TSNode node, std::vector<Stmt*>& out, TSNode whole);
  void import_names(const Children& c, Stmt* s);
  void import_from(TSNode node, std::vector<Stmt*>& out, bool future);
  void if_statement(TSNode node, std::vector<Stmt*>& out);
  void for_statement(TSNode node, std::vector<Stmt*>& out);
  void while_statement(TSNode node, std::vector<Stmt*>& out);
  void try_statement(TSNode node, std::vector<Stmt*>& out);
  void handler(TSNode node, Stmt* s);
  void with_statement(TSNode node, std::vector<Stmt*>& out);
  void with_item(TSNode node, Stmt* s);
  void match_statement(TSNode node, std::vector<Stmt*>& out);
  void definition(TSNode node, TSNode whole, std::vector<Expr*> decorators, std::vector<Stmt*>& out);
  void function_definition(TSNode node, TSNode whole, std::vector<Expr*> decorators, std::vector<Stmt*>& out);
  void class_definition(TSNode node, TSNode whole, std::vector<Expr*> decorators, std::vector<Stmt*>& out);
  void decorated(TSNode node, std::vector<Stmt*>& out);
  void parameters(TSNode node, program::Function* f);
  void names_of(TSNode node, Stmt* s);

  // lower.cpp
  Range range(TSNode node) const { return {source_.id, ts_node_start_byte(node), ts_node_end_byte(node)}; }
  std::string_view text(TSNode node) const;
  std::string dotted_text(TSNode node) const;
  void bind(std::string_view name);
  void bind_target(const Expr* target);
  void push_function(program::Function* f);
  void pop_function();
  bool too_deep(TSNode node);
  void syntax_error(Range r, std::string message);
  void collect_errors(TSNode root);
  void read_later(program::Function* f, const LeftOut& body);

  const Outline* outline_ = nullptr;
  bool comments_known_ = false;
  const support::SourceFile& source_;
  program::Arena& arena_;
  program::Module& module_;
  support::Diagnostics& diagnostics_;
  TSTreeCursor cursor_{};
  bool cursor_ready_ = false;
  std::vector<Child> pool_;
  std::vector<Scope> scopes_;
  int depth_ = 0;
  bool depth_reported_ = false;
};

}  // namespace shardwright::python
