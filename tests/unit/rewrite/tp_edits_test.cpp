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
    parameter(f, "x", x);
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

namespace {

/// Two layers that read one variable, and an addition that reads it too.
const char* kGated = R"(import torch
from torch import nn

class Gated(nn.Module):
    def __init__(self, dim, width):
        super().__init__()
        self.gate = nn.Linear(dim, width)
        self.up = nn.Linear(dim, width)
        self.scale = nn.Parameter(torch.ones(width))
        self.down = nn.Linear(width, dim)

    def forward(self, x):
        h = gelu(self.gate(x)) * self.up(x)
        h = h * self.scale
        h = self.down.forward(h)
        return x + h
)";

struct GatedModel : Source {
  FrameId f = -1;
  GatedModel() : Source(kGated) {
    t.modules[0].type = "model.Gated";
    FrameId init = enter("Gated", "__init__", 0);
    t.modules[0].init_frame = init;
    ModuleId gate = add_module(0, "gate", "torch.nn.Linear", init, expr("nn.Linear(dim, width)"));
    ModuleId up = add_module(0, "up", "torch.nn.Linear", init, expr("nn.Linear(dim, width)", 1));
    ModuleId down = add_module(0, "down", "torch.nn.Linear", init, expr("nn.Linear(width, dim)"));
    for (ModuleId m : {gate, up}) own_param(m, "weight", {32, 16});
    own_param(down, "weight", {16, 32});
    own_param(down, "bias", {16});
    TensorId scale = own_param(0, "scale", {32});
    model::AttrWrite w;
    w.owner = 0;
    w.name = "scale";
    w.value = bound(scale);
    w.kind = model::AttrWrite::Parameter;
    w.frame = init;
    w.value_expr = expr("nn.Parameter(torch.ones(width))");
    t.attr_writes.push_back(w);
    leave(init);
    t.forward_begin = ++now;
    f = t.root_frame = enter("Gated", "forward", 0);
    TensorId x = input("x", {2, 5, 16});
    t.tensors[static_cast<std::size_t>(x)].requires_grad = true;
    parameter(f, "x", x);
    TensorId a = call_linear(gate, f, expr("self.gate(x)"), x);
    a = gelu(a);
    at(f, expr("gelu(self.gate(x))"), {expr("self.gate(x)")});
    TensorId b = call_linear(up, f, expr("self.up(x)"), x);
    TensorId h = mul(a, b);
    at(f, expr("gelu(self.gate(x)) * self.up(x)"), {expr("gelu(self.gate(x))"), expr("self.up(x)")});
    write(f, "h", h);
    h = mul(h, scale);
    at(f, expr("h * self.scale"), {expr("h", 1), expr("self.scale", 1)});
    h = call_linear(down, f, expr("self.down.forward(h)"), h);
    TensorId y = add(x, h);
    at(f, expr("x + h"), {expr("x", 2), expr("h", 4)});
    output(y);
    leave(f);
  }
};

}  // namespace

TEST_CASE("layers that read one variable share its copy") {
  GatedModel m;
  auto db = layer_rules(m.sm);
  sharding::Options options;
  options.tp = 2;
  auto edits = rewrite::tp_edits(m.t, sharding::analyse(m.t, options), m.sm, *db);
  REQUIRE(edits.refusals.empty());
  auto text = m.apply(edits);
  INFO(text);
  CHECK_THAT(text,
             Contains("        x_tp = copy_to_tensor_model_parallel_region(x)\n        h = gelu(self.gate(x_tp)[0]) * self.up(x_tp)[0]\n"));
  CHECK_THAT(text, Contains("self.gate = ColumnParallelLinear(dim, width, gather_output=False, disable_grad_reduce=True)"));
  CHECK_THAT(text, Contains("self.scale = shard_parameter(nn.Parameter(torch.ones(width)), dim=0)"));
  CHECK_THAT(text, Contains("h = self.down.forward(h)[0]"));
  CHECK_THAT(text, Contains("return x + h"));  // the residual keeps reading the original
}
