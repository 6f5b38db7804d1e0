#include "driver/lint.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>

#include "driver/process.h"
#include "lint/baseline.h"
#include "lint/report.h"
#include "lint/suppress.h"
#include "support/files.h"
#include "support/word_search.h"
#include "support/yaml.h"

namespace shardwright::driver {
namespace {

using support::Diagnostic;
using support::failure;

// The longest prefix of a code in a list, or 0.
std::size_t longest(const std::string& code, const std::vector<std::string>& prefixes) {
  std::size_t best = 0;
  for (const auto& p : prefixes)
    if (code.compare(0, p.size(), p) == 0) best = std::max(best, p.size());
  return best;
}

bool selected(const std::string& code, const LintRequest& r) {
  const std::size_t in = longest(code, r.select), out = longest(code, r.ignore);
  if (!r.select.empty() && in == 0) return false;
  return out == 0 || in > out;  // --ignore SW1 --select SW101 keeps SW101
}

bool excluded(const std::string& path, const std::vector<std::string>& globs) {
  for (const auto& g : globs) {
    if (rules::glob_match(g, path)) return true;
    // A glob without '/' is about any folder or name on the way; one with it about a folder from the start.
    std::size_t at = 0;
    while (at <= path.size()) {
      std::size_t end = path.find('/', at);
      if (end == std::string::npos) end = path.size();
      if (rules::glob_match(g, path.substr(at, end - at)) || rules::glob_match(g, path.substr(0, end))) return true;
      at = end + 1;
    }
  }
  return false;
}

// Notes which files with a comment for us are read: the analysis reads every file it is asked to look at, once.
class NotingFileSystem final : public python::FileSystem {
 public:
  explicit NotingFileSystem(const python::FileSystem& below) : below_(below) {}
  bool is_file(const std::string& path) const override { return below_.is_file(path); }
  bool is_directory(const std::string& path) const override { return below_.is_directory(path); }
  std::vector<std::string> list(const std::string& path) const override { return below_.list(path); }
  support::Expected<std::string> read(const std::string& path) const override {
    auto text = below_.read(path);
    static const support::WordSearch kOurs{"shardwright:"};
    if (text && kOurs.in(*text)) {
      const std::lock_guard lock(mutex_);
      noted_.emplace(path, *text);
    }
    return text;
  }
  const std::map<std::string, std::string>& noted() const { return noted_; }

