// An encoder-decoder: one attention class for self- and cross-attention, optional masks, a base class for the layers.
#pragma once
#include <torch/torch.h>

#include <optional>
#include <tuple>

struct AttentionImpl : torch::nn::Module {
  AttentionImpl(int64_t width, int64_t heads)
      : heads(heads), q(torch::nn::LinearOptions(width, width)), k(torch::nn::LinearOptions(width, width).bias(false)), v(torch::nn::LinearOptions(width, width)), out(width, width) {
    register_module("q", q);
    register_module("k", k);
    register_module("v", v);
    register_module("out", out);
  }

  torch::Tensor split_heads(const torch::Tensor& x) {
    auto sizes = x.sizes();
    return x.view({sizes[0], sizes[1], heads, -1}).permute({0, 2, 1, 3});
  }

  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& memory, const std::optional<torch::Tensor>& mask = std::nullopt) {
    auto query = split_heads(q(x));
    auto key = split_heads(k(memory));
    auto value = split_heads(v(memory));
    auto scores = torch::einsum("bhid,bhjd->bhij", {query, key}) / std::sqrt(query.size(-1));
    if (mask.has_value()) scores = scores + *mask;
    auto y = torch::einsum("bhij,bhjd->bhid", {scores.softmax(-1), value});
    return out(y.permute({0, 2, 1, 3}).flatten(2));
  }

  int64_t heads;
  torch::nn::Linear q, k, v, out;
};
TORCH_MODULE(Attention);

struct FeedForwardImpl : torch::nn::Module {
  FeedForwardImpl(int64_t width, int64_t inner) {
    up = register_module("up", torch::nn::Linear(width, inner));
    down = register_module("down", torch::nn::Linear(inner, width));
  }
  torch::Tensor forward(const torch::Tensor& x) { return down(torch::relu(up(x))); }
  torch::nn::Linear up{nullptr}, down{nullptr};
};
TORCH_MODULE(FeedForward);

// What both kinds of layer have.
struct LayerBase : torch::nn::Module {
  LayerBase(int64_t width, int64_t heads) {
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    attention = register_module("attention", Attention(width, heads));
    ff_norm = register_module("ff_norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    ff = register_module("ff", FeedForward(width, 4 * width));
  }
  torch::Tensor feed_forward(const torch::Tensor& x) { return x + ff(ff_norm(x)); }
  torch::nn::LayerNorm norm{nullptr}, ff_norm{nullptr};
  Attention attention{nullptr};
  FeedForward ff{nullptr};
};

struct EncoderLayerImpl : LayerBase {
  using LayerBase::LayerBase;
  torch::Tensor forward(torch::Tensor x) {
    auto n = norm(x);
    x = x + attention(n, n);
    return feed_forward(x);
  }
};
TORCH_MODULE(EncoderLayer);

struct DecoderLayerImpl : LayerBase {
  DecoderLayerImpl(int64_t width, int64_t heads) : LayerBase(width, heads) {
    cross_norm = register_module("cross_norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    cross = register_module("cross", Attention(width, heads));
  }
  torch::Tensor forward(torch::Tensor x, const torch::Tensor& memory, const torch::Tensor& mask) {
    auto n = norm(x);
    x = x + attention(n, n, mask);
    x = x + cross(cross_norm(x), memory);
    return feed_forward(x);
  }
  torch::nn::LayerNorm cross_norm{nullptr};
  Attention cross{nullptr};
};
TORCH_MODULE(DecoderLayer);

struct TranslatorImpl : torch::nn::Module {
  TranslatorImpl(int64_t source_words, int64_t target_words, int64_t width = 32, int64_t heads = 4, int64_t depth = 2, int64_t longest = 64) : depth(depth) {
    source = register_module("source", torch::nn::Embedding(source_words, width));
    target = register_module("target", torch::nn::Embedding(target_words, width));
    positions = register_parameter("positions", torch::randn({longest, width}));
    encoder = register_module("encoder", torch::nn::ModuleList());
    decoder = register_module("decoder", torch::nn::ModuleList());
    for (int64_t i = 0; i < depth; ++i) {
      encoder->push_back(EncoderLayer(width, heads));
      decoder->push_back(DecoderLayer(width, heads));
    }
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    words = register_module("words", torch::nn::Linear(width, target_words));
  }

  torch::Tensor encode(const torch::Tensor& ids) {
    auto x = source(ids) + positions.narrow(0, 0, ids.size(1));
    for (size_t i = 0; i < encoder->size(); ++i) x = encoder[i]->as<EncoderLayer>()->forward(x);
    return x;
  }

  torch::Tensor forward(const torch::Tensor& from, const torch::Tensor& to) {
    auto memory = encode(from);
    auto y = target(to) + positions.slice(0, 0, to.size(1));
    auto mask = torch::full({to.size(1), to.size(1)}, -1e9, y.options()).triu(1);
    for (int64_t i = 0; i < depth; ++i) y = decoder->ptr<DecoderLayerImpl>(i)->forward(y, memory, mask);
    return words(norm(y));
  }

  int64_t depth;
  torch::nn::Embedding source{nullptr}, target{nullptr};
  torch::Tensor positions;
  torch::nn::ModuleList encoder{nullptr}, decoder{nullptr};
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear words{nullptr};
};
TORCH_MODULE(Translator);
