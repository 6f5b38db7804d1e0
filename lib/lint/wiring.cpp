#include "lint/wiring.h"

#include <algorithm>
#include <optional>

#include "lint/syntax_help.h"
#include "program/visit.h"
#include "support/files.h"
#include "support/text.h"

namespace shardwright::lint {

using program::ClassDef;
using program::Expr;
using program::ExprKind;
using program::Function;
using program::Module;
using program::Stmt;
using program::StmtKind;
using support::Severity;
using namespace syntax;

namespace {

bool distributed(const std::string& name) { return name.find("Distributed") != std::string::npos; }

bool is_registry_name(const std::string& name) { return name.ends_with("_REGISTRY"); }

/// The style that is registered as the distributed form of another one; "".
std::string distributed_style(const Registry& r, const std::string& style) {
  for (const auto& e : r.entries)
    if (distributed(e.style) && original_name(e.style) == style) return e.style;
  return {};
}

const Registry::Entry* entry(const Registry& r, const std::string& style) {
  for (const auto& e : r.entries)
    if (e.style == style) return &e;
  return nullptr;
}

/// Names that a module's top level binds.
std::set<std::string> bound(const Module& m, bool& star) {
  std::set<std::string> out;
  program::walk(m.body, [&](const Stmt* s) {
    if (s->kind == StmtKind::FunctionDef) out.insert(s->function->name);
    if (s->kind == StmtKind::ClassDef) out.insert(s->class_def->name);
    if (s->kind == StmtKind::Import || s->kind == StmtKind::ImportFrom)
      for (const auto& i : s->imports) {
        star = star || i.name == "*";
        out.insert(program::bound_name(*s, i));
      }
    for (const auto* t : s->targets)
      if (t->kind == ExprKind::Name) out.insert(t->text);
    return s->kind != StmtKind::FunctionDef && s->kind != StmtKind::ClassDef;
  });
  return out;
}

/// Absolute name of what a from-import names.
std::string imported_module(const Module& m, const Stmt& s) {
  if (s.level == 0) return s.module;
  std::string base = m.name;
  for (int i = m.is_package ? 1 : 0; i < s.level; ++i) {
    const auto dot = base.rfind('.');
    base = dot == std::string::npos ? "" : base.substr(0, dot);
  }
  return s.module.empty() ? base : base.empty() ? s.module : base + "." + s.module;
}

struct Wiring {
  const std::vector<Registry>& all;
  const std::function<const Module*(const std::string&)>& load;
  const std::function<bool(const std::string&, std::string_view)>& mentions;
  const support::SourceManager& sources;
  Found& found;
  const support::WordSearch asks;  ///< names of wrappers

  /// The class of an entry, and the module it is in.
  std::pair<const Module*, const ClassDef*> resolve(const Registry& r, const Registry::Entry& e) const {
    std::string module = e.module;
    if (module.empty())
      program::walk(r.module->body, [&](const Stmt* s) {
        if (s->kind == StmtKind::ImportFrom)
          for (const auto& i : s->imports)
            if ((i.asname.empty() ? i.name : i.asname) == e.name) module = imported_module(*r.module, *s);
        return true;
      });
    const Module* m = module.empty() ? r.module : load(module);
    return {m, m ? class_in(*m, e.name) : nullptr};
  }

  /// SW401: entries whose module or class does not exist.
  void entries_of(const Registry& r) const {
    for (const auto& e : r.entries) {
      if (e.module.empty()) {
        bool star = false;
        const auto names = bound(*r.module, star);
        if (!star && !names.count(e.name))
          found.add(Severity::Error, "SW401", e.value->range,
                    e.name + " is registered as '" + e.style + "', but this file neither defines nor imports it", {});
        continue;
      }
      const Module* m = load(e.module);
      if (!m) {
        const std::string top = e.module.substr(0, e.module.find('.'));
        if (top != e.module && load(top))
          found.add(Severity::Error, "SW401", e.value->range,
                    "'" + e.style + "' is registered in module " + e.module + ", which does not exist", {});
        continue;
      }
      bool star = false;
      const auto names = bound(*m, star);
      if (star || names.count(e.name)) continue;
      const auto near = nearest_slip(e.name, names);
      std::optional<support::Fix> fix;
      if (near && e.value->kind == ExprKind::Tuple && e.value->kids.size() == 2)
        fix = support::Fix{"safe", {{e.value->kids[1]->range, "\"" + *near + "\""}}};
      found.add(Severity::Error, "SW401", e.value->range, e.module + " has no " + e.name + (near ? "; did you mean " + *near + "?" : ""),
                {}, fix);
    }
  }

