#include "lint/files.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <unordered_set>

#include "support/files.h"

namespace shardwright::lint {
namespace {

namespace fs = std::filesystem;

std::string working_folder() {
  std::error_code ec;
  return fs::current_path(ec).string();
}

std::string key(const std::string& path, const std::string& working = working_folder()) {
  return support::normal_path(!path.empty() && path[0] == '/' ? path : support::join_path(working, path));
}

bool entered(const std::string& name) {
  static const std::set<std::string, std::less<>> kNever = {"__pycache__", "node_modules", "site-packages"};
  return !name.empty() && name[0] != '.' && !kNever.count(name) && !name.ends_with(".egg-info");
}

std::string in_folder(const std::string& folder, const std::string& name) {
  return folder == "." ? name : support::join_path(folder, name);
}

/// `below`: not a folder that was asked for; a virtual environment is left out then.
void search(const std::string& folder, bool below, Listed& out) {
  // One pass of directory entries: asking the file system for each name's kind costs more than everything else here.
  std::error_code ec;
  std::vector<std::string> folders, python, shell;
  for (fs::directory_iterator it(folder, fs::directory_options::skip_permission_denied, ec), end; !ec && it != end; it.increment(ec)) {
    std::string name = it->path().filename().string();
    std::error_code kind;
    if (it->is_directory(kind)) {
      if (entered(name) && !it->is_symlink(kind)) folders.push_back(std::move(name));
    } else if (below && name == "pyvenv.cfg") {
      return;
    } else if (auto* list = name.size() > 3 && name.ends_with(".py") ? &python
                   : name.size() > 3 && name.ends_with(".sh")        ? &shell
                                                                     : nullptr) {
      if (it->is_regular_file(kind)) list->push_back(in_folder(folder, name));
    }
  }
  out.python.insert(out.python.end(), python.begin(), python.end());
  out.shell.insert(out.shell.end(), shell.begin(), shell.end());
  for (const auto& name : folders) search(in_folder(folder, name), true, out);
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

support::Expected<Listed> list_files(const std::vector<std::string>& paths, const python::FileSystem& files) {
  Listed out;
  for (const auto& path : paths) {
    if (files.is_directory(path)) {
      std::error_code ec;
      if (fs::directory_iterator it(path, ec); ec)
        return support::failure("cannot list '" + path + "': " + ec.message() + "; a folder that can be read is expected", {}, "input");
      search(support::normal_path(path), false, out);
    } else if (files.is_file(path)) out.python.push_back(path);
    else
      return support::failure("'" + path + "': there is no such file or folder; expected Python files, or folders that hold some", {},
                              "input");
  }
  // "a/b.py" and "./a/b.py" are one file: the first spelling stays.
  if (paths.size() > 1) {
    std::unordered_set<std::string> seen;
    const std::string working = working_folder();
    std::erase_if(out.python, [&](const std::string& p) { return !seen.insert(key(p, working)).second; });
  }
  std::sort(out.python.begin(), out.python.end());
  std::sort(out.shell.begin(), out.shell.end());
  out.shell.erase(std::unique(out.shell.begin(), out.shell.end()), out.shell.end());
  return out;
}

}  // namespace shardwright::lint
