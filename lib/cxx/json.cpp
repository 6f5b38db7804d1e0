#include "cxx/json.h"

#include <nlohmann/json.hpp>

#include "program/visit.h"

namespace shardwright::cxx {
namespace {

using nlohmann::json;
using namespace program;

// ---- writing ---------------------------------------------------------------------------------------------------------------

json range(const Range& r) { return r.valid() ? json::array({r.file, r.begin, r.end}) : json(nullptr); }
json write(const Expr* e);
json write(const Stmt* s);
json write(const Function* f);

template <class T>
json list(const std::vector<T*>& v) {
  json out = json::array();
  for (const T* x : v) out.push_back(x ? write(x) : json(nullptr));
  return out;
}

json write(const Expr* e) {
  json o;
  o["k"] = static_cast<int>(e->kind);
  o["r"] = range(e->range);
  if (!(e->outer == e->range)) o["u"] = range(e->outer);
  if (!e->text.empty()) o["t"] = e->text;
  if (e->integer != 0) o["i"] = e->integer;
  if (e->number != 0) o["n"] = e->number;
  if (!e->kids.empty()) o["c"] = list(e->kids);
  for (const Argument& a : e->args) {
    json j{{"v", write(a.value)}, {"r", range(a.range)}};
    if (!a.keyword.empty()) j["k"] = a.keyword;
    if (a.star) j["s"] = 1;
    if (a.double_star) j["d"] = 1;
    o["a"].push_back(std::move(j));
  }
  if (!e->ops.empty()) o["o"] = e->ops;
  if (e->function) o["f"] = write(e->function);
  return o;
}

json write(const Function* f) {
  json o{{"n", f->name}, {"r", range(f->range)}, {"b", range(f->body_range)}, {"s", list(*f->body)}};
  if (!f->decorators.empty()) o["d"] = list(f->decorators);
  o["p"] = json::array();
  for (const Parameter& p : f->parameters) {
    json j{{"n", p.name}, {"r", range(p.range)}};
    if (p.kind != Parameter::Positional) j["k"] = static_cast<int>(p.kind);
    if (p.default_value) j["d"] = write(p.default_value);
    o["p"].push_back(std::move(j));
  }
  return o;
}

json write(const Stmt* s) {
  json o{{"k", static_cast<int>(s->kind)}, {"r", range(s->range)}};
  if (!s->targets.empty()) o["g"] = list(s->targets);
  if (s->value) o["v"] = write(s->value);
  if (s->extra) o["x"] = write(s->extra);
  if (!s->op.empty()) o["o"] = s->op;
  if (!s->text.empty()) o["t"] = s->text;
  if (!s->body.empty()) o["b"] = list(s->body);
  if (!s->orelse.empty()) o["e"] = list(s->orelse);
  if (!s->names.empty()) o["n"] = s->names;
  if (s->function) o["f"] = write(s->function);
  for (const ImportName& i : s->imports) o["i"].push_back({i.name, i.asname});
  if (const ClassDef* c = s->class_def) {
    json bases = json::array();
    for (const Argument& b : c->bases) bases.push_back(write(b.value));
    o["c"] = {{"n", c->name}, {"r", range(c->range)}, {"p", bases}, {"b", list(c->body)}};
  }
  return o;
}

// ---- reading ---------------------------------------------------------------------------------------------------------------

class Reader {
 public:
  Reader(const std::vector<support::FileId>& files, Arena& arena, Module& module) : files_(files), arena_(arena), module_(module) {}

  std::vector<Stmt*> block(const json& j) {
    std::vector<Stmt*> out;
    for (const json& x : j) out.push_back(stmt(x));
    return out;
  }

 private:
  Range range(const json& j) const {
    if (!j.is_array()) return {};
    return {files_.at(j.at(0).get<std::size_t>()), j.at(1).get<std::uint32_t>(), j.at(2).get<std::uint32_t>()};
  }

  Range range(const json& o, const char* key) const {
    auto it = o.find(key);
    return it == o.end() ? Range{} : range(*it);
  }

  std::vector<Expr*> exprs(const json& o, const char* key) {
    std::vector<Expr*> out;
    if (auto it = o.find(key); it != o.end())
      for (const json& x : *it) out.push_back(x.is_null() ? nullptr : expr(x));
    return out;
  }

