#include "driver/lsp.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "driver/version.h"
#include "lint/report.h"
#include "support/text.h"

namespace shardwright::driver {

using Json = nlohmann::json;

namespace {

std::string dump(const Json& j) { return j.dump(-1, ' ', false, Json::error_handler_t::replace); }
Json answer(const Json& id, Json result) { return {{"jsonrpc", "2.0"}, {"id", id}, {"result", std::move(result)}}; }
Json refusal(const Json& id, int code, const std::string& message) {
  return {{"jsonrpc", "2.0"}, {"id", id}, {"error", {{"code", code}, {"message", message}}}};
}

std::size_t sequence(unsigned char c) { return c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4; }

// LSP counts columns in UTF-16 units: two for what UTF-8 writes with four bytes.
std::size_t offset_of(const std::string& text, const Json& position) {
  const auto line = position.value("line", std::int64_t{0});
  auto units = position.value("character", std::int64_t{0});
  std::size_t at = 0;
  for (std::int64_t i = 0; i < line; ++i) {
    const std::size_t end = text.find('\n', at);
    if (end == std::string::npos) return text.size();
    at = end + 1;
  }
  while (units > 0 && at < text.size() && text[at] != '\n') {
    const std::size_t n = sequence(static_cast<unsigned char>(text[at]));
    units -= n == 4 ? 2 : 1;
    at = std::min(at + n, text.size());
  }
  return at;
}

Json position_at(const support::SourceManager& sm, support::FileId file, std::uint32_t offset) {
  const auto& f = sm.file(file);
  const auto p = sm.position(file, std::min<std::uint32_t>(offset, static_cast<std::uint32_t>(f.text.size())));
  int units = 0;
  for (std::size_t at = f.line_starts[p.line - 1], end = at + p.column - 1; at < end;) {
    const std::size_t n = sequence(static_cast<unsigned char>(f.text[at]));
    units += n == 4 ? 2 : 1;
    at += n;
  }
  return {{"line", p.line - 1}, {"character", units}};
}

Json range_of(const support::SourceManager& sm, const support::Range& r) {
  if (!r.valid()) return {{"start", {{"line", 0}, {"character", 0}}}, {"end", {{"line", 0}, {"character", 0}}}};
  return {{"start", position_at(sm, r.file, r.begin)}, {"end", position_at(sm, r.file, r.end)}};
}

int severity_number(support::Severity s) {
  return s == support::Severity::Error ? 1 : s == support::Severity::Warning ? 2 : s == support::Severity::Info ? 3 : 4;
}

bool before(const Json& a, const Json& b) { return a["line"] < b["line"] || (a["line"] == b["line"] && a["character"] < b["character"]); }
bool overlap(const Json& a, const Json& b) { return !before(a["end"], b["start"]) && !before(b["end"], a["start"]); }

}  // namespace

std::string path_of_uri(const std::string& uri) {
  constexpr std::string_view kScheme = "file://";
  if (!uri.starts_with(kScheme)) return uri;
  std::string out;
  std::size_t at = uri.find('/', kScheme.size());  // past an authority
  for (; at < uri.size(); ++at) {
    unsigned value = 0;
    if (uri[at] == '%' && at + 2 < uri.size() && std::sscanf(uri.c_str() + at + 1, "%2x", &value) == 1) {
      out += static_cast<char>(value);
      at += 2;
    } else {
      out += uri[at];
    }
  }
  return out;
}

std::string uri_of_path(const std::string& path) {
  std::error_code ec;
  std::string out = "file://";
  for (const char c : std::filesystem::absolute(path, ec).lexically_normal().string()) {
    const auto u = static_cast<unsigned char>(c);
    if (std::isalnum(u) || std::string_view("-._~/").find(c) != std::string_view::npos) {
      out += c;
    } else {
      char hex[4];
      std::snprintf(hex, sizeof hex, "%%%02X", u);
      out += hex;
    }
  }
  return out;
}

struct LanguageServer::Document {
  std::string uri, path, text;
  std::optional<std::int64_t> version;
  bool stale = true;
  std::unique_ptr<support::SourceManager> sources = std::make_unique<support::SourceManager>();
  std::vector<support::Diagnostic> findings;
  std::vector<lint::ValueAt> values;
  std::string trouble;  ///< why there are no findings
};

LanguageServer::LanguageServer(LintRequest request)
    : request_(std::move(request)), files_(std::make_unique<lint::OverlayFileSystem>(lint::disk())) {}
LanguageServer::~LanguageServer() = default;

bool LanguageServer::pending() const {
  return std::any_of(documents_.begin(), documents_.end(), [](const auto& d) { return d.second->stale; });
}

std::vector<std::string> LanguageServer::handle(const std::string& text) {
  const Json message = Json::parse(text, nullptr, false);
  if (message.is_discarded() || !message.is_object()) return {dump(refusal(nullptr, -32700, "this is not a JSON-RPC message"))};
  try {
    return respond(message);
  } catch (const Json::exception& e) {
    if (!message.contains("id")) return {};
    return {dump(refusal(message["id"], -32602, std::string("invalid parameters: ") + e.what()))};
  }
}

std::vector<std::string> LanguageServer::respond(const Json& message) {
  const std::string method = message.value("method", "");
  const bool is_request = message.contains("id");
  const Json id = is_request ? message["id"] : Json();
  const Json params = message.value("params", Json::object());
  if (method == "exit") {
    ended_ = shut_down_ ? 0 : 1;
    return {};
  }
  if (method.empty()) return {};  // an answer to something of ours
  if (shut_down_ && is_request) return {dump(refusal(id, -32600, "the server is shut down"))};
  if (method == "initialize") {
    return {dump(answer(id,
                        {{"capabilities",
                          {{"positionEncoding", "utf-16"},
                           {"textDocumentSync", {{"openClose", true}, {"change", 2}, {"save", true}}},
                           {"codeActionProvider", {{"codeActionKinds", {"quickfix"}}}},
                           {"hoverProvider", true}}},
                         {"serverInfo", {{"name", "shardwright"}, {"version", kVersion}}}}))};
  }
  if (method == "shutdown") {
    shut_down_ = true;
    return {dump(answer(id, nullptr))};
  }
  if (method == "textDocument/didOpen") {
    const Json& t = params.at("textDocument");
    auto d = std::make_unique<Document>();
    d->uri = t.at("uri");
    d->path = path_of_uri(d->uri);
    d->text = t.at("text");
    if (t.contains("version") && t["version"].is_number_integer()) d->version = t["version"].get<std::int64_t>();
    files_->set(d->path, d->text);
    documents_[d->uri] = std::move(d);
    return {};
  }
  const std::string uri = params.is_object() && params.contains("textDocument") ? params["textDocument"].value("uri", "") : "";
  const auto found = documents_.find(uri);
  Document* d = found == documents_.end() ? nullptr : found->second.get();
  if (method == "textDocument/didChange" && d) {
    if (const Json& t = params["textDocument"]; t.contains("version") && t["version"].is_number_integer())
      d->version = t["version"].get<std::int64_t>();
    change(*d, params.at("contentChanges"));
    return {};
  }
  if (method == "textDocument/didSave" || method == "workspace/didChangeWatchedFiles" || method == "workspace/didChangeConfiguration") {
    for (auto& [u, doc] : documents_) doc->stale = true;  // what one imports may be another
    return {};
  }
  if (method == "textDocument/didClose" && d) {
    files_->remove(d->path);
    const Json empty{
        {"jsonrpc", "2.0"}, {"method", "textDocument/publishDiagnostics"}, {"params", {{"uri", uri}, {"diagnostics", Json::array()}}}};
    documents_.erase(found);
    return {dump(empty)};
  }
  if (method == "textDocument/codeAction" || method == "textDocument/hover") {
    if (!d) return {dump(answer(id, nullptr))};
    std::vector<std::string> out;
    if (d->stale) {
      lint(*d);
      out.push_back(diagnostics(*d));
    }
    out.push_back(dump(answer(id, method == "textDocument/hover" ? hover(params) : code_actions(params))));
    return out;
  }
  if (is_request) return {dump(refusal(id, -32601, "there is no method '" + method + "' here"))};
  return {};
}

void LanguageServer::change(Document& d, const Json& changes) {
  for (const Json& c : changes) {
    const std::string text = c.at("text");
    if (c.contains("range")) {
      const std::size_t begin = offset_of(d.text, c["range"].at("start"));
      const std::size_t end = std::max(begin, offset_of(d.text, c["range"].at("end")));
      d.text.replace(begin, end - begin, text);
    } else {
      d.text = text;
    }
  }
  files_->set(d.path, d.text);
  d.stale = true;
}

void LanguageServer::lint(Document& d) {
  d.stale = false;
  d.findings.clear();
  d.trouble.clear();
  d.values.clear();
  d.sources = std::make_unique<support::SourceManager>();
  if (!d.path.ends_with(".py")) return;
  LintRequest r = request_;
  r.what.paths = {d.path};
  r.what.files = files_.get();
  r.what.values = &d.values;
  auto ready = configured(std::move(r), *d.sources);
  if (ready && !db_) {
    auto db = rules::Database::load(rule_sources_, ready->what.rules);
    if (!db) {
      d.trouble = db.error().message;
      return;
    }
    db_ = *db;
  }
  auto outcome = ready ? run_lint(*ready, *d.sources, *db_) : support::Expected<LintOutcome>(ready.error());
  if (!outcome) {
    d.trouble = outcome.error().message;
    return;
  }
  for (auto& f : outcome->findings)
    if (!f.range.valid() || path_of_uri(uri_of_path(d.sources->file(f.range.file).path)) == path_of_uri(uri_of_path(d.path)))
      d.findings.push_back(std::move(f));
}

std::string LanguageServer::diagnostics(const Document& d) const {
  const auto& sm = *d.sources;
  Json list = Json::array();
  for (const auto& f : d.findings) {
    Json j{{"range", range_of(sm, f.range)},
           {"severity", severity_number(f.severity)},
           {"code", f.code},
           {"source", "shardwright"},
           {"message", f.message}};
    Json related = Json::array();
    for (const auto& n : f.notes) {
      if (n.range.valid())
        related.push_back(
            {{"location", {{"uri", uri_of_path(sm.file(n.range.file).path)}, {"range", range_of(sm, n.range)}}}, {"message", n.message}});
      else j["message"] = j["message"].get<std::string>() + "\n" + n.message;
    }
    if (!related.empty()) j["relatedInformation"] = std::move(related);
    if (f.code == "SW903") j["tags"] = {1};  // unnecessary: shown faded
    list.push_back(std::move(j));
  }
  if (!d.trouble.empty()) list.push_back({{"range", range_of(sm, {})}, {"severity", 1}, {"source", "shardwright"}, {"message", d.trouble}});
  Json params{{"uri", d.uri}, {"diagnostics", std::move(list)}};
  if (d.version) params["version"] = *d.version;
  return dump({{"jsonrpc", "2.0"}, {"method", "textDocument/publishDiagnostics"}, {"params", std::move(params)}});
}

std::vector<std::string> LanguageServer::idle() {
  std::vector<std::string> out;
  for (auto& [uri, d] : documents_) {
    if (!d->stale) continue;
    lint(*d);
    out.push_back(diagnostics(*d));
  }
  return out;
}

Json LanguageServer::code_actions(const Json& params) {
  const Document& d = *documents_.at(params.at("textDocument").at("uri"));
  const auto& sm = *d.sources;
  Json out = Json::array();
  for (const auto& f : d.findings) {
    if (!f.fix || f.fix->edits.empty() || f.fix->applicability == "manual") continue;
    const Json range = range_of(sm, f.range);
    if (!overlap(range, params.at("range"))) continue;
    Json changes = Json::object();
    for (const auto& e : f.fix->edits)
      changes[uri_of_path(sm.file(e.range.file).path)].push_back({{"range", range_of(sm, e.range)}, {"newText", e.text}});
    // The client's own spelling of this document's name.
    if (const auto ours = uri_of_path(d.path); ours != d.uri && changes.contains(ours)) {
      changes[d.uri] = changes[ours];
      changes.erase(ours);
    }
    std::string title = f.code + ": ";
    if (f.fix->edits.size() == 1 && !f.fix->edits[0].text.empty() && f.fix->edits[0].text.size() < 60 &&
        f.fix->edits[0].text.find('\n') == std::string::npos)
      title += "write `" + f.fix->edits[0].text + "`";
    else title += f.code == "SW903" ? "remove the suppression" : "fix";
    if (f.fix->applicability != "safe") title += " (to review)";
    out.push_back({{"title", title},
                   {"kind", "quickfix"},
                   {"isPreferred", f.fix->applicability == "safe"},
                   {"edit", {{"changes", changes}}},
                   {"diagnostics",
                    Json::array({{{"range", range},
                                  {"severity", severity_number(f.severity)},
                                  {"code", f.code},
                                  {"source", "shardwright"},
                                  {"message", f.message}}})}});
  }
  return out;
}

Json LanguageServer::hover(const Json& params) {
  const Document& d = *documents_.at(params.at("textDocument").at("uri"));
  const auto& sm = *d.sources;
  const Json point{{"start", params.at("position")}, {"end", params.at("position")}};
  for (const auto& f : d.findings) {
    const Json range = range_of(sm, f.range);
    if (!overlap(range, point)) continue;
    if (words_.empty())
      if (auto all = rules::lint_rules(rule_sources_)) words_ = std::move(*all);
    std::string text;
    for (const auto& w : words_)
      if (w.code == f.code) text = "**" + w.code + "** " + w.title + "\n\n" + f.message + "\n\n" + w.why + "\n\n*What to do.* " + w.fix;
    if (text.empty()) text = f.message;
    return {{"contents", {{"kind", "markdown"}, {"value", text}}}, {"range", range}};
  }
  // The value under the cursor: the smallest expression there.
  const std::size_t at = offset_of(d.text, params.at("position"));
  const lint::ValueAt* best = nullptr;
  for (const auto& v : d.values) {
    if (sm.file(v.range.file).text != d.text || at < v.range.begin || at >= v.range.end) continue;
    if (!best || v.range.end - v.range.begin < best->range.end - best->range.begin) best = &v;
  }
  if (best) return {{"contents", {{"kind", "plaintext"}, {"value", best->text}}}, {"range", range_of(sm, best->range)}};
  return nullptr;
}

namespace {

bool send(int out, const std::string& body) {
  const std::string text = "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t n = ::write(out, text.data() + at, text.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += static_cast<std::size_t>(n);
  }
  return true;
}

constexpr std::size_t kLargestMessage = 64u << 20;

// Takes one message off the front of `buffer`. Nothing: not yet whole. A header without a usable length is skipped.
std::optional<std::string> take(std::string& buffer) {
  for (;;) {
    const std::size_t end = buffer.find("\r\n\r\n");
    if (end == std::string::npos) return std::nullopt;
    std::size_t length = std::string::npos;
    for (std::size_t at = 0; at < end;) {
      std::size_t line_end = buffer.find("\r\n", at);
      const std::string line = support::lower(buffer.substr(at, line_end - at));
      unsigned long long n = 0;
      if (std::sscanf(line.c_str(), "content-length: %llu", &n) == 1 || std::sscanf(line.c_str(), "content-length:%llu", &n) == 1)
        length = n;
      at = line_end + 2;
    }
    if (length == std::string::npos || length > kLargestMessage) {
      buffer.erase(0, end + 4);
      continue;
    }
    if (buffer.size() < end + 4 + length) return std::nullopt;
    std::string body = buffer.substr(end + 4, length);
    buffer.erase(0, end + 4 + length);
    return body;
  }
}

}  // namespace

int serve(LanguageServer& server, int in, int out) {
  std::string buffer;
  for (;;) {
    if (auto message = take(buffer)) {
      for (const auto& m : server.handle(*message))
        if (!send(out, m)) return 1;
      if (server.ended()) return *server.ended();
      continue;
    }
    if (server.pending()) {
      pollfd waiting{in, POLLIN, 0};
      if (::poll(&waiting, 1, 0) == 0) {
        for (const auto& m : server.idle())
          if (!send(out, m)) return 1;
        continue;
      }
    }
    char chunk[1 << 16];
    const ssize_t n = ::read(in, chunk, sizeof chunk);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      for (const auto& m : server.idle())
        if (!send(out, m)) break;
      return server.ended().value_or(1);
    }
    buffer.append(chunk, static_cast<std::size_t>(n));
  }
}

}  // namespace shardwright::driver
