// Connects the domain to an interpreter.
#include <sstream>

#include "eval/torch/domain.h"
#include "eval/torch_link.h"
#include "rules/embedded.h"

namespace shardwright::eval {
namespace torch {

/// rules/<folder>**.py: the path is the module's name; later folders win. A file <folder>aliases.txt names the same modules
/// under another package too, a line each: "NEW OLD".
void register_sources(Domain& d, std::string_view folder) {
  std::vector<std::pair<std::string, std::string>> aliases;
  if (auto text = rules::embedded(std::string(folder) + "aliases.txt")) {
    std::istringstream lines{std::string(*text)};
    for (std::string fresh, old; lines >> fresh >> old;) aliases.emplace_back(fresh, old);
  }
  for (const rules::EmbeddedFile& f : rules::embedded_files()) {
    if (!f.path.starts_with(folder) || !f.path.ends_with(".py")) continue;
    std::string name(f.path.substr(folder.size(), f.path.size() - folder.size() - 3));
    if (name.ends_with("/__init__")) name.resize(name.size() - 9);
    for (char& ch : name)
      if (ch == '/') ch = '.';
    d.in.modules.source(name, std::string(f.text), "rules/" + std::string(f.path));
    for (const auto& [fresh, old] : aliases)
      if (name == old || name.starts_with(old + ".")) d.in.modules.source(fresh + name.substr(old.size()), std::string(f.text), "rules/" + std::string(f.path));
  }
}

}  // namespace torch

void register_torch(Interpreter& in, std::shared_ptr<const rules::Database> database, const Watch& watch) {
  if (!database) {
    // The embedded rules never change while the program runs: they are read once.
    static const std::shared_ptr<const rules::Database> embedded = [&] {
      auto loaded = rules::Database::load(in.sources);
      return loaded ? *loaded : nullptr;
    }();
    database = embedded;
  }
  if (!database) in.raise("RuntimeError", "the built-in rules cannot be read");
  auto owned = std::make_shared<torch::Domain>(in, database);
  in.tensors = owned.get();
  // The domain lives as long as the interpreter: a native of ours holds it.
  in.native("torch", [owned](Interpreter&, CallInfo&) { return Value::none(); });
  torch::register_namespace(*owned);
  torch::register_module_class(*owned);
  torch::register_einops(*owned);
  torch::register_parallel(*owned);
  owned->observer = watch.observer;
  owned->parallel.tp = watch.tp;
  owned->parallel.rank = watch.rank;
  torch::register_sources(*owned, "layers/");
  if (watch.parallel_libraries) torch::register_sources(*owned, "parallel/");
}

}  // namespace shardwright::eval