  Expr* expr(const json& o) {
    Expr* e = arena_.expr(static_cast<ExprKind>(o.at("k").get<int>()), range(o, "r"));
    if (o.contains("u")) e->outer = range(o, "u");
    e->text = o.value("t", "");
    e->integer = o.value("i", std::int64_t{0});
    e->number = o.value("n", 0.0);
    e->kids = exprs(o, "c");
    if (auto it = o.find("a"); it != o.end())
      for (const json& a : *it) {
        Argument x;
        x.value = expr(a.at("v"));
        x.keyword = a.value("k", "");
        x.star = a.contains("s");
        x.double_star = a.contains("d");
        x.range = range(a, "r");
        e->args.push_back(std::move(x));
      }
    if (auto it = o.find("o"); it != o.end()) e->ops = it->get<std::vector<std::string>>();
    if (auto it = o.find("f"); it != o.end()) e->function = function(*it, nullptr);
    return e;
  }

  Function* function(const json& o, ClassDef* owner) {
    Function* f = arena_.function();
    f->name = o.at("n").get<std::string>();
    f->range = f->def_range = range(o, "r");
    f->body_range = range(o, "b");
    f->module = &module_;
    f->owner = owner;
    f->decorators = exprs(o, "d");
    NameSet names;
    for (const json& p : o.at("p")) {
      Parameter x;
      x.name = p.at("n").get<std::string>();
      x.kind = static_cast<Parameter::Kind>(p.value("k", 0));
      if (p.contains("d")) x.default_value = expr(p.at("d"));
      x.range = range(p, "r");
      names.add(x.name);
      f->parameters.push_back(std::move(x));
    }
    ClassDef* outside = class_;
    class_ = nullptr;
    f->body = block(o.at("s"));
    class_ = outside;
    NameSet outer;  // C++ has no hidden locals: what a lambda assigns to and its function declared is the function's (listed as nonlocal)
    for (const Stmt* s : f->body)
      if (s->kind == StmtKind::Nonlocal)
        for (const auto& n : s->names) outer.add(n);
    names_written(f->body, names);
    for (const std::string& n : names.names())
      if (!outer.contains(n)) f->locals.push_back(n);
    return f;
  }

  Stmt* stmt(const json& o) {
    Stmt* s = arena_.stmt(static_cast<StmtKind>(o.at("k").get<int>()), range(o, "r"));
    s->targets = exprs(o, "g");
    if (auto it = o.find("v"); it != o.end()) s->value = expr(*it);
    if (auto it = o.find("x"); it != o.end()) s->extra = expr(*it);
    s->op = o.value("o", "");
    s->text = o.value("t", "");
    if (auto it = o.find("b"); it != o.end()) s->body = block(*it);
    if (auto it = o.find("e"); it != o.end()) s->orelse = block(*it);
    if (auto it = o.find("n"); it != o.end()) s->names = it->get<std::vector<std::string>>();
    if (auto it = o.find("f"); it != o.end()) s->function = function(*it, class_);
    if (auto it = o.find("i"); it != o.end())
      for (const json& i : *it) s->imports.push_back({i.at(0).get<std::string>(), i.at(1).get<std::string>(), {}});
    if (auto it = o.find("c"); it != o.end()) {
      ClassDef* c = arena_.class_def();
      c->name = it->at("n").get<std::string>();
      c->range = c->def_range = range(*it, "r");
      c->module = &module_;
      for (const json& b : it->at("p")) {
        Argument a;
        a.value = expr(b);
        a.range = a.value->range;
        c->bases.push_back(std::move(a));
      }
      ClassDef* outside = class_;
      class_ = c;
      c->body = block(it->at("b"));
      class_ = outside;
      s->class_def = c;
    }
    return s;
  }

  const std::vector<support::FileId>& files_;
  Arena& arena_;
  Module& module_;
  ClassDef* class_ = nullptr;
};

}  // namespace

json to_json(const std::vector<Stmt*>& body) { return list(body); }

std::vector<Stmt*> from_json(const json& j, const std::vector<support::FileId>& files, Arena& arena, Module& module) {
  return Reader(files, arena, module).block(j);
}

}  // namespace shardwright::cxx