 private:
  const python::FileSystem& below_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::string> noted_;
};

bool below(const std::string& path, const std::vector<std::string>& roots) {
  return std::any_of(roots.begin(), roots.end(), [&](const std::string& r) {
    const std::string root = support::normal_path(r);
    return root == "." || root.empty() ? !path.starts_with("/") && !path.starts_with("..")
                                       : path == root || path == r || path.starts_with(root.ends_with('/') ? root : root + "/");
  });
}

// The files of the request with a comment for us, and every file with a finding.
std::vector<support::FileId> commented(const LintRequest& request, const NotingFileSystem& files, support::SourceManager& sm,
                                       const std::vector<Diagnostic>& found) {
  std::set<support::FileId> out;
  std::map<std::string, support::FileId> known;
  for (std::size_t i = 0; i < sm.size(); ++i) known.emplace(sm.file(static_cast<support::FileId>(i)).path, static_cast<support::FileId>(i));
  for (const auto& d : found)
    if (d.range.valid()) out.insert(d.range.file);
  for (const auto& [path, text] : files.noted()) {
    if (!below(path, request.what.paths)) continue;  // an installed package's own comments
    const auto it = known.find(path);
    out.insert(it != known.end() ? it->second : sm.add(path, text));
  }
  return std::vector<support::FileId>(out.begin(), out.end());
}

}  // namespace

bool counts(const Diagnostic& d, const std::string& error_on) {
  return d.severity >= (error_on == "error" ? support::Severity::Error : support::Severity::Warning);
}

support::Expected<LintRequest> configured(LintRequest r, support::SourceManager& sm) {
  std::string folder = r.what.paths.empty() ? "." : r.what.paths[0];
  if (!support::is_directory(folder)) folder = support::parent_path(folder);
  auto config = find_config(folder, sm);
  if (!config) return config.error();
  const auto& c = config->lint;
  if (r.select.empty()) r.select = c.select;
  for (const auto* list : {&c.select, &c.ignore})
    if (auto ok = known_codes(*list, config->path); !ok) return ok.error();
  if (r.ignore.empty()) r.ignore = c.ignore;
  r.exclude.insert(r.exclude.end(), c.exclude.begin(), c.exclude.end());
  if (r.what.tp == 0 && c.tp) r.what.tp = *c.tp;
  if (r.error_on.empty()) r.error_on = c.error_on.empty() ? "warning" : c.error_on;
  if (r.baseline.empty()) r.baseline = c.baseline;
  r.what.rules.insert(r.what.rules.begin(), config->rules.begin(), config->rules.end());
  r.what.python_path.insert(r.what.python_path.end(), config->python_path.begin(), config->python_path.end());
  return r;
}

support::Expected<bool> known_codes(const std::vector<std::string>& prefixes, const std::string& option) {
  const auto codes = rules::lint_codes();
  for (const auto& p : prefixes) {
    if (std::any_of(codes.begin(), codes.end(), [&](const std::string& c) { return !p.empty() && c.compare(0, p.size(), p) == 0; }))
      continue;
    const auto near = support::yaml::nearest(p, codes);
    return failure(option + ": no code begins with '" + p + "'" +
                       (near ? "; did you mean " + *near + "?" : "; codes look like SW101, prefixes like SW1"),
                   {}, "usage");
  }
  return true;
}

support::Expected<LintOutcome> run_lint(const LintRequest& request, support::SourceManager& sm, const rules::Database& db) {
  const NotingFileSystem files(request.what.files ? *request.what.files : lint::disk());
  lint::Request what = request.what;
  what.files = &files;
  auto found = request.check ? request.check(what, sm, db) : lint::check(what, sm, db);
  if (!found) return found.error();
  LintOutcome out;
  std::vector<Diagnostic> all = std::move(*found);
  lint::sort_findings(all, sm);
  out.suppressed = lint::suppress(sm, commented(request, files, sm, all), rules::lint_codes(), all);
  std::map<support::FileId, bool> out_of_sight;
  std::erase_if(all, [&](const Diagnostic& d) {
    if (!selected(d.code, request)) return true;
    if (!d.range.valid() || request.exclude.empty()) return false;
    auto [it, fresh] = out_of_sight.emplace(d.range.file, false);
    if (fresh) it->second = excluded(sm.file(d.range.file).path, request.exclude);
    return it->second;
  });
  if (!request.baseline.empty() && request.read_baseline) {
    auto baseline = lint::read_baseline(request.baseline, sm);
    if (!baseline) {
      Diagnostic d = baseline.error();
      if (!support::is_file(request.baseline)) d.message += "; --write-baseline makes it from what is found now";
      return d;
    }
    auto use = lint::apply_baseline(*baseline, request.baseline, all, sm);
    out.baselined = std::move(use.covered);
    out.stale = std::move(use.stale);
  }
  lint::sort_findings(all, sm);
  out.findings = std::move(all);
  return out;
}

support::Expected<lint::FixResult> fix_lint(const LintRequest& request, lint::OverlayFileSystem& overlay, const rules::Database& db,
                                            bool unsafe) {
  const lint::Find find = [&](support::SourceManager& sm, const python::FileSystem& files) -> support::Expected<std::vector<Diagnostic>> {
    LintRequest again = request;
    again.what.files = &files;
    auto outcome = run_lint(again, sm, db);
    if (!outcome) return outcome.error();
    return std::move(outcome->findings);
  };
  return lint::apply_fixes(find, overlay, unsafe);
}

support::Expected<bool> write_fixes(const lint::FixResult& fixes, bool allow_dirty) {
  std::vector<std::string> paths;
  for (const auto& [path, file] : fixes.files) paths.push_back(path);
  if (!allow_dirty) {
    const auto dirty = uncommitted(paths);
    if (!dirty.empty()) {
      std::string names;
      for (const auto& d : dirty) names += "\n  " + d;
      return failure("uncommitted changes in files that would be fixed; commit them first, or say --allow-dirty:" + names, {}, "usage");
    }
  }
  std::vector<std::pair<std::string, const std::string*>> writes;
  for (const auto& [path, file] : fixes.files) {
    const auto now = support::read_file(path);
    if (!now) return now.error();
    if (*now != file.before) return failure("'" + path + "' changed while it was being fixed; nothing was written, run again", {}, "input");
    std::error_code ec;
    const auto real = std::filesystem::canonical(path, ec);  // through a link, to what it points at
    writes.emplace_back(ec ? path : real.string(), &file.after);
  }
  const support::Uninterrupted together;
  for (const auto& [path, text] : writes)
    if (auto ok = support::write_file(path, *text); !ok) return ok.error();
  return true;
}

}  // namespace shardwright::driver
