// shardwright plan: what would be split and cut, with costs and reasons.
#include "plan/plan.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli.h"
#include "plan_options.h"
#include "report/html.h"
#include "sharding/json.h"
#include "support/files.h"

namespace shardwright::cli {
namespace {

struct Options : Common {
  driver::PlanRequest plan;
  std::string out, report;
  bool explain = false;
};

std::string bytes(double b) {
  if (b >= 1e9) return fmt::format("{:.2f} GB", b / 1e9);
  if (b >= 1e6) return fmt::format("{:.2f} MB", b / 1e6);
  return fmt::format("{:.1f} kB", b / 1e3);
}

void print(const plan::Plan& p, bool explain) {
  fmt::print("{}: tp {} x pp {} x dp {}, {} micro-batches, {}\n", p.model, p.grid.tp, p.grid.pp, p.grid.dp, p.grid.micro_batches,
             p.grid.schedule);
  if (p.grid.tp > 1) {
    fmt::print("\nsplit over tp:\n");
    if (p.roles.empty()) fmt::print("  nothing\n");
    for (const auto& r : p.roles) {
      fmt::print("  {:<28} {:<20} {:<28} {}\n", r.type, r.attribute, r.role + (r.instances > 1 ? fmt::format(" ({}x)", r.instances) : ""),
                 r.layer);
      if (explain && !r.reason.empty()) fmt::print("      {}\n", r.reason);
    }
    if (explain) {
      fmt::print("\naxes:\n");
      for (const auto& x : p.axes)
        fmt::print("  {:>6} {:<5} {} parameters, first {}{}\n", x.size, x.split ? "split" : "whole", x.parameters.size(),
                   x.parameters.empty() ? "-" : x.parameters.front(), x.why_not.empty() ? "" : ": " + x.why_not);
    }
  }
  fmt::print("\nstages ({} legal cuts; slowest/mean {:.3f}, optimum {:.3f}):\n", p.legal_cuts, p.slowest_over_mean,
             p.optimum_slowest_over_mean);
  for (std::size_t k = 0; k < p.stages.size(); ++k) {
    const auto& s = p.stages[k];
    fmt::print("  {}: {:.3g} FLOPs ({:.0f} %), {} parameters and {:.3f} GiB a rank\n", k, s.flops, 100 * s.share, s.parameters, s.gib);
    for (const auto& c : s.cut) {
      std::string sends;
      for (const auto& x : c.sends) {
        std::string shape;
        for (auto d : x.shape) shape += (shape.empty() ? "" : ",") + std::to_string(d);
        sends += (sends.empty() ? "" : ", ") + x.name + " " + x.dtype + "[" + shape + "]";
      }
      fmt::print("     ends {}; sends {} ({})\n", c.at, sends.empty() ? "nothing" : sends, bytes(static_cast<double>(c.bytes)));
    }
  }
  if (!p.collectives.empty()) {
    fmt::print("\ncollectives a step, by tag:\n");
    std::map<std::string, std::pair<double, double>> by_tag;
    for (const auto& c : p.collectives) by_tag[c.tag].first += c.count, by_tag[c.tag].second += c.bytes;
    for (const auto& [tag, sum] : by_tag) fmt::print("  {:<22} {:>6.0f} calls {:>12}\n", tag, sum.first, bytes(sum.second));
    if (explain)
      for (const auto& c : p.collectives)
        fmt::print("    {:<20} {:<12} {:<40} {:>4.0f} x {}\n", c.tag, c.kind, c.site, c.count, bytes(c.bytes / std::max(1.0, c.count)));
  }
  if (!p.fallbacks.empty()) {
    fmt::print("\nstays replicated:\n");
    for (const auto& f : p.fallbacks)
      fmt::print("  {}{}{}\n", f.where.empty() ? "" : f.where + ": ", f.module.empty() ? "" : f.module + ": ", f.reason);
  }
}

int run(Options& o, const CLI::App& app) {
  support::SourceManager sm;
  auto want = complete(app, o.plan, o.model, sm);
  if (!want) return cli::report(want.error(), sm, o);
  auto a = driver::analyse(o.model, *want, sm, progress(o));
  end_progress();
  if (!a) return cli::report(a.error(), sm, o);
  warn_missing((*a)->traced->trace, sm, o);
  for (const auto& w : (*a)->warnings) warn(w, sm, o);
  for (const auto& w : (*a)->plan.warnings) warn({support::Severity::Warning, "plan", {}, w, {}, {}}, sm, o);
  if (!o.out.empty())
    if (auto w = support::write_file(o.out, plan::to_yaml((*a)->plan)); !w) return cli::report(w.error(), sm, o);
  if (!o.report.empty()) {
    report::TreeOptions options{(*a)->rules.get(), &(*a)->sharding, &(*a)->partition};
    auto html = report::html((*a)->plan, report::tree((*a)->traced->trace, sm, options));
    if (auto w = support::write_file(o.report, html); !w) return cli::report(w.error(), sm, o);
  }
  if (o.json) {
    auto j = plan::to_json((*a)->plan);
    // Which dimensions of which parameters an axis cuts, in the oracle's format (tests/oracle): the plan itself only names axes.
    j["sharding"] = nlohmann::json::parse(sharding::to_json((*a)->traced->trace, (*a)->sharding));
    fmt::print("{}\n", j.dump(2));
  } else if (!o.quiet) {
    print((*a)->plan, o.explain);
    if (o.explain && !(*a)->refused_cuts.empty()) {
      fmt::print("\ncuts that the source cannot be written for:\n");
      for (const auto& [why, count] : (*a)->refused_cuts) fmt::print("  {:>4} {}\n", count, why);
    }
  }
  return kDone;
}

}  // namespace

Run add_plan(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* c = app.add_subcommand("plan", "what would be split and cut, with costs and reasons");
  add_model_options(*c, *o);
  add_plan_options(*c, o->plan);
  c->add_option("-o,--out", o->out, "write plan.yaml");
  c->add_option("--report", o->report, "write a report with pictures: out.html");
  c->add_flag("--explain", o->explain, "why, for every choice");
  return [o, c] { return run(*o, *c); };
}

}  // namespace shardwright::cli
