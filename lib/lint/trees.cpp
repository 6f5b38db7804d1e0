#include "lint/trees.h"

#include <algorithm>
#include <cctype>
#include <unordered_map>

#include "support/files.h"

namespace shardwright::lint {

namespace {

using support::join_path;
using support::parent_path;

/// The outermost folder of the chain that hold an __init__.py, asked once a folder: the folder above it, and its own name.
class Roots {
 public:
  explicit Roots(const python::FileSystem& files) : files_(files) {}
  std::pair<std::string, std::string> of(const std::string& file) {
    const std::string folder = parent_path(file);
    const auto& [root, top] = of_folder(folder);
    return {root, top.empty() ? support::stem(file) : top};
  }

 private:
  const std::pair<std::string, std::string>& of_folder(const std::string& folder) {
    if (const auto at = known_.find(folder); at != known_.end()) return at->second;
    std::pair<std::string, std::string> out{folder, ""};
    if (!folder.empty() && folder != "." && folder != "/" && files_.is_file(join_path(folder, "__init__.py"))) {
      const std::size_t slash = folder.find_last_of('/');
      const std::string name = slash == std::string::npos ? folder : folder.substr(slash + 1);
      out = of_folder(slash == std::string::npos ? "" : parent_path(folder));
      if (out.second.empty()) out.second = name;
    }
    return known_.emplace(folder, std::move(out)).first->second;
  }
  const python::FileSystem& files_;
  std::unordered_map<std::string, std::pair<std::string, std::string>> known_;
};

}  // namespace

std::pair<std::string, std::string> root_of(const std::string& file, const python::FileSystem& files) {
  return Roots(files).of(support::normal_path(file));
}

std::vector<Tree> separate(const std::vector<std::string>& paths, const python::FileSystem& files) {
  struct Root {
    std::vector<std::string> files;
    std::set<std::string> names;
    std::size_t tree = 0;
  };
  Roots roots(files);
  std::map<std::string, Root> all;
  std::vector<std::string> order;
  for (const auto& path : paths) {
    const auto [folder, top] = roots.of(support::normal_path(path));
    auto [at, fresh] = all.emplace(folder, Root{});
    if (fresh) order.push_back(folder);
    at->second.files.push_back(path);
    at->second.names.insert(top);
  }
  const auto differ = [](const std::set<std::string>& a, const std::set<std::string>& b) {
    return std::none_of(a.begin(), a.end(), [&](const std::string& n) { return b.count(n) > 0; });
  };
  std::vector<Tree> out;
  std::vector<std::set<std::string>> names;
  for (const auto& folder : order) {
    Root& root = all[folder];
    std::size_t i = 0;
    while (i < out.size() && !differ(root.names, names[i])) ++i;
    if (i == out.size()) out.emplace_back(), names.emplace_back();
    root.tree = i;
    out[i].roots.push_back(folder);
    out[i].files.insert(out[i].files.end(), root.files.begin(), root.files.end());
    names[i].insert(root.names.begin(), root.names.end());
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::sort(out[i].files.begin(), out[i].files.end());
    for (const auto& folder : order)
      if (all[folder].tree != i && differ(all[folder].names, names[i])) out[i].beside.push_back(folder);
  }
  return out;
}

std::vector<std::string> classes_in(std::string_view text) {
  std::vector<std::string> out;
  for (std::size_t at = text.starts_with("class ") ? 0 : text.find("\nclass "); at != std::string_view::npos;
       at = text.find("\nclass ", at)) {
    at += text[at] == '\n' ? 7 : 6;
    std::size_t end = at;
    while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) || text[end] == '_')) ++end;
    out.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return out;
}

void ClassFiles::add(const std::string& path, const std::vector<std::string>& classes) {
  for (const auto& c : classes) {
    auto& files = by_class_[c];
    if (files.empty() || files.back() != path) files.push_back(path);
  }
}

const std::vector<std::string>& ClassFiles::of(const std::string& name) const {
  static const std::vector<std::string> none;
  const auto at = by_class_.find(name);
  return at == by_class_.end() ? none : at->second;
}

}  // namespace shardwright::lint
