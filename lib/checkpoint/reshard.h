// Checkpoints from one grid to another, and from and to the file of the single-GPU model, tensor by tensor: at any moment there is one
// tensor that is written and one that is read in memory, so the peak is twice the largest and a little.
//
// A checkpoint of a grid is the folder that the runtime writes (runtime/python/shardwright/parallel/checkpoint.py says what is in it). The
// single-GPU file is a state dict as safetensors; the optimizer's tensors lie beside it, "model.optimizer.safetensors" beside
// "model.safetensors", as "exp_avg/NAME".
#pragma once
#include <string>

#include "support/result.h"

namespace shardwright::checkpoint {

struct ReshardRequest {
  std::string in, out, params;   ///< params: layouts of what is written; what is read from a folder has its own
  int from_tp = 0, from_pp = 0;  ///< 0: as found
  int to_tp = 1, to_pp = 1;      ///< 1, 1 writes the single-GPU file
  bool check = true;             ///< compare checksums of what is read
};

struct ReshardResult {
  std::string out;             ///< the folder or file written
  int tensors = 0, files = 0;  ///< written
  std::uint64_t bytes = 0;
  std::uint64_t largest = 0;  ///< bytes of the largest tensor
  std::vector<std::string> notes;
};

/// Errors: what does not fit, by file or tensor. Nothing is left behind by a run that fails.
support::Expected<ReshardResult> reshard(const ReshardRequest& request);

}  // namespace shardwright::checkpoint
