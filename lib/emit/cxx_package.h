// The generated directory of a model in C++: edited copies of the user's files, how to build them, a training program, a program that
// verify runs, params.yaml.
#pragma once
#include "cxx/load.h"
#include "emit/assemble.h"
#include "emit/package.h"
#include "rewrite/typed_text.h"

namespace shardwright::emit {

struct CxxInput {
  const eval::Traced& traced;
  const eval::Job& job;
  const cxx::Unit& unit;
  const rewrite::TypedText& text;
  support::SourceManager& sources;
  python::Syntax& syntax;  ///< reads the job's expressions
  std::string spec;        ///< MODEL as the user gave it
  Grid grid;
  std::string runtime;  ///< folder of the runtime (include/, src/)
  std::vector<std::string> fallbacks;
};

support::Expected<std::vector<File>> cxx_files(const CxxInput&);

}  // namespace shardwright::emit
