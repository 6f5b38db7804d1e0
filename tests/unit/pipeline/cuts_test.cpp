// What a cut must send, and what it may compute again.
#include <algorithm>
#include <catch2/catch.hpp>

#include "builder.h"
#include "pipeline/pipeline.h"
#include "pipeline/position.h"

using namespace shardwright;
using namespace shardwright::pipeline;
using model::Origin;
using model::Prim;
using model::TensorId;
using shardwright::testing::TraceBuilder;

namespace {

/// The first cut of this kind whose clock is not before `c`.
const Cut* cut_from(const std::vector<Cut>& cuts, model::Clock c, CutKind kind = CutKind::BeforeStep) {
  for (const Cut& x : cuts)
    if (x.clock >= c && x.kind == kind) return &x;
  return nullptr;
}

const Recompute* recomputed(const Cut& c, TensorId t) {
  for (const Recompute& r : c.recompute)
    if (r.tensor == t) return &r;
  return nullptr;
}

}  // namespace

TEST_CASE("constants are computed again, masks made from inputs too, skips cross") {
  TraceBuilder b;
  const TensorId x = b.tensor({2, 8, 4}, Origin::Input, "x"), ids = b.tensor({2, 8}, Origin::Input, "ids", model::DType::I64);
  const TensorId w = b.parameter(0, {4, 4}, "w"), table = b.parameter(0, {8, 4}, "table", true);
  TensorId pos, mask, h, skip, y = -1;
  b.statement([&] { pos = b.op({table}, {8, 4}, 32, "sin"); });
  b.statement([&] { mask = b.op({ids}, {2, 1, 8}, 16, "ne", Prim::Labelled, true); });
  b.statement([&] { skip = b.op({x, w}, {2, 8, 4}, 100); });
  b.statement([&] { h = b.op({skip, w}, {2, 8, 4}, 100); });
  const model::Clock here = b.t.ops.back().clock + 1;
  b.statement([&] { h = b.op({h, pos, mask, w}, {2, 8, 4}, 100); });
  b.statement([&] { y = b.op({h, skip}, {2, 8, 4}, 10); });
  b.output({y});
  const auto cuts = legal_cuts(b.t, {});
  const Cut* c = cut_from(cuts, here);
  REQUIRE(c);
  CHECK(c->live.size() == 2);
  CHECK(c->live[0] == b.t.op(3).outputs[0]);  // in order of first use: h, then the skip
  CHECK(c->live[1] == skip);
  CHECK(c->inputs_needed == std::vector<TensorId>{ids});
  REQUIRE(recomputed(*c, pos));
  CHECK(recomputed(*c, pos)->why == Recompute::Constant);
  REQUIRE(recomputed(*c, mask));
  CHECK(recomputed(*c, mask)->why == Recompute::Input);
  CHECK(c->bytes == 2 * 2 * 8 * 4 * 4);
  CHECK(c->depth == 1);

  Options one;
  one.max_tensors = 1;
  CHECK(cut_from(legal_cuts(b.t, one), here) == nullptr);
}

TEST_CASE("what is drawn at random is sent, never drawn twice") {
  TraceBuilder b;
  const TensorId x = b.tensor({4}, Origin::Input, "x"), table = b.parameter(0, {4}, "table", true), w = b.parameter(0, {4, 4}, "w");
  TensorId noise, h, y = -1;
  b.statement([&] {
    noise = b.op({table}, {4}, 4, "bernoulli", Prim::Create);
    b.t.ops.back().random = "rand";
  });
  b.statement([&] { h = b.op({x, w}, {4}, 100); });
  const model::Clock here = b.t.ops.back().clock + 1;
  b.statement([&] { y = b.op({h, noise}, {4}, 100); });
  b.output({y});
  const auto cuts = legal_cuts(b.t, {});
  const Cut* c = cut_from(cuts, here);
  REQUIRE(c);
  CHECK(std::count(c->live.begin(), c->live.end(), noise) == 1);
}

