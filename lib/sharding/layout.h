// How a parameter or buffer is cut (semantics §4): factors of each dimension in einops-like words, which one is sharded, and
// the index ranges one rank keeps. Nothing here depends on tp until `slices` is asked.
#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sharding/sharding.h"

namespace shardwright::sharding {

/// A piece [begin, end) of a dimension and the product it is, outermost first. A dimension that is no concatenation has one.
struct LayoutPiece {
  std::int64_t begin = 0, end = 0;
  std::vector<std::pair<std::string, std::int64_t>> factors;  ///< letter, size; empty for size 1
};

struct Layout {
  std::vector<std::vector<LayoutPiece>> pieces;  ///< by dimension
  std::string dims;                              ///< "(a b c) d"; "" where the tensor is replicated or has segments
  struct Segment {
    int dim = 0;                      ///< the concatenated dimension
    std::int64_t begin = 0, end = 0;  ///< its rows (indices along `dim`)
    std::string dims;                 ///< of the whole tensor restricted to these rows
  };
  std::vector<Segment> segments;              ///< non-empty: a concatenation
  std::map<std::string, std::int64_t> sizes;  ///< letter → size
  std::string shard;                          ///< letter of the sharded factor; "" is replicated
  int shard_dim = -1;
  std::int64_t shard_size = 1;
  int rank = 0;           ///< number of dimensions
  bool grad_sum = false;  ///< replicated, gradient summed over tp
};

/// Of a parameter or buffer (of any tensor, in fact) under the result's chosen axes. Adjacent factors that are not sharded are one letter.
Layout layout(const Result&, const model::Trace&, TensorId);

using IndexRange = std::pair<std::int64_t, std::int64_t>;  ///< [begin, end)

/// What rank `rank` of `tp` keeps: per dimension the ranges of the original's indices, in the order of the local tensor.
/// Empty where tp does not divide the sharded factor.
std::vector<std::vector<IndexRange>> slices(const Layout&, int tp, int rank);

}  // namespace shardwright::sharding
