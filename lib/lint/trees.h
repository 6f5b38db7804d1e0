// Files that one Python process could hold together: a repository has folders whose modules bear the same names (packages that were
// generated one beside the other, examples with a train.py each), and each means its own.
#pragma once
#include <cstddef>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "python/resolve.h"

namespace shardwright::lint {

struct Tree {
  std::vector<std::string> roots;   ///< folders that its modules' names start from
  std::vector<std::string> beside;  ///< roots of the other trees where no module has a name of this one: imports may mean them
  std::vector<std::string> files;
};

/// The folder that a file's module name starts from, and the first part of that name.
std::pair<std::string, std::string> root_of(const std::string& file, const python::FileSystem&);

/// Every file in one tree; roots share a tree as long as their modules' names differ. In the order of the files.
std::vector<Tree> separate(const std::vector<std::string>& files, const python::FileSystem&);

/// Files that define a class of this name.
using ClassesNamed = std::function<const std::vector<std::string>&(const std::string&)>;

/// Classes that a text defines at the start of a line.
std::vector<std::string> classes_in(std::string_view text);

/// Files by the classes that they define, in the order in which they are added.
class ClassFiles {
 public:
  void add(const std::string& path, const std::vector<std::string>& classes);
  const std::vector<std::string>& of(const std::string& name) const;

 private:
  std::unordered_map<std::string, std::vector<std::string>> by_class_;
};

}  // namespace shardwright::lint
