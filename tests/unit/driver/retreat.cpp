// What convert does without when its own check finds a fault: each step in its order, and nothing twice.
#include "driver/retreat.h"

#include <catch2/catch.hpp>

#include "eval/interpreter.h"
#include "eval/source.h"

using namespace shardwright;

namespace {

/// Two chosen axes (of `a` and `b`) and two cuts.
std::unique_ptr<driver::Analysis> analysis() {
  auto a = std::make_unique<driver::Analysis>();
  a->traced = std::make_unique<eval::Traced>();
  for (const char* name : {"a", "b"}) {
    model::Tensor t;
    t.id = static_cast<model::TensorId>(a->traced->trace.tensors.size());
    t.name = name;
    sharding::Axis x;
    x.id = t.id;
    x.chosen = true;
    x.parameters = {t.id};
    a->traced->trace.tensors.push_back(t);
    a->sharding.axes.push_back(x);
  }
  for (int clock : {10, 20}) {
    pipeline::Cut c;
    c.clock = clock;
    a->partition.cuts.push_back(c);
  }
  return a;
}

driver::Fault fault(int stage, const std::string& parameter = "") { return {support::failure("wrong", {}, "internal"), stage, parameter}; }

}  // namespace

TEST_CASE("the axis of the parameter that is wrong goes first") {
  auto a = analysis();
  driver::Retreat r;
  driver::PlanRequest want;
  want.grid.pp = 3;
  REQUIRE(r.next(fault(0, "b"), *a, want));
  CHECK(want.whole == std::vector<std::string>{"b"});
  CHECK(want.no_cut.empty());
  REQUIRE(r.given_up().size() == 1);
  CHECK(r.given_up()[0] == "b: kept whole, because the source generated with it split did not pass its own check (wrong)");
}

TEST_CASE("then the stage builds all of the model, the cuts beside it, then each axis with the cuts as they were, then all of them") {
  auto a = analysis();
  driver::Retreat r;
  driver::PlanRequest want;
  want.grid.pp = 3;
  REQUIRE(r.next(fault(0), *a, want));
  CHECK(want.built_whole == std::set<int>{0});
  CHECK(want.no_cut.empty());
  REQUIRE(r.next(fault(0), *a, want));
  CHECK(want.built_whole.empty());  // it did not help
  CHECK(want.no_cut.size() == 1);
  CHECK(want.no_cut.begin()->first == 10);
  REQUIRE(r.next(fault(1), *a, want));
  CHECK(want.no_cut.size() == 2);
  REQUIRE(r.next(want));  // no plan without these cuts
  CHECK(want.no_cut.empty());
  CHECK(want.whole == std::vector<std::string>{"a"});
  REQUIRE(r.next(fault(1), *a, want));
  CHECK(want.whole == std::vector<std::string>{"b"});
  CHECK(r.given_up().size() == 1);
  REQUIRE(r.next(fault(1), *a, want));
  CHECK(want.whole == std::vector<std::string>{"a", "b"});
  CHECK(r.given_up().size() == 2);
  CHECK(!r.next(fault(1), *a, want));
  const auto error = r.error(fault(1));
  CHECK(error.message == "wrong (a fault of the generator, and no smaller change avoids it: nothing was written)");
  CHECK(error.code == "internal");  // exit code 3, whatever was found
  CHECK(error.notes.back().message.find("another grid (--tp, --pp)") == 0);
}

TEST_CASE("without a pipeline, keeping everything whole would leave nothing to generate") {
  auto a = analysis();
  a->partition.cuts.clear();
  driver::Retreat r;
  driver::PlanRequest want;
  REQUIRE(r.next(fault(0), *a, want));
  REQUIRE(r.next(fault(0), *a, want));
  CHECK(!r.next(fault(0), *a, want));
}
