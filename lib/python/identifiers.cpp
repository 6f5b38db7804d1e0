#include "python/identifiers.h"

#include <algorithm>
#include <cctype>
#include <set>

namespace shardwright::python {
namespace {

bool word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }
bool digit(char c) { return std::isdigit(static_cast<unsigned char>(c)); }

bool is_keyword(std::string_view s) {
  static const std::set<std::string_view> words{"False", "None",     "True",  "and",    "as",   "assert", "async",  "await",    "break",
                                                "class", "continue", "def",   "del",    "elif", "else",   "except", "finally",  "for",
                                                "from",  "global",   "if",    "import", "in",   "is",     "lambda", "nonlocal", "not",
                                                "or",    "pass",     "raise", "return", "try",  "while",  "with",   "yield"};
  return words.count(s) > 0;
}

}  // namespace

bool is_identifier(std::string_view s) { return !s.empty() && !digit(s[0]) && std::all_of(s.begin(), s.end(), word) && !is_keyword(s); }

std::string identifier(std::string_view s) {
  std::string out(s);
  std::replace_if(
      out.begin(), out.end(), [](char c) { return !word(c); }, '_');
  if (out.empty() || digit(out[0])) out.insert(0, "_");
  return is_keyword(out) ? out + "_" : out;
}

}  // namespace shardwright::python
