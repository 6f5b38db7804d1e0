// Stages run as the original: every cut that generation accepts, on small models of each kind.
#include <catch2/catch.hpp>
#include <iostream>

#include "stage_harness.h"

using namespace stage_test;

namespace {

std::vector<std::string> model_names() {
  std::vector<std::string> out;
  for (const auto& e : std::filesystem::directory_iterator(models_dir()))
    if (e.path().extension() == ".py") out.push_back(e.path().stem());
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

TEST_CASE("every accepted cut of every small model runs as the original", "[stages][python]") {
  json models = json::array();
  for (const auto& name : model_names()) {
    auto l = load_model(name);
    INFO(name << ": " << l->error);
    REQUIRE(l->error.empty());
    std::vector<std::string> refused;
    json m = everything(*l, name, &refused, 60);
    for (const auto& r : refused) UNSCOPED_INFO(name << ": " << r);
    CHECK(m["partitions"].size() > 3);
    models.push_back(m);
  }
  if (torch_python().empty()) {
    WARN("no Python with torch: stages were printed, not run");
    return;
  }
  std::string output;
  const int status = run(models, output);
  INFO(output);
  CHECK(status == 0);
}

// For development: SHARDWRIGHT_STAGE_JOB=job.yaml [SHARDWRIGHT_STAGES=4] [SHARDWRIGHT_STAGE_OUT=report.json]
TEST_CASE("one job", "[.dev]") {
  const char* path = std::getenv("SHARDWRIGHT_STAGE_JOB");
  REQUIRE(path);
  std::unique_ptr<Loaded> l;
  if (std::filesystem::path(path).extension() == ".yaml") {
    std::ifstream in(path);
    std::stringstream text;
    text << in.rdbuf();
    l = load_job(text.str(), path);
  } else {
    l = load_model(path);
  }
  INFO(l->error);
  REQUIRE(l->error.empty());
  json m;
  if (const char* n = std::getenv("SHARDWRIGHT_STAGES")) {
    m = model_json(*l, path);
    rewrite::StageSlicer slicer(l->trace(), l->sources);
    pipeline::Options o;
    o.stages = std::atoi(n);
    o.can_emit = can_emit;
    o.can_emit_data = &slicer;
    const auto p = pipeline::partition(l->trace(), o);
    std::cout << p.error << "\n";
    for (const auto& c : p.cuts) std::cout << "cut " << pipeline::describe(l->trace(), l->sources, c) << "\n";
    json j = print(*l, p, "partition");
    if (j.contains("error")) std::cout << j["error"] << "\n";
    else {
      for (const auto& d : j["definitions"])
        std::cout << "\n# " << d["origin"].get<std::string>() << "\n" << d["text"].get<std::string>() << "\n";
      m["partitions"].push_back(j);
    }
  } else {
    std::vector<std::string> refused;
    m = everything(*l, path, &refused,
                   std::getenv("SHARDWRIGHT_MOST") ? static_cast<std::size_t>(std::atoi(std::getenv("SHARDWRIGHT_MOST"))) : 100000);
    for (const auto& r : refused) std::cout << "refused " << r << "\n";
  }
  if (const char* out = std::getenv("SHARDWRIGHT_STAGE_OUT")) std::ofstream(out) << json{{"models", json::array({m})}};
  if (!torch_python().empty() && !m["partitions"].empty()) {
    std::string output;
    run(json::array({m}), output);
    std::cout << output;
  }
}
