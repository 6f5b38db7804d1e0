// Places beside the originals, and registries: dictionaries at the top level of a module, name → class or ("module", "class"). The
// generated class is entered behind the original one, in the same form, once.
#include <algorithm>
#include <filesystem>
#include <set>

#include "emit/package.h"
#include "rules/layers.h"
#include "rules/target.h"
#include "support/edits.h"
#include "support/files.h"
#include "support/text.h"

namespace shardwright::emit {
namespace {

namespace fs = std::filesystem;
using program::Expr;
using program::ExprKind;
using program::Stmt;
using program::StmtKind;

std::string slashes(std::string dotted) {
  std::replace(dotted.begin(), dotted.end(), '.', '/');
  return dotted;
}

std::string dots(std::string path) {
  std::replace(path.begin(), path.end(), '/', '.');
  return path;
}

/// A class to be entered.
struct Entry {
  const program::Module* origin = nullptr;
  std::string original, name, module;
};

/// The import that binds a name to the class of an entry; nullptr: none does.
const Stmt* import_of(const program::Module& m, const std::string& name, const Entry& e) {
  for (const auto* s : m.body) {
    if (s->kind != StmtKind::ImportFrom) continue;
    for (const auto& i : s->imports)
      if ((i.asname.empty() ? i.name : i.asname) == name && i.name == e.original && absolute_module(m, *s) == e.origin->name) return s;
  }
  return nullptr;
}

bool imported(const program::Module& m, const std::string& name) {
  for (const auto* s : m.body)
    if (s->kind == StmtKind::ImportFrom)
      for (const auto& i : s->imports)
        if ((i.asname.empty() ? i.name : i.asname) == name) return true;
  return false;
}

/// The text of one registry file with the entries it lacks.
class Editor {
 public:
  Editor(const program::Module& m, support::SourceManager& sources) : m_(m), sources_(sources) {}

  void enter(const Entry& e) {
    for (const auto* s : m_.body) {
      if ((s->kind != StmtKind::Assign && s->kind != StmtKind::AnnAssign) || !s->value || s->value->kind != ExprKind::Dict) continue;
      const auto& kids = s->value->kids;
      for (std::size_t i = 0; i + 1 < kids.size(); i += 2) {
        if (!kids[i] || kids[i]->kind != ExprKind::String) continue;
        const Expr* value = kids[i + 1];
        const bool strings = (value->kind == ExprKind::Tuple || value->kind == ExprKind::List) && value->kids.size() == 2 &&
            value->kids[0]->kind == ExprKind::String && value->kids[1]->kind == ExprKind::String &&
            value->kids[0]->text == e.origin->name && value->kids[1]->text == e.original;
        const Stmt* import = value->kind == ExprKind::Name ? import_of(m_, value->text, e) : nullptr;
        if (!strings && !import) continue;
        add(e, *s->value, *kids[i], *value, strings, import);
        break;
      }
    }
  }
  bool changed() const { return changed_; }
  const std::string& conflict() const { return conflict_; }
  support::Expected<std::string> text() { return edits_.apply(sources_.file(m_.file).text); }

