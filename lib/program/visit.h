// Walking a program: children, names, attribute paths, the statement at a place.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "program/program.h"

namespace shardwright::program {

/// The direct sub-expressions of an expression in source order: kids, arguments, clauses, a lambda's defaults and body.
void for_each_child(const Expr* e, const std::function<void(const Expr*)>& visit);

/// The expressions a statement holds itself (not those of nested statements; of a definition: decorators, bases, defaults, annotations).
void for_each_expr(const Stmt* s, const std::function<void(const Expr*)>& visit);

/// The statements directly inside a statement: body, else, handlers, finally, cases, and the body of a definition.
void for_each_child(const Stmt* s, const std::function<void(const Stmt*)>& visit);

/// Every expression at or below, parents first. `visit` returns false to stay out of what is below. Bodies of lambdas are included.
void walk(const Expr* e, const std::function<bool(const Expr*)>& visit);

/// Every statement at or below in source order, parents first; `visit` returns false to stay out (of a nested definition, say).
void walk(const std::vector<Stmt*>& body, const std::function<bool(const Stmt*)>& visit);

/// Every expression in every statement at or below, bodies of nested definitions included.
void walk_exprs(const std::vector<Stmt*>& body, const std::function<bool(const Expr*)>& visit);

/// Names in the order of their first occurrence.
class NameSet {
 public:
  bool add(const std::string& name);
  bool contains(const std::string& name) const { return seen_.count(name) != 0; }
  const std::vector<std::string>& names() const { return names_; }

 private:
  std::vector<std::string> names_;
  std::unordered_set<std::string> seen_;
};

/// Free names that evaluating an expression may read in the surrounding scope. Targets of comprehensions and parameters of lambdas
/// are not free inside them. Names only written (walrus) are not read.
void names_read(const Expr* e, NameSet& out);
/// The same for statements. A nested function or class reads what its body, defaults and decorators leave free. An augmented
/// assignment and `del` read their target; `x[i] = v` and `x.a = v` read x. A name counts even if an earlier statement wrote it.
void names_read(const Stmt* s, NameSet& out);
void names_read(const std::vector<Stmt*>& body, NameSet& out);

/// Names that running statements may bind in the surrounding scope: targets, imports, definitions, handlers, walrus (also inside
/// comprehensions), patterns, `del`. Nested definitions bind only their own name here; their `global`/`nonlocal` names count too.
void names_written(const Expr* e, NameSet& out);
void names_written(const Stmt* s, NameSet& out);
void names_written(const std::vector<Stmt*>& body, NameSet& out);

/// The names a match pattern captures.
void pattern_captures(const Expr* pattern, NameSet& out);
/// The names an assignment target binds: x, (x, *y); not those of x.a or x[i].
void target_names(const Expr* target, NameSet& out);
/// The name that one of the names of an import statement binds: `import a.b` binds a, `from m import x as y` y.
std::string bound_name(const Stmt& import, const ImportName& name);

/// {"self", "attn", "qkv"} for self.attn.qkv; nothing when the root is no name.
std::optional<std::vector<std::string>> attribute_path(const Expr* e);
/// "self.attn.qkv", or nothing.
std::optional<std::string> dotted_path(const Expr* e);
/// The name at the root of attributes, subscripts and calls: `a` for a.b[0].c(); nullptr when there is none.
const Expr* root_name(const Expr* e);

/// The method of this name in a class's own body (the first of that name); nullptr when there is none.
const Function* method(const ClassDef& c, std::string_view name);

/// The innermost statement whose range contains the offset (decorators belong to their definition), or nullptr.
const Stmt* enclosing_statement(const std::vector<Stmt*>& body, std::uint32_t offset);
/// The innermost function or class definition that contains the offset, or nullptr.
const Stmt* enclosing_definition(const std::vector<Stmt*>& body, std::uint32_t offset);
/// All statements that contain the offset, outermost first.
std::vector<const Stmt*> enclosing_statements(const std::vector<Stmt*>& body, std::uint32_t offset);

}  // namespace shardwright::program
