// Connects the domain to an interpreter.
#include <filesystem>
#include <sstream>

#include "eval/impl.h"
#include "eval/torch/domain.h"
#include "eval/torch_link.h"
#include "rules/embedded.h"
#include "support/files.h"

namespace shardwright::eval {
namespace torch {

namespace {

/// "torch/nn/utils/__init__.py" → "torch.nn.utils"
std::string module_name(std::string_view path) {
  std::string name(path.substr(0, path.size() - 3));
  if (name.ends_with("/__init__")) name.resize(name.size() - 9);
  for (char& ch : name)
    if (ch == '/') ch = '.';
  return name;
}

}  // namespace

void register_user_sources(Domain& d, const std::string& dir) {
  namespace fs = std::filesystem;
  std::error_code ec;
  const fs::path layers = fs::path(dir) / "layers";
  for (fs::recursive_directory_iterator it(layers, fs::directory_options::skip_permission_denied, ec), end; !ec && it != end;
       it.increment(ec)) {
    if (it->path().extension() != ".py") continue;
    if (auto text = support::read_file(it->path().string()))
      d.in.modules.source(module_name(it->path().lexically_relative(layers).generic_string()), *text, it->path().string());
  }
}

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
    const std::string name = module_name(f.path.substr(folder.size()));
    d.in.modules.source(name, std::string(f.text), "rules/" + std::string(f.path));
    for (const auto& [fresh, old] : aliases)
      if (name == old || name.starts_with(old + "."))
        d.in.modules.source(fresh + name.substr(old.size()), std::string(f.text), "rules/" + std::string(f.path));
  }
}

void watch_by(Domain& d, const Watch& watch) {
  d.observer = watch.observer;
  if (watch.observer) watch.observer->attach(d.in.trace);
  d.parallel.tp = watch.tp;
  d.parallel.rank = watch.rank;
}

}  // namespace torch

void register_torch(Interpreter& in, std::shared_ptr<const rules::Database> database, const Watch& watch,
                    const std::vector<std::string>& rules_dirs) {
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
  torch::watch_by(*owned, watch);
  torch::register_sources(*owned, "layers/");
  torch::register_sources(*owned, "written/");
  if (watch.parallel_libraries) torch::register_sources(*owned, "parallel/");
  for (const std::string& dir : rules_dirs) torch::register_user_sources(*owned, dir);
}

void start_over(Interpreter& in, const Watch& watch) {
  auto& d = torch::domain(in);
  // Modules of the last run are plain objects now, should something still hold them.
  for (InstanceObj* m : d.instances)
    if (m) m->module_id = -1;
  d.instances.clear();
  model::Trace kept;
  kept.syms = std::move(in.trace.syms);
  kept.tensors = std::move(in.trace.tensors);
  for (model::Tensor& t : kept.tensors) {
    t.producer = -1;
    t.origin = model::Origin::Constant;
    t.requires_grad = t.from_input = t.from_parameter = false;
  }
  in.trace = std::move(kept);
  d.module_stack.clear();
  d.custom_functions.clear();
  d.grad_enabled = true;
  d.default_dtype = model::DType::F32;
  torch::watch_by(d, watch);
  Interpreter::Impl& i = *in.impl();
  i.steps = 0;
  i.ret = {};
  i.making_error = i.import_guard = false;
  i.generators.clear();
  i.changed.clear();
  i.first_read.clear();
  i.contents.clear();
  i.noted.clear();
  in.init_phase = true;
}

}  // namespace shardwright::eval
