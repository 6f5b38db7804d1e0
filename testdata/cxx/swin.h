// Two Swin blocks (the second with shifted windows), as class templates over the normalisation.
#pragma once
#include <torch/torch.h>

#include <array>

namespace swin {

using torch::indexing::None;
using torch::indexing::Slice;

struct Window {
  int64_t height = 4;
  int64_t width = 4;
  int64_t area() const { return height * width; }
};

inline torch::Tensor partition(const torch::Tensor& x, const Window& w) {
  auto b = x.size(0), h = x.size(1), wd = x.size(2), c = x.size(3);
  return x.view({b, h / w.height, w.height, wd / w.width, w.width, c}).permute({0, 1, 3, 2, 4, 5}).contiguous().view({-1, w.area(), c});
}

inline torch::Tensor merge(const torch::Tensor& windows, const Window& w, int64_t h, int64_t wd) {
  const int64_t b = windows.size(0) / ((h / w.height) * (wd / w.width));
  return windows.view({b, h / w.height, wd / w.width, w.height, w.width, -1}).permute({0, 1, 3, 2, 4, 5}).contiguous().view({b, h, wd, -1});
}

class WindowAttentionImpl : public torch::nn::Module {
 public:
  WindowAttentionImpl(int64_t dim, Window window, int64_t heads) : dim_(dim), window_(window), heads_(heads) {
    const auto entries = (2 * window.height - 1) * (2 * window.width - 1);
    table_ = register_parameter("table", torch::randn({entries, heads}) * 0.02);
    auto coords = torch::stack(torch::meshgrid({torch::arange(window.height), torch::arange(window.width)}, "ij")).flatten(1);
    auto relative = coords.index({Slice(), Slice(), None}) - coords.index({Slice(), None, Slice()});
    relative = relative.permute({1, 2, 0}).contiguous();
    auto rows = (relative.index({"...", 0}) + (window.height - 1)) * (2 * window.width - 1);
    auto columns = relative.index({"...", 1}) + (window.width - 1);
    index_ = register_buffer("index", rows + columns);
    qkv_ = register_module("qkv", torch::nn::Linear(dim, dim * 3));
    proj_ = register_module("proj", torch::nn::Linear(dim, dim));
  }

  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& mask = {}) {
    const auto b = x.size(0), n = x.size(1);
    auto qkv = qkv_(x).reshape({b, n, 3, heads_, dim_ / heads_}).permute({2, 0, 3, 1, 4});
    auto q = qkv[0] * std::pow(static_cast<double>(dim_ / heads_), -0.5), k = qkv[1], v = qkv[2];
    auto scores = q.matmul(k.transpose(-2, -1));
    auto bias = table_.index({index_.view(-1)}).view({n, n, heads_}).permute({2, 0, 1});
    scores = scores + bias.unsqueeze(0);
    if (mask.defined()) {
      const auto windows = mask.size(0);
      scores = scores.view({b / windows, windows, heads_, n, n}) + mask.unsqueeze(1).unsqueeze(0);
      scores = scores.view({-1, heads_, n, n});
    }
    return proj_(scores.softmax(-1).matmul(v).transpose(1, 2).reshape({b, n, dim_}));
  }

 private:
  int64_t dim_;
  Window window_;
  int64_t heads_;
  torch::Tensor table_, index_;
  torch::nn::Linear qkv_{nullptr}, proj_{nullptr};
};
TORCH_MODULE(WindowAttention);

template <typename Norm, int64_t Ratio = 4>
class BlockImpl : public torch::nn::Module {
 public:
  BlockImpl(int64_t dim, std::array<int64_t, 2> resolution, int64_t heads, Window window, int64_t shift) : resolution_(resolution), window_(window), shift_(shift) {
    norm1_ = this->register_module("norm1", Norm(torch::nn::LayerNormOptions({dim})));
    attention_ = this->register_module("attention", WindowAttention(dim, window, heads));
    norm2_ = this->register_module("norm2", Norm(torch::nn::LayerNormOptions({dim})));
    mlp_ = this->register_module("mlp", torch::nn::Sequential(torch::nn::Linear(dim, dim * Ratio), torch::nn::GELU(), torch::nn::Linear(dim * Ratio, dim)));
    if (shift > 0) {
      auto image = torch::zeros({1, resolution[0], resolution[1], 1});
      int count = 0;
      const std::vector<std::array<int64_t, 2>> rows = {{0, resolution[0] - window.height}, {resolution[0] - window.height, resolution[0] - shift}, {resolution[0] - shift, resolution[0]}};
      const std::vector<std::array<int64_t, 2>> columns = {{0, resolution[1] - window.width}, {resolution[1] - window.width, resolution[1] - shift}, {resolution[1] - shift, resolution[1]}};
      for (const auto& r : rows)
        for (const auto& c : columns) image.index_put_({Slice(), Slice(r[0], r[1]), Slice(c[0], c[1]), Slice()}, count++);
      auto windows = partition(image, window).squeeze(-1);
      auto difference = windows.unsqueeze(1) - windows.unsqueeze(2);
      mask_ = this->register_buffer("mask", difference.masked_fill(difference != 0, -100.0).masked_fill(difference == 0, 0.0));
    }
  }

  torch::Tensor forward(torch::Tensor x) {
    const auto b = x.size(0), c = x.size(2);
    auto shortcut = x;
    x = norm1_(x).view({b, resolution_[0], resolution_[1], c});
    if (shift_ > 0) x = x.roll({-shift_, -shift_}, {1, 2});
    auto windows = attention_(partition(x, window_), mask_);
    x = merge(windows.view({-1, window_.area(), c}), window_, resolution_[0], resolution_[1]);
    if (shift_ > 0) x = x.roll({shift_, shift_}, {1, 2});
    x = shortcut + x.reshape({b, resolution_[0] * resolution_[1], c});
    return x + mlp_->forward(norm2_(x));
  }

 private:
  std::array<int64_t, 2> resolution_;
  Window window_;
  int64_t shift_;
  Norm norm1_{nullptr}, norm2_{nullptr};
  WindowAttention attention_{nullptr};
  torch::nn::Sequential mlp_{nullptr};
  torch::Tensor mask_;
};

using Block = torch::nn::ModuleHolder<BlockImpl<torch::nn::LayerNorm>>;

class StageImpl : public torch::nn::Module {
 public:
  StageImpl(int64_t dim = 32, int64_t side = 8, int64_t heads = 4, int64_t depth = 2) {
    for (int64_t i = 0; i < depth; ++i) blocks_->push_back(Block(dim, std::array<int64_t, 2>{side, side}, heads, Window{}, i % 2 == 0 ? int64_t{0} : int64_t{2}));
    register_module("blocks", blocks_);
  }
  torch::Tensor forward(torch::Tensor x) {
    for (const auto& b : *blocks_) x = b->as<BlockImpl<torch::nn::LayerNorm>>()->forward(x);
    return x;
  }

 private:
  torch::nn::ModuleList blocks_;
};
TORCH_MODULE(Stage);

}  // namespace swin
