#include "model/trace.h"

#include <catch2/catch.hpp>

#include "model/dump.h"

using namespace shardwright::model;

TEST_CASE("names of tensors follow PyTorch's order: a module's parameters, its buffers, then its children") {
  Trace t;
  for (int i = 0; i < 4; ++i) {
    Tensor x;
    x.id = i;
    x.shape = {2, 3};
    t.tensors.push_back(x);
  }
  Module root, child;
  root.id = 0;
  child.id = 1;
  root.params = {{"w", 0, false, true}, {"mask", 1, true, false}};
  root.children = {{"a", 1}, {"again", 1}};
  child.params = {{"weight", 2, false, true}};
  t.modules = {root, child};
  std::vector<std::string> names;
  for (const auto& n : named_tensors(t)) names.push_back(n.fqn);
  CHECK(names == std::vector<std::string>{"w", "mask", "a.weight", "again.weight"});
  CHECK(named_tensors(t, false).size() == 3);
  CHECK(numel(t.tensor(0)) == 6);
}

TEST_CASE("types") {
  CHECK(short_name(DType::BF16) == "bf16");
  CHECK(torch_name(DType::I64) == "torch.int64");
  CHECK(bytes_of(DType::C128) == 16);
  CHECK(is_floating(DType::C64));
  CHECK_FALSE(is_floating(DType::Bool));
}

TEST_CASE("a trace can be printed") {
  Trace t;
  Tensor x;
  x.id = 0;
  x.shape = {4};
  t.tensors.push_back(x);
  Op op;
  op.id = 0;
  op.name = "torch.exp";
  op.prim = Prim::Labelled;
  op.inputs = {{0, "input", nullptr, false}};
  op.outputs = {0};
  op.labels = {{4, true, "test"}};
  op.in = {{0}};
  op.out = {{0}};
  t.ops.push_back(op);
  CHECK(dump_ops(t).find("torch.exp labelled t0:f32[4] -> t0:f32[4]  a->a !a(test)") != std::string::npos);
  CHECK(dump_json(t).find("\"torch.exp\"") != std::string::npos);
}
