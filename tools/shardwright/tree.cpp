// shardwright tree: the call-chain tree.
#include "report/tree.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "cli.h"
#include "eval/imports.h"

namespace shardwright::cli {
namespace {

struct Options : Common {
  std::string format = "text";
  int depth = 1000;
  bool unfolded = false;
  driver::PlanRequest plan;
};

int run(Options& o) {
  support::SourceManager sm;
  auto begin = std::chrono::steady_clock::now();
  const bool planned = o.plan.grid.tp > 1 || o.plan.grid.pp > 1;
  auto a = planned ? driver::analyse(o.model, o.plan, sm, progress(o)) : driver::trace_model(o.model, sm, progress(o));
  end_progress();
  if (!a) return report(a.error(), sm, o);
  const auto& t = (*a)->traced->trace;
  report::TreeOptions options;
  options.rules = (*a)->rules.get();
  if (planned) options.placement = &(*a)->sharding, options.partition = &(*a)->partition;
  auto root = report::tree(t, sm, options);
  if (o.json) o.format = "json";
  if (o.format == "json") fmt::print("{}\n", report::to_json(root).dump(2));
  else if (o.format == "mermaid") fmt::print("{}", report::to_mermaid(root, o.depth));
  else if (o.format == "dot") fmt::print("{}", report::to_dot(root, o.depth));
  else fmt::print("{}", report::to_text(root, {o.color == "always" || (o.color == "auto" && ::isatty(1)), o.depth, o.unfolded}));
  warn_missing(t, sm, o);
  for (auto& n : eval::not_followed(*(*a)->traced))
    warn({support::Severity::Warning, "analysis", n.range, std::move(n.message), {}, {}}, sm, o);
  for (const auto& i : t.incomplete) {
    if (!o.verbose) break;
    warn({support::Severity::Note, "incomplete", i.range, i.why, {}, {}}, sm, o);
  }
  if (o.stats)
    fmt::print(stderr, "{} files read, {} operations, {} modules, {:.1f} ms\n", sm.size(), t.ops.size(), t.modules.size(),
               std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
  return kDone;
}

}  // namespace

Run add_tree(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* c = app.add_subcommand("tree", "the call-chain tree: every module with class, place, parameters, FLOPs");
  add_model_options(*c, *o);
  c->add_option("--format", o->format, "text, json, mermaid or dot")->check(CLI::IsMember({"text", "json", "mermaid", "dot"}));
  c->add_option("--depth", o->depth, "levels to show");
  c->add_flag("--unfolded", o->unfolded, "equal siblings each on a line of its own");
  c->add_option("--tp", o->plan.grid.tp, "show roles at this tensor-parallel size");
  c->add_option("--pp", o->plan.grid.pp, "show stages of this many");
  return [o] { return run(*o); };
}

}  // namespace shardwright::cli
