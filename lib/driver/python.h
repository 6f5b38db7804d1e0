// The Python interpreter that runs models: finding it, checking it, starting it.
#pragma once
#include <string>
#include <vector>

#include "support/result.h"

namespace shardwright::driver {

/// `wanted` (--python), else $VIRTUAL_ENV's, else a .venv here or above, else $CONDA_PREFIX's, else python3; checked: it must import torch
/// and shardwright.parallel. The error says what is missing and what to do.
support::Expected<std::string> find_python(const std::string& wanted);

/// Runs it in the foreground with signals passed on; its exit status (130 when interrupted).
int run_python(const std::vector<std::string>& arguments);

}  // namespace shardwright::driver
