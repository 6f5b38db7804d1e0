// Where the values of a program that runs on one of tp ranks lie: for every tensor of the trace and every dimension whether it is
// whole or this rank's share, whether it is a partial sum, and whether its gradient is summed over the ranks. Computed while the
// interpreter runs (eval::Observer), because an operation whose sizes do not fit must be told how to go on.
//
// What cannot be followed is `unknown`, and nothing that depends on it is ever reported.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "eval/observer.h"
#include "lint/findings.h"
#include "model/trace.h"

namespace shardwright::lint {

using model::ModuleId;
using model::Op;
using model::OpId;
using model::TensorId;

/// A part of a dimension, outermost first. `shard`: the rank's share of it lies contiguously (index into Propagator::shards).
struct Factor {
  std::int64_t size = 1;
  int shard = -1;
  int made = -1;       ///< a size of an input that was made up: index into the inputs' dimensions
  bool mixed = false;  ///< several shares one after another (concatenated, packed): its parts are not told apart
};
using Dim = std::vector<Factor>;

struct Placement {
  bool known = true;
  bool entered = false;  ///< went through copy-to-region: its gradient is summed over the ranks
  int partial = -1;      ///< a sum over the ranks that is not done yet: index into Propagator::partials
  std::vector<Dim> dims;
  OpId since = -1;  ///< operation that made a sharded activation of whole ones
};

struct Shard {
  support::Range where;
  ModuleId layer = -1;
  std::string what;
  const model::Sym* size = nullptr;
};

struct Partial {
  enum Kind { Sum, Mean, Other } kind = Sum;
  OpId op = -1;    ///< the contraction
  OpId bias = -1;  ///< where something whole was added to it
  bool reduced = false;
  int into = -1;  ///< added to this one, and summed over the ranks with it
};

/// A size of an input that nobody states. Runs settle it: an operation that needs another size says so, and the run starts again.
struct Wanted {
  int input = -1, dim = -1;
  std::int64_t size = 0;
  bool sharded = false;
};

class Propagator final : public eval::Observer {
 public:
  Propagator(const support::SourceManager& sources, Found& findings, int tp);

  // ---- before a run ------------------------------------------------------------------------------------------------------------
  /// A new run: what was reported in it can be taken back with Found.
  void begin();
  /// An input of forward whose sizes are made up (`made`), some dimensions of which are known to be sharded.
  void input(TensorId, int index, const std::set<int>& sharded);
  /// A tensor of another stage: lies here as it lay there (a placement of another run).
  void received(TensorId, Placement there);
  /// After a run that worked: gradients that nobody sums, and the rest that needs the whole story.
  void end();

  /// The same, of what only the result tells.
  void returned(const model::Binding&);

  std::vector<Wanted> wanted;  ///< sizes that the run asked for
  bool ranks_guessed = false;  ///< the inputs' numbers of dimensions are guesses
  bool wants_rank = false;     ///< a convolution or embedding met an input of another rank
  int wanted_input = -1;
  std::size_t wanted_rank = 0;
  bool wanted_integers = false;

  int repairs =
      0;  ///< operations whose sizes did not fit and that went on as if a share had been gathered, or with a -1 of another size than meant

  // ---- answers -----------------------------------------------------------------------------------------------------------------
  const Placement& place(TensorId);
  bool sharded(const Placement&, std::size_t dim) const;
  bool any_sharded(const Placement&) const;
  /// Size of a dimension of the whole tensor.
  std::int64_t whole(const Placement&, std::size_t dim) const;
  std::string shape_text(TensorId, bool of_whole = false);

  /// "[3, 12, 80] of [3, 12, 160]: sharded over tensor parallel in dimension 2, by up (ColumnParallelLinear)".
  std::string describe(TensorId);

  /// Inputs that arrive sharded, by name: the dimensions.
  std::map<std::string, std::set<int>> sharded_inputs;

