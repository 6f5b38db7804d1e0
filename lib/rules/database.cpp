#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "rules/embedded.h"
#include "rules/loader.h"

namespace shardwright::rules {
namespace {

bool holds(const Condition& c, const KindFacts& f) {
  auto test = [&](const Condition& k) { return holds(k, f); };
  switch (c.kind) {
    case Condition::Any: return std::any_of(c.kids.begin(), c.kids.end(), test);
    case Condition::All: return std::all_of(c.kids.begin(), c.kids.end(), test);
    case Condition::Not: return !holds(c.kids.at(0), f);
    case Condition::Name: return glob_match(c.text, f.type.substr(f.type.rfind('.') + 1));
    case Condition::ContractsWithSoftmax: return f.contracts_with_softmax == c.flag;
    case Condition::ContractsOverHeads: return f.contracts_over_heads == c.flag;
    case Condition::Root: return f.is_root == c.flag;
    case Condition::Stage: return f.is_stage == c.flag;
    case Condition::Repeats: return f.repeats == c.text;
    case Condition::Contains: return std::find(f.contains.begin(), f.contains.end(), c.text) != f.contains.end();
    case Condition::Linears: return f.linears >= c.number;
    case Condition::Activation: return f.has_activation == c.flag;
    case Condition::Leaf: return f.has_children != c.flag;
  }
  return false;
}

std::string folder_of(std::string_view path) {
  std::size_t slash = path.find('/');
  if (slash == std::string_view::npos) return path == "kinds.yaml" ? "kinds" : "";
  return std::string(path.substr(0, slash));
}

}  // namespace

support::Diagnostic diagnose(support::SourceManager& sm, const std::string& path, std::string_view text, const RuleError& e) {
  support::FileId file = sm.add(path, std::string(text));
  std::uint32_t at = 0;
  int line = 1;
  for (std::uint32_t i = 0; i < text.size() && line < e.line; ++i)
    if (text[i] == '\n') {
      ++line;
      at = i + 1;
    }
  at = std::min<std::uint32_t>(at + static_cast<std::uint32_t>(std::max(e.column - 1, 0)), static_cast<std::uint32_t>(text.size()));
  return support::failure(e.message, support::Range{file, at, at}, "rules");
}

bool glob_match(const std::string& pattern, const std::string& text) {
  std::size_t p = 0, t = 0, star = std::string::npos, mark = 0;
  while (t < text.size()) {
    if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = t;
    } else if (star != std::string::npos) {
      p = star + 1;
      t = ++mark;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

support::Expected<std::shared_ptr<const Database>> Database::load(support::SourceManager& sm, const std::vector<std::string>& user_dirs) {
  auto db = std::make_shared<Database>();
  Loader loader(*db);
  for (const EmbeddedFile& f : embedded_files()) {
    std::string folder = folder_of(f.path);
    if (!f.path.ends_with(".yaml") || (folder != "ops" && folder != "layers" && folder != "devices" && folder != "kinds")) continue;
    std::string display = "rules/" + std::string(f.path);
    try {
      loader.read(folder, display, f.text);
    } catch (const RuleError& e) { return diagnose(sm, display, f.text, e); }
  }
  for (const auto& dir : user_dirs) {
    namespace fs = std::filesystem;
    std::error_code ec;
    if (!fs::is_directory(dir, ec))
      return support::failure("rules folder \"" + dir + "\" does not exist or is no folder; --rules takes a folder of .yaml files", {},
                              "rules");
    std::vector<std::string> files;
    for (fs::recursive_directory_iterator it(dir, fs::directory_options::skip_permission_denied, ec), end; it != end; it.increment(ec))
      if (!ec && it->path().extension() == ".yaml" && it->is_regular_file(ec)) files.push_back(it->path().string());
    std::sort(files.begin(), files.end());
    std::vector<KindRule> ours = std::move(db->kinds_);
    db->kinds_.clear();
    for (const auto& path : files) {
      std::ifstream in(path, std::ios::binary);
      if (!in) return support::failure("cannot read rules file \"" + path + "\"", {}, "rules");
      std::stringstream text;
      text << in.rdbuf();
      try {
        loader.read("", path, text.str());
      } catch (const RuleError& e) { return diagnose(sm, path, text.str(), e); }
    }
    db->kinds_.insert(db->kinds_.end(), ours.begin(), ours.end());  // the user's come first
  }
  loader.index();
  return std::shared_ptr<const Database>(std::move(db));
}

const OpRule* Database::op(std::string_view name) const {
  auto at = op_index_.find(std::string(name));
  return at == op_index_.end() ? nullptr : at->second;
}

std::vector<const OpRule*> Database::ops() const {
  std::vector<const OpRule*> out;
  for (const auto& rule : ops_)
    if (op_index_.at(rule->names[0]) == rule.get()) out.push_back(rule.get());
  return out;
}

const LayerRule* Database::layer(std::string_view name) const {
  auto at = layer_index_.find(std::string(name));
  return at == layer_index_.end() ? nullptr : at->second;
}

std::vector<const LayerRule*> Database::layers() const {
  std::vector<const LayerRule*> out;
  for (const auto& rule : layers_) out.push_back(rule.get());
  return out;
}

std::string Database::kind(const KindFacts& f) const {
  for (const auto& rule : kinds_)
    if (holds(rule.when, f)) return rule.kind;
  return "";
}

const Device* Database::device(std::string_view name) const {
  auto at = devices_.find(name);
  return at == devices_.end() ? nullptr : &at->second;
}

std::vector<std::string> Database::device_names() const {
  std::vector<std::string> out;
  for (const auto& [name, d] : devices_) out.push_back(name);
  return out;
}

}  // namespace shardwright::rules
