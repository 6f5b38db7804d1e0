// From dotted module names to files and parsed modules, without running anything.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "python/syntax.h"
#include "support/result.h"

namespace shardwright::python {

/// The disk, or a stand-in for it in tests.
class FileSystem {
 public:
  virtual ~FileSystem() = default;
  virtual bool is_file(const std::string& path) const = 0;
  virtual bool is_directory(const std::string& path) const = 0;
  virtual support::Expected<std::string> read(const std::string& path) const = 0;
  /// Names in a folder (no order promised); empty when it cannot be listed.
  virtual std::vector<std::string> list(const std::string& path) const = 0;
};

class DiskFileSystem final : public FileSystem {
 public:
  bool is_file(const std::string& path) const override;
  bool is_directory(const std::string& path) const override;
  support::Expected<std::string> read(const std::string& path) const override;
  std::vector<std::string> list(const std::string& path) const override;
};

/// Files given as path → text; folders are what their paths imply.
class MemoryFileSystem final : public FileSystem {
 public:
  explicit MemoryFileSystem(std::map<std::string, std::string> files) : files_(std::move(files)) {}
  bool is_file(const std::string& path) const override { return files_.count(path) != 0; }
  bool is_directory(const std::string& path) const override;
  support::Expected<std::string> read(const std::string& path) const override;
  std::vector<std::string> list(const std::string& path) const override;

 private:
  std::map<std::string, std::string> files_;
};

struct ModuleLocation {
  enum Kind {
    NotFound,
    Source,     ///< path is a .py file; for a package its __init__.py
    Namespace,  ///< a package without __init__.py: only folders
    Compiled,   ///< path is an extension module: it exists, its source does not
  };
  Kind kind = NotFound;
  std::string name;
  std::string path;
  std::vector<std::string> folders;  ///< where submodules are looked for (packages only)
  bool is_package() const { return !folders.empty(); }
  explicit operator bool() const { return kind != NotFound; }
};

/// Finds modules as Python's path finder does: in each search path in order a package folder with __init__.py, then NAME.py, then an
/// extension module (Python has the last two the other way round; source tells us more); folders without __init__.py collected over
/// all of them make a namespace package. Results are kept.
class Resolver {
 public:
  Resolver(const FileSystem& files, std::vector<std::string> search_paths);
  const ModuleLocation& find(const std::string& dotted);
  /// Names of the modules directly in a package, sorted.
  std::vector<std::string> submodules(const ModuleLocation& package) const;
  const std::vector<std::string>& search_paths() const { return search_paths_; }
  /// Also looks here, after the paths so far or before them; forgets what was not found.
  void add_search_path(std::string path, bool first = false);
  const FileSystem& files() const { return files_; }
  /// Tells where a module is (an entry file found by its path).
  void set(ModuleLocation location);

 private:
  ModuleLocation look(const std::string& name, const std::string& last, const std::vector<std::string>& folders) const;
  const FileSystem& files_;
  std::vector<std::string> search_paths_;
  std::unordered_map<std::string, ModuleLocation> found_;
};

/// The absolute name that `from ..x import y` (level 2, module "x") means in `importer`; nothing when it climbs above the top.
std::optional<std::string> absolute_name(const std::string& importer, bool importer_is_package, int level, const std::string& module);

/// Folders with installed packages of a Python prefix (a virtual environment's root, or what holds bin/python):
/// lib/python3.*/site-packages, lib/python3/dist-packages, and what their .pth files add. Newest Python first.
std::vector<std::string> site_packages(const FileSystem& files, const std::string& prefix);
/// The same for $VIRTUAL_ENV given as `virtual_env`, or a Python executable's path as `python`; either may be empty.
std::vector<std::string> site_packages_of(const FileSystem& files, const std::string& virtual_env, const std::string& python);

/// Loads and parses modules on demand, each once.
class Loader {
 public:
  Loader(Syntax& syntax, const FileSystem& files, support::Diagnostics& diagnostics, std::vector<std::string> search_paths);

  /// The module of a dotted name. nullptr when there is no source (see locate() for why); a namespace package gives a module
  /// without statements and with file -1. An unreadable file is reported to the diagnostics once and gives nullptr.
  program::Module* load(const std::string& dotted);
  const ModuleLocation& locate(const std::string& dotted) { return resolver_.find(dotted); }

  /// Loads a file given by path. Its module name is the dotted path from the outermost folder in the chain of folders that hold
  /// an __init__.py, else its stem; the folder of that top becomes the first search path, as Python does for a script.
  support::Expected<program::Module*> load_file(const std::string& path);

  /// Reads files that will be loaded by their paths on all cores.
  void read_ahead(const std::vector<std::string>& paths);

  /// Makes a module that another front end read the one of its name.
  void adopt(program::Module* module);

  /// Modules loaded so far, in the order of loading.
  const std::vector<program::Module*>& loaded() const { return order_; }
  Resolver& resolver() { return resolver_; }

 private:
  struct File {
    std::string path, name;
    std::string root;  ///< the folder that the name starts from
    bool is_package = false;
  };
  File file_of(const std::string& given) const;
  program::Module* parse_text(const std::string& name, const std::string& path, std::string_view text, bool is_package);
  Syntax& syntax_;
  const FileSystem& files_;
  support::Diagnostics& diagnostics_;
  Resolver resolver_;
  std::unordered_map<std::string, program::Module*> modules_;
  std::vector<program::Module*> order_;
};

}  // namespace shardwright::python
