// A first job file for a class, with what the source tells and guesses marked as such: for `shardwright init`.
#pragma once
#include <string>

#include "driver/analysis.h"

namespace shardwright::driver {

struct FirstJob {
  std::string text;     ///< the job file
  std::string name;     ///< a file name for it: "gpt.yaml"
  std::string trouble;  ///< why the analysis does not get through with it; "" when it does
};

/// `request.spec` is file.py:Class or package.module:Class; its --args and --input settle what they name, the rest is guessed. `folder` is
/// where the file will lie: the model's path is written relative to it.
support::Expected<FirstJob> first_job(const ModelRequest& request, const std::string& folder, support::SourceManager& sm);

}  // namespace shardwright::driver
