// From Clang's syntax tree of LibTorch code to the language-neutral program.
//
// C++ is written down as what it means in the terms that the interpreter runs: a class with its constructor's initialisers as
// assignments, `self` for `this`, holders and smart pointers as what they point to, options objects as keyword arguments,
// torch::nn::Linear as torch.nn.Linear, integer division as //. What has no such form calls rules/layers/shardwright_cxx (names
// `_cxx.…`), a description of LibTorch's and the standard library's parts in Python. What is not understood becomes Opaque with
// its reason: the interpreter carries it as an unknown.
//
// Every node carries the bytes it came from. What stands in a macro's expansion has no range of its own (Range{}): nothing can be
// edited there.
#pragma once
#include <clang/AST/ASTContext.h>
#include <clang/AST/DeclTemplate.h>
#include <clang/AST/ExprCXX.h>
#include <clang/AST/StmtCXX.h>

#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "program/program.h"

namespace clang {
class Sema;
}

namespace shardwright::cxx {

using program::Argument;
using program::Expr;
using program::ExprKind;
using program::Stmt;
using program::StmtKind;
using support::Range;

// ---- what a type or declaration is (names.cpp) --------------------------------------------------------------------------------

/// The class behind references, pointers and typedefs; nullptr for other types.
const clang::CXXRecordDecl* record_of(clang::QualType t);
/// "torch::nn::LinearImpl": without template arguments and inline namespaces.
std::string qualified(const clang::NamedDecl* d);
/// Of LibTorch or the standard library: described, not read.
bool is_library(const clang::Decl* d);
bool is_library_path(llvm::StringRef file);
bool in_namespace(const clang::Decl* d, llvm::StringRef outermost);
/// The module class that a holder (TORCH_MODULE) or std::shared_ptr of a module holds; nullptr for other classes.
const clang::CXXRecordDecl* held_by(const clang::CXXRecordDecl* r);
bool derives_from(const clang::CXXRecordDecl* r, llvm::StringRef qualified_base);
bool is_module(const clang::CXXRecordDecl* r);
bool is_tensor(clang::QualType t);
bool is_tensor_options(clang::QualType t);
/// torch::nn::LinearOptions, torch::nn::functional::SoftmaxFuncOptions…
bool is_options(clang::QualType t);
bool is_std(const clang::CXXRecordDecl* r, llvm::StringRef name);
/// std::vector, c10::ArrayRef, std::array, c10::List…: a list.
bool is_sequence(const clang::CXXRecordDecl* r);
bool is_tuple(const clang::CXXRecordDecl* r);
bool is_map(const clang::CXXRecordDecl* r);
/// "torch.float32" and its like for torch::kFloat; "" for anything else.
std::string dtype_of(llvm::StringRef constant);
/// "nearest" for torch::kNearest.
std::string enum_word(llvm::StringRef constant);

/// The file's text and its place among the files of the document.
class Files {
 public:
  explicit Files(clang::SourceManager& sm) : sm_(sm) {}
  int index(clang::FileID id);
  Range range(clang::SourceRange r, const clang::LangOptions& lang);
  const std::vector<clang::FileID>& all() const { return all_; }

 private:
  clang::SourceManager& sm_;
  std::vector<clang::FileID> all_;
  std::map<clang::FileID, int> known_;
};

class Lowering {
 public:
  Lowering(clang::ASTContext& ast, clang::Sema& sema, program::Arena& arena);
  /// The whole translation unit's user code.
  std::vector<Stmt*> run();
  Files& files() { return files_; }
  /// A class that a user may name; `spelled` is how C++ does.
  struct Class {
    std::string name;
    bool module = false;
    std::string spelled;
  };
  const std::vector<Class>& classes() const { return classes_; }

 private:
  // ---- declarations (lower_decl.cpp) ------------------------------------------------------------------------------------------
  void walk(const clang::DeclContext* dc);
  void declare(const clang::Decl* d);
  void class_decl(const clang::CXXRecordDecl* r);
  void constructors(const clang::CXXRecordDecl* r, std::vector<Stmt*>& body);
  program::Function* function(const clang::FunctionDecl* f, const std::string& name, bool method);
  void initialisers(const clang::CXXConstructorDecl* c, std::vector<Stmt*>& body);
  program::Function* aggregate(const clang::CXXRecordDecl* r);
  std::string class_name(const clang::CXXRecordDecl* r);
  std::string function_name(const clang::FunctionDecl* f);
  std::string constructor_name(const clang::CXXConstructorDecl* c);
  const clang::CXXConstructorDecl* pick_constructor(const clang::CXXRecordDecl* r, llvm::ArrayRef<const clang::Expr*> args);
  std::string local(const clang::ValueDecl* d);
  std::string fresh(const std::string& stem);

