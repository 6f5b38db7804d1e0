// Runs classes at the sizes of one rank: constructor arguments and inputs that nobody states are made up (rules/parallel/_made) and
// corrected by what the run asks for.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "eval/source.h"
#include "lint/classes.h"
#include "lint/facts.h"
#include "lint/findings.h"
#include "lint/lint.h"
#include "lint/trees.h"
#include "lint/wiring.h"

namespace shardwright::lint {

class Propagator;

class Session {
 public:
  /// One tree of the request's files. `syntax` may serve several sessions of a thread, one after the other.
  Session(const Request&, const Tree&, ClassesNamed, std::shared_ptr<python::Syntax> syntax, const rules::Database&, Found&);
  ~Session();
  /// Reads files that load() will be asked for, on all cores.
  void read_ahead(const std::vector<std::string>& paths) { loader_->loader().read_ahead(paths); }
  /// Parses a file; nullptr when it cannot be read.
  const program::Module* load(const std::string& path);
  void run(const std::vector<Class>& classes);
  /// Registries, wrappers, the configuration's way (wiring.h).
  void wiring(const std::vector<Registry>&, const std::vector<const program::Module*>& asking);
  /// Sizes of a run script (run_scripts.h).
  void run_script(support::FileId);
  /// What the boundaries of pipeline stages declare against what the stages of that file return (stages.cpp).
  void boundaries(const program::Module&);

 private:
  struct Guess;
  struct Attempt;
  struct Evaluator;
  struct Given {
    int rank = 0;
    bool made_defaults = false;
    const std::vector<Sent>* received = nullptr;
    const std::map<std::string, std::vector<std::int64_t>>* planned = nullptr;
  };
  /// `quiet`: findings are of no interest.
  bool run_class(const Class&, Facts* facts = nullptr, bool quiet = false);
  bool run_stage(const Class&, const std::vector<Sent>& received, Facts&);
  bool attempt(const Class&, std::vector<Guess>& inputs, const Given&, Attempt& out);
  /// Values of the expressions that a run came by, for Request::values (values.cpp).
  void note_values(const model::Trace&, Propagator&) const;
  /// Shapes of inputs by name, from the plan beside a generated module (planned.cpp).
  const std::map<std::string, std::vector<std::int64_t>>& planned_inputs(const program::Module&);
  /// Stages of one model, each on what the one before it returns, and together against the model (chain.cpp).
  void chains(const std::vector<Class>&);
  /// Distributed classes against the classes whose place they take (originals.cpp).
  void originals(const std::vector<Class>&);
  void compare_chain(const Facts& original, const std::vector<std::pair<const Class*, Facts>>& stages, bool complete,
                     const std::string& model);
  void last_output(const Class&, const Facts&);
  void strict_base(const Class&);
  void constants(const Class&, const std::vector<Sent>&);
  void balance(const std::vector<std::pair<const Class*, Facts>>& stages);
  void compare_defaults(const program::ClassDef& original, const program::ClassDef& distributed);
  void compare_masks(const program::ClassDef& original, const program::ClassDef& distributed);
  /// Found something? `where`: the distributed class.
  bool compare_runs(const Facts& original, const Facts& distributed, const std::string& name, const std::string& original_name,
                    support::Range where);
  /// The class of that name that a class is the distributed form of: in its own file, in a file looked at, or imported somewhere.
  std::optional<Class> class_named(const std::string& name, const program::Module& near);
  /// SW307: an attribute or a name that nobody sets, where one of nearly that name exists.
  void misspelt(const std::string& error, support::Range at);

  const Request& request_;
  const Tree& tree_;
  support::SourceManager& sources_;
  std::shared_ptr<const rules::Database> rules_;
  Found& findings_;
  std::shared_ptr<python::Syntax> syntax_;
  std::unique_ptr<eval::PythonSource> loader_;
  std::set<const program::ClassDef*> covered_;
  std::map<const program::ClassDef*, Facts> stage_facts_;  ///< of stages that ran on what the one before them returned
  std::vector<const program::Module*> loaded_;             ///< by load()
  const ClassesNamed class_files_;
  std::unique_ptr<Evaluator> evaluator_;                                             ///< between runs of rank 0
  const program::Module* planned_for_ = nullptr;                                     ///< a stage whose model runs now
  std::map<std::string, std::map<std::string, std::vector<std::int64_t>>> planned_;  ///< by folder
  int tp_;
};

}  // namespace shardwright::lint
