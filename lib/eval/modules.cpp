// Modules on demand. A file's top level is not run: its statements are indexed by the names they bind or fill, and run, each
// once and in source order, when such a name is first read. So importing a large package costs what is used of it.
//
// What "fill" means: `X[k] = …`, `X.a = …`, `X.update(…)`, `@X.register`. Decorated functions and bare calls that may fill
// something in *another* module (registries) are kept as `effects`; they run when a key is missed that they mention.
#include <algorithm>

#include "eval/impl.h"
#include "eval/source.h"
#include "program/visit.h"
#include "python/resolve.h"

namespace shardwright::eval {

namespace {

const Expr* root_of(const Expr* e) {
  while (e && (e->kind == ExprKind::Attribute || e->kind == ExprKind::Subscript || e->kind == ExprKind::Call)) e = e->kids[0];
  return e && e->kind == ExprKind::Name ? e : nullptr;
}

void target_names(const Expr* t, std::vector<std::string>& names, std::vector<std::string>& fills) {
  if (!t) return;
  if (t->kind == ExprKind::Name) names.push_back(t->text);
  else if (t->kind == ExprKind::Tuple || t->kind == ExprKind::List || t->kind == ExprKind::Starred)
    for (const Expr* k : t->kids) target_names(k, names, fills);
  else if (const Expr* r = root_of(t)) fills.push_back(r->text);
}

struct Found {
  std::vector<std::string> names, fills;
  std::vector<const Stmt*> stars;
  bool effect = false;
};

/// `x = d.pop(k)`: binds x and changes d.
void mutated(const Expr* e, std::vector<std::string>& fills) {
  if (!e || e->kind != ExprKind::Call || e->kids[0]->kind != ExprKind::Attribute) return;
  for (const char* n : {"pop", "popitem", "setdefault", "append", "extend", "insert", "remove", "update", "add", "clear", "discard"})
    if (e->kids[0]->text == n)
      if (const Expr* r = root_of(e->kids[0])) fills.push_back(r->text);
}

void scan(const Stmt* s, Found& f) {
  if (s->kind == StmtKind::Assign || s->kind == StmtKind::AnnAssign) mutated(s->value, f.fills);
  switch (s->kind) {
    case StmtKind::Assign:
    case StmtKind::AugAssign:
    case StmtKind::AnnAssign:
    case StmtKind::For:
      for (const Expr* t : s->targets) target_names(t, f.names, f.fills);
      break;
    case StmtKind::Delete:
      for (const Expr* t : s->targets)
        if (const Expr* r = root_of(t)) f.fills.push_back(r->text);
      break;
    case StmtKind::Expression:
      if (s->value && s->value->kind == ExprKind::Call) {
        const Expr* callee = s->value->kids[0];
        if (const Expr* r = root_of(callee)) f.fills.push_back(r->text);
        for (const auto& a : s->value->args)
          if (a.value && a.value->kind == ExprKind::Name) f.fills.push_back(a.value->text);
        f.effect = true;
      }
      break;
    case StmtKind::FunctionDef:
      f.names.push_back(s->function->name);
      for (const Expr* d : s->function->decorators) {
        f.effect = true;
        if (const Expr* r = root_of(d); r && d->kind != ExprKind::Name) f.fills.push_back(r->text);
      }
      break;
    case StmtKind::ClassDef:
      f.names.push_back(s->class_def->name);
      // class X(Base, name="x") registers itself; Base.__init_subclass__ may, whatever it is given.
      for (const auto& a : s->class_def->bases) f.effect |= a.keyword != "metaclass";
      for (const Expr* d : s->class_def->decorators) {
        f.effect = true;
        if (const Expr* r = root_of(d); r && d->kind != ExprKind::Name) f.fills.push_back(r->text);
      }
      break;
    case StmtKind::Import:
      for (const auto& i : s->imports) f.names.push_back(!i.asname.empty() ? i.asname : i.name.substr(0, i.name.find('.')));
      break;
    case StmtKind::ImportFrom:
      for (const auto& i : s->imports) {
        if (i.name == "*") f.stars.push_back(s);
        else f.names.push_back(!i.asname.empty() ? i.asname : i.name);
      }
      break;
    case StmtKind::With:
      for (const auto& i : s->items) target_names(i.target, f.names, f.fills);
      break;
    default: break;
  }
  if (s->kind == StmtKind::FunctionDef || s->kind == StmtKind::ClassDef) return;
  for (const auto* b : {&s->body, &s->orelse, &s->finally})
    for (const Stmt* k : *b) scan(k, f);
  for (const auto& h : s->handlers)
    for (const Stmt* k : h.body) scan(k, f);
  for (const auto& c : s->cases)
    for (const Stmt* k : c.body) scan(k, f);
}

bool is_type_checking(const Expr* e) {
  if (e && e->kind == ExprKind::BoolOp && e->text == "or") return std::any_of(e->kids.begin(), e->kids.end(), is_type_checking);
  return e && ((e->kind == ExprKind::Name && e->text == "TYPE_CHECKING") || (e->kind == ExprKind::Attribute && e->text == "TYPE_CHECKING"));
}

bool is_main_guard(const Expr* e) {
  return e && e->kind == ExprKind::Compare && !e->kids.empty() && e->kids[0]->kind == ExprKind::Name && e->kids[0]->text == "__name__";
}

}  // namespace

void In::Impl::index_statement(ModuleObj* m, const Stmt* s, bool type_checking) {
  if (s->kind == StmtKind::If && is_main_guard(s->value)) return;
  if (s->kind == StmtKind::If && is_type_checking(s->value)) {
    for (const Stmt* k : s->body) index_statement(m, k, true);
    for (const Stmt* k : s->orelse) index_statement(m, k, type_checking);
    return;
  }
  auto& d = *m->demand;
  Found f;
  scan(s, f);
  std::size_t unit = d.units.size();
  d.units.push_back({s, ModuleObj::Demand::Unit::Waiting, type_checking});
  auto put = [&](const std::vector<std::string>& names) {
    for (const auto& n : names) {
      auto& l = d.by_name[n];
      if (l.empty() || l.back() != unit) l.push_back(unit);
    }
  };
  put(f.names);
  put(f.fills);
  d.stars.insert(d.stars.end(), f.stars.begin(), f.stars.end());
  if (f.effect) d.effects.push_back(unit);
}

void In::Impl::index_module(ModuleObj* m) {
  m->demand = std::make_shared<ModuleObj::Demand>();
  for (const Stmt* s : m->source->body) index_statement(m, s, false);
  // A call on its own line of a function that assigns globals fills these. The bodies of other functions are not read for it.
  std::unordered_map<std::string, std::vector<std::size_t>> calls;
  for (std::size_t u = 0; u < m->demand->units.size(); ++u) {
    const Stmt* s = m->demand->units[u].stmt;
    if (s->kind == StmtKind::Expression && s->value && s->value->kind == ExprKind::Call && s->value->kids[0]->kind == ExprKind::Name)
      calls[s->value->kids[0]->text].push_back(u);
  }
  if (calls.empty()) return;
  for (const Stmt* s : m->source->body) {
    if (s->kind != StmtKind::FunctionDef) continue;
    const auto at = calls.find(s->function->name);
    if (at == calls.end()) continue;
    for (const Stmt* k : s->function->body)
      if (k->kind == StmtKind::Global)
        for (const auto& n : k->names)
          for (const std::size_t u : at->second) {
            auto& l = m->demand->by_name[n];
            l.insert(std::upper_bound(l.begin(), l.end(), u), u);
          }
  }
}

void In::Impl::run_unit(ModuleObj* m, std::size_t i) {
  auto& d = *m->demand;
  if (d.units[i].state == ModuleObj::Demand::Unit::Running || d.units[i].state == ModuleObj::Demand::Unit::Done) return;
  check_stack(nullptr);
  d.units[i].state = ModuleObj::Demand::Unit::Running;
  Restore<std::ptrdiff_t> running(d.running, static_cast<std::ptrdiff_t>(i));
  Restore<bool> guard(import_guard, false);
  Restore<const Expr*> assigning(in.assigning_, nullptr);
  Restore<Value> keep(ret);
  Restore<bool> level(in.at_top_level, true);
  ActiveFrame fr;
  fr.env = &m->env;
  fr.builtin = m->builtin;
  fr.name = "<module " + m->name + ">";
  FrameScope scope(in.stack_, &fr);
  try {
    exec(d.units[i].stmt, &m->env);
  } catch (PyError&) {
    d.units[i].state = ModuleObj::Demand::Unit::Waiting;  // whoever reads the name again gets the error again
    throw;
  }
  d.units[i].state = ModuleObj::Demand::Unit::Done;
}

Value In::Impl::global(ModuleObj* m, std::string_view name, std::ptrdiff_t before) {
  if (!m->demand) return m->env.vars.get(name);
  auto& d = *m->demand;
  std::string key(name);
  auto it = d.by_name.find(key);
  if (it != d.by_name.end()) {
    using Unit = ModuleObj::Demand::Unit;
    bool plain = false, all_done = true;
    const std::vector<std::size_t> units = it->second;  // running may change the index
    for (auto u : units) plain |= !d.units[u].type_checking;
    for (auto u : units) {
      if (plain && d.units[u].type_checking) continue;
      if (before >= 0 && static_cast<std::ptrdiff_t>(u) >= before) {
        all_done = false;
        continue;
      }
      if (d.units[u].state == Unit::Waiting) {
        Found f;
        scan(d.units[u].stmt, f);
        bool binds = std::find(f.names.begin(), f.names.end(), key) != f.names.end();
        if (binds) {
          run_unit(m, u);
        } else {
          std::optional<PyError> err;
          try {
            run_unit(m, u);
          } catch (PyError& e) { err = e; }
          if (err) {
            d.units[u].state = Unit::Done;
            in.note_incomplete(d.units[u].stmt->range, "top-level statement failed: " + in.describe(*err));
          }
        }
      }
      if (d.units[u].state == Unit::Running) all_done = false;
    }
    if (all_done && before < 0) d.by_name.erase(key);
  }
  if (const Value* v = m->env.vars.find(name)) return *v;
  if (name == "__name__") return in.str(m->name);
  if (name == "__file__" || name == "__package__" || name == "__spec__" || name == "__doc__") return special_attr(m, name);
  if (d.stars.empty() || (name.size() > 1 && name.substr(0, 2) == "__") || builtins.find(name)) return {};
  if (!d.star_busy.insert(key).second) return {};
  struct Done {
    std::unordered_set<std::string>& s;
    const std::string& k;
    ~Done() { s.erase(k); }
  } done{d.star_busy, key};
  // A submodule of that name settles it, unless a star import of that very module brings something called like it.
  const std::string sub = m->name + "." + key;
  const bool is_sub = m->is_package && m->source && in.import(sub);
  for (auto s = d.stars.rbegin(); s != d.stars.rend(); ++s) {
    std::string base = resolve_relative(m, (*s)->level, (*s)->module);
    if (base.empty() || (is_sub && base != sub)) continue;
    if (!loaded.count(base) && !in.modules.natives.count(base) && !in.modules.sources.count(base) && !in.loader.mentions(base, name))
      continue;
    ModuleObj* from = in.import(base);
    if (!from || from == m) continue;
    Value all = from->demand ? global(from, "__all__") : from->env.vars.get("__all__");
    bool visible = name[0] != '_';
    if (all.is(Kind::List) || all.is(Kind::Tuple)) {
      visible = false;
      for (const auto& x : all.as<SeqObj>()->items) visible |= x.is(Kind::Str) && x.str() == name;
    }
    if (!visible) continue;
    Value v = all.set() ? in.module_attr(from, name) : global(from, name);
    if (v.set()) {
      m->env.vars.set(name, v);
      return v;
    }
  }
  return {};
}

Value In::module_attr(ModuleObj* m, std::string_view name) {
  Value v = impl_->global(m, name);
  if (v.set()) return v;
  if (name.substr(0, 2) == "__" && name != "__version__") return {};
  bool native_parent = !m->source || m->builtin;
  if (m->is_package || native_parent) {
    std::string sub = m->name + "." + std::string(name);
    if (ModuleObj* s = import(sub)) return s;
  }
  if (m->demand && m->demand->by_name.count("__getattr__")) impl_->global(m, "__getattr__");
  Value ga = m->env.vars.get("__getattr__");
  if (ga.is(Kind::Function) && m->demand && m->demand->attr_busy.insert(std::string(name)).second) {
    struct Done {
      std::unordered_set<std::string>& s;
      std::string k;
      ~Done() { s.erase(k); }
    } done{m->demand->attr_busy, std::string(name)};
    try {
      return call(ga, {str(std::string(name))});
    } catch (PyError& e) {
      if (!isinstance(e.exception, builtin_class("AttributeError"))) throw;
    }
  }
  return {};
}

std::string In::Impl::resolve_relative(ModuleObj* m, int level, const std::string& module) {
  if (level == 0) return module;
  auto r = python::absolute_name(m->name, m->is_package, level, module);
  return r ? *r : std::string();
}

ModuleObj* In::new_module(std::string name) { return make<ModuleObj>(std::move(name)); }

ModuleObj* In::import(const std::string& dotted) {
  auto it = impl_->loaded.find(dotted);
  if (it != impl_->loaded.end()) return it->second;
  if (impl_->missing_modules.count(dotted)) return nullptr;
  ModuleObj* m = impl_->load_module(dotted);
  if (!m) impl_->missing_modules.insert(dotted);
  return m;
}

ModuleObj* In::Impl::load_module(const std::string& dotted) {
  auto nat = in.modules.natives.find(dotted);
  auto src = in.modules.sources.find(dotted);
  std::size_t dot = dotted.rfind('.');
  // Stands in for a library's module where the search path has none: followed as that one would be.
  const bool written = src != in.modules.sources.end() && src->second.second.starts_with("rules/written/");
  if (nat == in.modules.natives.end() && (src == in.modules.sources.end() || written) && dot != std::string::npos &&
      !in.import(dotted.substr(0, dot)))
    return nullptr;
  const program::Module* code = nullptr;
  if (written) code = in.loader.load(dotted);
  if (!code && src != in.modules.sources.end()) code = in.loader.parse(dotted, src->second.second, src->second.first);
  else if (nat == in.modules.natives.end()) code = in.loader.load(dotted);
  if (nat == in.modules.natives.end() && !code) {
    // A package that exists only as the parent of described modules ("xml" for "xml.etree").
    auto has_child = [&](const auto& map) {
      auto i = map.lower_bound(dotted + ".");
      return i != map.end() && i->first.compare(0, dotted.size() + 1, dotted + ".") == 0;
    };
    if (!has_child(in.modules.natives) && !has_child(in.modules.sources)) return nullptr;
  }
  auto* m = in.make<ModuleObj>(dotted);
  loaded[dotted] = m;
  m->source = code;
  m->builtin = (src != in.modules.sources.end() && !written) || !code;
  m->is_package = code ? code->is_package : true;
  if (code && src == in.modules.sources.end() && !code->syntax_errors.empty()) in.note_incomplete(code->syntax_errors[0], "syntax error");
  if (nat != in.modules.natives.end())
    for (auto& fill : nat->second) fill(in, *m);
  if (code) index_module(m);
  if (code && !m->builtin) run_patches(m);
  return m;
}

/// `nn.Linear.reset_parameters = init`: changes what others use, whether or not a name of this module is ever asked for. What reads the
/// attribute before (`plain = F.gelu`) runs before.
void In::Impl::run_patches(ModuleObj* m) {
  auto& units = m->demand->units;
  const auto imported = [&](const std::string& name) {
    const auto it = m->demand->by_name.find(name);
    if (it == m->demand->by_name.end()) return false;
    bool import = false;
    for (const std::size_t u : it->second) {
      const StmtKind k = units[u].stmt->kind;
      import = import || k == StmtKind::Import || k == StmtKind::ImportFrom;
      Found f;
      scan(units[u].stmt, f);
      if (k != StmtKind::Import && k != StmtKind::ImportFrom && std::find(f.names.begin(), f.names.end(), name) != f.names.end())
        return false;
    }
    return import;
  };
  const auto run = [&](std::size_t u) {
    if (units[u].state != ModuleObj::Demand::Unit::Waiting) return;
    std::optional<PyError> err;  // raised again for whoever asks for the name
    try {
      run_unit(m, u);
    } catch (PyError& e) { err = e; }
  };
  for (std::size_t u = 0; u < units.size(); ++u) {
    const Stmt* s = units[u].stmt;
    if (s->kind != StmtKind::Assign || s->targets.size() != 1 || s->targets[0]->kind != ExprKind::Attribute) continue;
    const Expr* root = root_of(s->targets[0]);
    if (!root || !imported(root->text)) continue;
    for (std::size_t before = 0; before < u; ++before) {
      if (units[before].stmt->kind != StmtKind::Assign) continue;
      bool reads = false;
      if (!units[before].stmt->value) continue;
      program::walk(units[before].stmt->value, [&](const Expr* e) {
        reads = reads || (e->kind == ExprKind::Attribute && e->text == s->targets[0]->text);
        return !reads;
      });
      if (reads) run(before);
    }
    run(u);
  }
}

Value In::import_name(const std::string& dotted) {
  if (ModuleObj* m = import(dotted)) return m;
  std::size_t dot = dotted.rfind('.');
  if (dot == std::string::npos) return {};
  Value base = import_name(dotted.substr(0, dot));
  if (!base.set()) return {};
  return getattr_or(base, dotted.substr(dot + 1));
}

/// Whether importing m for real would raise ImportError: an unguarded top-level import of something that is not there.
bool In::Impl::import_fails(ModuleObj* m) {
  auto it = fails.find(m);
  if (it != fails.end()) return it->second == 1;
  fails[m] = 0;
  if (!m->source || m->builtin) return false;
  for (const Stmt* s : m->source->body) {
    if (s->kind == StmtKind::Import) {
      for (const auto& i : s->imports)
        if (!in.import(i.name)) {
          fails[m] = 1;
          return true;
        }
    } else if (s->kind == StmtKind::ImportFrom) {
      std::string base = resolve_relative(m, s->level, s->module);
      if (base == "__future__") continue;
      ModuleObj* other = base.empty() ? nullptr : in.import(base);
      if (!other || (s->level > 0 && import_fails(other))) {
        fails[m] = 1;
        return true;
      }
    }
  }
  return false;
}

void In::Impl::exec_import(const Stmt* s, Env* env) {
  ModuleObj* here = env->globals;
  auto where = [&](const program::ImportName& i) { return i.range.valid() ? i.range : s->range; };
  auto missing = [&](const std::string& what, bool module, Range r) -> Value {
    std::string text = module ? "No module named '" + what + "'" : what;
    if (import_guard) {
      Value e = in.call(in.builtin_class(module ? "ModuleNotFoundError" : "ImportError"), {in.str(text)});
      in.raise_value(e, r);
    }
    if (!module) return in.unknown(what, r);
    auto* files = dynamic_cast<PythonSource*>(&in.loader);
    const std::string why = files ? files->unreadable(what) : "";
    return in.unknown("module '" + what + "' " + (why.empty() ? "is not found" : "is not read: " + why), r);
  };
  // A name that is being defined while its module is imported by what it needs: Python says "partially initialized module".
  auto being_made = [&](ModuleObj* m, const std::string& name) {
    if (!m->demand) return false;
    const auto it = m->demand->by_name.find(name);
    return it != m->demand->by_name.end() && std::any_of(it->second.begin(), it->second.end(), [&](std::size_t u) {
             return m->demand->units[u].state == ModuleObj::Demand::Unit::Running;
           });
  };
  if (s->kind == StmtKind::Import) {
    for (const auto& i : s->imports) {
      ModuleObj* m = in.import(i.name);
      if (m && import_guard && import_fails(m)) m = nullptr;
      Value v = m ? Value(m) : missing(i.name, true, where(i));
      if (!i.asname.empty()) {
        store(i.asname, v, env);
        continue;
      }
      std::string top = i.name.substr(0, i.name.find('.'));
      if (m && top != i.name) v = in.import(top);
      if (!m && top != i.name)
        if (ModuleObj* t = in.import(top)) v = t;  // the part that is missing shows when it is read
      store(top, v, env);
    }
    return;
  }
  std::string base = resolve_relative(here, s->level, s->module);
  if (base == "__future__") return;
  ModuleObj* m = base.empty() ? nullptr : in.import(base);
  if (m && import_guard && import_fails(m)) m = nullptr;
  std::string shown = base.empty() ? std::string(static_cast<std::size_t>(s->level), '.') + s->module : base;
  for (const auto& i : s->imports) {
    const std::string& name = i.asname.empty() ? i.name : i.asname;
    if (i.name == "*") {
      if (!m && import_guard) missing(shown, true, where(i));
      continue;
    }
    if (!m) {
      store(name, missing(shown, true, where(i)), env);
      continue;
    }
    Value v = in.module_attr(m, i.name);
    if (!v.set())
      if (ModuleObj* sub = in.import(base + "." + i.name)) v = sub;
    if (v.is(Kind::Module) && import_guard && import_fails(v.as<ModuleObj>())) v = missing(v.as<ModuleObj>()->name, true, where(i));
    if (!v.set()) {
      std::string why =
          (m->source && !m->builtin ? "cannot import name '" + i.name + "' from '" : "not described: '" + i.name + "' of '") + shown + "'";
      if (being_made(m, i.name))
        why += " (a circular import: '" + i.name + "' is defined with the help of what '" + here->name + "' imports it for)";
      v = missing(why, false, where(i));
    }
    store(name, v, env);
  }
}

namespace {

std::string lowered(std::string_view s) {
  std::string out(s);
  for (char& c : out) c = static_cast<char>(tolower(static_cast<unsigned char>(c)));
  return out;
}

bool quoted_in(std::string_view text, const std::string& low_key) {
  std::string t = lowered(text);
  return t.find("'" + low_key + "'") != std::string::npos || t.find('"' + low_key + '"') != std::string::npos;
}

}  // namespace

/// Runs statements that may have put `key` into a registry: definitions of that name with decorators, decorators, class
/// arguments or calls that quote it. First in the modules at hand, then in those that these import but that nobody has read yet.
bool In::Impl::run_effects(const std::string& key) {
  if (key.size() < 2 || !effects_tried.insert({key, loaded.size()}).second) return false;
  const std::string low = lowered(key);
  std::set<ModuleObj*> seen;
  bool ran = false;
  for (int round = 0; round < 4 && !ran; ++round) {
    std::vector<ModuleObj*> all, fresh;
    for (auto& [n, m] : loaded)
      if (m->demand && !m->builtin && seen.insert(m).second) all.push_back(m);
    for (ModuleObj* m : all)
      for (std::size_t u : std::vector<std::size_t>(m->demand->effects)) {
        auto& unit = m->demand->units[u];
        if (unit.state != ModuleObj::Demand::Unit::Waiting) continue;
        const Stmt* s = unit.stmt;
        bool named = (s->function && lowered(s->function->name) == low) || (s->class_def && lowered(s->class_def->name) == low);
        if (s->function)
          for (const Expr* d : s->function->decorators) named = named || quoted_in(in.sources.text(d->range), low);
        else if (s->class_def) {
          for (const Expr* d : s->class_def->decorators) named = named || quoted_in(in.sources.text(d->range), low);
          for (const auto& b : s->class_def->bases) named = named || quoted_in(in.sources.text(b.range), low);
        } else named = quoted_in(in.sources.text(s->range), low);
        if (!named) continue;
        std::optional<PyError> err;
        try {
          run_unit(m, u);
          ran = true;
        } catch (PyError& e) { err = e; }
        if (err) in.note_incomplete(s->range, "top-level statement failed: " + in.describe(*err));
      }
    if (ran || effects_tried.size() > 400) break;
    // Imports from the same package: cheap to know, and where registries keep their entries (`from . import blocks`, for its effects). A
    // word that many modules mention is no registry's key.
    std::set<std::string> candidates;
    std::string title = low;
    title[0] = static_cast<char>(toupper(static_cast<unsigned char>(title[0])));
    auto consider = [&](const std::string& name) {
      if (name.empty() || loaded.count(name) || candidates.size() > 8) return;
      if (in.loader.mentions(name, key) || in.loader.mentions(name, "'" + title + "'") || in.loader.mentions(name, '"' + title + '"'))
        candidates.insert(name);
    };
    for (ModuleObj* m : all) {
      const std::string top = m->name.substr(0, m->name.find('.'));
      const auto same_package = [&](const std::string& name) {
        return name.substr(0, name.find('.')) == top || (!m->is_package && top == m->name);  // or a file beside the script
      };
      for (const auto& unit : m->demand->units) {
        const Stmt* s = unit.stmt;
        if (s->kind == StmtKind::Import)
          for (const auto& i : s->imports)
            if (same_package(i.name)) consider(i.name);
        if (s->kind != StmtKind::ImportFrom) continue;
        const std::string base = resolve_relative(m, s->level, s->module);
        if (base.empty() || (s->level == 0 && !same_package(base))) continue;
        consider(base);
        for (const auto& i : s->imports)
          if (i.name != "*") consider(base + "." + i.name);
      }
    }
    if (candidates.size() > 8) break;
    for (const auto& c : candidates) in.import(c);
  }
  effects_tried.insert({key, loaded.size()});
  return ran;
}

std::vector<std::string> In::Impl::public_names(ModuleObj* m) {
  std::vector<std::string> out;
  for (const auto& i : m->env.vars) out.push_back(i.name);
  if (m->demand)
    for (const auto& [n, u] : m->demand->by_name) out.push_back(n);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

void In::exec_module_text(ModuleObj* m, const program::Module* code) {
  ActiveFrame fr;
  fr.env = &m->env;
  fr.builtin = m->builtin;
  fr.name = "<module " + m->name + ">";
  FrameScope scope(stack_, &fr);
  for (const Stmt* s : code->body) impl_->exec(s, &m->env);
}

}  // namespace shardwright::eval
