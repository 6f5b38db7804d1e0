// What a person who converts by hand keeps in tables: which file became which, the call chain before and after, registries, what crosses
// between stages, the balance of the stages, the role of every layer.
#pragma once
#include <string>
#include <vector>

#include "emit/package.h"

namespace shardwright::emit {

struct Table {
  std::string name;  ///< "files"
  std::string title;
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
};

/// "1.5 MiB"
std::string bytes_text(double bytes);
/// `files`: all that is written.
std::vector<Table> tables(const PackageInput&, const std::vector<File>& files);
std::string markdown(const std::vector<Table>&);
/// Columns aligned, for a terminal.
std::string plain(const std::vector<Table>&);
/// {"files": [{"original": …, "distributed": …}, …], …}
std::string json(const std::vector<Table>&);

}  // namespace shardwright::emit
