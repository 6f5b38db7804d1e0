// Source files and ranges: the places every other layer points at.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace shardwright::support {

/// Index of a file in its SourceManager; -1 is "no file".
using FileId = std::int32_t;

/// A half-open byte range [begin, end) of one file.
struct Range {
  FileId file = -1;
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  bool valid() const { return file >= 0; }
  bool contains(const Range& o) const { return file == o.file && begin <= o.begin && o.end <= end; }
  friend bool operator==(const Range&, const Range&) = default;
};

/// 1-based line and 1-based column (in bytes).
struct Position {
  std::uint32_t line = 0;
  std::uint32_t column = 0;
};

struct SourceFile {
  FileId id = -1;
  std::string path;    ///< as shown to people
  std::string module;  ///< dotted module name where known ("package.layers.mlp"), else ""
  std::string text;
  std::vector<std::uint32_t> line_starts;
};

/// Owns the text of every file read; ids are stable, files are never removed.
class SourceManager {
 public:
  FileId add(std::string path, std::string text, std::string module = "");
  /// Files below `folder`, which people will not find again, are shown as lying below `shown`.
  void show_folder_as(const std::string& folder, const std::string& shown);
  const SourceFile& file(FileId id) const { return *files_[static_cast<std::size_t>(id)]; }
  std::size_t size() const { return files_.size(); }
  std::string_view text(const Range& r) const;
  Position position(FileId id, std::uint32_t offset) const;
  /// The whole source line that contains `offset`, without its newline.
  std::string_view line_at(FileId id, std::uint32_t offset) const;
  /// "path:line:column", or "<unknown>" for an invalid range.
  std::string describe(const Range& r) const;

 private:
  std::vector<std::unique_ptr<SourceFile>> files_;
};

}  // namespace shardwright::support
