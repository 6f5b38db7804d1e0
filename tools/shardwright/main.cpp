// shardwright: single-GPU model source → tensor × pipeline parallel source. Argument parsing and exit codes only.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <vector>

#include "cli.h"
#include "driver/version.h"

using namespace shardwright;

namespace {
extern "C" void interrupted(int) {
  // Files are written by temporary + rename, so nothing is half-written; leave at once.
  const char text[] = "\ninterrupted: nothing was half-written\n";
  if (::write(2, text, sizeof text - 1) < 0) {}
  ::_exit(cli::kInterrupted);
}
}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGINT, interrupted);
  std::signal(SIGPIPE, SIG_DFL);
  if (argc > 1)
    for (const char* command : {"tree", "plan", "convert"})
      if (std::string(argv[1]) == command)
        for (int i = 2; i < argc; ++i)
          if (std::string(argv[i]) == "--") {
            cli::after_dashes().assign(argv + i + 1, argv + argc);
            argc = i;
          }
  CLI::App app{"Turns a model's single-GPU source into tensor- and pipeline-parallel source, and proves that it computes the same.",
               "shardwright"};
  app.set_version_flag("--version", std::string("shardwright ") + driver::kVersion);
  app.require_subcommand(1);
  app.footer("Start with: shardwright tree path/to/model.py:Class --args 'dim=64' --input 'x=f32[2,16,64]'");
  std::vector<std::pair<CLI::App*, cli::Run>> commands;
  auto add = [&](cli::Run run) { commands.emplace_back(app.get_subcommands([](const CLI::App*) { return true; }).back(), std::move(run)); };
  add(cli::add_tree(app));
  add(cli::add_plan(app));
  add(cli::add_convert(app));
  add(cli::add_verify(app));
  add(cli::add_lint(app));
  add(cli::add_explain(app));
  add(cli::add_init(app));
  add(cli::add_doctor(app));
  add(cli::add_reshard(app));
  add(cli::add_lsp(app));
  add(cli::add_handoff(app));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help, --version
    return cli::usage_error(app, e, argc, argv);
  }
  try {
    for (auto& [sub, run] : commands)
      if (sub->parsed()) return run();
  } catch (const std::exception& e) {
    cli::end_progress();
    std::fprintf(stderr, "shardwright: internal error: %s\nPlease report it with the command line and, if you can, the model.\n", e.what());
    return cli::kInternal;
  }
  return cli::kBadInput;
}
