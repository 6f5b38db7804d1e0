#include <catch2/catch.hpp>

#include "tp_source.h"

using namespace tp_test;
using Catch::Contains;

namespace {

const char* kAttention = R"(import torch
from torch import nn

class Attention(nn.Module):
    def __init__(self, dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(dim, dim * 3)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        B, N, C = x.shape
        qkv = self.qkv(x).reshape(B, N, 3, self.num_heads, C // self.num_heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        x = attend(q, k, v)
        x = x.transpose(1, 2).reshape(B, N, C)
        return self.proj(x)
)";

struct AttentionModel : Source {
  ModuleId qkv = -1, proj = -1;
  AttentionModel(int heads = 4, int width = 8) : Source(kAttention) {
    const std::int64_t B = 2, N = 5, C = heads * width;
    t.modules[0].type = "model.Attention";
    FrameId init = enter("Attention", "__init__", 0);
    qkv = add_module(0, "qkv", "torch.nn.Linear", init, expr("nn.Linear(dim, dim * 3)"));
    proj = add_module(0, "proj", "torch.nn.Linear", init, expr("nn.Linear(dim, dim)"));
    own_param(qkv, "weight", {3 * C, C});
    own_param(qkv, "bias", {3 * C});
    own_param(proj, "weight", {C, C});
    own_param(proj, "bias", {C});
    leave(init);
    t.forward_begin = ++now;
    FrameId f = t.root_frame = enter("Attention", "forward", 0);
    TensorId x = input("x", {B, N, C});
    t.tensors[static_cast<std::size_t>(x)].requires_grad = true;
    write(f, "x", x);
    const auto *b = dim(x, 0), *n = dim(x, 1), *c = dim(x, 2);
    TensorId y = call_linear(qkv, f, expr("self.qkv(x)"), x);
    y = reshape(y, {B, N, 3, heads, width});
    at(f, expr("self.qkv(x).reshape(B, N, 3, self.num_heads, C // self.num_heads)"), {expr("self.qkv(x)")});
    size_arg("B", 1, 0, B, b);
    size_arg("N", 1, 1, N, n);
    size_arg("3", 1, 2, 3);
    size_arg("self.num_heads", 1, 3, heads);
    size_arg("C // self.num_heads", 0, 4, width);
    y = permute(y, {2, 0, 3, 1, 4});
    at(f, expr("qkv.permute(2, 0, 3, 1, 4)"), {expr("qkv", 1)});
    auto parts = split(y, {1, 1, 1}, 0);
    at(f, expr("qkv.permute(2, 0, 3, 1, 4).unbind(0)"));
    std::vector<TensorId> q;
    for (TensorId p : parts) {
      q.push_back(reshape(p, {B, heads, N, width}));
      at(f, expr("qkv.permute(2, 0, 3, 1, 4).unbind(0)"));
    }
    y = attend(q[0], q[1], q[2]);
    for (auto i = t.ops.size() - 4; i < t.ops.size(); ++i) {
      t.ops[i].clock = ++now;
      t.ops[i].frame = f;
      t.ops[i].site = expr("attend(q, k, v)");
    }
    y = permute(y, {0, 2, 1, 3});
    at(f, expr("x.transpose(1, 2)"), {expr("x", 3)});
    y = reshape(y, {B, N, C});
    at(f, expr("x.transpose(1, 2).reshape(B, N, C)"), {expr("x.transpose(1, 2)")});
    size_arg("B", 2, 0, B, b);
    size_arg("N", 2, 1, N, n);
    size_arg("C", 2, 2, C, c);
    output(call_linear(proj, f, expr("self.proj(x)"), y));
    leave(f);
  }
};

}  // namespace

TEST_CASE("fused attention becomes column, local sizes, row") {
  AttentionModel m;
  auto db = layer_rules(m.sm);
  sharding::Options options;
  options.tp = 2;
  auto result = sharding::analyse(m.t, options);
  auto edits = rewrite::tp_edits(m.t, result, m.sm, *db);
  for (const auto& r : edits.refusals) INFO(r.message);
  REQUIRE(edits.refusals.empty());
  auto text = m.apply(edits);
  INFO(text);
  CHECK_THAT(text, Contains("self.qkv = ColumnParallelLinear(dim, dim * 3, gather_output=False, stride=3)"));
  CHECK_THAT(text, Contains("self.proj = RowParallelLinear(dim, dim, input_is_parallel=True)"));
  CHECK_THAT(text, Contains("self.qkv(x)[0].reshape(B, N, 3, self.num_heads // tp_size(), C // self.num_heads)"));
  CHECK_THAT(text, Contains("x.transpose(1, 2).reshape(B, N, C // tp_size())"));
  CHECK_THAT(text, Contains("return self.proj(x)[0]"));
  REQUIRE(edits.roles.size() == 2);
  CHECK(edits.roles[0].role == "column");
  CHECK(edits.roles[1].role == "row");
  CHECK_THAT(edits.roles[1].reason, Contains("input_is_parallel=True"));
}

TEST_CASE("nothing is edited at tp 1") {
  AttentionModel m;
  auto db = layer_rules(m.sm);
  auto result = sharding::analyse(m.t, {});
  CHECK(rewrite::tp_edits(m.t, result, m.sm, *db).verdicts.empty());
}
