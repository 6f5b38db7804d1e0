// Options of plan and convert alike.
#pragma once
#include "cli.h"

namespace shardwright::cli {

inline void add_plan_options(CLI::App& app, driver::PlanRequest& p) {
  app.add_option("--tp", p.grid.tp, "tensor-parallel size (default: the job's, else 1)");
  app.add_option("--pp", p.grid.pp, "pipeline stages (default: the job's, else 1)");
  app.add_option("--dp", p.grid.dp, "data-parallel size (default: the job's, else 1)");
  app.add_option("--micro-batches", p.micro_batches, "micro-batches a step");
  app.add_option("--schedule", p.schedule, "gpipe or 1f1b")->check(CLI::IsMember({"gpipe", "1f1b"}));
  app.add_option("--objective", p.objective, "what to split for: split (all that can be), time or memory")->check(CLI::IsMember({"split", "time", "memory"}));
  app.add_option("--device", p.device, "device profile for time and memory (rules/devices)");
  app.add_option("--plan", p.plan_file, "replay a plan.yaml");
}

/// Sizes that the command line leaves out come from the job file.
inline support::Expected<driver::PlanRequest> complete(const CLI::App& app, driver::PlanRequest p, const driver::ModelRequest& model, support::SourceManager& sm) {
  auto job = driver::load_job(model, sm);
  if (!job) return job.error();
  if (!app.count("--tp")) p.grid.tp = job->grid.tp;
  if (!app.count("--pp")) p.grid.pp = job->grid.pp;
  if (!app.count("--dp")) p.grid.dp = job->grid.dp;
  if (!app.count("--micro-batches")) p.micro_batches = job->micro_batches;
  if (!app.count("--schedule")) p.schedule = job->schedule;
  return p;
}

}  // namespace shardwright::cli
