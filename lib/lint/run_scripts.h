// SW306: sizes that a run script gives to the launcher and to the training script.
#pragma once
#include <functional>
#include <string>

#include "lint/findings.h"
#include "program/program.h"
#include "support/source.h"

namespace shardwright::lint {

/// `load`: a Python file by its path; nullptr when there is none.
void check_run_script(support::FileId script, const support::SourceManager&,
                      const std::function<const program::Module*(const std::string&)>& load, Found&);

}  // namespace shardwright::lint
