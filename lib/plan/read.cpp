// plan.yaml read back. Strict: a plan is edited by hand, and a misspelt key that is silently ignored is a pin that is silently lost.
#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <functional>
#include <map>

#include "plan/plan.h"

namespace shardwright::plan {
namespace {

/// Thrown inside this file only.
struct Bad {
  std::string message;
  YAML::Mark mark;
};

[[noreturn]] void fail(const YAML::Node& n, std::string message) { throw Bad{std::move(message), n.Mark()}; }

std::size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t up = row[j];
      row[j] = std::min({up + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = up;
    }
  }
  return row[b.size()];
}

/// A mapping whose keys are all known. `what` names the entry in messages.
class Map {
 public:
  Map(YAML::Node n, std::string what, const std::vector<std::string>& allowed) : n_(std::move(n)), what_(std::move(what)) {
    if (!n_.IsMap()) fail(n_, what_ + " must be a mapping");
    std::vector<std::string> seen;
    for (const auto& kv : n_) {
      const std::string k = kv.first.Scalar();
      if (std::find(seen.begin(), seen.end(), k) != seen.end()) fail(kv.first, what_ + " has the key '" + k + "' twice");
      seen.push_back(k);
      if (std::find(allowed.begin(), allowed.end(), k) != allowed.end()) continue;
      const auto near =
          std::min_element(allowed.begin(), allowed.end(), [&](const auto& a, const auto& b) { return distance(k, a) < distance(k, b); });
      std::string m = "unknown key '" + k + "' in " + what_;
      if (distance(k, *near) <= 2) m += "; did you mean '" + *near + "'?";
      std::string all;
      for (const auto& a : allowed) all += (all.empty() ? "" : ", ") + a;
      fail(kv.first, m + " (known: " + all + ")");
    }
  }
  bool has(const char* k) const { return n_[k].IsDefined(); }
  YAML::Node need(const char* k) const {
    const YAML::Node v = n_[k];
    if (!v.IsDefined()) fail(n_, what_ + " lacks '" + std::string(k) + "'");
    return v;
  }
  template <class T>
  T scalar(const char* k, const char* kind) const {
    const YAML::Node v = need(k);
    T out{};
    if (!v.IsScalar() || !YAML::convert<T>::decode(v, out)) fail(v, fmt::format("'{}' of {} must be {}", k, what_, kind));
    return out;
  }
  std::string text(const char* k) const { return scalar<std::string>(k, "a string"); }
  std::string text(const char* k, std::string otherwise) const { return has(k) ? text(k) : std::move(otherwise); }
  double number(const char* k) const { return scalar<double>(k, "a number"); }
  std::int64_t integer(const char* k) const { return scalar<std::int64_t>(k, "an integer"); }
  int positive(const char* k) const {
    const auto v = scalar<int>(k, "a positive integer");
    if (v < 1) fail(need(k), fmt::format("'{}' of {} must be a positive integer", k, what_));
    return v;
  }
  bool flag(const char* k) const { return scalar<bool>(k, "true or false"); }
  By by() const {
    const std::string v = text("by");
    if (v != "auto" && v != "pinned") fail(need("by"), "'by' of " + what_ + " must be auto or pinned, not '" + v + "'");
    return v == "pinned" ? By::Pinned : By::Auto;
  }
  YAML::Node list(const char* k) const {
    const YAML::Node v = need(k);
    if (!v.IsSequence()) fail(v, fmt::format("'{}' of {} must be a list", k, what_));
    return v;
  }
  std::vector<std::string> texts(const char* k, bool required = true) const {
    std::vector<std::string> out;
    if (!required && !has(k)) return out;
    for (const auto& x : list(k)) {
      if (!x.IsScalar()) fail(x, fmt::format("'{}' of {} must be a list of strings", k, what_));
      out.push_back(x.Scalar());
    }
    return out;
  }

