#include "python/syntax.h"

#include "python/parse.h"
#include "support/parallel.h"

namespace shardwright::python {

std::string Syntax::key(const std::string& name, const std::string& path, bool is_package) {
  return name + '\n' + path + (is_package ? "\np" : "");
}

void Syntax::read_ahead(std::vector<Text> texts) {
  struct Job {
    Parsed* to;
    support::FileId file;
    bool is_package;
  };
  std::vector<Job> jobs;
  for (Text& t : texts) {
    Parsed& p = parsed_[key(t.name, t.path, t.is_package)];  // references stay when others are added
    if (!p.module) jobs.push_back({&p, sources_.add(t.path, std::move(t.text), t.name), t.is_package});
  }
  const std::size_t workers = support::workers_for(jobs.size());
  const std::size_t first = ahead_.size();
  ahead_.resize(first + workers);
  support::parallel(jobs.size(), workers, [&](std::size_t i, std::size_t worker) {
    const Job& j = jobs[i];
    j.to->module = python::parse(sources_, j.file, ahead_[first + worker], j.to->said, bodies_later_);
    j.to->module->is_package = j.is_package;
  });
}

program::Module* Syntax::parse(const std::string& name, const std::string& path, std::string_view text, bool is_package,
                               support::Diagnostics& diagnostics) {
  Parsed& p = parsed_[key(name, path, is_package)];
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
