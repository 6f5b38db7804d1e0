#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "lint/report.h"

namespace shardwright::lint {
namespace {

// Lines as they would be with a fix: at most a few, each once, in order.
std::string preview(const support::Fix& fix, const support::SourceManager& sm, const char* on, const char* off) {
  constexpr std::size_t kMostLines = 4;
  std::map<std::pair<support::FileId, std::uint32_t>, std::vector<const support::TextEdit*>> lines;
  for (const auto& e : fix.edits) {
    if (!e.range.valid()) return "";
    const auto begin = sm.position(e.range.file, e.range.begin).line, end = sm.position(e.range.file, e.range.end).line;
    if (begin != end || e.text.find('\n') != std::string::npos) return "";
    lines[{e.range.file, begin}].push_back(&e);
  }
  if (lines.size() > kMostLines) return "";
  std::string out;
  for (auto& [where, edits] : lines) {
    std::stable_sort(edits.begin(), edits.end(), [](auto* a, auto* b) { return a->range.begin > b->range.begin; });
    std::string line(sm.line_at(where.first, edits[0]->range.begin));
    const std::uint32_t start = sm.file(where.first).line_starts[where.second - 1];
    for (const auto* e : edits) {
      if (e->range.end - start > line.size()) return "";
      line.replace(e->range.begin - start, e->range.end - e->range.begin, e->text);
    }
    out += fmt::format("    {}+ {}{}\n", on, line, off);
  }
  return out;
}

}  // namespace

const char* severity_name(support::Severity s) {
  switch (s) {
    case support::Severity::Note: return "note";
    case support::Severity::Info: return "info";
    case support::Severity::Warning: return "warning";
    case support::Severity::Error: return "error";
  }
  return "error";
}

void sort_findings(Findings& findings, const support::SourceManager& sm) {
  auto key = [&](const support::Diagnostic& d) {
    return std::tuple(d.range.valid() ? sm.file(d.range.file).path : std::string(), d.range.begin, d.code, d.range.end, d.message);
  };
  std::vector<std::pair<decltype(key(findings[0])), std::size_t>> order;
  for (std::size_t i = 0; i < findings.size(); ++i) order.emplace_back(key(findings[i]), i);
  std::sort(order.begin(), order.end());
  Findings out;
  for (std::size_t i = 0; i < order.size(); ++i)
    if (i == 0 || order[i].first != order[i - 1].first) out.push_back(std::move(findings[order[i].second]));
  findings = std::move(out);
}

Place place_of(const support::Range& r, const support::SourceManager& sm) {
  if (!r.valid() || static_cast<std::size_t>(r.file) >= sm.size()) return {};
  const auto& file = sm.file(r.file);
  auto characters = [&](std::uint32_t offset) {
    const auto p = sm.position(r.file, offset);
    const std::string_view line = std::string_view(file.text).substr(file.line_starts[p.line - 1], p.column - 1);
    return static_cast<std::uint32_t>(
               std::count_if(line.begin(), line.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; })) +
        1;
  };
  const auto size = static_cast<std::uint32_t>(file.text.size());
  const std::uint32_t begin = std::min(r.begin, size), end = std::clamp(r.end, begin, size);
  return {file.path, sm.position(r.file, begin).line, characters(begin), sm.position(r.file, end).line, characters(end)};
}

std::string text_report(const Findings& findings, const support::SourceManager& sm, bool color) {
  const char* green = color ? "\033[32m" : "";
  const char* off = color ? "\033[0m" : "";
  std::string out;
  std::map<support::Severity, std::size_t, std::greater<>> counts;
  std::set<support::FileId> files;
  std::size_t safe = 0, review = 0;
  for (const auto& d : findings) {
    ++counts[d.severity];
    if (d.range.valid()) files.insert(d.range.file);
    out += support::render(d, sm, color);
    if (d.fix && !d.fix->edits.empty()) {
      (d.fix->applicability == "safe" ? safe : review) += d.fix->applicability != "manual";
      out += fmt::format("  {}fix{} ({}):\n", green, off,
                         d.fix->applicability == "safe"         ? "safe, --fix"
                             : d.fix->applicability == "review" ? "to review, --fix --unsafe"
                                                                : "by hand");
      out += preview(*d.fix, sm, green, off);
      if (out.ends_with(":\n")) out.replace(out.size() - 2, 2, "\n");  // too long to show: --diff does
    }
    out += '\n';
  }
  if (findings.empty()) return out;
  std::string summary;
  for (const auto& [severity, n] : counts)
    summary += fmt::format("{}{} {}{}", summary.empty() ? "" : ", ", n, severity_name(severity),
                           n == 1 || severity == support::Severity::Info ? "" : "s");
  out += fmt::format("{} in {} file{}", summary, files.size(), files.size() == 1 ? "" : "s");
  if (safe) out += fmt::format("; {} can be fixed with --fix", safe);
  if (review) out += fmt::format("; {} more with --fix --unsafe", review);
  return out + "\n";
}

std::string statistics_report(const Findings& findings, const std::vector<rules::LintRule>& rules) {
  struct Count {
    std::size_t all = 0, fixable = 0;
    support::Severity worst = support::Severity::Note;
  };
  std::map<std::string, Count> counts;
  for (const auto& d : findings) {
    Count& c = counts[d.code];
    ++c.all;
    c.fixable += d.fix && !d.fix->edits.empty() && d.fix->applicability == "safe";
    c.worst = std::max(c.worst, d.severity);
  }
  std::vector<std::pair<std::string, Count>> order(counts.begin(), counts.end());
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.second.all > b.second.all; });
  std::string out;
  for (const auto& [code, c] : order) {
    std::string title;
    for (const auto& r : rules)
      if (r.code == code) title = r.title;
    out += fmt::format("{:>6}  {:<7} {}  {}{}\n", c.all, severity_name(c.worst), code, title,
                       c.fixable ? fmt::format(" ({} with --fix)", c.fixable) : "");
  }
  return out;
}

}  // namespace shardwright::lint
