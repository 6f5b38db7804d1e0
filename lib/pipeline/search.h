// The search for the best cuts, on bare numbers. Internal to lib/pipeline.
#pragma once
#include <array>
#include <vector>

#include "pipeline/pipeline.h"

namespace shardwright::pipeline {

class Liveness;

/// What a person dislikes about a cut, most important first; sums of these are compared in order.
using Penalty = std::array<double, 7>;
Penalty penalty_of(const Cut&);

/// Legal cuts grouped by the operations before them, each group in order of preference. Options::can_emit is not asked.
std::vector<std::vector<Cut>> places(const model::Trace&, const Options&, Liveness&);

/// The smallest possible cost of the slowest of `p` stages. `cost`: cumulative cost at each place, not decreasing.
/// `required`: places that must be used. Infinity when there are too few places.
double smallest_bottleneck(const std::vector<double>& cost, double total, int p, const std::vector<char>& required = {});

/// Among all choices of p − 1 places whose slowest stage costs at most `bound`, the one with the smallest sum of
/// penalties; then the one with the smallest slowest stage. Empty when there is none.
std::vector<int> gentlest(const std::vector<double>& cost, const std::vector<Penalty>& penalty, double total, int p, double bound,
                          const std::vector<char>& required = {});

}  // namespace shardwright::pipeline