TEST_CASE("a value made from parameters crosses or is made again, whichever costs less") {
  for (const bool big_table : {false, true}) {
    TraceBuilder b;
    const TensorId x = b.tensor({2, 64, 64}, Origin::Input, "x"), w = b.parameter(0, {64, 64}, "w");
    const TensorId table = b.parameter(0, {big_table ? 100000 : 15, 4}, "bias_table");
    TensorId bias, h, y = -1;
    b.statement([&] { bias = b.op({table}, {64, 64, 4}, 1, "index"); });
    b.statement([&] { h = b.op({x, w, bias}, {2, 64, 64}, 100); });
    const model::Clock here = b.t.ops.back().clock + 1;
    b.statement([&] { y = b.op({h, w, bias}, {2, 64, 64}, 100); });
    b.output({y});
    Options o;
    o.stages = 2;
    const Partition p = partition(b.t, o);
    REQUIRE(p.error.empty());
    REQUIRE(p.cuts.size() == 1);
    CHECK(p.cuts[0].clock >= here);
    const Cut& c = p.cuts[0];
    if (big_table) {
      CHECK(std::count(c.live.begin(), c.live.end(), bias) == 1);
    } else {
      CHECK(std::count(c.live.begin(), c.live.end(), bias) == 0);
      REQUIRE(recomputed(c, bias));
      CHECK(recomputed(c, bias)->why == Recompute::Parameters);
      CHECK(recomputed(c, bias)->from == std::vector<TensorId>{table});
    }
    // w is tied in both cases, the table only where both stages build the bias.
    std::vector<TensorId> tied;
    for (const auto& [t, where] : p.tied) {
      CHECK(where == std::vector<int>{0, 1});
      tied.push_back(t);
    }
    CHECK(tied == (big_table ? std::vector<TensorId>{w} : std::vector<TensorId>{w, table}));
  }
}

TEST_CASE("pieces of one tensor are sent as that tensor") {
  TraceBuilder b;
  const TensorId x = b.tensor({2, 8, 4}, Origin::Input, "x"), w = b.parameter(0, {12, 4}, "w");
  TensorId qkv, y = -1;
  std::vector<TensorId> parts;
  b.statement([&] { qkv = b.op({x, w}, {2, 8, 12}, 100); });
  b.statement([&] { parts = b.ops({qkv}, {{2, 8, 4}, {2, 8, 4}, {2, 8, 4}}, 0, "chunk", Prim::Split); });
  const model::Clock here = b.t.ops.back().clock + 1;
  b.statement([&] { y = b.op({parts[0], parts[1], parts[2]}, {2, 8, 4}, 100); });
  b.output({y});
  Options o;
  o.stages = 2;
  const Partition p = partition(b.t, o);
  REQUIRE(p.cuts.size() == 1);
  CHECK(p.cuts[0].live == std::vector<TensorId>{qkv});
  const auto all = legal_cuts(b.t, {});
  int at_place = 0;
  for (const Cut& c : all)
    if (c.clock >= here && c.kind == CutKind::BeforeStep) {
      ++at_place;
      CHECK((c.live == std::vector<TensorId>{qkv} || c.live == parts));
    }
  CHECK(at_place == 2);  // the pieces as they are, and the tensor they are pieces of
}

