// GitHub annotations and JUnit.
#include <fmt/format.h>

#include <map>

#include "lint/report.h"

namespace shardwright::lint {
namespace {

// Bytes that are no UTF-8 (a file in another encoding) become U+FFFD: a reader of the report refuses them.
std::string utf8(const std::string& s) {
  std::string out;
  for (std::size_t i = 0; i < s.size();) {
    const auto c = static_cast<unsigned char>(s[i]);
    const std::size_t n = c < 0x80 ? 1 : c >= 0xC2 && c < 0xE0 ? 2 : c >= 0xE0 && c < 0xF0 ? 3 : c >= 0xF0 && c < 0xF5 ? 4 : 0;
    bool good = n > 0 && i + n <= s.size();
    for (std::size_t k = 1; good && k < n; ++k) good = (static_cast<unsigned char>(s[i + k]) & 0xC0) == 0x80;
    if (good) out.append(s, i, n);
    else out += "\xEF\xBF\xBD";
    i += good ? n : 1;
  }
  return out;
}

// GitHub workflow commands. Properties also escape ':' and ','.
std::string command_text(const std::string& s, bool property) {
  std::string out;
  for (const char c : s) {
    if (c == '%') out += "%25";
    else if (c == '\r') out += "%0D";
    else if (c == '\n') out += "%0A";
    else if (property && c == ':') out += "%3A";
    else if (property && c == ',') out += "%2C";
    else out += c;
  }
  return out;
}

std::string xml(const std::string& s) {
  std::string out;
  for (const char c : s) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\n': out += "&#10;"; break;
      case '\t': out += "&#9;"; break;
      case '\r': out += "&#13;"; break;
      default:
        // Other control characters do not exist in XML 1.0.
        if (static_cast<unsigned char>(c) < 0x20) out += "\xEF\xBF\xBD";
        else out += c;
    }
  }
  return out;
}

// Message, place and story as one text.
std::string story(const support::Diagnostic& d, const support::SourceManager& sm) {
  std::string out = d.message;
  for (const auto& n : d.notes) {
    const Place p = place_of(n.range, sm);
    out += p.file.empty() ? "\n" + n.message : fmt::format("\n{}:{}: {}", p.file, p.line, n.message);
  }
  return utf8(out);
}

}  // namespace

std::string github_report(const Findings& findings, const support::SourceManager& sm) {
  std::string out;
  for (const auto& d : findings) {
    const Place p = place_of(d.range, sm);
    out += d.severity == support::Severity::Error ? "::error " : d.severity == support::Severity::Warning ? "::warning " : "::notice ";
    if (!p.file.empty()) {
      out += fmt::format("file={},line={},endLine={},", command_text(utf8(p.file), true), p.line, p.end_line);
      if (p.line == p.end_line) out += fmt::format("col={},endColumn={},", p.column, p.end_column);
    }
    out += fmt::format("title={}::{}\n", command_text(d.code, true), command_text(story(d, sm), false));
  }
  return out;
}

std::string junit_report(const Findings& findings, const support::SourceManager& sm) {
  std::map<std::string, std::vector<const support::Diagnostic*>> by_file;
  std::size_t failures = 0;
  auto failed = [](const support::Diagnostic& d) { return d.severity >= support::Severity::Warning; };
  for (const auto& d : findings) {
    by_file[place_of(d.range, sm).file].push_back(&d);
    failures += failed(d);
  }
  std::string out = fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"shardwright lint\" tests=\"{}\" failures=\"{}\" errors=\"0\">\n",
      findings.empty() ? 1 : findings.size(), failures);
  if (findings.empty())
    out +=
        "  <testsuite name=\"shardwright lint\" tests=\"1\" failures=\"0\" errors=\"0\">\n    <testcase classname=\"shardwright.lint\" "
        "name=\"no findings\"/>\n  </testsuite>\n";
  for (const auto& [file, list] : by_file) {
    std::size_t here = 0;
    for (const auto* d : list) here += failed(*d);
    out += fmt::format("  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"0\">\n", xml(utf8(file)), list.size(), here);
    for (const auto* d : list) {
      const Place p = place_of(d->range, sm);
      out += fmt::format("    <testcase classname=\"{}\" name=\"{} line {} column {}\" file=\"{}\" line=\"{}\">\n", xml(utf8(file)),
                         xml(d->code), p.line, p.column, xml(utf8(file)), p.line);
      if (failed(*d))
        out += fmt::format("      <failure type=\"{}\" message=\"{}\">{}</failure>\n", severity_name(d->severity), xml(utf8(d->message)),
                           xml(fmt::format("{}:{}:{}: {}", p.file, p.line, p.column, story(*d, sm))));
      else out += fmt::format("      <system-out>{}</system-out>\n", xml(story(*d, sm)));
      out += "    </testcase>\n";
    }
    out += "  </testsuite>\n";
  }
  return out + "</testsuites>\n";
}

}  // namespace shardwright::lint
