// Python source → program::Module, through tree-sitter.
//
// Choices a reader of the tree has to know (where the language-neutral program leaves room):
// - Offsets are into the file's bytes as they are: BOM, CRLF and tabs included.
// - A Tuple or GeneratorExp written with parentheses has them inside `range` (as CPython's ast does); for every other kind
//   parentheses are only in `outer`.
// - FString kids: String and FormattedValue parts. FormattedValue.text is conversion and format specification as written
//   ("!r:>{width}"); replacement fields inside the specification follow the value as kids[1…], each a FormattedValue.
//   `{x=}` becomes the String part "x=" and a FormattedValue with "!r".
// - An escape \N{name} in a string stays as written.
// - Match patterns are expressions: capture and `_` are Name, `a.b` Attribute, class patterns Call, alternatives Binary "|",
//   sequences List or Tuple with Starred, mappings Dict (`**rest` has a null key), `p as n` is Walrus (kids: n, p).
// - An annotation is an ordinary expression; `-> "T"` stays a String.
// - Type parameters of functions and classes are skipped.
// - `except*` is lowered like `except`, with Stmt::text "*".
// - `async for` and `async with` have Stmt::text "async".
#pragma once
#include "program/program.h"
#include "support/diagnostic.h"

namespace shardwright::python {

/// Expressions and statements nested deeper than this are a syntax error (CPython refuses them much earlier).
constexpr int kMaxDepth = 1500;

/// Parses one file. Never fails: what cannot be read is in Module::syntax_errors and, for the first of them, in `diagnostics`
/// (severity Error, code "syntax"); what can be read around it is still lowered. Module::name is the file's module name.
/// `bodies_later`: bodies of functions are read when somebody asks for them (Function::later), errors in them are found then.
program::Module* parse(support::SourceManager& sources, support::FileId file, program::Arena& arena, support::Diagnostics& diagnostics,
                       bool bodies_later = false);

}  // namespace shardwright::python