TEST_CASE("cuts around calls inside an expression, and between children of a Sequential") {
  TraceBuilder b;
  const auto block = b.module("block", "Block", 0), ln = b.module("block.ln", "torch.nn.LayerNorm", block, true),
             attn = b.module("block.attn", "Attention", block);
  const auto seq = b.module("seq", "torch.nn.Sequential", 0, true), first = b.module("seq.0", "torch.nn.Linear", seq, true),
             second = b.module("seq.1", "torch.nn.Linear", seq, true);
  const TensorId x = b.tensor({2, 4}, Origin::Input, "x");
  const TensorId lnw = b.parameter(ln, {4}, "weight"), aw = b.parameter(attn, {4, 4}, "weight"), w0 = b.parameter(first, {4, 4}, "weight"),
                 w1 = b.parameter(second, {4, 4}, "weight");
  TensorId in = -1, n = -1, a = -1, h = -1, s0 = -1, y = -1;
  b.statement([&] { in = b.op({x, w0}, {2, 4}, 50); });
  b.statement([&] {
    b.call(block, [&] {
      b.statement([&] {  // x = x + self.attn(self.ln(x))
        b.call(
            ln,
            [&] {
              n = b.op({in, lnw}, {2, 4}, 8);
            },
            true);
        b.call(attn, [&] { b.statement([&] { a = b.op({n, aw}, {2, 4}, 100); }); });
        h = b.op({in, a}, {2, 4}, 8, "add");
      });
    });
  });
  b.statement([&] {
    b.call(
        seq,
        [&] {
          b.call(
              first,
              [&] {
                s0 = b.op({h, w0}, {2, 4}, 100);
              },
              true);
          b.call(
              second,
              [&] {
                y = b.op({s0, w1}, {2, 4}, 100);
              },
              true);
        },
        true);
  });
  b.output({y});

  const auto cuts = legal_cuts(b.t, {});
  const Cut* before = nullptr;
  const Cut* after = nullptr;
  const Cut* between = nullptr;
  for (const Cut& c : cuts) {
    if (c.kind == CutKind::BeforeCall && c.callee >= 0 && b.t.frame(c.callee).self == attn) before = &c;
    if (c.kind == CutKind::AfterCall && c.callee >= 0 && b.t.frame(c.callee).self == attn) after = &c;
    if (c.kind == CutKind::BetweenChildren) between = &c;
  }
  REQUIRE(before);
  CHECK(before->live.size() == 2);
  CHECK(std::count(before->live.begin(), before->live.end(), n) == 1);
  CHECK(std::count(before->live.begin(), before->live.end(), in) == 1);
  CHECK(before->depth == 2);
  REQUIRE(before->path.size() == 2);
  CHECK(before->path[0].call != nullptr);
  CHECK(before->path[1].call == nullptr);
  REQUIRE(after);
  CHECK(after->live.size() == 2);
  CHECK(std::count(after->live.begin(), after->live.end(), a) == 1);
  REQUIRE(between);
  CHECK(between->sequential == seq);
  CHECK(between->child_index == 1);
  CHECK(between->live == std::vector<TensorId>{s0});
  CHECK(between->depth == 1);
  CHECK(between->path.back().call == b.t.calls[3].call);
  CHECK(key_of(b.t, *between).back() == "seq/1");
  support::SourceManager sm;
  CHECK(describe(b.t, sm, *between) == "after seq.0");
  CHECK(describe(b.t, sm, *before) == "after block.ln");
}

TEST_CASE("generation may refuse cuts") {
  TraceBuilder b;
  const TensorId x = b.tensor({2, 4}, Origin::Input, "x"), w = b.parameter(0, {4, 4}, "w");
  TensorId h = x;
  for (int i = 0; i < 4; ++i) b.statement([&] { h = b.op({h, w}, {2, 4}, 100); });
  b.output({h});
  Options o;
  o.stages = 2;
  CHECK(partition(b.t, o).slowest_over_mean == Approx(1.0));
  o.can_emit = [](const model::Trace&, const Cut& c, void*) { return c.cost_before < 150; };
  const Partition p = partition(b.t, o);
  CHECK(p.slowest_over_mean == Approx(1.5));
  CHECK(p.legal_cuts <= 2);
  REQUIRE(p.warnings.size() == 1);
  CHECK(p.warnings[0].find("stage 1 costs 50 % more than the mean") == 0);
  o.stages = 3;
  const Partition none = partition(b.t, o);
  CHECK(none.error.find("at most 2 stages are possible") != std::string::npos);
  CHECK(none.error.find("3 places where at most 3 tensors cross") != std::string::npos);
}
