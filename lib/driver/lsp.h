// `shardwright lsp`: a language server (LSP 3.17) on standard input and output: findings while one types, their fixes as code actions,
// hovers.
//
// Text is kept in sync incrementally and never read from disk while a document is open. Findings are looked for when no message is waiting,
// so fast typing costs one run and not one a key. One document is one run: what it imports is followed, its findings alone are published.
#pragma once
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "driver/lint.h"

namespace shardwright::driver {

/// The protocol without its transport: messages in, messages out.
class LanguageServer {
 public:
  /// `request` holds for every document: selection, tp, python path. Its paths are ignored.
  explicit LanguageServer(LintRequest request);
  ~LanguageServer();

  /// One message; what is to be sent in answer. Invalid JSON gets a parse error.
  std::vector<std::string> handle(const std::string& message);
  /// Documents that changed since findings were looked for: their diagnostics. Called when nothing else is to do.
  std::vector<std::string> idle();
  bool pending() const;
  /// After `exit`: the exit code, 0 when `shutdown` came before.
  std::optional<int> ended() const { return ended_; }

 private:
  struct Document;
  std::vector<std::string> respond(const nlohmann::json& message);
  nlohmann::json code_actions(const nlohmann::json& params);
  nlohmann::json hover(const nlohmann::json& params);
  void change(Document& d, const nlohmann::json& changes);
  void lint(Document& d);
  std::string diagnostics(const Document& d) const;

  LintRequest request_;
  std::unique_ptr<lint::OverlayFileSystem> files_;
  support::SourceManager rule_sources_;
  std::shared_ptr<const rules::Database> db_;
  std::vector<rules::LintRule> words_;
  std::map<std::string, std::unique_ptr<Document>> documents_;  ///< by URI
  bool shut_down_ = false;
  std::optional<int> ended_;
};

/// Reads messages from a file descriptor and writes to another until `exit` or the end of input; the exit code.
int serve(LanguageServer& server, int in, int out);

/// file:///a%20b.py ↔ /a b.py
std::string path_of_uri(const std::string& uri);
std::string uri_of_path(const std::string& path);

}  // namespace shardwright::driver
