// Compiled (not run) where the NCCL headers of torch's wheels exist: shows that a program of ours can make its own NCCL group.
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

namespace shardwright::runtime {

c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size) {
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, c10d::ProcessGroupNCCL::Options::create());
}

}  // namespace shardwright::runtime
