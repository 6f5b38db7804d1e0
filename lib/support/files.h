// Reading and writing files, with errors as values.
#pragma once
#include <signal.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "support/result.h"

namespace shardwright::support {

/// Files larger than this are no source code and are refused by read_file.
constexpr std::size_t kLargestFile = 4u << 20;

/// The text of a file. An error says whether it is missing, a folder, unreadable, larger than `limit` or binary (holds a NUL byte).
Expected<std::string> read_file(const std::string& path, std::size_t limit = kLargestFile);

/// Replaces `path` by `text` so that a reader sees the old or the new content, never a part: written beside it, flushed to disk,
/// renamed over it. Missing parent folders are made. An existing file's permissions stay; `executable` adds the execute bits.
Expected<bool> write_file(const std::string& path, std::string_view text, bool executable = false);

/// Regular files below a folder, as paths relative to it with '/', sorted. `enter` decides which folders (by relative path) to go
/// into; symbolic links to folders are not followed.
Expected<std::vector<std::string>> walk(const std::string& folder, const std::function<bool(const std::string&)>& enter = nullptr);

/// While it lives, Ctrl-C and requests to end wait: what belongs together is written whole. Nests.
class Uninterrupted {
 public:
  Uninterrupted();
  ~Uninterrupted();
  Uninterrupted(const Uninterrupted&) = delete;
  Uninterrupted& operator=(const Uninterrupted&) = delete;

 private:
  sigset_t before_;
};

bool is_file(const std::string& path);
bool is_directory(const std::string& path);

/// a/./b/../c → a/c, without touching the disk; an absolute path stays absolute.
std::string normal_path(const std::string& path);
std::string join_path(std::string_view folder, std::string_view name);
/// "a/b" of "a/b/c.py"; "" when there is no folder.
std::string parent_path(const std::string& path);
/// "c" of "a/b/c.py".
std::string stem(const std::string& path);

/// FNV-1a, 64 bits, in 16 hexadecimal digits: tells whether a text is the one of before; no secret is kept by it.
std::string content_hash(std::string_view text);
/// The nearest folder above this program's executable that holds `path` ("runtime/python"); "" when none does.
std::string above_program(const std::string& path);

}  // namespace shardwright::support
