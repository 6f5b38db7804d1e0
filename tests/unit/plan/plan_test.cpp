// The plan file: written, read back, compared, replayed.
#include "plan/plan.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "../pipeline/builder.h"
#include "pipeline/position.h"

using namespace shardwright;
using model::ModuleId;
using model::Origin;
using model::TensorId;
using shardwright::testing::TraceBuilder;

namespace {

/// Four blocks of two matrix products (column then row over `width`), a tied table.
struct Example {
  TraceBuilder b;
  sharding::Result placement;
  pipeline::Partition partition;

  explicit Example(int stages = 2) {
    const TensorId x = b.tensor({2, 8}, Origin::Input, "x");
    const ModuleId list = b.module("blocks", "torch.nn.ModuleList", 0, true);
    TensorId h = x;
    std::vector<std::pair<TensorId, TensorId>> weights;
    for (int i = 0; i < 4; ++i) {
      const std::string name = "blocks." + std::to_string(i);
      const ModuleId block = b.module(name, "pkg.Mlp", list), up = b.module(name + ".up", "torch.nn.Linear", block, true),
                     down = b.module(name + ".down", "torch.nn.Linear", block, true);
      const TensorId u = b.parameter(up, {16, 8}, "weight"), d = b.parameter(down, {8, 16}, "weight");
      weights.push_back({u, d});
      b.statement([&] {
        b.call(block, [&] {
          TensorId m = -1;
          b.statement([&] {
            b.call(
                up,
                [&] {
                  m = b.op({h, u}, {2, 16}, 512);
                  auto& o = b.t.ops.back();
                  o.labels = {{2, false, ""}, {8, false, ""}, {16, false, ""}};
                  o.in = {{0, 1}, {2, 1}};
                  o.out = {{0, 2}};
                },
                true);
          });
          b.statement([&] {
            b.call(
                down,
                [&] {
                  h = b.op({m, d}, {2, 8}, 512);
                  auto& o = b.t.ops.back();
                  o.labels = {{2, false, ""}, {8, false, ""}, {16, false, ""}};
                  o.in = {{0, 2}, {1, 2}};
                  o.out = {{0, 1}};
                },
                true);
          });
        });
      });
      model::VarWrite w;
      w.frame = b.t.root_frame;
      w.name = "x";
      w.value.kind = model::Binding::Tensor;
      w.value.tensor = h;
      w.clock = b.tick();
      b.t.var_writes.push_back(w);
    }
    b.output({h});
    placement.tp = 2;
    placement.tensors.resize(b.t.tensors.size());
    placement.states.resize(b.t.tensors.size(), sharding::State::I);
    placement.axis_of.assign(b.t.tensors.size(), -1);
    for (const auto& t : b.t.tensors) {
      auto& f = placement.tensors[static_cast<std::size_t>(t.id)];
      f.resize(t.shape.size());
      for (std::size_t d = 0; d < t.shape.size(); ++d) f[d] = {sharding::Term{100, t.shape[d], {}}};
    }
    for (std::size_t i = 0; i < weights.size(); ++i) {
      sharding::Axis a;
      a.id = static_cast<int>(i);
      a.size = 16;
      a.parameters = {weights[i].first, weights[i].second};
      a.legal = a.chosen = true;
      a.key = "blocks." + std::to_string(i) + ".up.weight:0:1*16";
      a.parameter_bytes = 1024;
      placement.axes.push_back(a);
      placement.tensors[static_cast<std::size_t>(weights[i].first)][0][0].axis = a.id;
      placement.tensors[static_cast<std::size_t>(weights[i].second)][1][0].axis = a.id;
      for (TensorId w : a.parameters)
        placement.axis_of[static_cast<std::size_t>(w)] = a.id, placement.states[static_cast<std::size_t>(w)] = sharding::State::V;
    }
    placement.fallbacks.push_back({0, {}, "blocks.9", "7 heads: tp 2 does not divide them (1, 7 do)"});
    pipeline::Options o;
    o.stages = stages;
    partition = pipeline::partition(b.t, o);
    REQUIRE(partition.error.empty());
  }

  plan::Plan plan(const plan::Plan* pins = nullptr) const {
    plan::Inputs in;
    in.trace = &b.t;
    in.placement = &placement;
    in.partition = &partition;
    in.model = "file.py:Net";
    in.grid = {2, static_cast<int>(partition.stages.size()), 2, 4, 1, "1f1b"};
    in.job = "model: file.py:Net\n# what it needs\ninputs:\n  x: \"f32[2,8]\"\n\nmode: eval\nsetup: |\n  import a\n\n  a.b()";
    in.pins = pins;
    return plan::make(in);
  }
};

std::string replaced(std::string s, const std::string& a, const std::string& b) {
  const auto i = s.find(a);
  REQUIRE(i != std::string::npos);
  return s.replace(i, a.size(), b);
}

}  // namespace

