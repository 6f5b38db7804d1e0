// Hidden: reads a chain written by tests/oracle/compare_cuts.py (SHARDWRIGHT_CHAIN), in which every operation is a statement of its own,
// and prints the best stages for 2 and 4: the partition beside the prototype's on the very same graph.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "builder.h"
#include "pipeline/pipeline.h"

using namespace shardwright;
using model::Origin;
using model::TensorId;
using shardwright::testing::TraceBuilder;

namespace {

model::DType dtype_of(const std::string& s) {
  if (s == "bool") return model::DType::Bool;
  if (s.find("int") == 0 || s.find("uint") == 0) return model::DType::I64;
  if (s.find("complex") == 0) return model::DType::C64;
  return model::DType::F32;
}

}  // namespace

TEST_CASE("stages of an exported graph", "[.][import]") {
  const char* path = std::getenv("SHARDWRIGHT_CHAIN");
  REQUIRE(path != nullptr);
  std::ifstream in(path);
  const auto j = nlohmann::json::parse(in);
  TraceBuilder b;
  std::vector<TensorId> of;  // by position in "tensors"
  for (const auto& x : j["tensors"]) {
    const std::string o = x["origin"];
    const auto origin = o == "parameter" ? Origin::Parameter
        : o == "buffer"                  ? Origin::Buffer
        : o == "input"                   ? Origin::Input
                                         : Origin::Result;
    if (origin == Origin::Result) {
      of.push_back(-1);
      continue;
    }
    of.push_back(b.tensor(x["shape"].get<std::vector<std::int64_t>>(), origin, x["name"], dtype_of(x["dtype"])));
  }
  for (const auto& x : j["ops"]) {
    std::vector<TensorId> inputs;
    for (int i : x["inputs"]) inputs.push_back(of[static_cast<std::size_t>(i)]);
    std::vector<std::vector<std::int64_t>> shapes;
    for (int y : x["outputs"]) shapes.push_back(j["tensors"][static_cast<std::size_t>(y)]["shape"].get<std::vector<std::int64_t>>());
    const std::string kind = x["kind"];
    std::vector<TensorId> out;
    b.statement([&] {
      out = b.ops(inputs, shapes, x["flops"], x["name"],
                  kind == "view"         ? model::Prim::Reshape
                      : kind == "opaque" ? model::Prim::Opaque
                                         : model::Prim::Labelled,
                  kind == "elementwise");
    });
    for (std::size_t k = 0; k < out.size(); ++k) {
      const auto y = x["outputs"][k].get<std::size_t>();
      of[y] = out[k];
      b.t.tensors[static_cast<std::size_t>(out[k])].dtype = dtype_of(j["tensors"][y]["dtype"]);
    }
  }
  std::vector<TensorId> outputs;
  for (int y : j["outputs"]) outputs.push_back(of[static_cast<std::size_t>(y)]);
  b.output(outputs);
  nlohmann::json result;
  for (const int p : {2, 4}) {
    pipeline::Options o;
    o.stages = p;
    const auto r = pipeline::partition(b.t, o);
    nlohmann::json boundaries = nlohmann::json::array();
    for (const auto& c : r.cuts) {
      nlohmann::json shapes = nlohmann::json::array();
      for (TensorId t : c.live) shapes.push_back(b.t.tensor(t).shape);
      boundaries.push_back(shapes);
    }
    result[std::to_string(p)] = {{"slowest_over_mean", r.slowest_over_mean},
                                 {"optimum", r.optimum_slowest_over_mean},
                                 {"legal_cuts", r.legal_cuts},
                                 {"boundaries", boundaries},
                                 {"error", r.error}};
  }
  std::cout << result.dump() << "\n";
}
