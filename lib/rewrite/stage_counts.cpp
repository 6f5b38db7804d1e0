#include "rewrite/stage_counts.h"

#include <algorithm>
#include <set>
#include <string>

#include "program/visit.h"
#include "rewrite/stage_syntax.h"

namespace shardwright::rewrite {
namespace {

using program::Expr;
using program::ExprKind;
using program::Stmt;
using program::StmtKind;

bool is_walk(const Expr* e) {
  static const std::set<std::string> walks{"parameters",    "named_parameters", "buffers",        "named_buffers", "modules",
                                           "named_modules", "children",         "named_children", "state_dict"};
  return e->kind == ExprKind::Call && e->kids[0]->kind == ExprKind::Attribute && walks.count(e->kids[0]->text) > 0;
}

/// Does an expression depend on a walk? `next(self.parameters()).device` asks the first one only.
bool walks(const Expr* top) {
  bool found = false;
  if (top)
    program::walk(top, [&](const Expr* e) {
      if (e->kind == ExprKind::Call && e->kids[0]->kind == ExprKind::Name && e->kids[0]->text == "next") return false;
      if (is_walk(e)) found = true;
      return e->kind != ExprKind::Lambda;
    });
  return found;
}

class Counts {
 public:
  explicit Counts(const program::Function& f) : f_(f), self_(stage::self_name(&f)) {}

  support::Range find() {
    for (bool again = true; again && !at_.valid();) {
      const std::size_t before = names_.size();
      program::walk(f_.body, [&](const Stmt* s) {
        if (s->kind == StmtKind::FunctionDef || s->kind == StmtKind::ClassDef) return false;
        visit(s);
        return true;
      });
      again = names_.size() != before;
    }
    return at_;
  }

 private:
  bool depends(const Stmt* s) const {
    if (walks(s->value)) return true;
    const auto reads = stage::own_reads(s);
    return std::any_of(reads.begin(), reads.end(), [&](const auto& r) { return names_.count(r.name) > 0; });
  }
  /// Kept beyond the constructor: `self.x = …`; or in a name that may be.
  void keep(const Stmt* s) {
    for (const Expr* t : s->targets) {
      if (t->kind == ExprKind::Name) names_.insert(t->text);
      else if (t->kind == ExprKind::Attribute && t->kids[0]->kind == ExprKind::Name && t->kids[0]->text == self_) at_ = s->range;
    }
  }
  void visit(const Stmt* s) {
    if (at_.valid()) return;
    switch (s->kind) {
      case StmtKind::Assign:
      case StmtKind::AnnAssign:
      case StmtKind::AugAssign:
        if (depends(s)) keep(s);
        break;
      case StmtKind::Expression: {
        if (!s->value || s->value->kind != ExprKind::Call || !depends(s)) break;
        const Expr* f = s->value->kids[0];
        static const std::set<std::string> said{"print", "info", "debug", "warning", "warn", "log", "write", "append"};
        // `init(p)` for each, an optimiser's or a logger's list: only what is computed from all of them matters.
        const bool direct = walks(s->value) && f->text != "register_buffer" && f->text != "register_parameter" && f->text != "setattr";
        if (!said.count(f->text) && !direct) at_ = s->range;
        break;
      }
      case StmtKind::For:
        if (walks(s->value)) {
          program::walk(s->body, [&](const Stmt* k) {
            if (k->kind == StmtKind::AugAssign) keep(k);
            return true;
          });
        }
        break;
      default: break;
    }
  }

  const program::Function& f_;
  std::string self_;
  std::set<std::string> names_;  ///< locals that hold such a number
  support::Range at_;
};

}  // namespace

support::Range counts_what_was_built(const model::Trace& t) {
  std::set<const program::Function*> seen;
  for (const auto& f : t.frames) {
    if (!f.init || f.builtin || f.self < 0 || !f.function || !f.function->owner || !seen.insert(f.function).second) continue;
    if (const auto at = Counts(*f.function).find(); at.valid()) return at;
  }
  return {};
}

}  // namespace shardwright::rewrite
