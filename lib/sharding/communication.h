// What a placement sends: every collective over tp by site and tag, for one micro-batch (activations) or one optimizer step
// (gradients of replicated parameters).
#pragma once
#include <string>
#include <vector>

#include "sharding/sharding.h"

namespace shardwright::sharding {

struct Collective {
  OpId op = -1;  ///< -1: after backward
  TensorId tensor = -1;
  std::string tag;   ///< "activation/forward" | "activation/backward" | "replicated-grad"
  std::string kind;  ///< "all_reduce"
  double elements = 0;
  double bytes = 0;  ///< payload handed to the collective: elements at the tensor's dtype
};

struct Communication {
  std::vector<Collective> sites;
  double bytes(const std::string& tag) const;
  int count(const std::string& tag) const;
};

/// Empty at tp = 1.
Communication communication(const model::Trace&, const Result&);

}  // namespace shardwright::sharding
