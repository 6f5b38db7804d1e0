// A U-Net with skips: convolutions down and up, skips kept in a vector.
#pragma once
#include <torch/torch.h>

#include <vector>

// Two convolutions, each with normalisation and activation.
struct DoubleConvImpl : torch::nn::Module {
  DoubleConvImpl(int64_t in, int64_t out, int64_t middle = -1) {
    if (middle < 0) middle = out;
    conv1 = register_module("conv1", torch::nn::Conv2d(torch::nn::Conv2dOptions(in, middle, 3).padding(1).bias(false)));
    norm1 = register_module("norm1", torch::nn::GroupNorm(torch::nn::GroupNormOptions(4, middle)));
    conv2 = register_module("conv2", torch::nn::Conv2d(torch::nn::Conv2dOptions(middle, out, 3).padding(1).bias(false)));
    norm2 = register_module("norm2", torch::nn::GroupNorm(torch::nn::GroupNormOptions(4, out)));
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::silu(norm1(conv1(x)));
    return torch::silu(norm2(conv2(x)));
  }
  torch::nn::Conv2d conv1{nullptr}, conv2{nullptr};
  torch::nn::GroupNorm norm1{nullptr}, norm2{nullptr};
};
TORCH_MODULE(DoubleConv);

struct UNetImpl : torch::nn::Module {
  UNetImpl(int64_t in_channels, int64_t out_channels, std::vector<int64_t> widths = {16, 32, 64}) {
    auto previous = in_channels;
    for (auto w : widths) {
      down->push_back(DoubleConv(previous, w));
      previous = w;
    }
    middle = DoubleConv(previous, 2 * previous);
    for (int i = static_cast<int>(widths.size()) - 1; i >= 0; --i) {
      const auto w = widths[i];
      up->push_back(torch::nn::ConvTranspose2d(torch::nn::ConvTranspose2dOptions(2 * w, w, 2).stride(2)));
      join->push_back(DoubleConv(2 * w, w));
    }
    register_module("down", down);
    register_module("middle", middle);
    register_module("up", up);
    register_module("join", join);
    last = register_module("last", torch::nn::Conv2d(torch::nn::Conv2dOptions(widths.front(), out_channels, 1)));
  }

  torch::Tensor forward(torch::Tensor x) {
    std::vector<torch::Tensor> skips;
    for (const auto& module : *down) {
      x = module->as<DoubleConv>()->forward(x);
      skips.push_back(x);
      x = torch::max_pool2d(x, 2);
    }
    x = middle(x);
    for (size_t i = 0; i < up->size(); ++i) {
      x = up[i]->as<torch::nn::ConvTranspose2d>()->forward(x);
      x = torch::cat({skips.back(), x}, 1);
      skips.pop_back();
      x = join[i]->as<DoubleConv>()->forward(x);
    }
    return last(x);
  }

  torch::nn::ModuleList down, up, join;
  DoubleConv middle{nullptr};
  torch::nn::Conv2d last{nullptr};
};
TORCH_MODULE(UNet);
