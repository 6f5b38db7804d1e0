// What a model imports and does not get, in words for a person.
#pragma once
#include <vector>

#include "model/trace.h"
#include "support/diagnostic.h"

namespace shardwright::eval {

/// What the model uses and imports did not give: the place of the first use and what to do, each once. Also files with syntax errors.
std::vector<support::Note> missing_imports(const model::Trace&);

}  // namespace shardwright::eval
