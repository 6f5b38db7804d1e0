// The files of rules/ as they were when the program was built.
#pragma once
#include <optional>
#include <span>
#include <string_view>

namespace shardwright::rules {

struct EmbeddedFile {
  std::string_view path;  ///< below rules/: "ops/elementwise.yaml", "layers/linear.py"
  std::string_view text;
};

/// All files, sorted by path.
std::span<const EmbeddedFile> embedded_files();

/// The text of one file, or nothing.
std::optional<std::string_view> embedded(std::string_view path);

}  // namespace shardwright::rules
