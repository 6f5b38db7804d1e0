// Registers stdlib/*.py under their module names.
#include "eval/impl.h"
#include "eval/stdlib.h"

namespace shardwright::eval {

void register_python_sources(Interpreter& in) {
  for (const auto& s : stdlib_sources()) {
    std::string path = "<shardwright>/" + s.name + ".py";
    if (s.name == "collections_abc") {
      in.modules.source("collections.abc", s.text, path);
      in.modules.source("_collections_abc", s.text, path);
      continue;
    }
    in.modules.source(s.name, s.text, path);
    if (s.name == "typing") in.modules.source("typing_extensions", s.text, path);
    if (s.name == "pathlib") continue;
  }
  for (const char* n : {"logging.handlers", "logging.config", "__future__"}) in.modules.native(n, [](Interpreter&, ModuleObj&) {});
}

}  // namespace shardwright::eval
