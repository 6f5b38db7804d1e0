#include "cli.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "eval/imports.h"
#include "support/yaml.h"

namespace shardwright::cli {

namespace {
bool progress_shown = false;
bool use_color(const Common& c) { return c.color == "always" || (c.color == "auto" && ::isatty(2) && !std::getenv("NO_COLOR")); }
}  // namespace

void add_output_options(CLI::App& app, Common& c) {
  app.add_flag("--json", c.json, "results as JSON on standard output");
  app.add_flag("-q,--quiet", c.quiet, "errors only");
  app.add_flag("-v,--verbose", c.verbose, "more detail");
  app.add_flag("--stats", c.stats, "times and sizes of the analysis on standard error");
  app.add_flag("--no-cache", c.no_cache, "do not read or write caches")->each([&c](const std::string&) { c.model.cached = false; });
  app.add_option("--color", c.color, "auto, always or never")->check(CLI::IsMember({"auto", "always", "never"}));
}

std::vector<std::string>& after_dashes() {
  static std::vector<std::string> flags;
  return flags;
}

void add_model_options(CLI::App& app, Common& c) {
  app.add_option("MODEL", c.model.spec, "path/to/file.py:Class, package.module:Class, model.h:ClassImpl (C++), or a job file (.yaml)")
      ->required();
  app.footer(
      "A model in C++ is read with the flags of -p BUILD, or with those given after --: shardwright tree model.h:NetImpl -- "
      "-I/opt/libtorch/include");
  c.model.cxx_flags = after_dashes();
  app.add_option("-p", c.model.cxx_build, "folder of compile_commands.json, for a model in C++");
  app.add_option("--python-path", c.model.python_path, "folder to import from (repeatable)")->take_all();
  app.add_option("--args", c.model.args, "constructor arguments, as in Python: 'embed_dim=192, num_heads=(6, 12)'");
  app.add_option("--config", c.model.config, "constructor arguments from a YAML file: cfg.yaml[:key.path]");
  app.add_option("--input", c.model.inputs, "an input of forward: 'x=f32[1,72,64]' (repeatable)")->take_all();
  app.add_option("--set", c.model.settings, "key=value of the job file (repeatable)")->take_all();
  app.add_option("--rules", c.model.rules, "folder of further rules (repeatable)")->take_all();
  app.add_option("--max-steps", c.model.max_steps, "statements to run before giving up");
  add_output_options(app, c);
}

driver::Progress progress(const Common& c) {
  const bool show = !c.quiet && ::isatty(2);
  return [show](const std::string& what) {
    if (!show) return;
    std::fprintf(stderr, "\r\033[K%s…", what.c_str());
    std::fflush(stderr);
    progress_shown = true;
  };
}

void end_progress() {
  if (progress_shown) std::fprintf(stderr, "\r\033[K");
  progress_shown = false;
}

void warn(const support::Diagnostic& d, const support::SourceManager& sm, const Common& c) {
  if (c.quiet && d.severity != support::Severity::Error) return;
  end_progress();
  std::fputs(support::render(d, sm, use_color(c)).c_str(), stderr);
}

void warn_missing(const model::Trace& t, const support::SourceManager& sm, const Common& c) {
  for (const auto& n : eval::missing_imports(t)) warn({support::Severity::Warning, "import", n.range, n.message, {}, {}}, sm, c);
}

int usage_error(const CLI::App& app, const CLI::ParseError& e, int argc, char** argv) {
  const CLI::App* at = &app;
  bool json = false;
  for (int i = 1; i < argc; ++i) json = json || std::string(argv[i]) == "--json" || std::string(argv[i]) == "--format=json";
  for (const CLI::App* s : app.get_subcommands([](const CLI::App*) { return true; }))
    if (argc > 1 && s->get_name() == argv[1]) at = s;
  std::string message = e.what(), hint;
  for (auto& c : message)
    if (c == '\n') c = ' ';
  std::vector<std::string> known;
  for (const CLI::Option* o : at->get_options())
    for (const auto& n : o->get_lnames()) known.push_back("--" + n);
  if (at == &app)
    for (const CLI::App* s : app.get_subcommands([](const CLI::App*) { return true; })) known.push_back(s->get_name());
  for (int i = 1; i < argc && dynamic_cast<const CLI::ExtrasError*>(&e); ++i) {
    const std::string word = std::string(argv[i]).substr(0, std::string(argv[i]).find('='));
    if (message.find(word) == std::string::npos || std::find(known.begin(), known.end(), word) != known.end()) continue;
    if (auto near = support::yaml::nearest(word, known)) hint = " (did you mean " + *near + "?)";
    break;
  }
  if (argc > 1 && at == &app && argv[1][0] != '-') {
    message = "'" + std::string(argv[1]) + "' is no command";
    const auto near = support::yaml::nearest(argv[1], known);
    hint = near ? " (did you mean " + *near + "?)" : "";
  }
  message += hint + "; see shardwright " + (at == &app ? "" : at->get_name() + " ") + "--help";
  Common c;
  c.json = json;
  return report(support::failure(message, {}, "usage"), support::SourceManager{}, c);
}

int report(const support::Diagnostic& d, const support::SourceManager& sm, const Common& c) {
  end_progress();
  warn(d, sm, c);
  if (c.json) {
    nlohmann::json j{{"error", d.message}, {"code", d.code}};
    if (d.range.valid()) {
      auto p = sm.position(d.range.file, d.range.begin);
      j["file"] = sm.file(d.range.file).path;
      j["line"] = p.line;
      j["column"] = p.column;
    }
    for (const auto& n : d.notes) j["notes"].push_back(n.message);
    std::printf("%s\n", j.dump(2).c_str());
  }
  return d.code == "internal" ? kInternal : kBadInput;
}

}  // namespace shardwright::cli
