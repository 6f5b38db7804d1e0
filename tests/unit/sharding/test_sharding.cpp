// Whole models, small: what a person would shard comes out, with the conversions Megatron would write.
#include <catch2/catch.hpp>
#include <memory>
#include <set>

#include "sharding/communication.h"
#include "sharding/sharding.h"
#include "trace_builder.h"

using namespace shardwright;
using namespace shardwright::sharding;
using builder::TraceBuilder;

namespace {

std::set<std::string> names(const TraceBuilder& b, const Axis& a) {
  std::set<std::string> out;
  for (TensorId p : a.parameters) out.insert(b.t.tensor(p).name);
  return out;
}
std::vector<const Axis*> chosen(const Result& r) {
  std::vector<const Axis*> out;
  for (const Axis& a : r.axes)
    if (a.chosen) out.push_back(&a);
  return out;
}
Result run(const TraceBuilder& b, int tp = 2) {
  Options o;
  o.tp = tp;
  return analyse(b.t, o);
}
std::vector<Conversion> of_kind(const Result& r, Conversion::Kind k) {
  std::vector<Conversion> out;
  for (const auto& c : r.conversions)
    if (c.kind == k) out.push_back(c);
  return out;
}
using Names = std::set<std::string>;

/// x + proj(attention(qkv(norm(x)))) with a fused qkv, (B, N, C), heads of width d.
TensorId fused_attention(TraceBuilder& b, TensorId x, std::int64_t heads, const std::string& at = "") {
  const auto B = b.shape(x)[0], N = b.shape(x)[1], C = b.shape(x)[2];
  const TensorId n = b.norm(at + "norm", x);
  const TensorId qkv = b.permute(b.reshape(b.dense(at + "qkv", n, 3 * C), {B, N, 3, heads, C / heads}), {2, 0, 3, 1, 4});
  std::vector<TensorId> parts;
  for (TensorId p : b.split(qkv, {1, 1, 1}, 0)) parts.push_back(b.reshape(p, {B, heads, N, C / heads}));
  const TensorId o = b.attend(parts[0], parts[1], parts[2]);
  return b.add(x, b.dense(at + "proj", b.reshape(b.permute(o, {0, 2, 1, 3}), {B, N, C}), C));
}
TensorId mlp(TraceBuilder& b, TensorId x, std::int64_t hidden, const std::string& at = "") {
  return b.add(x, b.dense(at + "fc2", b.gelu(b.dense(at + "fc1", b.norm(at + "norm2", x), hidden)), b.shape(x).back()));
}
/// An input that the embedding makes trainable: the stream of a model behind its first layer.
TensorId stream(TraceBuilder& b, std::int64_t B, std::int64_t N, std::int64_t C) { return b.dense("embed", b.input("x", {B, N, 7}), C); }

}  // namespace

TEST_CASE("attention with fused qkv is sharded on heads, the MLP on its width") {
  TraceBuilder b;
  TensorId x = stream(b, 2, 5, 24);
  x = fused_attention(b, x, 4);
  x = mlp(b, x, 96);
  b.output(b.dense("head", x, 11));
  const Result r = run(b);
  const auto axes = chosen(r);
  REQUIRE(axes.size() == 2);
  CHECK(axes[0]->size == 4);
  CHECK(names(b, *axes[0]) == Names{"qkv.weight", "qkv.bias", "proj.weight"});
  CHECK(axes[1]->size == 96);
  CHECK(names(b, *axes[1]) == Names{"fc1.weight", "fc1.bias", "fc2.weight"});
  // Factors of the fused weight: 3, heads, width.
  const auto& rows = r.tensors[static_cast<std::size_t>(b.find("qkv.weight"))][0];
  REQUIRE(rows.size() == 3);
  CHECK(rows[0].size == 3);
  CHECK(rows[1].axis == axes[0]->id);
  CHECK(r.local_shape(b.t, b.find("qkv.weight")) == std::vector<std::int64_t>{36, 24});
  CHECK(r.local_shape(b.t, b.find("proj.weight")) == std::vector<std::int64_t>{24, 12});
  // One all-reduce forward and one backward each; biases after the sum and norms need nothing.
  CHECK(of_kind(r, Conversion::CopyTo).size() == 2);
  CHECK(of_kind(r, Conversion::ReduceFrom).size() == 2);
  CHECK(r.conversions.size() == 4);
  CHECK(r.grad_summed.empty());
  const Communication c = communication(b.t, r);
  CHECK(c.count("activation/forward") == 2);
  CHECK(c.bytes("activation/backward") == 2 * 4 * 2 * 5 * 24);
}