  /// Does the constructor of a class take the configuration? nullopt: not to be told.
  std::optional<bool> takes_config(const ClassDef* c) const {
    const auto* init = c ? method(*c, "__init__") : nullptr;
    if (!init) return std::nullopt;
    for (const auto& p : init->parameters) {
      if (p.name == "config") return true;
      if (p.kind == program::Parameter::VarKeywords) return std::nullopt;
    }
    return false;
  }

  /// A call of a class of parallel layers: does the configuration arrive?
  void config_of(const Expr* call, const ClassDef* made, const std::string& name, const Function* around) const {
    const auto takes = takes_config(made);
    if (!takes || std::any_of(call->args.begin(), call->args.end(), [](const auto& a) { return a.star || a.double_star; })) return;
    const Expr* given = argument(call, "config");
    if (*takes && !given) {
      const auto* init = method(*made, "__init__");
      // By position?
      std::size_t at = 0, positional = 0;
      for (std::size_t i = 1; i < init->parameters.size(); ++i)
        if (init->parameters[i].name == "config") at = i;
      for (const auto& a : call->args) positional += a.keyword.empty();
      if (positional >= at) return;
      bool at_hand = false;
      if (around)
        for (const auto& p : around->parameters) at_hand = at_hand || p.name == "config";
      if (!at_hand) return;  // one that nobody gives is None here, and that may be meant
      support::Fix fix{
          "safe",
          {{{call->range.file, call->range.end - 1, call->range.end - 1}, call->args.empty() ? "config=config" : ", config=config"}}};
      found.add(Severity::Error, "SW402", call->range,
                name + " takes config and does not get it: its parallel layers are built without a configuration; pass config=config",
                {{made->def_range, "takes it here"}}, fix);
    }
    if (!*takes && given)
      found.add(Severity::Error, "SW402", call->range, name + " is given config, but its constructor takes none: TypeError",
                {{made->def_range, "the class"}});
  }

  void calls_in(const Module& m) const {
    const std::string_view all_text = sources.file(m.file).text;
    if (!asks.in(all_text) && !contains(all_text, {"Distributed"})) return;
    std::map<std::string, const ClassDef*> classes;  // by the names of this file
    for (const auto* s : m.body) {
      if (s->kind == StmtKind::ClassDef) classes[s->class_def->name] = s->class_def;
      if (s->kind == StmtKind::ImportFrom)
        for (const auto& i : s->imports)
          if (distributed(i.name))
            if (const Module* from = load(imported_module(m, *s)))
              if (const auto* c = class_in(*from, i.name)) classes[i.asname.empty() ? i.name : i.asname] = c;
    }
    // Those that ask a wrapper for a style, and what distributed classes hand to each other; others are not read.
    std::vector<const Function*> wanted;
    program::walk(m.body, [&](const Stmt* s) {
      if (s->kind != StmtKind::FunctionDef) return true;
      const auto text = sources.text(s->range);
      const std::string name = s->function->owner ? s->function->owner->name : "";
      if (!asks.in(text) && !((distributed(name) || stage_number(name)) && contains(text, {"Distributed"}))) return false;
      wanted.push_back(s->function);
      return true;
    });
    for (const Function* f : wanted) {
      const std::string owner = f->owner ? f->owner->name : "";
      const bool parallel = distributed(owner) || stage_number(owner);
      program::walk(f->body, [&](const Stmt* in) {
        calls_of(in, [&](const Expr* call) { call_of(call, f, parallel, owner, classes); });
        return in->kind != StmtKind::FunctionDef;
      });
    }
  }

