// Options of plan and convert alike.
#pragma once
#include <algorithm>

#include "cli.h"

namespace shardwright::cli {

inline void add_plan_options(CLI::App& app, driver::PlanRequest& p) {
  app.add_option("--tp", p.grid.tp, "tensor-parallel size (default: the job's, else 1)");
  app.add_option("--pp", p.grid.pp, "pipeline stages (default: the job's, else 1)");
  app.add_option("--dp", p.grid.dp, "data-parallel size (default: the job's, else 1)");
  app.add_option("--micro-batches", p.micro_batches, "micro-batches a step");
  app.add_option("--schedule", p.schedule, "1f1b (default), gpipe, zb-h1; with several stages a rank: interleaved, zb-v")
      ->check(CLI::IsMember(driver::kSchedules));
  app.add_option("--virtual-stages", p.grid.virtual_stages,
                 "stages that each pipeline rank holds (default: 1; 2 with interleaved and zb-v)");
  app.add_option("--objective", p.objective, "what to split for: split (all that can be), time or memory")
      ->check(CLI::IsMember({"split", "time", "memory"}));
  app.add_option("--device", p.device, "device profile for time and memory (rules/devices)");
  app.add_option("--plan", p.plan_file, "replay a plan.yaml: its sizes, its axes, its cuts");
}

/// What the command line leaves out comes from the plan that is replayed, else from the job file.
inline support::Expected<driver::PlanRequest> complete(const CLI::App& app, driver::PlanRequest p, const driver::ModelRequest& model,
                                                       support::SourceManager& sm) {
  auto job = driver::load_job(model, sm);
  if (!job) return job.error();
  if (!p.plan_file.empty()) {
    const auto plan = driver::read_plan(p, sm);
    if (!plan) return plan.error();
    job->grid = {plan->grid.tp, plan->grid.pp, plan->grid.dp, plan->grid.virtual_stages};
    job->micro_batches = plan->grid.micro_batches;
    job->schedule = plan->grid.schedule;
    if (!app.count("--objective")) p.objective = plan->objective;
    if (!app.count("--device")) p.device = plan->device;
  }
  if (!app.count("--tp")) p.grid.tp = job->grid.tp;
  if (!app.count("--pp")) p.grid.pp = job->grid.pp;
  if (!app.count("--dp")) p.grid.dp = job->grid.dp;
  if (!app.count("--micro-batches")) p.micro_batches = job->micro_batches;
  const bool stated = app.count("--virtual-stages") > 0;
  if (!stated) p.grid.virtual_stages = job->grid.virtual_stages;
  int& v = p.grid.virtual_stages;
  if (!app.count("--schedule")) p.schedule = !job->schedule.empty() ? job->schedule : v > 1 ? "interleaved" : "1f1b";
  auto usage = [](std::string message) { return support::failure(std::move(message), {}, "usage"); };
  if (std::find(driver::kSchedules.begin(), driver::kSchedules.end(), p.schedule) == driver::kSchedules.end()) {
    std::string known;
    for (const auto& s : driver::kSchedules) known += (known.empty() ? "" : ", ") + s;
    return usage("there is no schedule '" + p.schedule + "'; known are " + known);
  }
  if (v < 1) return usage("--virtual-stages must be at least 1");
  const bool several = p.schedule == "interleaved" || p.schedule == "zb-v";
  if (several && v == 1 && !stated) v = 2;
  if (several ? v < 2 : v > 1)
    return usage("--virtual-stages " + std::to_string(v) + " does not go with --schedule " + p.schedule +
                 ": interleaved and zb-v have two or more stages a rank, the others one");
  if (p.schedule == "zb-v" && v != 2)
    return usage("--virtual-stages " + std::to_string(v) + " does not go with --schedule zb-v, which has two stages a rank");
  p.grid.pp *= v;
  return p;
}

}  // namespace shardwright::cli