TEST_CASE("three linears on one tensor share one copy") {
  TraceBuilder b;
  const TensorId x = stream(b, 2, 5, 16), n = b.norm("norm", x);
  std::vector<TensorId> h;
  for (const char* name : {"q", "k", "v"}) h.push_back(b.permute(b.reshape(b.dense(name, n, 16), {2, 5, 4, 4}), {0, 2, 1, 3}));
  const TensorId o = b.reshape(b.permute(b.attend(h[0], h[1], h[2]), {0, 2, 1, 3}), {2, 5, 16});
  b.output(b.dense("head", b.add(x, b.dense("o", o, 16)), 3));
  const Result r = run(b);
  REQUIRE(chosen(r).size() == 1);
  CHECK(names(b, *chosen(r)[0]) == Names{"q.weight", "q.bias", "k.weight", "k.bias", "v.weight", "v.bias", "o.weight"});
  const auto copies = of_kind(r, Conversion::CopyTo);
  REQUIRE(copies.size() == 1);
  CHECK(copies[0].tensor == n);
  CHECK(copies[0].also.size() == 2);
  CHECK(of_kind(r, Conversion::ReduceFrom).size() == 1);
}

TEST_CASE("grouped queries: unequal segments of one weight share the groups") {
  TraceBuilder b;
  const std::int64_t B = 2, N = 5, C = 64, G = 4, R = 2, D = 8;
  const TensorId x = stream(b, B, N, C), n = b.norm("norm", x);
  const auto parts = b.split(b.dense("qkv", n, (G * R + 2 * G) * D, false), {G * R * D, G * D, G * D}, -1);
  const TensorId q = b.permute(b.reshape(parts[0], {B, N, G * R, D}), {0, 2, 1, 3});
  const auto kv = [&](TensorId p) {
    const TensorId y = b.permute(b.reshape(p, {B, N, G, D}), {0, 2, 1, 3});
    return b.reshape(b.labelled("torch.Tensor.expand", "b g n d -> b g r n d", {y}, model::Linearity::Linear, {{"r", R}}),
                     {B, G * R, N, D});
  };
  const TensorId o = b.attend(q, kv(parts[1]), kv(parts[2]));
  b.output(b.dense("head", b.add(x, b.dense("proj", b.reshape(b.permute(o, {0, 2, 1, 3}), {B, N, C}), C)), 3));
  const Result r = run(b);
  REQUIRE(chosen(r).size() == 1);
  CHECK(chosen(r)[0]->size == G);
  CHECK(names(b, *chosen(r)[0]) == Names{"qkv.weight", "proj.weight"});
  const auto& rows = r.tensors[static_cast<std::size_t>(b.find("qkv.weight"))][0];
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].segments.size() == 3);
  CHECK(of_kind(r, Conversion::CopyTo).size() == 1);
  // The repeats are in the queries' part alone: not an axis of the whole.
  for (const Axis& a : r.axes) CHECK_FALSE((a.legal && a.size == R && !a.parameters.empty()));
}

TEST_CASE("a window bias table is cut on its head column; its index stays whole") {
  TraceBuilder b;
  const std::int64_t B = 6, N = 4, C = 16, H = 4;
  const TensorId x = stream(b, B, N, C), n = b.norm("norm", x);
  const TensorId qkv = b.permute(b.reshape(b.dense("qkv", n, 3 * C), {B, N, 3, H, C / H}), {2, 0, 3, 1, 4});
  std::vector<TensorId> p;
  for (TensorId s : b.split(qkv, {1, 1, 1}, 0)) p.push_back(b.reshape(s, {B, H, N, C / H}));
  const TensorId table = b.param("table", {9, H}), index = b.buffer("index", {N, N});
  const TensorId picked =
      b.labelled("torch.Tensor.__getitem__", "t! h, n -> n h", {table, b.reshape(index, {N * N})}, model::Linearity::Linear);
  const TensorId bias = b.permute(b.reshape(picked, {N, N, H}), {2, 0, 1});
  const TensorId o = b.attend(p[0], p[1], p[2], bias);
  b.output(b.dense("head", b.add(x, b.dense("proj", b.reshape(b.permute(o, {0, 2, 1, 3}), {B, N, C}), C)), 3));
  const Result r = run(b);
  REQUIRE(chosen(r).size() == 1);
  CHECK(names(b, *chosen(r)[0]) == Names{"table", "qkv.weight", "qkv.bias", "proj.weight"});
  CHECK(r.sharded_dim(table) == 1);
  CHECK(r.axis_of[static_cast<std::size_t>(index)] == -1);
  CHECK(r.grad_summed.empty());
}

