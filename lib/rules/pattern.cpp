// The two small notations of rules/ops: factor patterns and signatures.
#include <cctype>

#include "rules/ops.h"

namespace shardwright::rules {
namespace {

std::string_view trim(std::string_view s) {
  while (!s.empty() && std::isspace(static_cast<unsigned char>(s.front()))) s.remove_prefix(1);
  while (!s.empty() && std::isspace(static_cast<unsigned char>(s.back()))) s.remove_suffix(1);
  return s;
}

/// Cuts at commas outside brackets and quotes.
std::vector<std::string_view> cut(std::string_view s) {
  std::vector<std::string_view> out;
  int depth = 0;
  char quote = 0;
  std::size_t start = 0;
  for (std::size_t i = 0; i < s.size(); ++i) {
    char c = s[i];
    if (quote) {
      if (c == quote) quote = 0;
    } else if (c == '\'' || c == '"') {
      quote = c;
    } else if (c == '(' || c == '[') {
      ++depth;
    } else if (c == ')' || c == ']') {
      --depth;
    } else if (c == ',' && depth == 0) {
      out.push_back(trim(s.substr(start, i - start)));
      start = i + 1;
    }
  }
  if (auto last = trim(s.substr(start)); !last.empty() || !out.empty()) out.push_back(last);
  return out;
}

bool word(std::string_view s) {
  if (s.empty()) return false;
  for (char c : s)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_') return false;
  return true;
}

std::string parse_operand(std::string_view text, PatternOperand& out) {
  while (!text.empty() && (text.back() == '?' || text.back() == '+')) {
    (text.back() == '?' ? out.optional : out.bias) = true;
    text.remove_suffix(1);
  }
  std::size_t at = 0;
  while (at < text.size()) {
    if (std::isspace(static_cast<unsigned char>(text[at]))) {
      ++at;
      continue;
    }
    std::size_t end = at;
    while (end < text.size() && !std::isspace(static_cast<unsigned char>(text[end]))) ++end;
    std::string_view token = text.substr(at, end - at);
    at = end;
    PatternDim d;
    if (token.back() == '!') {
      d.blocked = true;
      token.remove_suffix(1);
    }
    if (token != "..." && !word(token))
      return "\"" + std::string(token) + "\" is not a dimension (a word, \"...\", with \"!\" when it is needed whole)";
    d.name = token;
    out.dims.push_back(std::move(d));
  }
  return "";
}

}  // namespace

std::string parse_pattern(std::string_view text, Pattern& out) {
  std::size_t arrow = text.find("->");
  if (arrow == std::string_view::npos) return "a rule needs \"->\" between operands and results";
  for (std::string_view part : cut(text.substr(0, arrow))) {
    out.inputs.emplace_back();
    if (auto e = parse_operand(part, out.inputs.back()); !e.empty()) return e;
  }
  std::string_view right = trim(text.substr(arrow + 2));
  if (right.empty()) out.outputs.emplace_back();
  for (std::string_view part : cut(right)) {
    out.outputs.emplace_back();
    if (auto e = parse_operand(part, out.outputs.back()); !e.empty()) return e;
  }
  if (out.inputs.empty()) return "a rule needs an operand";
  return "";
}

std::string parse_signature(std::string_view text, std::vector<Parameter>& out) {
  bool keyword_only = false;
  for (std::string_view part : cut(text)) {
    if (part == "*") {
      keyword_only = true;
      continue;
    }
    Parameter p;
    if (part.starts_with("**")) {
      p.kind = Parameter::VarKeywords;
      part.remove_prefix(2);
    } else if (part.starts_with("*")) {
      p.kind = Parameter::VarArgs;
      part.remove_prefix(1);
      keyword_only = true;
    } else if (keyword_only) {
      p.kind = Parameter::KeywordOnly;
    }
    if (std::size_t eq = part.find('='); eq != std::string_view::npos) {
      p.has_default = true;
      p.default_text = std::string(trim(part.substr(eq + 1)));
      part = trim(part.substr(0, eq));
    }
    if (!word(part)) return "\"" + std::string(part) + "\" is not a parameter name";
    p.name = part;
    out.push_back(std::move(p));
  }
  return "";
}

}  // namespace shardwright::rules
