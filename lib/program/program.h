// The language-neutral program: what a front end (tree-sitter for Python, Clang for C++) lowers source into and what the
// abstract interpreter runs. It knows neither Python, nor C++, nor torch. Nodes live in an Arena and are never freed
// before it; every node carries the byte range it came from, because the rewriter edits the original text.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/source.h"

namespace shardwright::program {

using support::Range;

struct Expr;
struct Stmt;
struct Function;
struct ClassDef;

enum class ExprKind : std::uint8_t {
  Name,  // text
  None,
  True,
  False,
  Ellipsis,
  Int,             // integer, or text when it does not fit 64 bits
  Float,           // number
  Imaginary,       // number
  String,          // text: the decoded value (adjacent literals joined)
  Bytes,           // text
  FString,         // kids: String parts and FormattedValue parts in order
  FormattedValue,  // kids[0]; text: conversion+format spec as written ("!r:>10")
  Attribute,       // kids[0] . text
  Subscript,       // kids[0] [ kids[1] ]; several indices come as one Tuple
  Slice,           // kids[0..2]: lower, upper, step; absent ones are nullptr
  Call,            // kids[0] is the callee; args
  Unary,           // text: "-" "+" "~" "not"; kids[0]
  Binary,          // text: "+" "-" "*" "/" "//" "%" "**" "@" "&" "|" "^" "<<" ">>"; kids[0], kids[1]
  BoolOp,          // text: "and" "or"; kids (two or more)
  Compare,         // kids: operands (n+1); ops: n of "<" "<=" ">" ">=" "==" "!=" "is" "is not" "in" "not in"
  Conditional,     // kids: value-if-true, condition, value-if-false
  Tuple,
  List,
  Set,
  Dict,    // kids: key, value, key, value…; a ** entry has a nullptr key
  Lambda,  // function
  ListComp,
  SetComp,
  GeneratorExp,  // kids[0]: element; clauses
  DictComp,      // kids[0], kids[1]: key, value; clauses
  Starred,       // * kids[0]
  Walrus,        // kids[0] (Name) := kids[1]
  Await,
  Yield,
  YieldFrom,  // kids[0] or empty
  Opaque,     // syntax the front end does not know; text: its kind
};

struct Argument {
  Expr* value = nullptr;
  std::string keyword;       ///< "" for positional
  bool star = false;         ///< *value
  bool double_star = false;  ///< **value
  Range range;               ///< whole argument, keyword included
};

/// `for target in iterable if cond…` of a comprehension.
struct Clause {
  Expr* target = nullptr;
  Expr* iterable = nullptr;
  std::vector<Expr*> conditions;
};

struct Expr {
  ExprKind kind;
  Range range;  ///< without enclosing parentheses
  Range outer;  ///< with the enclosing parentheses, if any; else equal to range
  std::string text;
  std::int64_t integer = 0;
  double number = 0;
  std::vector<Expr*> kids;
  std::vector<Argument> args;
  std::vector<std::string> ops;
  std::vector<Clause> clauses;
  Function* function = nullptr;
};

enum class StmtKind : std::uint8_t {
  Expression,  // value
  Assign,      // targets (a = b = value), value; one target pattern may be Tuple/List/Starred/Attribute/Subscript
  AugAssign,   // targets[0], op ("+=" is "+"), value
  AnnAssign,   // targets[0], annotation, value or nullptr
  Return,      // value or nullptr
  If,          // value: condition; body; orelse (an elif is an If alone in orelse)
  For,         // targets[0], value: iterable; body; orelse
  While,       // value; body; orelse
  With,        // items; body
  Try,         // body; handlers; orelse; finally
  Raise,       // value or nullptr; extra: cause
  Assert,      // value; extra: message
  Delete,      // targets
  Global,
  Nonlocal,  // names
  Pass,
  Break,
  Continue,
  FunctionDef,  // function
  ClassDef,     // class_def
  Import,       // imports: module, asname
  ImportFrom,   // module, level, imports: name, asname ("*" for star)
  Match,        // value; cases
  TypeAlias,    // ignored by the interpreter
  Opaque,       // text: its kind
};

struct WithItem {
  Expr* value = nullptr;
  Expr* target = nullptr;
};
struct Handler {
  Expr* type = nullptr;
  std::string name;
  std::vector<Stmt*> body;
  Range range;
};
struct ImportName {
  std::string name;
  std::string asname;
  Range range;
};
struct MatchCase {
  Expr* pattern = nullptr;
  Expr* guard = nullptr;
  std::vector<Stmt*> body;
  Range range;
};

struct Stmt {
  StmtKind kind;
  Range range;  ///< from the first token to the last, without the newline; compound statements include their body
  std::vector<Expr*> targets;
  Expr* value = nullptr;
  Expr* annotation = nullptr;
  Expr* extra = nullptr;
  std::string op;
  std::string text;
  std::vector<Stmt*> body, orelse, finally;
  std::vector<Handler> handlers;
  std::vector<WithItem> items;
  std::vector<std::string> names;
  Function* function = nullptr;
  ClassDef* class_def = nullptr;
  std::string module;  ///< ImportFrom: dotted name without leading dots
  int level = 0;       ///< ImportFrom: number of leading dots
  std::vector<ImportName> imports;
  std::vector<MatchCase> cases;
};

struct Parameter {
  enum Kind : std::uint8_t { Positional, PositionalOnly, KeywordOnly, VarArgs, VarKeywords };
  std::string name;
  Kind kind = Positional;
  Expr* annotation = nullptr;
  Expr* default_value = nullptr;
  Range range;
};

/// A part of a function that a front end may leave unread until somebody asks (Function::later).
template <class T>
class Late {
 public:
  explicit Late(const Function* of) : of_(of) {}
  operator const T&() const { return read(); }
  const T& operator*() const { return read(); }
  T* operator->() {
    read();
    return &value_;
  }
  const T* operator->() const { return &read(); }
  const T* operator&() const { return &read(); }
  auto begin() const { return read().begin(); }
  auto end() const { return read().end(); }
  auto size() const { return read().size(); }
  auto empty() const { return read().empty(); }
  const auto& front() const { return read().front(); }
  const auto& back() const { return read().back(); }
  const auto& operator[](std::size_t i) const { return read()[i]; }
  Late& operator=(T value) {
    value_ = std::move(value);
    return *this;
  }
  template <class X>
  void push_back(X x) {
    value_.push_back(std::move(x));
  }
  T& fill() { return value_; }  ///< for the front end: to write into, whatever has been read

