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

/// All values in a document whose keys end in `path`; `element`: of lists, that one.
void find(const YAML::Node& n, const std::vector<std::string>& path, int element, std::vector<std::string>& trail,
          std::vector<std::string>& out) {
  if (!n.IsMap()) return;
  for (const auto& kv : n) {
    trail.push_back(kv.first.Scalar());
    const YAML::Node value = element < 0 ? kv.second : kv.second.IsSequence() ? kv.second[element] : YAML::Node();
    if (value.IsDefined() && value.IsScalar() && trail.size() >= path.size() && std::equal(path.rbegin(), path.rend(), trail.rbegin()))
      out.push_back(value.Scalar());
    find(kv.second, path, element, trail, out);
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

std::optional<std::string> TrainingValues::configured(const std::vector<std::string>& keys, int element) const {
  std::vector<std::string> found;
  for (const auto& file : configs_) {
    auto text = support::read_file(file);
    if (!text) continue;
    try {
      std::vector<std::string> trail;
      find(YAML::Load(*text), keys, element, trail, found);
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

const Expr* TrainingValues::bound_once(const std::string& name) const {
  const Expr* value = nullptr;
  int bound = 0;
  program::walk(m_.body, [&](const Stmt* s) {
    if (s->kind == StmtKind::FunctionDef)  // what a call gives it
      for (const auto& p : s->function->parameters) bound += p.name == name;
    if (s->kind == StmtKind::Import || s->kind == StmtKind::ImportFrom)
      for (const auto& i : s->imports) bound += program::bound_name(*s, i) == name;
    if (s->kind == StmtKind::FunctionDef || s->kind == StmtKind::ClassDef) return true;
    program::NameSet written;
    for (const auto* t : s->targets) program::target_names(t, written);
    if (!written.contains(name)) return true;
    ++bound;
    const bool plain =
        (s->kind == StmtKind::Assign || s->kind == StmtKind::AnnAssign) && s->targets.size() == 1 && s->targets[0]->kind == ExprKind::Name;
    value = plain ? s->value : nullptr;
    return true;
  });
  return bound == 1 ? value : nullptr;
}

/// An attribute or key of what an expression makes: parse_args(), a dict, a Namespace, an instance of a class of the script.
std::optional<std::string> TrainingValues::member(const Expr* made, const std::vector<std::string>& keys, int depth) const {
  const std::string& key = keys.front();
  if (made->kind == ExprKind::Dict) {
    for (std::size_t i = 0; i + 1 < made->kids.size(); i += 2)
      if (made->kids[i] && made->kids[i]->kind == ExprKind::String && made->kids[i]->text == key)
        return keys.size() == 1 ? number(made->kids[i + 1], depth) : member(made->kids[i + 1], {keys.begin() + 1, keys.end()}, depth);
    return std::nullopt;
  }
  if (made->kind != ExprKind::Call) return configured(keys);
  const Expr* callee = made->kids[0];
  if (const Expr* root = program::root_name(callee); root && root->text == "json") return std::nullopt;  // not in the YAML files
  if (callee->text == "parse_args" || callee->text == "parse_known_args") return keys.size() == 1 ? argument(key) : std::nullopt;
  if (callee->kind == ExprKind::Name)
    for (const auto* s : m_.body) {
      if (s->kind == StmtKind::FunctionDef && s->function->name == callee->text) {  // def get_args(): … return parser.parse_args()
        const Expr* returned = nullptr;
        program::walk(s->function->body, [&](const Stmt* inner) {
          if (inner->kind == StmtKind::Return && inner->value) returned = inner->value;
          return true;
        });
        if (returned && returned->kind == ExprKind::Name && bound_once(returned->text)) returned = bound_once(returned->text);
        if (returned && depth < 8) return member(returned, keys, depth + 1);
      }
      if (s->kind != StmtKind::ClassDef || s->class_def->name != callee->text) continue;
      for (const auto& a : made->args)
        if (a.keyword == key) return keys.size() == 1 ? number(a.value, depth) : std::nullopt;
      for (const auto* field : s->class_def->body)  // lr: float = 1e-3
        if ((field->kind == StmtKind::AnnAssign || field->kind == StmtKind::Assign) && field->value && field->targets.size() == 1 &&
            field->targets[0]->text == key)
          return keys.size() == 1 ? number(field->value, depth) : std::nullopt;
      return std::nullopt;
    }
  for (const auto& a : made->args)  // Namespace(lr=1e-3), dict(lr=1e-3)
    if (a.keyword == key) return keys.size() == 1 ? number(a.value, depth) : member(a.value, {keys.begin() + 1, keys.end()}, depth);
  return configured(keys);
}

/// Does the script change what `root` holds under `key`: cfg["lr"] = 1, args.lr *= 2, cfg.update(…), setattr(args, k, v)?
bool TrainingValues::altered(const std::string& root, const std::string& key) const {
  bool found = false;
  const auto is_root = [&](const Expr* e) {
    const Expr* r = program::root_name(e);
    return r && r->text == root;
  };
  program::walk(m_.body, [&](const Stmt* s) {
    for (const auto* t : s->targets) {
      std::vector<std::string> keys;
      if (t->kind != ExprKind::Name && is_root(t)) found = found || !path_of(t, keys) || keys.back() == key;
    }
    return !found;
  });
  program::walk_exprs(m_.body, [&](const Expr* e) {
    if (e->kind != ExprKind::Call) return !found;
    const std::string name = e->kids[0]->text;
    const bool on_root = e->kids[0]->kind == ExprKind::Attribute && is_root(e->kids[0]);
    found = found || (on_root && (name == "update" || name.rfind("merge", 0) == 0 || name == "setdefault" || name == "pop")) ||
        (e->kids[0]->kind == ExprKind::Name && name == "setattr" && !e->args.empty() && is_root(e->args[0].value)) ||
        (e->kids[0]->kind == ExprKind::Attribute && name == "set_defaults");
    return !found;
  });
  return found;
}

std::optional<std::string> TrainingValues::element(const Expr* e, std::size_t at) const {
  if (e->kind == ExprKind::Tuple || e->kind == ExprKind::List) return at < e->kids.size() ? number(e->kids[at]) : std::nullopt;
  if (e->kind == ExprKind::Call && e->args.size() == 1 && (e->kids[0]->text == "tuple" || e->kids[0]->text == "list"))
    return element(e->args[0].value, at);
  std::vector<std::string> keys;
  if (!path_of(e, keys)) return std::nullopt;
  const Expr* bound = bound_once(keys[0]);
  if (keys.size() == 1) return bound ? element(bound, at) : std::nullopt;
  keys.erase(keys.begin());
  return configured(keys, static_cast<int>(at));
}

std::optional<std::string> TrainingValues::number(const Expr* e, int depth) const {
  if (depth > 8) return std::nullopt;
  if (std::string t(sources_.text(e->range)); is_number(t)) return t;
  if (e->kind == ExprKind::Call && !e->args.empty() && e->kids[0]->kind == ExprKind::Name &&
      (e->kids[0]->text == "float" || e->kids[0]->text == "int")) {
    const auto v = number(e->args[0].value, depth + 1);
    return v && e->kids[0]->text == "int" ? std::to_string(static_cast<long long>(std::strtod(v->c_str(), nullptr))) : v;
  }
  std::vector<std::string> keys;
  if (!path_of(e, keys)) return std::nullopt;
  const Expr* bound = bound_once(keys[0]);
  if (keys.size() == 1) return bound ? number(bound, depth + 1) : std::nullopt;
  if (altered(keys[0], keys.back())) return std::nullopt;
  keys.erase(keys.begin());
  if (bound) return member(bound, keys, depth + 1);
  const auto from_file = configured(keys), from_default = keys.size() == 1 ? argument(keys[0]) : std::nullopt;
  if (from_file && from_default && from_file != from_default) return std::nullopt;
  return from_file ? from_file : from_default;
}

}  // namespace shardwright::emit
