// ModuleSource over lib/python: modules from a file system by search path, and text of ours.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "eval/interpreter.h"
#include "python/resolve.h"
#include "support/diagnostic.h"

namespace shardwright::eval {

class PythonSource final : public ModuleSource {
 public:
  /// `files` must outlive it.
  PythonSource(std::shared_ptr<python::Syntax> syntax, const python::FileSystem& files, std::vector<std::string> search_paths);
  const program::Module* load(const std::string& dotted) override { return loader_.load(dotted); }
  const program::Module* parse(const std::string& dotted, const std::string& path, std::string_view text) override;
  bool mentions(const std::string& dotted, std::string_view word) override;
  /// Why the file of a module that load() did not give could not be read; "" when there is no such file.
  std::string unreadable(const std::string& dotted);
  python::Loader& loader() { return loader_; }

 private:
  const std::unordered_set<std::string>& words(const std::string& dotted);
  std::shared_ptr<python::Syntax> syntax_;
  const python::FileSystem& files_;
  support::Diagnostics diagnostics_;
  python::Loader loader_;
  std::map<std::string, std::unordered_set<std::string>> words_;
};

}  // namespace shardwright::eval
