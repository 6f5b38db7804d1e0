// A view of a sharded tensor: where does the share end up, and are the sizes given this rank's or the whole's?
#pragma once
#include <cstdint>
#include <vector>

#include "model/trace.h"

namespace shardwright::lint {

class Propagator;
struct Factor;
struct Placement;

struct Regroup {
  enum Verdict {
    Fine,
    Unknown,     ///< cannot be told
    Contiguous,  ///< the share was cut across an outer dimension of the view (SW107)
    NotLocal,    ///< a size given is the whole's (SW106)
  } verdict = Fine;
  std::vector<std::vector<Factor>> dims;  ///< of the result, at local sizes
  // Contiguous
  std::int64_t pieces = 0;
  // NotLocal
  const program::Expr* expr = nullptr;  ///< the size, where it is written
  std::int64_t given = 0, needed = 0;
  int dim = -1;
  bool hole = false;  ///< a -1 took the difference
  std::int64_t hole_value = 0, hole_wanted = 0;
};

/// `op` is a Reshape that ran.
Regroup regroup_view(Propagator&, const model::Trace&, const model::Op& op, const Placement& from, int tp);

/// The same question for one that did not run: sizes that do not fit the share but would fit the whole.
Regroup regroup_failed(Propagator&, const std::vector<model::SizeArg>& sizes, int first, const Placement& from, int tp);

}  // namespace shardwright::lint