TEST_CASE("a table without a head axis: its gradient is summed") {
  TraceBuilder b;
  const std::int64_t B = 2, N = 4, C = 16, H = 4;
  const TensorId x = stream(b, B, N, C), n = b.norm("norm", x);
  std::vector<TensorId> p;
  for (const char* name : {"q", "k", "v"}) p.push_back(b.permute(b.reshape(b.dense(name, n, C), {B, N, H, C / H}), {0, 2, 1, 3}));
  // Per-head norm weights shared by all heads, and a bias made from parameters by an MLP over a constant table.
  const TensorId qw = b.param("q_norm.weight", {C / H});
  const TensorId q = b.mul(p[0], qw);
  const TensorId bias = b.dense("cpb.1", b.gelu(b.dense("cpb.0", b.constant({N, 2}), 7)), N);
  const TensorId o = b.attend(q, p[1], p[2], bias);
  b.output(b.dense("head", b.add(x, b.dense("proj", b.reshape(b.permute(o, {0, 2, 1, 3}), {B, N, C}), C)), 3));
  const Result r = run(b);
  REQUIRE(chosen(r).size() == 1);
  Names summed;
  for (TensorId t : r.grad_summed) summed.insert(b.t.tensor(t).name);
  CHECK(summed == Names{"q_norm.weight", "cpb.0.weight", "cpb.0.bias", "cpb.1.weight", "cpb.1.bias"});
  CHECK(r.states[static_cast<std::size_t>(bias)] == State::R);
  CHECK(of_kind(r, Conversion::CopyTo).size() == 1);  // the normed stream only
}

TEST_CASE("a parameter with full and partial uses goes through a copy at the partial ones") {
  TraceBuilder b;
  const TensorId scale = b.param("scale", {1});
  TensorId x = stream(b, 2, 5, 16);
  const TensorId hidden = b.mul(b.gelu(b.dense("fc1", b.norm("norm", x), 64)), scale);
  const auto partial_use = b.last();
  x = b.mul(b.add(x, b.dense("fc2", hidden, 16)), scale);
  b.output(b.dense("head", x, 3));
  const Result r = run(b);
  CHECK(r.grad_summed.empty());
  const auto copies = of_kind(r, Conversion::CopyTo);
  REQUIRE(copies.size() == 2);
  CHECK(copies[1].tensor == scale);
  CHECK(copies[1].op == partial_use);
  CHECK(copies[1].also.empty());
}

TEST_CASE("gated MLP with chunk: (2, width), cut on the width") {
  TraceBuilder b;
  const TensorId x = stream(b, 2, 5, 16);
  const auto parts = b.chunk(b.dense("up", b.norm("norm", x), 64), 2, -1);
  b.output(b.dense("head", b.add(x, b.dense("down", b.mul(b.gelu(parts[0]), parts[1]), 16)), 3));
  const Result r = run(b);
  REQUIRE(chosen(r).size() == 1);
  CHECK(chosen(r)[0]->size == 32);
  CHECK(r.tensors[static_cast<std::size_t>(b.find("up.weight"))][0].size() == 2);
  CHECK(of_kind(r, Conversion::CopyTo).size() == 1);
}

