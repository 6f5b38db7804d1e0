// verify for models in C++: builds the original and the generated program, runs both, compares what they wrote.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "support/result.h"

namespace shardwright::driver {

struct CxxVerifyRequest {
  std::string dir;
  int tp = 1, steps = 3, micro_batches = 2;
  double tolerance = 1e-9;
  std::string python;  ///< whose torch is used; "": looked for
};

struct CxxVerified {
  bool same = false;
  std::vector<std::pair<std::string, int>> compared;  ///< kind → how many
  std::vector<std::pair<std::string, double>> worst;  ///< kind → largest relative difference
  std::string first_difference;
  double seconds = 0;
};

/// Is it a directory that convert wrote for a model in C++?
bool is_cxx_directory(const std::string& dir);
/// The folder with the runtime's include/ and src/, beside the program or above it; "" when there is none.
std::string runtime_folder();
support::Expected<CxxVerified> verify_cxx(const CxxVerifyRequest&, const std::function<void(const std::string&)>& progress);

}  // namespace shardwright::driver
