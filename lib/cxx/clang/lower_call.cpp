// Calls: operators, methods, functions, objects of module classes, options as keyword arguments.
#include <algorithm>

#include "lower.h"

namespace shardwright::cxx {

using clang::CXXRecordDecl;
using clang::dyn_cast;
using clang::isa;

namespace {

const clang::Expr* bare(const clang::Expr* e) {
  for (;;) {
    const clang::Expr* in = e->IgnoreParenImpCasts();
    if (auto* x = dyn_cast<clang::ExprWithCleanups>(in)) in = x->getSubExpr();
    else if (auto* y = dyn_cast<clang::MaterializeTemporaryExpr>(in)) in = y->getSubExpr();
    else if (auto* z = dyn_cast<clang::CXXBindTemporaryExpr>(in)) in = z->getSubExpr();
    else if (auto* f = dyn_cast<clang::CXXFunctionalCastExpr>(in)) in = f->getSubExpr();
    else if (auto* c = dyn_cast<clang::CXXConstructExpr>(in); c && c->getNumArgs() == 1 && c->getConstructor()->isCopyOrMoveConstructor())
      in = c->getArg(0);
    if (in == e) return e;
    e = in;
  }
}

bool defaulted(const clang::Expr* e) { return isa<clang::CXXDefaultArgExpr>(e); }

/// "Linear" of torch::nn::LinearImpl.
std::string layer_name(const CXXRecordDecl* r) {
  llvm::StringRef n = r->getName();
  n.consume_back("Impl");
  return n.str();
}

}  // namespace

// ---- options and arguments -----------------------------------------------------------------------------------------------------

bool Lowering::flatten_options(const clang::Expr* e, std::vector<Argument>& out) {
  e = bare(e);
  auto add = [&](const std::string& key, const clang::Expr* v, Range r) {
    Argument a;
    a.keyword = key;
    a.value = expr(v);
    a.range = r.valid() ? r : a.value->range;
    std::erase_if(out, [&](const Argument& old) { return old.keyword == key; });
    out.push_back(std::move(a));
  };
  if (auto* c = dyn_cast<clang::CXXConstructExpr>(e)) {
    if (!is_options(c->getType()) && !is_options(e->getType())) return false;
    if (c->getNumArgs() == 1 && is_options(c->getArg(0)->getType())) return flatten_options(c->getArg(0), out);
    for (unsigned i = 0; i < c->getNumArgs(); ++i) {
      if (defaulted(c->getArg(i))) continue;
      const clang::FunctionDecl* f = c->getConstructor();
      if (auto from = c->getConstructor()->getInheritedConstructor(); from.getConstructor()) f = from.getConstructor();
      if (i >= f->getNumParams()) return false;
      add(f->getParamDecl(i)->getNameAsString(), c->getArg(i), {});
    }
    return true;
  }
  if (auto* m = dyn_cast<clang::CXXMemberCallExpr>(e); m && m->getNumArgs() == 1 && is_options(m->getImplicitObjectArgument()->getType())) {
    if (!flatten_options(m->getImplicitObjectArgument(), out)) return false;
    add(m->getMethodDecl()->getNameAsString(), m->getArg(0), {});
    return true;
  }
  if (auto* l = dyn_cast<clang::InitListExpr>(e); l && l->getNumInits() == 1) return flatten_options(l->getInit(0), out);
  return false;
}

void Lowering::arguments(Expr* c, llvm::ArrayRef<const clang::Expr*> args) {
  for (const clang::Expr* a : args) {
    if (defaulted(a)) continue;
    if (is_options(a->getType())) {
      std::vector<Argument> flat;
      if (flatten_options(a, flat)) {
        c->args.insert(c->args.end(), flat.begin(), flat.end());
        continue;
      }
    }
    Argument x;
    x.value = expr(a);
    if (is_options(a->getType())) x.value = call(ours("options_of"), {x.value}, {}), x.double_star = true;
    else if (is_tensor_options(a->getType())) x.value = call(ours("tensor_options"), {x.value}, {}), x.double_star = true;
    x.range = x.value->range;
    c->args.push_back(std::move(x));
  }
}

Expr* Lowering::make_object(const CXXRecordDecl* r, llvm::ArrayRef<const clang::Expr*> args, Range whole, Range callee,
                            const clang::CXXConstructorDecl* used) {
  if (is_library(r)) {
    const std::string n = layer_name(r);
    Expr* f = nullptr;
    if (n == "Functional" || n == "ModuleDict" || n == "ModuleList" || n == "ParameterList" || n == "ParameterDict" || n == "Sequential")
      f = ours(n, callee);
    else f = torch("nn." + n, callee);
    Expr* c = call(f, {}, whole);
    arguments(c, args);
    return c;
  }
  pending_.push_back(r);
  if (!used) used = pick_constructor(r, args);
  const std::string ctor = used ? constructor_name(used) : "__init__";
  Expr* cls = name(class_name(r), callee);
  Expr* c = nullptr;
  if (ctor == "__init__") {
    c = call(cls, {}, whole);
  } else {
    c = call(ours("construct"), {cls, string(ctor, {})}, whole);
  }
  if (used && used->isInheritingConstructor() && used->getInheritedConstructor().getConstructor())
    used = used->getInheritedConstructor().getConstructor();
  for (const clang::Expr* a : args) {
    if (defaulted(a)) continue;
    Argument x;
    x.value = expr(a);
    x.range = x.value->range;
    c->args.push_back(std::move(x));
  }
  return c;
}

Expr* Lowering::subscript_key(const clang::Expr* e, Range r) {
  Expr* k = expr(e);
  if (k->kind == ExprKind::String && k->text == "...") k->kind = ExprKind::Ellipsis;
  if (k->kind != ExprKind::List) return k;
  for (Expr* x : k->kids)
    if (x->kind == ExprKind::String && x->text == "...") x->kind = ExprKind::Ellipsis;
  if (k->kids.size() == 1) return k->kids[0];
  Expr* t = make(ExprKind::Tuple, k->range.valid() ? k->range : r);
  t->kids = k->kids;
  return t;
}

// ---- operators -----------------------------------------------------------------------------------------------------------------

Expr* Lowering::operator_call(const clang::CXXOperatorCallExpr* e, Range r) {
  const clang::OverloadedOperatorKind op = e->getOperator();
  const auto* method_decl = llvm::dyn_cast_or_null<clang::CXXMethodDecl>(e->getDirectCallee());
  const bool user = e->getDirectCallee() && !is_library(e->getDirectCallee());
  llvm::ArrayRef<const clang::Expr*> args(e->getArgs(), e->getNumArgs());
  if (op == clang::OO_Call) {
    Expr* c = call(expr(args[0]), {}, r);
    arguments(c, args.drop_front());
    return c;
  }
  if (op == clang::OO_Arrow || (op == clang::OO_Star && args.size() == 1)) {
    Expr* in = expr(args[0]);
    return user && method_decl && !held_by(method_decl->getParent()) ? method(in, function_name(method_decl), {}, r) : in;
  }
  if (op == clang::OO_Subscript) {
    if (user && method_decl) return method(expr(args[0]), function_name(method_decl), {expr(args[1])}, r);
    return subscript(expr(args[0]), expr(args[1]), r);
  }
  if (user && method_decl) {
    Expr* c = method(expr(args[0]), function_name(method_decl), {}, r);
    arguments(c, args.drop_front());
    return c;
  }
  if (user && e->getDirectCallee()) {
    Expr* c = call(name(function_name(e->getDirectCallee())), {}, r);
    arguments(c, args);
    return c;
  }
  const std::string spelled = clang::getOperatorSpelling(op);
  static const std::set<std::string> binary = {"+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>"},
                                     compare = {"<", "<=", ">", ">=", "==", "!="};
  if (args.size() == 1) {
    if (spelled == "++" || spelled == "--") return opaque("an iterator that is moved", r);
    Expr* u = make(ExprKind::Unary, r);
    u->text = spelled == "!" ? (is_tensor(args[0]->getType()) ? "~" : "not") : spelled;
    u->kids = {expr(args[0])};
    return u;
  }
  if (args.size() == 2 && binary.count(spelled)) {
    if ((spelled == "<<" || spelled == ">>") && !is_tensor(args[0]->getType())) return none(r);  // streams
    Expr* b = make(ExprKind::Binary, r);
    b->text = spelled;
    b->kids = {expr(args[0]), expr(args[1])};
    return b;
  }
  if (args.size() == 2 && (spelled == "&&" || spelled == "||")) {
    Expr* b = make(ExprKind::Binary, r);
    b->text = spelled.substr(0, 1);
    b->kids = {expr(args[0]), expr(args[1])};
    return b;
  }
  if (args.size() == 2 && compare.count(spelled)) {
    Expr* c = make(ExprKind::Compare, r);
    c->kids = {expr(args[0]), expr(args[1])};
    c->ops = {spelled};
    if (c->kids[0]->kind == ExprKind::None || c->kids[1]->kind == ExprKind::None) c->ops[0] = spelled == "==" ? "is" : "is not";
    return c;
  }
  return opaque("operator " + spelled + " inside an expression", r);
}

// ---- methods -------------------------------------------------------------------------------------------------------------------

Expr* Lowering::member_call(const clang::CXXMemberCallExpr* e, Range r) {
  const clang::CXXMethodDecl* m = e->getMethodDecl();
  if (!m) return opaque("a pointer to a method", r);
  const clang::Expr* object = e->getImplicitObjectArgument();
  if (isa<clang::CXXConversionDecl>(m)) {
    // `if (mask)`: a holder, pointer or optional that is not empty.
    Expr* in = expr(object);
    if (!e->getType()->isBooleanType()) return in;
    Expr* c = make(ExprKind::Compare, r);
    c->kids = {in, none({})};
    c->ops = {"is not"};
    return c;
  }
  const std::string id = m->getNameAsString();
  llvm::ArrayRef<const clang::Expr*> args(e->getArgs(), e->getNumArgs());
  const CXXRecordDecl* rec = record_of(object->getType());
  const bool user = !is_library(m);
  const auto* callee = dyn_cast<clang::MemberExpr>(e->getCallee()->IgnoreParens());
  auto self = [&]() -> Expr* { return callee && callee->isImplicitAccess() ? name("self", {}) : expr(object); };
  if (!user && is_tensor(object->getType())) return tensor_method(e, id, r);
  const Range callee_range = callee ? range(callee) : Range{};
  // module->forward(x) is module(x)
  if (id == "forward" && is_module(rec) && !(callee && callee->hasQualifier()) && !isa<clang::CXXThisExpr>(bare(object))) {
    Expr* of = self();
    if (callee_range.valid()) of->range = of->outer = callee_range;
    Expr* c = call(of, {}, r);
    arguments(c, args);
    return c;
  }
  if (user) {
    Expr* f = nullptr;
    Expr* c = nullptr;
    if (callee && callee->hasQualifier()) {  // Base::forward(x)
      f = attribute(name(class_name(m->getParent())), function_name(m), callee_range);
      c = call(f, {self()}, r);
    } else {
      f = attribute(self(), function_name(m), callee_range);
      c = call(f, {}, r);
    }
    arguments(c, args);
    return c;
  }
  return library_method(e, rec, id, r);
}

Expr* Lowering::tensor_method(const clang::CXXMemberCallExpr* e, const std::string& id, Range r) {
  const clang::Expr* object = e->getImplicitObjectArgument();
  llvm::ArrayRef<const clang::Expr*> args(e->getArgs(), e->getNumArgs());
  const auto* callee = dyn_cast<clang::MemberExpr>(e->getCallee()->IgnoreParens());
  Expr* of = expr(object);
  const Range cr = callee ? range(callee) : Range{};
  // Attributes there, methods here.
  static const std::map<std::string, std::string> attributes = {{"sizes", "shape"},
                                                                {"sym_sizes", "shape"},
                                                                {"dtype", "dtype"},
                                                                {"scalar_type", "dtype"},
                                                                {"device", "device"},
                                                                {"requires_grad", "requires_grad"},
                                                                {"is_cuda", "is_cuda"},
                                                                {"data", "data"},
                                                                {"grad", "grad"},
                                                                {"mT", "mT"},
                                                                {"mH", "mH"},
                                                                {"is_sparse", "is_sparse"},
                                                                {"itemsize", "itemsize"}};
  if (auto it = attributes.find(id); it != attributes.end() && args.empty()) return attribute(of, it->second, r);
  if (id == "defined") {
    Expr* c = make(ExprKind::Compare, r);
    c->kids = {of, none({})};
    c->ops = {"is not"};
    return c;
  }
  if (id == "index" && !args.empty()) return subscript(of, subscript_key(args[0], r), r);
  if (id == "options") return call(ours("options_of_tensor"), {of}, r);
  if (id == "variable_data" || id == "tensor_data") return attribute(of, "data", r);
  if (id == "toType") return call(attribute(of, "to", cr), {expr(args[0])}, r);
  if (id == "sym_size") return call(attribute(of, "size", cr), {expr(args[0])}, r);
  if (id == "slice" && !args.empty()) {  // x.slice(dim, begin, end, step) is x[:, begin:end:step]
    if (auto d = args[0]->getIntegerConstantExpr(ast_); d && !defaulted(args[0])) {
      auto whole = [&] {
        Expr* s = make(ExprKind::Slice, {});
        s->kids = {nullptr, nullptr, nullptr};
        return s;
      };
      Expr* s = whole();
      for (std::size_t i = 1; i < 4 && i < args.size(); ++i)
        if (!defaulted(args[i]))
          if (Expr* k = expr(args[i]); k->kind != ExprKind::None) s->kids[i - 1] = k;
      const std::int64_t dim = d->getExtValue();
      Expr* key = make(ExprKind::Tuple, {});
      if (dim < 0) key->kids.push_back(make(ExprKind::Ellipsis, {}));
      for (std::int64_t i = 0; i < dim; ++i) key->kids.push_back(whole());
      key->kids.push_back(s);
      for (std::int64_t i = dim; i < -1; ++i) key->kids.push_back(whole());
      return subscript(of, key->kids.size() == 1 ? key->kids[0] : key, r);
    }
  }
  if (id == "index_put_" && args.size() >= 2) return call(ours("put"), {of, subscript_key(args[0], r), expr(args[1])}, r);
  Expr* c = call(attribute(of, id, cr), {}, r);
  arguments(c, args);
  return c;
}

Expr* Lowering::library_method(const clang::CXXMemberCallExpr* e, const CXXRecordDecl* rec, const std::string& id, Range r) {
  const clang::Expr* object = e->getImplicitObjectArgument();
  llvm::ArrayRef<const clang::Expr*> args(e->getArgs(), e->getNumArgs());
  const auto* callee = dyn_cast<clang::MemberExpr>(e->getCallee()->IgnoreParens());
  const Range cr = callee ? range(callee) : Range{};
  Expr* of = callee && callee->isImplicitAccess() ? name("self", {}) : expr(object);
  const std::string q = rec ? qualified(rec) : "";
  std::vector<const clang::Expr*> given;
  for (const clang::Expr* a : args)
    if (!defaulted(a)) given.push_back(a);
  auto arg = [&](std::size_t i) { return expr(given[i]); };
  auto ours_with = [&](const std::string& f) {
    Expr* c = call(ours(f), {of}, r);
    arguments(c, args);
    return c;
  };
  auto compare = [&](const char* op, Expr* a, Expr* b) {
    Expr* c = make(ExprKind::Compare, r);
    c->ops = {op};
    c->kids = {a, b};
    return c;
  };
  // Holders and pointers are what they hold.
  if (id == "ptr" || id == "get" || id == "value" || id == "shared_from_this" || id == "as" || id == "clone_ptr") {
    if (id == "ptr" && !given.empty()) return subscript(of, arg(0), r);  // ModuleList::ptr<T>(i)
    if (id == "value" && llvm::StringRef(q).contains("OrderedDict")) return subscript(of, integer(1, {}), r);
    if (given.empty()) return of;
  }
  if (id == "key" && llvm::StringRef(q).contains("OrderedDict")) return subscript(of, integer(0, {}), r);
  if (id == "has_value") return compare("is not", of, none({}));
  if (id == "is_empty" && (held_by(rec) || llvm::StringRef(q).starts_with("torch::nn::ModuleHolder"))) return compare("is", of, none({}));
  if (id == "value_or") return call(ours("value_or"), {of, arg(0)}, r);
  if (is_module(rec) || held_by(rec)) {
    if (id == "is_training") return attribute(of, "training", r);
    if (id == "push_back") return ours_with("push_back");
    if (id == "extend" || id == "insert" || id == "update" || id == "contains" || id == "items" || id == "keys" || id == "values" ||
        id == "size" || id == "is_empty")
      return ours_with("module_" + id);
    if (id == "at" || id == "operator[]") return subscript(of, arg(0), r);
    if (id == "begin" || id == "end") return ours_with(id);
    if (id == "clone") return call(ours("deepcopy"), {of}, r);
    if (id == "register_module" || id == "replace_module" || id == "register_parameter" || id == "register_buffer") {
      Expr* c = call(attribute(of, id == "replace_module" ? "register_module" : id, cr), {}, r);
      arguments(c, args);
      return c;
    }
    if (id == "apply" || id == "to" || id == "train" || id == "eval" || id == "parameters" || id == "buffers" || id == "children" ||
        id == "modules" || id == "named_parameters" || id == "named_buffers" || id == "named_children" || id == "named_modules" ||
        id == "pretty_print" || id == "name" || id == "zero_grad" || id == "requires_grad_" || id == "reset_parameters") {
      if (id == "name") return call(ours("class_name"), {of}, r);
      if (id == "parameters" || id == "buffers" || id == "children" || id == "modules" || llvm::StringRef(id).starts_with("named_"))
        return ours_with("listed_" + id);
      Expr* c = call(attribute(of, id, cr), {}, r);
      arguments(c, args);
      return c;
    }
    Expr* c = call(attribute(of, id, cr), {}, r);
    arguments(c, args);
    return c;
  }
  if (is_sequence(rec)) {
    if (id == "size") return call(name("len"), {of}, r);
    if (id == "empty") return compare("==", call(name("len"), {of}, {}), integer(0, {}));
    if (id == "at" || id == "operator[]" || id == "get") return subscript(of, arg(0), r);
    if (id == "front") return subscript(of, integer(0, {}), r);
    if (id == "back") return subscript(of, integer(-1, {}), r);
    if (id == "push_back" || id == "emplace_back") {
      Expr* c = call(attribute(of, "append", cr), {}, r);
      const clang::QualType item = [&] {
        auto* s = dyn_cast<clang::ClassTemplateSpecializationDecl>(rec);
        return s && s->getTemplateArgs().size() > 0 && s->getTemplateArgs()[0].getKind() == clang::TemplateArgument::Type
            ? s->getTemplateArgs()[0].getAsType()
            : clang::QualType();
      }();
      const CXXRecordDecl* ir = record_of(item);
      const bool built = id == "emplace_back" && ir && !is_tensor(item) && !(given.size() == 1 && record_of(given[0]->getType()) == ir);
      Expr* v = nullptr;
      if (built && held_by(ir)) v = make_object(held_by(ir), given, r, cr, nullptr);
      else if (built && (!is_library(ir) || is_module(ir))) v = make_object(ir, given, r, cr, nullptr);
      else if (built && is_tuple(ir)) {
        v = make(ExprKind::Tuple, r);
        for (const clang::Expr* g : given) v->kids.push_back(expr(g));
      } else v = given.empty() ? none({}) : arg(0);
      Argument x;
      x.value = v;
      x.range = v->range;
      c->args.push_back(std::move(x));
      return c;
    }
    if (id == "pop_back") return call(attribute(of, "pop", cr), {}, r);
    if (id == "clear") return call(attribute(of, "clear", cr), {}, r);
    if (id == "reserve" || id == "shrink_to_fit") return none(r);
    if (id == "vec" || id == "toVector") return call(name("list"), {of}, r);
    if (id == "slice" || id == "resize" || id == "assign" || id == "insert" || id == "erase" || id == "begin" || id == "end" ||
        id == "rbegin" || id == "rend" || id == "cbegin" || id == "cend" || id == "drop_front" || id == "drop_back")
      return ours_with(id);
    if (id == "equals") return compare("==", of, arg(0));
  }
  if (is_map(rec)) {
    if (id == "size") return call(name("len"), {of}, r);
    if (id == "empty" || id == "is_empty") return compare("==", call(name("len"), {of}, {}), integer(0, {}));
    if (id == "at" || id == "operator[]") return subscript(of, arg(0), r);
    if (id == "count" || id == "contains") return compare("in", arg(0), of);
    if (id == "emplace" || id == "insert" || id == "insert_or_assign" || id == "try_emplace" || id == "keys" || id == "values" ||
        id == "items" || id == "pairs" || id == "find" || id == "end" || id == "begin")
      return ours_with("map_" + id);
  }
  if (is_std(rec, "basic_string") || is_std(rec, "string")) {
    if (id == "size" || id == "length") return call(name("len"), {of}, r);
    if (id == "empty") return compare("==", of, string("", {}));
    if (id == "c_str" || id == "str") return of;
    return ours_with("string_" + id);
  }
  if (is_tensor_options(object->getType())) {
    Expr* c = call(attribute(call(ours("TensorOptions"), {of}, {}), id, cr), {}, r);
    arguments(c, args);
    return c;
  }
  if (q == "c10::Device" || q == "caffe2::TypeMeta") {
    if (id == "is_cuda" || id == "is_cpu") return compare("==", attribute(of, "type"), string(id.substr(3), {}));
    return attribute(of, id, r);
  }
  if (q == "c10::Scalar") return of;
  Expr* c = call(attribute(of, id, cr), {}, r);
  arguments(c, args);
  return c;
}

// ---- functions -----------------------------------------------------------------------------------------------------------------

Expr* Lowering::free_call(const clang::CallExpr* e, const clang::FunctionDecl* f, Range r) {
  llvm::ArrayRef<const clang::Expr*> args(e->getArgs(), e->getNumArgs());
  const Range cr = range(e->getCallee());
  if (!is_library(f)) {
    Expr* callee = nullptr;
    if (auto* m = dyn_cast<clang::CXXMethodDecl>(f)) callee = attribute(name(class_name(m->getParent())), function_name(m), cr);  // static
    else callee = name(function_name(f), cr);
    Expr* c = call(callee, {}, r);
    arguments(c, args);
    return c;
  }
  const std::string q = qualified(f);
  const std::string id = f->getNameAsString();
  const llvm::StringRef qs(q);
  auto with = [&](Expr* callee) {
    Expr* c = call(callee, {}, r);
    arguments(c, args);
    return c;
  };
  if (qs.starts_with("torch::nn::functional::")) return with(attribute(ours("functional"), id, cr));
  if (qs.starts_with("torch::nn::init::")) return with(torch("nn.init." + id, cr));
  if (qs.starts_with("at::indexing::")) return opaque(q, r);
  if (qs.starts_with("torch::linalg::") || qs.starts_with("torch::linalg::detail::"))
    return with(torch("linalg." + (qs.starts_with("torch::linalg::detail::") ? id : id), cr));
  if (qs.starts_with("torch::fft::")) return with(torch("fft." + id, cr));
  if (qs.starts_with("torch::special::")) return with(torch("special." + id, cr));
  if ((qs.starts_with("torch::") || qs.starts_with("c10::") || qs.starts_with("at::")) &&
      (id == "dtype" || id == "device" || id == "requires_grad" || id == "layout") && args.size() == 1 && is_tensor_options(e->getType()))
    return call(attribute(call(ours("TensorOptions"), {}, {}), id, cr), {expr(args[0])}, r);
  if (in_namespace(f, "at") || in_namespace(f, "torch") || in_namespace(f, "c10")) {
    if (id == "str" || id == "size") return with(ours("std_" + id, cr));
    return with(attribute(ours("at"), id, cr));
  }
  return std_call(e, f, r);
}

Expr* Lowering::std_call(const clang::CallExpr* e, const clang::FunctionDecl* f, Range r) {
  llvm::ArrayRef<const clang::Expr*> args(e->getArgs(), e->getNumArgs());
  const std::string id = f->getNameAsString();
  const Range cr = range(e->getCallee());
  auto result_record = [&] { return record_of(e->getType()); };
  if ((id == "move" || id == "forward" || id == "ref" || id == "cref" || id == "as_const" || id == "make_optional" ||
       id == "static_pointer_cast" || id == "dynamic_pointer_cast") &&
      args.size() == 1)
    return expr(args[0]);
  if (id == "make_shared" || id == "make_unique") {
    const CXXRecordDecl* in = nullptr;
    if (const auto* t = f->getTemplateSpecializationArgs(); t && t->size() > 0 && t->get(0).getKind() == clang::TemplateArgument::Type)
      in = record_of(t->get(0).getAsType());
    if (in && (is_module(in) || !is_library(in))) return make_object(in, args, r, cr, nullptr);
  }
  if (id == "get" && args.size() == 1) {
    const auto* t = f->getTemplateSpecializationArgs();
    if (t && t->size() > 0 && t->get(0).getKind() == clang::TemplateArgument::Integral)
      return subscript(expr(args[0]), integer(t->get(0).getAsIntegral().getExtValue(), {}), r);
    return expr(args[0]);  // of a variant
  }
  if (id == "make_tuple" || id == "make_pair" || id == "tie" || id == "forward_as_tuple") {
    Expr* t = make(ExprKind::Tuple, r);
    for (const clang::Expr* a : args) t->kids.push_back(expr(a));
    return t;
  }
  if (id == "infinity" || id == "max" || id == "min" || id == "lowest" || id == "epsilon" || id == "quiet_NaN") {
    if (auto* m = dyn_cast<clang::CXXMethodDecl>(f); m && m->isStatic() && m->getParent()->getName() == "numeric_limits") {
      Expr* c = call(ours("limit"),
                     {string(id, {}),
                      e->getType()->isFloatingType() ? string(ast_.getTypeSize(e->getType()) == 32 ? "float" : "double", {})
                                                     : string(e->getType().getAsString(), {})},
                     r);
      return c;
    }
  }
  (void)result_record;
  Expr* c = call(ours("std_" + id, cr), {}, r);
  arguments(c, args);
  return c;
}

}  // namespace shardwright::cxx
