// shardwright init: a first job file for a class.
#include "driver/init.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli.h"
#include "support/files.h"

namespace shardwright::cli {
namespace {

struct Options : Common {
  std::string out;
  bool force = false;
};

int run(Options& o) {
  support::SourceManager sm;
  auto job = driver::first_job(o.model, support::parent_path(o.out), sm);
  end_progress();
  if (!job) return report(job.error(), sm, o);
  const std::string path = o.out.empty() ? job->name : o.out;
  if (path == "-") {
    fmt::print("{}", job->text);
    return kDone;
  }
  if (support::is_file(path) && !o.force)
    return report(support::failure("'" + path + "' exists; --force writes over it, -o names another file, -o - prints", {}, "usage"), sm,
                  o);
  if (auto ok = support::write_file(path, job->text); !ok) return report(ok.error(), sm, o);
  if (!job->trouble.empty())
    warn({support::Severity::Warning, "init", {}, "the analysis does not get through with the guesses: " + job->trouble, {}, {}}, sm, o);
  if (o.json)
    fmt::print("{}\n", nlohmann::ordered_json{{"file", path}, {"works", job->trouble.empty()}, {"trouble", job->trouble}}.dump(2));
  else fmt::print("{}\n", path);
  return kDone;
}

}  // namespace

Run add_init(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* c = app.add_subcommand("init", "write a first job file for a class, guesses marked as such");
  add_model_options(*c, *o);
  c->add_option("-o,--output", o->out, "the job file (default: the class's name in small letters + .yaml; - prints)");
  c->add_flag("--force", o->force, "write over an existing file");
  return [o] { return run(*o); };
}

}  // namespace shardwright::cli