TEST_CASE("einsum attention over heads") {
  TraceBuilder b;
  const TensorId x = stream(b, 2, 5, 16), n = b.norm("norm", x);
  const TensorId w = b.param("w_in", {3, 4, 16, 4}), wo = b.param("w_out", {4, 4, 16});
  const auto lin = model::Linearity::Bilinear;
  const TensorId h = b.labelled("torch.einsum", "b n c, q h c d -> q b h n d", {n, w}, lin);
  std::vector<TensorId> p;
  for (TensorId s : b.split(h, {1, 1, 1}, 0)) p.push_back(b.reshape(s, {2, 4, 5, 4}));
  const TensorId s = b.labelled("torch.einsum", "b h n d, b h m d -> b h n m", {p[0], p[1]}, lin);
  const TensorId o = b.labelled("torch.einsum", "b h n m, b h m d -> b n h d", {b.softmax(s), p[2]}, lin);
  b.output(b.dense("head", b.add(x, b.labelled("torch.einsum", "b n h d, h d c -> b n c", {o, wo}, lin)), 3));
  const Result r = run(b);
  REQUIRE(chosen(r).size() == 1);
  CHECK(r.sharded_dim(w) == 1);
  CHECK(r.sharded_dim(wo) == 0);
  CHECK(chosen(r)[0]->size == 4);
}

TEST_CASE("cross attention: the context enters once, however many layers read it") {
  TraceBuilder b;
  const TensorId context = b.dense("encode", b.input("c", {2, 6, 3}), 12);
  TensorId x = stream(b, 2, 5, 16);
  for (const char* layer : {"0.", "1."}) {
    const TensorId n = b.norm(std::string(layer) + "norm", x);
    const auto heads = [&](TensorId y, std::int64_t len) { return b.permute(b.reshape(y, {2, len, 4, 4}), {0, 2, 1, 3}); };
    const TensorId q = heads(b.dense(std::string(layer) + "q", n, 16), 5);
    const TensorId k = heads(b.dense(std::string(layer) + "k", context, 16), 6);
    const TensorId v = heads(b.dense(std::string(layer) + "v", context, 16), 6);
    x = b.add(x, b.dense(std::string(layer) + "o", b.reshape(b.permute(b.attend(q, k, v), {0, 2, 1, 3}), {2, 5, 16}), 16));
  }
  b.output(b.dense("head", x, 3));
  const Result r = run(b);
  CHECK(chosen(r).size() == 2);
  const auto copies = of_kind(r, Conversion::CopyTo);
  REQUIRE(copies.size() == 3);  // the context, and the normed stream of each layer
  CHECK(copies[0].also.size() + copies[1].also.size() + copies[2].also.size() == 3);
}

TEST_CASE("a residual keeps reading the original: the copy is for the operands that meet the axis") {
  TraceBuilder b;
  const TensorId x = stream(b, 2, 5, 16);
  const TensorId y = b.add(x, b.dense("fc2", b.gelu(b.dense("fc1", x, 64)), 16));
  b.output(b.dense("head", y, 3));
  const Result r = run(b);
  const auto copies = of_kind(r, Conversion::CopyTo);
  REQUIRE(copies.size() == 1);
  CHECK(copies[0].tensor == x);
  CHECK(b.t.op(copies[0].op).name == "torch.nn.functional.linear");
  CHECK(copies[0].also.empty());
  CHECK(r.states[static_cast<std::size_t>(x)] == State::I);
}

TEST_CASE("entries count at every operation: a broadcast against a sharded tensor") {
  TraceBuilder b;
  const TensorId x = stream(b, 2, 5, 16), gate = b.dense("gate", b.norm("g", x), 1);
  const TensorId h = b.mul(b.gelu(b.dense("fc1", b.norm("n", x), 64)), gate);
  b.output(b.dense("head", b.add(x, b.dense("fc2", h, 16)), 3));
  const Result r = run(b);
  const auto copies = of_kind(r, Conversion::CopyTo);
  REQUIRE(copies.size() == 2);
  CHECK(copies[1].tensor == gate);
}

TEST_CASE("depthwise convolution between linears follows the shard") {
  TraceBuilder b;
  const TensorId x = stream(b, 2, 9, 8);
  const TensorId h = b.permute(b.dense("up", b.norm("norm", x), 16), {0, 2, 1});
  const TensorId w = b.param("dw.weight", {16, 1, 3}), bias = b.param("dw.bias", {16});
  TensorId c = b.labelled("torch.nn.functional.conv1d", "b c s!, c 1 k!, c -> b c s!", {h, w, bias}, model::Linearity::Bilinear);
  b.t.ops.back().inputs[2].is_bias = true;
  c = b.permute(b.gelu(c), {0, 2, 1});
  b.output(b.dense("head", b.add(x, b.dense("down", c, 8)), 3));
  const Result r = run(b);
  REQUIRE(chosen(r).size() == 1);
  CHECK(names(b, *chosen(r)[0]) == Names{"up.weight", "up.bias", "dw.weight", "dw.bias", "down.weight"});
  CHECK(r.conversions.size() == 2);
}