  // ---- eval::Observer ------------------------------------------------------------------------------------------------------------
  void attach(const model::Trace& t) override { trace_ = &t; }
  void recorded(const Op&) override;
  void became(TensorId parameter, TensorId from) override;
  void marked(TensorId, const std::string& name) override;
  void pair_used(const eval::LayerResultObj&, const eval::Site&) override;
  void noticed(const std::string& code, const std::string& text, const std::vector<TensorId>&, const eval::Site&, ModuleId) override;
  std::map<TensorId, std::vector<std::int64_t>> repair(const eval::Failure&) override;
  void repaired(const eval::Failure&, const std::vector<TensorId>& results) override;
  bool sharded(TensorId, int dim) override;

 private:
  friend struct Reshaper;
  void set(TensorId, Placement);
  Placement plain(TensorId) const;
  Placement first(TensorId);
  Placement unknown(TensorId) const;
  bool at_rest(const Op&) const;  ///< a run's construction phase: parameters are made, nothing is reported

  void region(const Op&, const std::string& kind);
  struct Cut {
    const program::Expr* site = nullptr;
    std::size_t parts = 1;  ///< it was put together of so many
  };
  void laid_out(TensorId, int dim, long long outer);
  std::optional<Cut> cut_in_constructor(TensorId, std::size_t dim) const;
  void create(const Op&);
  void reshape(const Op&);
  void split(const Op&);
  void concat(const Op&);
  void labelled(const Op&);
  bool partial_operands(const Op&, Placement& out);
  void gradients(const Op&);
  void random(TensorId, const eval::Site&);
  void confirm(const Op&);
  void bare_weights();
  void lost_tail(const Op&);
  bool slice_of_parts(const Op&);
  void shard_fan_in();
  void needless_gathers();
  void repeated_copies();
  ModuleId owner_of(TensorId parameter) const;
  bool used_outside(TensorId parameter, const Op& op) const;
  bool reduced_before(TensorId, int depth) const;
  bool gathered_before(TensorId) const;
  bool read_once(const eval::Failure&, const program::Expr* size) const;
  bool whole_meets_local(const eval::Failure&, TensorId x) const;
  void swallowed_share(const Op&, const Placement&);
  void unmarked_shares();
  void split_size(const Op&, const Placement&, std::size_t dim);
  support::Range made_whole(TensorId) const;

  bool refine(const eval::Failure&);
  bool unfold(const eval::Failure&);
  bool want(TensorId, std::size_t dim, std::int64_t size, bool sharded);
  double evaluate(const model::Sym*, double fallback) const;  ///< with tp = 1 and whole sizes
  std::int64_t whole_size(const model::Sym*, std::int64_t value) const;
  int new_shard(support::Range where, ModuleId layer, std::string what);

  // What findings say.
  support::Range range_of(const Op&) const;
  std::vector<support::Note> origin(const Placement&);  ///< where it became sharded
  std::string layer_name(ModuleId) const;
  std::string name_of(TensorId) const;
  bool parallel_layer(ModuleId) const;
  support::Range argument(ModuleId, const char* name, std::string* text = nullptr) const;
  void report_failure(const eval::Failure&);
  void report_size(const Op&, const struct Regroup&, const Placement&);
  void report_whole_needed(const Op&);

  const model::Trace* trace_ = nullptr;
  const support::SourceManager& sources_;
  Found& findings_;
  const int tp_;
  std::vector<Placement> places_;
  std::vector<Shard> shards_;
  std::vector<Partial> partials_;
  std::vector<std::pair<int, int>> made_;  ///< input, dimension
  std::set<int> confirmed_;                ///< sizes of made_ that a layer accepted: what disagrees with them is wrong
  std::map<TensorId, std::set<std::string>> marks_;
  std::map<TensorId, int> partition_;          ///< partition_dim that was written on a tensor
  std::map<TensorId, TensorId> from_;          ///< parameters: what they were made of
  std::map<TensorId, OpId> partial_gradient_;  ///< parameters: an operation that gives them a partial gradient
  int rng_depth_ = 0;
};

/// Is this the name of an operation that is not linear and whose operand must be complete?
bool is_nonlinear_name(const std::string& name);
std::string last_part(const std::string& name);

}  // namespace shardwright::lint
