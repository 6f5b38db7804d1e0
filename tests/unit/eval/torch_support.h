// Traces a model given as text: `body` is Python with a class M(nn.Module); inputs as in job files.
#pragma once
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>

#include "eval/run.h"
#include "model/dump.h"

namespace torch_test {

using namespace shardwright;

struct Run {
  support::SourceManager sm;
  std::unique_ptr<eval::Traced> traced;
  std::string error;
  const model::Trace& t() const { return traced->trace; }
  /// Shape of the (first) output.
  std::vector<std::int64_t> shape() const {
    auto ids = model::tensors_of(t().output);
    return ids.empty() ? std::vector<std::int64_t>{-1} : t().tensor(ids[0]).shape;
  }
  model::DType dtype() const { return t().tensor(model::tensors_of(t().output).at(0)).dtype; }
  /// Operations of forward, by the last part of their names.
  std::vector<const model::Op*> ops(const std::string& name = "") const {
    std::vector<const model::Op*> out;
    for (const auto& op : t().ops)
      if (op.clock > t().forward_begin && (name.empty() || op.name.substr(op.name.rfind('.') + 1) == name)) out.push_back(&op);
    return out;
  }
  const model::Op& op(const std::string& name) const {
    auto all = ops(name);
    if (all.empty()) FAIL("no operation " << name << " in\n" << model::dump_ops(t()));
    return *all[0];
  }
  std::string text(support::Range r) const { return std::string(sm.text(r)); }
};

inline std::unique_ptr<Run> trace(const std::string& body, const std::map<std::string, std::string>& inputs,
                                  const std::string& build = "M()", bool train = false) {
  static int n = 0;
  auto dir = std::filesystem::temp_directory_path() / ("shardwright-torch-" + std::to_string(::getpid()));
  std::filesystem::create_directories(dir);
  std::string name = "m" + std::to_string(n++);
  std::ofstream(dir / (name + ".py")) << "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n" << body;
  eval::Job job;
  job.model = name + ":M";
  job.python_path = {dir.string()};
  job.build = build;
  job.train = train;
  for (const auto& [k, v] : inputs) {
    auto spec = eval::parse_input(v);
    if (!spec) FAIL(spec.error().message);
    job.inputs.emplace_back(k, *spec);
  }
  auto run = std::make_unique<Run>();
  auto r = eval::trace(job, {}, run->sm);
  if (r) run->traced = std::move(*r);
  else run->error = support::render(r.error(), run->sm);
  std::filesystem::remove(dir / (name + ".py"));
  return run;
}

/// A model whose forward is one expression of x (and y).
inline std::unique_ptr<Run> expression(const std::string& e, const std::map<std::string, std::string>& inputs) {
  std::string params;
  for (const auto& [k, v] : inputs) params += ", " + k;
  return trace("class M(nn.Module):\n    def forward(self" + params + "):\n        return " + e + "\n", inputs);
}

}  // namespace torch_test
