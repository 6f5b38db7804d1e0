// What a module's top level defines, for evaluating it on demand: which statements have to run before a name may be read.
#pragma once
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "program/program.h"

namespace shardwright::python {

/// One top-level statement that concerns a name.
struct Definition {
  const program::Stmt* stmt = nullptr;
  std::uint32_t order = 0;  ///< its place in Module::body
  /// Binds the name itself (assignment, import, def, class, for, with, walrus, except … as; also inside if/try/for/while/with/match).
  bool binds = false;
  /// May change what the name refers to: NAME[…] = …, NAME.a = …, NAME += …, NAME.method(…), f(NAME) as a statement of its own,
  /// `del NAME[…]`, and a decorator that comes from NAME (`@NAME`, `@NAME.register(…)`) on a function or class.
  bool fills = false;
};

struct StarImport {
  const program::Stmt* stmt = nullptr;  ///< the ImportFrom
  std::uint32_t order = 0;              ///< of the top-level statement that holds it
};

/// Statements are found once however deep they are: an `if`, `try`, `for`, `while`, `with` or `match` block counts as a whole and is
/// listed under every name that anything inside it (definitions' bodies apart) binds or fills.
class ModuleIndex {
 public:
  explicit ModuleIndex(const program::Module& module);

  /// In source order; empty when the top level neither binds nor fills the name.
  const std::vector<Definition>& definitions(const std::string& name) const;
  bool binds(const std::string& name) const;
  /// Every bound name, in the order of first binding.
  const std::vector<std::string>& names() const { return names_; }
  const std::vector<StarImport>& star_imports() const { return stars_; }
  /// `__all__` when it is built from literals (lists or tuples of strings, +, +=, .append, .extend, .remove); nothing when there is none or
  /// when it is not.
  const std::optional<std::vector<std::string>>& all() const { return all_; }
  bool has_all() const { return binds("__all__"); }
  /// A module-level `__getattr__` (lazy imports).
  const program::Function* module_getattr() const { return getattr_; }
  /// Top-level expression statements that neither bind nor fill a name of this module, in order (prints, calls for their effect).
  const std::vector<const program::Stmt*>& effects() const { return effects_; }

 private:
  void read_all(const program::Module& module);
  std::unordered_map<std::string, std::vector<Definition>> by_name_;
  std::vector<std::string> names_;
  std::vector<StarImport> stars_;
  std::optional<std::vector<std::string>> all_;
  const program::Function* getattr_ = nullptr;
  std::vector<const program::Stmt*> effects_;
};

}  // namespace shardwright::python
