// What the subcommands share: options of MODEL, diagnostics, progress, exit codes. See docs/commands.md.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "driver/analysis.h"
#include "support/diagnostic.h"

namespace shardwright::cli {

enum Exit { kDone = 0, kFindings = 1, kBadInput = 2, kInternal = 3, kInterrupted = 130 };

/// The options that every command takes.
struct Common {
  bool json = false, quiet = false, verbose = false, stats = false, no_cache = false;
  std::string color = "auto";
  driver::ModelRequest model;
};

/// What stands after `--` on the command line of a command that takes a model: flags of the C++ compiler. Set before the commands are
/// added.
std::vector<std::string>& after_dashes();

/// Adds MODEL and its options to a subcommand.
void add_model_options(CLI::App& app, Common& c);
/// --json, -q, -v, --color, --stats.
void add_output_options(CLI::App& app, Common& c);

/// One line on a terminal's standard error, replaced as work goes on; silent otherwise.
driver::Progress progress(const Common& c);
void end_progress();

/// Writes a diagnostic to standard error (as JSON to standard output with --json) and gives the exit code for it.
int report(const support::Diagnostic& d, const support::SourceManager& sm, const Common& c);
void warn(const support::Diagnostic& d, const support::SourceManager& sm, const Common& c);

/// What the model uses and no import gave: a warning each, because all it touches is not followed.
void warn_missing(const model::Trace& t, const support::SourceManager& sm, const Common& c);

/// A command line that does not parse: one message like any other error, with the nearest option or command.
int usage_error(const CLI::App& app, const CLI::ParseError& e, int argc, char** argv);

// Each subcommand: registers itself; the returned function runs it.
using Run = std::function<int()>;
Run add_tree(CLI::App& app);
Run add_plan(CLI::App& app);
Run add_convert(CLI::App& app);
Run add_verify(CLI::App& app);
Run add_lint(CLI::App& app);
Run add_explain(CLI::App& app);
Run add_init(CLI::App& app);
Run add_doctor(CLI::App& app);
Run add_lsp(CLI::App& app);
Run add_handoff(CLI::App& app);
Run add_reshard(CLI::App& app);

}  // namespace shardwright::cli
