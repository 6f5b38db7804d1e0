// What a model imports and does not get, and what else was not followed, in words for a person.
#pragma once
#include <vector>

#include "model/trace.h"
#include "support/diagnostic.h"

namespace shardwright::eval {

struct Traced;

/// What the model uses and imports did not give: the place of the first use and what to do, each once. Also files with syntax errors.
std::vector<support::Note> missing_imports(const model::Trace&);
/// Where the program registers hooks on the forward of layers: what they do with the values is not followed.
std::vector<support::Range> hooks(const model::Trace&);

/// What was not followed and takes a part of the model out of the analysis: loops over what is not known (their modules and operations
/// are missing), results of forward that are not known. Each reason once, at the place where it begins; not what missing_imports() says.
std::vector<support::Note> not_followed(const Traced&);

}  // namespace shardwright::eval
