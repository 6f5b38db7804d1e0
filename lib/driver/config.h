// A project's configuration: `shardwright.yaml`, or [tool.shardwright] of pyproject.toml, in the folder of what is looked at or above.
// Checked strictly. What the command line says wins.
//
//   rules: [my_rules]            folders, relative to the configuration's own
//   python_path: [src]
//   lint:
//     select: [SW1, SW2]         codes or prefixes; without it all
//     ignore: [SW404]
//     tp: 4
//     error_on: error            or warning (default): what makes the exit code 1
//     baseline: lint-baseline.json
//     exclude: [third_party, "*_old.py"]
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "support/result.h"

namespace shardwright::driver {

struct Config {
  std::string path;  ///< of the file, "" when there is none
  std::vector<std::string> rules, python_path;
  struct Lint {
    std::vector<std::string> select, ignore, exclude;
    std::optional<int> tp;
    std::string error_on, baseline;
  } lint;
};

/// The configuration that holds in `folder`: the nearest shardwright.yaml, or pyproject.toml with [tool.shardwright], at or above it (in
/// one folder the first wins). Paths in it are returned joined with the file's folder. Empty when there is none.
support::Expected<Config> find_config(const std::string& folder, support::SourceManager& sm);

/// One file by its name; for --config-like uses and tests.
support::Expected<Config> read_config(const std::string& path, support::SourceManager& sm);

}  // namespace shardwright::driver
