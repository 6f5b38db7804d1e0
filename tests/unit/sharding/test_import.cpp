// Hidden: reads a trace written by tests/oracle/trace_of_export.py (SHARDWRIGHT_TRACE) and prints its axes in the oracle's format
// (to SHARDWRIGHT_AXES, else standard output). SHARDWRIGHT_TP and SHARDWRIGHT_OBJECTIVE as for `plan`.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "sharding/communication.h"
#include "sharding/json.h"
#include "sharding/layout.h"
#include "sharding/sharding.h"

using namespace shardwright;

namespace {

model::Trace import_trace(const nlohmann::json& j) {
  model::Trace t;
  t.modules.emplace_back();
  t.modules[0].id = 0;
  t.modules[0].type = "Exported";
  for (const auto& x : j["tensors"]) {
    model::Tensor n;
    n.id = static_cast<model::TensorId>(t.tensors.size());
    n.shape = x["shape"].get<std::vector<std::int64_t>>();
    const std::string origin = x["origin"];
    n.origin = origin == "parameter" ? model::Origin::Parameter
        : origin == "buffer"         ? model::Origin::Buffer
        : origin == "constant"       ? model::Origin::Constant
        : origin == "input"          ? model::Origin::Input
                                     : model::Origin::Result;
    n.name = x["name"];
    n.requires_grad = x["grad"];
    n.from_input = x["from_input"];
    n.from_parameter = x["from_parameter"];
    if (n.origin == model::Origin::Parameter || n.origin == model::Origin::Buffer) {
      model::ParamRef r;
      r.attr = n.name;
      r.tensor = n.id;
      r.buffer = n.origin == model::Origin::Buffer;
      t.modules[0].params.push_back(r);
    }
    t.tensors.push_back(n);
  }
  for (const auto& x : j["ops"]) {
    model::Op o;
    o.id = static_cast<model::OpId>(t.ops.size());
    o.clock = o.id + 1;
    o.name = x["name"];
    const std::string prim = x["prim"], lin = x["lin"];
    o.prim = prim == "labelled" ? model::Prim::Labelled
        : prim == "reshape"     ? model::Prim::Reshape
        : prim == "split"       ? model::Prim::Split
        : prim == "concat"      ? model::Prim::Concat
        : prim == "create"      ? model::Prim::Create
                                : model::Prim::Opaque;
    o.linearity = lin == "linear" ? model::Linearity::Linear : lin == "bilinear" ? model::Linearity::Bilinear : model::Linearity::Nonlinear;
    for (int i : x["inputs"]) {
      model::Operand p;
      p.tensor = i;
      o.inputs.push_back(p);
    }
    for (int b : x.value("bias", std::vector<int>{})) o.inputs[static_cast<std::size_t>(b)].is_bias = true;
    o.outputs = x["outputs"].get<std::vector<int>>();
    for (int y : o.outputs) t.tensors[static_cast<std::size_t>(y)].producer = o.id;
    o.in = x.value("in", std::vector<std::vector<int>>{});
    o.out = x.value("out", std::vector<std::vector<int>>{});
    for (const auto& l : x.value("labels", nlohmann::json::array())) {
      model::Label label;
      label.size = l["size"];
      label.blocked = l["blocked"];
      label.why = l["why"];
      o.labels.push_back(label);
    }
    o.mean = x.value("mean", false);
    o.random = x.value("random", "");
    o.dim = x.value("dim", 0);
    o.sizes = x.value("sizes", std::vector<std::int64_t>{});
    t.ops.push_back(o);
  }
  t.output.kind = model::Binding::Sequence;
  for (int y : j["outputs"]) {
    model::Binding b;
    b.kind = model::Binding::Tensor;
    b.tensor = y;
    t.output.items.emplace_back("", b);
  }
  return t;
}

/// What tests/oracle/sim_states.py needs to run the placement: local shapes, slices, conversions.
void write_placement(const char* path, const model::Trace& t, const sharding::Result& r) {
  nlohmann::json j;
  j["tp"] = r.tp;
  for (const auto& x : t.tensors) {
    const int axis = r.axis_of[static_cast<std::size_t>(x.id)];
    if (axis < 0) continue;
    nlohmann::json one;
    one["local"] = r.local_shape(t, x.id);
    const sharding::Layout l = sharding::layout(r, t, x.id);
    for (int rank = 0; rank < r.tp; ++rank) one["slices"].push_back(sharding::slices(l, r.tp, rank));
    j["sharded"][std::to_string(x.id)] = one;
  }
  j["conversions"] = nlohmann::json::array();
  for (const auto& c : r.conversions) {
    const char* kinds[] = {"copy", "reduce", "slice", "gather"};
    j["conversions"].push_back({{"kind", kinds[c.kind]},
                                {"op", c.op},
                                {"operand", c.operand},
                                {"on_output", c.on_output},
                                {"tensor", c.tensor},
                                {"mean", c.mean},
                                {"also", c.also}});
  }
  j["grad_summed"] = r.grad_summed;
  std::ofstream(path) << j;
}

}  // namespace

TEST_CASE("axes of an exported graph", "[.][import]") {
  const char* path = std::getenv("SHARDWRIGHT_TRACE");
  REQUIRE(path != nullptr);
  std::ifstream in(path);
  const model::Trace t = import_trace(nlohmann::json::parse(in));
  sharding::Options o;
  o.tp = std::getenv("SHARDWRIGHT_TP") != nullptr ? std::atoi(std::getenv("SHARDWRIGHT_TP")) : 2;
  if (const char* objective = std::getenv("SHARDWRIGHT_OBJECTIVE")) o.objective = objective;
  const sharding::Result r = sharding::analyse(t, o);
  const auto c = sharding::communication(t, r);
  std::cerr << "all-reduces: forward " << c.count("activation/forward") << " backward " << c.count("activation/backward") << " fallbacks "
            << r.fallbacks.size() << "\n";
  if (const char* out = std::getenv("SHARDWRIGHT_PLACEMENT")) write_placement(out, t, r);
  if (const char* out = std::getenv("SHARDWRIGHT_AXES")) {
    std::ofstream(out) << sharding::to_json(t, r) << "\n";
  } else {
    std::cout << sharding::to_json(t, r) << "\n";
  }
}
