// Which axes to shard: a weighted independent set. Two axes exclude each other where one tensor or one operation has both.
#pragma once
#include <functional>
#include <vector>

#include "sharding/axes.h"

namespace shardwright::sharding {

struct Choice {
  std::vector<int> chosen;  ///< axis ids, ascending
  std::vector<int> wanted;  ///< would have been chosen if tp divided them
};

Choice choose(const model::Trace&, AxisTable&, const Options&);

/// Vertices 0…n−1 with weights and neighbours → an independent set. Exact while the search stays small (components that
/// fall apart when their busiest vertex is decided are solved however large they are), greedy beyond. Vertices of weight
/// zero or less are left out. `budget`: vertices looked at, over all steps.
std::vector<int> independent_set(const std::vector<double>& weight, const std::vector<std::vector<int>>& neighbours, int budget = 1000000);

/// Higher is better: what choosing prefers among axes that exclude each other. `price`: parameter elements an all-reduced element is worth.
double score(const Axis&, double price);

}  // namespace shardwright::sharding
