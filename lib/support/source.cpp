#include "support/source.h"

#include <algorithm>

namespace shardwright::support {

FileId SourceManager::add(std::string path, std::string text, std::string module) {
  auto f = std::make_unique<SourceFile>();
  f->id = static_cast<FileId>(files_.size());
  f->path = std::move(path);
  f->module = std::move(module);
  f->text = std::move(text);
  f->line_starts.push_back(0);
  const std::string& t = f->text;
  for (std::size_t at = t.find('\n'); at != std::string::npos; at = t.find('\n', at + 1))
    f->line_starts.push_back(static_cast<std::uint32_t>(at + 1));
  files_.push_back(std::move(f));
  return files_.back()->id;
}

void SourceManager::show_folder_as(const std::string& folder, const std::string& shown) {
  for (auto& f : files_)
    if (f->path.size() > folder.size() && f->path.compare(0, folder.size(), folder) == 0 && f->path[folder.size()] == '/')
      f->path.replace(0, folder.size(), shown);
}

std::string_view SourceManager::text(const Range& r) const {
  if (!r.valid() || static_cast<std::size_t>(r.file) >= files_.size()) return {};
  const std::string& t = file(r.file).text;
  const std::size_t begin = std::min<std::size_t>(r.begin, t.size());
  const std::size_t end = std::clamp<std::size_t>(r.end, begin, t.size());
  return std::string_view(t).substr(begin, end - begin);
}

Position SourceManager::position(FileId id, std::uint32_t offset) const {
  const auto& starts = file(id).line_starts;
  const auto it = std::upper_bound(starts.begin(), starts.end(), offset);
  const auto line = static_cast<std::uint32_t>(it - starts.begin());
  return {line, offset - starts[line - 1] + 1};
}

std::string_view SourceManager::line_at(FileId id, std::uint32_t offset) const {
  const SourceFile& f = file(id);
  const std::uint32_t begin = f.line_starts[position(id, offset).line - 1];
  std::string_view rest = std::string_view(f.text).substr(begin);
  rest = rest.substr(0, rest.find('\n'));
  if (!rest.empty() && rest.back() == '\r') rest.remove_suffix(1);
  return rest;
}

std::string SourceManager::describe(const Range& r) const {
  if (!r.valid() || static_cast<std::size_t>(r.file) >= files_.size()) return "<unknown>";
  const Position p = position(r.file, r.begin);
  return file(r.file).path + ":" + std::to_string(p.line) + ":" + std::to_string(p.column);
}

}  // namespace shardwright::support
