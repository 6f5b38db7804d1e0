// plan.yaml and its JSON: the same content, the YAML with comments for the reader. Written by hand, not by an emitter: the order,
// the comments and the line breaks are part of what makes a plan comparable with diff.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "plan/plan.h"

namespace shardwright::plan {
namespace {

/// A scalar that YAML reads back as the same string.
std::string quoted(const std::string& s) {
  static const std::string plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-";
  const bool word = !s.empty() && s.find_first_not_of(plain) == std::string::npos && s[0] != '-' && s[0] != '.' &&
      s.find_first_not_of("0123456789.eE-") != std::string::npos && s != "true" && s != "false" && s != "null" && s != "yes" && s != "no" &&
      s != "on" && s != "off";
  if (word) return s;
  std::string out = "\"";
  for (const char c : s) {
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\t': out += "\\t"; break;
      case '\r': out += "\\r"; break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) out += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
        else out += c;
    }
  }
  return out + "\"";
}

template <class T, class F>
std::string flow(const std::vector<T>& v, F f) {
  std::string out = "[";
  for (std::size_t i = 0; i < v.size(); ++i) out += (i ? ", " : "") + f(v[i]);
  return out + "]";
}
std::string flow(const std::vector<std::string>& v) {
  return flow(v, [](const std::string& s) { return quoted(s); });
}
std::string flow(const std::vector<std::int64_t>& v) {
  return flow(v, [](std::int64_t n) { return std::to_string(n); });
}

/// Enough digits to read back the same number, no more.
std::string number(double v) {
  if (std::floor(v) == v && std::fabs(v) < 1e15) return fmt::format("{:.0f}", v);
  return fmt::format("{}", v);
}
std::string ratio(double v) { return fmt::format("{:.4f}", v); }
const char* by(By b) { return b == By::Pinned ? "pinned" : "auto"; }

}  // namespace

std::string to_yaml(const Plan& p) {
  std::string o;
  auto line = [&](const std::string& s) { o += s + "\n"; };
  line("# The parallel plan: what becomes of every layer, where the pipeline is cut, what it costs.");
  line("# `by: auto` is the analysis' choice, `by: pinned` yours: edit an entry, set `by: pinned`, and pass the file back with --plan.");
  line("version: 1");
  line("model: " + quoted(p.model));
  if (!p.package.empty()) line("package: " + quoted(p.package));
  line(fmt::format("grid: {{tp: {}, pp: {}, dp: {}, virtual_stages: {}}}", p.grid.tp, p.grid.pp, p.grid.dp, p.grid.virtual_stages));
  line("micro_batches: " + std::to_string(p.grid.micro_batches));
  line("schedule: " + quoted(p.grid.schedule));
  line("objective: " + quoted(p.objective));
  if (!p.device.empty()) line("device: " + quoted(p.device));
  line("");
  line("# What each attribute becomes; what is not listed stays replicated.");
  line(p.roles.empty() ? "roles: []" : "roles:");
  for (const Role& r : p.roles) {
    line("  - class: " + quoted(r.type));
    line("    attribute: " + quoted(r.attribute));
    line("    role: " + quoted(r.role));
    if (!r.layer.empty()) line("    layer: " + quoted(r.layer));
    if (!r.reason.empty()) line("    reason: " + quoted(r.reason));
    line("    instances: " + std::to_string(r.instances));
    if (!r.only.empty()) line("    only: " + flow(r.only));
  }
  line("");
  line("# Logical axes that can be split over tp. Bytes of activations are for one micro-batch.");
  line(p.axes.empty() ? "axes: []" : "axes:");
  for (const Axis& a : p.axes) {
    line("  - split: " + std::string(a.split ? "true" : "false"));
    line("    by: " + std::string(by(a.by)));
    line("    size: " + std::to_string(a.size));
    line("    parameters: " + flow(a.parameters));
    line("    parameter_bytes: " + number(a.parameter_bytes) + "  # " + human_bytes(a.parameter_bytes));
    line("    forward_bytes: " + number(a.forward_bytes));
    line("    backward_bytes: " + number(a.backward_bytes));
    if (!a.why_not.empty()) line("    why_not: " + quoted(a.why_not));
    if (a.given_up) line("    given_up: true");
    line("    key: " + quoted(a.key));
  }
  line("");
  line(fmt::format("balance: {{slowest_over_mean: {}, optimum: {}, legal_cuts: {}}}", ratio(p.slowest_over_mean),
                   ratio(p.optimum_slowest_over_mean), p.legal_cuts));
  line(p.stages.empty() ? "stages: []" : "stages:");
  for (std::size_t k = 0; k < p.stages.size(); ++k) {
    const Stage& s = p.stages[k];
    line("  - stage: " + std::to_string(k));
    line("    flops: " + number(s.flops) + "  # " + human_flops(s.flops) + ", forward, one micro-batch");
    line("    share: " + ratio(s.share));
    line("    parameters: " + std::to_string(s.parameters) + "  # on one rank");
    line("    gib: " + ratio(s.gib) + "  # parameters, gradients and Adam's moments on one rank");
    line("    modules: " + flow(s.modules));
    for (const Cut& c : s.cut) {
      line("    cut:");
      line("      at: " + quoted(c.at));
      line("      by: " + std::string(by(c.by)));
      line("      key: " + flow(c.key));
      line("      bytes: " + std::to_string(c.bytes) + "  # " + human_bytes(static_cast<double>(c.bytes)) + " a micro-batch");
      line(c.sends.empty() ? "      sends: []" : "      sends:");
      for (const Crossing& x : c.sends)
        line(fmt::format("        - {{name: {}, shape: {}, dtype: {}, bytes: {}, gradient: {}}}", quoted(x.name), flow(x.shape), x.dtype,
                         x.bytes, x.gradient));
      if (!c.recomputed.empty()) line("      recomputed: " + flow(c.recomputed));
      if (!c.inputs.empty()) line("      inputs: " + flow(c.inputs));
    }
  }
  if (!p.tied.empty()) {
    line("tied:");
    for (const auto& [name, n] : p.tied) line("  - {parameter: " + quoted(name) + ", stages: " + std::to_string(n) + "}");
  }
  line("");
  line("# What one rank hands to the collectives in one optimizer step.");
  line(p.collectives.empty() ? "collectives: []" : "collectives:");
  for (const Collective& c : p.collectives)
    line(fmt::format("  - {{tag: {}, kind: {}, site: {}, stage: {}, count: {}, bytes: {}}}", c.tag, c.kind, quoted(c.site),
                     c.stage < 0 ? "all" : std::to_string(c.stage), number(c.count), number(c.bytes)));
  if (!p.fallbacks.empty()) {
    line("");
    line("# Could have been split and is not.");
    line("fallbacks:");
    for (const Fallback& f : p.fallbacks) {
      line("  - module: " + quoted(f.module));
      line("    where: " + quoted(f.where));
      line("    reason: " + quoted(f.reason));
    }
  }
  if (!p.warnings.empty()) {
    line("warnings:");
    for (const std::string& w : p.warnings) line("  - " + quoted(w));
  }
  if (!p.job.empty()) {
    line("");
    line("# The job this plan was made for; `verify` and a second `convert` read it from here.");
    line("job:");
    std::size_t from = 0;
    while (from < p.job.size()) {
      const auto end = p.job.find('\n', from);
      const std::string text = p.job.substr(from, end == std::string::npos ? std::string::npos : end - from);
      line(text.empty() ? "" : "  " + text);
      if (end == std::string::npos) break;
      from = end + 1;
    }
  }
  return o;
}

