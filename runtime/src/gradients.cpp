#include "shardwright/gradients.h"

#include <map>

namespace shardwright::runtime {

at::Tensor squared_norm(const std::vector<at::Tensor>& gradients) {
  if (gradients.empty()) return at::zeros({}, at::kDouble);
  std::vector<at::Tensor> norms;
  for (const at::Tensor& g : gradients) norms.push_back(at::linalg_vector_norm(g.detach()).to(at::kDouble));
  const at::Tensor all = at::stack(norms);
  return at::dot(all, all);
}

void clip_by_norm(const std::vector<at::Tensor>& gradients, double norm, double max_norm) {
  const double factor = 1.0 / (norm + 1e-6) * max_norm;  // in the order in which torch.nn.utils.clip_grad_norm_ rounds
  if (factor >= 1.0 || gradients.empty()) return;
  at::NoGradGuard no_grad;
  for (at::Tensor g : gradients) g.mul_(factor);
}

void all_reduce_coalesced(const std::vector<at::Tensor>& tensors, const Group& group, const std::string& tag) {
  if (group_size(group) == 1 || tensors.empty()) return;
  at::NoGradGuard no_grad;
  std::map<at::ScalarType, std::vector<at::Tensor>> by_type;
  for (const at::Tensor& t : tensors) {
    at::Tensor real = t.is_complex() ? at::view_as_real(t) : t;
    by_type[real.scalar_type()].push_back(real);
  }
  for (auto& [type, list] : by_type) {
    std::vector<at::Tensor> flat;
    for (const at::Tensor& t : list) flat.push_back(t.reshape({-1}));
    const at::Tensor sum = start_all_reduce(at::cat(flat), group, tag, true).finish();
    std::int64_t at = 0;
    for (at::Tensor t : list) {
      t.copy_(sum.narrow(0, at, t.numel()).view(t.sizes()));
      at += t.numel();
    }
  }
}

}  // namespace shardwright::runtime
