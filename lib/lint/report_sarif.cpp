// SARIF 2.1.0 (OASIS standard). Columns are Unicode code points; paths are relative to the folder the program was started in, so that
// a service that uploads the file finds them in the repository.
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "lint/report.h"

namespace shardwright::lint {
namespace {

using Json = nlohmann::ordered_json;

std::string percent_encoded(const std::string& path) {
  std::string out;
  for (const char c : path) {
    const auto u = static_cast<unsigned char>(c);
    if (std::isalnum(u) || std::string_view("-._~/").find(c) != std::string_view::npos) {
      out += c;
    } else {
      char hex[4];
      std::snprintf(hex, sizeof hex, "%%%02X", u);
      out += hex;
    }
  }
  return out;
}

Json artifact(const std::string& path) {
  std::error_code ec;
  const auto here = std::filesystem::current_path(ec);
  const std::filesystem::path p(path);
  std::string relative = p.is_absolute() ? p.lexically_relative(here).string() : path;
  if (relative.empty() || relative.starts_with(".."))
    return {{"uri", "file://" + percent_encoded((p.is_absolute() ? p : here / p).lexically_normal().string())}};
  return {{"uri", percent_encoded(relative)}, {"uriBaseId", "SRCROOT"}};
}

Json region(const Place& p) {
  Json r{{"startLine", p.line}, {"startColumn", p.column}, {"endLine", p.end_line}, {"endColumn", p.end_column}};
  return r;
}

Json location(const support::Range& r, const support::SourceManager& sm) {
  const Place p = place_of(r, sm);
  return {{"physicalLocation", {{"artifactLocation", artifact(p.file)}, {"region", region(p)}}}};
}

const char* level(support::Severity s) {
  return s == support::Severity::Error ? "error" : s == support::Severity::Warning ? "warning" : "note";
}
const char* level(const std::string& s) { return s == "error" ? "error" : s == "warning" ? "warning" : "note"; }

std::string example_text(const std::vector<rules::LintRule::File>& files) {
  std::string out;
  for (const auto& f : files) out += (files.size() > 1 ? "`" + f.name + "`:\n\n" : "") + "```python\n" + f.text + "```\n\n";
  return out;
}

Json descriptor(const rules::LintRule& r) {
  const std::string text = r.why + "\n\nWhat to do: " + r.fix;
  const std::string markdown =
      r.why + "\n\n**What to do.** " + r.fix + "\n\n**Wrong**\n\n" + example_text(r.wrong) + "**Right**\n\n" + example_text(r.right);
  return {
      {"id", r.code},
      {"shortDescription", {{"text", r.title}}},
      {"fullDescription", {{"text", r.why}}},
      {"help", {{"text", text}, {"markdown", markdown}}},
      {"defaultConfiguration", {{"level", level(r.severity)}}},
      {"properties",
       {{"tags", {"parallel", r.code.substr(0, 3) + "xx"}}, {"applicability", r.applicability}, {"effort", r.effort}, {"since", r.since}}}};
}

Json fix_of(const support::Diagnostic& d, const support::SourceManager& sm) {
  std::map<std::string, Json> by_file;
  for (const auto& e : d.fix->edits) {
    const Place p = place_of(e.range, sm);
    Json& change = by_file[p.file];
    if (change.is_null()) change = {{"artifactLocation", artifact(p.file)}, {"replacements", Json::array()}};
    Json replacement{{"deletedRegion", region(p)}};
    replacement["insertedContent"] = {{"text", e.text}};
    change["replacements"].push_back(std::move(replacement));
  }
  Json changes = Json::array();
  for (auto& [file, change] : by_file) changes.push_back(std::move(change));
  return Json::array(
      {Json{{"description", {{"text", "applicability: " + d.fix->applicability}}}, {"artifactChanges", std::move(changes)}}});
}

}  // namespace

std::string sarif_report(const Findings& findings, const support::SourceManager& sm, const std::vector<rules::LintRule>& rules,
                         const std::string& version) {
  std::map<std::string, std::size_t> index;
  Json descriptors = Json::array(), results = Json::array();
  for (const auto& d : findings) {
    if (!index.count(d.code)) {
      index[d.code] = descriptors.size();
      Json found{{"id", d.code}};
      for (const auto& r : rules)
        if (r.code == d.code) found = descriptor(r);
      descriptors.push_back(std::move(found));
    }
    Json result{{"ruleId", d.code}, {"ruleIndex", index[d.code]}, {"level", level(d.severity)}, {"message", {{"text", d.message}}}};
    if (d.range.valid()) result["locations"] = Json::array({location(d.range, sm)});
    Json related = Json::array();
    for (const auto& n : d.notes) {
      if (!n.range.valid()) continue;
      Json l = location(n.range, sm);
      l["id"] = related.size() + 1;
      l["message"] = {{"text", n.message}};
      related.push_back(std::move(l));
    }
    if (!related.empty()) result["relatedLocations"] = std::move(related);
    if (d.fix && !d.fix->edits.empty()) result["fixes"] = fix_of(d, sm);
    results.push_back(std::move(result));
  }
  const Json driver{{"name", "shardwright"}, {"semanticVersion", version}, {"rules", std::move(descriptors)}};
  const Json run{{"tool", {{"driver", driver}}},
                 {"columnKind", "unicodeCodePoints"},
                 {"originalUriBaseIds", {{"SRCROOT", {{"description", {{"text", "the folder the program was started in"}}}}}}},
                 {"results", std::move(results)}};
  const Json log{{"version", "2.1.0"}, {"$schema", "https://json.schemastore.org/sarif-2.1.0.json"}, {"runs", Json::array({run})}};
  return log.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace shardwright::lint
