// Edits on models in C++: the verdicts of tp_edits as C++ text, and the statements that say what each rank holds.
//
// One text serves all instances of a class (and all instances of a template): where two of them need different text, the axis is
// given up. What a macro makes has no place and is never edited (its expressions have no range).
#pragma once
#include <map>
#include <string>
#include <vector>

#include "rewrite/rewrite.h"
#include "support/edits.h"

namespace shardwright::rewrite {

/// How a parameter is held: what `shardwright::shard` is told, and params.yaml.
struct HeldParameter {
  std::string name;  ///< in the model
  bool buffer = false;
  int dim = -1;                                                 ///< -1: whole on every rank
  std::int64_t outer = 1;                                       ///< factor before the sharded one
  std::vector<std::pair<std::int64_t, std::int64_t>> segments;  ///< (rows, outer factor) of a concatenation
  bool summed = false;                                          ///< its gradient is summed over tp
};

struct TypedText {
  std::map<support::FileId, support::Edits> edits;
  std::vector<std::string> why;     ///< "file:line: reason" of each edit, in order
  std::vector<HeldParameter> held;  ///< of every parameter and buffer
  std::vector<Refusal> refusals;
};

TypedText typed_text(const model::Trace&, const sharding::Result&, const TpEdits&, const support::SourceManager&, const rules::Database&,
                     const rules::Target&);

}  // namespace shardwright::rewrite
