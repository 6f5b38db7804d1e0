// params.yaml: which part of which original tensor every generated tensor is, at any tensor-parallel size (semantics: Layouts).
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "support/result.h"

namespace shardwright::checkpoint {

using Shape = std::vector<std::int64_t>;

/// `length` elements along one dimension: from `whole` on in the original, from `local` on in the slice.
struct Span {
  std::int64_t whole = 0, local = 0, length = 0;
};

/// A slice: its shape, and for every dimension which parts of the original it holds, in the slice's order.
struct Block {
  Shape shape;
  std::vector<std::vector<Span>> spans;
};

/// The whole of a tensor of this shape.
Block whole_block(const Shape& shape);

/// Copies what both slices of one original hold from `source` to `target`. Elements of `size` bytes, row-major.
void copy_common(const Block& target, char* to, const Block& source, const char* from, std::uint64_t size);

/// One tensor of the generated model.
struct Entry {
  std::string name, source;  ///< generated and original name
  std::optional<std::pair<std::int64_t, std::int64_t>> rows;
  std::vector<std::vector<std::string>> dims;
  std::map<std::string, std::int64_t> sizes;
  std::string shard;  ///< a factor; empty: replicated
  struct Segment {
    std::int64_t first = 0, last = 0;
    std::vector<std::vector<std::string>> dims;
  };
  std::vector<Segment> segments;
  std::string pad;  ///< the padded factor; empty: none
  std::int64_t padded = 0;
  double pad_value = 0;
  std::vector<std::string> tied;
  std::vector<int> stages;  ///< empty: all
  bool buffer = false, replicate_groups = false;
  Shape shape;  ///< the original's, where it is written down

  bool on(int stage) const;
  /// Of an original of shape `original`: the slice of rank `rank` of `tp`.
  support::Expected<Block> slice(const Shape& original, int rank, int tp) const;
  /// The original's shape from that of a slice: as written down, else multiplied up.
  Shape original_shape(const Shape& local, int tp) const;
};

/// params.yaml, read.
struct Layouts {
  int stages = 1;
  std::vector<Entry> entries;  ///< in the file's order
  std::string text;            ///< the file

  static support::Expected<Layouts> load(const std::string& path);
  /// The first name of an original tensor that has several.
  std::string canonical(std::string original) const;

 private:
  std::map<std::string, std::string> alias_;
};

}  // namespace shardwright::checkpoint