 private:
  std::string quote(const Expr& like, const std::string& s) {
    std::string q = sources_.text(like.range).substr(0, 1) == "'" ? "'" : "\"";
    return q + s + q;
  }
  void add(const Entry& e, const Expr& dict, const Expr& key, const Expr& value, bool strings, const Stmt* import) {
    // A key that holds the style's name follows the class's: "WindFuser" → "WindDistributedFuser".
    for (std::size_t i = 0; i + 1 < dict.kids.size(); i += 2)
      if (dict.kids[i] && dict.kids[i]->kind == ExprKind::String && dict.kids[i]->text == e.name) {
        const Expr* there = dict.kids[i + 1];
        const bool same = strings ? there->kids.size() == 2 && there->kids[0]->text == e.module && there->kids[1]->text == e.name
                                  : there->kind == ExprKind::Name && there->text == e.name;
        if (!same) conflict_ = sources_.describe(there->range) + ": the registry has another \"" + e.name + "\" already";
        return;
      }
    changed_ = true;
    const std::string& file = sources_.file(m_.file).text;
    std::uint32_t begin = key.range.begin;
    while (begin > 0 && file[begin - 1] != '\n') --begin;
    const std::string indent = file.substr(begin, key.range.begin - begin);
    const bool own_line = indent.find_first_not_of(" \t") == std::string::npos;
    std::string text = quote(key, e.name) + ": ";
    text += strings ? "(" + quote(*value.kids[0], e.module) + ", " + quote(*value.kids[1], e.name) + ")" : e.name;
    edits_.insert_after(value.outer.end, own_line ? ",\n" + indent + text : ", " + text);
    if (import && !imported(m_, e.name)) {
      std::string from = e.module;
      if (import->level > 0) {
        std::string base = package_of(m_);
        for (int i = 1; i < import->level; ++i) base.resize(base.rfind('.') == std::string::npos ? 0 : base.rfind('.'));
        if (from.rfind(base + ".", 0) == 0) from = std::string(static_cast<std::size_t>(import->level), '.') + from.substr(base.size() + 1);
      }
      edits_.insert_after(import->range.end, "\nfrom " + from + " import " + e.name);
    }
  }

