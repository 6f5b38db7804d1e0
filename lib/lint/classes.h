// Which files and classes are worth running: a look at the text for the names of parallel libraries, then at what classes mention.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "program/program.h"
#include "support/source.h"

namespace shardwright::lint {

/// Does the text name a parallel library or collective, or a registry of styles? Everything else is not even parsed.
bool worth_reading(std::string_view text);

struct Class {
  const program::ClassDef* def = nullptr;
  const program::Module* module = nullptr;
  bool relevant = false;  ///< uses parallel layers or collectives, or a class that does
  bool root = false;      ///< relevant, and no other relevant class builds it
};

/// Classes of the top levels that are relevant or pipeline stages; roots first.
std::vector<Class> relevant_classes(const std::vector<const program::Module*>& modules, const support::SourceManager& sources);

/// How many dimensions a forward expects of a parameter, told by `b, n, c = x.shape` and the like; 0: not told.
std::size_t rank_of(const program::Function& forward, const std::string& parameter);

}  // namespace shardwright::lint
