// The top-level definitions of modules: which one holds a place, and which names of a registry stand for it. Internal to lib/rewrite.
#pragma once
#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

#include "rewrite/variants.h"

namespace shardwright::rewrite {

/// Finds the top-level definition that holds a range.
class Containers {
 public:
  const Container* find(const program::Module* m, const Range& r) {
    if (m == nullptr) return nullptr;
    auto it = by_module_.find(m);
    if (it == by_module_.end()) {
      it = by_module_.emplace(m, std::vector<const Container*>{}).first;
      add(m, m->body, it->second);
    }
    for (const Container* c : it->second)
      if (c->range.contains(r)) return c;
    return nullptr;
  }

 private:
  void add(const program::Module* m, const std::vector<program::Stmt*>& body, std::vector<const Container*>& out) {
    for (const auto* s : body) {
      if (s->kind == program::StmtKind::ClassDef) {
        store_.push_back({m, s->class_def, nullptr, s->class_def->range, s->class_def->name});
        out.push_back(&store_.back());
      } else if (s->kind == program::StmtKind::FunctionDef) {
        store_.push_back({m, nullptr, s->function, s->function->range, s->function->name});
        out.push_back(&store_.back());
      } else {  // definitions under `if`, `try`, `with` of the top level
        add(m, s->body, out);
        add(m, s->orelse, out);
        add(m, s->finally, out);
        for (const auto& h : s->handlers) add(m, h.body, out);
      }
    }
  }
  std::deque<Container> store_;
  std::unordered_map<const program::Module*, std::vector<const Container*>> by_module_;
};

/// NAME = {"key": Class} or {"key": ("module", "Class")} at the top level of the module.
inline bool registry_has(const program::Module* m, const std::string& key, const Container& cls) {
  using program::ExprKind;
  for (const auto* s : m->body) {
    if ((s->kind != program::StmtKind::Assign && s->kind != program::StmtKind::AnnAssign) || !s->value || s->value->kind != ExprKind::Dict)
      continue;
    for (std::size_t i = 0; i + 1 < s->value->kids.size(); i += 2) {
      const auto* k = s->value->kids[i];
      const auto* value = s->value->kids[i + 1];
      if (!k || k->kind != ExprKind::String || k->text != key) continue;
      if (value->kind == ExprKind::Name && value->text == cls.name) return true;
      if ((value->kind == ExprKind::Tuple || value->kind == ExprKind::List) && value->kids.size() == 2 &&
          value->kids[0]->kind == ExprKind::String && value->kids[0]->text == cls.module->name &&
          value->kids[1]->kind == ExprKind::String && value->kids[1]->text == cls.name)
        return true;
    }
  }
  return false;
}

}  // namespace shardwright::rewrite
