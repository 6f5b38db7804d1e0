// Runs Python text held in memory through the interpreter, without tensors.
#pragma once
#include <initializer_list>
#include <map>
#include <string>

#include "eval/interpreter.h"
#include "eval/source.h"

namespace core {

using namespace shardwright;
using namespace shardwright::eval;

using Files = std::map<std::string, std::string>;
/// Names the argument, so that braces around one file are not taken for something else.
inline Files files(std::initializer_list<Files::value_type> l) { return Files(l); }

struct World {
  explicit World(Files files)
      : fs(prefixed(std::move(files))), source(std::make_shared<python::Syntax>(sm), fs, {"/src"}), in(sm, source, trace) {}
  static std::map<std::string, std::string> prefixed(std::map<std::string, std::string> f) {
    std::map<std::string, std::string> out;
    for (auto& [k, v] : f) out["/src/" + k] = v;
    return out;
  }
  /// repr of a global of module m; an error as "!TypeError: …".
  std::string get(const std::string& name, const std::string& module = "m") {
    try {
      ModuleObj* mod = in.import(module);
      if (!mod) return "!no module";
      Value v = in.module_attr(mod, name);
      return v.set() ? in.to_repr(v) : "!unset";
    } catch (PyError& e) {
      where = e.trace.empty() ? "" : sm.describe(e.trace[0].first);
      return "!" + in.describe(e);
    } catch (Abort& a) { return "!abort: " + a.message; }
  }
  support::SourceManager sm;
  python::MemoryFileSystem fs;
  PythonSource source;
  model::Trace trace;
  Interpreter in;
  std::string where;
};

/// repr of `r` after running the text as module m.
inline std::string run(const std::string& text) {
  World w(files({{"m.py", text}}));
  return w.get("r");
}

}  // namespace core
