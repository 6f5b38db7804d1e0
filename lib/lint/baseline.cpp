#include "lint/baseline.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "support/files.h"
#include "support/yaml.h"

namespace shardwright::lint {
namespace {

namespace fs = std::filesystem;

// A file's name in a baseline: relative to the folder of the baseline.
std::string key_of(const std::string& file, const std::string& baseline) {
  std::error_code ec;
  const fs::path folder =
      fs::absolute(support::parent_path(baseline).empty() ? "." : support::parent_path(baseline), ec).lexically_normal();
  const fs::path path = fs::absolute(file, ec).lexically_normal();
  // A folder that ends in "/." keeps an empty last part, which lexically_relative counts.
  return path.lexically_relative(folder.has_filename() ? folder : folder.parent_path()).generic_string();
}

std::map<std::string, std::map<std::string, int>> count(const std::vector<support::Diagnostic>& findings, const support::SourceManager& sm,
                                                        const std::string& path) {
  std::map<std::string, std::map<std::string, int>> out;
  std::map<support::FileId, std::string> keys;
  for (const auto& d : findings) {
    if (!d.range.valid() || d.severity < support::Severity::Warning) continue;
    auto [it, fresh] = keys.emplace(d.range.file, "");
    if (fresh) it->second = key_of(sm.file(d.range.file).path, path);
    ++out[it->second][d.code];
  }
  return out;
}

}  // namespace

support::Expected<Baseline> read_baseline(const std::string& path, support::SourceManager& sm) {
  auto text = support::read_file(path, 64u << 20);
  if (!text) return text.error();
  // JSON is YAML: the strict reader with places serves both.
  const auto file = sm.add(path, *text);
  auto root = support::yaml::parse(sm, file);
  if (!root) return root.error();
  support::yaml::Reader r(*root, "the baseline");
  Baseline out;
  const auto version = r.required<std::int64_t>("shardwright_baseline");
  for (const auto& [name, codes] : r.map("findings")) {
    if (!codes.is_map()) r.fail(codes, "expected codes with their counts, as in {\"SW106\": 2}");
    for (const auto& [code, number] : codes.entries()) {
      const auto n = number.as_int();
      if (!n || *n < 0) r.fail(number, "expected how often " + code.text() + " was found");
      else out.counts[name.text()][code.text()] = static_cast<int>(*n);
    }
  }
  if (auto error = r.finish()) return *error;
  if (version != 1)
    return support::failure(
        "a baseline of version " + std::to_string(version) + "; this program knows version 1. Write it again with --write-baseline",
        root->range(), "input");
  return out;
}

std::string baseline_text(const std::vector<support::Diagnostic>& findings, const support::SourceManager& sm, const std::string& path) {
  nlohmann::ordered_json j{{"shardwright_baseline", 1}, {"findings", nlohmann::ordered_json::object()}};
  for (const auto& [file, codes] : count(findings, sm, path))
    for (const auto& [code, n] : codes) j["findings"][file][code] = n;
  return j.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

BaselineUse apply_baseline(const Baseline& baseline, const std::string& path, std::vector<support::Diagnostic>& findings,
                           const support::SourceManager& sm) {
  BaselineUse out;
  const auto now = count(findings, sm, path);
  for (const auto& [file, codes] : now) {
    auto known = baseline.counts.find(file);
    if (known == baseline.counts.end()) continue;
    for (const auto& [code, n] : known->second) {
      auto it = codes.find(code);
      const int found = it == codes.end() ? 0 : it->second;
      if (found < n) out.stale.push_back(fmt::format("{}: {} of {} counted, {} found", file, n, code, found));
    }
  }
  std::vector<support::Diagnostic> kept;
  for (auto& d : findings) {
    bool covered = false;
    if (d.range.valid() && d.severity >= support::Severity::Warning) {
      const std::string key = key_of(sm.file(d.range.file).path, path);
      if (auto file = baseline.counts.find(key); file != baseline.counts.end())
        if (auto code = file->second.find(d.code); code != file->second.end()) {
          const int found = now.at(key).at(d.code);
          covered = found <= code->second;
          if (!covered)
            d.notes.push_back(
                {{}, fmt::format("the baseline counts {} of {} in this file, now there are {}", code->second, d.code, found)});
        }
    }
    (covered ? out.covered : kept).push_back(std::move(d));
  }
  findings = std::move(kept);
  return out;
}

}  // namespace shardwright::lint
