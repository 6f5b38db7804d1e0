// shardwright lsp: the language server, on standard input and output.
#include "driver/lsp.h"

#include "cli.h"

namespace shardwright::cli {

Run add_lsp(CLI::App& app) {
  auto o = std::make_shared<driver::LintRequest>();
  CLI::App* c = app.add_subcommand("lsp", "language server for editors: findings, fixes, hovers");
  c->add_option("--tp", o->what.tp, "tensor-parallel size to assume (default: the configuration's, else 2)")->check(CLI::PositiveNumber);
  c->add_option("--python-path", o->what.python_path, "folder to import from (repeatable)")->take_all();
  c->add_option("--rules", o->what.rules, "folder of further rules (repeatable)")->take_all();
  c->add_flag_callback(
      "--stdio", [] {}, "standard input and output (the only transport; for clients that say so)");
  return [o] {
    driver::LanguageServer server(*o);
    return driver::serve(server, 0, 1);
  };
}

}  // namespace shardwright::cli
