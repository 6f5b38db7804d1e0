// Which files a run looks at, and the text they have: on disk, in an editor's buffer, or after fixes that are not written yet.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "python/resolve.h"
#include "support/result.h"

namespace shardwright::lint {

/// Another file system with some texts replaced. The files exist, even where the other has none.
class OverlayFileSystem final : public python::FileSystem {
 public:
  explicit OverlayFileSystem(const python::FileSystem& below) : below_(below) {}
  void set(const std::string& path, std::string text);
  void remove(const std::string& path);
  const std::map<std::string, std::string>& texts() const { return texts_; }

  bool is_file(const std::string& path) const override;
  bool is_directory(const std::string& path) const override;
  support::Expected<std::string> read(const std::string& path) const override;
  std::vector<std::string> list(const std::string& path) const override { return below_.list(path); }

 private:
  const python::FileSystem& below_;
  std::map<std::string, std::string> texts_;  ///< by absolute, normal path: two spellings of one file are one file
};

/// The disk, for requests without a file system of their own.
const python::FileSystem& disk();

struct Listed {
  std::vector<std::string> python;
  std::vector<std::string> shell;  ///< of folders only
};

/// The Python files of `paths`, sorted and without doubles: files as they are named, folders searched for *.py (and *.sh) without hidden
/// folders, __pycache__, virtual environments (a pyvenv.cfg in them), build results of packaging and links to folders. The path of a
/// file is its folder's as given, plus what is below it. An error names a path that does not exist.
support::Expected<Listed> list_files(const std::vector<std::string>& paths, const python::FileSystem& files);

}  // namespace shardwright::lint
