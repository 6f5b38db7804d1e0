#include "cxx/load.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cxx/json.h"
#include "support/files.h"
#include "support/process.h"

namespace shardwright::cxx {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using support::failure;

/// Documents hold the text of what was read; this is far beyond any.
constexpr std::size_t kLargestDocument = 256u << 20;

std::string front_end() {
  std::error_code ec;
  const fs::path beside = fs::read_symlink("/proc/self/exe", ec).parent_path() / "shardwright-cxx";
  if (fs::exists(beside, ec)) return beside.string();
  std::string path = std::getenv("PATH") ? std::getenv("PATH") : "";
  for (std::size_t at = 0; at <= path.size();) {
    const std::size_t end = std::min(path.find(':', at), path.size());
    const fs::path candidate = fs::path(path.substr(at, end - at)) / "shardwright-cxx";
    if (end > at && ::access(candidate.c_str(), X_OK) == 0) return candidate.string();
    at = end + 1;
  }
  return "";
}

std::string cache_folder() {
  if (const char* x = std::getenv("XDG_CACHE_HOME"); x && *x) return std::string(x) + "/shardwright/cxx";
  if (const char* home = std::getenv("HOME"); home && *home) return std::string(home) + "/.cache/shardwright/cxx";
  return "";
}

/// The compile_commands.json that counts for the file: in the build folder, or beside or above the file.
std::string database(const Request& r) {
  std::error_code ec;
  if (!r.build.empty()) return (fs::path(r.build) / "compile_commands.json").string();
  for (fs::path p = fs::path(r.file).parent_path(); !p.empty(); p = p.parent_path()) {
    if (fs::exists(p / "compile_commands.json", ec)) return (p / "compile_commands.json").string();
    if (p == p.root_path()) break;
  }
  return "";
}

bool same(const json& document) {
  for (const json& f : document.at("files")) {
    auto text = support::read_file(f.at("path").get<std::string>());
    if (!text || *text != f.at("text").get_ref<const std::string&>()) return false;
  }
  for (const json& r : document.at("read")) {
    const std::string& path = r.at(0).get_ref<const std::string&>();
    struct stat s {};
    if (::stat(path.c_str(), &s) != 0 || s.st_size != r.at(1).get<std::int64_t>()) return false;
    const std::int64_t time = static_cast<std::int64_t>(s.st_mtim.tv_sec) * 1000000000 + s.st_mtim.tv_nsec;
    if (time == r.at(2).get<std::int64_t>()) continue;
    bool known = false;  // the user's: by content, above
    for (const json& f : document.at("files")) known = known || f.at("path") == r.at(0);
    if (!known) return false;
  }
  return true;
}

support::Diagnostic said(const json& document, const std::string& file) {
  support::Diagnostic d = failure("", {}, "clang");
  bool torch_missing = false;
  for (const json& e : document.at("errors")) {
    std::string m = e.at("message").get<std::string>();
    torch_missing = torch_missing || m.find("'torch/") != std::string::npos || m.find("'ATen/") != std::string::npos;
    if (e.contains("file"))
      m = fmt::format("{}:{}:{}: {}", e.at("file").get<std::string>(), e.at("line").get<int>(), e.at("column").get<int>(), m);
    if (d.message.empty()) d.message = m;
    else d.notes.push_back({{}, m});
  }
  if (torch_missing)
    d.notes.push_back({{},
                       "LibTorch's headers are not on the include path: give -p BUILD with a compile_commands.json of the project, or -- "
                       "-I…/torch/include -I…/torch/include/torch/csrc/api/include"});
  if (d.message.empty()) d.message = "Clang could not read '" + file + "'";
  return d;
}

support::Expected<std::shared_ptr<Unit>> unit_of(const json& document, const std::string& name, support::SourceManager& sources) {
  auto unit = std::make_shared<Unit>();
  for (const json& f : document.at("files"))
    unit->files.push_back(sources.add(f.at("path").get<std::string>(), f.at("text").get<std::string>(), name));
  unit->module = unit->arena.module();
  unit->module->name = name;
  if (!unit->files.empty()) unit->module->file = unit->files.front();
  unit->module->body = from_json(document.at("body"), unit->files, unit->arena, *unit->module);
  for (const json& c : document.at("classes"))
    unit->classes.push_back({c.at(0).get<std::string>(), c.at(1).get<bool>(), c.at(2).get<std::string>()});
  unit->command = document.value("command", std::vector<std::string>{});
  unit->directory = document.value("directory", "");
  return unit;
}

}  // namespace

