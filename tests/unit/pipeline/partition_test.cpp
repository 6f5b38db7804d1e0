// Stages of whole models: the preference among near-optimal cuts, ties, warnings.
#include <algorithm>
#include <catch2/catch.hpp>

#include "builder.h"
#include "pipeline/pipeline.h"
#include "pipeline/position.h"

using namespace shardwright;
using namespace shardwright::pipeline;
using model::ModuleId;
using model::Origin;
using model::TensorId;
using shardwright::testing::TraceBuilder;

namespace {

/// A residual model: `for blk in self.blocks: x = blk(x)`, each block `x = x + attn(ln(x)); x = x + mlp(ln(x))` written out in statements.
void transformer(TraceBuilder& b, int depth, bool tied_head) {
  const TensorId ids = b.tensor({2, 16}, Origin::Input, "ids", model::DType::I64);
  const ModuleId emb = b.module("wte", "torch.nn.Embedding", 0, true), list = b.module("blocks", "torch.nn.ModuleList", 0, true);
  const TensorId table = b.parameter(emb, {100, 8}, "weight");
  TensorId x = -1;
  b.statement([&] {
    b.call(
        emb,
        [&] {
          x = b.op({ids, table}, {2, 16, 8}, 1);
          b.t.tensors.back().dtype = model::DType::F32;
        },
        true);
  });
  static int loop = 0;
  b.statement(
      [&] {
        for (int i = 0; i < depth; ++i) {
          const std::string name = "blocks." + std::to_string(i);
          const ModuleId block = b.module(name, "Block", list), attn = b.module(name + ".attn", "Attention", block);
          const TensorId q = b.parameter(attn, {8, 8}, "q"), o = b.parameter(attn, {8, 8}, "o"), up = b.parameter(block, {8, 32}, "up"),
                         down = b.parameter(block, {32, 8}, "down");
          b.statement(
              [&] {
                b.call(block, [&] {
                  TensorId a = -1, m = -1;
                  b.statement([&] { a = b.op({x}, {2, 16, 8}, 2, "layer_norm"); });
                  b.statement([&] {
                    b.call(attn, [&] {
                      b.statement([&] { a = b.op({a, q}, {2, 16, 8}, 100); });
                      b.statement([&] { a = b.op({a, o}, {2, 16, 8}, 100); });
                    });
                  });
                  b.statement([&] { x = b.op({x, a}, {2, 16, 8}, 2, "add"); });
                  b.statement([&] { m = b.op({x, up}, {2, 16, 32}, 200); });
                  b.statement([&] { m = b.op({m, down}, {2, 16, 8}, 200); });
                  b.statement([&] { x = b.op({x, m}, {2, 16, 8}, 2, "add"); });
                });
              },
              {{&loop, i, 0}});
        }
      },
      {}, program::StmtKind::For);
  const ModuleId head = b.module("head", "torch.nn.Linear", 0, true);
  TensorId w = table;
  if (tied_head) b.t.modules[static_cast<std::size_t>(head)].params.push_back({"weight", table, false, true});
  else w = b.parameter(head, {100, 8}, "weight");
  TensorId y = -1;
  b.statement([&] {
    b.call(
        head,
        [&] {
          y = b.op({x, w}, {2, 16, 100}, 150);
        },
        true);
  });
  b.output({y});
}

}  // namespace

TEST_CASE("whole blocks are preferred within 3 % of the optimum") {
  TraceBuilder b;
  transformer(b, 64, false);
  Options o;
  o.stages = 4;
  const Partition p = partition(b.t, o);
  REQUIRE(p.cuts.size() == 3);
  for (const Cut& c : p.cuts) {
    CHECK(c.depth == 1);
    CHECK(c.between_iterations);
    CHECK(c.kind == CutKind::BeforeStep);
    CHECK(c.live.size() == 1);
  }
  CHECK(p.slowest_over_mean <= p.optimum_slowest_over_mean * 1.03 + 1e-9);
  CHECK(p.warnings.empty());
  o.preference = 0;
  const Partition exact = partition(b.t, o);
  CHECK(exact.slowest_over_mean == Approx(exact.optimum_slowest_over_mean));
  CHECK(exact.optimum_slowest_over_mean == Approx(p.optimum_slowest_over_mean));
  support::SourceManager sm;
  CHECK(describe(b.t, sm, p.cuts[0]).find("after blocks.") == 0);
}

