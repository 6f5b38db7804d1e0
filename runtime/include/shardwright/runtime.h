// The runtime's C++ functions in one include: collectives with payload counts (comm.h), conversions between placements as autograd
// functions (regions.h), what parallel layers compute (layers.h), gradient norm and clipping (gradients.h). A null group is one rank.
#pragma once
#include "shardwright/comm.h"
#include "shardwright/gradients.h"
#include "shardwright/layers.h"
#include "shardwright/regions.h"
