// shardwright verify: runs original and generated program and compares; the work is done by the Python package beside the runtime.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "cli.h"
#include "driver/python.h"

namespace shardwright::cli {
namespace {

struct Options : Common {
  std::string dir, dtype = "f64", device = "cpu", python;
  int tp = 0, dp = 0, steps = 3, micro_batches = 0;
  double tolerance = 0, timeout = 0;
  bool with_dropout = false, all_grids = false;
};

int run(Options& o) {
  support::SourceManager sm;
  namespace fs = std::filesystem;
  if (!fs::is_directory(o.dir)) return report(support::failure(o.dir + ": there is no such directory; expected one that `shardwright convert -o` wrote", {}, "input"), sm, o);
  if (!fs::exists(fs::path(o.dir) / "plan.yaml") && !fs::exists(fs::path(o.dir) / ".shardwright" / "plan.yaml")) return report(support::failure(o.dir + ": no plan.yaml in it; expected a directory that `shardwright convert -o` wrote", {}, "input"), sm, o);
  auto python = driver::find_python(o.python);
  if (!python) return report(python.error(), sm, o);
  std::vector<std::string> args{*python, "-m", "shardwright.verify", o.dir, "--steps", std::to_string(o.steps), "--dtype", o.dtype, "--device", o.device};
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
