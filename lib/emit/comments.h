// The comments of a module's top level: which statement each belongs to.
#pragma once
#include <string>

#include "program/program.h"
#include "support/source.h"

namespace shardwright::emit {

/// Around one statement.
struct Comments {
  std::string above;   ///< whole lines, each with its "\n"
  std::string behind;  ///< what follows the statement's text: "  # why", of a definition also the deeper lines below
  std::string after;   ///< the last lines of the file, without the final "\n"
};

/// Comments between what stands before a statement of the module's top level and the statement, and those behind it; the last statement
/// gets what is left of the file. Statements of other places: none.
Comments comments_of(const program::Module&, const program::Stmt&, const support::SourceManager&);
/// What a file begins with: comments (a license) that are set apart from the first statement by a docstring or a blank line, without a
/// "#!" line. Lines with their "\n"; "" where there are none.
std::string heading(const program::Module&, const support::SourceManager&);
/// The module's docstring as it is written; "" without one.
std::string docstring(const program::Module&, const support::SourceManager&);
/// The comment on the line of a name of a parenthesised import, "  # why"; "" without one.
std::string comment_on_name(const program::Stmt& import, const std::string& name, const support::SourceManager&);

}  // namespace shardwright::emit
