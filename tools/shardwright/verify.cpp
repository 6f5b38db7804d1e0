// shardwright verify: runs original and generated program and compares; the work is done by the Python package beside the runtime.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli.h"
#include "driver/python.h"
#include "driver/verify_cxx.h"
#include "plan/plan.h"
#include "support/files.h"

namespace shardwright::cli {
namespace {

struct Options : Common {
  std::string dir, dtype = "f64", device = "cpu", python;
  int tp = 0, dp = 0, steps = 3, micro_batches = 0;
  double tolerance = 0, timeout = 0;
  bool with_dropout = false, all_grids = false;
};

/// A model in C++: both programs are built and run here.
int run_cxx(Options& o, support::SourceManager& sm) {
  auto text = support::read_file((std::filesystem::path(o.dir) / "plan.yaml").string());
  if (!text) return report(text.error(), sm, o);
  auto plan = plan::from_yaml(*text, "plan.yaml", sm);
  if (!plan) return report(plan.error(), sm, o);
  driver::CxxVerifyRequest r;
  r.dir = o.dir;
  r.tp = o.tp ? o.tp : plan->grid.tp;
  r.steps = o.steps;
  if (o.micro_batches) r.micro_batches = o.micro_batches;
  if (o.tolerance > 0) r.tolerance = o.tolerance;
  r.python = o.python;
  if (o.dtype != "f64" || o.device != "cpu" || o.with_dropout || o.all_grids || o.dp > 1)
    return report(
        support::failure("verify of a model in C++ runs in f64 on CPUs at one tensor-parallel size, without dropout and data parallelism",
                         {}, "usage"),
        sm, o);
  auto done = driver::verify_cxx(r, progress(o));
  end_progress();
  if (!done) return report(done.error(), sm, o);
  if (o.json) {
    nlohmann::json j{{"same", done->same}, {"grid", {{"tp", r.tp}, {"pp", 1}, {"dp", 1}}}, {"seconds", done->seconds}};
    for (const auto& [k, n] : done->compared) j["compared"][k] = n;
    for (const auto& [k, d] : done->worst) j["max_rel"][k] = std::isfinite(d) ? nlohmann::json(d) : nlohmann::json("inf");
    j["first_difference"] = done->first_difference.empty() ? nlohmann::json(nullptr) : nlohmann::json(done->first_difference);
    fmt::print("{}\n", j.dump(2));
  } else if (!o.quiet) {
    for (std::size_t i = 0; i < done->compared.size(); ++i)
      fmt::print("{:<10} {:>5} compared, largest relative difference {:.2e}\n", done->compared[i].first, done->compared[i].second,
                 done->worst[i].second);
    if (done->same) fmt::print("same: tp {} in {:.0f} s\n", r.tp, done->seconds);
    else fmt::print("DIFFERENT: first at {}\n", done->first_difference);
  }
  return done->same ? kDone : kFindings;
}

int run(Options& o) {
  support::SourceManager sm;
  namespace fs = std::filesystem;
  if (!fs::is_directory(o.dir))
    return report(support::failure(o.dir + ": there is no such directory; expected one that `shardwright convert -o` wrote", {}, "input"),
                  sm, o);
  if (!fs::exists(fs::path(o.dir) / "plan.yaml") && !fs::exists(fs::path(o.dir) / ".shardwright" / "plan.yaml"))
    return report(support::failure(o.dir + ": no plan.yaml in it; expected a directory that `shardwright convert -o` wrote", {}, "input"),
                  sm, o);
  if (driver::is_cxx_directory(o.dir)) return run_cxx(o, sm);
  auto python = driver::find_python(o.python);
  if (!python) return report(python.error(), sm, o);
  std::vector<std::string> args{*python,   "-m",    "shardwright.verify", o.dir,   "--steps", std::to_string(o.steps),
                                "--dtype", o.dtype, "--device",           o.device};
  auto add = [&](const char* name, std::string value) { args.push_back(name), args.push_back(std::move(value)); };
  if (o.tp) add("--tp", std::to_string(o.tp));
  if (o.dp) add("--dp", std::to_string(o.dp));
  if (o.micro_batches) add("--micro-batches", std::to_string(o.micro_batches));
  if (o.tolerance > 0) add("--tolerance", fmt::format("{}", o.tolerance));
  if (o.timeout > 0) add("--timeout", fmt::format("{}", o.timeout));
  if (o.with_dropout) args.push_back("--with-dropout");
  if (o.all_grids) args.push_back("--all-grids");
  if (o.json) args.push_back("--json");
  if (o.quiet) args.push_back("-q");
  return driver::run_python(args);
}

}  // namespace

Run add_verify(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* c = app.add_subcommand("verify", "run original and generated program and compare loss, gradients and weights");
  c->add_option("DIR", o->dir, "a directory that convert wrote")->required();
  c->add_option("--tp", o->tp, "tensor-parallel size (default: the plan's)");
  c->add_option("--dp", o->dp, "data-parallel size (default: the plan's)");
  c->add_flag("--all-grids", o->all_grids, "every tp that divides");
  c->add_option("--steps", o->steps, "optimizer steps");
  c->add_option("--micro-batches", o->micro_batches, "micro-batches a step and data-parallel rank");
  c->add_option("--dtype", o->dtype, "f64 or f32")->check(CLI::IsMember({"f64", "f32"}));
  c->add_option("--device", o->device, "cpu or cuda")->check(CLI::IsMember({"cpu", "cuda"}));
  c->add_option("--tolerance", o->tolerance, "bound on the relative difference");
  c->add_option("--timeout", o->timeout, "seconds after which a hanging run is ended");
  c->add_flag("--with-dropout", o->with_dropout, "dropout on, with one mask for both programs");
  c->add_option("--python", o->python, "interpreter with torch and the runtime");
  add_output_options(*c, *o);
  return [o] { return run(*o); };
}

}  // namespace shardwright::cli
