// How the parts of a repository are put together: registries of styles, the wrappers that look classes up in them, the configuration on
// its way to the layers, imports that go in a circle. Read from the text of the files; nothing is run.
#pragma once
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "lint/findings.h"
#include "program/program.h"
#include "support/source.h"

namespace shardwright::lint {

/// `_MLP_REGISTRY = {"WideMlp": ("package.widemlp", "WideMlp"), …}` at the top level of a module.
struct Registry {
  struct Entry {
    std::string style, module, name;  ///< module "": a name of the registry's own file
    const program::Expr* key = nullptr;
    const program::Expr* value = nullptr;
  };
  const program::Module* module = nullptr;
  std::string name;
  std::vector<Entry> entries;
  bool open = false;               ///< filled elsewhere too
  std::set<std::string> wrappers;  ///< classes and functions of the file that read it
};

std::vector<Registry> registries(const std::vector<const program::Module*>&, const support::SourceManager&);

/// Does a text ask a wrapper for a style that no registry has? A cheap look, before the file is parsed.
bool asks_unknown_style(const std::string& text, const std::vector<Registry>&);

/// SW401 to SW404. `load`: a module by its dotted name, nullptr when it is not found; `mentions`: does its text name this? `asking`: parsed
/// files that use wrappers.
void check_wiring(const std::vector<Registry>&, const std::vector<const program::Module*>& asking,
                  const std::function<const program::Module*(const std::string&)>& load,
                  const std::function<bool(const std::string&, std::string_view)>& mentions, const support::SourceManager&, Found&);

}  // namespace shardwright::lint