nlohmann::json to_json(const Plan& p) {
  using nlohmann::json;
  json j;
  j["version"] = 1;
  j["model"] = p.model;
  j["package"] = p.package;
  j["grid"] = {{"tp", p.grid.tp}, {"pp", p.grid.pp}, {"dp", p.grid.dp}, {"virtual_stages", p.grid.virtual_stages}};
  j["micro_batches"] = p.grid.micro_batches;
  j["schedule"] = p.grid.schedule;
  j["objective"] = p.objective;
  j["device"] = p.device;
  j["roles"] = json::array();
  for (const Role& r : p.roles)
    j["roles"].push_back({{"class", r.type},
                          {"attribute", r.attribute},
                          {"role", r.role},
                          {"layer", r.layer},
                          {"reason", r.reason},
                          {"instances", r.instances},
                          {"only", r.only}});
  j["axes"] = json::array();
  for (const Axis& a : p.axes)
    j["axes"].push_back({{"key", a.key},
                         {"size", a.size},
                         {"split", a.split},
                         {"by", by(a.by)},
                         {"parameters", a.parameters},
                         {"parameter_bytes", a.parameter_bytes},
                         {"forward_bytes", a.forward_bytes},
                         {"backward_bytes", a.backward_bytes},
                         {"why_not", a.why_not},
                         {"given_up", a.given_up}});
  j["balance"] = {{"slowest_over_mean", p.slowest_over_mean}, {"optimum", p.optimum_slowest_over_mean}, {"legal_cuts", p.legal_cuts}};
  j["stages"] = json::array();
  for (std::size_t k = 0; k < p.stages.size(); ++k) {
    const Stage& s = p.stages[k];
    json x = {{"stage", k},   {"flops", s.flops},     {"share", s.share}, {"parameters", s.parameters},
              {"gib", s.gib}, {"modules", s.modules}, {"cut", nullptr}};
    for (const Cut& c : s.cut) {
      json sends = json::array();
      for (const Crossing& y : c.sends)
        sends.push_back({{"name", y.name}, {"shape", y.shape}, {"dtype", y.dtype}, {"bytes", y.bytes}, {"gradient", y.gradient}});
      x["cut"] = {{"at", c.at},        {"by", by(c.by)}, {"key", c.key}, {"bytes", c.bytes}, {"sends", sends}, {"recomputed", c.recomputed},
                  {"inputs", c.inputs}};
    }
    j["stages"].push_back(x);
  }
  j["tied"] = json::array();
  for (const auto& [name, n] : p.tied) j["tied"].push_back({{"parameter", name}, {"stages", n}});
  j["collectives"] = json::array();
  for (const Collective& c : p.collectives)
    j["collectives"].push_back({{"tag", c.tag},
                                {"kind", c.kind},
                                {"site", c.site},
                                {"stage", c.stage < 0 ? json("all") : json(c.stage)},
                                {"count", c.count},
                                {"bytes", c.bytes}});
  j["fallbacks"] = json::array();
  for (const Fallback& f : p.fallbacks) j["fallbacks"].push_back({{"module", f.module}, {"where", f.where}, {"reason", f.reason}});
  j["warnings"] = p.warnings;
  j["job"] = p.job;
  return j;
}

}  // namespace shardwright::plan
