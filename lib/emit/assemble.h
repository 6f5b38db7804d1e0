// Definitions → the files of a Python package: which file each goes to, what it must import, what has to be copied along.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "emit/comments.h"
#include "eval/interpreter.h"
#include "rewrite/specialize.h"
#include "support/result.h"

namespace shardwright::rules {
struct Target;
}

namespace shardwright::emit {

/// A file to write, path relative to the output directory.
struct File {
  std::string path;
  std::string text;
  bool executable = false;
  bool edited = false;  ///< a file of the user's with additions: merged in, never owned
  std::string module;   ///< its dotted name, of files beside the originals
  bool common = false;  ///< the same for every model: only this program's version decides its text
};

/// Where a module of generated code lies: path relative to the output directory, dotted name.
struct Place {
  std::string path, module;
};

struct AssembleOptions {
  std::string package;                                  ///< "gpt_parallel": a package of copies; "": files beside the originals, by `place`
  const rules::Target* target = nullptr;                ///< whose names the text uses
  std::function<Place(const program::Module&)> place;   ///< of what stages share
  std::function<Place(const program::Module&)> stages;  ///< of stage classes, by the module of the original class
  std::string banner;                                   ///< first comment line of every file
  std::string shared_banner;                            ///< of files that several models' conversions write alike; "": the banner
  /// Modules that cannot be imported where the generated code runs (an entry file given by its path, and its neighbours):
  /// what is needed of them is copied.
  std::function<bool(const program::Module&)> copied;
  const std::vector<model::Patch>* patches = nullptr;  ///< what the source changes in PyTorch
};

class Assembler {
 public:
  Assembler(const rewrite::Specialized&, eval::ModuleSource&, support::SourceManager&, AssembleOptions);
  /// The package's files without __init__.py of the top.
  support::Expected<std::vector<File>> files();
  /// Import lines that give `names` (free names of an expression in `origin`, or refs to definitions) inside the package's __init__.py.
  std::vector<std::string> imports_for(const std::set<std::string>& names, const std::map<std::string, int>& refs,
                                       const program::Module& origin, const std::map<std::string, std::string>& job_imports);
  /// "stage0" → class, for __init__.py.
  std::string module_of(int definition) const;

 private:
  struct Piece {
    std::uint32_t order = 0;  ///< where it stands in the original
    std::string text;
    int stage = -1;
    std::set<std::string> after = {};  ///< classes that it is derived from
    Comments comments = {};
  };
  struct Unit {
    std::string path;  ///< "models/layers/mlp.py"
    const program::Module* origin = nullptr;
    std::map<std::string, Piece> pieces;  ///< by name
    std::set<std::string> absolute, runtime, plain, future;
    std::set<std::string> optional;                         ///< imports of names that the original binds under a condition only
    std::map<std::string, std::set<std::string>> relative;  ///< path → names
    std::map<std::string, std::string> lines;               ///< name → its import as the original writes it
    std::map<std::string, std::string> bound, called;       ///< name → what it means; the other way round
    std::map<std::string, Comments> notes;                  ///< import line, or path of `relative` → the original's comments
    std::set<const program::Stmt*> noted;
  };
  Unit& unit(const std::string& path, const program::Module* origin);
  void place(int definition);
  /// Makes `name` of `origin` known in the file; returns what it is called there: another name where `name` means something else already.
  std::string need(Unit& u, const std::string& name, const program::Module& origin);
  /// Makes what a statement of `origin` reads known in the file, but for one name.
  void need_read(Unit& u, const program::Stmt& s, const program::Module& origin, const std::string& but);
  /// Keeps the comments of the import that gives `origin` its `name` for the file's `line`.
  void note(Unit& u, const std::string& line, const program::Module& origin, const std::string& name);
  /// The name in the file of what `identity` says; `wanted` where that is free.
  static std::string bind(Unit& u, const std::string& wanted, const std::string& identity);
  std::string bind_from(Unit& u, const std::string& wanted, const std::string& target, const std::string& name);
  std::string name_of(Unit& u, const rewrite::Definition& d, const std::string& n, const std::map<std::string, int>& refs_of_file);
  support::Expected<std::string> with_names(const program::Module& parsed, const std::string& text,
                                            const std::map<std::string, std::string>& names) const;
  /// Module and name of the definition that `name` of `origin` stands for, imports followed; nullptr: not to be told.
  std::pair<const program::Module*, std::string> resolve(const program::Module& origin, const std::string& name);
  /// What the module does to a class of it after its definition, `Layer.scale = 0.5`, for the definition that stands for the class in a
  /// file.
  void copy_patches(Unit& u, const program::Module& m, const std::string& original, const std::string& name, int stage);
  /// Settings that the module makes for all that follows, as torch.set_default_dtype.
  void copy_settings(Unit& u, const program::Module& m);
  /// What the source changes in PyTorch, once in the package: a replacement that calls what it replaces must not be made twice.
  void copy_changes_of_torch();
  void copy_registered(const program::Module& m, const std::string& name);
  void copy_by_value();
  void copy_definition(const program::Module& m, const std::string& name);
  void copy_statement(const program::Module& m, const program::Stmt* s);
  void add_statement(Unit& u, const program::Module& m, const program::Stmt* s);
  /// "models/my_model.py", in a package of copies: the module's name with parts that Python can import.
  std::string file_of(const program::Module& m);
  bool in_place() const { return options_.package.empty(); }
  /// "from … import " for names of the file at `to`, written in the file at `from`.
  std::string import_from(const std::string& from, const std::string& to) const;
  std::string import_line(const program::Module& origin, const std::string& name, const program::Module** local, std::string* local_name);
  const std::vector<const program::Stmt*>& binders(const program::Module& m, const std::string& name);

  const rewrite::Specialized& spec_;
  eval::ModuleSource& loader_;
  support::SourceManager& sources_;
  AssembleOptions options_;
  std::map<std::string, Unit> units_;
  std::vector<std::string> path_of_;          ///< by definition
  std::map<std::string, std::string> files_;  ///< module → file_of
  std::set<std::string> taken_;
  std::set<std::string> stage_paths_;
  std::map<std::string, std::string> dotted_;  ///< path → module, in place only
  std::map<const program::Module*, std::map<std::string, std::vector<const program::Stmt*>>> index_;
  std::set<std::pair<const program::Module*, std::string>> copied_;
};

std::string package_of(const program::Module&);
/// The module that a `from … import` names, relative ones resolved.
std::string absolute_module(const program::Module& importer, const program::Stmt& import);
/// Relative import prefix and module from one package file to another: ("a/b.py", "a/c.py") → ".c".
std::string relative_module(const std::string& from, const std::string& to);

}  // namespace shardwright::emit
