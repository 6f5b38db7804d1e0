#include "python/resolve.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "python/parse.h"
#include "support/files.h"

namespace shardwright::python {

using support::join_path;
using support::parent_path;

bool DiskFileSystem::is_file(const std::string& path) const { return support::is_file(path); }
bool DiskFileSystem::is_directory(const std::string& path) const { return support::is_directory(path); }
support::Expected<std::string> DiskFileSystem::read(const std::string& path) const { return support::read_file(path); }

std::vector<std::string> DiskFileSystem::list(const std::string& path) const {
  std::vector<std::string> out;
  std::error_code ec;
  std::filesystem::directory_iterator it(path, ec), end;
  while (!ec && it != end) {
    out.push_back(it->path().filename().string());
    it.increment(ec);
  }
  return out;
}

bool MemoryFileSystem::is_directory(const std::string& path) const {
  const std::string prefix = path.empty() || path.back() == '/' ? path : path + "/";
  const auto it = files_.lower_bound(prefix);
  return it != files_.end() && it->first.compare(0, prefix.size(), prefix) == 0;
}

support::Expected<std::string> MemoryFileSystem::read(const std::string& path) const {
  const auto it = files_.find(path);
  if (it == files_.end()) return support::failure("cannot read '" + path + "': No such file or directory", {}, "input");
  return it->second;
}

std::vector<std::string> MemoryFileSystem::list(const std::string& path) const {
  const std::string prefix = path.empty() || path.back() == '/' ? path : path + "/";
  std::set<std::string> names;
  for (auto it = files_.lower_bound(prefix); it != files_.end() && it->first.compare(0, prefix.size(), prefix) == 0; ++it)
    names.insert(it->first.substr(prefix.size(), it->first.find('/', prefix.size()) - prefix.size()));
  return {names.begin(), names.end()};
}

Resolver::Resolver(const FileSystem& files, std::vector<std::string> search_paths) : files_(files) {
  for (std::string& p : search_paths) add_search_path(std::move(p));
}

void Resolver::add_search_path(std::string path, bool first) {
  path = support::normal_path(path.empty() ? "." : path);
  const auto known = std::find(search_paths_.begin(), search_paths_.end(), path);
  if (known != search_paths_.end()) {
    if (!first) return;
    search_paths_.erase(known);
  }
  search_paths_.insert(first ? search_paths_.begin() : search_paths_.end(), std::move(path));
  for (auto it = found_.begin(); it != found_.end();) it = it->second ? std::next(it) : found_.erase(it);
}

void Resolver::set(ModuleLocation location) { found_[location.name] = std::move(location); }

ModuleLocation Resolver::look(const std::string& name, const std::string& last, const std::vector<std::string>& folders) const {
  ModuleLocation m;
  m.name = name;
  std::vector<std::string> namespaces;
  for (const std::string& folder : folders) {
    const std::string base = join_path(folder == "." ? "" : folder, last);
    const bool is_folder = files_.is_directory(base);
    if (is_folder && files_.is_file(base + "/__init__.py")) {
      m.kind = ModuleLocation::Source;
      m.path = base + "/__init__.py";
      m.folders = {base};
      return m;
    }
    if (files_.is_file(base + ".py")) {
      m.kind = ModuleLocation::Source;
      m.path = base + ".py";
      return m;
    }
    // Extension modules carry a tag: NAME.cpython-311-x86_64-linux-gnu.so. Listing the folder is the only way to see them, so only
    // where nothing else is: a source of the same name beside it serves us better anyway.
    for (const std::string& entry : files_.list(folder)) {
      if (entry.size() <= last.size() + 3 || entry.compare(0, last.size(), last) != 0 || entry[last.size()] != '.') continue;
      if (entry.compare(entry.size() - 3, 3, ".so") != 0) continue;
      m.kind = ModuleLocation::Compiled;
      m.path = join_path(folder, entry);
      return m;
    }
    if (is_folder) namespaces.push_back(base);
  }
  if (!namespaces.empty()) {
    m.kind = ModuleLocation::Namespace;
    m.folders = std::move(namespaces);
  }
  return m;
}

const ModuleLocation& Resolver::find(const std::string& dotted) {
  if (const auto it = found_.find(dotted); it != found_.end()) return it->second;
  const std::size_t dot = dotted.rfind('.');
  ModuleLocation m;
  if (dot == std::string::npos) {
    m = look(dotted, dotted, search_paths_);
  } else {
    const ModuleLocation& parent = find(dotted.substr(0, dot));  // a reference stays valid: unordered_map keeps its nodes
    m.name = dotted;
    if (parent.is_package()) m = look(dotted, dotted.substr(dot + 1), parent.folders);
  }
  return found_[dotted] = std::move(m);
}

std::vector<std::string> Resolver::submodules(const ModuleLocation& package) const {
  std::set<std::string> names;
  for (const std::string& folder : package.folders)
    for (const std::string& entry : files_.list(folder)) {
      if (entry.size() > 3 && entry.compare(entry.size() - 3, 3, ".py") == 0) {
        if (entry != "__init__.py") names.insert(entry.substr(0, entry.size() - 3));
      } else if (entry.find('.') == std::string::npos && files_.is_file(join_path(folder, entry) + "/__init__.py")) {
        names.insert(entry);
      }
    }
  return {names.begin(), names.end()};
}

std::optional<std::string> absolute_name(const std::string& importer, bool importer_is_package, int level, const std::string& module) {
  if (level == 0) return module;
  std::string base = importer;
  for (int up = importer_is_package ? 1 : 0; up < level; ++up) {
    const std::size_t dot = base.rfind('.');
    if (dot == std::string::npos) return std::nullopt;
    base.resize(dot);
  }
  if (module.empty()) return base;
  return base + "." + module;
}

std::vector<std::string> site_packages(const FileSystem& files, const std::string& prefix) {
  std::vector<std::pair<int, std::string>> versions;  // minor version, folder
  for (const char* lib : {"lib", "lib64"}) {
    const std::string folder = join_path(prefix, lib);
    for (const std::string& entry : files.list(folder)) {
      if (entry.compare(0, 6, "python") != 0) continue;
      for (const char* site : {"site-packages", "dist-packages"}) {
        const std::string path = join_path(join_path(folder, entry), site);
        if (!files.is_directory(path)) continue;
        const std::size_t dot = entry.find('.');
        versions.emplace_back(dot == std::string::npos ? 0 : std::atoi(entry.c_str() + dot + 1), path);
      }
    }
  }
  std::stable_sort(versions.begin(), versions.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::string> out;
  const auto add = [&](std::string path) {
    if (std::find(out.begin(), out.end(), path) == out.end()) out.push_back(std::move(path));
  };
  for (const auto& [version, path] : versions) {
    add(path);
    std::vector<std::string> names = files.list(path);
    std::sort(names.begin(), names.end());
    for (const std::string& name : names) {
      if (name.size() < 4 || name.compare(name.size() - 4, 4, ".pth") != 0) continue;
      const auto text = files.read(join_path(path, name));
      if (!text) continue;
      std::size_t at = 0;
      while (at < text->size()) {
        const std::size_t newline = std::min(text->find('\n', at), text->size());
        std::string line = text->substr(at, newline - at);
        at = newline + 1;
        while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
        if (line.empty() || line[0] == '#' || line.compare(0, 7, "import ") == 0 || line.compare(0, 7, "import\t") == 0) continue;
        const std::string target = support::normal_path(join_path(path, line));
        if (files.is_directory(target)) add(target);
      }
    }
  }
  return out;
}

std::vector<std::string> site_packages_of(const FileSystem& files, const std::string& virtual_env, const std::string& python) {
  if (!python.empty()) {
    if (files.is_directory(python)) return site_packages(files, python);
    return site_packages(files, support::normal_path(join_path(parent_path(python).empty() ? "." : parent_path(python), "..")));
  }
  if (!virtual_env.empty()) return site_packages(files, virtual_env);
  return {};
}

Loader::Loader(Syntax& syntax, const FileSystem& files, support::Diagnostics& diagnostics, std::vector<std::string> search_paths)
    : syntax_(syntax), files_(files), diagnostics_(diagnostics), resolver_(files, std::move(search_paths)) {}

program::Module* Loader::parse_text(const std::string& name, const std::string& path, std::string_view text, bool is_package) {
  program::Module* m = syntax_.parse(name, path, text, is_package, diagnostics_);
  modules_[name] = m;
  order_.push_back(m);
  return m;
}

program::Module* Loader::load(const std::string& dotted) {
  if (const auto it = modules_.find(dotted); it != modules_.end()) return it->second;
  const ModuleLocation where = resolver_.find(dotted);
  if (where.kind == ModuleLocation::Namespace) return modules_[dotted] = syntax_.empty(dotted);
  if (where.kind != ModuleLocation::Source) return modules_[dotted] = nullptr;
  auto text = files_.read(where.path);
  if (!text) {
    diagnostics_.add(text.error());
    return modules_[dotted] = nullptr;
  }
  return parse_text(dotted, where.path, *text, where.is_package());
}

void Loader::adopt(program::Module* module) {
  modules_[module->name] = module;
  order_.push_back(module);
}

Loader::File Loader::file_of(const std::string& given) const {
  File f;
  f.path = support::normal_path(given);
  f.root = parent_path(f.path);
  f.is_package = support::stem(f.path) == "__init__";
  f.name = f.is_package ? "" : support::stem(f.path);
  while (!f.root.empty() && f.root != "." && f.root != "/" && files_.is_file(join_path(f.root, "__init__.py"))) {
    const std::size_t slash = f.root.find_last_of('/');
    const std::string part = slash == std::string::npos ? f.root : f.root.substr(slash + 1);
    f.name = f.name.empty() ? part : part + "." + f.name;
    f.root = slash == std::string::npos ? "" : parent_path(f.root);
  }
  if (f.name.empty()) f.name = "__init__";
  return f;
}

void Loader::read_ahead(const std::vector<std::string>& paths) {
  std::vector<Syntax::Text> texts;
  for (const auto& path : paths)
    if (auto text = files_.read(support::normal_path(path))) {
      const File f = file_of(path);
      texts.push_back({f.name, f.path, std::move(*text), f.is_package});
    }
  syntax_.read_ahead(std::move(texts));
}

support::Expected<program::Module*> Loader::load_file(const std::string& given) {
  auto text = files_.read(support::normal_path(given));
  if (!text) return text.error();
  const File f = file_of(given);
  resolver_.add_search_path(f.root, true);
  if (const auto it = modules_.find(f.name); it != modules_.end() && it->second && it->second->file >= 0) {
    if (support::normal_path(syntax_.sources().file(it->second->file).path) == f.path) return it->second;
  }
  ModuleLocation here;
  here.kind = ModuleLocation::Source;
  here.name = f.name;
  here.path = f.path;
  if (f.is_package) here.folders = {parent_path(f.path)};
  resolver_.set(here);
  return parse_text(f.name, f.path, *text, f.is_package);
}

}  // namespace shardwright::python
