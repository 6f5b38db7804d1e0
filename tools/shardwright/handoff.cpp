// shardwright handoff: converts what step files ask for and writes their results.
#include "driver/handoff.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli.h"

namespace shardwright::cli {
namespace {

struct Options : Common {
  std::string dir = ".", step;
};

int run(Options& o) {
  support::SourceManager sm;
  std::error_code ec;
  std::filesystem::current_path(o.dir, ec);
  if (ec) return report(support::failure("'" + o.dir + "' is no folder", {}, "usage"), sm, o);
  auto results = driver::handoff(".", o.step, sm, progress(o));
  end_progress();
  if (!results) return report(results.error(), sm, o);
  bool good = true;
  nlohmann::json list = nlohmann::json::array();
  for (const auto& r : *results) {
    good = good && (r.status == "success" || r.status == "partial");
    if (o.json) {
      nlohmann::json j{{"step_id", r.step_id}, {"status", r.status}, {"summary", r.summary}, {"completed", r.completed},
                       {"missing", r.missing}, {"risks", r.risks},   {"result", r.file}};
      j["artifacts"] = nlohmann::json::array();
      for (const auto& [path, type] : r.artifacts) j["artifacts"].push_back({{"path", path}, {"type", type}});
      list.push_back(std::move(j));
    } else {
      fmt::print("{}: {}: {}\n", r.step_id, r.status, r.summary);
      for (const auto& m : r.missing) fmt::print("  missing: {}\n", m);
    }
  }
  if (o.json) fmt::print("{}\n", list.dump(2));
  else if (results->empty()) fmt::print("nothing to do: every step has its result (--step ID runs one again)\n");
  return good ? kDone : kBadInput;
}

}  // namespace

Run add_handoff(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* c = app.add_subcommand("handoff", "read step_ID.yaml files that were handed over, convert, write step_ID_result.yaml");
  c->add_option("dir", o->dir, "the repository (default: here)");
  c->add_option("--step", o->step, "run this step, its result or not");
  add_output_options(*c, *o);
  return [o] { return run(*o); };
}

}  // namespace shardwright::cli
