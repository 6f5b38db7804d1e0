#include "eval/source.h"

#include "python/parse.h"

namespace shardwright::eval {

PythonSource::PythonSource(support::SourceManager& sources, const python::FileSystem& files, std::vector<std::string> search_paths)
    : sources_(sources), files_(files), loader_(sources, files, arena_, diagnostics_, std::move(search_paths)) {}

const program::Module* PythonSource::parse(const std::string& dotted, const std::string& path, std::string_view text) {
  support::FileId id = sources_.add(path, std::string(text), dotted);
  return python::parse(sources_, id, arena_, diagnostics_);
}

const std::string& PythonSource::text_of(const std::string& path) {
  auto it = texts_.find(path);
  if (it == texts_.end()) {
    auto t = files_.read(path);
    it = texts_.emplace(path, t ? std::move(*t) : std::string()).first;
  }
  return it->second;
}

bool PythonSource::mentions(const std::string& dotted, std::string_view word) {
  const python::ModuleLocation& at = loader_.locate(dotted);
  if (at.kind == python::ModuleLocation::Source && text_of(at.path).find(word) != std::string::npos) return true;
  if (!at.is_package()) return false;
  const std::vector<std::string> folders = at.folders;
  for (const auto& folder : folders)
    for (const auto& name : files_.list(folder)) {
      if (name.size() > 3 && name.compare(name.size() - 3, 3, ".py") == 0) {
        if (text_of(folder + "/" + name).find(word) != std::string::npos) return true;
      } else if (name.find('.') == std::string::npos && name[0] != '_' && files_.is_file(folder + "/" + name + "/__init__.py")) {
        if (mentions(dotted + "." + name, word)) return true;
      }
    }
  return false;
}

}  // namespace shardwright::eval
