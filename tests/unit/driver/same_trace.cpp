// What counts as the same computation: a program against a changed copy of itself.
#include "driver/same_trace.h"

#include <catch2/catch.hpp>

#include "../eval/torch_support.h"

using namespace shardwright;

namespace {

const char* kModel = R"(
class M(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.a = nn.Linear(d, d)
        self.b = nn.Linear(d, d)
        self.gain = nn.Parameter(torch.ones(d))
        self.drop = nn.Dropout(0.1)
        self.scale = 1.0

    def forward(self, x):
        self.scale = x.shape[-1] ** 0.5
        y = self.a(x)
        z = self.b(x).relu() * self.gain
        p = torch.softmax(y @ z.transpose(1, 2) / self.scale, dim=-1)
        y, z = (p @ y).chunk(2, dim=-1)
        return self.drop(y - z)[:, :2].sum(dim=1)
)";

std::string changed(const std::string& from, const std::string& to) {
  std::string text = kModel;
  const auto at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

/// What is unlike when `copy` stands for the model; "" for nothing.
std::string difference(const std::string& copy, bool train = false) {
  auto original = torch_test::trace(kModel, {{"x", "f32[2,3,8]"}}, "M()", train);
  auto other = torch_test::trace(copy, {{"x", "f32[2,3,8]"}}, "M()", train);
  REQUIRE(original->traced);
  REQUIRE(other->traced);
  sharding::Options options;
  const auto placed = sharding::analyse(original->t(), options);
  std::unordered_map<model::TensorId, model::TensorId> known;
  std::map<std::string, model::TensorId> names;
  for (const auto& n : model::named_tensors(original->t())) names[n.fqn] = n.ref.tensor;
  for (const auto& n : model::named_tensors(other->t())) known[n.ref.tensor] = names.at(n.fqn);
  known[model::tensors_of(other->t().inputs[0].second)[0]] = model::tensors_of(original->t().inputs[0].second)[0];
  auto unlike = driver::SameTrace(original->t(), placed).compare(other->t(), known, model::tensors_of(original->t().output));
  return unlike ? unlike->what : "";
}

}  // namespace

TEST_CASE("a program is the same as itself, however it is spelled") {
  CHECK(difference(kModel) == "");
  CHECK(difference(kModel, true) == "");
  CHECK(difference(changed("y = self.a(x)", "y = F.linear(x, self.a.weight, self.a.bias)")) == "");
  CHECK(difference(changed("/ self.scale", "/ 64 ** 0.25")) == "");
  CHECK(difference(changed("y @ z.transpose(1, 2)", "torch.matmul(y, z.transpose(1, 2))")) == "");
  CHECK(difference(changed("[:, :2]", "[:, 0:2, :]")) == "");
  CHECK(difference(changed("        return", "        unused = y + 1\n        return")) == "");
}

TEST_CASE("what a stage can do wrong without a wrong shape is seen") {
  const std::pair<const char*, const char*> faults[] = {
      {"        self.scale = x.shape[-1] ** 0.5\n", ""},    // state of an earlier stage
      {"/ self.scale", "/ 4.0"},                            // a local size as a number
      {"* self.gain", "* 1.0"},                             // a parameter that is not used
      {"self.b(x)", "self.a(x)"},                           // another layer
      {"self.b(x)", "self.b(y)"},                           // another value
      {"y - z", "z - y"},                                   // boundary tensors swapped
      {"dim=-1)\n        y, z", "dim=-2)\n        y, z"},   // a dimension
      {"[:, :2]", "[:, 1:]"},                               // another part
      {".relu()", ""},                                      // left out
      {"self.drop(y - z)", "self.drop(self.drop(y - z))"},  // twice (seen in training, where it draws)
  };
  for (const auto& [from, to] : faults) {
    INFO(from << " → " << to);
    CHECK(difference(changed(from, to), true) != "");
  }
  CHECK_THAT(difference(changed("/ self.scale", "/ 4.0")), Catch::Contains("div (other=4;)"));
}

TEST_CASE("a short range is no share of a long one") {
  const std::string ranges = R"(
class M(nn.Module):
    def forward(self, x):
        return x * torch.arange(6).sum() + torch.arange(3).float().mean()
)";
  auto one = torch_test::trace(ranges, {{"x", "f32[2,3,8]"}}), two = torch_test::trace(ranges, {{"x", "f32[2,3,8]"}});
  sharding::Options options;
  options.tp = 2;
  const auto placed = sharding::analyse(one->t(), options);
  const std::unordered_map<model::TensorId, model::TensorId> known{
      {model::tensors_of(two->t().inputs[0].second)[0], model::tensors_of(one->t().inputs[0].second)[0]}};
  CHECK(!driver::SameTrace(one->t(), placed).compare(two->t(), known, model::tensors_of(one->t().output)));
}
