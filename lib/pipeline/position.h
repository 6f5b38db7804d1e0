// A cut's place in words, for people and for plan files.
#pragma once
#include <string>
#include <vector>

#include "pipeline/pipeline.h"
#include "support/source.h"

namespace shardwright::pipeline {

/// "after layer1.blocks.3 (model.py:141)", "in blocks.2.attn, after ln (model.py:30)", "before `x = self.norm(x)` (model.py:51)".
std::string describe(const model::Trace&, const support::SourceManager&, const Cut&);

/// The frame path in a form that does not change with comments, blank lines or other edits elsewhere, outermost first: one
/// entry per level, "FQN.method@statement[iterations]". The statement is its index path in the method's body ("2.0": the first
/// statement inside the third; "2e0": of its else branch). The last entry says how the cut lies: "@2.0", "@2.0<1" (before the second
/// call of that statement, in order of the source), "@2.0>1" (after it); a further entry "FQN/3" is a container's fourth child.
std::vector<std::string> key_of(const model::Trace&, const Cut&);

}  // namespace shardwright::pipeline