  void call_of(const Expr* call, const Function* f, bool parallel, const std::string& owner,
               const std::map<std::string, const ClassDef*>& classes) const {
    const std::string name(callee(call));
    if (call->kids[0]->kind == ExprKind::Name && parallel && distributed(name))
      if (auto at = classes.find(name); at != classes.end()) config_of(call, at->second, name, f);
    const Registry* r = nullptr;
    for (const auto& x : all)
      if (x.wrappers.count(name)) r = &x;
    if (!r || r->module->file == call->range.file) return;
    const Expr* style = argument(call, "style", 0);
    if (!style || style->kind != ExprKind::String) return;
    const auto* e = entry(*r, style->text);
    if (!e) {
      if (r->open) return;
      std::set<std::string> styles;
      for (const auto& x : r->entries) styles.insert(x.style);
      const auto near = nearest_slip(style->text, styles);
      std::optional<support::Fix> fix;
      if (near) fix = support::Fix{"safe", {{style->range, "\"" + *near + "\""}}};
      found.add(Severity::Error, "SW401", style->range,
                "'" + style->text + "' is not registered in " + r->name + (near ? "; did you mean '" + *near + "'?" : ""),
                {{r->entries.empty() ? support::Range{} : r->entries[0].key->range, "the registry"}}, fix);
      return;
    }
    if (!parallel) return;
    const std::string better = distributed(e->style) ? "" : distributed_style(*r, e->style);
    if (!better.empty()) {
      support::Fix fix{"review", {{style->range, "\"" + better + "\""}}};
      // One of two branches: the other builds the distributed form of the same style.
      bool beside = false;
      program::walk_exprs(f->body, [&](const Expr* e) {
        if (e->kind == ExprKind::Call && callee(e) == name)
          if (const Expr* other = argument(e, "style", 0)) beside = beside || (other->kind == ExprKind::String && other->text == better);
        return true;
      });
      found.add(
          beside || generated(style->range.file, sources) ? Severity::Info : Severity::Error, "SW402", style->range,
          owner + " builds the serial '" + e->style + "', which stays unsplit; its distributed form is registered as '" + better + "'", {},
          fix);
      return;
    }
    if (distributed(e->style)) config_of(call, resolve(*r, *e).second, e->style, f);
  }

  /// SW403: the registry imports a file at its top level that imports the registry's file at its own.
  void circles_of(const Registry& r) const {
    for (const auto* s : r.module->body) {
      if (s->kind != StmtKind::ImportFrom) continue;
      const std::string name = imported_module(*r.module, *s);
      if (!mentions(name, r.module->name.substr(r.module->name.rfind('.') + 1))) continue;
      const Module* other = load(name);
      if (!other || other == r.module) continue;
      for (const auto* back : other->body)
        if (back->kind == StmtKind::ImportFrom && imported_module(*other, *back) == r.module->name)
          found.add(Severity::Error, "SW403", back->range,
                    other->name + " imports " + r.module->name + ", whose registry imports " + other->name +
                        ": whichever comes first gets the other half made; import the concrete class instead",
                    {{s->range, "imported here"}});
    }
  }