  // ---- statements (lower_stmt.cpp) --------------------------------------------------------------------------------------------
  void block(const clang::Stmt* s, std::vector<Stmt*>& out);
  void statement(const clang::Stmt* s, std::vector<Stmt*>& out);
  void expression_statement(const clang::Expr* e, std::vector<Stmt*>& out);
  void declaration(const clang::DeclStmt* d, std::vector<Stmt*>& out);
  void variable(const clang::VarDecl* v, Range r, std::vector<Stmt*>& out);
  void for_loop(const clang::ForStmt* f, std::vector<Stmt*>& out);
  bool counted_loop(const clang::ForStmt* f, std::vector<Stmt*>& out);
  void switch_statement(const clang::SwitchStmt* s, std::vector<Stmt*>& out);
  void lambda(const clang::LambdaExpr* l, const std::string& name, std::vector<Stmt*>& out);
  Expr* target(const clang::Expr* e);
  Stmt* stmt(StmtKind k, Range r, std::vector<Stmt*>& out);

  // ---- expressions (lower_expr.cpp, lower_call.cpp) ---------------------------------------------------------------------------
  Expr* expr(const clang::Expr* e);  ///< never nullptr
  Expr* inner(const clang::Expr* e, Range r);
  Expr* cast(const clang::CastExpr* e, Range r);
  Expr* reference(const clang::DeclRefExpr* e, Range r);
  Expr* member(const clang::MemberExpr* e, Range r);
  Expr* init_list(const clang::InitListExpr* e, Range r);
  Expr* construct(const clang::CXXConstructExpr* e, Range r);
  /// A class called with arguments that were forwarded to its constructor.
  Expr* make_object(const clang::CXXRecordDecl* r, llvm::ArrayRef<const clang::Expr*> args, Range whole, Range callee,
                    const clang::CXXConstructorDecl* used);
  Expr* make_vector(const clang::CXXRecordDecl* made, llvm::ArrayRef<const clang::Expr*> args, Range r);
  Expr* operator_call(const clang::CXXOperatorCallExpr* e, Range r);
  Expr* member_call(const clang::CXXMemberCallExpr* e, Range r);
  Expr* tensor_method(const clang::CXXMemberCallExpr* e, const std::string& name, Range r);
  Expr* library_method(const clang::CXXMemberCallExpr* e, const clang::CXXRecordDecl* r, const std::string& name, Range range);
  Expr* free_call(const clang::CallExpr* e, const clang::FunctionDecl* f, Range r);
  Expr* std_call(const clang::CallExpr* e, const clang::FunctionDecl* f, Range r);
  void arguments(Expr* call, llvm::ArrayRef<const clang::Expr*> args);
  /// LinearOptions(a, b).bias(false) as keyword arguments; false when it is no such chain.
  bool flatten_options(const clang::Expr* e, std::vector<Argument>& out);
  Expr* subscript_key(const clang::Expr* e, Range r);

  // ---- making nodes -----------------------------------------------------------------------------------------------------------
  Expr* make(ExprKind k, Range r) { return arena_.expr(k, r); }
  Expr* name(const std::string& n, Range r = {});
  Expr* attribute(Expr* of, const std::string& n, Range r = {});
  Expr* ours(const std::string& n, Range r = {}) { return attribute(name("_cxx"), n, r); }
  Expr* torch(const std::string& dotted, Range r = {});
  Expr* call(Expr* callee, std::vector<Expr*> args, Range r);
  Expr* integer(std::int64_t v, Range r);
  Expr* string(const std::string& s, Range r);
  Expr* none(Range r) { return make(ExprKind::None, r); }
  Expr* opaque(const std::string& why, Range r);
  Expr* subscript(Expr* of, Expr* key, Range r);
  Expr* method(Expr* of, const std::string& n, std::vector<Expr*> args, Range r) {
    return call(attribute(of, n, of->range), std::move(args), r);
  }
  Range range(clang::SourceRange r) { return files_.range(r, ast_.getLangOpts()); }
  Range range(const clang::Stmt* s) { return range(s->getSourceRange()); }

  clang::ASTContext& ast_;
  clang::Sema& sema_;  ///< instantiates what templates have not yet
  program::Arena& arena_;
  Files files_;
  std::vector<Stmt*> top_;
  std::vector<Stmt*>* block_ = nullptr;  ///< where statements needed by an expression go (hoisted lambdas)
  std::unordered_map<const clang::Decl*, std::string> names_;
  std::unordered_map<const clang::Decl*, std::string> locals_;
  std::set<std::string> taken_;  ///< names of the current function
  std::set<std::string> globals_;
  std::set<const clang::Decl*> done_;
  std::vector<Class> classes_;
  std::vector<const clang::CXXRecordDecl*> pending_;  ///< template instances met in types and not yet read
};

}  // namespace shardwright::cxx
