// Models in C++: finds the front end's executable, runs it on a file, keeps what it read.
//
// What was read is kept in $XDG_CACHE_HOME/shardwright/cxx (else ~/.cache/…), one document a (file, flags, front end). It is used again
// while every file that the compiler read is the same: the user's by content, headers of libraries by size and time.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "program/program.h"
#include "support/result.h"

namespace shardwright::cxx {

struct Request {
  std::string file;                ///< absolute path of a header or source file
  std::string build;               ///< folder of compile_commands.json (-p); "": looked for above the file
  std::vector<std::string> flags;  ///< of the compiler, in place of compile_commands.json
  bool cached = true;              ///< may what was read before be used?
};

/// One translation unit.
struct Unit {
  program::Arena arena;
  program::Module* module = nullptr;
  struct Class {
    std::string name;
    bool module = false;
    std::string spelled;
  };  ///< `module`: derives from torch::nn::Module; `spelled` as C++ does
  std::vector<Class> classes;
  std::vector<support::FileId> files;  ///< the user's, the entry first
  std::vector<std::string> command;    ///< the compiler's arguments
  std::string directory;               ///< that these are relative to
  bool from_cache = false;
};

/// Is the path that of a C++ file?
bool is_cxx(const std::string& path);

/// Reads the file as the module `name`. Errors: the front end is not there (what to install), no flags (what to give), and the compiler's
/// own with file and line.
support::Expected<std::shared_ptr<Unit>> load(const Request&, const std::string& name, support::SourceManager&);

}  // namespace shardwright::cxx
