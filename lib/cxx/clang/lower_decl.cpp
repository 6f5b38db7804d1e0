// Classes, constructors, functions and variables of the user's code.
#include <clang/Sema/Sema.h>

#include <algorithm>

#include "lower.h"
#include "program/visit.h"

namespace shardwright::cxx {

using clang::CXXRecordDecl;
using clang::dyn_cast;
using clang::isa;

namespace {

/// Names that the program itself uses: a variable of that name gets another one.
const std::set<std::string> kReserved = {"self", "len",     "range",        "int",          "float", "bool",
                                         "list", "complex", "staticmethod", "RuntimeError", "_cxx",  "_torch"};

bool copies(const clang::CXXConstructorDecl* c) { return c->isCopyOrMoveConstructor(); }

/// Constructors that somebody wrote.
std::vector<const clang::CXXConstructorDecl*> written_constructors(const CXXRecordDecl* r) {
  std::vector<const clang::CXXConstructorDecl*> out;
  for (const clang::CXXConstructorDecl* c : r->ctors())
    if (!copies(c) && c->isUserProvided() && !c->isDeleted() && !c->isInheritingConstructor()) out.push_back(c);
  return out;
}

std::string short_argument(const clang::TemplateArgument& a, const clang::PrintingPolicy& policy) {
  std::string s;
  llvm::raw_string_ostream out(s);
  if (a.getKind() == clang::TemplateArgument::Type)
    if (const CXXRecordDecl* r = record_of(a.getAsType())) return r->getNameAsString();
  a.print(policy, out, false);
  return s;
}

}  // namespace

Lowering::Lowering(clang::ASTContext& ast, clang::Sema& sema, program::Arena& arena)
    : ast_(ast), sema_(sema), arena_(arena), files_(ast.getSourceManager()) {}

std::vector<Stmt*> Lowering::run() {
  for (const auto& [module, as] : {std::pair{"shardwright_cxx", "_cxx"}, {"torch", "_torch"}}) {
    Stmt* s = stmt(StmtKind::Import, {}, top_);
    s->imports.push_back({module, as, {}});
  }
  walk(ast_.getTranslationUnitDecl());
  while (!pending_.empty()) {
    const CXXRecordDecl* r = pending_.back();
    pending_.pop_back();
    class_decl(r);
  }
  return top_;
}

void Lowering::walk(const clang::DeclContext* dc) {
  for (const clang::Decl* d : dc->decls()) {
    if (d->isImplicit() || is_library(d)) continue;
    declare(d);
  }
}

void Lowering::declare(const clang::Decl* d) {
  if (auto* n = dyn_cast<clang::NamespaceDecl>(d)) return walk(n);
  if (auto* l = dyn_cast<clang::LinkageSpecDecl>(d)) return walk(l);
  if (auto* r = dyn_cast<CXXRecordDecl>(d)) return class_decl(r);
  if (auto* t = dyn_cast<clang::ClassTemplateDecl>(d)) {
    for (const clang::ClassTemplateSpecializationDecl* s : t->specializations()) class_decl(s);
    return;
  }
  if (auto* f = dyn_cast<clang::FunctionDecl>(d)) {
    if (isa<clang::CXXMethodDecl>(f) || f->isDependentContext()) return;
    const clang::FunctionDecl* definition = nullptr;
    if (!f->hasBody(definition) || !done_.insert(definition).second) return;
    Stmt* s = stmt(StmtKind::FunctionDef, range(definition->getSourceRange()), top_);
    s->function = function(definition, function_name(definition), false);
    return;
  }
  if (auto* t = dyn_cast<clang::FunctionTemplateDecl>(d)) {
    for (const clang::FunctionDecl* s : t->specializations())
      if (!isa<clang::CXXMethodDecl>(s)) declare(s);
    return;
  }
  if (auto* v = dyn_cast<clang::VarDecl>(d)) {
    if (v->isStaticDataMember() || !v->getInit() || v->getType()->isDependentType() || !done_.insert(v->getCanonicalDecl()).second) return;
    block_ = &top_;
    std::vector<Stmt*> made;
    variable(v, range(v->getSourceRange()), made);
    top_.insert(top_.end(), made.begin(), made.end());
  }
}

// ---- names -------------------------------------------------------------------------------------------------------------------

std::string Lowering::fresh(const std::string& stem) {
  std::string n = stem;
  for (int i = 2; taken_.count(n) || kReserved.count(n); ++i) n = stem + "__" + std::to_string(i);
  taken_.insert(n);
  return n;
}

std::string Lowering::local(const clang::ValueDecl* d) {
  if (auto* v = dyn_cast<clang::VarDecl>(d)) {
    d = v->getCanonicalDecl();
    if (v->isFileVarDecl()) return v->getNameAsString();
  }
  auto [it, fresh_one] = locals_.try_emplace(d);
  if (fresh_one) {
    const std::string id = d->getNameAsString();
    it->second = fresh(id.empty() ? "_unnamed" : id);
  }
  return it->second;
}

std::string Lowering::class_name(const CXXRecordDecl* r) {
  if (is_library(r)) return r->getNameAsString();
  const clang::Decl* key = r->getCanonicalDecl();
  if (auto it = names_.find(key); it != names_.end()) return it->second;
  std::string n = r->getNameAsString();
  if (n.empty()) n = "_struct";
  if (auto* s = dyn_cast<clang::ClassTemplateSpecializationDecl>(r)) {
    n += "<";
    for (unsigned i = 0; i < s->getTemplateArgs().size(); ++i)
      n += (i ? ", " : "") + short_argument(s->getTemplateArgs()[i], ast_.getPrintingPolicy());
    n += ">";
    std::replace(n.begin(), n.end(), '.', '_');
  }
  std::string unique = n;
  for (int i = 2; !globals_.insert(unique).second; ++i) unique = n + "__" + std::to_string(i);
  pending_.push_back(r);
  return names_[key] = unique;
}

std::string Lowering::function_name(const clang::FunctionDecl* f) {
  if (auto* m = dyn_cast<clang::CXXMethodDecl>(f)) {
    while (m->size_overridden_methods() > 0) m = *m->begin_overridden_methods();
    f = m;
    if (is_library(m)) return m->getNameAsString();
  }
  const clang::Decl* key = f->getCanonicalDecl();
  if (auto it = names_.find(key); it != names_.end()) return it->second;
  std::string id = f->getNameAsString();
  if (f->getOverloadedOperator() == clang::OO_Call) id = "__call__";
  std::string n = id;
  if (auto* m = dyn_cast<clang::CXXMethodDecl>(f)) {
    // Overloads of one name are methods of several names.
    int before = 0;
    for (const clang::NamedDecl* other : m->getParent()->lookup(m->getDeclName())) {
      if (other->getCanonicalDecl() == key) break;
      ++before;
    }
    if (before > 0) n += "__" + std::to_string(before + 1);
  } else {
    for (int i = 2; !globals_.insert(n).second; ++i) n = id + "__" + std::to_string(i);
    if (f->isTemplateInstantiation()) declare(f);
  }
  return names_[key] = n;
}

std::string Lowering::constructor_name(const clang::CXXConstructorDecl* c) {
  auto all = written_constructors(c->getParent());
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i]->getCanonicalDecl() == c->getCanonicalDecl()) return i == 0 ? "__init__" : "__init__" + std::to_string(i + 1);
  return "__init__";
}

