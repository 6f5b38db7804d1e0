// shardwright doctor: what is here, and what each command would miss.
#include "driver/doctor.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli.h"

namespace shardwright::cli {
namespace {

struct Options : Common {
  std::string python;
};

int run(const Options& o) {
  const auto health = driver::examine(o.python);
  if (o.json) {
    nlohmann::ordered_json j{{"found", nlohmann::ordered_json::array()}, {"commands", nlohmann::ordered_json::array()}};
    for (const auto& f : health.found) j["found"].push_back({{"what", f.what}, {"there", f.there}, {"detail", f.detail}});
    for (const auto& c : health.commands)
      j["commands"].push_back({{"command", c.command}, {"works", c.missing.empty()}, {"missing", c.missing}, {"note", c.note}});
    fmt::print("{}\n", j.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    return kDone;
  }
  for (const auto& f : health.found) fmt::print("{}  {:<14} {}\n", f.there ? "found  " : "missing", f.what, f.detail);
  fmt::print("\n");
  for (const auto& c : health.commands) {
    std::string missing;
    for (const auto& m : c.missing) missing += (missing.empty() ? "" : ", ") + m;
    fmt::print("{}  {}{}{}\n", c.missing.empty() ? "works  " : "misses ", c.command, missing.empty() ? "" : ": " + missing,
               c.note.empty() ? "" : " (" + c.note + ")");
  }
  return kDone;
}

}  // namespace

Run add_doctor(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* c =
      app.add_subcommand("doctor", "what is found here (Python, torch, runtime, GPUs, compilers) and what each command would miss");
  c->add_option("--python", o->python, "interpreter to ask (default: as verify)");
  add_output_options(*c, *o);
  return [o] { return run(*o); };
}

}  // namespace shardwright::cli
