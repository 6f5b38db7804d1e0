// shardwright convert: writes the parallel model.
#include "driver/convert.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli.h"
#include "plan_options.h"
#include "python/identifiers.h"
#include "rules/target.h"

namespace shardwright::cli {
namespace {

struct Options : Common {
  driver::ConvertRequest request;
};

int run(Options& o, const CLI::App& app) {
  support::SourceManager sm;
  o.request.model = o.model;
  auto plan = complete(app, o.request.plan, o.model, sm);
  if (!plan) return report(plan.error(), sm, o);
  o.request.plan = *plan;
  auto done = driver::convert(o.request, sm, progress(o));
  end_progress();
  if (!done) return report(done.error(), sm, o);
  const auto& a = *done->analysis;
  warn_missing(a.traced->trace, sm, o);
  for (const auto& w : a.warnings) warn(w, sm, o);
  for (const auto& w : a.plan.warnings) warn({support::Severity::Warning, "plan", {}, w, {}, {}}, sm, o);
  for (const auto& f : a.plan.fallbacks)
    warn({support::Severity::Warning,
          "fallback",
          {},
          (f.where.empty() ? "" : f.where + ": ") + (f.module.empty() ? "" : f.module + ": ") + f.reason,
          {},
          {}},
         sm, o);
  if (o.request.diff) {
    std::fputs(done->diff.c_str(), stdout);
    return kDone;
  }
  if (o.json) {
    nlohmann::json j;
    j["out"] = done->out;
    j["files"] = nlohmann::json::array();
    for (const auto& f : done->files) j["files"].push_back(f.path);
    j["written"] = done->written;
    j["findings"] = nlohmann::json::array();
    j["fallbacks"] = nlohmann::json::array();
    for (const auto& f : a.plan.fallbacks) j["fallbacks"].push_back({{"module", f.module}, {"where", f.where}, {"reason", f.reason}});
    j["warnings"] = a.plan.warnings;
    j["left"] = done->left;
    j["plan"] = plan::to_json(a.plan);
    fmt::print("{}\n", j.dump(2));
    return kDone;
  }
  if (!o.quiet) {
    if (done->written.empty()) fmt::print("{}: nothing to do, {} files are up to date\n", done->out, done->files.size());
    else {
      fmt::print("{}: {} of {} files written\n", done->out, done->written.size(), done->files.size());
      for (const auto& f : done->written) fmt::print("  {}\n", f);
      for (const auto& f : done->merged) fmt::print("  {} keeps your changes\n", f);
      if (!done->tables.empty()) fmt::print("{}\n", done->tables);
      if (!done->left.empty()) fmt::print("Left to you, of the training script (README.md beside train.py has the same list):\n");
      for (const auto& l : done->left) fmt::print("  {}\n", l);
      fmt::print("next: {}\n", done->next);
    }
  }
  return kDone;
}

}  // namespace

Run add_convert(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* c = app.add_subcommand("convert", "write the parallel model: modules, stages, training script, params.yaml");
  add_model_options(*c, *o);
  add_plan_options(*c, o->request.plan);
  std::string targets;
  for (const auto& t : rules::target_names()) targets += (targets.empty() ? "" : ", ") + t;
  c->add_option("-o,--out", o->request.out, "directory to write");
  c->add_option("--target", o->request.target, "what the code is written for: " + targets);
  c->add_option("--recompute", o->request.recompute,
                "activations that training computes again in backward: full, selective (attention) or none")
      ->check(CLI::IsMember({"full", "selective", "none"}));
  c->add_option("--name", o->request.name, "name of the package (default: the class in snake case)")->check([](const std::string& n) {
    return python::is_identifier(n) ? "" : "'" + n + "' is no name that Python can import; '" + python::identifier(n) + "' is";
  });
  c->add_flag("--diff", o->request.diff, "show what would change, write nothing");
  c->add_flag("--update", o->request.update, "merge changes made by hand with what is generated now");
  c->add_flag("--force", o->request.force, "overwrite files that were changed by hand");
  c->add_flag("--strict", o->request.strict, "any part that would stay replicated is an error");
  return [o, c] { return run(*o, *c); };
}

}  // namespace shardwright::cli