const clang::CXXConstructorDecl* Lowering::pick_constructor(const CXXRecordDecl* r, llvm::ArrayRef<const clang::Expr*> args) {
  const clang::CXXConstructorDecl* best = nullptr;
  int best_score = -1;
  for (const clang::CXXConstructorDecl* c : written_constructors(r)) {
    if (args.size() < c->getMinRequiredArguments() || args.size() > c->getNumParams()) continue;
    int score = 1;
    for (std::size_t i = 0; i < args.size(); ++i) {
      const clang::QualType want = c->getParamDecl(static_cast<unsigned>(i))->getType().getNonReferenceType().getUnqualifiedType();
      const clang::QualType have = args[i]->getType().getNonReferenceType().getUnqualifiedType();
      if (ast_.hasSameType(want, have)) score += 4;
      else if (record_of(want) && record_of(want) == record_of(have)) score += 3;
      else if (want->isArithmeticType() && have->isArithmeticType()) score += want->isFloatingType() == have->isFloatingType() ? 3 : 2;
      else if (want->isArithmeticType() != have->isArithmeticType()) score -= 2;
    }
    if (score > best_score) best = c, best_score = score;
  }
  return best;
}

// ---- classes -----------------------------------------------------------------------------------------------------------------

void Lowering::class_decl(const CXXRecordDecl* given) {
  const CXXRecordDecl* r = given->getDefinition();
  if (!r || is_library(r) || r->isDependentContext() || r->isLambda() || r->isUnion() || held_by(r)) return;
  if (!done_.insert(r->getCanonicalDecl()).second) return;
  const std::string n = class_name(r);
  clang::PrintingPolicy policy(ast_.getLangOpts());
  policy.SuppressTagKeyword = true;
  classes_.push_back({n, is_module(r), ast_.getRecordType(r).getCanonicalType().getAsString(policy)});
  program::ClassDef* c = arena_.class_def();
  c->name = n;
  c->range = c->def_range = range(r->getSourceRange());
  for (const auto& b : r->bases()) {
    const CXXRecordDecl* base = record_of(b.getType());
    if (!base) continue;
    Argument a;
    if (!is_library(base)) a.value = name(class_name(base));
    else if (is_module(base)) {
      const std::string q = qualified(base);
      llvm::StringRef id = base->getName();
      if (q == "torch::nn::Module" || q == "torch::nn::Cloneable") a.value = ours("Module");
      else {
        id.consume_back("Impl");
        a.value = id == "Sequential" || id == "ModuleList" || id == "ModuleDict" ? ours(id.str()) : torch("nn." + id.str());
      }
    } else continue;
    a.range = {};
    c->bases.push_back(std::move(a));
  }
  for (const clang::Decl* d : r->decls()) {
    if (auto* v = dyn_cast<clang::VarDecl>(d);
        v && v->isStaticDataMember() && v->getAnyInitializer() && !v->getAnyInitializer()->isValueDependent()) {
      block_ = &c->body;
      Stmt* s = stmt(StmtKind::Assign, range(v->getSourceRange()), c->body);
      s->targets = {name(v->getNameAsString())};
      s->value = expr(v->getAnyInitializer());
    } else if (auto* nested = dyn_cast<CXXRecordDecl>(d); nested && !nested->isImplicit()) {
      pending_.push_back(nested);
    }
  }
  constructors(r, c->body);
  auto add = [&](const clang::CXXMethodDecl* m) {
    if (isa<clang::CXXConstructorDecl, clang::CXXDestructorDecl, clang::CXXConversionDecl>(m) || m->isImplicit() || m->isDefaulted() ||
        m->isPureVirtual() || m->isDependentContext())
      return;
    const clang::FunctionDecl* definition = m;
    if (!m->hasBody(definition) && m->getTemplateInstantiationPattern()) {
      sema_.InstantiateFunctionDefinition(m->getLocation(), const_cast<clang::CXXMethodDecl*>(m), true, true);
      m->hasBody(definition);
    }
    if (!definition) definition = m;
    Stmt* s = stmt(StmtKind::FunctionDef, range(definition->getSourceRange()), c->body);
    s->function = function(definition, function_name(m), !m->isStatic());
    if (m->isStatic()) s->function->decorators = {name("staticmethod")};
  };
  for (const clang::Decl* d : r->decls()) {
    if (auto* m = dyn_cast<clang::CXXMethodDecl>(d)) add(m);
    else if (auto* t = dyn_cast<clang::FunctionTemplateDecl>(d))
      for (const clang::FunctionDecl* s : t->specializations())
        if (auto* ms = dyn_cast<clang::CXXMethodDecl>(s)) add(ms);
  }
  if (c->body.empty()) stmt(StmtKind::Pass, {}, c->body);
  Stmt* s = stmt(StmtKind::ClassDef, c->range, top_);
  s->class_def = c;
}

