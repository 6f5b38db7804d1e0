#include "lint/files.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "support/files.h"

namespace shardwright::lint {
namespace {

namespace fs = std::filesystem;

std::string key(const std::string& path) {
  if (!path.empty() && path[0] == '/') return support::normal_path(path);
  std::error_code ec;
  return support::normal_path(support::join_path(fs::current_path(ec).string(), path));
}

bool entered(const std::string& folder, const std::string& name, const python::FileSystem& files) {
  static const std::set<std::string, std::less<>> kNever = {"__pycache__", "node_modules", "site-packages"};
  if (name.empty() || name[0] == '.' || kNever.count(name) || name.ends_with(".egg-info")) return false;
  return !files.is_file(support::join_path(folder, "pyvenv.cfg"));
}

void search(const std::string& folder, std::string_view ending, std::vector<std::string>& out) {
  // One pass of directory entries: asking the file system for each name's kind costs more than everything else here.
  std::error_code ec;
  std::vector<std::string> folders;
  for (fs::directory_iterator it(folder, fs::directory_options::skip_permission_denied, ec), end; !ec && it != end; it.increment(ec)) {
    std::string name = it->path().filename().string();
    std::error_code kind;
    if (it->is_directory(kind)) {
      if (!it->is_symlink(kind)) folders.push_back(std::move(name));
    } else if (name.size() > ending.size() && name.ends_with(ending) && it->is_regular_file(kind)) {
      out.push_back(support::normal_path(support::join_path(folder, name)));
    }
  }
  for (const auto& name : folders) {
    const std::string path = support::join_path(folder, name);
    if (entered(path, name, disk())) search(path, ending, out);
  }
}

}  // namespace

void OverlayFileSystem::set(const std::string& path, std::string text) { texts_[key(path)] = std::move(text); }
void OverlayFileSystem::remove(const std::string& path) { texts_.erase(key(path)); }
bool OverlayFileSystem::is_file(const std::string& path) const {
  return (!texts_.empty() && texts_.count(key(path))) || below_.is_file(path);
}
bool OverlayFileSystem::is_directory(const std::string& path) const { return below_.is_directory(path); }

support::Expected<std::string> OverlayFileSystem::read(const std::string& path) const {
  if (!texts_.empty())
    if (auto it = texts_.find(key(path)); it != texts_.end()) return it->second;
  return below_.read(path);
}

const python::FileSystem& disk() {
  static const python::DiskFileSystem files;
  return files;
}

support::Expected<std::vector<std::string>> python_files(const std::vector<std::string>& paths, const python::FileSystem& files) {
  std::vector<std::string> out;
  for (const auto& path : paths) {
    if (files.is_directory(path)) {
      std::error_code ec;
      if (fs::directory_iterator it(path, ec); ec)
        return support::failure("cannot list '" + path + "': " + ec.message() + "; a folder that can be read is expected", {}, "input");
      search(path, ".py", out);
    } else if (files.is_file(path)) out.push_back(path);
    else
      return support::failure("'" + path + "': there is no such file or folder; expected Python files, or folders that hold some", {},
                              "input");
  }
  // "a/b.py" and "./a/b.py" are one file: the first spelling stays.
  std::set<std::string> seen;
  std::erase_if(out, [&](const std::string& p) { return !seen.insert(key(p)).second; });
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<std::string> shell_files(const std::vector<std::string>& paths, const python::FileSystem& files) {
  std::vector<std::string> out;
  for (const auto& path : paths)
    if (files.is_directory(path)) search(path, ".sh", out);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace shardwright::lint
