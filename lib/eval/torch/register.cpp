// Connects the domain to an interpreter.
#include "eval/torch/domain.h"
#include "eval/torch_link.h"
#include "rules/embedded.h"

namespace shardwright::eval {
namespace torch {

/// rules/layers/**.py: the path is the module's name.
void register_sources(Domain& d) {
  for (const rules::EmbeddedFile& f : rules::embedded_files()) {
    if (!f.path.starts_with("layers/") || !f.path.ends_with(".py")) continue;
    std::string name(f.path.substr(7, f.path.size() - 10));
    if (name.ends_with("/__init__")) name.resize(name.size() - 9);
    for (char& ch : name)
      if (ch == '/') ch = '.';
    d.in.modules.source(name, std::string(f.text), "rules/" + std::string(f.path));
  }
}

}  // namespace torch

void register_torch(Interpreter& in, std::shared_ptr<const rules::Database> database) {
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
  torch::register_sources(*owned);
}

}  // namespace shardwright::eval