TEST_CASE("stages hold their own parameters and modules, tied ones are listed") {
  TraceBuilder b;
  transformer(b, 4, true);
  Options o;
  o.stages = 2;
  const Partition p = partition(b.t, o);
  REQUIRE(p.stages.size() == 2);
  REQUIRE(p.tied.size() == 1);
  CHECK(b.t.tensor(p.tied[0].first).name == "wte.weight");
  CHECK(p.tied[0].second == std::vector<int>{0, 1});
  std::vector<TensorId> all;
  for (const Stage& s : p.stages) all.insert(all.end(), s.parameters.begin(), s.parameters.end());
  std::sort(all.begin(), all.end());
  CHECK(std::adjacent_find(all.begin(), all.end()) != all.end());  // the table
  all.erase(std::unique(all.begin(), all.end()), all.end());
  CHECK(all.size() == 1 + 4 * 4);
  auto holds = [&](const Stage& s, const std::string& fqn) {
    return std::any_of(s.modules.begin(), s.modules.end(), [&](ModuleId m) { return b.t.module(m).fqn == fqn; });
  };
  CHECK(holds(p.stages[0], "blocks.0.attn"));
  CHECK(!holds(p.stages[1], "blocks.0.attn"));
  CHECK(holds(p.stages[1], "head"));
  CHECK(!holds(p.stages[0], "head"));
  CHECK(p.stages[0].cost + p.stages[1].cost == Approx(1 + 4 * 606 + 150));

  // Replaying the same cuts gives the same stages.
  const Partition again = partition_at(b.t, o, p.cuts);
  CHECK(again.slowest_over_mean == p.slowest_over_mean);
  CHECK(again.optimum_slowest_over_mean == p.optimum_slowest_over_mean);
  CHECK(again.stages[1].parameters == p.stages[1].parameters);
}

TEST_CASE("a statement after an inner loop is in the middle of an iteration") {
  TraceBuilder b;
  const TensorId x = b.tensor({2, 4}, Origin::Input, "x"), w = b.parameter(0, {4, 4}, "w");
  TensorId h = x;
  static int outer = 0, inner = 0;
  for (int i = 0; i < 2; ++i) {
    b.statement([&] { h = b.op({h, w}, {2, 4}, 10); }, {{&outer, i, 0}});
    for (int j = 0; j < 2; ++j) b.statement([&] { h = b.op({h, w}, {2, 4}, 10); }, {{&outer, i, 0}, {&inner, j, 0}});
    b.statement([&] { h = b.op({h, w}, {2, 4}, 10); }, {{&outer, i, 0}});
  }
  b.output({h});
  std::vector<bool> starts;
  for (const Cut& c : legal_cuts(b.t, {}))
    if (c.kind == CutKind::BeforeStep) starts.push_back(c.between_iterations);
  CHECK(starts == std::vector<bool>{true, true, false, true, true, true, false});
}

TEST_CASE("a pinned cut stays") {
  TraceBuilder b;
  transformer(b, 8, false);
  Options o;
  o.stages = 3;
  const auto all = legal_cuts(b.t, o);
  const Cut& pin = all[all.size() / 3];
  o.required = {pin.clock};
  const Partition p = partition(b.t, o);
  REQUIRE(p.error.empty());
  CHECK(std::any_of(p.cuts.begin(), p.cuts.end(), [&](const Cut& c) { return c.cost_before == pin.cost_before; }));
  o.required = {b.t.forward_begin};
  CHECK(partition(b.t, o).error.find("not legal") != std::string::npos);
}

TEST_CASE("sharded tensors are not the first choice to send") {
  TraceBuilder b;
  transformer(b, 64, false);
  Options o;
  o.stages = 2;
  o.varying.assign(b.t.tensors.size(), 0);
  const Partition plain = partition(b.t, o);
  o.varying[static_cast<std::size_t>(plain.cuts[0].live[0])] = 1;
  const Partition other = partition(b.t, o);
  CHECK(other.cuts[0].varying == 0);
  CHECK(other.cuts[0].clock != plain.cuts[0].clock);
}

TEST_CASE("an indivisible layer is named, and batch norms in training mode") {
  TraceBuilder b;
  const TensorId x = b.tensor({2, 4}, Origin::Input, "x");
  const ModuleId stem = b.module("stem", "torch.nn.Linear", 0, true), bn = b.module("bn", "torch.nn.BatchNorm2d", 0, true),
                 big = b.module("big", "torch.nn.Linear", 0, true);
  b.t.modules[static_cast<std::size_t>(bn)].training = true;
  const TensorId w0 = b.parameter(stem, {4, 4}, "weight"), w1 = b.parameter(bn, {4}, "weight"), w2 = b.parameter(big, {4, 4}, "weight");
  TensorId h = -1;
  b.statement([&] {
    b.call(
        stem,
        [&] {
          h = b.op({x, w0}, {2, 4}, 100);
        },
        true);
  });
  b.statement([&] {
    b.call(
        bn,
        [&] {
          h = b.op({h, w1}, {2, 4}, 10);
        },
        true);
  });
  b.statement([&] {
    b.call(
        big,
        [&] {
          h = b.op({h, w2}, {2, 4}, 1000);
        },
        true);
  });
  b.output({h});
  Options o;
  o.stages = 2;
  const Partition p = partition(b.t, o);
  REQUIRE(p.warnings.size() == 2);
  CHECK(p.warnings[0].find("big (torch.nn.Linear)") != std::string::npos);
  CHECK(p.warnings[1].find("bn") != std::string::npos);
  o.stages = 1;
  CHECK(partition(b.t, o).warnings.empty());
}
