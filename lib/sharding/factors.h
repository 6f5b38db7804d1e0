// The factor store: what a dimension is made of. A dimension is a product of factors, and a factor can itself be a
// concatenation of segments (each a product). Factors start one per dimension, are *unified* when an operation says that two
// dimensions are the same thing (union-find), *split* when a reshape needs a finer one, and *blocked* when an operation needs
// them whole. Lists of factors held elsewhere (a tensor's dimensions, a contraction) stay valid: they are resolved again by
// `leaves` after later splits.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "support/source.h"

namespace shardwright::sharding {

using FactorId = int;
using FactorList = std::vector<FactorId>;  ///< a product, outermost first

/// Why a factor must stay whole.
struct Reason {
  std::string why;
  support::Range where;
  bool unknown = false;  ///< the operation was not understood (as opposed to one that is known to need the dimension whole)
};

class FactorStore {
 public:
  FactorId fresh(std::int64_t size);

  /// Representative of a factor.
  FactorId find(FactorId f);
  /// The finest factors of a product, without those of size 1. A concatenation counts as one leaf.
  FactorList leaves(const FactorList& fs);
  /// `leaves`, with concatenations opened (recursively).
  FactorList deep(const FactorList& fs);
  std::int64_t size(FactorId f) { return factors_[static_cast<std::size_t>(find(f))].size; }
  std::int64_t product(const FactorList& fs);
  /// Segments of a leaf that is a concatenation; empty otherwise.
  const std::vector<FactorList>& segments(FactorId leaf) { return factors_[static_cast<std::size_t>(find(leaf))].cat; }
  /// Declares that the leaf is the concatenation of `segments`; false where it is one already or was split.
  bool concatenate(FactorId leaf, std::vector<FactorList> segments);

  /// Splits a leaf into (outer, size / outer). A concatenation that is split otherwise is blocked: its segments no longer
  /// lie at the boundaries that the split makes.
  std::pair<FactorId, FactorId> split(FactorId leaf, std::int64_t outer);

  void block(const FactorList& fs, const Reason& why);

  /// Equates two lists with the same product. Where they cannot be aligned from the left, what is left of both is blocked
  /// and the answer is false.
  bool unify(const FactorList& a, const FactorList& b, const Reason& why);

  /// The flat list `fs` cut anew into dimensions of `shape` (a view: same elements, same order), aligned from the left.
  /// False where that fails: `out` then holds the dimensions before the failure, what remains of `fs` is blocked.
  bool regroup(const FactorList& fs, const std::vector<std::int64_t>& shape, std::vector<FactorList>& out, const Reason& why);

  const std::vector<Reason>& reasons(FactorId f) { return factors_[static_cast<std::size_t>(find(f))].why; }
  std::size_t count() const { return factors_.size(); }

 private:
  struct Factor {
    std::int64_t size = 1;
    FactorId up = -1;
    FactorList kids;
    std::vector<FactorList> cat;
    std::vector<Reason> why;
  };
  Factor& at(FactorId f) { return factors_[static_cast<std::size_t>(f)]; }
  void append_leaves(FactorId f, FactorList& out);
  void append_deep(FactorId f, FactorList& out);
  void add_reason(FactorId f, const Reason& why);
  void merge(FactorId keep, FactorId gone, const Reason& why);

  std::vector<Factor> factors_;
};

}  // namespace shardwright::sharding
