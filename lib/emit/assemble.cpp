#include "emit/assemble.h"

#include <algorithm>

#include "emit/alone.h"
#include "emit/copies.h"
#include "program/visit.h"
#include "python/identifiers.h"
#include "rules/target.h"

namespace shardwright::emit {
namespace {

using program::Stmt;
using program::StmtKind;

/// "import a.b as c" is "from a import b as c".
std::string as_from_import(const std::string& line) {
  const auto as = line.find(" as ");
  if (line.rfind("import ", 0) != 0 || as == std::string::npos) return line;
  const std::string module = line.substr(7, as - 7), name = line.substr(as + 4);
  const auto dot = module.rfind('.');
  if (dot == std::string::npos) return line;
  const std::string last = module.substr(dot + 1);
  return "from " + module.substr(0, dot) + " import " + last + (last == name ? "" : " as " + name);
}

}  // namespace

std::string package_of(const program::Module& m) {
  if (m.is_package) return m.name;
  auto dot = m.name.rfind('.');
  return dot == std::string::npos ? "" : m.name.substr(0, dot);
}

std::string absolute_module(const program::Module& m, const Stmt& s) {
  if (s.level == 0) return s.module;
  std::string base = package_of(m);
  for (int i = 1; i < s.level; ++i) {
    auto dot = base.rfind('.');
    base = dot == std::string::npos ? "" : base.substr(0, dot);
  }
  if (s.module.empty()) return base;
  return base.empty() ? s.module : base + "." + s.module;
}

std::string relative_module(const std::string& from, const std::string& to) {
  auto split = [](const std::string& p) {
    std::vector<std::string> parts;
    std::size_t at = 0;
    for (std::size_t slash; (slash = p.find('/', at)) != std::string::npos; at = slash + 1) parts.push_back(p.substr(at, slash - at));
    parts.push_back(p.substr(at));
    return parts;
  };
  auto a = split(from), b = split(to);
  std::size_t common = 0;
  while (common + 1 < a.size() && common + 1 < b.size() && a[common] == b[common]) ++common;
  std::string out(a.size() - common, '.');
  std::string last = b.back();
  if (last.size() > 3 && last.substr(last.size() - 3) == ".py") last.resize(last.size() - 3);
  for (std::size_t i = common; i + 1 < b.size(); ++i) out += b[i] + ".";
  if (last == "__init__") {
    if (out.back() == '.' && out.find_first_not_of('.') != std::string::npos) out.pop_back();
    return out;
  }
  return out + last;
}

Assembler::Assembler(const rewrite::Specialized& spec, eval::ModuleSource& loader, support::SourceManager& sources, AssembleOptions options)
    : spec_(spec), loader_(loader), sources_(sources), options_(std::move(options)), path_of_(spec.definitions.size()) {
  for (const auto& d : spec_.definitions)
    if (d.stage >= 0) taken_.insert("stage" + std::to_string(d.stage) + ".py");
  for (std::size_t i = 0; i < spec_.definitions.size(); ++i) {
    const auto& d = spec_.definitions[i];
    if (in_place()) {
      Place p = d.stage >= 0 ? options_.stages(*d.origin) : options_.place(*d.origin);
      if (d.stage >= 0) stage_paths_.insert(p.path);
      path_of_[i] = p.path;
      dotted_[p.path] = p.module;
    } else {
      path_of_[i] = d.stage >= 0 ? "stage" + std::to_string(d.stage) + ".py" : file_of(*d.origin);
    }
  }
}

std::string Assembler::import_from(const std::string& from, const std::string& to) const {
  auto it = dotted_.find(to);
  return "from " + (it == dotted_.end() ? relative_module(from, to) : it->second) + " import ";
}

std::string Assembler::file_of(const program::Module& m) {
  const auto known = files_.find(m.name);
  if (known != files_.end()) return known->second;
  // A file that is run rather than imported may have any name; two that differ in such letters only must not become one.
  std::string path;
  for (std::size_t at = 0; at <= m.name.size();) {
    const std::size_t dot = std::min(m.name.find('.', at), m.name.size());
    path += (path.empty() ? "" : "/") + python::identifier(m.name.substr(at, dot - at));
    at = dot + 1;
  }
  const std::string end = m.is_package ? "/__init__.py" : ".py";
  std::string file = path + end;
  for (int n = 2; !taken_.insert(file).second; ++n) file = path + "_" + std::to_string(n) + end;
  return files_[m.name] = file;
}

std::string Assembler::module_of(int definition) const {
  std::string p = path_of_[static_cast<std::size_t>(definition)];
  if (auto it = dotted_.find(p); it != dotted_.end()) return it->second;
  p.resize(p.size() - 3);
  std::replace(p.begin(), p.end(), '/', '.');
  return p;
}

Assembler::Unit& Assembler::unit(const std::string& path, const program::Module* origin) {
  auto [it, fresh] = units_.try_emplace(path);
  if (fresh) it->second.path = path;
  if (origin && !it->second.origin) it->second.origin = origin;
  return it->second;
}

const std::vector<const Stmt*>& Assembler::binders(const program::Module& m, const std::string& name) {
  auto it = index_.find(&m);
  if (it == index_.end()) {
    it = index_.emplace(&m, std::map<std::string, std::vector<const Stmt*>>{}).first;
    for (const auto* s : m.body) {
      program::NameSet names;
      program::names_written(s, names);
      for (const auto& n : names.names()) it->second[n].push_back(s);
    }
  }
  return it->second[name];
}

/// The import line that binds `name` as `origin` binds it. When it comes from a copied module: `*local`, `*local_name`.
std::string Assembler::import_line(const program::Module& origin, const std::string& name, const program::Module** local,
                                   std::string* local_name) {
  const auto& list = binders(origin, name);
  if (list.empty()) {
    for (const auto* s : origin.body)
      if (s->kind == StmtKind::ImportFrom && !s->imports.empty() && s->imports[0].name == "*") {
        std::string from = absolute_module(origin, *s);
        const program::Module* m = loader_.load(from);
        if (m && !binders(*m, name).empty()) {
          if (options_.copied(*m)) {
            *local = m;
            *local_name = name;
            return "";
          }
          return "from " + from + " import " + name;
        }
        if (!m) return "from " + from + " import " + name;
      }
    return "";
  }
  const Stmt* s = list.back();
  if (s->kind == StmtKind::Import) {
    for (const auto& i : s->imports) {
      std::string first = i.name.substr(0, i.name.find('.'));
      if (!i.asname.empty() ? i.asname == name : first == name)
        return i.asname.empty() ? "import " + i.name : "import " + i.name + " as " + i.asname;
    }
  }
  if (s->kind == StmtKind::ImportFrom) {
    std::string from = absolute_module(origin, *s);
    for (const auto& i : s->imports) {
      if ((i.asname.empty() ? i.name : i.asname) != name) continue;
      const program::Module* m = loader_.load(from);
      if (m && options_.copied(*m) && !binders(*m, i.name).empty()) {
        *local = m;
        *local_name = i.name;
        return "";
      }
      return "from " + from + " import " + i.name + (i.asname.empty() || i.asname == i.name ? "" : " as " + i.asname);
    }
  }
  if (options_.copied(origin)) {
    *local = &origin;
    *local_name = name;
    return "";
  }
  return "from " + origin.name + " import " + name;
}

std::string Assembler::bind(Unit& u, const std::string& wanted, const std::string& identity) {
  std::string& name = u.called[identity];
  if (!name.empty()) return name;
  name = wanted;
  for (int n = 2; u.bound.count(name) > 0; ++n) name = wanted + "_" + std::to_string(n);
  u.bound[name] = identity;
  return name;
}

std::string Assembler::bind_from(Unit& u, const std::string& wanted, const std::string& target, const std::string& name) {
  const std::string as = bind(u, wanted, "from " + target + " import " + name);
  u.relative[target].insert(name == as ? name : name + " as " + as);
  return as;
}

namespace {
bool binds(const std::vector<Stmt*>& block, const std::string& name) {
  program::NameSet names;
  for (const Stmt* s : block) program::names_written(s, names);
  return names.contains(name);
}
}  // namespace

std::string Assembler::need(Unit& u, const std::string& name, const program::Module& origin) {
  if (u.path == file_of(origin) && u.pieces.count(name)) return name;
  const program::Module* local = nullptr;
  std::string local_name;
  std::string line = import_line(origin, name, &local, &local_name);
  if (local) {
    copy_definition(*local, local_name);
    const std::string target = file_of(*local);
    if (target == u.path) return local_name;
    note(u, target, origin, name);
    return bind_from(u, name, target, local_name);
  }
  if (line.empty()) return name;  // a builtin, or a name nobody binds: as in the original
  const auto as = line.find(" as ");
  if (line.rfind("import ", 0) == 0 && as == std::string::npos) {  // `import a.b` and `import a.c` both say what `a` is
    const std::string found = bind(u, name, "import " + name);
    u.absolute.insert(line);
    note(u, line, origin, name);
    if (found != name) u.absolute.insert("import " + name + " as " + found);
    return found;
  }
  const std::string what = as_from_import(line);
  const std::string thing = what.substr(0, what.find(" as ")), found = bind(u, name, thing);
  // `if accelerate_is_there(): from accelerate import hook`: perhaps nobody has it.
  const auto& by = binders(origin, name);
  if (by.size() == 1 && by[0]->kind == StmtKind::If && !binds(by[0]->body, name) + !binds(by[0]->orelse, name) == 1) {
    u.optional.insert(found == name ? line : thing + " as " + found);
    return found;
  }
  // The line as the original writes it, where its name holds.
  if (found == name) {
    const std::string& as_written = u.lines.emplace(name, line).first->second;
    u.absolute.insert(as_written);
    note(u, as_written, origin, name);
  } else u.absolute.insert(thing + " as " + found);
  return found;
}

void Assembler::note(Unit& u, const std::string& line, const program::Module& origin, const std::string& name) {
  if (u.origin != &origin) return;
  const auto& list = binders(origin, name);
  if (list.empty() || (list.back()->kind != StmtKind::Import && list.back()->kind != StmtKind::ImportFrom)) return;
  const Stmt& s = *list.back();
  const bool several_lines = sources_.text(s.range).find('\n') != std::string_view::npos;
  Comments& kept = u.notes[line];
  if (u.noted.insert(&s).second) {
    const Comments all = comments_of(origin, s, sources_);
    kept.above += all.above;
    if (!several_lines) kept.behind += all.behind;
  }
  if (several_lines)
    if (const std::string c = comment_on_name(s, name, sources_); kept.behind.find(c) == std::string::npos) kept.behind += c;
}

std::pair<const program::Module*, std::string> Assembler::resolve(const program::Module& origin, const std::string& name) {
  const program::Module* m = &origin;
  std::string n = name;
  for (int hops = 0; m && hops < 20; ++hops) {
    const auto& list = binders(*m, n);
    const Stmt* s = list.empty() ? nullptr : list.back();
    if (s && s->kind != StmtKind::ImportFrom) return {m, n};
    const program::Module* next = nullptr;
    for (const Stmt* by : m->body) {
      if (by->kind != StmtKind::ImportFrom || (s && by != s)) continue;
      for (const auto& i : by->imports) {
        const bool star = !s && i.name == "*";
        if (!star && (i.asname.empty() ? i.name : i.asname) != n) continue;
        const program::Module* from = loader_.load(absolute_module(*m, *by));
        if (!from || (star && binders(*from, n).empty())) continue;
        next = from;
        if (!star) n = i.name;
        break;
      }
      if (next) break;
    }
    m = next;
  }
  return {nullptr, n};
}

void Assembler::place(int index) {
  const auto& d = spec_.definitions[static_cast<std::size_t>(index)];
  Unit& u = unit(path_of_[static_cast<std::size_t>(index)], d.origin);
  std::string text = d.text;
  // The registry of a module that is imported stays the original's: what is generated takes nobody's place in it.
  if (!in_place() && !options_.copied(*d.origin))
    for (const auto& e : d.entering)
      if (const auto at = text.find("@" + e + "\n"); at < text.find(d.name)) text.erase(at, e.size() + 2);
  // In a package of copies a class that keeps its name is the one that all ask for.
  if (d.asked && (in_place() || (options_.copied(*d.origin) && d.name == d.original)))
    if (const auto at = text.find("__class__ = stands_for(" + rewrite::original_name(d.original) + ")\n\n"); at != std::string::npos) {
      const auto line = text.rfind('\n', at);
      text.erase(line + 1, text.find("\n\n", at) + 1 - line);
    }
  u.pieces[d.name] = {d.range.begin, std::move(text), d.stage};
  for (const Stmt* s : d.origin->body)
    if (is_definition(s) && (s->class_def ? s->class_def->range : s->function->range) == d.range) {
      u.pieces[d.name].comments = comments_of(*d.origin, *s, sources_);
      u.pieces[d.name].comments.behind.clear();  // these are in its text
    }
}

/// What a free name of a definition's text is called in the file that holds it.
std::string Assembler::name_of(Unit& u, const rewrite::Definition& d, const std::string& n,
                               const std::map<std::string, int>& refs_of_file) {
  auto definition = [&](int index) {
    const std::string& target = path_of_[static_cast<std::size_t>(index)];
    return target == u.path ? n : bind_from(u, n, target, n);
  };
  if (auto r = d.refs.find(n); r != d.refs.end()) return definition(r->second);
  if (n == d.name) return n;
  if (d.asked && n == rewrite::original_name(d.original)) {
    if (options_.copied(*d.origin)) return need(u, d.original, *d.origin);
    const std::string as = bind(u, n, d.origin->name + "." + d.original);
    u.absolute.insert("from " + d.origin->name + " import " + d.original + " as " + as);
    return as;
  }
  if (auto r = refs_of_file.find(n); r != refs_of_file.end()) {
    const auto& other = spec_.definitions[static_cast<std::size_t>(r->second)];
    if (resolve(*d.origin, n) == std::pair<const program::Module*, std::string>(other.origin, other.original)) return definition(r->second);
  }
  if (d.runtime.count(n)) {
    const std::string as = bind(u, n, "runtime " + n);
    u.runtime.insert(as == n ? n : n + " as " + as);
    return as;
  }
  for (const auto& line : d.plain_imports)
    if (line.size() > n.size() && line.compare(line.size() - n.size() - 1, n.size() + 1, " " + n) == 0) {
      const std::string as = bind(u, n, as_from_import(line));
      u.plain.insert(as == n ? line : line + " as " + as);
      return as;
    }
  if (python_builtins().count(n) && binders(*d.origin, n).empty()) return n;
  return need(u, n, *d.origin);
}

/// The text with free names replaced; an error where a name of the same spelling belongs to a function inside.
support::Expected<std::string> Assembler::with_names(const program::Module& parsed, const std::string& text,
                                                     const std::map<std::string, std::string>& names) const {
  std::map<std::uint32_t, std::pair<std::uint32_t, std::string>> edits;
  std::string clash;
  auto parameters = [&](const program::Function* f) {
    for (const auto& p : f->parameters)
      if (names.count(p.name)) clash = p.name;
  };
  program::walk(parsed.body, [&](const Stmt* s) {
    if (s->kind == StmtKind::FunctionDef) parameters(s->function);
    return true;
  });
  program::walk_exprs(parsed.body, [&](const program::Expr* e) {
    if (e->kind == program::ExprKind::Lambda && e->function) parameters(e->function);
    if (e->kind == program::ExprKind::Name)
      if (auto n = names.find(e->text); n != names.end()) edits[e->range.begin] = {e->range.end, n->second};
    return true;
  });
  if (!clash.empty())
    return support::failure(
        "the name " + clash +
            " means two things in the generated file: a module's and a parameter's. Rename the parameter in the original, or the import",
        parsed.body.front()->range, "generate");
  std::string out = text;
  for (auto e = edits.rbegin(); e != edits.rend(); ++e) out.replace(e->first, e->second.first - e->first, e->second.second);
  return out;
}

support::Expected<std::vector<File>> Assembler::files() {
  for (std::size_t i = 0; i < spec_.definitions.size(); ++i) place(static_cast<int>(i));
  for (std::size_t i = 0; i < spec_.definitions.size(); ++i) {
    const auto& d = spec_.definitions[i];
    Unit& u = unit(path_of_[i], d.origin);
    copy_patches(u, *d.origin, d.original, d.name, d.stage);
    if (!in_place() && options_.copied(*d.origin)) copy_settings(u, *d.origin);
  }
  copy_changes_of_torch();
  for (auto& [path, u] : units_)
    for (const auto& [name, piece] : u.pieces) bind(u, name, "from " + path + " import " + name);
  // Where one definition constructs the generated class, the others' annotations and isinstance tests of the same file speak of
  // that one too.
  std::map<std::string, std::map<std::string, int>> refs_of_file;
  for (std::size_t i = 0; i < spec_.definitions.size(); ++i)
    refs_of_file[path_of_[i]].insert(spec_.definitions[i].refs.begin(), spec_.definitions[i].refs.end());
  for (std::size_t i = 0; i < spec_.definitions.size(); ++i) {
    const auto& d = spec_.definitions[i];
    Unit& u = unit(path_of_[i], d.origin);
    const program::Module* parsed = loader_.parse("generated." + d.name, "<generated " + d.name + ">", u.pieces[d.name].text);
    if (!parsed->syntax_errors.empty()) {
      support::Diagnostic bad =
          support::failure("the generated text of " + d.name + " is not valid Python at " +
                               sources_.describe(parsed->syntax_errors.front()) + ": a fault of the generator, please report it",
                           d.range, "internal");
      bad.notes.push_back({{}, d.text});
      return bad;
    }
    for (const auto* s : parsed->body)
      if (s->kind == StmtKind::ClassDef)
        for (const auto& base : s->class_def->bases)
          if (base.value->kind == program::ExprKind::Name && base.value->text != d.name) u.pieces[d.name].after.insert(base.value->text);
    program::NameSet reads;
    for (const auto* s : parsed->body) program::names_read(s, reads);
    std::map<std::string, std::string> renamed;
    for (const auto& n : reads.names()) {
      const std::string found = name_of(u, d, n, refs_of_file[u.path]);
      if (found != n) renamed[n] = found;
    }
    if (renamed.empty()) continue;
    auto text = with_names(*parsed, u.pieces[d.name].text, renamed);
    if (!text) return text.error();
    u.pieces[d.name].text = std::move(*text);
  }
  copy_by_value();
  for (auto& [path, u] : units_)
    if (u.origin)
      for (auto& [name, piece] : u.pieces) piece.text = answered_alone(std::move(piece.text), *u.origin, loader_);
  std::vector<File> out;
  std::set<std::string> folders;
  for (auto& [path, u] : units_) {
    std::string head =
        in_place() && !stage_paths_.count(path) && !options_.shared_banner.empty() ? options_.shared_banner : options_.banner;
    const bool shared = path.rfind("stage", 0) != 0 && !stage_paths_.count(path);
    if (u.origin && shared) head += "\n# From " + u.origin->name + ".";
    head += "\n";
    if (u.origin) {
      const std::string first = heading(*u.origin, sources_);
      if (!first.empty()) head += "\n" + first;
      if (const std::string doc = shared ? docstring(*u.origin, sources_) : ""; !doc.empty()) head += doc + "\n";
      for (const auto* s : u.origin->body)
        if (s->kind == StmtKind::ImportFrom && s->module == "__future__") head += std::string(sources_.text(s->range)) + "\n";
    }
    std::string imports;
    const auto import = [&](const std::string& key, const std::string& text) {
      const auto it = u.notes.find(key);
      imports += it == u.notes.end() ? text + "\n" : it->second.above + text + it->second.behind + "\n";
    };
    for (const auto& l : u.plain) imports += l + "\n";
    for (const auto& l : u.absolute)
      if (l.rfind("import ", 0) == 0) import(l, l);
    for (const auto& l : u.absolute)
      if (l.rfind("import ", 0) != 0) import(l, l);
    std::map<std::string, std::set<std::string>> used;
    for (const auto& n : u.runtime) used[options_.target->where(n.substr(0, n.find(' ')))].insert(n);
    for (const auto& [module, runtime] : used) {
      imports += "from " + module + " import ";
      std::string names;
      for (const auto& n : runtime) names += (names.empty() ? "" : ", ") + n;
      imports += names.size() > 90 ? "(" : "";
      if (names.size() > 90) {
        std::size_t width = 0;
        std::string wrapped;
        for (const auto& n : runtime) {
          if (width + n.size() > 90 || wrapped.empty()) wrapped += "\n    ", width = 0;
          else wrapped += " ", width += 1;
          wrapped += n + ",", width += n.size() + 1;
        }
        imports += wrapped + "\n)\n";
      } else {
        imports += names + "\n";
      }
    }
    for (auto& [target, names] : u.relative) {
      std::string text = import_from(path, target);
      bool first = true;
      for (const auto& n : names) text += (first ? "" : ", ") + n, first = false;
      import(target, text);
    }
    if (!u.optional.empty()) {
      imports += "\ntry:  # what the original has under a condition\n";
      for (const auto& l : u.optional) imports += "    " + l + "\n";
      imports += "except ImportError:\n    pass\n";
    }
    if (spec_.modules_asked && shared && u.origin && !in_place())
      imports += "\n__name__ = \"" + u.origin->name + "\"  # classes are asked for their module\n";
    std::vector<const Piece*> pieces;
    for (auto& [name, piece] : u.pieces)
      if (!piece.text.empty()) pieces.push_back(&piece);
    std::stable_sort(pieces.begin(), pieces.end(),
                     [](auto* a, auto* b) { return std::pair(a->stage, a->order) < std::pair(b->stage, b->order); });
    // As in the originals, but a class behind those it is derived from: they may come from another module, in which they stand later.
    std::vector<const Piece*> in_order;
    std::set<const Piece*> placed;
    const std::function<void(const Piece*)> add = [&](const Piece* piece) {
      if (!placed.insert(piece).second) return;
      for (const auto& base : piece->after)
        if (const auto it = u.pieces.find(base); it != u.pieces.end() && !it->second.text.empty()) add(&it->second);
      in_order.push_back(piece);
    };
    for (const auto* piece : pieces) add(piece);
    std::string body;
    for (const auto* piece : in_order) {
      const bool block = piece->text.rfind("class ", 0) == 0 || piece->text.rfind("def ", 0) == 0 || piece->text.rfind("@", 0) == 0;
      const Comments& c = piece->comments;
      body += (block || body.empty() ? "\n\n" : "\n") + c.above + piece->text + c.behind + "\n";
      if (!c.after.empty()) body += "\n\n" + c.after + "\n";
    }
    out.push_back({(in_place() ? "" : options_.package + "/") + path, head + "\n" + imports + body});
    if (in_place()) {
      out.back().module = dotted_.at(path);
      continue;
    }
    for (std::size_t slash = path.find('/'); slash != std::string::npos; slash = path.find('/', slash + 1))
      folders.insert(path.substr(0, slash));
  }
  for (const auto& f : folders)
    if (!units_.count(f + "/__init__.py")) out.push_back({options_.package + "/" + f + "/__init__.py", ""});
  return out;
}

std::vector<std::string> Assembler::imports_for(const std::set<std::string>& names, const std::map<std::string, int>& refs,
                                                const program::Module& origin, const std::map<std::string, std::string>& job_imports) {
  std::vector<std::string> out;
  for (const auto& n : names) {
    if (auto r = refs.find(n); r != refs.end()) {
      out.push_back(import_from("__init__.py", path_of_[static_cast<std::size_t>(r->second)]) + n);
      continue;
    }
    if (auto j = job_imports.find(n); j != job_imports.end()) {
      auto dot = j->second.rfind('.');
      if (dot == std::string::npos) out.push_back("import " + j->second + (j->second == n ? "" : " as " + n));
      else
        out.push_back("from " + j->second.substr(0, dot) + " import " + j->second.substr(dot + 1) +
                      (j->second.substr(dot + 1) == n ? "" : " as " + n));
      continue;
    }
    if (python_builtins().count(n) && binders(origin, n).empty()) continue;
    const program::Module* local = nullptr;
    std::string local_name;
    std::string line = import_line(origin, n, &local, &local_name);
    if (local) {
      copy_definition(*local, local_name);
      out.push_back("from " + relative_module("__init__.py", file_of(*local)) + " import " + local_name +
                    (local_name == n ? "" : " as " + n));
    } else if (!line.empty()) {
      out.push_back(line);
    } else if (n == "torch") out.push_back("import torch");
    else if (n == "nn") out.push_back("import torch.nn as nn");
    else if (n == "F") out.push_back("import torch.nn.functional as F");
    else if (n == "np") out.push_back("import numpy as np");
  }
  return out;
}

}  // namespace shardwright::emit
