#include "eval/source.h"
#include <cctype>

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

namespace {

/// Whether the text could bind `word` at its top level or list it: not just use it.
bool could_define(const std::string& text, std::string_view word) {
  auto ident = [](char c) { return isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  const bool quoted = !word.empty() && (word[0] == '\'' || word[0] == '"');
  for (std::size_t p = text.find(word); p != std::string::npos; p = text.find(word, p + 1)) {
    if (quoted) return true;
    const std::size_t e = p + word.size();
    if ((p > 0 && ident(text[p - 1])) || (e < text.size() && ident(text[e]))) continue;
    if (p == 0 || text[p - 1] == '\'' || text[p - 1] == '"' || text[p - 1] == '\n') return true;
    std::size_t b = p;
    while (b > 0 && (text[b - 1] == ' ' || text[b - 1] == '\t')) --b;
    auto before = [&](std::string_view w) { return b >= w.size() && std::string_view(text).substr(b - w.size(), w.size()) == w; };
    if (b == 0 || before("\n") || before("class") || before("def") || before("import") || before("as") || before(",") || before("(")) return true;
  }
  return false;
}

}  // namespace

bool PythonSource::mentions(const std::string& dotted, std::string_view word) {
  const python::ModuleLocation& at = loader_.locate(dotted);
  if (at.kind == python::ModuleLocation::Source && could_define(text_of(at.path), word)) return true;
  if (!at.is_package()) return false;
  const std::vector<std::string> folders = at.folders;
  for (const auto& folder : folders)
    for (const auto& name : files_.list(folder)) {
      if (name.size() > 3 && name.compare(name.size() - 3, 3, ".py") == 0) {
        if (could_define(text_of(folder + "/" + name), word)) return true;
      } else if (name.find('.') == std::string::npos && name[0] != '_' && files_.is_file(folder + "/" + name + "/__init__.py")) {
        if (mentions(dotted + "." + name, word)) return true;
      }
    }
  return false;
}

}  // namespace shardwright::eval
