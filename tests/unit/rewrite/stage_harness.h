// Traces a model of tests/unit/rewrite/stage_models (or any job), cuts it, prints the stages, and has them run by stage_run.py.
#pragma once
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "eval/run.h"
#include "pipeline/pipeline.h"
#include "pipeline/position.h"
#include "rewrite/specialize.h"

namespace stage_test {

using namespace shardwright;
using nlohmann::json;

inline std::string models_dir() { return std::string(SHARDWRIGHT_SOURCE_DIR) + "/tests/unit/rewrite/stage_models"; }

struct Loaded {
  support::SourceManager sources;
  eval::Job job;
  std::unique_ptr<eval::Traced> traced;
  std::string error;
  const model::Trace& trace() const { return traced->trace; }
};

inline std::unique_ptr<Loaded> load_job(const std::string& yaml, const std::string& path) {
  auto l = std::make_unique<Loaded>();
  auto job = eval::parse_job(yaml, path);
  if (!job) {
    l->error = job.error().message;
    return l;
  }
  l->job = *job;
  auto t = eval::trace(l->job, {}, l->sources);
  if (!t) {
    l->error = support::render(t.error(), l->sources);
    return l;
  }
  l->traced = std::move(*t);
  for (auto& m : l->traced->trace.modules)
    if (!m.builtin && m.mro.empty()) {
      const eval::Value c = l->traced->interpreter->import_name(m.type);
      if (c.is(eval::Kind::Class))
        for (const auto* k : c.as<eval::ClassObj>()->mro)
          if (k->def && !k->builtin) m.mro.push_back(k->def);
    }
  return l;
}

/// A model file whose docstring is its job.
inline std::unique_ptr<Loaded> load_model(const std::string& name) {
  const std::string path = models_dir() + "/" + name + ".py";
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  const std::string s = text.str();
  const auto a = s.find("\"\"\""), b = s.find("\"\"\"", a + 3);
  return load_job("model: " + path + ":Model\n" + s.substr(a + 3, b - a - 3), models_dir() + "/" + name + ".yaml");
}

inline bool can_emit(const model::Trace&, const pipeline::Cut& c, void* data) {
  return static_cast<rewrite::StageSlicer*>(data)->refuses(c).empty();
}

/// The printed stages of one partition; "error" when it cannot be printed.
inline json print(const Loaded& l, const pipeline::Partition& p, const std::string& name) {
  rewrite::StageSlicer slicer(l.trace(), l.sources);
  json out{{"name", name}};
  if (auto e = slicer.set_partition(p); !e.empty()) {
    out["error"] = e;
    return out;
  }
  const int n = static_cast<int>(p.cuts.size()) + 1;
  auto s = rewrite::specialize(l.trace(), {}, &slicer, n, l.sources);
  if (!s.refusals.empty()) {
    out["error"] = "specialise: " + l.sources.describe(s.refusals[0].where) + " " + s.refusals[0].message;
    return out;
  }
  out["definitions"] = json::array();
  for (const auto& d : s.definitions) {
    json refs = json::object();
    for (const auto& [k, v] : d.refs) refs[k] = v;
    out["definitions"].push_back({{"name", d.name},
                                  {"origin", d.origin->name},
                                  {"text", d.text},
                                  {"runtime", d.runtime},
                                  {"imports", d.plain_imports},
                                  {"refs", refs},
                                  {"stage", d.stage}});
  }
  out["stages"] = json::array();
  for (int k = 0; k < n; ++k) {
    const auto i = slicer.interface(k);
    out["stages"].push_back(
        {{"root", s.stage_roots[static_cast<std::size_t>(k)]}, {"receives", i.receives.size()}, {"needs_inputs", i.needs_inputs}});
  }
  return out;
}

inline json model_json(const Loaded& l, const std::string& name) {
  json inputs = json::array();
  for (const auto& [n, spec] : l.job.inputs) {
    json i;
    if (!spec.expression.empty()) i["expr"] = spec.expression;
    else {
      i["shape"] = spec.shape;
      i["dtype"] = std::string(model::torch_name(spec.dtype)).substr(6);
      i["low"] = spec.low;
      i["high"] = spec.high;
    }
    inputs.push_back({n, i});
  }
  json args = json::array();
  for (const auto& [k, v] : l.job.args) args.push_back({k, v});
  json imports = json::array();
  for (const auto& [k, v] : l.job.imports) imports.push_back({k, v});
  return {{"name", name},
          {"model", l.job.model},
          {"entry_module", l.traced->entry_module},
          {"python_path", l.job.python_path},
          {"args", args},
          {"imports", imports},
          {"build", l.job.build},
          {"setup", l.job.setup},
          {"inputs", inputs},
          {"train", l.job.train},
          {"partitions", json::array()}};
}

/// Every cut that generation accepts as a partition into two, and random partitions into three and four.
inline json everything(const Loaded& l, const std::string& name, std::vector<std::string>* refused, std::size_t most = 100000) {
  json m = model_json(l, name);
  rewrite::StageSlicer slicer(l.trace(), l.sources);
  pipeline::Options o;
  o.max_tensors = 64;
  std::vector<pipeline::Cut> good;
  for (const auto& cut : pipeline::legal_cuts(l.trace(), o)) {
    const std::string why = slicer.refuses(cut);
    if (!why.empty()) {
      if (refused) refused->push_back(pipeline::describe(l.trace(), l.sources, cut) + ": " + why);
      continue;
    }
    good.push_back(cut);
  }
  auto add = [&](std::vector<pipeline::Cut> cuts) {
    std::string label;
    for (const auto& c : cuts) {
      label += label.empty() ? "" : " | ";
      for (const auto& k : pipeline::key_of(l.trace(), c)) label += "/" + k;
    }
    pipeline::Partition p = pipeline::partition_at(l.trace(), o, cuts);
    json j = print(l, p, label);
    if (j.contains("error")) {
      if (refused) refused->push_back(label + ": PARTITION " + j["error"].get<std::string>());
    } else {
      m["partitions"].push_back(j);
    }
  };
  std::mt19937 random(11);
  std::vector<pipeline::Cut> some = good;
  if (some.size() > most) {
    std::shuffle(some.begin(), some.end(), random);
    some.resize(most);
  }
  for (const auto& c : some) add({c});
  for (int i = 0; i < std::min<int>(30, static_cast<int>(good.size())); ++i) {
    std::vector<pipeline::Cut> pick;
    const int n = 2 + i % 2;
    for (int k = 0; k < n; ++k) pick.push_back(good[random() % good.size()]);
    std::sort(pick.begin(), pick.end(), [](const auto& a, const auto& b) { return a.clock < b.clock; });
    bool distinct = true;
    for (std::size_t k = 1; k < pick.size(); ++k) distinct &= pick[k - 1].cost_before < pick[k].cost_before;
    if (distinct) add(pick);
  }
  return m;
}

inline std::string torch_python() {
  if (const char* p = std::getenv("SHARDWRIGHT_PYTHON")) return p;
  const std::string venv = std::string(SHARDWRIGHT_SOURCE_DIR) + "/.venv/bin/python";
  return std::filesystem::exists(venv) ? venv : "";
}

/// Runs the report; the exit status of stage_run.py, its output in `output`.
inline int run(const json& models, std::string& output) {
  const auto path = std::filesystem::temp_directory_path() / ("stage_run_" + std::to_string(std::random_device{}()) + ".json");
  std::ofstream(path) << json{{"models", models}};
  FILE* f =
      popen((torch_python() + " " + SHARDWRIGHT_SOURCE_DIR + "/tests/unit/rewrite/stage_run.py " + path.string() + " 2>&1").c_str(), "r");
  char buffer[4096];
  output.clear();
  while (f && fgets(buffer, sizeof buffer, f)) output += buffer;
  const int status = f ? pclose(f) : -1;
  std::filesystem::remove(path);
  return status;
}

}  // namespace stage_test
