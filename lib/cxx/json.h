// A program as JSON: how the Clang front end (its own executable) hands what it read to the main program. Both directions are
// here, so that the form has one description. Ranges are (file, begin, end) with `file` an index into `files` of the document.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "program/program.h"

namespace shardwright::cxx {

/// Changes when the form does: documents of another version are read anew from the source.
constexpr int kFormat = 2;

/// Top-level statements of a program.
nlohmann::json to_json(const std::vector<program::Stmt*>& body);
/// The reverse. `files` maps the document's indices to those of a SourceManager; `module` owns what is read: functions and classes
/// point to it, functions to the class that holds them, and their local names are those that they bind. Throws nlohmann's exceptions on a
/// damaged document.
std::vector<program::Stmt*> from_json(const nlohmann::json&, const std::vector<support::FileId>& files, program::Arena&,
                                      program::Module& module);

}  // namespace shardwright::cxx
