// shardwright lint: findings in hand-written parallel code.
#include "driver/lint.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>

#include "cli.h"
#include "driver/version.h"
#include "lint/baseline.h"
#include "lint/report.h"
#include "support/edits.h"
#include "support/files.h"

namespace shardwright::cli {
namespace {

struct Options : Common {
  driver::LintRequest lint;
  std::string format = "text";
  bool fix = false, unsafe = false, diff = false, allow_dirty = false, write_baseline = false, statistics = false, exit_zero = false;
};

// "SW1,SW204" and repeated options alike.
std::vector<std::string> split_codes(const std::vector<std::string>& given) {
  std::vector<std::string> out;
  for (const auto& text : given) {
    std::size_t at = 0;
    while (at <= text.size()) {
      std::size_t end = text.find_first_of(", ", at);
      if (end == std::string::npos) end = text.size();
      if (end > at) out.push_back(text.substr(at, end - at));
      at = end + 1;
    }
  }
  return out;
}

// Information is for those who ask: by code or with -v. Formats for programs have everything.
void hide_information(lint::Findings& findings, const Options& o, std::size_t& hidden) {
  if (o.verbose || o.format == "json" || o.format == "sarif" || !o.lint.select.empty()) return;
  hidden = std::erase_if(findings, [](const support::Diagnostic& d) { return d.severity < support::Severity::Warning; });
}

int show_diff(const lint::FixResult& fixes) {
  for (const auto& [path, file] : fixes.files) fmt::print("{}", support::unified_diff(file.before, file.after, path, path));
  return static_cast<int>(fixes.files.size());
}

int run(Options& o) {
  support::SourceManager sm;
  if (o.json) o.format = "json";
  Common messages = o;
  messages.json = o.format == "json";
  o.lint.select = split_codes(o.lint.select);
  o.lint.ignore = split_codes(o.lint.ignore);
  for (const auto& [list, option] : {std::pair(&o.lint.select, "--select"), std::pair(&o.lint.ignore, "--ignore")})
    if (auto ok = driver::known_codes(*list, option); !ok) return report(ok.error(), sm, messages);
  auto request = driver::configured(o.lint, sm);
  if (!request) return report(request.error(), sm, messages);
  if (o.write_baseline && request->baseline.empty())
    return report(support::failure("--write-baseline needs --baseline FILE (or lint.baseline in the configuration)", {}, "usage"), sm,
                  messages);
  request->read_baseline = !o.write_baseline;
  auto db = rules::Database::load(sm, request->what.rules);
  if (!db) return report(db.error(), sm, messages);
  const auto said = [&](const std::string& text) {
    if (!o.quiet) fmt::print(stderr, "{}\n", text);
  };

  progress(o)("looking for findings");
  if (o.fix || o.diff) {
    lint::OverlayFileSystem overlay(lint::disk());
    auto fixes = driver::fix_lint(*request, overlay, **db, o.unsafe);
    end_progress();
    if (!fixes) return report(fixes.error(), sm, messages);
    for (const auto& t : fixes->taken_back) warn({support::Severity::Warning, "fix", {}, "not fixed: " + t, {}, {}}, sm, messages);
    if (o.diff) {
      // The findings as they are decide the exit code, the difference is all that is printed.
      show_diff(*fixes);
      auto now = driver::run_lint(*request, sm, **db);
      if (!now) return report(now.error(), sm, messages);
      said(fmt::format("{} fix{} in {} file{}; nothing was written", fixes->applied, fixes->applied == 1 ? "" : "es", fixes->files.size(),
                       fixes->files.size() == 1 ? "" : "s"));
      const bool bad =
          std::any_of(now->findings.begin(), now->findings.end(), [&](const auto& d) { return driver::counts(d, request->error_on); });
      return bad && !o.exit_zero ? kFindings : kDone;
    }
    if (!fixes->files.empty()) {
      if (auto ok = driver::write_fixes(*fixes, o.allow_dirty); !ok) return report(ok.error(), sm, messages);
      said(fmt::format("fixed {} finding{} in {} file{}", fixes->applied, fixes->applied == 1 ? "" : "s", fixes->files.size(),
                       fixes->files.size() == 1 ? "" : "s"));
    }
  }

  auto outcome = driver::run_lint(*request, sm, **db);
  end_progress();
  if (!outcome) return report(outcome.error(), sm, messages);
  auto& findings = outcome->findings;
  if (o.write_baseline) {
    if (auto ok = support::write_file(request->baseline, lint::baseline_text(findings, sm, request->baseline)); !ok)
      return report(ok.error(), sm, messages);
    said(fmt::format("{} written", request->baseline));
    return kDone;
  }
  for (const auto& s : outcome->stale) said("the baseline counts too much: " + s + "; --write-baseline brings it up to date");
  const bool bad = std::any_of(findings.begin(), findings.end(), [&](const auto& d) { return driver::counts(d, request->error_on); });
  std::size_t hidden = 0;
  hide_information(findings, o, hidden);

  std::vector<rules::LintRule> words;
  if (o.statistics || o.format == "sarif") {
    auto all = rules::lint_rules(sm);
    if (!all) return report(all.error(), sm, messages);
    words = std::move(*all);
  }
  const bool color = o.color == "always" || (o.color == "auto" && ::isatty(1) && !std::getenv("NO_COLOR"));
  std::string text;
  if (o.statistics) text = lint::statistics_report(findings, words);
  else if (o.format == "json") text = lint::json_report(findings, sm);
  else if (o.format == "sarif") text = lint::sarif_report(findings, sm, words, driver::kVersion);
  else if (o.format == "github") text = lint::github_report(findings, sm);
  else if (o.format == "junit") text = lint::junit_report(findings, sm);
  else text = lint::text_report(findings, sm, color);
  std::fwrite(text.data(), 1, text.size(), stdout);
  if (o.format == "text" && !o.statistics) {
    std::string more;
    auto add = [&](std::size_t n, const char* what) {
      if (n) more += fmt::format("{}{} {}", more.empty() ? "" : ", ", n, what);
    };
    add(outcome->suppressed.size(), "suppressed by comments");
    add(outcome->baselined.size(), "in the baseline");
    add(hidden, "for information (-v shows them)");
    const auto nothing_there = [&] {
      const auto listed = lint::list_files(request->what.paths, lint::disk());
      return listed && listed->python.empty() && listed->shell.empty();
    };
    if (findings.empty() && nothing_there()) said("there is no Python file in what was named: nothing was looked at");
    else if (findings.empty()) said("no findings" + (more.empty() ? "" : "; " + more));
    else if (!more.empty()) said(more);
  }
  return bad && !o.exit_zero ? kFindings : kDone;
}

}  // namespace

Run add_lint(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* c = app.add_subcommand("lint", "findings in hand-written parallel code");
  c->add_option("PATH", o->lint.what.paths, "files and folders")->required();
  c->add_option("--format", o->format, "text, json, sarif, github or junit")
      ->check(CLI::IsMember({"text", "json", "sarif", "github", "junit"}));
  c->add_option("--select", o->lint.select, "only these codes or prefixes: SW1,SW204 (repeatable)");
  c->add_option("--ignore", o->lint.ignore, "not these codes or prefixes (repeatable)");
  c->add_flag("--fix", o->fix, "apply safe fixes");
  c->add_flag("--unsafe", o->unsafe, "with --fix or --diff: also fixes that need a review");
  c->add_flag("--diff", o->diff, "show what --fix would do, write nothing");
  c->add_flag("--allow-dirty", o->allow_dirty, "fix files with uncommitted changes too");
  c->add_option("--baseline", o->lint.baseline, "a file of findings, counted by file and code, that are not shown");
  c->add_flag("--write-baseline", o->write_baseline, "write the baseline from what is found now");
  c->add_option("--exclude", o->lint.exclude, "glob of files or folders whose findings are not shown (repeatable)");
  c->add_option("--tp", o->lint.what.tp, "tensor-parallel size to assume (default: 2)")->check(CLI::PositiveNumber);
  c->add_flag("--statistics", o->statistics, "how often each code occurs");
  c->add_option("--error-on", o->lint.error_on, "what makes the exit code 1: error or warning (default)")
      ->check(CLI::IsMember({"error", "warning"}));
  c->add_flag("--exit-zero", o->exit_zero, "exit code 0 whatever is found");
  c->add_option("--python-path", o->lint.what.python_path, "folder to import from (repeatable)");
  c->add_option("--rules", o->lint.what.rules, "folder of further rules (repeatable)");
  c->add_option("--cache", o->lint.what.cache,
                "a folder for findings of earlier runs, used again where no file that they came from changed");
  c->add_option("--max-steps", o->lint.what.max_steps, "statements to run for one class before giving up");
  for (const char* name : {"--select", "--ignore", "--exclude", "--python-path", "--rules"})
    c->get_option(name)->allow_extra_args(false)->take_all();
  add_output_options(*c, *o);
  return [o] { return run(*o); };
}

}  // namespace shardwright::cli
