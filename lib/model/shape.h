// Shapes as people read them.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace shardwright::model {

/// "[2, 16, 64]"
inline std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string s;
  for (auto d : shape) s += (s.empty() ? "" : ", ") + std::to_string(d);
  return "[" + s + "]";
}

}  // namespace shardwright::model
