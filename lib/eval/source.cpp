#include "eval/source.h"

#include <cctype>

namespace shardwright::eval {

PythonSource::PythonSource(std::shared_ptr<python::Syntax> syntax, const python::FileSystem& files, std::vector<std::string> search_paths)
    : syntax_(std::move(syntax)), files_(files), loader_(*syntax_, files, diagnostics_, std::move(search_paths)) {}

const program::Module* PythonSource::parse(const std::string& dotted, const std::string& path, std::string_view text) {
  return syntax_->parse(dotted, path, text, false, diagnostics_);
}

namespace {

bool ident(char c) { return isalnum(static_cast<unsigned char>(c)) || c == '_'; }

/// The words that the text could bind at its top level or list (in __all__, say), and 'quoted' ones: not those it only uses.
void definable(const std::string& text, std::unordered_set<std::string>& out) {
  std::string_view last;  // the word before, for class, def, import, as
  for (std::size_t p = 0; p < text.size();) {
    if (!ident(text[p])) {
      ++p;
      continue;
    }
    std::size_t e = p;
    while (e < text.size() && ident(text[e])) ++e;
    std::string_view word = std::string_view(text).substr(p, e - p);
    std::size_t b = p;
    while (b > 0 && (text[b - 1] == ' ' || text[b - 1] == '\t')) --b;
    const char before = b == 0 ? '\n' : text[b - 1], left = p == 0 ? '\n' : text[p - 1];
    const bool after_word = b > 0 && ident(before) && (last == "class" || last == "def" || last == "import" || last == "as");
    if (left == '\'' || left == '"') {
      out.emplace(word);
      if (e < text.size() && text[e] == left) out.insert("'" + std::string(word) + "'");
    } else if (after_word || before == '\n' || before == ',' || before == '(') {
      out.emplace(word);
    }
    last = word;
    p = e;
  }
}

}  // namespace

/// One pass over each file, kept: packages ask for hundreds of names.
const std::unordered_set<std::string>& PythonSource::words(const std::string& dotted) {
  auto it = words_.find(dotted);
  if (it != words_.end()) return it->second;
  auto& out = words_[dotted];
  const python::ModuleLocation at = loader_.locate(dotted);
  auto read = [&](const std::string& path) {
    if (auto t = files_.read(path)) definable(*t, out);
  };
  if (at.kind == python::ModuleLocation::Source) read(at.path);
  for (const auto& folder : at.folders)
    for (const auto& name : files_.list(folder)) {
      if (name.size() > 3 && name.compare(name.size() - 3, 3, ".py") == 0) {
        if (name != "__init__.py") read(folder + "/" + name);
      } else if (name.find('.') == std::string::npos && name[0] != '_' && files_.is_file(folder + "/" + name + "/__init__.py")) {
        const auto& inner = words(dotted + "." + name);
        out.insert(inner.begin(), inner.end());
      }
    }
  return out;
}

std::string PythonSource::unreadable(const std::string& dotted) {
  const python::ModuleLocation at = loader_.locate(dotted);
  if (at.kind != python::ModuleLocation::Source) return "";
  const auto text = files_.read(at.path);
  return text ? "" : text.error().message;
}

bool PythonSource::mentions(const std::string& dotted, std::string_view word) {
  std::string w(word);
  if (!w.empty() && w[0] == '"') w.front() = w.back() = '\'';
  return words(dotted).count(w) != 0;
}

}  // namespace shardwright::eval