void Lowering::constructors(const CXXRecordDecl* r, std::vector<Stmt*>& body) {
  auto all = written_constructors(r);
  for (const clang::CXXConstructorDecl* c : all) {
    const clang::FunctionDecl* definition = c;
    if (!c->hasBody(definition) && c->getTemplateInstantiationPattern()) {
      sema_.InstantiateFunctionDefinition(c->getLocation(), const_cast<clang::CXXConstructorDecl*>(c), true, true);
      c->hasBody(definition);
    }
    if (!definition) definition = c;
    Stmt* s = stmt(StmtKind::FunctionDef, range(definition->getSourceRange()), body);
    s->function = function(definition, constructor_name(c), true);
  }
  if (all.empty()) {
    Stmt* s = stmt(StmtKind::FunctionDef, {}, body);
    s->function = aggregate(r);
  }
}

/// A class without a constructor of its own: its fields, in order or by name.
program::Function* Lowering::aggregate(const CXXRecordDecl* r) {
  auto saved_taken = std::move(taken_);
  auto saved_locals = std::move(locals_);
  taken_.clear();
  locals_.clear();
  program::Function* f = arena_.function();
  f->name = "__init__";
  program::Parameter self;
  self.name = "self";
  f->parameters.push_back(self);
  bool inherits = false;
  for (const auto& b : r->bases())
    inherits = inherits || (record_of(b.getType()) && (!is_library(record_of(b.getType())) || is_module(record_of(b.getType()))));
  std::vector<Stmt*>* outer = block_;
  block_ = &f->body.fill();
  if (inherits) {  // constructors are inherited, or there is only the default one
    program::Parameter rest;
    rest.name = "arguments";
    rest.kind = program::Parameter::VarArgs;
    f->parameters.push_back(rest);
    for (const auto& b : r->bases()) {
      const CXXRecordDecl* base = record_of(b.getType());
      if (!base || (is_library(base) && !is_module(base))) continue;
      Expr* callee = is_library(base) ? attribute(ours("Module"), "__init__") : attribute(name(class_name(base)), "__init__");
      Expr* c = call(callee, {name("self")}, {});
      if (!is_library(base)) {
        Argument a;
        a.value = name("arguments");
        a.star = true;
        c->args.push_back(a);
      }
      stmt(StmtKind::Expression, {}, f->body.fill())->value = c;
    }
  }
  for (const clang::FieldDecl* d : r->fields()) {
    const std::string id = d->getNameAsString();
    if (id.empty()) continue;
    Expr* value = nullptr;
    if (d->hasInClassInitializer() && d->getInClassInitializer()) value = expr(d->getInClassInitializer());
    else if (d->getType()->isBooleanType()) value = make(ExprKind::False, {});
    else if (d->getType()->isArithmeticType()) value = integer(0, {});
    else if (is_sequence(record_of(d->getType()))) value = make(ExprKind::List, {});
    else if (is_map(record_of(d->getType()))) value = make(ExprKind::Dict, {});
    else if (const CXXRecordDecl* in = record_of(d->getType()); in && !is_library(in) && !d->getType()->isPointerType() && !held_by(in))
      value = call(name(class_name(in)), {}, {});
    else value = none({});
    Stmt* s = stmt(StmtKind::Assign, range(d->getSourceRange()), f->body.fill());
    s->targets = {attribute(name("self"), id)};
    if (inherits) {
      s->value = value;
      continue;
    }
    // A field that is not given takes its initialiser, made anew each time.
    program::Parameter p;
    p.name = id;
    p.default_value = ours("absent");
    f->parameters.push_back(p);
    Expr* pick = make(ExprKind::Conditional, {});
    Expr* is = make(ExprKind::Compare, {});
    is->ops = {"is"};
    is->kids = {name(id), ours("absent")};
    pick->kids = {value, is, name(id)};
    s->value = pick;
  }
  if (f->body.fill().empty()) stmt(StmtKind::Pass, {}, f->body.fill());
  block_ = outer;
  taken_ = std::move(saved_taken);
  locals_ = std::move(saved_locals);
  return f;
}

