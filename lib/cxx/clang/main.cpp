// shardwright-cxx: reads a C++ file with Clang and writes the program in it as JSON. Started by shardwright for models in C++;
// an executable of its own so that nobody else pays for loading Clang.
//
// usage: shardwright-cxx FILE OUT.json [-p BUILD] [-- FLAGS…]
// Exit code 0: OUT.json holds the program (and what Clang warned of); 2: it holds {"errors": [...]}.
#include <clang/Basic/Diagnostic.h>
#include <clang/Frontend/CompilerInstance.h>
#include <clang/Frontend/FrontendActions.h>
#include <clang/Lex/PPCallbacks.h>
#include <clang/Lex/Preprocessor.h>
#include <clang/Tooling/CompilationDatabase.h>
#include <clang/Tooling/Tooling.h>
#include <sys/stat.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cxx/json.h"
#include "lower.h"

namespace {

using nlohmann::json;
using namespace shardwright;

/// What Clang says, as data.
class Collector : public clang::DiagnosticConsumer {
 public:
  explicit Collector(json& out) : out_(out) {}
  void HandleDiagnostic(clang::DiagnosticsEngine::Level level, const clang::Diagnostic& d) override {
    clang::DiagnosticConsumer::HandleDiagnostic(level, d);
    if (level < clang::DiagnosticsEngine::Error || out_.size() >= 20) return;
    llvm::SmallString<256> text;
    d.FormatDiagnostic(text);
    json j{{"message", text.str().str()}};
    if (d.hasSourceManager() && d.getLocation().isValid()) {
      const clang::PresumedLoc at = d.getSourceManager().getPresumedLoc(d.getSourceManager().getExpansionLoc(d.getLocation()));
      if (at.isValid()) j["file"] = at.getFilename(), j["line"] = at.getLine(), j["column"] = at.getColumn();
    }
    out_.push_back(std::move(j));
  }

 private:
  json& out_;
};

/// The size and time of a file: what tells whether it is still the one that was read.
json stamp(llvm::StringRef path) {
  struct stat s {};
  if (::stat(path.str().c_str(), &s) != 0) return nullptr;
  return json::array(
      {path.str(), static_cast<std::int64_t>(s.st_size), static_cast<std::int64_t>(s.st_mtim.tv_sec) * 1000000000 + s.st_mtim.tv_nsec});
}

class Consumer : public clang::ASTConsumer {
 public:
  Consumer(clang::CompilerInstance& ci, json& out) : ci_(ci), out_(out) {}

  /// Bodies in LibTorch's and the standard library's headers are not needed, and most of the time they would cost.
  bool shouldSkipFunctionBody(clang::Decl* d) override { return cxx::is_library(d); }

  void HandleTranslationUnit(clang::ASTContext& ast) override {
    if (ci_.getDiagnostics().hasErrorOccurred()) return;
    program::Arena arena;
    cxx::Lowering lowering(ast, ci_.getSema(), arena);
    const auto body = lowering.run();
    auto& sm = ast.getSourceManager();
    // Every file of the user's, also one that only includes others.
    for (unsigned i = 0; i < sm.local_sloc_entry_size(); ++i) {
      const clang::SrcMgr::SLocEntry& entry = sm.getLocalSLocEntry(i);
      if (!entry.isFile() || entry.getFile().getFileCharacteristic() != clang::SrcMgr::C_User) continue;
      const clang::FileID id = sm.getFileID(clang::SourceLocation::getFromRawEncoding(entry.getOffset()));
      if (const auto file = sm.getFileEntryRefForID(id); file && !cxx::is_library_path(file->getName())) lowering.files().index(id);
    }
    json files = json::array();
    for (clang::FileID id : lowering.files().all()) {
      const auto entry = sm.getFileEntryRefForID(id);
      std::string path = entry ? entry->getFileEntry().tryGetRealPathName().str() : "";
      files.push_back({{"path", path.empty() && entry ? entry->getName().str() : path}, {"text", sm.getBufferData(id).str()}});
    }
    out_["files"] = std::move(files);
    out_["body"] = cxx::to_json(body);
    out_["classes"] = json::array();
    for (const auto& c : lowering.classes()) out_["classes"].push_back({c.name, c.module, c.spelled});
    out_["read"] = json::array();
    for (auto it = sm.fileinfo_begin(); it != sm.fileinfo_end(); ++it) {
      const std::string real = it->first.getFileEntry().tryGetRealPathName().str();
      if (json s = stamp(real.empty() ? it->first.getName() : llvm::StringRef(real)); !s.is_null()) out_["read"].push_back(std::move(s));
    }
  }

 private:
  clang::CompilerInstance& ci_;
  json& out_;
};

class Action : public clang::ASTFrontendAction {
 public:
  explicit Action(json& out) : out_(out) {}
  std::unique_ptr<clang::ASTConsumer> CreateASTConsumer(clang::CompilerInstance& ci, llvm::StringRef) override {
    ci.getFrontendOpts().SkipFunctionBodies = true;
    return std::make_unique<Consumer>(ci, out_);
  }

