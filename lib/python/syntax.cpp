#include "python/syntax.h"

#include "python/parse.h"

namespace shardwright::python {

program::Module* Syntax::parse(const std::string& name, const std::string& path, std::string_view text, bool is_package,
                               support::Diagnostics& diagnostics) {
  Parsed& p = parsed_[name + '\n' + path + (is_package ? "\np" : "")];
  if (!p.module || sources_.file(p.module->file).text != text) {
    p.said = {};
    p.module = python::parse(sources_, sources_.add(path, std::string(text), name), arena_, p.said, bodies_later_);
    p.module->is_package = is_package;
  }
  for (const auto& d : p.said.all()) diagnostics.add(d);
  return p.module;
}

program::Module* Syntax::empty(const std::string& name) {
  program::Module* m = arena_.module();
  m->name = name;
  m->is_package = true;
  return m;
}

}  // namespace shardwright::python