void Lowering::initialisers(const clang::CXXConstructorDecl* c, std::vector<Stmt*>& body) {
  for (const clang::CXXCtorInitializer* i : c->inits()) {
    const Range r = i->isWritten() ? range(i->getSourceRange()) : Range{};
    const clang::Expr* init = i->getInit();
    if (i->isBaseInitializer()) {
      const CXXRecordDecl* base = record_of(clang::QualType(i->getBaseClass(), 0));
      if (!base) continue;
      if (is_library(base)) {
        if (!is_module(base)) continue;
        const std::string q = qualified(base);
        const bool plain = q == "torch::nn::Module" || q == "torch::nn::Cloneable";
        llvm::StringRef id = base->getName();
        id.consume_back("Impl");
        Expr* cls = plain                                                    ? ours("Module")
            : id == "Sequential" || id == "ModuleList" || id == "ModuleDict" ? ours(id.str())
                                                                             : torch("nn." + id.str());
        Expr* k = call(attribute(cls, "__init__"), {name("self")}, r);
        if (auto* ctor = plain ? nullptr : dyn_cast<clang::CXXConstructExpr>(init->IgnoreImplicit()))
          arguments(k, {ctor->getArgs(), ctor->getNumArgs()});
        stmt(StmtKind::Expression, r, body)->value = k;
        continue;
      }
      auto* ctor = dyn_cast<clang::CXXConstructExpr>(init->IgnoreImplicit());
      const std::string which = ctor ? constructor_name(ctor->getConstructor()) : "__init__";
      Expr* k = call(attribute(name(class_name(base)), which), {name("self")}, r);
      if (ctor) arguments(k, {ctor->getArgs(), ctor->getNumArgs()});
      stmt(StmtKind::Expression, r, body)->value = k;
      continue;
    }
    if (i->isDelegatingInitializer()) {
      auto* ctor = dyn_cast<clang::CXXConstructExpr>(init->IgnoreImplicit());
      if (!ctor) continue;
      Expr* k = call(attribute(name("self"), constructor_name(ctor->getConstructor())), {}, r);
      arguments(k, {ctor->getArgs(), ctor->getNumArgs()});
      stmt(StmtKind::Expression, r, body)->value = k;
      continue;
    }
    const clang::FieldDecl* f = i->getAnyMember();
    if (!f || f->getNameAsString().empty()) continue;
    Expr* value = expr(init);
    Stmt* s = stmt(StmtKind::Assign, r, body);
    s->targets = {attribute(name("self"), f->getNameAsString())};
    s->value = value;
  }
}

