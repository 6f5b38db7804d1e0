#include "lint/lint.h"

#include <algorithm>

#include "lint/checks/check.h"
#include "lint/files.h"
#include "lint/findings.h"
#include "lint/scripts.h"
#include "lint/session.h"

namespace shardwright::lint {

support::Expected<std::vector<support::Diagnostic>> check(const Request& request, support::SourceManager& sources, const rules::Database& rules) {
  const python::FileSystem& files = request.files ? *request.files : disk();
  auto paths = python_files(request.paths, files);
  if (!paths) return paths.error();
  Found findings;
  Session session(request, sources, rules, findings);
  std::vector<const program::Module*> modules;
  std::set<support::FileId> looked_at;
  std::vector<std::string> with_styles;   // what may ask a wrapper for a style
  for (const auto& path : *paths) {
    auto text = files.read(path);
    if (!text) continue;
    if (!mentions_parallel(*text) && text->find("_REGISTRY = ") == std::string::npos) {
      if (text->find("style=") != std::string::npos) with_styles.push_back(path);
      continue;
    }
    if (const auto* m = session.load(path)) {
      modules.push_back(m);
      looked_at.insert(m->file);
    }
  }
  const auto wired = registries(modules, sources);
  std::vector<const program::Module*> asking = modules;
  if (!wired.empty())
    for (const auto& path : with_styles)
      if (auto text = files.read(path); text && asks_unknown_style(*text, wired))
        if (const auto* m = session.load(path)) {
          asking.push_back(m);
          looked_at.insert(m->file);
        }
  session.wiring(wired, asking);
  session.run(relevant_classes(modules, sources));
  for (const auto* m : modules) {
    check_scripts(*m, sources, findings);
    check_stages(*m, sources, findings);
    check_training(*m, sources, findings);
    session.boundaries(*m);
  }
  for (const auto& path : shell_files(request.paths, files))
    if (auto text = files.read(path); text && text->find("parallel") != std::string::npos) {
      const auto script = sources.add(path, *text);
      looked_at.insert(script);
      session.run_script(script);
    }
  const std::set<std::string> asked_for(paths->begin(), paths->end());  // files that others led to
  std::vector<support::Diagnostic> out;
  for (const auto& d : findings.all())
    if (looked_at.count(d.range.file) || asked_for.count(sources.file(d.range.file).path)) out.push_back(d);
  for (const auto* m : modules) run_file_checks({*m, sources, out});
  std::stable_sort(out.begin(), out.end(), [&](const auto& a, const auto& b) {
    if (a.range.file != b.range.file) return sources.file(a.range.file).path < sources.file(b.range.file).path;
    return a.range.begin < b.range.begin;
  });
  return out;
}

}  // namespace shardwright::lint