TEST_CASE("token mixing: the hidden axis is split, tokens and channels are not") {
  TraceBuilder b;
  const TensorId x = stream(b, 2, 8, 6);
  const TensorId n = b.permute(b.norm("norm", x), {0, 2, 1});
  const TensorId y = b.permute(b.dense("t2", b.gelu(b.dense("t1", n, 32)), 8), {0, 2, 1});
  b.output(b.dense("head", b.add(x, y), 3));
  const Result r = run(b);
  REQUIRE(chosen(r).size() == 1);
  CHECK(chosen(r)[0]->size == 32);
}

TEST_CASE("U shape of convolutions: skips joined by concatenation are contracted as one axis") {
  TraceBuilder b;
  const auto conv = [&](const std::string& name, TensorId x, std::int64_t out) {
    const TensorId w = b.param(name + ".weight", {out, b.shape(x)[1], 3, 3});
    return b.labelled("torch.nn.functional.conv2d", "b i h! w!, o i y! x! -> b o h! w!", {x, w}, model::Linearity::Bilinear);
  };
  const TensorId in = b.input("x", {2, 3, 8, 8});
  const TensorId s = b.gelu(conv("stem", in, 8));
  const TensorId h = b.gelu(conv("mid2", b.gelu(conv("mid1", s, 16)), 8));
  b.output(conv("out", b.concat({h, s}, 1), 3));
  const Result r = run(b);
  // 8 (stem, mid1 in, mid2 out, out in) and 16 (mid1 out, mid2 in) exclude each other in mid1 and mid2.
  REQUIRE(chosen(r).size() == 1);
  for (const Axis& a : r.axes)
    if (a.size == 8 && !a.parameters.empty())
      CHECK((a.legal ? names(b, a) : Names{}) == Names{"stem.weight", "mid1.weight", "mid2.weight", "out.weight"});
  for (const auto& c : of_kind(r, Conversion::ReduceFrom)) CHECK(r.axis_of[static_cast<std::size_t>(c.tensor)] == -1);
}

TEST_CASE("a concatenation of a sharded and a whole part is refused") {
  TraceBuilder b;
  const TensorId x = stream(b, 2, 5, 16);
  const TensorId h = b.gelu(b.dense("fc1", b.norm("norm", x), 64));
  const TensorId j = b.concat({h, b.dense("side", x, 16)}, -1);
  b.output(b.dense("head", b.add(x, b.dense("fc2", j, 16)), 3));
  const Result r = run(b);
  CHECK(chosen(r).empty());
  CHECK(r.conversions.empty());
}

TEST_CASE("a norm over the sharded width, tokens and batch are not split") {
  TraceBuilder b;
  const TensorId x = stream(b, 2, 5, 16);
  const TensorId h = b.norm("inner", b.gelu(b.dense("fc1", b.norm("norm", x), 64)));
  b.output(b.dense("head", b.add(x, b.dense("fc2", h, 16)), 3));
  const Result r = run(b);
  CHECK(chosen(r).empty());
}

TEST_CASE("an RMS norm written as mean of squares over a sharded width is summed and divided") {
  TraceBuilder b;
  const TensorId x = stream(b, 2, 5, 16);
  const TensorId h = b.dense("fc1", b.norm("norm", x), 64);
  const TensorId square = b.elementwise("torch.pow", {h}, model::Linearity::Nonlinear);
  const TensorId mean = b.labelled("torch.mean", "b n c -> b n 1", {square}, model::Linearity::Linear);
  b.t.ops.back().mean = true;
  const TensorId scale = b.elementwise("torch.rsqrt", {mean}, model::Linearity::Nonlinear);
  b.output(b.dense("head", b.add(x, b.dense("fc2", b.mul(h, scale), 16)), 3));
  const Result r = run(b);
  REQUIRE(chosen(r).size() == 1);
  const auto sums = of_kind(r, Conversion::ReduceFrom);
  REQUIRE(sums.size() == 2);
  CHECK(sums[0].mean);
  CHECK_FALSE(sums[1].mean);
  const auto copies = of_kind(r, Conversion::CopyTo);
  REQUIRE(copies.size() == 2);
  CHECK(copies[1].tensor == scale);
}