program::Function* Lowering::function(const clang::FunctionDecl* d, const std::string& n, bool method) {
  auto saved_taken = std::move(taken_);
  auto saved_locals = std::move(locals_);
  taken_.clear();
  locals_.clear();
  program::Function* f = arena_.function();
  f->name = n;
  f->range = f->def_range = range(d->getSourceRange());
  if (method) {
    program::Parameter self;
    self.name = "self";
    f->parameters.push_back(self);
  }
  std::vector<Stmt*>* outer = block_;
  block_ = &f->body.fill();
  for (const clang::ParmVarDecl* p : d->parameters()) {
    program::Parameter x;
    x.name = local(p);
    x.range = range(p->getSourceRange());
    const clang::ParmVarDecl* with = p;  // defaults stand at the declaration
    if (!with->hasDefaultArg())
      for (const clang::FunctionDecl* other : d->redecls())
        if (other->getNumParams() > p->getFunctionScopeIndex() && other->getParamDecl(p->getFunctionScopeIndex())->hasDefaultArg())
          with = other->getParamDecl(p->getFunctionScopeIndex());
    if (with->hasDefaultArg()) {
      if (with->hasUninstantiatedDefaultArg()) x.default_value = opaque("a template's default argument", {});
      else x.default_value = expr(with->getDefaultArg());
    }
    f->parameters.push_back(std::move(x));
  }
  if (auto* c = dyn_cast<clang::CXXConstructorDecl>(d)) initialisers(c, f->body.fill());
  if (d->getBody()) {
    f->body_range = range(d->getBody());
    block(d->getBody(), f->body.fill());
  } else {
    stmt(StmtKind::Return, {}, f->body.fill())->value =
        opaque(n + " is declared, but its definition is in no file that was read", f->range);
  }
  if (f->body.fill().empty()) stmt(StmtKind::Pass, {}, f->body.fill());
  block_ = outer;
  taken_ = std::move(saved_taken);
  locals_ = std::move(saved_locals);
  return f;
}

}  // namespace shardwright::cxx
