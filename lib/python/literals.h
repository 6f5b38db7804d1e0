// Decoding of Python literals. Internal to lib/python.
#pragma once
#include <string>
#include <string_view>

#include "program/program.h"

namespace shardwright::python {

/// The letters and quotes that open a string literal: rb""" and the like.
struct StringPrefix {
  bool raw = false, bytes = false, format = false;
};
StringPrefix string_prefix(std::string_view opening);

/// The value of the text between the quotes, appended to `out`: escapes resolved unless raw, CRLF as LF, {{ and }} of f-strings
/// as one brace. Strings come out as UTF-8 (lone surrogates as three bytes), bytes literals as bytes.
void decode_string(std::string_view body, StringPrefix prefix, std::string& out);

/// Fills kind, integer, number or text of a number literal.
void decode_number(std::string_view literal, program::Expr& out);

}  // namespace shardwright::python