TEST_CASE("heads that tp does not divide: the region stays replicated and says so; the MLP is split") {
  TraceBuilder b;
  TensorId x = stream(b, 2, 4, 50);
  x = fused_attention(b, x, 25, "attn.");
  x = mlp(b, x, 64);
  b.output(b.dense("head", x, 3));
  const Result r = run(b, 4);
  REQUIRE(chosen(r).size() == 1);
  CHECK(chosen(r)[0]->size == 64);
  REQUIRE(r.fallbacks.size() == 1);
  const std::string& m = r.fallbacks[0].message;
  CHECK(m.find("Net") != std::string::npos);
  CHECK(m.find("25") != std::string::npos);
  CHECK(m.find("tp=4") != std::string::npos);
  CHECK(m.find("5, 25") != std::string::npos);
}

TEST_CASE("a batch merged with heads by chance counts only when another batch size agrees") {
  const auto build = [](std::int64_t batch) {
    // (batch, 8) viewed as (batch·2, 4): at batch 1 the leading 2 looks like a factor of the features alone.
    auto b = std::make_unique<TraceBuilder>();
    const TensorId x = b->dense("embed", b->input("x", {batch, 3}), 8);
    const TensorId y = b->reshape(x, {2, batch * 4});
    const TensorId z = b->gelu(b->elementwise("torch.abs", {y}, model::Linearity::Nonlinear));
    b->output(b->dense("head", b->reshape(z, {batch, 8}), 3));
    return b;
  };
  const auto one = build(1), three = build(3);
  Options o;
  o.tp = 2;
  const Result alone = analyse(one->t, o), checked = analyse(one->t, o, &three->t), same = analyse(one->t, o, &one->t);
  CHECK(chosen(alone).size() == 1);
  CHECK(chosen(same).size() == 1);
  CHECK(chosen(checked).empty());
}

TEST_CASE("created tensors: fills become local, values that vary are sliced") {
  TraceBuilder b;
  TensorId x = stream(b, 2, 5, 16);
  const TensorId n = b.norm("norm", x);
  std::vector<TensorId> p;
  for (const char* name : {"q", "k", "v"}) p.push_back(b.permute(b.reshape(b.dense(name, n, 16), {2, 5, 4, 4}), {0, 2, 1, 3}));
  const TensorId slopes = b.op("torch.arange", model::Prim::Create, model::Linearity::Linear, {}, {{4}}).outputs[0];
  const auto create = b.last();
  const TensorId fill = b.op("torch.zeros", model::Prim::Create, model::Linearity::Linear, {}, {{4, 5, 5}}).outputs[0];
  const TensorId bias = b.add(fill, b.reshape(slopes, {4, 1, 1}));
  const TensorId o = b.attend(p[0], p[1], b.add(p[2], b.constant({4, 1, 1})), bias);
  b.output(b.dense("head", b.add(x, b.dense("o", b.reshape(b.permute(o, {0, 2, 1, 3}), {2, 5, 16}), 16)), 3));
  const Result r = run(b);
  const auto cuts = of_kind(r, Conversion::Slice);
  REQUIRE(cuts.size() == 3);
  CHECK(cuts[0].op == create);
  CHECK(cuts[0].on_output);
  CHECK_FALSE(cuts[0].fill);
  CHECK(cuts[1].fill);
  CHECK_FALSE(cuts[2].on_output);  // the constant, where it enters
  CHECK(cuts[2].dim == 0);
}

TEST_CASE("dropout on a sharded tensor is flagged, on a whole one not") {
  TraceBuilder b;
  TensorId x = b.dropout(stream(b, 2, 5, 16));
  const TensorId h = b.dropout(b.gelu(b.dense("fc1", b.norm("norm", x), 64)));
  const auto inner = b.last();
  b.output(b.dense("head", b.add(x, b.dense("fc2", h, 16)), 3));
  CHECK(run(b).sharded_random == std::vector<model::OpId>{inner});
}