TEST_CASE("what a plan says") {
  const Example e;
  const plan::Plan p = e.plan();
  REQUIRE(p.roles.size() == 2);
  CHECK(p.roles[0].type == "Mlp");
  CHECK(p.roles[0].attribute == "up");
  CHECK(p.roles[0].role == "column");
  CHECK(p.roles[0].instances == 4);
  CHECK(p.roles[0].only.empty());
  CHECK(p.roles[1].attribute == "down");
  CHECK(p.roles[1].role == "row");
  REQUIRE(p.axes.size() == 4);
  CHECK(p.axes[2].parameters == std::vector<std::string>{"blocks.2.up.weight", "blocks.2.down.weight"});
  REQUIRE(p.stages.size() == 2);
  CHECK(p.stages[0].modules == std::vector<std::string>{"blocks.0-1"});
  CHECK(p.stages[0].parameters == 2 * 128);  // half of 2 × 2 × 128
  CHECK(p.stages[0].gib * 1024 * 1024 * 1024 == Approx(4 * 4 * 256));
  REQUIRE(p.stages[0].cut.size() == 1);
  CHECK(p.stages[0].cut[0].at == "after blocks.1");
  REQUIRE(p.stages[0].cut[0].sends.size() == 1);
  CHECK(p.stages[0].cut[0].sends[0].name == "x");
  CHECK(p.stages[0].cut[0].sends[0].shape == std::vector<std::int64_t>{2, 8});
  double boundary = 0, dp = 0;
  for (const auto& c : p.collectives) {
    if (c.tag == "boundary") boundary += c.bytes;
    if (c.tag == "dp" && c.stage == 0) dp += c.bytes;
  }
  CHECK(boundary == 4 * 64 * 2);  // four micro-batches, forward and backward
  CHECK(dp == 4 * 256);
  CHECK(p.fallbacks.size() == 1);
  const auto j = plan::to_json(p);
  CHECK(j["stages"][0]["cut"]["at"] == "after blocks.1");
  CHECK(j["stages"][1]["cut"].is_null());
}

TEST_CASE("instances with different roles have entries of their own") {
  Example e;
  for (TensorId t : e.placement.axes[3].parameters) e.placement.axis_of[static_cast<std::size_t>(t)] = -1;
  e.placement.axes[3].chosen = false;
  const plan::Plan p = e.plan();
  REQUIRE(p.roles.size() == 4);
  CHECK(p.roles[0].role == "column");
  CHECK(p.roles[0].only == std::vector<std::string>{"blocks.0.up", "blocks.1.up", "blocks.2.up"});
  CHECK(p.roles[1].role == "replicated");
  CHECK(p.roles[1].only == std::vector<std::string>{"blocks.3.up"});
}

TEST_CASE("read back, a plan is the same") {
  const Example e;
  const plan::Plan p = e.plan();
  const std::string text = plan::to_yaml(p);
  support::SourceManager sm;
  const auto back = plan::from_yaml(text, "plan.yaml", sm);
  REQUIRE(back);
  CHECK(plan::to_yaml(*back) == text);
  CHECK(plan::compare(p, *back).empty());
  CHECK(back->job == "model: file.py:Net\n# what it needs\ninputs:\n  x: \"f32[2,8]\"\n\nmode: eval\nsetup: |\n  import a\n\n  a.b()\n");
  CHECK(sm.size() == 0);
}

TEST_CASE("odd names survive") {
  plan::Plan p;
  p.model = "a \"b\" \\ : # {x}, [y]\n\ttail";
  p.grid = {};
  p.stages.resize(1);
  p.warnings = {"yes", "1e3", "", "- dash", "naïve → ok", "12"};
  support::SourceManager sm;
  const auto back = plan::from_yaml(plan::to_yaml(p), "plan.yaml", sm);
  REQUIRE(back);
  CHECK(back->model == p.model);
  CHECK(back->warnings == p.warnings);
}

