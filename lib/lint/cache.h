// Findings of an earlier run, kept by the content of everything they were made from. An entry of a tree names every question that the
// analysis asked the file system, with a hash of the answer: where all answers are still the same, so are the findings.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lint/lint.h"
#include "lint/trees.h"

namespace shardwright::lint {

/// Passes questions on and notes the answers. For one thread.
class Witness final : public python::FileSystem {
 public:
  Witness(const python::FileSystem& below, ClassesNamed classes) : below_(below), classes_(std::move(classes)) {}
  bool is_file(const std::string& path) const override;
  bool is_directory(const std::string& path) const override;
  std::vector<std::string> list(const std::string& path) const override;
  support::Expected<std::string> read(const std::string& path) const override;
  const std::vector<std::string>& of_class(const std::string& name) const;

  /// Question → hash of its answer.
  const std::map<std::string, std::string>& noted() const { return noted_; }
  /// Asks a noted question again.
  static std::string ask(const std::string& question, const python::FileSystem& files, const ClassesNamed& classes);

 private:
  const python::FileSystem& below_;
  const ClassesNamed classes_;
  mutable std::map<std::string, std::string> noted_;
};

class Cache {
 public:
  /// The entry of a tree in a folder. `about`: whatever else decides what is found (options, which files are looked at).
  Cache(const std::string& folder, const Tree& tree, const std::string& about);
  /// The findings, their files added to `sources`; nothing where an answer changed or there is no entry.
  std::optional<std::vector<support::Diagnostic>> find(const python::FileSystem& files, const ClassesNamed& classes,
                                                       support::SourceManager& sources) const;
  /// Failing to write is no error: the next run does the work again.
  void store(const Witness& witness, const std::vector<support::Diagnostic>& found, const support::SourceManager& sources) const;

 private:
  std::string key_, path_;
};

}  // namespace shardwright::lint