TEST_CASE("custom autograd functions: elementwise ones pass, reducing ones keep the pair whole and are named") {
  for (const bool reduces : {false, true}) {
    TraceBuilder b;
    const TensorId x = stream(b, 2, 5, 16);
    TensorId h = b.dense("fc1", b.norm("norm", x), 64);
    const auto inside = [&] { b.t.ops.back().note = "custom autograd function Center"; };
    if (reduces) {
      const TensorId m = b.labelled("torch.mean", "b n c -> b n 1", {h}, model::Linearity::Linear);
      inside();
      h = b.elementwise("torch.sub", {h, m}, model::Linearity::Linear);
    } else {
      h = b.elementwise("torch.tanh", {h}, model::Linearity::Nonlinear);
    }
    inside();
    b.output(b.dense("head", b.add(x, b.dense("fc2", h, 16)), 3));
    const Result r = run(b);
    CHECK(chosen(r).size() == (reduces ? 0U : 1U));
    REQUIRE(r.fallbacks.size() == (reduces ? 1U : 0U));
    if (reduces) CHECK(r.fallbacks[0].message.find("Center") != std::string::npos);
  }
}

TEST_CASE("what is not understood keeps everything it touches whole") {
  TraceBuilder b;
  TensorId x = stream(b, 2, 5, 16);
  const TensorId h =
      b.op("mystery", model::Prim::Opaque, model::Linearity::Nonlinear, {b.dense("fc1", b.norm("norm", x), 64)}, {{2, 5, 64}}).outputs[0];
  x = b.add(x, b.dense("fc2", h, 16));
  x = mlp(b, x, 64, "second.");
  b.output(b.dense("head", x, 3));
  const Result r = run(b);
  REQUIRE(chosen(r).size() == 1);
  CHECK(names(b, *chosen(r)[0]) == Names{"second.fc1.weight", "second.fc1.bias", "second.fc2.weight"});
  CHECK(r.fallbacks.size() == 1);  // the axis before it and the one after: of one module, for one reason, so told once
}

TEST_CASE("pinned parameters stay replicated") {
  TraceBuilder b;
  TensorId x = stream(b, 2, 5, 24);
  x = fused_attention(b, x, 4, "attn.");
  x = mlp(b, x, 96, "mlp.");
  b.output(b.dense("head", x, 3));
  Options o;
  o.tp = 2;
  o.keep_replicated = {"mlp.*"};
  const Result r = analyse(b.t, o);
  REQUIRE(chosen(r).size() == 1);
  CHECK(chosen(r)[0]->size == 4);
}

TEST_CASE("a plan is replayed by parameters and by key; what does not fit is an error") {
  TraceBuilder b;
  TensorId x = stream(b, 2, 5, 24);
  x = fused_attention(b, x, 4);
  x = mlp(b, x, 96);
  b.output(b.dense("head", x, 3));
  Options o;
  o.tp = 2;
  const Result all = analyse(b.t, o);
  const Result one = place(b.t, o, {{"fc1.weight", "fc1.bias", "fc2.weight"}});
  REQUIRE(chosen(one).size() == 1);
  CHECK(chosen(one)[0]->size == 96);
  CHECK(of_kind(one, Conversion::CopyTo).size() == 1);
  const Result heads = place(b.t, o, {{chosen(all)[0]->key}});
  REQUIRE(chosen(heads).size() == 1);
  CHECK(chosen(heads)[0]->size == 4);
  CHECK(place(b.t, o, {{"fc1.weight"}}).errors.size() == 1);
}

TEST_CASE("tp 1 changes nothing") {
  TraceBuilder b;
  TensorId x = stream(b, 2, 5, 24);
  b.output(mlp(b, x, 96));
  const Result r = run(b, 1);
  CHECK(r.conversions.empty());
  CHECK(r.fallbacks.empty());
  CHECK(communication(b.t, r).sites.empty());
}

TEST_CASE("objectives: time keeps a tiny region whole, memory takes the most bytes") {
  TraceBuilder b;
  TensorId x = stream(b, 2, 5, 24);
  x = mlp(b, x, 96);
  b.output(b.dense("head", x, 3));
  Options o;
  o.tp = 2;
  o.objective = "time";
  CHECK(chosen(analyse(b.t, o)).empty());  // two collectives cost more than these few multiplications
  o.profile.latency = 0;
  o.profile.flops = 1;
  CHECK(chosen(analyse(b.t, o)).size() == 1);
  o.objective = "memory";
  CHECK(chosen(analyse(b.t, o)).size() == 1);
}