TEST_CASE("pins are kept when the plan is made again") {
  const Example e;
  support::SourceManager sm;
  std::string text = plan::to_yaml(e.plan());
  text = replaced(text, "  - split: true\n    by: auto", "  - split: false\n    by: pinned");
  text = replaced(text, "at: \"after blocks.1\"\n      by: auto", "at: \"after blocks.1\"\n      by: pinned");
  const auto pins = plan::from_yaml(text, "plan.yaml", sm);
  REQUIRE(pins);
  CHECK(plan::split_axes(*pins).size() == 3);
  CHECK(plan::kept_whole(*pins) == std::vector<std::string>{"blocks.0.up.weight", "blocks.0.down.weight"});
  pipeline::Options o;
  o.stages = 2;
  const auto cuts = plan::cuts_of(*pins, e.b.t, o, true);
  REQUIRE(cuts);
  REQUIRE(cuts->size() == 1);
  CHECK(cuts->front().clock == e.partition.cuts[0].clock);
  const plan::Plan again = e.plan(&*pins);
  CHECK(again.axes[0].by == plan::By::Pinned);
  CHECK(again.axes[1].by == plan::By::Auto);
  CHECK(again.stages[0].cut[0].by == plan::By::Pinned);
  const auto lines = plan::compare(e.plan(), *pins);
  REQUIRE(lines.size() == 1);
  CHECK(lines[0] == "axis of blocks.0.up.weight: split → whole (pinned)");
}

TEST_CASE("replay finds the same cuts, also with more stages") {
  const Example e(4);
  const plan::Plan p = e.plan();
  pipeline::Options o;
  o.stages = 4;
  const auto cuts = plan::cuts_of(p, e.b.t, o);
  REQUIRE(cuts);
  REQUIRE(cuts->size() == 3);
  for (std::size_t k = 0; k < 3; ++k) {
    CHECK((*cuts)[k].clock == e.partition.cuts[k].clock);
    CHECK((*cuts)[k].live == e.partition.cuts[k].live);
  }
}

TEST_CASE("a plan that does not fit the source names the entry") {
  const Example e;
  plan::Plan p = e.plan();
  CHECK(plan::fits(p, e.b.t, e.placement));
  plan::Plan q = p;
  q.axes[1].parameters[0] = "blocks.1.up.weigth";
  const auto bad = plan::fits(q, e.b.t, e.placement);
  REQUIRE(!bad);
  CHECK(bad.error().message.find("axes[1] names the parameter 'blocks.1.up.weigth'") == 0);
  q = p;
  q.axes[2].key = "something:0:1*16";
  CHECK(plan::fits(q, e.b.t, e.placement).error().message.find("axes[2]") == 0);
  q = p;
  q.stages[0].cut[0].key = {"forward@17"};
  const auto cuts = plan::cuts_of(q, e.b.t, {});
  REQUIRE(!cuts);
  CHECK(cuts.error().message.find("the cut of stage 0") == 0);
  CHECK(cuts.error().message.find("forward@17") != std::string::npos);
}

TEST_CASE("a wrong file is an error at its line") {
  const Example e;
  const std::string good = plan::to_yaml(e.plan());
  auto error = [](const std::string& text) {
    support::SourceManager sm;
    const auto p = plan::from_yaml(text, "plan.yaml", sm);
    REQUIRE(!p);
    REQUIRE(p.error().range.valid());
    return std::to_string(sm.position(p.error().range.file, p.error().range.begin).line) + ": " + p.error().message;
  };
  CHECK(error(replaced(good, "objective:", "objectve:")).find("8: unknown key 'objectve' in the plan; did you mean 'objective'?") == 0);
  CHECK(error(replaced(good, "objective: split", "objective: fast")).find("8: objective must be") == 0);
  CHECK(error(replaced(good, "tp: 2", "tp: two")).find("5: 'tp' of grid must be a positive integer") == 0);
  CHECK(error(replaced(good, "tp: 2", "tp: 0")).find("5: 'tp' of grid must be a positive integer") == 0);
  CHECK(error(replaced(good, "version: 1", "version: 2")).find("3: ") == 0);
  CHECK(error(replaced(good, "pp: 2", "pp: 3")).find("2 stages do not fit the grid") != std::string::npos);
  CHECK(error(replaced(good, "    by: auto", "    by: me")).find("must be auto or pinned") != std::string::npos);
  CHECK(error("[1, 2").find("not readable as YAML") != std::string::npos);
  CHECK(error("hello").find("a plan is a mapping") != std::string::npos);
  CHECK(error("").find("a plan is a mapping") != std::string::npos);
}

TEST_CASE("numbers for people") {
  CHECK(plan::human_bytes(512) == "512 B");
  CHECK(plan::human_bytes(1536) == "1.50 KiB");
  CHECK(plan::human_bytes(3.5 * 1024 * 1024 * 1024) == "3.50 GiB");
  CHECK(plan::human_flops(12.34e12) == "12.3 TFLOP");
  CHECK(plan::human_flops(900) == "900 FLOP");
}
