// The parts of Python's standard library that are written in Python (stdlib/*.py), embedded at build time.
#pragma once
#include <string>
#include <vector>

namespace shardwright::eval {

struct StdlibSource {
  std::string name, text;
};
const std::vector<StdlibSource>& stdlib_sources();

}  // namespace shardwright::eval