 private:
  YAML::Node n_;
  std::string what_;
};

Cut read_cut(const YAML::Node& n, const std::string& what) {
  const Map m(n, what, {"at", "by", "key", "bytes", "sends", "recomputed", "inputs"});
  Cut c;
  c.at = m.text("at");
  c.by = m.by();
  c.key = m.texts("key");
  c.bytes = m.integer("bytes");
  for (const auto& x : m.list("sends")) {
    const Map s(x, "a tensor of " + what, {"name", "shape", "dtype", "bytes", "gradient"});
    Crossing y;
    y.name = s.text("name");
    for (const auto& d : s.list("shape")) {
      std::int64_t v = 0;
      if (!YAML::convert<std::int64_t>::decode(d, v)) fail(d, "a shape is a list of integers");
      y.shape.push_back(v);
    }
    y.dtype = s.text("dtype");
    y.bytes = s.integer("bytes");
    y.gradient = s.flag("gradient");
    c.sends.push_back(std::move(y));
  }
  c.recomputed = m.texts("recomputed", false);
  c.inputs = m.texts("inputs", false);
  return c;
}

/// The job's own text, comments included: its lines without their indentation.
std::string job_text(const YAML::Node& n, const std::string& text) {
  if (!n.IsMap()) fail(n, "'job' must be a mapping");
  if (n.Style() == YAML::EmitterStyle::Flow) fail(n, "'job' must be written in lines, not in braces");
  std::vector<std::string> lines;
  for (std::size_t from = 0; from <= text.size();) {
    const auto end = std::min(text.find('\n', from), text.size());
    lines.push_back(text.substr(from, end - from));
    from = end + 1;
  }
  // From the line after the key (comments may precede the first entry) to the next line at the key's own column.
  auto first = static_cast<std::size_t>(n.Mark().line);
  const auto column = static_cast<std::size_t>(n.Mark().column);
  while (first > 0 && lines[first - 1].rfind("job:", 0) != 0) --first;
  std::string out;
  for (std::size_t i = first; i < lines.size(); ++i) {
    const auto indent = lines[i].find_first_not_of(' ');
    if (indent == 0) break;
    out += (indent == std::string::npos || indent < std::min(column, lines[i].size())
                ? (indent == std::string::npos ? "" : lines[i].substr(indent))
                : lines[i].substr(column)) +
        "\n";
  }
  while (out.size() > 1 && out[out.size() - 2] == '\n') out.pop_back();
  return out;
}

Plan read(const YAML::Node& root, const std::string& text) {
  const Map top(root, "the plan",
                {"version", "model", "package", "grid", "micro_batches", "schedule", "objective", "device", "roles", "axes", "balance",
                 "stages", "tied", "collectives", "fallbacks", "warnings", "job"});
  Plan p;
  if (const auto v = top.integer("version"); v != 1)
    fail(top.need("version"), fmt::format("this program reads plans of version 1, not {}", v));
  p.model = top.text("model");
  const Map g(top.need("grid"), "grid", {"tp", "pp", "dp", "virtual_stages"});
  p.package = top.text("package", "");
  p.grid = {g.positive("tp"),
            g.positive("pp"),
            g.positive("dp"),
            top.positive("micro_batches"),
            g.has("virtual_stages") ? g.positive("virtual_stages") : 1,
            top.text("schedule")};
  p.objective = top.text("objective");
  if (p.objective != "split" && p.objective != "time" && p.objective != "memory")
    fail(top.need("objective"), "objective must be split, time or memory, not '" + p.objective + "'");
  p.device = top.text("device", "");
  for (const auto& n : top.list("roles")) {
    const Map m(n, "a role", {"class", "attribute", "role", "layer", "reason", "instances", "only"});
    p.roles.push_back({m.text("class"), m.text("attribute"), m.text("role"), m.text("layer", ""), m.text("reason", ""),
                       m.texts("only", false), m.positive("instances")});
  }
  for (const auto& n : top.list("axes")) {
    const Map m(n, "an axis",
                {"split", "by", "size", "parameters", "parameter_bytes", "forward_bytes", "backward_bytes", "why_not", "given_up", "key"});
    Axis a;
    a.key = m.text("key");
    a.size = m.integer("size");
    a.split = m.flag("split");
    a.by = m.by();
    a.parameters = m.texts("parameters");
    a.parameter_bytes = m.number("parameter_bytes");
    a.forward_bytes = m.number("forward_bytes");
    a.backward_bytes = m.number("backward_bytes");
    a.why_not = m.text("why_not", "");
    a.given_up = m.has("given_up") && m.flag("given_up");
    p.axes.push_back(std::move(a));
  }
  const Map b(top.need("balance"), "balance", {"slowest_over_mean", "optimum", "legal_cuts"});
  p.slowest_over_mean = b.number("slowest_over_mean");
  p.optimum_slowest_over_mean = b.number("optimum");
  p.legal_cuts = static_cast<int>(b.integer("legal_cuts"));
  const YAML::Node stages = top.list("stages");
  for (std::size_t k = 0; k < stages.size(); ++k) {
    const std::string what = "stage " + std::to_string(k);
    const Map m(stages[k], what, {"stage", "flops", "share", "parameters", "gib", "modules", "cut"});
    if (m.integer("stage") != static_cast<std::int64_t>(k))
      fail(m.need("stage"), "stages must be in order: expected stage " + std::to_string(k));
    Stage s;
    s.flops = m.number("flops");
    s.share = m.number("share");
    s.parameters = m.integer("parameters");
    s.gib = m.number("gib");
    s.modules = m.texts("modules");
    if (m.has("cut")) s.cut.push_back(read_cut(m.need("cut"), "the cut of " + what));
    if ((k + 1 < stages.size()) == s.cut.empty())
      fail(stages[k], s.cut.empty() ? what + " is not the last one and lacks 'cut'" : what + " is the last one and has a 'cut'");
    p.stages.push_back(std::move(s));
  }
  if (static_cast<int>(p.stages.size()) != p.grid.pp * p.grid.virtual_stages)
    fail(stages,
         fmt::format("{} stages do not fit the grid: pp {} with {} virtual stage(s) each needs {}", p.stages.size(), p.grid.pp,
                     p.grid.virtual_stages, p.grid.pp * p.grid.virtual_stages));
  if (top.has("tied"))
    for (const auto& n : top.list("tied")) {
      const Map m(n, "a tied parameter", {"parameter", "stages"});
      p.tied.push_back({m.text("parameter"), m.integer("stages")});
    }
  for (const auto& n : top.list("collectives")) {
    const Map m(n, "a collective", {"tag", "kind", "site", "stage", "count", "bytes"});
    const std::string stage = m.text("stage");
    p.collectives.push_back({m.text("tag"), m.text("kind"), m.text("site"), stage == "all" ? -1 : static_cast<int>(m.integer("stage")),
                             m.number("count"), m.number("bytes")});
  }
  if (top.has("fallbacks"))
    for (const auto& n : top.list("fallbacks")) {
      const Map m(n, "a fallback", {"module", "where", "reason"});
      p.fallbacks.push_back({m.text("module"), m.text("where"), m.text("reason")});
    }
  p.warnings = top.texts("warnings", false);
  if (top.has("job")) p.job = job_text(top.need("job"), text);
  return p;
}

}  // namespace

support::Expected<Plan> from_yaml(std::string text, const std::string& path, support::SourceManager& sm) {
  auto at = [&](const YAML::Mark& mark, std::string message) {
    const support::FileId id = sm.add(path, text);
    const auto& file = sm.file(id);
    std::uint32_t offset = 0;
    if (!mark.is_null() && mark.line >= 0 && static_cast<std::size_t>(mark.line) < file.line_starts.size())
      offset = file.line_starts[static_cast<std::size_t>(mark.line)] + static_cast<std::uint32_t>(std::max(0, mark.column));
    offset = std::min(offset, static_cast<std::uint32_t>(file.text.size()));
    return support::failure(std::move(message), {id, offset, offset}, "plan");
  };
  try {
    const YAML::Node root = YAML::Load(text);
    if (!root.IsMap()) return at(root.Mark(), "a plan is a mapping; this file holds none");
    return read(root, text);
  } catch (const Bad& e) { return at(e.mark, e.message); } catch (const YAML::Exception& e) {
    return at(e.mark, "not readable as YAML: " + e.msg);
  }
}

}  // namespace shardwright::plan