bool is_cxx(const std::string& path) {
  const std::string e = fs::path(path).extension().string();
  static const std::array<const char*, 8> all = {".h", ".hpp", ".hh", ".hxx", ".cpp", ".cc", ".cxx", ".C"};
  return std::find(all.begin(), all.end(), e) != all.end();
}

support::Expected<std::shared_ptr<Unit>> load(const Request& request, const std::string& name, support::SourceManager& sources) {
  const std::string db = request.flags.empty() ? database(request) : "";
  std::string key =
      fmt::format("{}\n{}\n{}\n{}\n", kFormat, request.file, request.build, request.flags.empty() ? "" : fs::current_path().string());
  for (const auto& f : request.flags) key += f + '\n';
  if (!db.empty())
    if (auto text = support::read_file(db, kLargestDocument)) key += *text;
  const std::string tool = front_end();
  struct stat s {};
  if (!tool.empty() && ::stat(tool.c_str(), &s) == 0) key += fmt::format("{} {} {}", s.st_size, s.st_mtim.tv_sec, s.st_mtim.tv_nsec);
  const std::string folder = cache_folder();
  const std::string kept = folder.empty()
      ? ""
      : support::join_path(folder, support::content_hash(key) + ".json");  // that a document is right is checked by what is in it
  if (request.cached && !kept.empty())
    if (auto text = support::read_file(kept, kLargestDocument)) try {
        json document = json::parse(*text);
        if (document.value("format", 0) == kFormat && document.contains("body") && same(document)) {
          auto unit = unit_of(document, name, sources);
          if (unit) (*unit)->from_cache = true;
          return unit;
        }
      } catch (const json::exception&) {
        // damaged: read anew
      }
  try {
    if (tool.empty())
      return failure(
          "models in C++ are read by shardwright-cxx, which is not beside this program: it is built with -DSHARDWRIGHT_CXX=ON where Clang "
          "19's libraries are installed "
          "(apt-get install libclang-19-dev llvm-19-dev, then tools/build)",
          {}, "input");
    std::string out = kept;
    std::error_code ec;
    const fs::path temporary =
        (folder.empty() ? fs::temp_directory_path() : fs::path(folder)) / fmt::format("{}.{}.part", support::content_hash(key), ::getpid());
    fs::create_directories(temporary.parent_path(), ec);
    std::vector<std::string> arguments{tool, request.file, temporary.string()};
    if (!request.build.empty() && request.flags.empty()) arguments.insert(arguments.end(), {"-p", request.build});
    if (!request.flags.empty()) {
      arguments.push_back("--");
      arguments.insert(arguments.end(), request.flags.begin(), request.flags.end());
    }
    const int status = support::finish(support::start(arguments));
    auto text = support::read_file(temporary.string(), kLargestDocument);
    if (!text) {
      fs::remove(temporary, ec);
      return failure(fmt::format("'{}' could not be read: shardwright-cxx ended with status {} and said nothing", request.file, status), {},
                     "clang");
    }
    json document = json::parse(*text);
    if (status != 0 || !document.contains("body")) {
      fs::remove(temporary, ec);
      return said(document, request.file);
    }
    auto unit = unit_of(document, name, sources);
    if (out.empty()) fs::remove(temporary, ec);
    else fs::rename(temporary, out, ec);
    return unit;
  } catch (const json::exception& e) {
    return failure("what shardwright-cxx wrote about '" + request.file + "' is damaged (" + e.what() + "); run again with --no-cache", {},
                   "clang");
  }
}

}  // namespace shardwright::cxx
