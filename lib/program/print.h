// A program tree as text, for debugging and for tests.
#pragma once
#include <string>

#include "program/program.h"

namespace shardwright::program {

const char* name(ExprKind kind);
const char* name(StmtKind kind);

/// One expression on one line, as an s-expression: (Call (Attribute (Name self) "f") (Int 1) k=(True)).
std::string print(const Expr* e);
/// Statements, one a line, bodies indented by two spaces.
std::string print(const std::vector<Stmt*>& body);
std::string print(const Module& module);

}  // namespace shardwright::program