 private:
  json& out_;
};

class Factory : public clang::tooling::FrontendActionFactory {
 public:
  explicit Factory(json& out) : out_(out) {}
  std::unique_ptr<clang::FrontendAction> create() override { return std::make_unique<Action>(out_); }

 private:
  json& out_;
};

int finish(const std::string& path, const json& out, int code) {
  std::ofstream f(path);
  f << out.dump();
  f.close();
  if (!f) {
    std::fprintf(stderr, "shardwright-cxx: cannot write '%s'\n", path.c_str());
    return 2;
  }
  return code;
}

std::string stem(llvm::StringRef path) { return llvm::sys::path::stem(path).str(); }

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> args(argv + 1, argv + argc), flags;
  bool has_flags = false;
  if (auto it = std::find(args.begin(), args.end(), "--"); it != args.end()) {
    has_flags = true;
    flags.assign(it + 1, args.end());
    args.erase(it, args.end());
  }
  std::string build;
  if (auto it = std::find(args.begin(), args.end(), "-p"); it != args.end() && it + 1 != args.end()) {
    build = *(it + 1);
    args.erase(it, it + 2);
  }
  if (args.size() != 2) {
    std::fprintf(stderr, "usage: shardwright-cxx FILE OUT.json [-p BUILD] [-- FLAGS...]\n");
    return 2;
  }
  std::string file = args[0];
  json out{{"format", cxx::kFormat}, {"errors", json::array()}};
  auto fail = [&](const std::string& why) {
    out["errors"].push_back({{"message", why}});
    return finish(args[1], out, 2);
  };
  std::string why;
  std::unique_ptr<clang::tooling::CompilationDatabase> database;
  if (has_flags) {
    database = std::make_unique<clang::tooling::FixedCompilationDatabase>(".", flags);
  } else {
    database = build.empty() ? clang::tooling::CompilationDatabase::autoDetectFromSource(file, why)
                             : clang::tooling::CompilationDatabase::autoDetectFromDirectory(build, why);
    if (!database)
      return fail((build.empty() ? "there is no compile_commands.json beside '" + file + "' or above it"
                                 : "there is no compile_commands.json in '" + build + "'") +
                  ": configure the project with -DCMAKE_EXPORT_COMPILE_COMMANDS=ON and give its build folder with -p BUILD, or give the "
                  "compiler's flags after --");
    // A header whose definitions stand in a source file of its name: that file says more.
    const std::string ext = llvm::sys::path::extension(file).str();
    if (ext == ".h" || ext == ".hpp" || ext == ".hh" || ext == ".hxx")
      for (const std::string& f : database->getAllFiles())
        if (stem(f) == stem(file)) file = f;
    database = clang::tooling::inferMissingCompileCommands(std::move(database));
  }
  clang::tooling::ClangTool tool(*database, {file});
  Collector collector(out["errors"]);
  tool.setDiagnosticConsumer(&collector);
  tool.appendArgumentsAdjuster([&out](const clang::tooling::CommandLineArguments& given, llvm::StringRef) {
    clang::tooling::CommandLineArguments a;
    for (std::size_t i = 0; i < given.size(); ++i) {
      // Precompiled headers are another compiler's; a header is read as the file that it is.
      if (given[i] == "-Winvalid-pch" || given[i] == "-fconcepts" || llvm::StringRef(given[i]).starts_with("-fno-semantic-interposition"))
        continue;
      if (given[i] == "-include" && i + 1 < given.size() && llvm::StringRef(given[i + 1]).ends_with("cmake_pch.hxx")) {
        ++i;
        continue;
      }
      if ((given[i] == "-x" && i + 1 < given.size())) {
        ++i;
        continue;
      }
      if (given[i] == "c++-header" || given[i] == "-xc++-header") continue;
      a.push_back(given[i]);
    }
    bool standard = false;
    for (const auto& x : a) standard = standard || llvm::StringRef(x).starts_with("-std=");
    clang::tooling::CommandLineArguments more = {
        "-xc++", "-w", "-Qunused-arguments", "-Wno-pragma-once-outside-header", "-resource-dir", SHARDWRIGHT_CLANG_RESOURCES};
    if (!standard) more.push_back("-std=c++20");
    a.insert(a.begin() + 1, more.begin(), more.end());
    out["command"] = a;
    return a;
  });
  if (const auto commands = database->getCompileCommands(file); !commands.empty()) out["directory"] = commands.front().Directory;
  Factory factory(out);
  const int status = tool.run(&factory);
  if (!out["errors"].empty() || status != 0 || !out.contains("body")) {
    if (out["errors"].empty()) out["errors"].push_back({{"message", "Clang could not read '" + file + "'"}});
    out.erase("body");
    return finish(args[1], out, 2);
  }
  return finish(args[1], out, 0);
}
