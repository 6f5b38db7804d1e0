// Arrays in NumPy's file format (.npy, versions 1 to 3): masks and tables that a constructor loads.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace shardwright::eval {

struct NpyArray {
  std::vector<std::int64_t> shape;
  std::vector<double> data;  ///< row-major
  char type = 'f';           ///< 'f' floating, 'i' integer, 'b' bool
};

/// What a file holds; nothing where there is no such file, it is damaged, it has more than `most` elements, or numbers that are none of
/// bool, (u)int8…64, float32, float64.
std::optional<NpyArray> read_npy(const std::string& path, std::size_t most);

}  // namespace shardwright::eval
