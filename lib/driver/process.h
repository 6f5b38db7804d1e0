// Other programs, started without a shell.
#pragma once
#include <optional>
#include <string>
#include <vector>

namespace shardwright::driver {

struct Captured {
  int status = 0;      ///< its exit status; 127: it could not be started
  std::string output;  ///< standard output (standard error is discarded)
};

/// Runs a program to its end and keeps what it prints, up to 1 MiB.
Captured capture(const std::vector<std::string>& arguments);

/// Those of `files` that differ from what git has committed (or that it does not know), of files inside a working tree. Files outside of
/// one, or ignored by it, are never among them.
std::vector<std::string> uncommitted(const std::vector<std::string>& files);

}  // namespace shardwright::driver