TEST_CASE("empty slices and their concatenation change nothing") {
  TraceBuilder b;
  TensorId x = stream(b, 2, 5, 16);
  const TensorId h = b.dense("fc1", b.norm("norm", x), 64);
  const auto parts = b.split(h, {64, 0}, -1);
  const TensorId all = b.concat({b.gelu(parts[0]), b.reshape(parts[1], {2, 5, 0})}, -1);
  b.output(b.dense("head", b.add(x, b.dense("fc2", all, 16)), 3));
  const Result r = run(b);
  REQUIRE(chosen(r).size() == 1);
  CHECK(chosen(r)[0]->size == 64);
}

TEST_CASE("a parameter that is no longer registered is not the model's") {
  TraceBuilder b;
  TensorId x = stream(b, 2, 5, 16);
  b.tensor({128, 16}, model::Origin::Parameter);  // replaced by tying
  b.output(b.dense("head", mlp(b, x, 64), 3));
  const Result r = run(b);
  for (const Axis* a : chosen(r)) CHECK(a->size == 64);
}

namespace {
TensorId look_up(TraceBuilder& b, TensorId ids, TensorId table) {
  return b.labelled("vocabulary", "b t, v! c -> b t c", {ids, table}, model::Linearity::Bilinear);
}
TensorId head(TraceBuilder& b, TensorId x, TensorId weight) {
  return b.labelled("linear", "b t c, v c -> b t v", {x, weight}, model::Linearity::Bilinear);
}
}  // namespace

TEST_CASE("a vocabulary: the rows of the table are split with the head that is tied to it, whose result is gathered") {
  TraceBuilder b;
  const TensorId ids = b.input("ids", {2, 5}, model::DType::I64), table = b.param("table", {96, 8});
  const TensorId x = b.norm("norm", look_up(b, ids, table));
  b.output(head(b, x, table));
  const Result r = run(b);
  REQUIRE(chosen(r).size() == 1);
  const Axis& a = *chosen(r)[0];
  CHECK(names(b, a) == Names{"table"});
  CHECK(a.vocabulary);
  REQUIRE(of_kind(r, Conversion::ReduceFrom).size() == 1);
  REQUIRE(of_kind(r, Conversion::Gather).size() == 1);
  CHECK(of_kind(r, Conversion::Gather)[0].dim == 2);
  REQUIRE(of_kind(r, Conversion::CopyTo).size() == 1);
  CHECK(of_kind(r, Conversion::CopyTo)[0].tensor == x);
  CHECK(r.local_shape(b.t, table) == std::vector<std::int64_t>{48, 8});
  const Communication c = communication(b.t, r);
  CHECK(c.bytes("activation/forward") == 4 * (2 * 5 * 8 + 2 * 5 * 48));  // a sum of the whole, a gather of each rank's half
  CHECK(c.bytes("activation/backward") == 4 * 2 * 5 * 8);
}

TEST_CASE("tables that stay whole: looked up with constants, smaller than a square, with a second use that needs all rows") {
  for (const int kind : {0, 1, 2}) {
    TraceBuilder b;
    const TensorId ids = kind == 0 ? b.constant({2, 5}) : b.input("ids", {2, 5}, model::DType::I64);
    const TensorId table = b.param("table", {kind == 1 ? 4 : 96, 8});
    const TensorId x = look_up(b, ids, table);
    if (kind == 2) b.labelled("softmax", "v! c -> v! c", {table}, model::Linearity::Nonlinear);
    b.output(x);
    CHECK(chosen(run(b)).empty());
  }
}

TEST_CASE("an untied head of a vocabulary's size is split and gathered; the width of a residual stream that is the output is not") {
  TraceBuilder b;
  const TensorId x = stream(b, 2, 5, 24);
  b.output(b.dense("head", mlp(b, x, 96), 48));
  const Result r = run(b);
  bool split = false;
  for (const Axis* a : chosen(r)) split = split || names(b, *a).count("head.weight") > 0;
  CHECK(split);
  TraceBuilder s;
  s.output(mlp(s, stream(s, 2, 5, 24), 96));
  const Result q = run(s);
  REQUIRE(chosen(q).size() == 1);
  CHECK(of_kind(q, Conversion::Gather).empty());
}
