// Statements: blocks, declarations, assignments, loops, conditions.
#include <clang/AST/StmtCXX.h>
#include <clang/Basic/SourceManager.h>
#include <clang/Lex/Lexer.h>

#include <algorithm>

#include "lower.h"
#include "program/visit.h"

namespace shardwright::cxx {

using clang::CXXRecordDecl;
using clang::dyn_cast;
using clang::isa;

namespace {

const clang::Expr* strip(const clang::Expr* e) {
  for (;;) {
    const clang::Expr* in = e->IgnoreParenImpCasts();
    if (auto* x = dyn_cast<clang::ExprWithCleanups>(in)) in = x->getSubExpr();
    else if (auto* y = dyn_cast<clang::MaterializeTemporaryExpr>(in)) in = y->getSubExpr();
    else if (auto* z = dyn_cast<clang::CXXBindTemporaryExpr>(in)) in = z->getSubExpr();
    if (in == e) return e;
    e = in;
  }
}

/// Is the variable written in the statement (beyond reads)?
bool written(const clang::Stmt* s, const clang::VarDecl* v) {
  if (!s) return false;
  auto names = [&](const clang::Expr* e) {
    auto* d = dyn_cast<clang::DeclRefExpr>(e->IgnoreParenImpCasts());
    return d && d->getDecl() == v;
  };
  if (auto* b = dyn_cast<clang::BinaryOperator>(s); b && b->isAssignmentOp() && names(b->getLHS())) return true;
  if (auto* u = dyn_cast<clang::UnaryOperator>(s);
      u && (u->isIncrementDecrementOp() || u->getOpcode() == clang::UO_AddrOf) && names(u->getSubExpr()))
    return true;
  for (const clang::Stmt* c : s->children())
    if (written(c, v)) return true;
  return false;
}

bool continues(const clang::Stmt* s) {
  if (!s || isa<clang::ForStmt, clang::WhileStmt, clang::DoStmt, clang::CXXForRangeStmt, clang::LambdaExpr>(s)) return false;
  if (isa<clang::ContinueStmt>(s)) return true;
  for (const clang::Stmt* c : s->children())
    if (continues(c)) return true;
  return false;
}

}  // namespace

Stmt* Lowering::stmt(StmtKind k, Range r, std::vector<Stmt*>& out) {
  Stmt* s = arena_.stmt(k, r);
  out.push_back(s);
  return s;
}

void Lowering::block(const clang::Stmt* s, std::vector<Stmt*>& out) {
  std::vector<Stmt*>* outer = block_;
  block_ = &out;
  if (auto* c = llvm::dyn_cast_or_null<clang::CompoundStmt>(s)) {
    for (const clang::Stmt* x : c->body()) statement(x, out);
  } else if (s) {
    statement(s, out);
  }
  block_ = outer;
}

void Lowering::statement(const clang::Stmt* s, std::vector<Stmt*>& out) {
  const Range r = range(s);
  if (isa<clang::NullStmt>(s)) return;
  if (auto* x = dyn_cast<clang::CompoundStmt>(s)) {
    for (const clang::Stmt* k : x->body()) statement(k, out);
    return;
  }
  if (auto* x = dyn_cast<clang::AttributedStmt>(s)) return statement(x->getSubStmt(), out);
  if (auto* x = dyn_cast<clang::LabelStmt>(s)) return statement(x->getSubStmt(), out);
  // TORCH_CHECK(…) and assert(…): conditions on what is right anyway.
  if (s->getBeginLoc().isMacroID()) {
    const llvm::StringRef macro = clang::Lexer::getImmediateMacroName(s->getBeginLoc(), ast_.getSourceManager(), ast_.getLangOpts());
    clang::SourceLocation at = s->getBeginLoc();
    while (at.isMacroID() && ast_.getSourceManager().getImmediateMacroCallerLoc(at).isMacroID())
      at = ast_.getSourceManager().getImmediateMacroCallerLoc(at);
    const llvm::StringRef outer = clang::Lexer::getImmediateMacroName(at, ast_.getSourceManager(), ast_.getLangOpts());
    for (llvm::StringRef n : {macro, outer})
      if (n.starts_with("TORCH_") || n.starts_with("AT_") || n == "assert" || n.starts_with("C10_")) return;
  }
  if (auto* x = dyn_cast<clang::DeclStmt>(s)) return declaration(x, out);
  if (auto* x = dyn_cast<clang::ReturnStmt>(s)) {
    Expr* v = x->getRetValue() ? expr(x->getRetValue()) : nullptr;
    stmt(StmtKind::Return, r, out)->value = v;
    return;
  }
  if (auto* x = dyn_cast<clang::IfStmt>(s)) {
    if (x->getInit()) statement(x->getInit(), out);
    if (x->getConditionVariableDeclStmt()) declaration(x->getConditionVariableDeclStmt(), out);
    if (x->isConstexpr() && x->getCond() && !x->getCond()->isValueDependent()) {  // an instance keeps one branch
      if (auto v = x->getCond()->getIntegerConstantExpr(ast_)) {
        const clang::Stmt* taken = v->getBoolValue() ? x->getThen() : x->getElse();
        if (taken) statement(taken, out);
        return;
      }
    }
    Expr* c = expr(x->getCond());
    Stmt* i = stmt(StmtKind::If, r, out);
    i->value = c;
    block(x->getThen(), i->body);
    if (x->getElse()) block(x->getElse(), i->orelse);
    if (i->body.empty()) stmt(StmtKind::Pass, {}, i->body);
    return;
  }
  if (auto* x = dyn_cast<clang::ForStmt>(s)) return for_loop(x, out);
  if (auto* x = dyn_cast<clang::CXXForRangeStmt>(s)) {
    if (x->getInit()) statement(x->getInit(), out);
    Expr* over = expr(x->getRangeInit());
    Stmt* f = stmt(StmtKind::For, r, out);
    f->value = over;
    const clang::VarDecl* v = x->getLoopVariable();
    const Range vr = range(v->getSourceRange());
    if (auto* d = dyn_cast<clang::DecompositionDecl>(v)) {
      Expr* t = make(ExprKind::Tuple, vr);
      for (const clang::BindingDecl* b : d->bindings()) t->kids.push_back(name(local(b), range(b->getSourceRange())));
      f->targets = {t};
    } else {
      f->targets = {name(
          local(v),
          {vr.file, vr.end >= v->getNameAsString().size() ? vr.end - static_cast<std::uint32_t>(v->getNameAsString().size()) : vr.begin,
           vr.end})};
      if (!vr.valid()) f->targets[0]->range = f->targets[0]->outer = {};
    }
    block(x->getBody(), f->body);
    if (f->body.empty()) stmt(StmtKind::Pass, {}, f->body);
    return;
  }
  if (auto* x = dyn_cast<clang::WhileStmt>(s)) {
    if (x->getConditionVariableDeclStmt()) {
      stmt(StmtKind::Opaque, r, out)->text = "a variable in a loop's condition";
      return;
    }
    Expr* c = expr(x->getCond());
    Stmt* w = stmt(StmtKind::While, r, out);
    w->value = c;
    block(x->getBody(), w->body);
    return;
  }
  if (auto* x = dyn_cast<clang::DoStmt>(s)) {
    Stmt* w = stmt(StmtKind::While, r, out);
    w->value = make(ExprKind::True, {});
    block(x->getBody(), w->body);
    Stmt* i = stmt(StmtKind::If, {}, w->body);
    Expr* no = make(ExprKind::Unary, {});
    no->text = "not";
    no->kids = {expr(x->getCond())};
    i->value = no;
    stmt(StmtKind::Break, {}, i->body);
    return;
  }
  if (auto* x = dyn_cast<clang::SwitchStmt>(s)) return switch_statement(x, out);
  if (isa<clang::BreakStmt>(s)) {
    stmt(StmtKind::Break, r, out);
    return;
  }
  if (isa<clang::ContinueStmt>(s)) {
    stmt(StmtKind::Continue, r, out);
    return;
  }
  if (auto* x = dyn_cast<clang::CXXTryStmt>(s)) return statement(x->getTryBlock(), out);
  if (auto* x = dyn_cast<clang::Expr>(s)) return expression_statement(x, out);
  stmt(StmtKind::Opaque, r, out)->text = s->getStmtClassName();
}

Expr* Lowering::target(const clang::Expr* e) {
  e = strip(e);
  if (auto* c = dyn_cast<clang::CallExpr>(e);
      c && c->getDirectCallee() && c->getDirectCallee()->getNameAsString() == "tie" && c->getDirectCallee()->isInStdNamespace())
    return expr(e);
  Expr* t = expr(e);
  switch (t->kind) {
    case ExprKind::Name:
    case ExprKind::Attribute:
    case ExprKind::Subscript:
    case ExprKind::Tuple: return t;
    default: return nullptr;
  }
}

void Lowering::expression_statement(const clang::Expr* whole, std::vector<Stmt*>& out) {
  const Range r = range(whole);
  const clang::Expr* e = strip(whole);
  if (auto* c = dyn_cast<clang::CStyleCastExpr>(e); c && c->getType()->isVoidType()) return;
  if (auto* c = dyn_cast<clang::CXXThrowExpr>(e)) {
    (void)c;
    Stmt* s = stmt(StmtKind::Raise, r, out);
    s->value = call(name("RuntimeError"), {string("throw", {})}, {});
    return;
  }
  auto assign = [&](const clang::Expr* lhs, const clang::Expr* rhs) {
    // a = b = c
    std::vector<const clang::Expr*> targets{lhs};
    for (;;) {
      const clang::Expr* v = strip(rhs);
      if (auto* b = dyn_cast<clang::BinaryOperator>(v); b && b->getOpcode() == clang::BO_Assign)
        targets.push_back(b->getLHS()), rhs = b->getRHS();
      else if (auto* o = dyn_cast<clang::CXXOperatorCallExpr>(v); o && o->getOperator() == clang::OO_Equal)
        targets.push_back(o->getArg(0)), rhs = o->getArg(1);
      else break;
    }
    Expr* value = expr(rhs);
    std::vector<Expr*> made;
    for (const clang::Expr* t : targets) {
      Expr* x = target(t);
      if (!x) {
        stmt(StmtKind::Opaque, r, out)->text = "assignment to this expression";
        return;
      }
      made.push_back(x);
    }
    Stmt* s = stmt(StmtKind::Assign, r, out);
    s->targets = made;
    s->value = value;
  };
  auto augmented = [&](const clang::Expr* lhs, const clang::Expr* rhs, std::string op, bool integer_result) {
    Expr* value = rhs ? expr(rhs) : integer(1, {});
    Expr* t = target(lhs);
    if (!t || t->kind == ExprKind::Tuple) {
      stmt(StmtKind::Opaque, r, out)->text = "assignment to this expression";
      return;
    }
    if (op == "/" && integer_result) op = "//";
    Stmt* s = stmt(StmtKind::AugAssign, r, out);
    s->targets = {t};
    s->op = op;
    s->value = value;
  };
  if (auto* b = dyn_cast<clang::BinaryOperator>(e)) {
    if (b->getOpcode() == clang::BO_Assign) return assign(b->getLHS(), b->getRHS());
    if (b->isCompoundAssignmentOp()) {
      std::string op = b->getOpcodeStr().str();
      op.pop_back();
      return augmented(b->getLHS(), b->getRHS(), op, b->getLHS()->getType()->isIntegerType());
    }
    if (b->getOpcode() == clang::BO_Comma) {
      expression_statement(b->getLHS(), out);
      return expression_statement(b->getRHS(), out);
    }
  }
  if (auto* u = dyn_cast<clang::UnaryOperator>(e); u && u->isIncrementDecrementOp())
    return augmented(u->getSubExpr(), nullptr, u->isIncrementOp() ? "+" : "-", true);
  if (auto* o = dyn_cast<clang::CXXOperatorCallExpr>(e)) {
    const bool user = o->getDirectCallee() && !is_library(o->getDirectCallee()) && !o->getDirectCallee()->isDefaulted();
    const std::string sp = clang::getOperatorSpelling(o->getOperator());
    if (!user && o->getOperator() == clang::OO_Equal) return assign(o->getArg(0), o->getArg(1));
    if (!user && o->isAssignmentOp() && sp.size() >= 2) return augmented(o->getArg(0), o->getArg(1), sp.substr(0, sp.size() - 1), false);
  }
  if (auto* m = dyn_cast<clang::CXXMemberCallExpr>(e); m && m->getMethodDecl() && m->getMethodDecl()->getNameAsString() == "index_put_" &&
      is_tensor(m->getImplicitObjectArgument()->getType()) && m->getNumArgs() >= 2) {
    Expr* value = expr(m->getArg(1));
    Stmt* s = stmt(StmtKind::Assign, r, out);
    Expr* of = expr(m->getImplicitObjectArgument());
    s->targets = {subscript(of, subscript_key(m->getArg(0), r), r)};
    s->value = value;
    return;
  }
  Expr* v = expr(whole);
  if (v->kind == ExprKind::None) return;
  stmt(StmtKind::Expression, r, out)->value = v;
}

void Lowering::declaration(const clang::DeclStmt* d, std::vector<Stmt*>& out) {
  const Range r = range(d);
  for (const clang::Decl* x : d->decls()) {
    if (auto* v = dyn_cast<clang::VarDecl>(x)) variable(v, r, out);
    else if (auto* c = dyn_cast<CXXRecordDecl>(x)) pending_.push_back(c);
  }
}

void Lowering::variable(const clang::VarDecl* v, Range r, std::vector<Stmt*>& out) {
  const clang::Expr* init = v->getInit();
  if (auto* rec = record_of(v->getType())) {
    // Guards have no value.
    const std::string q = qualified(rec);
    for (const char* g : {"c10::AutoGradMode", "at::NoGradGuard", "c10::NoGradGuard", "torch::NoGradGuard", "c10::InferenceMode",
                          "at::AutoGradMode", "c10::DeviceGuard", "c10::OptionalDeviceGuard"})
      if (q == g || (llvm::StringRef(q).ends_with("Guard") && is_library(rec))) return;
  }
  if (auto* d = dyn_cast<clang::DecompositionDecl>(v)) {
    Expr* value = init ? expr(init) : none({});
    Stmt* s = stmt(StmtKind::Assign, r, out);
    Expr* t = make(ExprKind::Tuple, {});
    const CXXRecordDecl* rec = record_of(v->getType());
    for (const clang::BindingDecl* b : d->bindings()) t->kids.push_back(name(local(b), range(b->getSourceRange())));
    s->targets = {t};
    s->value = rec && !is_library(rec) ? call(ours("fields"), {value}, {}) : value;  // auto [a, b] = struct
    return;
  }
  if (init) {
    const clang::Expr* in = strip(init);
    if (auto* c = dyn_cast<clang::CXXConstructExpr>(in); c && c->getNumArgs() == 1) in = strip(c->getArg(0));
    if (auto* l = dyn_cast<clang::LambdaExpr>(in)) return lambda(l, local(v), out);
  }
  const Range nr = [&] {
    Range whole = range(clang::SourceRange(v->getLocation(), v->getLocation()));
    return whole;
  }();
  Expr* value = nullptr;
  if (init) value = expr(init);
  else if (v->getType()->isArithmeticType() || v->getType()->isPointerType()) value = none({});
  if (!value) return;
  Stmt* s = stmt(StmtKind::Assign, r, out);
  s->targets = {name(local(v), nr)};
  s->value = value;
}

bool Lowering::counted_loop(const clang::ForStmt* f, std::vector<Stmt*>& out) {
  auto* d = llvm::dyn_cast_or_null<clang::DeclStmt>(f->getInit());
  if (!d || !d->isSingleDecl()) return false;
  auto* v = dyn_cast<clang::VarDecl>(d->getSingleDecl());
  if (!v || !v->getInit() || !v->getType()->isIntegerType() || !f->getCond() || !f->getInc() || written(f->getBody(), v)) return false;
  auto names = [&](const clang::Expr* e) {
    auto* x = dyn_cast<clang::DeclRefExpr>(e->IgnoreParenImpCasts());
    return x && x->getDecl() == v;
  };
  auto* c = dyn_cast<clang::BinaryOperator>(strip(f->getCond()));
  if (!c || !c->isComparisonOp() || !names(c->getLHS())) return false;
  // The step
  const clang::Expr* inc = strip(f->getInc());
  Expr* step = nullptr;
  bool down = false;
  if (auto* u = dyn_cast<clang::UnaryOperator>(inc); u && u->isIncrementDecrementOp() && names(u->getSubExpr())) {
    down = u->isDecrementOp();
    step = integer(1, {});
  } else if (auto* b = dyn_cast<clang::BinaryOperator>(inc);
             b && (b->getOpcode() == clang::BO_AddAssign || b->getOpcode() == clang::BO_SubAssign) && names(b->getLHS())) {
    down = b->getOpcode() == clang::BO_SubAssign;
    step = expr(b->getRHS());
  } else {
    return false;
  }
  Expr* bound = expr(c->getRHS());
  auto plus = [&](Expr* e, std::int64_t n) {
    Expr* b = make(ExprKind::Binary, {});
    b->text = n < 0 ? "-" : "+";
    b->kids = {e, integer(n < 0 ? -n : n, {})};
    return b;
  };
  switch (c->getOpcode()) {
    case clang::BO_LT:
    case clang::BO_NE:
      if (down) return false;
      break;
    case clang::BO_LE:
      if (down) return false;
      bound = plus(bound, 1);
      break;
    case clang::BO_GT:
      if (!down) return false;
      break;
    case clang::BO_GE:
      if (!down) return false;
      bound = plus(bound, -1);
      break;
    default: return false;
  }
  if (down) {
    Expr* n = make(ExprKind::Unary, {});
    n->text = "-";
    n->kids = {step};
    step = n;
  }
  Expr* first = expr(v->getInit());
  const bool one = !down && step->kind == ExprKind::Int && step->integer == 1;
  std::vector<Expr*> args = one
      ? (first->kind == ExprKind::Int && first->integer == 0 ? std::vector<Expr*>{bound} : std::vector<Expr*>{first, bound})
      : std::vector<Expr*>{first, bound, step};
  Range header{};
  if (Range a = range(f->getInit()), b = range(f->getInc()); a.valid() && b.valid() && a.file == b.file) header = {a.file, a.begin, b.end};
  Stmt* s = stmt(StmtKind::For, range(f), out);
  s->targets = {name(local(v), range(clang::SourceRange(v->getLocation(), v->getLocation())))};
  s->value = call(name("range"), args, header);
  block(f->getBody(), s->body);
  if (s->body.empty()) stmt(StmtKind::Pass, {}, s->body);
  return true;
}

void Lowering::for_loop(const clang::ForStmt* f, std::vector<Stmt*>& out) {
  if (counted_loop(f, out)) return;
  if (f->getInit()) statement(f->getInit(), out);
  if (continues(f->getBody())) {
    stmt(StmtKind::Opaque, range(f), out)->text = "a loop with `continue` whose variable is not simply counted";
    return;
  }
  Expr* c = f->getCond() ? expr(f->getCond()) : make(ExprKind::True, {});
  Stmt* w = stmt(StmtKind::While, range(f), out);
  w->value = c;
  block(f->getBody(), w->body);
  if (f->getInc()) {
    std::vector<Stmt*>* outer = block_;
    block_ = &w->body;
    expression_statement(f->getInc(), w->body);
    block_ = outer;
  }
}

void Lowering::switch_statement(const clang::SwitchStmt* s, std::vector<Stmt*>& out) {
  const std::string subject = fresh("_switch");
  Stmt* keep = stmt(StmtKind::Assign, {}, out);
  keep->targets = {name(subject)};
  keep->value = expr(s->getCond());
  auto* body = dyn_cast<clang::CompoundStmt>(s->getBody());
  // Groups of labels with what they run; one that falls through is not followed.
  struct Group {
    std::vector<const clang::Expr*> values;
    bool otherwise = false;
    std::vector<const clang::Stmt*> body;
  };
  std::vector<Group> groups;
  std::vector<const clang::Stmt*> parts;
  if (body) parts.assign(body->body_begin(), body->body_end());
  for (const clang::Stmt* x : parts) {
    if (isa<clang::SwitchCase>(x)) {
      groups.emplace_back();
      while (auto* c = dyn_cast<clang::SwitchCase>(x)) {
        if (auto* k = dyn_cast<clang::CaseStmt>(c)) groups.back().values.push_back(k->getLHS());
        else groups.back().otherwise = true;
        x = c->getSubStmt();
      }
    }
    if (groups.empty()) continue;
    groups.back().body.push_back(x);
  }
  std::vector<Stmt*>* into = &out;
  const Group* last = nullptr;
  for (const Group& g : groups) {
    if (g.otherwise) {
      last = &g;
      continue;
    }
    Expr* test = nullptr;
    for (const clang::Expr* v : g.values) {
      Expr* c = make(ExprKind::Compare, {});
      c->kids = {name(subject), expr(v)};
      c->ops = {"=="};
      if (test) {
        Expr* either = make(ExprKind::BoolOp, {});
        either->text = "or";
        either->kids = {test, c};
        test = either;
      } else test = c;
    }
    Stmt* i = stmt(StmtKind::If, range(s), *into);
    i->value = test;
    for (const clang::Stmt* x : g.body)
      if (!isa<clang::BreakStmt>(x)) block(x, i->body);
    if (i->body.empty()) stmt(StmtKind::Pass, {}, i->body);
    into = &i->orelse;
  }
  if (last)
    for (const clang::Stmt* x : last->body)
      if (!isa<clang::BreakStmt>(x)) block(x, *into);
}

void Lowering::lambda(const clang::LambdaExpr* l, const std::string& n, std::vector<Stmt*>& out) {
  for (const clang::LambdaCapture& c : l->captures())
    if (c.capturesVariable())
      if (auto* v = dyn_cast<clang::VarDecl>(c.getCapturedVar()); v && v->isInitCapture() && v->getInit()) {
        Stmt* s = stmt(StmtKind::Assign, {}, out);
        Expr* value = expr(v->getInit());
        s->targets = {name(local(v))};
        s->value = value;
      }
  const clang::CXXMethodDecl* m = l->getCallOperator();
  if (l->isGenericLambda()) {  // `auto` parameters: the body as it was used
    for (const clang::FunctionDecl* spec : l->getDependentCallOperator()->specializations())
      if (spec->getBody()) {
        m = llvm::cast<clang::CXXMethodDecl>(spec);
        break;
      }
  }
  Stmt* s = stmt(StmtKind::FunctionDef, range(l), out);
  program::Function* f = arena_.function();
  f->name = n;
  f->range = f->def_range = range(l);
  f->body_range = range(l->getBody());
  for (const clang::ParmVarDecl* p : m->parameters()) {
    program::Parameter x;
    x.name = local(p);
    x.range = range(p->getSourceRange());
    if (p->hasDefaultArg() && !p->hasUninstantiatedDefaultArg()) x.default_value = expr(p->getDefaultArg());
    f->parameters.push_back(std::move(x));
  }
  const std::set<std::string> outside = taken_;  // parameters included: taken out below
  block(m->getBody() ? m->getBody() : l->getBody(), f->body.fill());
  // What it assigns to and did not declare is the surrounding function's.
  program::NameSet assigned;
  program::names_written(f->body.fill(), assigned);
  std::vector<std::string> captured;
  for (const std::string& w : assigned.names()) {
    bool own = std::any_of(f->parameters.begin(), f->parameters.end(), [&](const auto& p) { return p.name == w; });
    if (!own && outside.count(w)) captured.push_back(w);
  }
  if (!captured.empty()) {
    Stmt* nonlocal = arena_.stmt(StmtKind::Nonlocal, {});
    nonlocal->names = captured;
    f->body.fill().insert(f->body.fill().begin(), nonlocal);
  }
  if (f->body.fill().empty()) stmt(StmtKind::Pass, {}, f->body.fill());
  s->function = f;
}

}  // namespace shardwright::cxx
