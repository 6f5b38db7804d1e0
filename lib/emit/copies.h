// What is copied of a module beside the definitions that are generated, and how it is told apart.
#pragma once
#include <set>
#include <string>

#include "program/program.h"

namespace shardwright::emit {

/// Names that Python binds by itself.
const std::set<std::string>& python_builtins();

inline bool is_definition(const program::Stmt* s) {
  return s->kind == program::StmtKind::FunctionDef || s->kind == program::StmtKind::ClassDef;
}

}  // namespace shardwright::emit
