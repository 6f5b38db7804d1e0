// What is on this machine, and what each command would miss: for `shardwright doctor`.
#pragma once
#include <string>
#include <vector>

namespace shardwright::driver {

struct Found {
  std::string what;  ///< "Python", "PyTorch", "runtime", "NCCL", "GPUs", …
  bool there = false;
  std::string detail;  ///< version and place, or what to do
};

struct Need {
  std::string command;               ///< "verify"
  std::vector<std::string> missing;  ///< names of Found; empty: it works
  std::string note;                  ///< a lesser use that is missing: "on CPU only"
};

struct Health {
  std::vector<Found> found;
  std::vector<Need> commands;
};

/// Starts Python, compilers and git to ask for their versions: takes seconds where torch is large. `python`: --python, or "".
Health examine(const std::string& python);

}  // namespace shardwright::driver
