#include "rules/target.h"

#include <algorithm>
#include <catch2/catch.hpp>

using namespace shardwright;

TEST_CASE("every target can be read and its templates exist", "[rules][target]") {
  support::SourceManager sm;
  auto names = rules::target_names();
  REQUIRE(std::find(names.begin(), names.end(), "runtime") != names.end());
  for (const auto& name : names) {
    INFO(name);
    auto t = rules::load_target(name, sm);
    REQUIRE(t);
    if (t->typed)  // models in C++: no stages are written yet, whole files are
      for (const char* file : {"CMakeLists.txt.in", "job.h.in", "outputs.h.in", "train.cpp.in", "verify.cpp.in"})
        CHECK_FALSE(t->text(file).empty());
    else CHECK_FALSE(t->text(t->stage_members).empty());
    if (!t->support_file.empty()) CHECK_FALSE(t->text(t->support_file).empty());
    if (!t->stage_config.empty()) CHECK_FALSE(t->text(t->stage_config).empty());
    for (const auto& [module, file] : t->described) CHECK_FALSE(t->text(file).empty());
  }
}

TEST_CASE("an unknown target names those that exist", "[rules][target]") {
  support::SourceManager sm;
  auto t = rules::load_target("nowhere", sm);
  REQUIRE_FALSE(t);
  CHECK(t.error().message.find("runtime") != std::string::npos);
}

TEST_CASE("names of classes and files: the word goes before the longest type", "[rules][target]") {
  rules::Target t;
  t.word = "Distributed";
  t.file_word = "distributed";
  t.types = {"Fuser", "LocalFuser", "Attention", "Attention3D", "Mlp"};
  CHECK(t.class_name("WindFuser") == "WindDistributedFuser");
  CHECK(t.class_name("WindLocalFuser") == "WindDistributedLocalFuser");
  CHECK(t.class_name("EarthAttention3D") == "EarthDistributedAttention3D");
  CHECK(t.class_name("Mlp") == "DistributedMlp");
  CHECK(t.class_name("Other") == "DistributedOther");
  CHECK(t.file_stem("windlocalfuser") == "winddistributedlocalfuser");
  CHECK(t.file_stem("wind_utils") == "wind_distributed_utils");
  CHECK(t.file_stem("other") == "distributedother");
}