  /// SW404: the file of a distributed class is not named like the original's.
  void names_of(const Registry& r) const {
    for (const auto& e : r.entries) {
      if (!distributed(e.style)) continue;
      const auto* o = entry(r, original_name(e.style));
      if (!o) continue;
      auto stem = [&](const Registry::Entry& x) {
        const auto [m, c] = resolve(r, x);
        if (!m || !c || m == r.module) return std::string();
        return m->name.substr(m->name.rfind('.') + 1);
      };
      const std::string mine = stem(e), theirs = stem(*o);
      if (mine.empty() || theirs.empty()) continue;
      const std::string plain = support::lower(o->name), wanted = plain == theirs ? support::lower(e.name) : "";
      std::string without = mine;
      if (const auto at = without.find("distributed"); at != std::string::npos) without.erase(at, 11);
      if (!wanted.empty() ? mine == wanted : without == theirs) continue;
      found.add(Severity::Info, "SW404", e.value->range,
                e.name + " lies in " + mine + ".py, beside " + theirs + ".py of " + o->name +
                    (wanted.empty() ? "" : "; the rule would have it in " + wanted + ".py"),
                {});
    }
  }
};

}  // namespace

std::vector<Registry> registries(const std::vector<const Module*>& modules, const support::SourceManager& sources) {
  std::vector<Registry> out;
  for (const auto* m : modules) {
    if (m->file < 0 || sources.file(m->file).text.find("_REGISTRY") == std::string::npos) continue;
    for (const auto* s : m->body) {
      if ((s->kind != StmtKind::Assign && s->kind != StmtKind::AnnAssign) || s->targets.size() != 1 ||
          s->targets[0]->kind != ExprKind::Name || !is_registry_name(s->targets[0]->text) || !s->value || s->value->kind != ExprKind::Dict)
        continue;
      Registry r;
      r.module = m;
      r.name = s->targets[0]->text;
      for (std::size_t i = 0; i + 1 < s->value->kids.size(); i += 2) {
        const Expr *key = s->value->kids[i], *value = s->value->kids[i + 1];
        if (!key || key->kind != ExprKind::String) {
          r.open = true;
          continue;
        }
        Registry::Entry e{key->text, "", "", key, value};
        if (value->kind == ExprKind::Tuple && value->kids.size() == 2 && value->kids[0]->kind == ExprKind::String &&
            value->kids[1]->kind == ExprKind::String) {
          e.module = value->kids[0]->text;
          e.name = value->kids[1]->text;
        } else if (value->kind == ExprKind::Name) {
          e.name = value->text;
        } else {
          r.open = true;
          continue;
        }
        r.entries.push_back(std::move(e));
      }
      // Who reads it, and who else writes it.
      for (const auto* other : m->body) {
        if (other == s) continue;
        const bool named = has_word(sources.text(other->range), r.name);
        if (!named) continue;
        if (other->kind == StmtKind::ClassDef) r.wrappers.insert(other->class_def->name);
        else if (other->kind == StmtKind::FunctionDef) r.wrappers.insert(other->function->name);
        else r.open = true;
        if (contains(sources.text(other->range), {r.name + "[", r.name + ".update", r.name + ".setdefault"}))
          program::walk({const_cast<Stmt*>(other)}, [&](const Stmt* in) {
            for (const auto* t : in->targets) r.open = r.open || (t->kind == ExprKind::Subscript && t->kids[0]->text == r.name);
            return true;
          });
      }
      if (!r.wrappers.empty()) out.push_back(std::move(r));
    }
  }
  return out;
}

bool asks_unknown_style(const std::string& text, const std::vector<Registry>& all) {
  bool named = false;
  for (const auto& r : all)
    for (const auto& w : r.wrappers) named = named || text.find(w + "(") != std::string::npos;
  if (!named) return false;
  for (std::size_t at = text.find("style"); at != std::string::npos; at = text.find("style", at + 5)) {
    std::size_t p = at + 5;
    while (p < text.size() && (text[p] == ' ' || text[p] == '=')) ++p;
    if (p == at + 5 || p >= text.size() || (text[p] != '"' && text[p] != '\'')) continue;
    const std::size_t end = text.find(text[p], p + 1);
    if (end == std::string::npos) break;
    const std::string style = text.substr(p + 1, end - p - 1);
    if (std::none_of(all.begin(), all.end(), [&](const Registry& r) { return entry(r, style) != nullptr; })) return true;
  }
  return false;
}

void check_wiring(const std::vector<Registry>& all, const std::vector<const Module*>& asking,
                  const std::function<const Module*(const std::string&)>& load,
                  const std::function<bool(const std::string&, std::string_view)>& mentions, const support::SourceManager& sources,
                  Found& found) {
  std::vector<std::string> asks{"a wrapper of no registry"};
  for (const auto& r : all) asks.insert(asks.end(), r.wrappers.begin(), r.wrappers.end());
  const Wiring w{all, load, mentions, sources, found, support::WordSearch(std::move(asks))};
  for (const auto& r : all) {
    w.entries_of(r);
    w.circles_of(r);
    w.names_of(r);
  }
  for (const auto* m : asking)
    if (m->file >= 0) w.calls_in(*m);
}

}  // namespace shardwright::lint
