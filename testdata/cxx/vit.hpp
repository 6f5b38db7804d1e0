// A vision transformer: shared pointers, free functions, `namespace nn = torch::nn`.
#pragma once
#include <torch/torch.h>

#include <memory>
#include <vector>

namespace vit {

namespace nn = torch::nn;
namespace F = torch::nn::functional;

inline torch::Tensor attend(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v, double scale) {
  auto weights = F::softmax(torch::matmul(q, k.transpose(-2, -1)) * scale, F::SoftmaxFuncOptions(-1));
  return torch::matmul(weights, v);
}

class PatchEmbed : public nn::Module {
 public:
  PatchEmbed(int image, int patch, int channels, int dim) : patches((image / patch) * (image / patch)) {
    proj = register_module("proj", nn::Conv2d(nn::Conv2dOptions(channels, dim, patch).stride(patch)));
  }
  torch::Tensor forward(const torch::Tensor& x) { return proj(x).flatten(2).transpose(1, 2); }
  const int patches;

 private:
  nn::Conv2d proj{nullptr};
};

class Attention : public nn::Module {
 public:
  Attention(int dim, int heads) : heads_(heads), width_(dim / heads), scale_(1.0 / std::sqrt(dim / heads)) {
    qkv_ = register_module("qkv", nn::Linear(dim, 3 * dim));
    proj_ = register_module("proj", nn::Linear(dim, dim));
  }
  torch::Tensor forward(torch::Tensor x) {
    int64_t batch = x.size(0), tokens = x.size(1), dim = x.size(2);
    // (3, batch, heads, tokens, width)
    auto parts = qkv_->forward(x).reshape({batch, tokens, 3, heads_, width_}).permute({2, 0, 3, 1, 4}).unbind(0);
    x = attend(parts[0], parts[1], parts[2], scale_).transpose(1, 2).reshape({batch, tokens, dim});
    return proj_->forward(x);
  }

 private:
  int heads_, width_;
  double scale_;
  nn::Linear qkv_{nullptr}, proj_{nullptr};
};

class Layer : public nn::Module {
 public:
  Layer(int dim, int heads, double ratio)
      : norm1(nn::LayerNormOptions({dim})), norm2(nn::LayerNormOptions({dim})), attention(std::make_shared<Attention>(dim, heads)),
        mlp(nn::Linear(dim, static_cast<int>(dim * ratio)), nn::GELU(), nn::Linear(static_cast<int>(dim * ratio), dim)) {
    register_module("norm1", norm1);
    register_module("attention", attention);
    register_module("norm2", norm2);
    register_module("mlp", mlp);
  }
  torch::Tensor forward(torch::Tensor x) {
    x = x + attention->forward(norm1->forward(x));
    x = x + mlp->forward(norm2->forward(x));
    return x;
  }

 private:
  nn::LayerNorm norm1, norm2;
  std::shared_ptr<Attention> attention;
  nn::Sequential mlp;
};

class ViT : public nn::Module {
 public:
  ViT(int image, int patch, int dim, int depth, int heads, int classes) {
    embed_ = register_module("embed", std::make_shared<PatchEmbed>(image, patch, 3, dim));
    cls_ = register_parameter("cls", torch::zeros({1, 1, dim}));
    position_ = register_parameter("position", torch::randn({1, embed_->patches + 1, dim}) * 0.02);
    for (int i = 0; i < depth; i++) {
      layers_.push_back(register_module("layer" + std::to_string(i), std::make_shared<Layer>(dim, heads, 4.0)));
    }
    norm_ = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({dim})));
    head_ = register_module("head", nn::Linear(dim, classes));
  }

  torch::Tensor forward(torch::Tensor images) {
    auto x = embed_->forward(images);
    x = torch::cat({cls_.expand({x.size(0), -1, -1}), x}, 1) + position_;
    for (auto& layer : layers_) x = layer->forward(x);
    return head_(norm_(x).select(1, 0));
  }

 private:
  std::shared_ptr<PatchEmbed> embed_;
  torch::Tensor cls_, position_;
  std::vector<std::shared_ptr<Layer>> layers_;
  nn::LayerNorm norm_{nullptr};
  nn::Linear head_{nullptr};
};

}  // namespace vit