 private:
  const T& read() const;
  const Function* of_;
  T value_{};
};

struct Function {
  Function() = default;
  Function(const Function&) = delete;
  Function& operator=(const Function&) = delete;
  std::string name;  ///< "<lambda>" for lambdas
  Range range;       ///< from the first decorator to the end of the body
  Range def_range;   ///< from `def` to the end of the body
  Range body_range;  ///< the statements; empty where they were left unread
  std::vector<Expr*> decorators;
  std::vector<Parameter> parameters;
  Expr* returns = nullptr;
  Late<std::vector<Stmt*>> body{this};  ///< a lambda has one Return
  bool is_async = false;
  Late<bool> is_generator{this};                ///< contains yield of its own
  ClassDef* owner = nullptr;                    ///< class whose body holds it directly
  Late<std::vector<std::string>> locals{this};  ///< names bound in its own scope (parameters included, global/nonlocal excluded)
  struct Module* module = nullptr;
  /// Reads what was left unread, once. Not for two threads at a time.
  mutable std::function<void(Function&)> later;
};

template <class T>
const T& Late<T>::read() const {
  if (of_->later) {
    const auto reader = std::exchange(of_->later, nullptr);
    reader(const_cast<Function&>(*of_));
  }
  return value_;
}

struct ClassDef {
  std::string name;
  Range range;      ///< from the first decorator
  Range def_range;  ///< from `class`
  std::vector<Expr*> decorators;
  std::vector<Argument> bases;  ///< keywords included (metaclass=…)
  std::vector<Stmt*> body;
  struct Module* module = nullptr;
};

/// One source file. `body` is its top level; the interpreter indexes it by the names it binds and runs it on demand.
struct Module {
  std::string name;  ///< dotted
  support::FileId file = -1;
  bool is_package = false;
  std::vector<Stmt*> body;
  std::vector<Range> comments;       ///< every comment, in order
  std::vector<Range> syntax_errors;  ///< ranges the parser could not read
};

/// Owns nodes.
class Arena {
 public:
  Expr* expr(ExprKind k, Range r) {
    exprs_.push_back(Expr{.kind = k, .range = r, .outer = r, .text = {}, .kids = {}, .args = {}, .ops = {}, .clauses = {}});
    return &exprs_.back();
  }
  Stmt* stmt(StmtKind k, Range r) {
    stmts_.emplace_back();
    stmts_.back().kind = k;
    stmts_.back().range = r;
    return &stmts_.back();
  }
  Function* function() {
    functions_.emplace_back();
    return &functions_.back();
  }
  ClassDef* class_def() {
    classes_.emplace_back();
    return &classes_.back();
  }
  Module* module() {
    modules_.emplace_back();
    return &modules_.back();
  }

 private:
  std::deque<Expr> exprs_;
  std::deque<Stmt> stmts_;
  std::deque<Function> functions_;
  std::deque<ClassDef> classes_;
  std::deque<Module> modules_;
};

}  // namespace shardwright::program
