#include "emit/training_values.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "program/visit.h"
#include "support/files.h"

namespace shardwright::emit {
namespace {

namespace fs = std::filesystem;
using program::Expr;
using program::ExprKind;
using program::Stmt;
using program::StmtKind;

/// cfg.train.lr, cfg["train"]["lr"], cfg.get("lr") → cfg, train, lr
bool path_of(const Expr* e, std::vector<std::string>& keys) {
  if (e->kind == ExprKind::Name) {
    keys.push_back(e->text);
    return true;
  }
  if (e->kind == ExprKind::Attribute) {
    if (!path_of(e->kids[0], keys)) return false;
    keys.push_back(e->text);
    return true;
  }
  if (e->kind == ExprKind::Subscript && e->kids.size() > 1 && e->kids[1]->kind == ExprKind::String) {
    if (!path_of(e->kids[0], keys)) return false;
    keys.push_back(e->kids[1]->text);
    return true;
  }
  return false;
}

/// All values in a document whose keys end in `path`.
void find(const YAML::Node& n, const std::vector<std::string>& path, std::vector<std::string>& trail, std::vector<std::string>& out) {
  if (!n.IsMap()) return;
  for (const auto& kv : n) {
    trail.push_back(kv.first.Scalar());
    if (kv.second.IsScalar() && trail.size() >= path.size() && std::equal(path.rbegin(), path.rend(), trail.rbegin()))
      out.push_back(kv.second.Scalar());
    find(kv.second, path, trail, out);
    trail.pop_back();
  }
}

bool is_number(const std::string& s) {
  if (s.empty()) return false;
  char* end = nullptr;
  std::strtod(s.c_str(), &end);
  return *end == 0;
}

}  // namespace

TrainingValues::TrainingValues(const program::Module& m, support::SourceManager& sources, const std::string& path)
    : m_(m), sources_(sources) {
  const fs::path folder = fs::path(path).parent_path();
  std::error_code ec;
  for (const fs::path& dir : {folder, folder / "conf", folder / "config", folder / "configs"})
    for (const auto& f : fs::directory_iterator(dir.empty() ? fs::path(".") : dir, ec))
      if (f.path().extension() == ".yaml" || f.path().extension() == ".yml") configs_.push_back(f.path().string());
  std::sort(configs_.begin(), configs_.end());
}

std::optional<std::string> TrainingValues::configured(const std::vector<std::string>& keys) const {
  std::vector<std::string> found;
  for (const auto& file : configs_) {
    auto text = support::read_file(file);
    if (!text) continue;
    try {
      std::vector<std::string> trail;
      find(YAML::Load(*text), keys, trail, found);
    } catch (const YAML::Exception&) { continue; }
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  if (found.size() == 1 && is_number(found[0])) return found[0];
  return std::nullopt;
}

std::optional<std::string> TrainingValues::argument(const std::string& name) const {
  std::optional<std::string> out;
  program::walk_exprs(m_.body, [&](const Expr* e) {
    if (e->kind != ExprKind::Call || e->kids[0]->kind != ExprKind::Attribute || e->kids[0]->text != "add_argument") return true;
    bool this_one = false;
    for (const auto& a : e->args)
      if (a.keyword.empty() && a.value->kind == ExprKind::String) {
        std::string flag = a.value->text.substr(std::min(a.value->text.find_first_not_of('-'), a.value->text.size()));
        std::replace(flag.begin(), flag.end(), '-', '_');
        this_one = this_one || flag == name;
      }
    if (this_one)
      for (const auto& a : e->args)
        if (a.keyword == "default") out = number(a.value, 1);
    return true;
  });
  return out;
}

std::optional<std::string> TrainingValues::number(const Expr* e, int depth) const {
  if (depth > 8) return std::nullopt;
  if (std::string t(sources_.text(e->range)); is_number(t)) return t;
  if (e->kind == ExprKind::Call && !e->args.empty() && e->kids[0]->kind == ExprKind::Name &&
      (e->kids[0]->text == "float" || e->kids[0]->text == "int"))
    return number(e->args[0].value, depth + 1);
  std::vector<std::string> keys;
  if (!path_of(e, keys)) return std::nullopt;
  if (keys.size() == 1) {  // a name bound once
    const Expr* value = nullptr;
    int bound = 0;
    program::walk(m_.body, [&](const Stmt* s) {
      if ((s->kind == StmtKind::Assign || s->kind == StmtKind::AnnAssign) && s->targets.size() == 1 &&
          s->targets[0]->kind == ExprKind::Name && s->targets[0]->text == keys[0])
        value = s->value, ++bound;
      return true;
    });
    return bound == 1 && value ? number(value, depth + 1) : std::nullopt;
  }
  keys.erase(keys.begin());
  if (auto v = configured(keys)) return v;
  return keys.size() == 1 ? argument(keys[0]) : std::nullopt;
}

}  // namespace shardwright::emit
