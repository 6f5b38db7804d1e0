// Runs classes at the sizes of one rank: constructor arguments and inputs that nobody states are made up (rules/parallel/_made) and
// corrected by what the run asks for.
#pragma once
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "eval/source.h"
#include "lint/classes.h"
#include "lint/findings.h"
#include "lint/lint.h"

namespace shardwright::lint {

class Session {
 public:
  Session(const Request&, support::SourceManager&, const rules::Database&, Found&);
  /// Parses a file; nullptr when it cannot be read.
  const program::Module* load(const std::string& path);
  void run(const std::vector<Class>& classes);
  /// What the boundaries of pipeline stages declare against what the stages of that file return (stages.cpp).
  void boundaries(const program::Module&);

 private:
  struct Guess;
  struct Attempt;
  bool run_class(const Class&, std::vector<std::vector<std::int64_t>>* outputs = nullptr);
  bool attempt(const Class&, std::vector<Guess>& inputs, int rank, bool made_defaults, Attempt& out);

  const Request& request_;
  support::SourceManager& sources_;
  std::shared_ptr<const rules::Database> rules_;
  Found& findings_;
  std::shared_ptr<python::Syntax> syntax_;
  std::unique_ptr<eval::PythonSource> loader_;
  std::set<const program::ClassDef*> covered_;
  int tp_;
};

}  // namespace shardwright::lint
