// Expressions other than calls: literals, names, members, casts, operators, lists and constructed objects.
#include <clang/AST/ExprCXX.h>
#include <llvm/ADT/SmallString.h>

#include <cmath>

#include "lower.h"

namespace shardwright::cxx {

using clang::CXXRecordDecl;
using clang::dyn_cast;
using clang::isa;

// ---- nodes -------------------------------------------------------------------------------------------------------------------

Expr* Lowering::name(const std::string& n, Range r) {
  Expr* e = make(ExprKind::Name, r);
  e->text = n;
  return e;
}

Expr* Lowering::attribute(Expr* of, const std::string& n, Range r) {
  Expr* e = make(ExprKind::Attribute, r);
  e->text = n;
  e->kids = {of};
  return e;
}

Expr* Lowering::torch(const std::string& dotted, Range r) {
  Expr* e = name("_torch");
  for (std::size_t at = 0; at != std::string::npos;) {
    const std::size_t dot = dotted.find('.', at);
    e = attribute(e, dotted.substr(at, dot == std::string::npos ? dot : dot - at), dot == std::string::npos ? r : Range{});
    at = dot == std::string::npos ? dot : dot + 1;
  }
  return e;
}

Expr* Lowering::call(Expr* callee, std::vector<Expr*> args, Range r) {
  Expr* e = make(ExprKind::Call, r);
  e->kids = {callee};
  for (Expr* a : args) {
    Argument x;
    x.value = a;
    x.range = a->range;
    e->args.push_back(std::move(x));
  }
  return e;
}

Expr* Lowering::integer(std::int64_t v, Range r) {
  Expr* e = make(ExprKind::Int, r);
  e->integer = v;
  return e;
}

Expr* Lowering::string(const std::string& s, Range r) {
  Expr* e = make(ExprKind::String, r);
  e->text = s;
  return e;
}

Expr* Lowering::opaque(const std::string& why, Range r) {
  Expr* e = make(ExprKind::Opaque, r);
  e->text = why;
  return e;
}

Expr* Lowering::subscript(Expr* of, Expr* key, Range r) {
  Expr* e = make(ExprKind::Subscript, r);
  e->kids = {of, key};
  return e;
}

// ---- expressions -------------------------------------------------------------------------------------------------------------

Expr* Lowering::expr(const clang::Expr* e) {
  if (!e) return none({});
  Range outer = range(e);
  bool parens = false;
  for (;;) {  // what only holds another expression
    const clang::Expr* in = nullptr;
    if (auto* x = dyn_cast<clang::ParenExpr>(e)) in = x->getSubExpr(), parens = true;
    else if (auto* x2 = dyn_cast<clang::ExprWithCleanups>(e)) in = x2->getSubExpr();
    else if (auto* x3 = dyn_cast<clang::MaterializeTemporaryExpr>(e)) in = x3->getSubExpr();
    else if (auto* x4 = dyn_cast<clang::CXXBindTemporaryExpr>(e)) in = x4->getSubExpr();
    else if (auto* x5 = dyn_cast<clang::ConstantExpr>(e)) in = x5->getSubExpr();
    else if (auto* x6 = dyn_cast<clang::SubstNonTypeTemplateParmExpr>(e)) in = x6->getReplacement();
    else if (auto* x7 = dyn_cast<clang::CXXStdInitializerListExpr>(e)) in = x7->getSubExpr();
    else if (auto* x8 = dyn_cast<clang::CXXDefaultInitExpr>(e)) in = x8->getExpr();
    else if (auto* x9 = dyn_cast<clang::CXXRewrittenBinaryOperator>(e)) in = x9->getSemanticForm();
    else if (auto* y = dyn_cast<clang::OpaqueValueExpr>(e)) in = y->getSourceExpr();
    else if (auto* z = dyn_cast<clang::CXXDefaultArgExpr>(e)) in = z->getExpr();
    if (!in) break;
    e = in;
  }
  Range r = range(e);
  Expr* out = inner(e, r);
  if (parens && outer.valid() && out->range == r && outer.contains(r)) out->outer = outer;
  else if (out->range.valid() && !(out->outer.valid())) out->outer = out->range;
  return out;
}

Expr* Lowering::inner(const clang::Expr* e, Range r) {
  if (auto* x = dyn_cast<clang::CastExpr>(e)) return cast(x, r);
  if (auto* x = dyn_cast<clang::IntegerLiteral>(e)) return integer(static_cast<std::int64_t>(x->getValue().getLimitedValue()), r);
  if (auto* x = dyn_cast<clang::FloatingLiteral>(e)) {
    Expr* f = make(ExprKind::Float, r);
    f->number = x->getValueAsApproximateDouble();
    return f;
  }
  if (auto* x = dyn_cast<clang::CXXBoolLiteralExpr>(e)) return make(x->getValue() ? ExprKind::True : ExprKind::False, r);
  if (auto* x = dyn_cast<clang::StringLiteral>(e)) return string(x->getCharByteWidth() == 1 ? x->getString().str() : "", r);
  if (auto* x = dyn_cast<clang::CharacterLiteral>(e)) return string(std::string(1, static_cast<char>(x->getValue())), r);
  if (isa<clang::CXXNullPtrLiteralExpr, clang::GNUNullExpr>(e)) return none(r);
  if (isa<clang::CXXThisExpr>(e)) return name("self", r);
  if (auto* x = dyn_cast<clang::DeclRefExpr>(e)) return reference(x, r);
  if (auto* x = dyn_cast<clang::MemberExpr>(e)) return member(x, r);
  if (auto* x = dyn_cast<clang::CXXOperatorCallExpr>(e)) return operator_call(x, r);
  if (auto* x = dyn_cast<clang::CXXMemberCallExpr>(e)) return member_call(x, r);
  if (auto* x = dyn_cast<clang::UserDefinedLiteral>(e)) {  // "name"s
    return x->getNumArgs() > 0 ? expr(x->getArg(0)) : opaque("literal operator", r);
  }
  if (auto* x = dyn_cast<clang::CallExpr>(e)) {
    if (const auto* f = x->getDirectCallee()) return free_call(x, f, r);
    Expr* c = call(expr(x->getCallee()), {}, r);  // a function pointer
    arguments(c, {x->getArgs(), x->getNumArgs()});
    return c;
  }
  if (auto* x = dyn_cast<clang::InitListExpr>(e)) return init_list(x, r);
  if (auto* x = dyn_cast<clang::CXXConstructExpr>(e)) return construct(x, r);
  if (auto* x = dyn_cast<clang::CXXNewExpr>(e)) return x->getInitializer() ? expr(x->getInitializer()) : opaque("new", r);
  if (auto* x = dyn_cast<clang::CXXScalarValueInitExpr>(e))
    return x->getType()->isFloatingType() ? make(ExprKind::Float, r) : integer(0, r);
  if (auto* x = dyn_cast<clang::ImplicitValueInitExpr>(e)) {
    if (x->getType()->isArithmeticType()) return x->getType()->isBooleanType() ? make(ExprKind::False, r) : integer(0, r);
    return none(r);
  }
  if (auto* x = dyn_cast<clang::ArraySubscriptExpr>(e)) return subscript(expr(x->getBase()), expr(x->getIdx()), r);
  if (auto* x = dyn_cast<clang::LambdaExpr>(e)) {
    const std::string n = fresh("_lambda");
    lambda(x, n, *block_);
    return name(n, r);
  }
  if (auto* x = dyn_cast<clang::AbstractConditionalOperator>(e)) {
    Expr* c = make(ExprKind::Conditional, r);
    c->kids = {expr(x->getTrueExpr()), expr(x->getCond()), expr(x->getFalseExpr())};
    return c;
  }
  if (auto* x = dyn_cast<clang::UnaryOperator>(e)) {
    switch (x->getOpcode()) {
      case clang::UO_AddrOf:
      case clang::UO_Deref:
      case clang::UO_Extension: return expr(x->getSubExpr());
      case clang::UO_Plus:
      case clang::UO_Minus:
      case clang::UO_Not:
      case clang::UO_LNot: {
        Expr* u = make(ExprKind::Unary, r);
        u->text = x->getOpcode() == clang::UO_Plus ? "+"
            : x->getOpcode() == clang::UO_Minus    ? "-"
            : x->getOpcode() == clang::UO_Not      ? "~"
                                                   : "not";
        u->kids = {expr(x->getSubExpr())};
        return u;
      }
      default: break;
    }
    // ++i: the variable's new value. i++: its old one, which is the new one less the step.
    const clang::Expr* v = x->getSubExpr()->IgnoreParenImpCasts();
    if ((x->isIncrementOp() || x->isDecrementOp()) && isa<clang::DeclRefExpr>(v)) {
      auto step = [&](const char* op, Expr* of) {
        Expr* b = make(ExprKind::Binary, {});
        b->text = op;
        b->kids = {of, integer(1, {})};
        return b;
      };
      Expr* w = make(ExprKind::Walrus, r);
      w->kids = {expr(v), step(x->isIncrementOp() ? "+" : "-", expr(v))};
      return x->isPrefix() ? w : step(x->isIncrementOp() ? "-" : "+", w);
    }
    return opaque("operator " + clang::UnaryOperator::getOpcodeStr(x->getOpcode()).str() + " inside an expression", r);
  }
  if (auto* x = dyn_cast<clang::BinaryOperator>(e)) {
    if (x->isAssignmentOp()) {
      const clang::Expr* v = x->getLHS()->IgnoreParenImpCasts();
      if (x->getOpcode() != clang::BO_Assign || !isa<clang::DeclRefExpr>(v)) return opaque("assignment inside an expression", r);
      Expr* w = make(ExprKind::Walrus, r);
      w->kids = {expr(v), expr(x->getRHS())};
      return w;
    }
    Expr* a = expr(x->getLHS());
    Expr* b = expr(x->getRHS());
    if (x->isLogicalOp()) {
      Expr* o = make(ExprKind::BoolOp, r);
      o->text = x->getOpcode() == clang::BO_LAnd ? "and" : "or";
      o->kids = {a, b};
      return o;
    }
    if (x->isComparisonOp()) {
      Expr* o = make(ExprKind::Compare, r);
      o->ops = {x->getOpcodeStr().str()};
      if (b->kind == ExprKind::None || a->kind == ExprKind::None) o->ops[0] = x->getOpcode() == clang::BO_EQ ? "is" : "is not";
      o->kids = {a, b};
      return o;
    }
    if (x->getOpcode() == clang::BO_Comma) return opaque("comma operator", r);
    Expr* o = make(ExprKind::Binary, r);
    o->text = x->getOpcodeStr().str();
    if (x->getOpcode() == clang::BO_Div && x->getType()->isIntegerType()) o->text = "//";
    o->kids = {a, b};
    return o;
  }
  if (auto* x = dyn_cast<clang::SizeOfPackExpr>(e)) return integer(x->getPackLength(), r);
  clang::Expr::EvalResult value;
  if (!e->isValueDependent() && e->EvaluateAsRValue(value, ast_)) {
    if (value.Val.isInt()) return integer(value.Val.getInt().getExtValue(), r);
    if (value.Val.isFloat()) {
      Expr* f = make(ExprKind::Float, r);
      f->number = value.Val.getFloat().convertToDouble();
      return f;
    }
  }
  return opaque(e->getStmtClassName(), r);
}

Expr* Lowering::cast(const clang::CastExpr* e, Range r) {
  const clang::Expr* sub = e->getSubExpr();
  // dynamic casts and conversions between classes are what they convert.
  if (e->getCastKind() == clang::CK_ToVoid) return none(r);
  const clang::QualType to = e->getType(), from = sub->getType();
  const bool number = e->getCastKind() == clang::CK_FloatingToIntegral ||
      (isa<clang::ExplicitCastExpr>(e) && to->isArithmeticType() && (from->isArithmeticType() || from->isRecordType()));
  Expr* in = expr(sub);
  if (e->getCastKind() == clang::CK_UserDefinedConversion || !number) {
    if (isa<clang::ExplicitCastExpr>(e) && in->range.valid() && r.valid() && !r.contains(in->range)) return in;
    return in;
  }
  if (to->isBooleanType()) return from->isBooleanType() ? in : call(name("bool"), {in}, r);
  if (to->isFloatingType()) return from->isFloatingType() ? in : call(name("float"), {in}, r);
  if (from->isIntegralOrEnumerationType() && !from->isBooleanType()) return in;
  return call(name("int"), {in}, r);
}

Expr* Lowering::reference(const clang::DeclRefExpr* e, Range r) {
  const clang::ValueDecl* d = e->getDecl();
  const std::string id = d->getNameAsString();
  if (auto* c = dyn_cast<clang::EnumConstantDecl>(d)) {
    const std::string q = qualified(c);
    if (std::string t = dtype_of(id); !t.empty() && llvm::StringRef(q).contains("ScalarType")) return torch(t, r);
    if (in_namespace(c, "c10") || in_namespace(c, "torch") || in_namespace(c, "at")) {
      if (llvm::StringRef(q).contains("EllipsisIndexType")) return make(ExprKind::Ellipsis, r);
      return string(id, r);
    }
    return integer(c->getInitVal().getExtValue(), r);
  }
  if (is_library(d)) {
    if (std::string t = dtype_of(id); !t.empty()) return torch(t, r);
    const std::string q = qualified(d);
    if (id == "nullopt" || q == "at::indexing::None") return none(r);
    if (q == "at::indexing::Ellipsis") return make(ExprKind::Ellipsis, r);
    if (id == "kCPU") return string("cpu", r);
    if (id == "kCUDA") return string("cuda", r);
    if (q == "std::ignore") return name("_ignored", r);
    const CXXRecordDecl* t = record_of(d->getType());
    if (t && llvm::StringRef(qualified(t)).starts_with("torch::enumtype::")) return string(enum_word(t->getName()), r);
    if (isa<clang::FunctionDecl>(d)) {
      if (in_namespace(d, "at") || in_namespace(d, "torch")) return attribute(ours("at"), id, r);
      return ours("std_" + id, r);
    }
    if (auto* v = dyn_cast<clang::VarDecl>(d); v && v->getAnyInitializer() && !v->getAnyInitializer()->isValueDependent()) {
      clang::Expr::EvalResult value;
      if (e->EvaluateAsRValue(value, ast_)) {
        if (value.Val.isInt()) return integer(value.Val.getInt().getExtValue(), r);
        if (value.Val.isFloat()) {
          Expr* f = make(ExprKind::Float, r);
          f->number = value.Val.getFloat().convertToDouble();
          return f;
        }
      }
    }
    return opaque(q, r);
  }
  if (auto* f = dyn_cast<clang::FunctionDecl>(d)) {
    if (auto* m = dyn_cast<clang::CXXMethodDecl>(f)) return attribute(name(class_name(m->getParent())), function_name(m), r);
    return name(function_name(f), r);
  }
  if (auto* v = dyn_cast<clang::VarDecl>(d); v && v->isStaticDataMember()) {
    if (auto* c = dyn_cast<CXXRecordDecl>(v->getDeclContext())) return attribute(name(class_name(c)), id, r);
  }
  if (d->getType()->isReferenceType() || !d->isTemplateParameter()) return name(local(d), r);
  return opaque(id, r);
}

Expr* Lowering::member(const clang::MemberExpr* e, Range r) {
  const clang::ValueDecl* d = e->getMemberDecl();
  const std::string id = d->getNameAsString();
  if (auto* v = dyn_cast<clang::VarDecl>(d)) {  // a static member through an object
    if (auto* c = dyn_cast<CXXRecordDecl>(v->getDeclContext())) return attribute(name(class_name(c)), id, r);
  }
  const auto* owner = dyn_cast<CXXRecordDecl>(d->getDeclContext());
  Expr* base = e->isImplicitAccess() ? name("self", {}) : expr(e->getBase());
  if (owner && isa<clang::FieldDecl>(d) && llvm::cast<clang::FieldDecl>(d)->isAnonymousStructOrUnion()) return base;
  if (owner && is_std(owner, "pair")) return subscript(base, integer(id == "second" ? 1 : 0, {}), r);
  return attribute(base, id, r);
}

Expr* Lowering::init_list(const clang::InitListExpr* e, Range r) {
  if (!e->isSemanticForm() && e->getSemanticForm()) e = e->getSemanticForm();
  const CXXRecordDecl* rec = e->getType()->isRecordType() ? record_of(e->getType()) : nullptr;
  if (!rec && !e->getType()->isArrayType() && !e->getType()->isVoidType()) {
    if (e->getNumInits() == 1) return expr(e->getInit(0));
    if (e->getNumInits() == 0) return e->getType()->isArithmeticType() ? integer(0, r) : none(r);
  }
  if (rec && !is_library(rec)) {  // an aggregate: its fields by name
    Expr* c = call(name(class_name(rec)), {}, r);
    unsigned i = 0;
    for (const auto& base : rec->bases()) {
      (void)base;
      ++i;  // initialised by its own list: the fields below are those of this class
    }
    for (const clang::FieldDecl* f : rec->fields()) {
      if (i >= e->getNumInits()) break;
      const clang::Expr* v = e->getInit(i++);
      if (isa<clang::CXXDefaultInitExpr, clang::ImplicitValueInitExpr>(v)) continue;
      Argument a;
      a.keyword = f->getNameAsString();
      a.value = expr(v);
      a.range = a.value->range;
      c->args.push_back(std::move(a));
    }
    return c;
  }
  if (rec && !is_sequence(rec) && e->getNumInits() == 1) return expr(e->getInit(0));
  Expr* l = make(rec && is_tuple(rec) ? ExprKind::Tuple : ExprKind::List, r);
  const clang::InitListExpr* items = e;
  if (rec && is_std(rec, "array") && e->getNumInits() == 1)
    if (auto* in = dyn_cast<clang::InitListExpr>(e->getInit(0)->IgnoreImplicit())) items = in;
  for (const clang::Expr* x : items->inits()) l->kids.push_back(expr(x));
  return l;
}

Expr* Lowering::make_vector(const CXXRecordDecl* rec_made, llvm::ArrayRef<const clang::Expr*> args, Range r) {
  const bool counted = is_std(rec_made, "vector") || is_std(rec_made, "deque") || is_std(rec_made, "list");  // vector(n, value)
  // Arguments of allocators and defaults are not written.
  std::vector<const clang::Expr*> given;
  for (const clang::Expr* a : args)
    if (!isa<clang::CXXDefaultArgExpr>(a)) given.push_back(a);
  if (given.empty()) return make(ExprKind::List, r);
  const clang::Expr* first = given[0]->IgnoreImplicit();
  if (given.size() == 1) {
    if (auto* l = dyn_cast<clang::InitListExpr>(first)) {
      Expr* out = init_list(l, r);
      return out->kind == ExprKind::List ? out : [&] {
        Expr* one = make(ExprKind::List, r);
        one->kids = {out};
        return one;
      }();
    }
    const clang::QualType t = given[0]->getType();
    const CXXRecordDecl* rec = record_of(t);
    if (t->isIntegerType() && counted) return call(ours("filled"), {expr(given[0])}, r);
    if (rec && (is_sequence(rec) || is_map(rec))) return expr(given[0]);
    return expr(given[0]);
  }
  if (counted && given.size() == 2 && record_of(given[0]->getType()) == nullptr && given[0]->getType()->isIntegerType())
    return call(ours("filled"), {expr(given[0]), expr(given[1])}, r);
  return call(ours("between"), {expr(given[0]), expr(given[1])}, r);
}

Expr* Lowering::construct(const clang::CXXConstructExpr* e, Range r) {
  const clang::CXXConstructorDecl* ctor = e->getConstructor();
  const CXXRecordDecl* rec = ctor->getParent()->getDefinition() ? ctor->getParent()->getDefinition() : ctor->getParent();
  if (auto* t = record_of(e->getType())) rec = t;  // inherited constructors make the derived class
  llvm::ArrayRef<const clang::Expr*> args(e->getArgs(), e->getNumArgs());
  std::vector<const clang::Expr*> given;
  for (const clang::Expr* a : args)
    if (!isa<clang::CXXDefaultArgExpr>(a)) given.push_back(a);
  Range callee = r;
  if (auto* tmp = dyn_cast<clang::CXXTemporaryObjectExpr>(e); tmp && tmp->getTypeSourceInfo())
    callee = range(tmp->getTypeSourceInfo()->getTypeLoc().getSourceRange());
  else if (r.valid() && e->getParenOrBraceRange().isValid())  // `Linear fc(a, b)`, a member initialiser: up to the parenthesis
    if (Range p = range(e->getParenOrBraceRange()); p.valid() && p.file == r.file && p.begin > r.begin) callee.end = p.begin;

  if (ctor->isCopyOrMoveConstructor() && given.size() == 1) {
    Expr* in = expr(given[0]);
    // Values are copied: a struct or a vector that is changed afterwards is another one.
    const bool copies = given[0]->isLValue() && ctor->isCopyConstructor() && !is_tensor(e->getType()) && !held_by(rec) && !is_module(rec) &&
        (is_sequence(rec) || is_map(rec) || !is_library(rec));
    return copies ? call(ours("copy"), {in}, r) : in;
  }
  if (const CXXRecordDecl* impl = held_by(rec)) {
    if (given.size() == 1) {
      const CXXRecordDecl* a = record_of(given[0]->getType());
      if (given[0]->getType()->isNullPtrType() || isa<clang::CXXNullPtrLiteralExpr>(given[0]->IgnoreImplicit())) return none(r);
      if (a && (held_by(a) == impl || a == impl || (held_by(a) && derives_from(held_by(a), qualified(impl))))) return expr(given[0]);
    }
    if (given.empty() && !derives_from(rec, "torch::nn::ModuleHolder")) return none(r);  // an empty shared_ptr
    return make_object(impl, given, r, callee, nullptr);
  }
  if (is_tensor(e->getType()) || qualified(rec) == "at::OptionalTensorRef") return given.empty() ? none(r) : expr(given[0]);
  if (is_tensor_options(e->getType())) return given.empty() ? call(ours("TensorOptions"), {}, r) : expr(given[0]);
  if (is_sequence(rec)) return make_vector(rec, given, r);
  if (is_tuple(rec)) {
    if (given.size() == 1 && is_tuple(record_of(given[0]->getType()))) return expr(given[0]);
    Expr* t = make(ExprKind::Tuple, r);
    for (const clang::Expr* a : given) t->kids.push_back(expr(a));
    return t;
  }
  if (is_map(rec)) {
    if (given.size() == 1) return call(ours("mapping"), {expr(given[0])}, r);
    return make(ExprKind::Dict, r);
  }
  const std::string q = qualified(rec);
  if (q == "at::indexing::Slice") {
    Expr* s = make(ExprKind::Slice, r);
    for (std::size_t i = 0; i < 3; ++i) {
      Expr* k = i < given.size() ? expr(given[i]) : nullptr;
      s->kids.push_back(k && k->kind == ExprKind::None ? nullptr : k);
    }
    return s;
  }
  if (is_options(e->getType()) && !given.empty() && !is_options(given[0]->getType()) && is_library(rec)) {
    Expr* c = call(ours("Options"), {}, r);
    flatten_options(e, c->args);
    return c;
  }
  if (is_options(e->getType())) return given.empty() ? call(ours("Options"), {}, r) : expr(given[0]);
  if (!is_library(rec)) {
    if (rec->isLambda()) return given.empty() ? none(r) : expr(given[0]);
    return make_object(rec, given, r, callee, ctor);
  }
  if (is_module(rec)) return make_object(rec, given, r, callee, nullptr);
  if (is_std(rec, "basic_string") || is_std(rec, "string")) {
    if (given.size() == 2) return call(ours("repeated"), {expr(given[0]), expr(given[1])}, r);
    return given.empty() ? string("", r) : expr(given[0]);
  }
  if (q == "torch::nn::NamedAnyModule") {
    Expr* t = make(ExprKind::Tuple, r);
    for (const clang::Expr* a : given) t->kids.push_back(expr(a));
    return t;
  }
  if (q == "c10::Device" && given.size() == 2) return call(torch("device"), {expr(given[0]), expr(given[1])}, r);
  // Wrappers of one value: optional, Scalar, function, AnyModule, TensorIndex, enum variants…
  if (given.size() == 1) return expr(given[0]);
  if (given.empty()) return none(r);
  if (q == "std::complex" || q == "c10::complex") return call(name("complex"), {expr(given[0]), expr(given[1])}, r);
  return opaque("an object of " + q, r);
}

}  // namespace shardwright::cxx
