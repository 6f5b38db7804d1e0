// A small GPT in LibTorch's usual style: holders in the header, members registered in the constructor.
#pragma once
#include <torch/torch.h>

#include <cmath>
#include <string>

struct GPTConfig {
  int64_t vocab_size = 96;
  int64_t block_size = 32;
  int64_t n_layer = 2;
  int64_t n_head = 4;
  int64_t n_embd = 32;
  double dropout = 0.0;
  bool bias = true;
};

// Multi-head attention that looks at the past only.
struct CausalSelfAttentionImpl : torch::nn::Module {
  explicit CausalSelfAttentionImpl(const GPTConfig& config) : n_head(config.n_head), n_embd(config.n_embd) {
    TORCH_CHECK(n_embd % n_head == 0, "heads do not divide the width");
    c_attn = register_module("c_attn", torch::nn::Linear(torch::nn::LinearOptions(n_embd, 3 * n_embd).bias(config.bias)));
    c_proj = register_module("c_proj", torch::nn::Linear(torch::nn::LinearOptions(n_embd, n_embd).bias(config.bias)));
    resid_dropout = register_module("resid_dropout", torch::nn::Dropout(config.dropout));
    // the mask of the longest sequence
    mask = register_buffer("mask", torch::tril(torch::ones({config.block_size, config.block_size})).view({1, 1, config.block_size, config.block_size}));
  }

  torch::Tensor forward(torch::Tensor x) {
    const auto B = x.size(0), T = x.size(1), C = x.size(2);
    auto qkv = c_attn->forward(x).split(n_embd, 2);
    auto q = qkv[0].view({B, T, n_head, C / n_head}).transpose(1, 2);
    auto k = qkv[1].view({B, T, n_head, C / n_head}).transpose(1, 2);
    auto v = qkv[2].view({B, T, n_head, C / n_head}).transpose(1, 2);
    auto att = torch::matmul(q, k.transpose(-2, -1)) * (1.0 / std::sqrt(static_cast<double>(k.size(-1))));
    using namespace torch::indexing;
    att = att.masked_fill(mask.index({Slice(), Slice(), Slice(None, T), Slice(None, T)}) == 0, -std::numeric_limits<float>::infinity());
    att = torch::softmax(att, -1);
    auto y = torch::matmul(att, v);
    y = y.transpose(1, 2).contiguous().view({B, T, C});  // heads side by side again
    return resid_dropout(c_proj(y));
  }

  int64_t n_head, n_embd;
  torch::nn::Linear c_attn{nullptr}, c_proj{nullptr};
  torch::nn::Dropout resid_dropout{nullptr};
  torch::Tensor mask;
};
TORCH_MODULE(CausalSelfAttention);

struct MLPImpl : torch::nn::Module {
  explicit MLPImpl(const GPTConfig& config)
      : c_fc(torch::nn::LinearOptions(config.n_embd, 4 * config.n_embd).bias(config.bias)),
        c_proj(torch::nn::LinearOptions(4 * config.n_embd, config.n_embd).bias(config.bias)) {
    register_module("c_fc", c_fc);
    register_module("c_proj", c_proj);
  }

  torch::Tensor forward(const torch::Tensor& x) { return c_proj(torch::gelu(c_fc(x))); }

  torch::nn::Linear c_fc, c_proj;
};
TORCH_MODULE(MLP);

struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(const GPTConfig& config)
      : ln_1(register_module("ln_1", torch::nn::LayerNorm(torch::nn::LayerNormOptions({config.n_embd})))),
        attn(register_module("attn", CausalSelfAttention(config))),
        ln_2(register_module("ln_2", torch::nn::LayerNorm(torch::nn::LayerNormOptions({config.n_embd})))),
        mlp(register_module("mlp", MLP(config))) {}

  torch::Tensor forward(torch::Tensor x) {
    x = x + attn(ln_1(x));
    x = x + mlp(ln_2(x));
    return x;
  }

  torch::nn::LayerNorm ln_1;
  CausalSelfAttention attn;
  torch::nn::LayerNorm ln_2;
  MLP mlp;
};
TORCH_MODULE(Block);

class GPTImpl : public torch::nn::Module {
 public:
  explicit GPTImpl(GPTConfig config) : config_(config) {
    wte = register_module("wte", torch::nn::Embedding(config_.vocab_size, config_.n_embd));
    wpe = register_module("wpe", torch::nn::Embedding(config_.block_size, config_.n_embd));
    h = register_module("h", torch::nn::ModuleList());
    for (int64_t i = 0; i < config_.n_layer; ++i) h->push_back(Block(config_));
    ln_f = register_module("ln_f", torch::nn::LayerNorm(torch::nn::LayerNormOptions({config_.n_embd})));
    lm_head = register_module("lm_head", torch::nn::Linear(torch::nn::LinearOptions(config_.n_embd, config_.vocab_size).bias(false)));
  }

  torch::Tensor forward(torch::Tensor ids) {
    const int64_t T = ids.size(1);
    auto pos = torch::arange(0, T, torch::TensorOptions().dtype(torch::kLong).device(ids.device()));
    auto x = wte(ids) + wpe(pos);
    for (const auto& block : *h) x = block->as<Block>()->forward(x);
    return lm_head(ln_f(x));
  }

 private:
  GPTConfig config_;
  torch::nn::Embedding wte{nullptr}, wpe{nullptr};
  torch::nn::ModuleList h{nullptr};
  torch::nn::LayerNorm ln_f{nullptr};
  torch::nn::Linear lm_head{nullptr};
};
TORCH_MODULE(GPT);