  const program::Module& m_;
  support::SourceManager& sources_;
  support::Edits edits_;
  bool changed_ = false;
  std::string conflict_;
};

}  // namespace

Layout layout_of(const PackageInput& in, const std::string& out) {
  Layout l;
  const rules::Target& target = *in.target;
  support::SourceManager& sources = in.sources;
  auto same = [out, &sources](const program::Module& m) {
    std::string below = slashes(m.name) + (m.is_package ? "/__init__.py" : ".py");
    std::error_code ec;
    std::string real = m.file < 0 ? below : fs::weakly_canonical(sources.file(m.file).path, ec).string();
    std::string root = fs::weakly_canonical(out, ec).string() + "/";
    return Place{real.rfind(root, 0) == 0 ? real.substr(root.size()) : below, m.name};
  };
  l.same = same;
  // models/wind/wind.py → models/wind_distributed_4stage/; a loose file: beside it.
  const program::Module* entry = in.loader.load(in.traced.entry_module);
  Place here = entry ? same(*entry) : Place{in.traced.entry_module + ".py", in.traced.entry_module};
  const std::string name =
      support::replaced(support::replaced(in.grid.pp == 2 ? target.model_folder_two : target.model_folder, "{model}", in.name), "{stages}",
                        std::to_string(in.grid.pp));
  auto slash = name.rfind('/');
  const std::string parent = slash == std::string::npos ? "" : name.substr(0, slash);
  const std::string leaf = name.substr(slash == std::string::npos ? 0 : slash + 1);
  std::string path = slashes(here.module);
  const std::string prefix = here.path.size() >= path.size() + 3 ? here.path.substr(0, here.path.size() - path.size() - 3) : "";  // "src/"
  auto at = ("/" + path).rfind("/" + parent + "/");
  std::string folder = parent.empty() || at == std::string::npos
      ? path.substr(0, path.rfind('/') == std::string::npos ? 0 : path.rfind('/') + 1)
      : path.substr(0, at) + parent + "/";
  folder += leaf;
  const std::string entry_name = in.traced.entry_module, in_folder = prefix + folder + "/", package = dots(folder) + ".";
  l.stages = [=](const program::Module& m) {
    if (m.name == entry_name) return Place{in_folder + leaf + ".py", package + leaf};
    const std::string stem = m.name.substr(m.name.rfind('.') + 1) + "_stages";
    return Place{in_folder + stem + ".py", package + stem};
  };
  l.init = {prefix + folder + "/__init__.py", dots(folder)};
  l.tool = prefix + folder + "/.shardwright/";
  l.support = {prefix + slashes(target.support) + ".py", target.support};
  const std::string ours = here.module.substr(0, here.module.find('.'));
  const Place init = l.init;
  l.beside = [same, &target, ours, init, out](const program::Module& m) {
    Place p = same(m);
    const bool here_below = p.path != slashes(m.name) + (m.is_package ? "/__init__.py" : ".py") || fs::exists(fs::path(out) / p.path);
    if (m.name.substr(0, m.name.find('.')) != ours && !here_below) {
      // Another package's: its copy lies beside the model's folder, not in it: modules that registries import read it, and the folder's
      // __init__ imports the stages, which read the registries.
      std::string flat = m.name;
      std::replace(flat.begin(), flat.end(), '.', '_');
      return Place{init.path.substr(0, init.path.rfind('/')) + "_" + flat + ".py", init.module + "_" + flat};
    }
    if (m.is_package) {  // a class in an __init__.py gets a file in that folder
      p.path = p.path.substr(0, p.path.rfind('/') + 1) + target.file_word + ".py";
      p.module += "." + target.file_word;
      return p;
    }
    auto slash = p.path.rfind('/');
    std::string folder = slash == std::string::npos ? "" : p.path.substr(0, slash + 1);
    std::string stem = p.path.substr(folder.size(), p.path.size() - folder.size() - 3);
    p.path = folder + target.file_stem(stem) + ".py";
    auto dot = p.module.rfind('.');
    p.module = (dot == std::string::npos ? "" : p.module.substr(0, dot + 1)) + target.file_stem(stem);
    return p;
  };
  return l;
}

std::vector<const program::Module*> registry_modules(const PackageInput& in) {
  std::map<std::string, const program::Module*> files;
  std::set<std::string> folders;
  for (const auto& d : in.specialized.definitions) {
    if (d.stage >= 0 || d.origin->file < 0) continue;
    const std::string package = package_of(*d.origin);
    const auto dot = package.rfind('.');
    if (dot == std::string::npos) continue;
    const fs::path above = fs::path(support::parent_path(in.sources.file(d.origin->file).path)).parent_path();
    if (!folders.insert(above.string()).second) continue;
    std::error_code ec;
    for (const auto& folder : fs::directory_iterator(above, ec)) {
      if (!folder.is_directory(ec)) continue;
      for (const auto& f : fs::directory_iterator(folder.path(), ec))
        if (f.path().extension() == ".py" && rules::glob_match(in.target->registries, f.path().filename().string()))
          files[package.substr(0, dot) + "." + folder.path().filename().string() + "." + f.path().stem().string()] = nullptr;
    }
  }
  for (auto& [name, module] : files) module = in.loader.load(name);
  for (const auto& [module, definition] : in.specialized.looked_up) files[module->name] = module;
  std::vector<const program::Module*> out;
  for (const auto& [name, module] : files)
    if (module && module->file >= 0) out.push_back(module);
  return out;
}

support::Expected<std::vector<File>> registry_files(const PackageInput& in) {
  std::vector<File> out;
  if (in.target->registries.empty()) return out;
  std::vector<Entry> entries;
  for (const auto& d : in.specialized.definitions) {
    if (d.stage >= 0 || d.text.find("class " + d.name) == std::string::npos) continue;
    entries.push_back({d.origin, d.original, d.name, in.layout.beside(*d.origin).module});
  }
  for (const auto* module : registry_modules(in)) {
    Editor editor(*module, in.sources);
    for (const auto& e : entries) editor.enter(e);
    if (!editor.conflict().empty()) return support::failure(editor.conflict() + ": nothing was written", {}, "overwrite");
    if (!editor.changed()) continue;
    auto text = editor.text();
    if (!text) return text.error();
    out.push_back({in.layout.same(*module).path, *text, false, true, module->name});
  }
  return out;
}

}  // namespace shardwright::emit
