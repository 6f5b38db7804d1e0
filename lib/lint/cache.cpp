#include "lint/cache.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "support/files.h"

namespace shardwright::lint {
namespace {

using Json = nlohmann::json;

std::string joined(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  std::string out;
  for (const auto& n : names) out += n + '\n';
  return out;
}

std::string hash_of(const support::Expected<std::string>& text) { return text ? support::content_hash(*text) : "unreadable"; }

/// This build of this program: another one may find other things.
std::string program() {
  std::error_code ec;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", ec);
  if (ec) return "";
  const auto size = std::filesystem::file_size(path, ec);
  const auto time = std::filesystem::last_write_time(path, ec);
  return path.string() + ' ' + std::to_string(size) + ' ' + std::to_string(time.time_since_epoch().count());
}

struct Writer {
  const support::SourceManager& sources;
  Json files = Json::array();
  std::map<support::FileId, std::size_t> index;

  Json operator()(const support::Range& r) {
    if (!r.valid()) return nullptr;
    auto [at, fresh] = index.emplace(r.file, files.size());
    if (fresh) files.push_back({sources.file(r.file).path, sources.file(r.file).module});
    return {at->second, r.begin, r.end};
  }
};

}  // namespace

bool Witness::is_file(const std::string& path) const {
  const bool yes = below_.is_file(path);
  noted_.emplace("f" + path, yes ? "1" : "0");
  return yes;
}

bool Witness::is_directory(const std::string& path) const {
  const bool yes = below_.is_directory(path);
  noted_.emplace("d" + path, yes ? "1" : "0");
  return yes;
}

std::vector<std::string> Witness::list(const std::string& path) const {
  auto names = below_.list(path);
  noted_.emplace("l" + path, support::content_hash(joined(names)));
  return names;
}

support::Expected<std::string> Witness::read(const std::string& path) const {
  auto text = below_.read(path);
  noted_.emplace("r" + path, hash_of(text));
  return text;
}

const std::vector<std::string>& Witness::of_class(const std::string& name) const {
  const auto& files = classes_(name);
  noted_.emplace("c" + name, support::content_hash(joined(files)));
  return files;
}

std::string Witness::ask(const std::string& question, const python::FileSystem& files, const ClassesNamed& classes) {
  const std::string what = question.substr(1);
  switch (question[0]) {
    case 'f': return files.is_file(what) ? "1" : "0";
    case 'd': return files.is_directory(what) ? "1" : "0";
    case 'l': return support::content_hash(joined(files.list(what)));
    case 'r': return hash_of(files.read(what));
    case 'c': return support::content_hash(joined(classes(what)));
    default: return "";
  }
}

Cache::Cache(const std::string& folder, const Tree& tree, const std::string& about) {
  static const std::string kProgram = program();
  std::error_code ec;
  key_ = kProgram + '\n' + std::filesystem::current_path(ec).string() + '\n' + about;
  for (const auto* list : {&tree.roots, &tree.beside, &tree.files}) key_ += '\n' + joined(*list);
  if (!kProgram.empty()) path_ = support::join_path(folder, support::content_hash(key_) + ".json");
}

std::optional<std::vector<support::Diagnostic>> Cache::find(const python::FileSystem& files, const ClassesNamed& classes,
                                                            support::SourceManager& sources) const {
  if (path_.empty() || !support::is_file(path_)) return std::nullopt;
  const auto text = support::read_file(path_);
  if (!text) return std::nullopt;
  const Json entry = Json::parse(*text, nullptr, false);
  if (entry.is_discarded()) return std::nullopt;
  try {
    if (entry.at("key") != key_) return std::nullopt;
    for (const auto& [question, answer] : entry.at("asked").items())
      if (question.empty() || Witness::ask(question, files, classes) != answer) return std::nullopt;
    std::vector<support::FileId> ids;
    for (const auto& f : entry.at("files")) {
      auto source = files.read(f.at(0));
      if (!source) return std::nullopt;
      ids.push_back(sources.add(f.at(0), std::move(*source), f.at(1)));
    }
    const auto range = [&](const Json& r) { return r.is_null() ? support::Range{} : support::Range{ids.at(r.at(0)), r.at(1), r.at(2)}; };
    std::vector<support::Diagnostic> out;
    for (const auto& j : entry.at("found")) {
      support::Diagnostic d;
      d.severity = static_cast<support::Severity>(j.at("severity").get<int>());
      d.code = j.at("code");
      d.range = range(j.at("range"));
      d.message = j.at("message");
      for (const auto& n : j.at("notes")) d.notes.push_back({range(n.at(0)), n.at(1)});
      if (const auto& fix = j.at("fix"); !fix.is_null()) {
        d.fix = support::Fix{fix.at(0), {}};
        for (const auto& e : fix.at(1)) d.fix->edits.push_back({range(e.at(0)), e.at(1)});
      }
      out.push_back(std::move(d));
    }
    return out;
  } catch (const std::exception&) {  // a damaged entry
    return std::nullopt;
  }
}

void Cache::store(const Witness& witness, const std::vector<support::Diagnostic>& found, const support::SourceManager& sources) const {
  if (path_.empty()) return;
  Writer range{sources, Json::array(), {}};
  Json list = Json::array();
  for (const auto& d : found) {
    Json j{{"severity", static_cast<int>(d.severity)},
           {"code", d.code},
           {"range", range(d.range)},
           {"message", d.message},
           {"notes", Json::array()},
           {"fix", nullptr}};
    for (const auto& n : d.notes) j["notes"].push_back(Json::array({range(n.range), n.message}));
    if (d.fix) {
      Json edits = Json::array();
      for (const auto& e : d.fix->edits) edits.push_back(Json::array({range(e.range), e.text}));
      j["fix"] = Json::array({d.fix->applicability, edits});
    }
    list.push_back(std::move(j));
  }
  const Json entry{{"key", key_}, {"asked", witness.noted()}, {"files", range.files}, {"found", list}};
  (void)support::write_file(path_, entry.dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace shardwright::lint
